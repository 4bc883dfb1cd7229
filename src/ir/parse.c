/* parse.c: text to a graph. What the text says about types must be what
 * inference finds. */
#include <inttypes.h>
#include <string.h>

#include "ir/scan.h"

#define MAX_DEFS 64
#define MAX_ARGS 64

/* ---- arguments ----------------------------------------------------------- */

typedef BASE_VEC(air_ref) ref_list;
typedef BASE_VEC(double) float_list;
typedef BASE_VEC(bool) bool_list;

static air_status
parse_bool(scanner *s, bool *out)
{
    word w = scan_word(s);
    *out = word_is(w, "true");
    return *out || word_is(w, "false")
               ? AIR_OK
               : scan_fail_word(s, w, "expected true or false, not");
}

static air_status
parse_optional_ref(scanner *s, air_ref *out)
{
    *out = AIR_NO_REF;
    return scan_keyword(s, "none") ? AIR_OK : scan_ref(s, out);
}

/* One item of a list whose kind the schema knows. */
static air_status
parse_item(scanner *s, ir_param_kind kind, ref_list *refs, float_list *floats,
           bool_list *bools)
{
    const air_alloc *alloc = s->g->alloc;
    air_ref r;
    double f;
    bool b;

    if (kind == IR_PARAM_TENSORS) {
        AIR_TRY(parse_optional_ref(s, &r));
        return BASE_PUSH(alloc, refs, r);
    }
    if (kind == IR_PARAM_FLOATS) {
        AIR_TRY(scan_float(s, &f));
        return BASE_PUSH(alloc, floats, f);
    }
    AIR_TRY(parse_bool(s, &b));
    return BASE_PUSH(alloc, bools, b);
}

static air_status
keep_list(scanner *s, ir_param_kind kind, const ref_list *refs,
          const float_list *floats, const bool_list *bools, air_attr *out)
{
    void *copy;

    if (kind == IR_PARAM_TENSORS) {
        AIR_TRY(base_arena_copy(&s->scratch, refs->data,
                                refs->count * sizeof *refs->data, &copy));
        *out = (air_attr){
            .kind = AIR_ATTR_VALUES, .count = refs->count, .values = copy};
    } else if (kind == IR_PARAM_FLOATS) {
        AIR_TRY(base_arena_copy(&s->scratch, floats->data,
                                floats->count * sizeof *floats->data, &copy));
        *out = (air_attr){
            .kind = AIR_ATTR_FLOATS, .count = floats->count, .floats = copy};
    } else {
        AIR_TRY(base_arena_copy(&s->scratch, bools->data,
                                bools->count * sizeof *bools->data, &copy));
        *out = (air_attr){
            .kind = AIR_ATTR_BOOLS, .count = bools->count, .bools = copy};
    }
    return AIR_OK;
}

static air_status
parse_items(scanner *s, ir_param_kind kind, const char *end, air_attr *out)
{
    ref_list refs = {0};
    float_list floats = {0};
    bool_list bools = {0};
    air_status status = AIR_OK;
    bool first = true;

    while (status == AIR_OK && !scan_take(s, end)) {
        if (!first)
            status = scan_expect(s, ",");
        first = false;
        if (status == AIR_OK)
            status = parse_item(s, kind, &refs, &floats, &bools);
    }
    if (status == AIR_OK)
        status = keep_list(s, kind, &refs, &floats, &bools, out);
    BASE_VEC_FREE(s->g->alloc, &refs);
    BASE_VEC_FREE(s->g->alloc, &floats);
    BASE_VEC_FREE(s->g->alloc, &bools);
    return status == AIR_OK ? status : base_trace(status, __func__, __LINE__);
}

static air_status
parse_list(scanner *s, const ir_param *p, air_attr *out)
{
    ir_param_kind kind = (ir_param_kind)p->kind;

    if (kind == IR_PARAM_TENSORS || kind == IR_PARAM_FLOATS ||
        kind == IR_PARAM_BOOLS) {
        AIR_TRY(scan_expect(s, "["));
        return parse_items(s, kind, "]", out);
    }
    out->kind = AIR_ATTR_INTS;
    air_dim *dims;
    AIR_TRY(scan_dims(s, &out->count, &dims));
    out->dims = dims;
    return AIR_OK;
}

