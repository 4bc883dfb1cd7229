/* air_values.c: made-up inputs, and what is to be said of results. */
#include "air_values.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 6 };

/* ---- numbers of 16 bits ---- */

static double
f16_to_double(uint16_t bits)
{
    int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static double
bf16_to_double(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return (double)f;
}

/* x is exact: a small multiple of 1/128. */
static uint16_t
f16_from_exact(double x)
{
    int exponent;
    double m = frexp(fabs(x), &exponent); /* [0.5, 1) */
    unsigned sign = x < 0 ? 0x8000u : 0;
    if (m <= 0)
        return (uint16_t)sign;
    unsigned fraction = (unsigned)((m * 2 - 1) * 1024);
    return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 | fraction);
}

static uint16_t
bf16_from_exact(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* ---- making ---- */

static uint64_t
next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void
put_element(void *data, air_dtype dtype, int64_t i, uint64_t random)
{
    double x = (double)(random % 257) / 128 - 1;
    int64_t n = (int64_t)(random >> 32 & 3);
    switch (dtype) {
    case AIR_F64: ((double *)data)[i] = x; break;
    case AIR_F32: ((float *)data)[i] = (float)x; break;
    case AIR_F16: ((uint16_t *)data)[i] = f16_from_exact(x); break;
    case AIR_BF16: ((uint16_t *)data)[i] = bf16_from_exact((float)x); break;
    case AIR_I64: ((int64_t *)data)[i] = n; break;
    case AIR_I32: ((int32_t *)data)[i] = (int32_t)n; break;
    case AIR_I16: ((int16_t *)data)[i] = (int16_t)n; break;
    case AIR_BOOL: ((uint8_t *)data)[i] = n & 1; break;
    default: ((uint8_t *)data)[i] = (uint8_t)n; break; /* I8, U8 */
    }
}

int64_t
value_count(const air_value *value)
{
    int64_t count = 1;
    for (int i = 0; i < value->rank; i++)
        count *= value->dims[i];
    return count;
}

static air_status
make_tensor(const air_graph *graph, const air_type *type, uint64_t *state,
            air_value *out)
{
    int64_t *dims = calloc(AIR_MAX_RANK, sizeof *dims);
    *out = air_value_tensor(NULL, type->dtype, type->rank, dims);
    if (!dims)
        return AIR_ERROR_MEMORY;
    size_t bytes = air_dtype_bytes(type->dtype);
    for (int i = 0; i < type->rank; i++) {
        air_status status = air_dim_hint(graph, type->dims[i], &dims[i]);
        if (status != AIR_OK)
            return status;
        if (dims[i] < 0 ||
            __builtin_mul_overflow(bytes, (size_t)dims[i], &bytes))
            return AIR_ERROR_SHAPE;
    }
    out->data = malloc(bytes ? bytes : 1);
    if (!out->data)
        return AIR_ERROR_MEMORY;
    int64_t count = value_count(out);
    for (int64_t i = 0; i < count; i++)
        put_element(out->data, type->dtype, i, next_random(state));
    return AIR_OK;
}

/* Why inputs cannot be made. */
static char problem[200] = "inputs cannot be made";

const char *
values_problem(void)
{
    return problem;
}

static void
note_size(const char *name, air_dtype dtype, const air_value *value)
{
    double bytes = (double)air_dtype_bytes(dtype);
    int at = snprintf(problem, sizeof problem, "input %.60s, %s[", name,
                      air_dtype_text(dtype));
    for (int i = 0; value->dims && i < value->rank; i++) {
        bytes *= (double)value->dims[i];
        at += snprintf(problem + at, sizeof problem - (size_t)at, "%s%lld",
                       i ? ", " : "", (long long)value->dims[i]);
        if (at > (int)sizeof problem - 60)
            return;
    }
    snprintf(problem + at, sizeof problem - (size_t)at,
             "], cannot be made: it has %.3g GB", bytes / 1e9);
}

static air_status
make_value(const air_graph *graph, const air_input *input, uint64_t *state,
           air_value *out)
{
    if (!input->is_int)
        return make_tensor(graph, &input->type, state, out);
    *out = (air_value){.is_int = true, .alias = -1};
    return air_dim_hint(graph, input->type.dims[0], &out->i);
}

air_status
values_make(const air_graph *graph, uint64_t seed, air_values *out)
{
    air_input input;
    size_t count = 0;
    while (air_graph_get_input(graph, count, &input))
        count++;
    out->count = 0;
    out->values = calloc(count + 1, sizeof *out->values);
    out->names = calloc(count + 1, sizeof *out->names);
    if (!out->values || !out->names)
        return AIR_ERROR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        air_graph_get_input(graph, i, &input);
        out->names[i] = input.name;
        out->count = i + 1;
        air_status status = make_value(graph, &input, &seed, &out->values[i]);
        if (status != AIR_OK) {
            note_size(input.name, input.type.dtype, &out->values[i]);
            return status;
        }
    }
    return AIR_OK;
}

