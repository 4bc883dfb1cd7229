#include "case.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "driver/ref/element.h"

const char *const case_layout_text[LAYOUTS] = {"dense", "reversed", "spaced",
                                               "broadcast"};

/* ---- reading a sample ---------------------------------------------------- */

static bool
take(const char **p, const char *token)
{
    size_t len = strlen(token);
    if (strncmp(*p, token, len) != 0)
        return false;
    *p += len;
    return true;
}

static bool
read_dtype(const char **p, air_dtype under_test, air_dtype *out)
{
    char name[8] = {0};
    *out = under_test;
    if (take(p, "$"))
        return true;
    for (size_t n = 0; n < 7 && isalnum((unsigned char)**p); n++)
        name[n] = *(*p)++;
    *out = air_dtype_find(name);
    return *out != AIR_DTYPE_NONE;
}

/* $[3,5] and what may stand around it. */
static bool
read_tensor(case_call *c, const char **p, air_ref *out)
{
    case_input *in = &c->inputs[c->ninputs];
    *in = (case_input){.unit = take(p, "~")};
    if (c->ninputs == CASE_INPUTS || !read_dtype(p, c->dtype, &in->dtype) ||
        !take(p, "["))
        return false;
    while (!take(p, "]")) {
        char *end;
        (void)take(p, ",");
        in->dims[in->rank++] = strtoll(*p, &end, 10);
        *p = end;
    }
    if (take(p, "<") || **p == '!') {
        char *end;
        in->distinct = take(p, "!");
        in->positive = take(p, "+") || in->distinct;
        in->below = strtoll(*p, &end, 10);
        *p = end;
    }
    *out = (air_ref){(uint32_t)c->ninputs++};
    return true;
}

static bool
read_tensors(case_call *c, const char **p, air_attr *a)
{
    air_ref *refs = c->refs[c->nattrs];
    a->kind = AIR_ATTR_VALUES;
    a->values = refs;
    while (!take(p, "}")) {
        (void)take(p, ",");
        if (take(p, "none"))
            refs[a->count] = AIR_NO_REF;
        else if (!read_tensor(c, p, &refs[a->count]))
            return false;
        a->count++;
    }
    return true;
}

/* (1,-2) or (true,false) */
static bool
read_list(case_call *c, const char **p, air_attr *a)
{
    a->kind = AIR_ATTR_INTS;
    while (!take(p, ")")) {
        char *end;
        (void)take(p, ",");
        if (isalpha((unsigned char)**p)) {
            a->kind = AIR_ATTR_BOOLS;
            a->bools = c->bools[c->nattrs];
            c->bools[c->nattrs][a->count++] = take(p, "true");
            (void)take(p, "false");
            continue;
        }
        c->ints[c->nattrs][a->count++] = strtoll(*p, &end, 10);
        if (end == *p)
            return false;
        *p = end;
    }
    return true;
}

static bool
read_number(case_call *c, const char **p, air_attr *a)
{
    char *end;
    double f = strtod(*p, &end);
    bool is_float = memchr(*p, '.', (size_t)(end - *p)) != NULL;
    if (end == *p)
        return false;
    a->kind = is_float ? AIR_ATTR_FLOAT : AIR_ATTR_INT;
    if (is_float)
        a->f = f;
    else
        c->ints[c->nattrs][0] = (int64_t)f;
    *p = end;
    return true;
}

static bool
read_str(case_call *c, const char **p, air_attr *a)
{
    char *s = c->strs[c->nattrs];
    for (size_t n = 0; **p != '"' && n < 15; n++)
        s[n] = *(*p)++;
    a->kind = AIR_ATTR_STR;
    a->str = s;
    return take(p, "\"");
}

static bool
read_argument(case_call *c, const char **p)
{
    air_attr *a = &c->attrs[c->nattrs];
    *a = (air_attr){.kind = AIR_ATTR_NONE};
    if (take(p, "none"))
        return true;
    if (take(p, "true") || take(p, "false")) {
        a->kind = AIR_ATTR_BOOL;
        a->b = (*p)[-2] == 'u';
        return true;
    }
    if (take(p, "@")) {
        a->kind = AIR_ATTR_DTYPE;
        return read_dtype(p, c->dtype, &a->dtype);
    }
    if (take(p, "\""))
        return read_str(c, p, a);
    if (take(p, "{"))
        return read_tensors(c, p, a);
    if (take(p, "("))
        return read_list(c, p, a);
    if (**p == '$' || **p == '~' || isalpha((unsigned char)**p)) {
        a->kind = AIR_ATTR_VALUE;
        return read_tensor(c, p, &a->value);
    }
    return read_number(c, p, a);
}