static air_status
parse_dtype(scanner *s, air_attr *out)
{
    word w = scan_word(s);
    const char *name;

    AIR_TRY(scan_copy(s, w, &name));
    out->kind = AIR_ATTR_DTYPE;
    out->dtype = air_dtype_find(name);
    return out->dtype == AIR_DTYPE_NONE ? scan_fail_word(s, w, "unknown dtype")
                                        : AIR_OK;
}

/* A literal says its own kind, but for dtypes, whose names may be symbols. */
static air_status
parse_value(scanner *s, const ir_param *p, air_attr *out)
{
    *out = (air_attr){.kind = AIR_ATTR_NONE};
    if (scan_keyword(s, "none"))
        return AIR_OK;
    if (scan_peek(s, "%")) {
        out->kind = AIR_ATTR_VALUE;
        return scan_ref(s, &out->value);
    }
    if (scan_peek(s, "["))
        return parse_list(s, p, out);
    if (scan_peek(s, "\"")) {
        out->kind = AIR_ATTR_STR;
        return scan_str(s, &out->str);
    }
    if (p->kind == IR_PARAM_DTYPE)
        return parse_dtype(s, out);
    out->b = scan_keyword(s, "true");
    if (out->b || scan_keyword(s, "false")) {
        out->kind = AIR_ATTR_BOOL;
        return AIR_OK;
    }
    if (scan_at_float(s)) {
        out->kind = AIR_ATTR_FLOAT;
        return scan_float(s, &out->f);
    }
    out->kind = AIR_ATTR_INT;
    return scan_dim(s, &out->dim);
}

/* name= or nothing: then it is the next position. */
static air_status
parse_arg_name(scanner *s, const ir_op_info *info, int next, int *out)
{
    const char *name, *at;
    word w;

    scan_space(s);
    at = s->p;
    w = scan_word(s);
    *out = next;
    if (w.len == 0 || !scan_take(s, "=")) {
        s->p = at;
        if (next < 0)
            return scan_fail(s, at, "arguments after a named one need names");
        return next < info->nparams ? AIR_OK
                                    : scan_fail(s, at, "too many arguments");
    }
    AIR_TRY(scan_copy(s, w, &name));
    *out = ir_param_find(info, name);
    return *out >= 0 ? AIR_OK : scan_fail_word(s, w, "unknown argument");
}

static air_status
parse_args(scanner *s, const ir_op_info *info, air_attr *attrs)
{
    bool given[MAX_ARGS] = {false};
    int next = 0, i;

    AIR_TRY(scan_expect(s, "("));
    for (bool first = true; !scan_take(s, ")"); first = false) {
        const char *at;
        if (!first)
            AIR_TRY(scan_expect(s, ","));
        at = s->p;
        AIR_TRY(parse_arg_name(s, info, next, &i));
        next = i == next ? next + 1 : -1;
        if (given[i])
            return scan_fail(s, at, "an argument is given twice");
        given[i] = true;
        AIR_TRY(parse_value(s, &info->params[i], &attrs[i]));
    }
    return AIR_OK;
}

/* ---- nodes --------------------------------------------------------------- */

typedef struct {
    size_t count;
    word names[MAX_DEFS];
    bool typed[MAX_DEFS];
    air_type types[MAX_DEFS];
    air_ref refs[MAX_DEFS];
} line;

/* %a: f32[2], %b = ; types may be left out for ops. */
static air_status
parse_defs(scanner *s, line *l)
{
    l->count = 0;
    if (!scan_peek(s, "%"))
        return AIR_OK;
    do {
        size_t i = l->count;
        if (i == MAX_DEFS)
            return scan_fail(s, s->p, "too many results");
        AIR_TRY(scan_expect(s, "%"));
        l->names[i] = scan_word(s);
        if (l->names[i].len == 0)
            return scan_fail(s, s->p, "expected a name");
        l->typed[i] = scan_take(s, ":");
        if (l->typed[i])
            AIR_TRY(scan_type(s, &l->types[i]));
        l->count++;
    } while (scan_take(s, ","));
    return scan_expect(s, "=");
}

