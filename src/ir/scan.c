/* scan.c: the text form's characters, words, literals and size expressions. */
#include "ir/scan.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 60 /* of brackets in size expressions */

/* ---- errors -------------------------------------------------------------- */

static void
position(const scanner *s, const char *at, int *line, int *column)
{
    *line = *column = 1;
    for (const char *p = s->text; p < at; p++) {
        *column = *p == '\n' ? 1 : *column + 1;
        *line += *p == '\n';
    }
}

air_status
scan_fail(const scanner *s, const char *at, const char *what)
{
    int line, column;

    position(s, at, &line, &column);
    AIR_FAIL(AIR_ERROR_SYNTAX, "%d:%d: %s", line, column, what);
}

air_status
scan_fail_word(const scanner *s, word w, const char *what)
{
    int line, column, len = w.len < 100 ? (int)w.len : 100;

    position(s, w.s, &line, &column);
    AIR_FAIL(AIR_ERROR_SYNTAX, "%d:%d: %s '%.*s'", line, column, what, len,
             w.s);
}

air_status
scan_locate(const scanner *s, const char *at, air_status status)
{
    char message[400];
    int line, column;
    size_t len = strlen(air_last_error()->message);

    len = len < sizeof message ? len : sizeof message - 1;
    memcpy(message, air_last_error()->message, len);
    message[len] = '\0';
    position(s, at, &line, &column);
    AIR_FAIL(status, "%d:%d: %s", line, column, message);
}

/* ---- tokens -------------------------------------------------------------- */

void
scan_space(scanner *s)
{
    while (s->p < s->end) {
        if (*s->p == '#')
            while (s->p < s->end && *s->p != '\n')
                s->p++;
        else if (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' ||
                 *s->p == '\r')
            s->p++;
        else
            return;
    }
}

bool
scan_comment(scanner *s, word *out)
{
    const char *end;

    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t'))
        s->p++;
    if (s->p == s->end || *s->p != '#')
        return false;
    for (end = s->p; end < s->end && *end != '\n';)
        end++;
    out->s = s->p + 1;
    s->p = end;
    while (end > out->s && (end[-1] == ' ' || end[-1] == '\r'))
        end--;
    while (out->s < end && *out->s == ' ')
        out->s++;
    out->len = (size_t)(end - out->s);
    return out->len > 0;
}

bool
scan_peek(scanner *s, const char *token)
{
    size_t len = strlen(token);

    scan_space(s);
    return (size_t)(s->end - s->p) >= len && memcmp(s->p, token, len) == 0;
}

bool
scan_take(scanner *s, const char *token)
{
    if (!scan_peek(s, token))
        return false;
    s->p += strlen(token);
    return true;
}

air_status
scan_expect(scanner *s, const char *token)
{
    int line, column;

    if (scan_take(s, token))
        return AIR_OK;
    position(s, s->p, &line, &column);
    AIR_FAIL(AIR_ERROR_SYNTAX, "%d:%d: expected '%s'", line, column, token);
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool
is_word_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '_' || c == '.' || c == '$';
}

/* A colon belongs to a word only as part of a namespace: prims::name. */
word
scan_word(scanner *s)
{
    word w;

    scan_space(s);
    w.s = s->p;
    while (s->p < s->end) {
        if (is_word_char(*s->p))
            s->p++;
        else if (*s->p == ':' && s->end - s->p > 2 && s->p[1] == ':' &&
                 is_word_char(s->p[2]))
            s->p += 2;
        else
            break;
    }
    w.len = (size_t)(s->p - w.s);
    return w;
}

bool
word_is(word w, const char *text)
{
    return strlen(text) == w.len && memcmp(w.s, text, w.len) == 0;
}

bool
scan_keyword(scanner *s, const char *keyword)
{
    const char *at;

    scan_space(s);
    at = s->p;
    if (word_is(scan_word(s), keyword))
        return true;
    s->p = at;
    return false;
}

air_status
scan_copy(scanner *s, word w, const char **out)
{
    return base_arena_str(&s->scratch, w.s, w.len, out);
}

/* ---- literals ------------------------------------------------------------ */

air_status
scan_int(scanner *s, int64_t *out)
{
    const char *at;
    bool minus;
    int64_t v = 0;

    scan_space(s);
    at = s->p;
    minus = scan_take(s, "-");
    if (s->p == s->end || !is_digit(*s->p))
        return scan_fail(s, at, "expected an integer");
    for (; s->p < s->end && is_digit(*s->p); s->p++)
        if (!base_mul_i64(v, 10, &v) || !base_add_i64(v, '0' - *s->p, &v))
            return scan_fail(s, at, "the integer does not fit 64 bits");
    if (!minus && v == INT64_MIN)
        return scan_fail(s, at, "the integer does not fit 64 bits");
    *out = minus ? v : -v;
    return AIR_OK;
}

