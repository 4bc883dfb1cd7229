/* walk.h: elements of up to four tensors of the same sizes, side by side. */
#ifndef REF_WALK_H
#define REF_WALK_H

#include "driver/ref/args.h"

#define REF_WALK_MAX 4

typedef struct {
    int rank, n;
    int64_t dims[AIR_MAX_RANK], at[AIR_MAX_RANK];
    int64_t strides[REF_WALK_MAX][AIR_MAX_RANK];
    char *p[REF_WALK_MAX]; /* the current element of each */
} ref_walk;

/* Over the sizes of t[0], in row-major order, from element `start`. */
static inline ref_walk
ref_walk_begin(int n, const ref_tensor *const *t, int64_t start)
{
    ref_walk w = {.rank = t[0]->rank, .n = n};
    for (int k = 0; k < n; k++)
        w.p[k] = t[k]->data;
    for (int i = w.rank - 1; i >= 0; i--) {
        w.dims[i] = t[0]->dims[i];
        w.at[i] = w.dims[i] > 0 ? start % w.dims[i] : 0;
        start = w.dims[i] > 0 ? start / w.dims[i] : 0;
        for (int k = 0; k < n; k++) {
            w.strides[k][i] = t[k]->strides[i];
            w.p[k] += w.at[i] * t[k]->strides[i];
        }
    }
    return w;
}

static inline void
ref_walk_next(ref_walk *w)
{
    for (int i = w->rank - 1; i >= 0; i--) {
        if (++w->at[i] < w->dims[i]) {
            for (int k = 0; k < w->n; k++)
                w->p[k] += w->strides[k][i];
            return;
        }
        w->at[i] = 0;
        for (int k = 0; k < w->n; k++)
            w->p[k] -= (w->dims[i] - 1) * w->strides[k][i];
    }
}

/* *dst = *dst + *src in their dtype. */
static inline void
ref_add(int dtype, char *dst, const char *src)
{
    if (dtype == AIR_F32) {
        float a, b;
        memcpy(&a, dst, sizeof a);
        memcpy(&b, src, sizeof b);
        a += b;
        memcpy(dst, &a, sizeof a);
    } else if (ref_is_float(dtype)) {
        ref_put(dtype, dst, ref_get(dtype, dst) + ref_get(dtype, src));
    } else {
        int64_t sum = 0;
        (void)__builtin_add_overflow(ref_get_int(dtype, dst),
                                     ref_get_int(dtype, src), &sum);
        ref_put_int(dtype, dst, sum);
    }
}

static inline void
ref_add_row(int dtype, char *dst, int64_t ds, const char *src, int64_t ss,
            int64_t n)
{
    if (dtype == AIR_F32 && ds == 4 && ss == 4) {
        for (int64_t i = 0; i < n; i++)
            ref_add(AIR_F32, dst + i * 4, src + i * 4);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ref_add(dtype, dst + i * ds, src + i * ss);
}

/* Which thread writes to memory at this offset, where several writes to one
 * place must keep their order. */
static inline bool
ref_owns(int64_t offset, const air_task *task)
{
    uint64_t mixed = (uint64_t)offset * 0x9e3779b97f4a7c15u;
    return (mixed >> 32) * (uint64_t)task->count >> 32 == (uint64_t)task->id;
}

#endif