static air_status
check_type(scanner *s, const line *l, size_t i)
{
    const ir_value *v = ir_val(s->g, l->refs[i]);
    const air_type *t = &l->types[i];
    base_text text;
    air_status status;

    if (!l->typed[i] ||
        (v->dtype == t->dtype && v->rank == t->rank &&
         memcmp(v->dims, t->dims, v->rank * sizeof *v->dims) == 0))
        return AIR_OK;
    base_text_init(&text, s->g->alloc);
    base_text_add(&text, "the op gives ");
    print_type(s->g, (air_dtype)v->dtype, v->rank, v->dims, &text);
    base_text_add(&text, ", the text says ");
    print_type(s->g, t->dtype, t->rank, t->dims, &text);
    status = text.status == AIR_OK ? scan_fail(s, l->names[i].s, text.data)
                                   : text.status;
    base_text_deinit(&text);
    return status;
}

static air_status
name_results(scanner *s, const line *l)
{
    for (size_t i = 0; i < l->count; i++) {
        air_status status;
        AIR_TRY(check_type(s, l, i));
        status = graph_rename(s->g, l->refs[i], l->names[i].s, l->names[i].len);
        if (status != AIR_OK)
            return scan_locate(s, l->names[i].s, status);
    }
    return AIR_OK;
}

static air_status
parse_op(scanner *s, line *l)
{
    word w = scan_word(s);
    ir_op op = w.len ? ir_op_find(w.s, w.len) : AIR_OP_NONE;
    air_attr attrs[MAX_ARGS] = {{AIR_ATTR_NONE}};
    air_status status;
    size_t count;

    if (op == AIR_OP_NONE)
        return scan_fail_word(s, w, "unknown op");
    AIR_TRY(parse_args(s, ir_op_get(op), attrs));
    status = ir_result_count(s->g, op, ir_op_get(op)->nparams, attrs, &count);
    if (status == AIR_OK && count != l->count)
        return scan_fail_word(s, w, "wrong number of results for");
    if (status == AIR_OK)
        status = ir_add_node(s->g, op, ir_op_get(op)->nparams, attrs,
                             IR_NO_NODE, NULL, l->refs);
    if (status != AIR_OK)
        return scan_locate(s, w.s, status);
    return name_results(s, l);
}

/* host "ns::op" id "reason" (%a, none) [reads [n]]; so are start and wait */
static air_status
parse_host(scanner *s, air_host_kind kind, line *l)
{
    const char *op, *reason, *at = s->p;
    air_attr in;
    air_dim *reads = NULL;
    size_t count = 0;
    int64_t id;
    air_status status;

    AIR_TRY(scan_str(s, &op));
    AIR_TRY(scan_int(s, &id));
    AIR_TRY(scan_str(s, &reason));
    AIR_TRY(scan_expect(s, "("));
    AIR_TRY(parse_items(s, IR_PARAM_TENSORS, ")", &in));
    if (scan_keyword(s, "reads"))
        AIR_TRY(scan_dims(s, &count, &reads));
    if (id < 0 || id > UINT32_MAX)
        return scan_fail(s, at, "the id of a host node is out of range");
    for (size_t i = 0; i < l->count; i++)
        if (!l->typed[i])
            return scan_fail(s, l->names[i].s, "a host result needs a type");
    status = ir_add_host(s->g, kind, op, (uint32_t)id, reason, in.count,
                         in.values, NULL, l->count, l->types, l->refs);
    if (status == AIR_OK)
        status = ir_host_reads(s->g, count, reads);
    return status == AIR_OK ? name_results(s, l) : scan_locate(s, at, status);
}

static air_status
parse_count(scanner *s, const char *keyword, const char *range, uint16_t *out)
{
    const char *at;
    int64_t count;

    if (!scan_keyword(s, keyword))
        return AIR_OK;
    at = s->p;
    AIR_TRY(scan_int(s, &count));
    if (count < 1 || count > UINT16_MAX)
        return scan_fail(s, at, range);
    *out = (uint16_t)count;
    return AIR_OK;
}

