/* air_npy.c: arrays in NumPy's file format. */
#include "air_npy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "air_values.h"

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6, ALIGNMENT = 64 };

/* First row of a dtype: how it is written. */
static const struct {
    const char *descr;
    air_dtype dtype;
} descrs[] = {
    {"<f8", AIR_F64},  {"<f4", AIR_F32}, {"<f2", AIR_F16},  {"|V2", AIR_BF16},
    {"<V2", AIR_BF16}, {"<i8", AIR_I64}, {"<i4", AIR_I32},  {"<i2", AIR_I16},
    {"|i1", AIR_I8},   {"|u1", AIR_U8},  {"|b1", AIR_BOOL},
};
enum { DESCRS = sizeof descrs / sizeof *descrs };

/* ---- the header: a Python dict of three known keys ---- */

typedef struct {
    const char *at, *end;
} scanner;

static void
skip_blanks(scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n'))
        s->at++;
}

static bool
take(scanner *s, const char *word)
{
    size_t len = strlen(word);
    skip_blanks(s);
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0)
        return false;
    s->at += len;
    return true;
}

static const char *
take_descr(scanner *s, npy_array *out)
{
    if (!take(s, "'"))
        return "an array of records: one dtype is needed";
    for (int i = 0; i < DESCRS; i++)
        if (take(s, descrs[i].descr)) {
            out->dtype = descrs[i].dtype;
            return take(s, "'") ? NULL : "its dtype is not an engine's";
        }
    return "its dtype is not one of f8 f4 f2 V2 (bf16) i8 i4 i2 i1 u1 b1, "
           "little-endian";
}

static const char *
take_order(scanner *s, bool *column_major)
{
    *column_major = take(s, "True");
    return *column_major || take(s, "False") ? NULL
                                             : "fortran_order is not "
                                               "True or False";
}

static bool
take_size(scanner *s, int64_t *out)
{
    skip_blanks(s);
    const char *start = s->at;
    *out = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *s->at - '0', out))
            return false;
    return s->at > start;
}

static const char *
take_shape(scanner *s, npy_array *out)
{
    if (!take(s, "("))
        return "its shape is not a tuple";
    for (out->rank = 0; !take(s, ")"); out->rank++) {
        if (out->rank == AIR_MAX_RANK)
            return "it has too many dimensions";
        if (!take_size(s, &out->dims[out->rank]))
            return "its shape holds no size";
        take(s, ",");
    }
    return NULL;
}

static const char *
take_header(scanner *s, npy_array *out, bool *column_major)
{
    const char *wrong = NULL;
    unsigned seen = 0;
    if (!take(s, "{"))
        return "its header is not a dict";
    while (!wrong && !take(s, "}")) {
        if (take(s, "'descr':")) {
            wrong = take_descr(s, out);
            seen |= 1;
        } else if (take(s, "'fortran_order':")) {
            wrong = take_order(s, column_major);
            seen |= 2;
        } else if (take(s, "'shape':")) {
            wrong = take_shape(s, out);
            seen |= 4;
        } else {
            return "its header has an unknown key";
        }
        take(s, ",");
    }
    return wrong || seen == 7 ? wrong : "its header lacks a key";
}

/* ---- reading ---- */

/* Strides of the order, and the bytes that the elements take. */
static const char *
lay_out(npy_array *a, bool column_major)
{
    size_t size = air_dtype_bytes(a->dtype);
    int64_t stride = 1;
    a->bytes = size;
    for (int i = 0; i < a->rank; i++) {
        int d = column_major ? i : a->rank - 1 - i;
        a->strides[d] = stride;
        if (__builtin_mul_overflow(a->bytes, (size_t)a->dims[d], &a->bytes) ||
            __builtin_mul_overflow(stride, a->dims[d] ? a->dims[d] : 1,
                                   &stride))
            return "its sizes are too large";
    }
    return NULL;
}

const char *
npy_parse(const void *bytes, size_t len, npy_array *out)
{
    const unsigned char *b = bytes;
    *out = (npy_array){.data = NULL};
    if (len < MAGIC + 4 || memcmp(b, magic, MAGIC) != 0)
        return "no NumPy file (numpy.save writes them)";
    bool wide = b[MAGIC] > 1;
    size_t fixed = MAGIC + (wide ? 6 : 4);
    if (b[MAGIC] < 1 || b[MAGIC] > 3)
        return "a later version of NumPy's format";
    if (len < fixed)
        return "it ends inside its header";
    size_t header = b[MAGIC + 2] | (size_t)b[MAGIC + 3] << 8;
    if (wide)
        header |= (size_t)b[MAGIC + 4] << 16 | (size_t)b[MAGIC + 5] << 24;
    if (header > len - fixed)
        return "it ends inside its header";
    const char *text = (const char *)b + fixed;
    scanner s = {text, text + header};
    bool column_major = false;
    const char *wrong = take_header(&s, out, &column_major);
    if (!wrong)
        wrong = lay_out(out, column_major);
    if (wrong)
        return wrong;
    out->data = text + header;
    return out->bytes > len - fixed - header ? "it ends before its last element"
                                             : NULL;
}

/* ---- writing ---- */

static const char *
descr_of(air_dtype dtype)
{
    for (int i = 0; i < DESCRS; i++)
        if (descrs[i].dtype == dtype)
            return descrs[i].descr;
    return "|V1"; /* not reached: every dtype has a row */
}

static bool
write_header(FILE *out, const air_value *value)
{
    char text[512];
    int n = snprintf(text, sizeof text,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     descr_of(value->dtype));
    for (int i = 0; i < value->rank; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%" PRId64 ",",
                      value->dims[i]);
    n += snprintf(text + n, sizeof text - (size_t)n, ")}");
    while ((MAGIC + 4 + n + 1) % ALIGNMENT)
        text[n++] = ' ';
    text[n++] = '\n';
    unsigned char fixed[] = {1, 0, (unsigned char)n, (unsigned char)(n >> 8)};
    return fwrite(magic, 1, MAGIC, out) == MAGIC &&
           fwrite(fixed, 1, sizeof fixed, out) == sizeof fixed &&
           fwrite(text, 1, (size_t)n, out) == (size_t)n;
}

bool
npy_write(FILE *out, const air_value *value)
{
    air_value number = {.data = NULL, .dtype = AIR_I64};
    int64_t i64 = value->i;
    if (value->is_int) {
        number.data = &i64;
        value = &number;
    }
    size_t size = air_dtype_bytes(value->dtype);
    if (!write_header(out, value))
        return false;
    int64_t count = value_count(value);
    for (int64_t i = 0; i < count; i++) {
        const char *element =
            (const char *)value->data + (size_t)value_offset(value, i) * size;
        if (fwrite(element, size, 1, out) != 1)
            return false;
    }
    return true;
}