void
values_free(air_values *values)
{
    for (size_t i = 0; i < values->count; i++) {
        free(values->values[i].data);
        union { /* dims are const for whoever gets the value, not for us */
            const int64_t *given;
            void *own;
        } dims = {values->values[i].dims};
        free(dims.own);
    }
    free(values->values);
    free(values->names);
    *values = (air_values){0};
}

/* ---- reading ---- */

int64_t
value_offset(const air_value *value, int64_t i)
{
    if (!value->strides)
        return i;
    int64_t offset = 0;
    for (int d = value->rank - 1; d >= 0; d--) {
        offset += i % value->dims[d] * value->strides[d];
        i /= value->dims[d];
    }
    return offset;
}

double
value_get(const air_value *value, int64_t i)
{
    if (value->is_int)
        return (double)value->i;
    const void *data = value->data;
    int64_t at = value_offset(value, i);
    switch (value->dtype) {
    case AIR_F64: return ((const double *)data)[at];
    case AIR_F32: return (double)((const float *)data)[at];
    case AIR_F16: return f16_to_double(((const uint16_t *)data)[at]);
    case AIR_BF16: return bf16_to_double(((const uint16_t *)data)[at]);
    case AIR_I64: return (double)((const int64_t *)data)[at];
    case AIR_I32: return ((const int32_t *)data)[at];
    case AIR_I16: return ((const int16_t *)data)[at];
    case AIR_I8: return ((const int8_t *)data)[at];
    default: return ((const uint8_t *)data)[at]; /* U8, BOOL */
    }
}

static void
print_type(FILE *out, const air_value *value)
{
    fprintf(out, "%s[", air_dtype_text(value->dtype));
    for (int i = 0; i < value->rank; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "", value->dims[i]);
    fprintf(out, "]");
}

void
value_print(FILE *out, const char *name, const air_value *value)
{
    fprintf(out, "%s: ", name);
    if (value->is_int) {
        fprintf(out, "int  %" PRId64 "\n", value->i);
        return;
    }
    print_type(out, value);
    int64_t count = value_count(value);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += value_get(value, i);
    fprintf(out, "  sum %.9g ", sum);
    for (int64_t i = 0; i < count && i < SHOWN; i++)
        fprintf(out, " %.6g", value_get(value, i));
    fprintf(out, "%s\n", count > SHOWN ? " ..." : "");
}

/* ---- comparing ---- */

static double
tolerance(air_dtype dtype)
{
    switch (dtype) {
    case AIR_F64: return 1e-7;
    case AIR_F32: return 1e-5;
    case AIR_F16: return 4e-3;
    case AIR_BF16: return 2e-2;
    default: return 0;
    }
}

static bool
same_type(const air_value *a, const air_value *b)
{
    if (a->is_int != b->is_int || a->rank != b->rank || a->dtype != b->dtype)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

value_difference
value_compare(const air_value *got, const air_value *want)
{
    value_difference d = {.at = -1};
    if (!same_type(got, want))
        return (value_difference){.at = 0, .largest = (double)INFINITY};
    int64_t count = value_count(got);
    double allowed = got->is_int ? 0 : tolerance(got->dtype);
    for (int64_t i = 0; i < count; i++) {
        double a = value_get(got, i), b = value_get(want, i);
        bool equal = !(a < b || a > b) && isnan(a) == isnan(b);
        double error = equal ? 0 : fabs(a - b) / (1 + fabs(b));
        if (isnan(error))
            error = (double)INFINITY;
        if (error > allowed && d.at < 0) {
            d.at = i;
            d.got = a;
            d.want = b;
        }
        if (error > d.largest)
            d.largest = error;
    }
    return d;
}
