/* test_ir_text.c: print and parse. */
#include "ir_case.h"

/* Everything the text form has; prints as itself. */
static const char *const everything =
    "sym s0 = [2, 512] hint 8\n"
    "sym u = [0, inf]\n"
    "graph decode(%x: f32[s0, 768], %w: f32[768, 768] param frozen, s1: int, "
    "n: int = u, %m: bool[s1, s0 + 2*s1]) {\n"
    "  %1: f32[s0, 768] = mm(%x, %w)  # model.py:41\n"
    "  %2: f32[s0, 768] = gelu(%1, approximate=\"tanh\") @3 threads 2 lane 1 "
    "joined "
    "untimed  # "
    "two words\n"
    "  %3: f32[s0, 768] = add.Tensor(%2, 2.0, alpha=2)\n"
    "  %4: f32[2*s0, 384] = view(%3, size=[-1, 384])\n"
    "  %5: f32[s0, 384] = slice.Tensor(%4, start=s0)\n"
    "  %h: f32[2], %j: bool[s0*s1] = host \"a::b\" 12 \"why \\\"x\\\"\" "
    "(%1, none)\n"
    "  host \"a::c\" 13 \"\" () reads [s0, 2*s1]\n"
    "  %st: f32[s0, 768] = start \"a::d\" 14 \"sum\" (%1)\n"
    "  %wt: f32[s0, 768] = wait \"a::e\" 15 \"for s\" (%st)\n"
    "  %a: f32[2*s0, 382], %b: f32[2*s0, 2] = split_with_sizes(%4, "
    "split_sizes=[382, 2], dim=1)\n"
    "  %c: f32[2*s0, 2] = clamp(%b, max=inf)\n"
    "  %cp: f32[s0, 768] = copy_(%x, %1) inplace\n"
    "  %f: f32[s0, 2] = full(size=[s0, 2], fill_value=-1.5e-20)\n"
    "  %g: i64[min(s0, u), max(1, 4 - s1)] = full(size=[min(s0, u), "
    "max(1, 4 - s1)], fill_value=s0//3)\n"
    "  %d: bf16[s0, 2] = _to_copy(%f, dtype=bf16)\n"
    "  return %3, %4 strides [1, 2*s0], %c\n"
    "}\n";

static void
check_round_trip(const char *text, const char *want)
{
    ir_graph *g = ir_case_graph(text);
    if (!g)
        return;
    base_text out = ir_case_print(g);
    CHECK_STR(out.data, want);
    CHECK_OK(ir_verify(g));
    base_text_deinit(&out);
    ir_graph_free(g);
}

TEST(text_everything_round_trips)
{
    check_round_trip(everything, everything);
}

TEST(text_free_form)
{
    check_round_trip(
        "# a comment\nsym t=[1,4] graph g ( %x : f32 [ t , 2+1 ] ) {\n"
        "%q = mul.Tensor( %x , b = 3 ) # note\n\n %r=neg(%q)return %r}  \n",
        "sym t = [1, 4]\n"
        "graph g(%x: f32[t, 3]) {\n"
        "  %q: f32[t, 3] = mul.Tensor(%x, 3)  # note\n"
        "  %r: f32[t, 3] = neg(%q)\n"
        "  return %r\n"
        "}\n");
}

static const char *const literals =
    "graph g(%x: f64[], %i: i64[5]) {\n"
    "  %1: f64[] = add.Tensor(%x, 0.1)\n"
    "  %2: f64[] = add.Tensor(%x, 1e+300)\n"
    "  %3: f64[] = add.Tensor(%x, nan)\n"
    "  %4: f64[] = add.Tensor(%x, -inf)\n"
    "  %5: f64[] = add.Tensor(%x, true)\n"
    "  %6: f64[] = add.Tensor(%x, -3, alpha=0.5)\n"
    "  %7: f64[3] = stack([%x, %1, %x])\n"
    "  %8: f64[3, 2] = expand(%7, size=[3, 2])\n"
    "  return %6\n"
    "}\n";

TEST(text_literals)
{
    ir_graph *g;
    CHECK_FAILS(ir_parse(&base_libc_alloc, literals, strlen(literals), &g),
                SHAPE); /* expand of 3 to 2 */
    char text[1024];
    snprintf(text, sizeof text, "%s", literals);
    char *line = strstr(text, "  %8: f64[3, 2] = expand(%7, size=[3, 2])");
    REQUIRE(line != NULL);
    memmove(line, strchr(line, '\n') + 1, strlen(strchr(line, '\n')));
    check_round_trip(text, text);
}

typedef struct {
    const char *text, *message;
} mistake;

