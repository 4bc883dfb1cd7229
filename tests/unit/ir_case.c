/* ir_case.c: graphs from text, for the tests of src/ir. */
#include "ir_case.h"

#include <stdio.h>

static char shown[1024];

ir_graph *
ir_case_graph(const char *text)
{
    ir_graph *g;

    if (ir_parse(&base_libc_alloc, text, strlen(text), &g) == AIR_OK)
        return g;
    test_fail(__FILE__, __LINE__, "%s", air_last_error()->message);
    return NULL;
}

ir_graph *
ir_case_body(const char *header, const char *body)
{
    char text[4096];

    snprintf(text, sizeof text, "graph f(%s) {\n%s\nreturn\n}\n", header, body);
    return ir_case_graph(text);
}

const ir_value *
ir_case_value(const ir_graph *g, const char *name)
{
    for (size_t i = 0; i < g->values.count; i++)
        if (strcmp(g->values.data[i].name, name) == 0)
            return &g->values.data[i];
    test_fail(__FILE__, __LINE__, "no value %%%s", name);
    return &g->values.data[0];
}

const char *
ir_case_type(const ir_graph *g, const char *name)
{
    const ir_value *v = ir_case_value(g, name);
    base_text text;

    base_text_init(&text, &base_libc_alloc);
    base_text_add(&text, "%s[", air_dtype_text((air_dtype)v->dtype));
    for (int i = 0; i < v->rank; i++) {
        base_text_add(&text, "%s", i ? ", " : "");
        ir_dim_print(g, v->dims[i], &text);
    }
    base_text_add(&text, "]");
    snprintf(shown, sizeof shown, "%s", text.data);
    base_text_deinit(&text);
    return shown;
}

const char *
ir_case_infer(const char *header, const char *op)
{
    char text[4096];
    ir_graph *g;

    snprintf(text, sizeof text, "graph f(%s) {\n%%r = %s\nreturn %%r\n}\n",
             header, op);
    if (ir_parse(&base_libc_alloc, text, strlen(text), &g) != AIR_OK) {
        snprintf(shown, sizeof shown, "%s: %s",
                 air_status_text(air_last_error()->code),
                 air_last_error()->message);
        return shown;
    }
    ir_case_type(g, "r");
    ir_graph_free(g);
    return shown;
}

base_text
ir_case_print(const ir_graph *g)
{
    base_text text;

    base_text_init(&text, &base_libc_alloc);
    CHECK_OK(ir_print(g, &text));
    return text;
}