static air_status
parse_scope(scanner *s, ir_scope *scope)
{
    AIR_TRY(parse_count(s, "threads", "the number of threads is out of range",
                        &scope->threads));
    AIR_TRY(parse_count(s, "lane", "the lane is out of range", &scope->lane));
    scope->joined = scan_keyword(s, "joined");
    scope->untimed = scan_keyword(s, "untimed");
    return AIR_OK;
}

static air_status
parse_suffix(scanner *s)
{
    ir_node *n = ir_node_at(s->g, s->g->last);
    const char *at = s->p;
    int64_t group;
    word loc;

    if (scan_comment(s, &loc))
        return base_arena_str(&s->g->arena, loc.s, loc.len, &n->loc);
    n->inplace = scan_keyword(s, "inplace");
    if (n->inplace && (n->nattrs == 0 || n->attrs[0].kind != AIR_ATTR_VALUE))
        return scan_fail(s, at, "inplace without an operand to write into");
    n->once = scan_keyword(s, "once");
    if (scan_take(s, "@")) {
        AIR_TRY(scan_int(s, &group));
        if (group < 0 || group >= INT32_MAX)
            return scan_fail(s, at, "the group is out of range");
        n->group = (int32_t)group;
        if (n->group >= s->g->ngroups)
            s->g->ngroups = n->group + 1;
    }
    AIR_TRY(parse_scope(s, &n->scope));
    if (scan_comment(s, &loc))
        return base_arena_str(&s->g->arena, loc.s, loc.len, &n->loc);
    return AIR_OK;
}

/* ---- results ------------------------------------------------------------- */

typedef BASE_VEC(const air_dim *) stride_list;

static air_status
parse_result(scanner *s, ref_list *refs, stride_list *strides)
{
    air_ref r;
    air_dim *list = NULL;
    size_t count;

    AIR_TRY(scan_ref(s, &r));
    if (scan_keyword(s, "strides")) {
        const char *at = s->p;
        AIR_TRY(scan_dims(s, &count, &list));
        if (count != ir_val(s->g, r)->rank)
            return scan_fail(s, at, "one stride per dim is needed");
    }
    AIR_TRY(BASE_PUSH(s->g->alloc, refs, r));
    return BASE_PUSH(s->g->alloc, strides, list);
}

static air_status
parse_return(scanner *s)
{
    ref_list refs = {0};
    stride_list strides = {0};
    air_status status = AIR_OK;

    if (scan_peek(s, "%"))
        do {
            status = parse_result(s, &refs, &strides);
        } while (status == AIR_OK && scan_take(s, ","));
    if (status == AIR_OK)
        status = ir_set_results(s->g, refs.count, refs.data, strides.data);
    BASE_VEC_FREE(s->g->alloc, &refs);
    BASE_VEC_FREE(s->g->alloc, &strides);
    return status == AIR_OK ? status : base_trace(status, __func__, __LINE__);
}

static air_status
parse_body(scanner *s)
{
    line l;

    for (;;) {
        scan_space(s);
        if (scan_keyword(s, "return")) {
            AIR_TRY(parse_return(s));
            return scan_expect(s, "}");
        }
        AIR_TRY(parse_defs(s, &l));
        int kind = AIR_HOST_CALL;
        while (kind <= AIR_HOST_WAIT &&
               !scan_keyword(s, ir_host_word((air_host_kind)kind)))
            kind++;
        if (kind <= AIR_HOST_WAIT)
            AIR_TRY(parse_host(s, (air_host_kind)kind, &l));
        else
            AIR_TRY(parse_op(s, &l));
        AIR_TRY(parse_suffix(s));
    }
}

/* ---- header -------------------------------------------------------------- */

