/* ge.c: ge.def, looked up. */
#include "ir/ge.h"

#include <stdlib.h>
#include <string.h>

/* ---- prototypes ---------------------------------------------------------- */

static const char *const prototypes[] = {
#define GE_TYPE(text) text,
#include "ir/ge.def"
};
#define TYPES (sizeof prototypes / sizeof *prototypes)

const char *
air_ge_prototype(size_t i)
{
    return i < TYPES ? prototypes[i] : NULL;
}

const char *
ge_prototype(const char *type)
{
    size_t len = strlen(type);

    for (size_t i = 0; i < TYPES; i++)
        if (strncmp(prototypes[i], type, len) == 0 && prototypes[i][len] == '(')
            return prototypes[i];
    return NULL;
}

/* The start of a section; *out_end is what ends it. */
static const char *
section_start(const char *p, ge_section section, char *out_end)
{
    const char *close = strchr(p, ')');
    const char *semi = memchr(p, ';', (size_t)(close - p));

    *out_end = section == GE_OUTPUTS          ? '\0'
               : section == GE_INPUTS && semi ? ';'
                                              : ')';
    if (section == GE_INPUTS)
        return strchr(p, '(') + 1;
    if (section == GE_ATTRS)
        return semi ? semi + 1 : NULL;
    p = close + strlen(") -> ");
    return *p == '(' ? NULL : p; /* "()": none */
}

/* The end of the field that starts at p: a comma outside of braces. */
static const char *
field_end(const char *p, char end)
{
    int depth = 0;

    for (; *p && (depth > 0 || (*p != ',' && *p != end)); p++)
        depth += (*p == '{') - (*p == '}');
    return p;
}

static void
read_field(const char *p, const char *end, ge_field *out)
{
    const char *colon = memchr(p, ':', (size_t)(end - p));
    const char *stop = colon ? colon : end;
    const char *equal =
        colon ? memchr(colon, '=', (size_t)(end - colon)) : NULL;

    *out = (ge_field){.name = p, .required = end[-1] == '!'};
    if (!colon && stop[-1] == '?')
        out->optional = true, stop--;
    if (!colon && stop[-1] == ']')
        out->list = true, stop -= 2;
    out->name_len = (int)(stop - p);
    if (!colon)
        return;
    out->type = colon + 1;
    stop = equal ? equal : out->required ? end - 1 : end;
    out->type_len = (int)(stop - out->type);
    out->list = strncmp(out->type, "List", 4) == 0;
    if (equal) {
        out->def = equal + 1;
        out->def_len = (int)(end - out->def);
    }
}

bool
ge_field_at(const char *prototype, ge_section section, size_t i, ge_field *out)
{
    char end;
    const char *p = section_start(prototype, section, &end);

    while (p) {
        while (*p == ' ')
            p++;
        if (*p == end || !*p)
            return false;
        const char *stop = field_end(p, end);
        if (i-- == 0) {
            read_field(p, stop, out);
            return true;
        }
        p = *stop == ',' ? stop + 1 : NULL;
    }
    return false;
}

/* ---- rows ---------------------------------------------------------------- */

static const struct {
    const char *op, *type, *when, *args;
} rows[] = {
#define GE_ROW(op, type, when, args) {op, type, when, args},
#include "ir/ge.def"
};
#define ROWS (sizeof rows / sizeof *rows)

bool
air_ge_row(size_t i, const char **out_op, const char **out_type,
           const char **out_when, const char **out_args)
{
    if (i >= ROWS)
        return false;
    *out_op = rows[i].op;
    *out_type = rows[i].type;
    *out_when = rows[i].when;
    *out_args = rows[i].args;
    return true;
}

static bool
equals_literal(const ir_graph *g, const air_attr *a, const char *text)
{
    int64_t i;

    switch (a->kind) {
    case AIR_ATTR_INT:
        return ir_dim_is_const(g, a->dim, &i) &&
               (double)i == strtod(text, NULL);
    case AIR_ATTR_FLOAT: return a->f == strtod(text, NULL);
    case AIR_ATTR_BOOL: return a->b == (strcmp(text, "true") == 0);
    case AIR_ATTR_STR: return strcmp(a->str, text) == 0;
    default: return false;
    }
}

/* "parameter=literal", "parameter!literal", "parameter:bool or :number",
 * "inplace" */
static bool
holds(const ir_graph *g, const ir_node *n, const char *when)
{
    const ir_op_info *info = ir_info(n);
    size_t len = strcspn(when, "=!:");
    char name[32] = "";
    const char *value = when + len + 1;

    if (!*when)
        return true;
    if (strcmp(when, "inplace") == 0)
        return n->inplace;
    memcpy(name, when, len);
    const air_attr *a = &n->attrs[ir_param_find(info, name)];
    if (when[len] == '=')
        return equals_literal(g, a, value);
    if (when[len] == '!')
        return !equals_literal(g, a, value);
    if (strcmp(value, "bool") == 0)
        return a->kind == AIR_ATTR_VALUE &&
               ir_val(g, a->value)->dtype == AIR_BOOL;
    return a->kind == AIR_ATTR_INT || a->kind == AIR_ATTR_FLOAT ||
           a->kind == AIR_ATTR_BOOL;
}

void
ge_row_of(const ir_graph *g, const ir_node *n, const char **out_type,
          const char **out_args)
{
    const ir_op_info *info = ir_info(n);

    *out_type = info->ge;
    *out_args = NULL;
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].op, info->name) != 0 || !holds(g, n, rows[i].when))
            continue;
        *out_type = rows[i].type;
        *out_args = rows[i].args;
        return;
    }
}

/* ---- numbers ------------------------------------------------------------- */

static const air_ge_dtype dtypes[] = {
#define GE_DTYPE(name, number, file, dtype, torch) \
    {"DT_" #name, number, file, AIR_##dtype, torch},
#include "ir/ge.def"
};
static const air_ge_format formats[] = {
#define GE_FORMAT(name, number) {"FORMAT_" #name, number},
#include "ir/ge.def"
};

const air_ge_dtype *
air_ge_dtype_at(size_t i)
{
    return i < sizeof dtypes / sizeof *dtypes ? &dtypes[i] : NULL;
}

const air_ge_dtype *
air_ge_dtype_of(air_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return &dtypes[i];
    return NULL;
}

const air_ge_format *
air_ge_format_at(size_t i)
{
    return i < sizeof formats / sizeof *formats ? &formats[i] : NULL;
}
