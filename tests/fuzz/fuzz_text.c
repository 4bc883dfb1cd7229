/* fuzz_text.c: any bytes as a text graph. What parses must verify, and print
 * as something that parses to the same text. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"

int fuzz_one(const uint8_t *data, size_t size);

static void
die(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s\n%s\n", what, air_last_error()->message,
            text ? text : "");
    abort();
}

static void
check_again(const ir_graph *g, const base_text *text)
{
    ir_graph *again, *copy;
    base_text second, third;

    if (ir_parse(&base_libc_alloc, text->data, text->len, &again) != AIR_OK)
        die("does not parse again", text->data);
    if (ir_graph_clone(g, &copy) != AIR_OK)
        die("does not clone", text->data);
    base_text_init(&second, &base_libc_alloc);
    base_text_init(&third, &base_libc_alloc);
    if (ir_print(again, &second) != AIR_OK || ir_print(copy, &third) != AIR_OK)
        die("does not print again", text->data);
    if (strcmp(text->data, second.data) != 0)
        die("prints differently", text->data);
    if (strcmp(text->data, third.data) != 0)
        die("its clone prints differently", text->data);
    base_text_deinit(&second);
    base_text_deinit(&third);
    ir_graph_free(copy);
    ir_graph_free(again);
}

int
fuzz_one(const uint8_t *data, size_t size)
{
    ir_graph *g;
    base_text text;

    if (ir_parse(&base_libc_alloc, (const char *)data, size, &g) != AIR_OK)
        return 0;
    if (ir_verify(g) != AIR_OK)
        die("does not verify", NULL);
    base_text_init(&text, &base_libc_alloc);
    if (ir_print(g, &text) != AIR_OK)
        die("does not print", NULL);
    check_again(g, &text);
    base_text_deinit(&text);
    ir_graph_free(g);
    return 0;
}
