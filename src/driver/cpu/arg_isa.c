/* arg_isa.c: where the largest or smallest element of dense rows is, compiled
 * once per instruction set. A row goes by blocks: only the first with the best
 * element is looked through. The first of equals wins, and the first NaN over
 * everything. */
#include "driver/cpu/arg_isa.h"

#include <math.h>

#include "driver/cpu/float_rows.h"
#include "driver/cpu/gemm.h"
#include "driver/ref/args.h"

#define JOIN_(a, b)      cpu_##a##_##b
#define JOIN(a, b)       JOIN_(a, b)
#define ARG_KERNEL(name) JOIN(name, TILE_ISA)

enum { BLOCK = 256, LANES = 16 };

typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t masks __attribute__((vector_size(LANES * sizeof(int32_t))));

/* The largest of a block of n >= LANES elements; NaN where there is one.
 * sign: -1 for the smallest, negated. */
static float
best_in_block(const float *x, int64_t n, float sign)
{
    floats best, v;
    masks odd = {0};
    memcpy(&best, x, sizeof best);
    best *= sign;
    for (int64_t i = 0; i < n; i += LANES) {
        memcpy(&v, x + (i + LANES <= n ? i : n - LANES), sizeof v);
        v *= sign;
        masks more = v > best;
        best = (floats)((more & (masks)v) | (~more & (masks)best));
        odd |= v != v;
    }
    float out = best[0];
    for (int k = 0; k < LANES; k++) {
        if (odd[k])
            return NAN;
        out = best[k] > out ? best[k] : out;
    }
    return out;
}

/* The same of any n > 0. */
static float
best_of(const float *x, int64_t n, float sign)
{
    if (n >= LANES)
        return best_in_block(x, n, sign);
    float best = x[0] * sign;
    for (int64_t i = 1; i < n; i++) {
        float v = x[i] * sign;
        best = v > best || v != v ? v : best;
        if (isnan(best))
            break;
    }
    return best;
}

static const float *
block_of(const char *row, int dtype, int64_t at, int64_t n, float *wide)
{
    if (dtype == AIR_F32)
        return (const float *)(const void *)row + at;
    rows_widen(wide, row + at * rows_bytes(dtype), dtype, n);
    return wide;
}

static int64_t
best_of_row(const char *row, int dtype, int64_t n, float sign)
{
    float wide[BLOCK], best = -INFINITY;
    int64_t block = 0, count = n < BLOCK ? n : BLOCK;
    for (int64_t i = 0; i < n && !isnan(best); i += BLOCK) {
        count = n - i < BLOCK ? n - i : BLOCK;
        float most = best_of(block_of(row, dtype, i, count, wide), count, sign);
        if (most > best || isnan(most)) {
            best = most;
            block = i;
        }
    }
    count = n - block < BLOCK ? n - block : BLOCK;
    const float *x = block_of(row, dtype, block, count, wide);
    for (int64_t i = 0; i < count; i++)
        if (isnan(best) ? isnan(x[i]) : x[i] * sign == best)
            return block + i;
    return block;
}

/* Rows of the last axis, dense; of all elements without an axis. */
static bool
takes(const air_call *call, const char *isa)
{
    const air_tensor *a = call->args[0].t;
    const air_arg *dim = &call->args[1];
    if (!rows_take(a->dtype) || !cpu_is_dense(a) || a->rank == 0 ||
        !JOIN(on, TILE_ISA)(call, isa))
        return false;
    for (int i = 0; i < call->nouts; i++)
        if (!cpu_is_dense(&call->outs[i]))
            return false;
    return dim->kind == AIR_ARG_NONE ||
           ref_axis(dim->i, a->rank) == a->rank - 1;
}

bool
ARG_KERNEL(arg_on)(const air_call *call, const char *isa)
{
    return takes(call, isa);
}

/* index: of results; values: NULL, or the elements themselves */
static void
each_row(const air_call *call, const air_task *task, int64_t *index,
         char *values, float sign)
{
    ref_tensor self = ref_arg(call, 0, task);
    const int64_t bytes = rows_bytes(self.dtype), all = ref_numel(&self);
    const bool whole = call->args[1].kind == AIR_ARG_NONE;
    const int64_t n = whole ? all : self.dims[self.rank - 1];
    int64_t begin, end;
    air_split(n > 0 ? all / n : 0, task, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const char *row = self.data + r * n * bytes;
        index[r] = best_of_row(row, self.dtype, n, sign);
        if (values != NULL)
            memcpy(values + r * bytes, row + index[r] * bytes, (size_t)bytes);
    }
}

static void
places_only(const air_call *call, const air_task *task, float sign)
{
    each_row(call, task, (int64_t *)(void *)ref_out(call, 0, task).data, NULL,
             sign);
}

static void
both(const air_call *call, const air_task *task, float sign)
{
    each_row(call, task, (int64_t *)(void *)ref_out(call, 1, task).data,
             ref_out(call, 0, task).data, sign);
}

/* (self, dim, keepdim) */
void
ARG_KERNEL(argmax)(const air_call *call, const air_task *task)
{
    places_only(call, task, 1);
}

void
ARG_KERNEL(argmin)(const air_call *call, const air_task *task)
{
    places_only(call, task, -1);
}

void
ARG_KERNEL(max_dim)(const air_call *call, const air_task *task)
{
    both(call, task, 1);
}

void
ARG_KERNEL(min_dim)(const air_call *call, const air_task *task)
{
    both(call, task, -1);
}