bool
case_parse(case_call *c, const ir_op_info *info, air_dtype dtype,
           const char *text)
{
    memset(c, 0, sizeof *c);
    c->info = info;
    c->dtype = dtype;
    while (*text != '\0') {
        if (c->nattrs == CASE_ATTRS || !read_argument(c, &text))
            return false;
        c->nattrs++;
        while (*text == ' ')
            text++;
    }
    return c->nattrs <= info->nparams;
}

/* ---- guessing from the schema -------------------------------------------- */

static void
guess_tensor(case_call *c, air_attr *a, int rank, const int64_t *dims,
             bool spread)
{
    case_input *in = &c->inputs[c->ninputs];
    *in = (case_input){.dtype = c->dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        in->dims[i] = spread && c->ninputs == 1 && i == 0 ? 1 : dims[i];
    a->kind = AIR_ATTR_VALUE;
    a->value = (air_ref){(uint32_t)c->ninputs++};
}

static bool
guess_argument(case_call *c, const ir_param *p, int rank, const int64_t *dims,
               bool spread)
{
    air_attr *a = &c->attrs[c->nattrs];
    int64_t *ints = c->ints[c->nattrs];
    *a = (air_attr){.kind = AIR_ATTR_NONE};
    if (p->has_default || p->kind == IR_PARAM_IGNORED ||
        (p->optional && p->kind != IR_PARAM_SCALAR))
        return true;
    switch ((ir_param_kind)p->kind) {
    case IR_PARAM_TENSOR: guess_tensor(c, a, rank, dims, spread); return true;
    case IR_PARAM_INT:
        a->kind = AIR_ATTR_INT;
        ints[0] = strcmp(p->name, "dim") == 0 ? 0 : 3;
        return true;
    case IR_PARAM_SCALAR:
        a->kind = AIR_ATTR_INT;
        ints[0] = 2;
        return true;
    case IR_PARAM_INTS:
        a->kind = AIR_ATTR_INTS;
        a->count = 2;
        ints[0] = strcmp(p->name, "stride") == 0 ? 1 : 3;
        ints[1] = strcmp(p->name, "stride") == 0 ? 3 : 4;
        return strcmp(p->name, "size") == 0 || strcmp(p->name, "stride") == 0;
    case IR_PARAM_FLOAT:
        a->kind = AIR_ATTR_FLOAT;
        a->f = 0.5;
        return true;
    case IR_PARAM_BOOL: a->kind = AIR_ATTR_BOOL; return true;
    case IR_PARAM_DTYPE:
        a->kind = AIR_ATTR_DTYPE;
        a->dtype = c->dtype;
        return true;
    default: return false;
    }
}

bool
case_guess(case_call *c, const ir_op_info *info, air_dtype dtype, int rank,
           const int64_t *dims, bool spread)
{
    memset(c, 0, sizeof *c);
    c->info = info;
    c->dtype = dtype;
    for (int i = 0; i < info->nparams; i++) {
        if (!guess_argument(c, &info->params[i], rank, dims, spread))
            return false;
        c->nattrs++;
    }
    return !spread || c->ninputs > 1;
}

/* ---- the graph ----------------------------------------------------------- */

static air_status
const_dims(air_graph *g, size_t count, const int64_t *values, air_dim *out)
{
    for (size_t i = 0; i < count; i++)
        AIR_TRY(air_dim_const(g, values[i], &out[i]));
    return AIR_OK;
}

/* The attributes with the graph's dims and values in place of ours. */
static air_status
place_attrs(const case_call *c, air_graph *g, const air_ref *inputs,
            air_attr *attrs, air_ref (*refs)[8], air_dim (*dims)[8])
{
    for (size_t i = 0; i < c->nattrs; i++) {
        attrs[i] = c->attrs[i];
        if (attrs[i].kind == AIR_ATTR_VALUE)
            attrs[i].value = inputs[attrs[i].value.id];
        if (attrs[i].kind == AIR_ATTR_INT)
            AIR_TRY(air_dim_const(g, c->ints[i][0], &attrs[i].dim));
        if (attrs[i].kind == AIR_ATTR_INTS) {
            AIR_TRY(const_dims(g, attrs[i].count, c->ints[i], dims[i]));
            attrs[i].dims = dims[i];
        }
        for (size_t k = 0;
             attrs[i].kind == AIR_ATTR_VALUES && k < attrs[i].count; k++) {
            air_ref r = c->attrs[i].values[k];
            refs[i][k] = r.id == UINT32_MAX ? r : inputs[r.id];
        }
        if (attrs[i].kind == AIR_ATTR_VALUES)
            attrs[i].values = refs[i];
    }
    return AIR_OK;
}

static air_status
fill_graph(const case_call *c, air_graph *g)
{
    air_ref inputs[CASE_INPUTS], refs[CASE_ATTRS][8], outs[64];
    air_dim dims[CASE_ATTRS][8];
    air_attr attrs[CASE_ATTRS];
    for (int i = 0; i < c->ninputs; i++) {
        char name[] = {'i', (char)('a' + i), '\0'};
        air_dim size[AIR_MAX_RANK];
        AIR_TRY(
            const_dims(g, (size_t)c->inputs[i].rank, c->inputs[i].dims, size));
        AIR_TRY(air_graph_add_input(g, name, c->inputs[i].dtype,
                                    c->inputs[i].rank, size, 0, &inputs[i]));
    }
    AIR_TRY(place_attrs(c, g, inputs, attrs, refs, dims));
    size_t nouts = c->info->nrets;
    for (size_t i = 0; i < 64; i++)
        outs[i] = AIR_NO_REF;
    AIR_TRY(air_graph_add_node(g, c->info->name, c->nattrs, attrs, NULL, nouts,
                               outs));
    return air_graph_set_results(g, nouts, outs, NULL);
}

air_status
case_graph(const case_call *c, air_context *ctx, air_graph **out)
{
    AIR_TRY(air_graph_create(ctx, "conform", out));
    air_status status = fill_graph(c, *out);
    if (status != AIR_OK) {
        air_graph_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* ---- contents ------------------------------------------------------------ */

static unsigned
next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Multiples of 1/8 in [-4, 4), so that f32 and double agree where it matters
 * (floor of a quotient); now and then a special value. */
static double
any_value(unsigned *state)
{
    unsigned r = next_random(state);
    return r % 61 == 0 ? 0.0 : ((double)(r % 64) - 32) / 8;
}

bool
case_is_complex(const ir_op_info *info)
{
    static const char *const others[] = {"complex", "polar", "view_as_real",
                                         "view_as_complex"};
    bool found = strncmp(info->name, "air::complex_", 13) == 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        found |= strcmp(info->name, others[i]) == 0;
    return found;
}

static void
put_value(const case_input *in, int64_t i, unsigned *state, void *p)
{
    double v = any_value(state);
    int64_t r = next_random(state);
    if (in->pairs) {
        const float parts[2] = {(float)v, (float)any_value(state)};
        memcpy(p, parts, sizeof parts);
        return;
    }
    if (in->distinct)
        ref_put_int(in->dtype, p, i * 2 % in->below + i * 2 / in->below);
    else if (in->below > 0)
        ref_put_int(in->dtype, p,
                    in->positive ? r % in->below
                                 : r % (2 * in->below) - in->below);
    else if (in->unit)
        ref_put(in->dtype, p, (v + 4.25) / 8.5);
    else if (in->dtype == AIR_BOOL)
        ref_put_int(in->dtype, p, r % 2);
    else if (in->dtype == AIR_U8)
        ref_put_int(in->dtype, p, r % 9);
    else if (ref_is_float(in->dtype))
        ref_put(in->dtype, p, v);
    else
        ref_put_int(in->dtype, p, (int64_t)(v * 2));
    if (in->divides && !ref_is_float(in->dtype) &&
        ref_get_int(in->dtype, p) == 0)
        ref_put_int(in->dtype, p, 1);
}

/* Strides of the layout; the elements of memory they need. */
static int64_t
layout_strides(const case_input *in, case_layout layout, int64_t *strides)
{
    int64_t step = layout == SPACED ? 2 : 1;
    for (int n = 0; n < in->rank; n++) {
        int i = layout == REVERSED ? n : in->rank - 1 - n;
        strides[i] = step;
        step *= in->dims[i] > 1 ? in->dims[i] : 1;
    }
    if (layout == BROADCAST && in->rank > 0 && !in->distinct)
        strides[0] = 0;
    return step;
}

bool
case_fill(const case_input *in, case_layout layout, unsigned seed,
          air_value *out)
{
    int64_t *meta = calloc(2 * AIR_MAX_RANK, sizeof *meta), n = 1;
    int64_t size = layout_strides(in, layout, meta + AIR_MAX_RANK);
    char *data = calloc((size_t)size + 1, 8);
    if (meta == NULL || data == NULL)
        return false;
    for (int i = 0; i < in->rank; i++) {
        meta[i] = in->dims[i];
        n *= in->dims[i];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, left = i;
        for (int k = in->rank - 1; k >= 0; k--) {
            at += left % in->dims[k] * meta[AIR_MAX_RANK + k];
            left /= in->dims[k];
        }
        put_value(in, i, &seed, data + at * (int64_t)ref_bytes(in->dtype));
    }
    *out = air_value_tensor(data, in->dtype, in->rank, meta);
    out->strides = meta + AIR_MAX_RANK;
    out->block = meta;
    return true;
}