/* sym s0 = [2, 512] hint 8 */
static air_status
parse_symbol(scanner *s)
{
    word w = scan_word(s);
    const char *name;
    int64_t min, max = INT64_MAX, hint = 0;
    uint32_t id;
    air_dim d;

    if (w.len == 0 || (*w.s >= '0' && *w.s <= '9'))
        return scan_fail_word(s, w, "no name of a symbol:");
    if (base_map_find(&s->g->symbol_map, w.s, w.len, &id))
        return scan_fail_word(s, w, "a second line for symbol");
    AIR_TRY(scan_copy(s, w, &name));
    AIR_TRY(scan_expect(s, "="));
    AIR_TRY(scan_expect(s, "["));
    AIR_TRY(scan_int(s, &min));
    AIR_TRY(scan_expect(s, ","));
    if (!scan_keyword(s, "inf"))
        AIR_TRY(scan_int(s, &max));
    AIR_TRY(scan_expect(s, "]"));
    if (scan_keyword(s, "hint"))
        AIR_TRY(scan_int(s, &hint));
    if (min > max)
        return scan_fail_word(s, w, "empty range of symbol");
    return ir_dim_symbol(s->g, name, min, max, hint, &d);
}

/* n: int, or n: int = s0 */
static air_status
parse_int_input(scanner *s)
{
    word w = scan_word(s);
    const char *name, *at = w.s;
    air_dim d;
    air_status status;

    if (w.len == 0 || (*w.s >= '0' && *w.s <= '9'))
        return scan_fail_word(s, w, "expected an input, not");
    AIR_TRY(scan_copy(s, w, &name));
    AIR_TRY(scan_expect(s, ":"));
    AIR_TRY(scan_expect(s, "int"));
    if (scan_take(s, "=")) {
        AIR_TRY(scan_dim(s, &d));
    } else {
        s->p = at;
        AIR_TRY(scan_dim(s, &d));
        AIR_TRY(scan_expect(s, ":"));
        AIR_TRY(scan_expect(s, "int"));
    }
    status = ir_add_int_input(s->g, name, d);
    return status == AIR_OK ? AIR_OK : scan_locate(s, at, status);
}

static air_status
parse_input(scanner *s)
{
    word w;
    const char *name;
    air_type t;
    air_ref r;
    unsigned flags = 0;
    air_status status;

    if (!scan_take(s, "%"))
        return parse_int_input(s);
    w = scan_word(s);
    if (w.len == 0)
        return scan_fail(s, s->p, "expected a name");
    AIR_TRY(scan_copy(s, w, &name));
    AIR_TRY(scan_expect(s, ":"));
    AIR_TRY(scan_type(s, &t));
    flags |= scan_keyword(s, "param") ? AIR_INPUT_PARAM : 0u;
    flags |= scan_keyword(s, "frozen") ? AIR_INPUT_FROZEN : 0u;
    status = ir_add_input(s->g, name, t.dtype, t.rank, t.dims, flags, &r);
    return status == AIR_OK ? AIR_OK : scan_locate(s, w.s, status);
}

static air_status
parse_graph(scanner *s)
{
    word w;

    while (scan_keyword(s, "sym"))
        AIR_TRY(parse_symbol(s));
    if (!scan_keyword(s, "graph"))
        return scan_fail(s, s->p, "expected 'graph' or 'sym'");
    w = scan_word(s);
    if (w.len == 0)
        return scan_fail(s, s->p, "expected the name of the graph");
    AIR_TRY(base_arena_str(&s->g->arena, w.s, w.len, &s->g->name));
    AIR_TRY(scan_expect(s, "("));
    s->may_declare = true;
    for (bool first = true; !scan_take(s, ")"); first = false) {
        if (!first)
            AIR_TRY(scan_expect(s, ","));
        AIR_TRY(parse_input(s));
    }
    s->may_declare = false;
    AIR_TRY(scan_expect(s, "{"));
    AIR_TRY(parse_body(s));
    scan_space(s);
    return s->p == s->end ? AIR_OK : scan_fail(s, s->p, "text after the graph");
}

air_status
ir_parse(const air_alloc *alloc, const char *text, size_t len, ir_graph **out)
{
    scanner s = {.text = text, .p = text, .end = text + len};
    air_status status;

    *out = NULL;
    AIR_TRY(ir_graph_init(alloc, "", &s.g));
    base_arena_init(&s.scratch, alloc);
    status = parse_graph(&s);
    base_arena_deinit(&s.scratch);
    if (status != AIR_OK) {
        ir_graph_free(s.g);
        return base_trace(status, __func__, __LINE__);
    }
    *out = s.g;
    return AIR_OK;
}
