/* kern_draw.c: random numbers, from the application's generator, with the
 * launch that torch's kernels have: which element gets which number depends on
 * its blocks (text/draw.cuh). A result is dense; it is drawn in the order of
 * its memory. */
#include "driver/cuda/kern_call.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LOT = 4 }; /* words of the generator */
/* Here torch's loop draws 64 bits for a number. */
#define WIDE_RANGE (1LL << 28)

/* ---- what is drawn here ---- */

/* `seed`: its argument, -1: it has none. Larger tensors torch draws in parts.
 */
static bool
is_drawn(const air_call *call, const cuda_props *props, int seed)
{
    const air_tensor *y = &call->outs[0];
    return props->draws && kern_type(y->dtype) &&
           kern_has_dtype(y->dtype, props) &&
           (seed < 0 || seed >= call->nargs ||
            call->args[seed].kind == AIR_ARG_NONE) &&
           kern_numel(y) <= INT32_MAX / (int64_t)kern_bytes(y->dtype);
}

/* A float operator whose numbers are arguments a and a + 1. */
static bool
is_drawn_float(const air_call *call, const cuda_props *props, int a, int seed)
{
    return is_drawn(call, props, seed) && kern_is_float(call->outs[0].dtype) &&
           isfinite(kern_float(call, a, 0)) &&
           isfinite(kern_float(call, a + 1, 0));
}

bool
kern_rand_on(const air_call *call, const cuda_props *props)
{
    return is_drawn(call, props, -1) && kern_is_float(call->outs[0].dtype);
}

bool
kern_normal_of_on(const air_call *call, const cuda_props *props)
{
    return is_drawn_float(call, props, 0, -1);
}

bool
kern_uniform_on(const air_call *call, const cuda_props *props)
{
    return is_drawn_float(call, props, 1, 4);
}

bool
kern_normal_on(const air_call *call, const cuda_props *props)
{
    return is_drawn_float(call, props, 1, 5);
}

bool
kern_bernoulli_on(const air_call *call, const cuda_props *props)
{
    return is_drawn(call, props, 3);
}

bool
kern_randint_on(const air_call *call, const cuda_props *props)
{
    return is_drawn(call, props, -1);
}

bool
kern_integers_on(const air_call *call, const cuda_props *props)
{
    return is_drawn(call, props, 4);
}

/* ---- printing ---- */

static int64_t
blocks_of(int64_t total, const cuda_props *props)
{
    const int64_t most =
        (int64_t)props->processors * (props->threads / KERN_THREADS);
    const int64_t all = (total + KERN_THREADS - 1) / KERN_THREADS;
    return all < most ? all : most;
}

/* Each thread takes a lot for so many of its elements. */
static int64_t
taken(int64_t total, int64_t blocks, int elements)
{
    return total == 0
               ? 0
               : ((total - 1) / (KERN_THREADS * blocks * elements) + 1) * LOT;
}

/* how: `draw` or `draw_wide`; of: what is drawn, as the text says it. */
static air_status
print(const air_call *call, const cuda_props *props, int elements,
      const char *how, const char *of, cuda_source *out)
{
    const air_tensor *y = &call->outs[0];
    const int64_t total = kern_numel(y), blocks = blocks_of(total, props);
    kern k = kern_begin(out, kern_text_draw, "");
    kern_tensor(&k, kern_type(y->dtype), "y", y);
    kern_draws(&k, taken(total, blocks, elements));
    base_text_put(k.text, ", s64 total", 11); /* one text for all sizes */
    cuda_add_int(k.launch, total);
    kern_body(&k);
    base_text_add(k.text, "    %s(y, seed, offset, total, %s);\n}\n", how, of);
    kern_grid(&k, blocks, 1, 0);
    return AIR_OK;
}

static air_status
print_floats(const air_call *call, const cuda_props *props, const char *what,
             double a, double b, cuda_source *out)
{
    char of[100];
    const int dtype = call->outs[0].dtype;
    (void)snprintf(of, sizeof of, "%s<%s>(%a, %a)", what, kern_type(dtype), a,
                   b);
    return print(call, props, dtype == AIR_F64 ? LOT / 2 : LOT, "draw", of,
                 out);
}

air_status
kern_rand(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_floats(call, props, "uniform", 0, 1, out);
}

air_status
kern_randn(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_floats(call, props, "normal", 0, 1, out);
}

/* (mean, std, size, ...) */
air_status
kern_normal_of(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_floats(call, props, "normal", kern_float(call, 0, 0),
                        kern_float(call, 1, 1), out);
}

/* (size, from, to, dtype, seed) */
air_status
kern_uniform(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_floats(call, props, "uniform", kern_float(call, 1, 0),
                        kern_float(call, 2, 1), out);
}

/* (size, mean, std, dtype, one_by_one, seed) */
air_status
kern_normal(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_floats(call, props, "normal", kern_float(call, 1, 0),
                        kern_float(call, 2, 1), out);
}

/* So many elements side by side are a thread's. */
static int
width_of(const air_call *call)
{
    int64_t width = kern_int(call, 4, 0);
    width = width > 8 ? 8 : width;
    while (width > 1 && kern_numel(&call->outs[0]) % width != 0)
        width /= 2;
    return (int)width;
}

/* (size, p, dtype, seed, width): dropout compares what is always a float as
 * numbers of its tensor, which has 8 bytes where two are 16. */
air_status
kern_bernoulli(const air_call *call, const cuda_props *props, cuda_source *out)
{
    char of[100], how[40] = "draw";
    const int dtype = call->outs[0].dtype, width = width_of(call);
    const bool drops = kern_int(call, 4, 0) > 0;
    const bool draws_doubles = !drops && dtype == AIR_F64;
    const bool is_double = drops ? kern_int(call, 4, 0) == 2 : draws_doubles;
    (void)snprintf(of, sizeof of, "bernoulli<%s, %s, %s>(%a)", kern_type(dtype),
                   draws_doubles ? "double" : "float",
                   is_double ? "double" : "float", kern_float(call, 1, 0.5));
    if (width > 1)
        (void)snprintf(how, sizeof how, "draw_wide<%d>", width);
    return print(call, props, draws_doubles ? LOT / 2 : LOT, how, of, out);
}

static air_status
print_integers(const air_call *call, const cuda_props *props, int64_t low,
               int64_t high, cuda_source *out)
{
    char of[100];
    const uint64_t range = (uint64_t)high - (uint64_t)low;
    const int words = range >= WIDE_RANGE ? 2 : 1;
    (void)snprintf(of, sizeof of,
                   "integers<%s, %d>((s64)%" PRIu64 "ull, %" PRIu64 "ull)",
                   kern_type(call->outs[0].dtype), words, (uint64_t)low, range);
    return print(call, props, LOT / words, "draw", of, out);
}

/* (high, size, ...) */
air_status
kern_randint(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_integers(call, props, 0, kern_int(call, 0, 1), out);
}

/* (low, high, size, ...) */
air_status
kern_randint_low(const air_call *call, const cuda_props *props,
                 cuda_source *out)
{
    return print_integers(call, props, kern_int(call, 0, 0),
                          kern_int(call, 1, 1), out);
}

/* (size, low, high, dtype, seed) */
air_status
kern_integers(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_integers(call, props, kern_int(call, 1, 0),
                          kern_int(call, 2, 1), out);
}