static const mistake mistakes[] = {
    {"", "1:1: expected 'graph' or 'sym'"},
    {"graph f(%x: f32[2]) {\n  %1 = nope(%x)\n", "2:8: unknown op 'nope'"},
    {"graph f(%x: f32[2]) {\n  %1 = relu(%y)\n", "2:14: unknown value 'y'"},
    {"graph f(%x: f31[2]) {", "1:13: unknown dtype 'f31'"},
    {"graph f(%x: f32[2]) {\n  %1: f32[3] = relu(%x)\n",
     "2:4: the op gives f32[2], the text says f32[3]"},
    {"graph f(%x: f32[2]) {\n  %1 = relu(%x, 1)\n", "2:17: too many arguments"},
    {"graph f(%x: f32[2]) {\n  %1 = gelu(%x, b=1)\n",
     "2:17: unknown argument 'b'"},
    {"graph f(%x: f32[2]) {\n  %1 = relu(%x, a=%x)\n",
     "2:16: an argument is given twice"},
    {"graph f(%x: f32[2]) {\n  %1 = add.Tensor(b=%x, %x)\n",
     "2:25: arguments after a named one need names"},
    {"graph f(%x: f32[2]) {\n  %1 = view(%x, size=[s0])\n",
     "2:23: unknown symbol 's0'"},
    {"graph f(%x: f32[-9223372036854775808, 2]) {\n"
     "  %1, %2 = split.Tensor(%x, 1)\n  return %1\n}\n",
     "split.Tensor: an axis of -9223372036854775808"},
    {"graph f(%x: f32[2]) {\n  %1, %2 = relu(%x)\n",
     "2:12: wrong number of results for 'relu'"},
    {"graph f(%x: f32[2]) {\n  %x = relu(%x)\n",
     "2:4: the name %x is used twice"},
    {"graph f(%x: f32[2], %x: f32[2]) {", "1:22: two inputs are named x"},
    {"graph f(%x: f32[1//0]) {", "1:18: a size expression divides by zero"},
    {"graph f(%x: f32[99999999999999999999]) {",
     "1:17: the integer does not fit 64 bits"},
    {"graph f(%x: f32[2]) {\n  return %x strides []", "one stride per dim"},
    {"graph f(%x: f32[2]) {\n  return %x\n}\n}", "4:1: text after the graph"},
    {"graph f() {\n  %h = host \"a\" 1 \"\" ()\n", "a host result needs"},
    {"graph f() {\n  host \"a", "the string has no end"},
    {"graph f() {\n  host \"a\" 1 \"\" () reads n\n", "2:26: expected '['"},
    {"graph f(%x: f32[2]) {\n  %s: f32[2] = start \"a\" 1 \"\" (%x)\n"
     "  %w: f32[3] = wait \"a\" 2 \"\" (%s)\n",
     "of the same type"},
    {"sym s = [3, 2]\ngraph f() {", "1:5: empty range of symbol 's'"},
    {"graph f(%x: f32[1,1,1,1,1,1,1,1,1]) {", "too many dims"},
};

TEST(text_mistakes)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        ir_graph *g = (ir_graph *)1;
        const char *text = mistakes[i].text;
        CHECK(ir_parse(&base_libc_alloc, text, strlen(text), &g) != AIR_OK);
        CHECK(g == NULL);
        if (!strstr(air_last_error()->message, mistakes[i].message))
            CHECK_STR(air_last_error()->message, mistakes[i].message);
    }
}

/* Every prefix of a graph is an error and nothing worse. */
TEST(text_truncated)
{
    size_t len = strlen(everything);
    for (size_t n = 0; n + 2 < len; n++) {
        ir_graph *g;
        test_alloc t;
        test_alloc_init(&t);
        CHECK(ir_parse(&t.alloc, everything, n, &g) != AIR_OK);
        CHECK_CLEAN(&t);
    }
}

/* Any one byte changed: an error or another graph that verifies. */
TEST(text_one_byte_changed)
{
    static const char bytes[] = "%0[](){}=,:#\"-9z \n";
    char text[4096];
    size_t len = strlen(everything);
    int graphs = 0;
    for (size_t n = 0; n < len; n++)
        for (size_t k = 0; k + 1 < sizeof bytes; k += 3) {
            ir_graph *g;
            memcpy(text, everything, len + 1);
            text[n] = bytes[(k + n) % (sizeof bytes - 1)];
            if (ir_parse(&base_libc_alloc, text, len, &g) == AIR_OK) {
                graphs++;
                CHECK_OK(ir_verify(g));
                ir_graph_free(g);
            }
        }
    CHECK(graphs > 100); /* names, numbers, what is said of a node */
}

static air_status
use_all(const air_alloc *alloc, void *user)
{
    const char *text = user;
    ir_graph *g = NULL, *copy = NULL;
    base_text out;
    air_status status = ir_parse(alloc, text, strlen(text), &g);

    base_text_init(&out, alloc);
    if (status == AIR_OK)
        status = ir_graph_clone(g, &copy);
    if (status == AIR_OK)
        status = ir_verify(copy);
    if (status == AIR_OK)
        status = ir_print(copy, &out);
    if (status == AIR_OK)
        CHECK_STR(out.data, text);
    base_text_deinit(&out);
    ir_graph_free(copy);
    ir_graph_free(g);
    return status;
}

TEST(text_out_of_memory)
{
    char text[4096];
    snprintf(text, sizeof text, "%s", everything);
    TEST_OOM(use_all, text);
}