static word
number_word(scanner *s)
{
    word w;
    const char *p;

    scan_space(s);
    w.s = p = s->p;
    if (p < s->end && *p == '-')
        p++;
    while (p < s->end && (is_word_char(*p) || ((*p == '-' || *p == '+') &&
                                               (p[-1] == 'e' || p[-1] == 'E'))))
        p++;
    w.len = (size_t)(p - w.s);
    return w;
}

bool
scan_at_float(scanner *s)
{
    word w = number_word(s), bare;
    bool number;

    if (w.len == 0)
        return false;
    bare = *w.s == '-' ? (word){w.s + 1, w.len - 1} : w;
    if (word_is(bare, "inf") || word_is(bare, "nan"))
        return true;
    number = bare.len > 0 && (is_digit(*bare.s) || *bare.s == '.');
    return number &&
           (memchr(bare.s, '.', bare.len) || memchr(bare.s, 'e', bare.len) ||
            memchr(bare.s, 'E', bare.len));
}

air_status
scan_float(scanner *s, double *out)
{
    word w = number_word(s);
    char text[64], *end;

    if (w.len == 0 || w.len >= sizeof text)
        return scan_fail(s, s->p, "expected a number");
    memcpy(text, w.s, w.len);
    text[w.len] = '\0';
    *out = strtod(text, &end);
    if (*end != '\0')
        return scan_fail_word(s, w, "no number:");
    s->p += w.len;
    return AIR_OK;
}

static int
hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One character after a backslash; 0: not known. */
static char
unescape(scanner *s)
{
    char c = s->p < s->end ? *s->p++ : '\0';
    int high, low;

    if (c == 'n')
        return '\n';
    if (c != 'x')
        return c == '"' || c == '\\' ? c : '\0';
    if (s->end - s->p < 2)
        return '\0';
    high = hex_value(s->p[0]);
    low = hex_value(s->p[1]);
    s->p += 2;
    return high < 0 || low < 0 ? '\0' : (char)(high * 16 + low);
}

air_status
scan_str(scanner *s, const char **out)
{
    const char *at;
    char *copy;
    size_t n = 0;

    AIR_TRY(scan_expect(s, "\""));
    at = s->p;
    while (s->p < s->end && *s->p != '"' && *s->p != '\n')
        s->p += *s->p == '\\' && s->p + 1 < s->end ? 2 : 1;
    if (s->p >= s->end || *s->p != '"')
        return scan_fail(s, at, "the string has no end");
    AIR_TRY(BASE_ARENA_ARRAY(&s->scratch, s->p - at + 1, &copy));
    for (s->p = at; *s->p != '"';) {
        char c = *s->p++;
        if (c == '\\' && (c = unescape(s)) == '\0')
            return scan_fail(s, s->p, "unknown escape in a string");
        if (c == '\0')
            return scan_fail(s, s->p, "a string cannot hold NUL");
        copy[n++] = c;
    }
    s->p++;
    copy[n] = '\0';
    *out = copy;
    return AIR_OK;
}

air_status
scan_ref(scanner *s, air_ref *out)
{
    word w;

    AIR_TRY(scan_expect(s, "%"));
    w = scan_word(s);
    if (w.len == 0 || !graph_find_value(s->g, w.s, w.len, out))
        return scan_fail_word(s, w, "unknown value");
    return AIR_OK;
}

/* ---- size expressions ---------------------------------------------------- */

static air_status scan_sum(scanner *s, int depth, air_dim *out);

static air_status
scan_symbol(scanner *s, word w, air_dim *out)
{
    const char *name;
    uint32_t id;

    if (base_map_find(&s->g->symbol_map, w.s, w.len, &id)) {
        *out = s->g->symbols.data[id].dim;
        return AIR_OK;
    }
    if (!s->may_declare || is_digit(*w.s))
        return scan_fail_word(s, w, "unknown symbol");
    AIR_TRY(scan_copy(s, w, &name));
    return ir_dim_symbol(s->g, name, TEXT_SYMBOL_MIN, TEXT_SYMBOL_MAX, 0, out);
}

