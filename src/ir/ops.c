/* ops.c: the op table. The rows are static; what their schema strings say is
 * parsed once per process into static storage, so looking an op up never
 * allocates and never fails. A schema that does not parse is a bug of the
 * table, found by tests/unit/test_ir_ops.c. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"
#include "ir/shape.h"

/* ---- rows ---------------------------------------------------------------- */

#define COMMON(ID, GE, SCHEMA, CLASS) \
    .schema = (SCHEMA), .ge = (GE), .cls = IR_CLASS_##CLASS

static ir_op_info infos[AIR_OP_COUNT] = {
    [AIR_OP_NONE] = {.name = "", .schema = "", .ge = "", .view = -1},
    [AIR_OP_HOST] = {.name = "host",
                     .schema = "",
                     .ge = "",
                     .view = -1,
                     .cls = IR_CLASS_HOST},
#define POINTWISE(ID, RULE, FLAGS, GE, SCHEMA, ...)                     \
    [AIR_OP_##ID] = {COMMON(ID, GE, SCHEMA, POINTWISE), .flags = FLAGS, \
                     .dtype = IR_DT_##RULE, .shape = shape_broadcast,   \
                     .view = -1},
#define CREATE(ID, RULE, FLAGS, SHAPE, GE, SCHEMA, ...)              \
    [AIR_OP_##ID] = {COMMON(ID, GE, SCHEMA, CREATE), .flags = FLAGS, \
                     .dtype = IR_DT_##RULE, .shape = shape_##SHAPE,  \
                     .view = -1},
#define REDUCE(ID, RULE, FLAGS, GE, SCHEMA, FOLD)                           \
    [AIR_OP_##ID] = {COMMON(ID, GE, SCHEMA, REDUCE), .flags = FLAGS,        \
                     .dtype = IR_DT_##RULE,          .shape = shape_reduce, \
                     .reduce = AIR_REDUCE_##FOLD,    .view = -1},
#define VIEW(ID, KIND, GE, SCHEMA)                                      \
    [AIR_OP_##ID] = {COMMON(ID, GE, SCHEMA, VIEW), .dtype = IR_DT_SAME, \
                     .shape = shape_##KIND, .view = IR_VIEW_##KIND},
#define COMPOSITE(ID, SHAPE, RULE, FLAGS, GE, SCHEMA)                   \
    [AIR_OP_##ID] = {COMMON(ID, GE, SCHEMA, COMPOSITE), .flags = FLAGS, \
                     .dtype = IR_DT_##RULE, .shape = shape_##SHAPE,     \
                     .view = -1},
#define CALL(ID, KERNEL, SHAPE, RULE, FLAGS, GE, SCHEMA) \
    [AIR_OP_##ID] = {COMMON(ID, GE, SCHEMA, CALL),       \
                     .flags = FLAGS,                     \
                     .dtype = IR_DT_##RULE,              \
                     .shape = shape_##SHAPE,             \
                     .kernel = #KERNEL,                  \
                     .view = -1},
#define EFFECT(ID, SHAPE, FLAGS, GE, SCHEMA)                         \
    [AIR_OP_##ID] = {COMMON(ID, GE, SCHEMA, EFFECT), .flags = FLAGS, \
                     .dtype = IR_DT_SAME, .shape = shape_##SHAPE, .view = -1},
#include "ir/ops.def"
#include "ir/ops_undef.h"
};

/* ---- storage of what the schemas say ------------------------------------- */

static char text_pool[32768];
static size_t text_used;
static ir_param param_pool[2048];
static size_t param_used;
static air_dim dim_pool[64];
static size_t dim_used;
static int64_t default_ints[32];
static size_t default_count;
static uint16_t name_table[2048]; /* open addressing; 0 is AIR_OP_NONE */

size_t
ops_default_count(void)
{
    return default_count;
}

int64_t
ops_default_int(size_t i)
{
    return default_ints[i];
}

typedef struct {
    const char *p;
    bool ok;
} cursor;

static const char *
keep_text(cursor *c, const char *s, size_t len)
{
    char *copy = text_pool + text_used;

    if (text_used + len + 1 > sizeof text_pool) {
        c->ok = false;
        return "";
    }
    memcpy(copy, s, len);
    text_used += len + 1;
    return copy;
}

static air_dim
keep_int(cursor *c, int64_t v)
{
    for (size_t i = 0; i < default_count; i++)
        if (default_ints[i] == v)
            return (air_dim){(uint32_t)i};
    if (default_count == sizeof default_ints / sizeof *default_ints) {
        c->ok = false;
        return (air_dim){0};
    }
    default_ints[default_count] = v;
    return (air_dim){(uint32_t)default_count++};
}

/* ---- schema parser ------------------------------------------------------- */

static void
skip_space(cursor *c)
{
    while (*c->p == ' ')
        c->p++;
}

static bool
take(cursor *c, const char *s)
{
    size_t len = strlen(s);
    skip_space(c);
    if (strncmp(c->p, s, len) != 0)
        return false;
    c->p += len;
    return true;
}

static size_t
word_len(const char *p)
{
    return strcspn(p, " ,=()[]?*");
}

static const struct {
    const char *name;
    uint8_t one, list;
} type_rows[] = {
    {"Tensor", IR_PARAM_TENSOR, IR_PARAM_TENSORS},
    {"SymInt", IR_PARAM_INT, IR_PARAM_INTS},
    {"int", IR_PARAM_INT, IR_PARAM_INTS},
    {"float", IR_PARAM_FLOAT, IR_PARAM_FLOATS},
    {"bool", IR_PARAM_BOOL, IR_PARAM_BOOLS},
    {"ScalarType", IR_PARAM_DTYPE, IR_PARAM_IGNORED},
    {"Scalar", IR_PARAM_SCALAR, IR_PARAM_IGNORED},
    {"str", IR_PARAM_STR, IR_PARAM_IGNORED},
    {"Layout", IR_PARAM_IGNORED, IR_PARAM_IGNORED},
    {"Device", IR_PARAM_IGNORED, IR_PARAM_IGNORED},
    {"MemoryFormat", IR_PARAM_IGNORED, IR_PARAM_IGNORED},
    {"Generator", IR_PARAM_IGNORED, IR_PARAM_IGNORED},
};

/* Tensor(a!)?[2]? */
static void
parse_type(cursor *c, ir_param *p)
{
    size_t len, i = 0;

    skip_space(c);
    len = word_len(c->p);
    while (i < sizeof type_rows / sizeof *type_rows &&
           (strlen(type_rows[i].name) != len ||
            memcmp(type_rows[i].name, c->p, len) != 0))
        i++;
    if (i == sizeof type_rows / sizeof *type_rows) {
        c->ok = false;
        return;
    }
    c->p += len;
    p->kind = type_rows[i].one;
    if (*c->p == '(') {
        const char *end = strchr(c->p, ')');
        p->mutated = end[-1] == '!';
        c->p = end + 1;
    }
    if (*c->p == '?' && c->p[1] == '[') { /* Tensor?[]: of None too */
        p->optional = true;
        c->p++;
    }
    if (*c->p == '[') {
        p->kind = type_rows[i].list;
        p->size = (uint8_t)strtoul(c->p + 1, NULL, 10);
        c->p = strchr(c->p, ']') + 1;
    }
    if (*c->p == '?') {
        p->optional = true;
        c->p++;
    }
}

static void
parse_list_default(cursor *c, ir_param *p)
{
    air_dim *list = dim_pool + dim_used;
    size_t n = 0;

    while (c->ok && !take(c, "]")) {
        char *end;
        long v = strtol(c->p, &end, 10);
        if (end == c->p || dim_used + n == sizeof dim_pool / sizeof *dim_pool) {
            c->ok = false;
            return;
        }
        list[n++] = keep_int(c, v);
        c->p = end;
        take(c, ",");
    }
    dim_used += n;
    p->def = (air_attr){.kind = AIR_ATTR_INTS, .count = n, .dims = list};
}

static void
parse_int_default(cursor *c, ir_param *p, int64_t v)
{
    air_dim *list = dim_pool + dim_used;
    size_t n = p->kind == IR_PARAM_INTS ? (p->size ? p->size : 1) : 0;

    if (dim_used + n > sizeof dim_pool / sizeof *dim_pool) {
        c->ok = false;
        return;
    }
    for (size_t i = 0; i < n; i++)
        list[i] = keep_int(c, v);
    dim_used += n;
    if (n)
        p->def = (air_attr){.kind = AIR_ATTR_INTS, .count = n, .dims = list};
    else
        p->def = (air_attr){.kind = AIR_ATTR_INT, .dim = keep_int(c, v)};
}

static void
parse_number_default(cursor *c, ir_param *p)
{
    size_t len = word_len(c->p);
    char *end;
    double d = strtod(c->p, &end);

    if (end == c->p) {
        c->ok = false;
    } else if (p->kind == IR_PARAM_DTYPE) {
        /* c10::ScalarType 4 is the only default there is. */
        c->ok = d == 4.0;
        p->def = (air_attr){.kind = AIR_ATTR_DTYPE, .dtype = AIR_I64};
    } else if (p->kind == IR_PARAM_FLOAT || memchr(c->p, '.', len) ||
               memchr(c->p, 'e', len)) {
        p->def = (air_attr){.kind = AIR_ATTR_FLOAT, .f = d};
    } else {
        parse_int_default(c, p, strtoll(c->p, NULL, 10));
    }
    c->p = end;
}

static void
parse_default(cursor *c, ir_param *p)
{
    p->has_default = true;
    if (take(c, "None")) {
        p->def.kind = AIR_ATTR_NONE;
    } else if (take(c, "True")) {
        p->def = (air_attr){.kind = AIR_ATTR_BOOL, .b = true};
    } else if (take(c, "False")) {
        p->def = (air_attr){.kind = AIR_ATTR_BOOL, .b = false};
    } else if (take(c, "\"")) {
        size_t len = strcspn(c->p, "\"");
        p->def.kind = AIR_ATTR_STR;
        p->def.str = keep_text(c, c->p, len);
        c->p += len + 1;
    } else if (take(c, "[")) {
        parse_list_default(c, p);
    } else {
        parse_number_default(c, p);
    }
}

static void
parse_param(cursor *c, ir_param *p)
{
    size_t len;

    parse_type(c, p);
    skip_space(c);
    len = word_len(c->p);
    if (len == 0)
        c->ok = false;
    p->name = keep_text(c, c->p, len);
    c->p += len;
    if (strcmp(p->name, "pin_memory") == 0)
        p->kind = IR_PARAM_IGNORED;
    if (c->ok && take(c, "="))
        parse_default(c, p);
}

static void
parse_params(cursor *c, ir_op_info *info)
{
    info->params = param_pool + param_used;
    while (c->ok && !take(c, ")")) {
        if (take(c, "*,"))
            continue;
        if (param_used == sizeof param_pool / sizeof *param_pool) {
            c->ok = false;
            return;
        }
        parse_param(c, &param_pool[param_used++]);
        info->nparams++;
        take(c, ",");
    }
}

/* Tensor, Tensor(a!), Tensor[], (Tensor out, Tensor index), () */
static void
parse_results(cursor *c, ir_op_info *info)
{
    bool list = take(c, "(");

    while (c->ok && take(c, "Tensor")) {
        info->nrets++;
        if (*c->p == '(')
            c->p = strchr(c->p, ')') + 1;
        if (take(c, "[]")) {
            info->nrets = 0;
            info->list_result = true;
        }
        skip_space(c);
        c->p += strcspn(c->p, ",)");
        take(c, ",");
    }
    if (list && !take(c, ")"))
        c->ok = false;
    if (*c->p)
        c->ok = false;
}

static bool
parse_schema(ir_op_info *info)
{
    cursor c = {info->schema, true};
    size_t len = strcspn(info->schema, "(");

    info->name = keep_text(&c, info->schema, len);
    c.p += len;
    if (!take(&c, "("))
        return false;
    parse_params(&c, info);
    if (!c.ok || !take(&c, "->"))
        return false;
    parse_results(&c, info);
    return c.ok;
}

/* ---- lookup -------------------------------------------------------------- */

static size_t
first_slot(const char *name, size_t len)
{
    return (size_t)base_hash(name, len, 0) %
           (sizeof name_table / sizeof *name_table);
}

static void
add_name(ir_op op)
{
    const char *name = infos[op].name;
    size_t i = first_slot(name, strlen(name));

    while (name_table[i])
        i = (i + 1) % (sizeof name_table / sizeof *name_table);
    name_table[i] = (uint16_t)op;
}

static ir_op bad_row;

static void
parse_all(void)
{
    cursor c = {"", true};

    for (int i = -1; i <= 1; i++)
        keep_int(&c, i);
    for (int op = AIR_OP_HOST + 1; op < AIR_OP_COUNT; op++) {
        if (!parse_schema(&infos[op])) {
            bad_row = (ir_op)op;
            return;
        }
        add_name((ir_op)op);
    }
}

air_status
ir_ops_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, parse_all);
    AIR_REQUIRE(bad_row == AIR_OP_NONE, AIR_ERROR_STATE,
                "the op table has a row that cannot be read: %s",
                infos[bad_row].schema);
    return AIR_OK;
}

const ir_op_info *
ir_op_get(ir_op op)
{
    assert(op < AIR_OP_COUNT);
    return &infos[op];
}

ir_op
ir_op_find(const char *name, size_t len)
{
    size_t i;

    if (ir_ops_init() != AIR_OK)
        return AIR_OP_NONE;
    for (i = first_slot(name, len); name_table[i];
         i = (i + 1) % (sizeof name_table / sizeof *name_table)) {
        const char *have = infos[name_table[i]].name;
        if (strlen(have) == len && memcmp(have, name, len) == 0)
            return (ir_op)name_table[i];
    }
    return AIR_OP_NONE;
}

int
ir_param_find(const ir_op_info *info, const char *name)
{
    for (int i = 0; i < info->nparams; i++)
        if (strcmp(info->params[i].name, name) == 0)
            return i;
    return -1;
}
