/* body.c: the bodies of ops.def, compiled once to record region nodes. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "ir/body_math.h"

/* Parameters of a recorded node that are looked at. */
#define NODE_OPERANDS 32

/* Every parameter name that a body may use as a value. */
/* clang-format off */
#define BODY_NAMES(X)                                                   \
    X(a) X(b) X(c) X(alpha) X(value) X(weight) X(min) X(max) X(beta)    \
    X(scale) X(input_scale) X(threshold) X(negative_slope) X(grad)      \
    X(out) X(mask) X(fill_value) X(start) X(end) X(step) X(steps)       \
    X(eps) X(min_val) X(max_val) X(decimals) X(nan_value) X(posinf)     \
    X(neginf) X(inverse) X(zero)
/* clang-format on */

enum {
#define X(name) NAME_##name,
    BODY_NAMES(X)
#undef X
        NAME_COUNT
};

static const char *const names[NAME_COUNT] = {
#define X(name) #name,
    BODY_NAMES(X)
#undef X
};

typedef struct {
    ir_record *rec;
    const ir_op_info *info;
    const air_attr *attrs;
    int values[NAME_COUNT];
} body_env;

typedef int (*body_fn)(const body_env *e);

static const air_attr *
find_attr(const body_env *e, const char *name)
{
    int i = ir_param_find(e->info, name);
    assert(i >= 0);
    return &e->attrs[i];
}

static bool
str_is(const body_env *e, const char *name, const char *value)
{
    const air_attr *a = find_attr(e, name);
    return a->kind == AIR_ATTR_STR && strcmp(a->str, value) == 0;
}

static bool
flag_is_set(const body_env *e, const char *name)
{
    const air_attr *a = find_attr(e, name);
    return a->kind == AIR_ATTR_BOOL && a->b;
}

/* ---- what bodies are written in, next to body_math.h ----------------- */

#define STR_IS(name, v) str_is(e, #name, v)
#define FLAG(name)      flag_is_set(e, #name)

#define UNUSED_OK __attribute__((unused))
#define BODY(ID, ...)                            \
    static int body_##ID(const body_env *e)      \
    {                                            \
        ir_record *const rec UNUSED_OK = e->rec; \
        BODY_NAMES(DECLARE)                      \
        __VA_ARGS__                              \
    }
#define DECLARE(name) const T name UNUSED_OK = e->values[NAME_##name];

#define POINTWISE(ID, RULE, FLAGS, GE, SCHEMA, ...)     BODY(ID, __VA_ARGS__)
#define CREATE(ID, RULE, FLAGS, SHAPE, GE, SCHEMA, ...) BODY(ID, __VA_ARGS__)
#define REDUCE(...)
#define VIEW(...)
#define COMPOSITE(...)
#define CALL(...)
#define EFFECT(...)
#include "ir/ops.def"
#include "ir/ops_undef.h"

static const body_fn bodies[AIR_OP_COUNT] = {
#define POINTWISE(ID, ...) [AIR_OP_##ID] = body_##ID,
#define CREATE(ID, ...)    [AIR_OP_##ID] = body_##ID,
#define REDUCE(...)
#define VIEW(...)
#define COMPOSITE(...)
#define CALL(...)
#define EFFECT(...)
#include "ir/ops.def"
#include "ir/ops_undef.h"
};

/* Drops what the body recorded and its result does not need (constants that
 * were folded away); nobody else can refer to nodes from `start` on yet. */
static int
drop_unused(ir_record *r, int start, int result)
{
    int16_t map[AIR_RG_MAX_NODES];
    bool used[AIR_RG_MAX_NODES] = {false};
    int count = start;

    if (result < 0 || r->full)
        return result;
    if (result < start) {
        r->count = start;
        return result;
    }
    used[result] = true;
    for (int i = result; i >= start; i--) {
        const air_rg_node *n = &r->nodes[i];
        if (!used[i])
            continue;
        for (int k = 0; k < 3; k++) {
            int operand = k == 0 ? n->a : k == 1 ? n->b : n->c;
            if (operand >= 0)
                used[operand] = true;
        }
    }
    for (int i = 0; i < start; i++)
        map[i] = (int16_t)i;
    for (int i = start; i <= result; i++) {
        air_rg_node n = r->nodes[i];
        map[i] = (int16_t)count;
        if (!used[i])
            continue;
        n.a = (int16_t)(n.a < 0 ? n.a : map[n.a]);
        n.b = (int16_t)(n.b < 0 ? n.b : map[n.b]);
        n.c = (int16_t)(n.c < 0 ? n.c : map[n.c]);
        r->nodes[count++] = n;
    }
    r->count = count;
    return map[result];
}

int
ir_record_body(ir_record *r, ir_op op, air_lane lane, const air_attr *attrs,
               const int *operands)
{
    body_env e = {r, ir_op_get(op), attrs, {0}};
    int start;

    assert(bodies[op]);
    r->lane = lane;
    memset(e.values, -1, sizeof e.values);
    for (int i = 0; i < e.info->nparams; i++)
        for (int k = 0; k < NAME_COUNT; k++)
            if (strcmp(e.info->params[i].name, names[k]) == 0)
                e.values[k] = operands[i];
    start = r->count;
    return drop_unused(r, start, bodies[op](&e));
}

void
ir_record_node(ir_record *r, const ir_node *n, air_lane lane)
{
    int operands[NODE_OPERANDS] = {0};

    r->lane = lane;
    for (int i = 0; i < n->nattrs && i < NODE_OPERANDS; i++)
        operands[i] = ir_record_put(r, (air_rg_node){.op = AIR_RG_LOAD,
                                                     .lane = (uint8_t)lane,
                                                     .buf = (int16_t)i,
                                                     .a = -1,
                                                     .b = -1,
                                                     .c = -1});
    ir_record_body(r, (ir_op)n->op, lane, n->attrs, operands);
}