static air_status
scan_extremum(scanner *s, ir_dim_op op, int depth, air_dim *out)
{
    air_dim a, b;
    const char *at = s->p;
    air_status status;

    AIR_TRY(scan_expect(s, "("));
    AIR_TRY(scan_sum(s, depth + 1, &a));
    AIR_TRY(scan_expect(s, ","));
    AIR_TRY(scan_sum(s, depth + 1, &b));
    AIR_TRY(scan_expect(s, ")"));
    status = ir_dim_make(s->g, op, a, b, out);
    return status == AIR_OK ? AIR_OK : scan_locate(s, at, status);
}

static air_status
scan_atom(scanner *s, int depth, air_dim *out)
{
    int64_t v;
    word w;

    if (depth > MAX_DEPTH)
        return scan_fail(s, s->p, "too many brackets");
    if (scan_take(s, "(")) {
        AIR_TRY(scan_sum(s, depth + 1, out));
        return scan_expect(s, ")");
    }
    scan_space(s);
    if (s->p < s->end && (is_digit(*s->p) || *s->p == '-')) {
        AIR_TRY(scan_int(s, &v));
        return ir_dim_const(s->g, v, out);
    }
    w = scan_word(s);
    if (w.len == 0)
        return scan_fail(s, s->p, "expected a size");
    if (scan_peek(s, "("))
        return word_is(w, "min")   ? scan_extremum(s, IR_DIM_MIN, depth, out)
               : word_is(w, "max") ? scan_extremum(s, IR_DIM_MAX, depth, out)
                                   : scan_fail_word(s, w, "unknown function");
    return scan_symbol(s, w, out);
}

static bool
take_operator(scanner *s, bool sum, ir_dim_op *op)
{
    if (sum && scan_take(s, "+"))
        *op = IR_DIM_ADD;
    else if (sum && scan_take(s, "-"))
        *op = IR_DIM_SUB;
    else if (!sum && scan_take(s, "*"))
        *op = IR_DIM_MUL;
    else if (!sum && scan_take(s, "//"))
        *op = IR_DIM_DIV;
    else if (!sum && scan_take(s, "%"))
        *op = IR_DIM_MOD;
    else
        return false;
    return true;
}

static air_status
scan_chain(scanner *s, bool sum, int depth, air_dim *out)
{
    ir_dim_op op;
    air_dim b;

    AIR_TRY(sum ? scan_chain(s, false, depth, out) : scan_atom(s, depth, out));
    for (;;) {
        const char *at = s->p;
        air_status status;
        if (!take_operator(s, sum, &op))
            return AIR_OK;
        AIR_TRY(sum ? scan_chain(s, false, depth, &b)
                    : scan_atom(s, depth, &b));
        status = ir_dim_make(s->g, op, *out, b, out);
        if (status != AIR_OK)
            return scan_locate(s, at, status);
    }
}

static air_status
scan_sum(scanner *s, int depth, air_dim *out)
{
    return scan_chain(s, true, depth, out);
}

air_status
scan_dim(scanner *s, air_dim *out)
{
    return scan_sum(s, 0, out);
}

air_status
scan_dims(scanner *s, size_t *count, air_dim **out)
{
    BASE_VEC(air_dim) list = {0};
    air_status status = AIR_OK;
    air_dim d;
    void *copy = NULL;

    *out = NULL;
    AIR_TRY(scan_expect(s, "["));
    while (status == AIR_OK && !scan_take(s, "]")) {
        if (list.count)
            status = scan_expect(s, ",");
        if (status == AIR_OK)
            status = scan_dim(s, &d);
        if (status == AIR_OK)
            status = BASE_PUSH(s->g->alloc, &list, d);
    }
    if (status == AIR_OK)
        status = base_arena_copy(&s->scratch, list.data, list.count * sizeof d,
                                 &copy);
    *count = list.count;
    *out = copy;
    BASE_VEC_FREE(s->g->alloc, &list);
    return status == AIR_OK ? status : base_trace(status, __func__, __LINE__);
}

air_status
scan_type(scanner *s, air_type *out)
{
    word w = scan_word(s);
    const char *name;
    size_t count;
    air_dim *dims;

    AIR_TRY(scan_copy(s, w, &name));
    *out = (air_type){.dtype = air_dtype_find(name)};
    if (out->dtype == AIR_DTYPE_NONE)
        return scan_fail_word(s, w, "unknown dtype");
    AIR_TRY(scan_dims(s, &count, &dims));
    if (count > AIR_MAX_RANK)
        return scan_fail_word(s, w, "too many dims of");
    out->rank = (int)count;
    if (count)
        memcpy(out->dims, dims, count * sizeof *dims);
    return AIR_OK;
}
