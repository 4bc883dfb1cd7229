/* fuzz_parse.c: the text parser. What parses must verify, print, parse again
 * to the same text, and go through all passes with the verifier after each. */
#include <string.h>

#include "base/text.h"
#include "fuzz.h"
#include "ir/ir.h"
#include "pass/pass.h"

const char *const fuzz_words[] = {
    "graph ",
    "return ",
    "sym ",
    "hint ",
    "%x",
    "%1",
    "%",
    ": ",
    "f32",
    "bf16",
    "i64",
    "bool",
    "[]",
    "[s0, 4]",
    "[s0*2]",
    "(s0+1)//2",
    "min(s0, 3)",
    " = ",
    "add.Tensor",
    "mm",
    "view",
    "relu",
    "cat",
    "split.Tensor",
    "sum.dim_IntList",
    "dim=",
    "keepdim=true",
    "dim=[0, -1]",
    "dtype=f64",
    "none",
    "inf",
    "nan",
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "\"",
    "# ",
    "@0",
    "param",
    "host",
    "\n",
    "{\n",
    "}\n",
    ",",
    "-> ",
    "s0 % 2",
    "~",
    NULL,
};

static void
print(const ir_graph *g, base_text *out)
{
    base_text_init(out, &base_libc_alloc);
    FUZZ_REQUIRE(ir_print(g, out) == AIR_OK);
    FUZZ_REQUIRE(out->status == AIR_OK);
}

static void
check_again(const ir_graph *g)
{
    base_text first, second;
    ir_graph *again;
    print(g, &first);
    FUZZ_REQUIRE(ir_parse(&base_libc_alloc, first.data, first.len, &again) ==
                 AIR_OK);
    print(again, &second);
    FUZZ_REQUIRE(strcmp(first.data, second.data) == 0);
    base_text_deinit(&first);
    base_text_deinit(&second);
    ir_graph_free(again);
}

int
fuzz_one(const uint8_t *data, size_t size)
{
    ir_graph *g;
    air_compile_options options = {.exact = size % 2};
    air_status status =
        ir_parse(&base_libc_alloc, (const char *)data, size, &g);
    if (status != AIR_OK) {
        FUZZ_REQUIRE(g == NULL);
        FUZZ_REQUIRE(air_last_error()->code == status);
        FUZZ_REQUIRE(air_last_error()->message[0] != '\0');
        return 0;
    }
    FUZZ_REQUIRE(ir_verify(g) == AIR_OK);
    check_again(g);
    status =
        pass_run_all(g, &base_libc_alloc, &options, NULL, true, NULL, NULL);
    FUZZ_REQUIRE(status != AIR_ERROR_STATE);
    ir_graph_free(g);
    return 0;
}
