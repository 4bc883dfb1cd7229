/* move.h: the engine of data movement: boxes of elements from strides to
 * strides, on all threads of a task. */
#ifndef REF_MOVE_H
#define REF_MOVE_H

#include "driver/ref/args.h"

/* A movement prepared once for many places: axes from outermost to innermost
 * by dst's stride, merged where possible, and the units of work they fall
 * into. */
typedef struct {
    int rank; /* -1: no elements */
    int64_t dims[AIR_MAX_RANK], ds[AIR_MAX_RANK], ss[AIR_MAX_RANK];
    int64_t unit[AIR_MAX_RANK];  /* elements of a unit along each axis */
    int64_t count[AIR_MAX_RANK]; /* units along each axis */
    int64_t total;               /* units */
    int bytes, dst_dtype, src_dtype;
    size_t run; /* bytes of the whole, where it is one run on both sides */
} ref_box;
ref_box ref_box_make(const ref_tensor *dst, const ref_tensor *src);
void ref_box_move(const ref_box *b, char *dst, const char *src,
                  const air_task *task);
/* Calls of a few bytes each: those are moved here. */
static inline void
ref_run_move(char *dst, const char *src, size_t bytes)
{
    switch (bytes) {
    case 4: memcpy(dst, src, 4); break;
    case 8: memcpy(dst, src, 8); break;
    case 12: memcpy(dst, src, 12); break;
    case 16: memcpy(dst, src, 16); break;
    case 32: memcpy(dst, src, 32); break;
    default: memcpy(dst, src, bytes);
    }
}
void ref_box_move_parts(const ref_box *b, char *dst, const char *src);
/* The same by this thread alone. */
static inline void
ref_box_move_alone(const ref_box *b, char *dst, const char *src)
{
    if (b->run > 0)
        ref_run_move(dst, src, b->run);
    else
        ref_box_move_parts(b, dst, src);
}
/* dst += src, of one dtype, by this thread alone. */
void ref_box_add(const ref_box *b, char *dst, const char *src);
/* A dense row of floats onto another: of a few elements here, without a call.
 */
#define REF_ADD(T, n)                           \
    case n: {                                   \
        T x[n], y[n];                           \
        memcpy(x, dst, sizeof x);               \
        memcpy(y, src, sizeof y);               \
        for (int ref_i = 0; ref_i < n; ref_i++) \
            x[ref_i] += y[ref_i];               \
        memcpy(dst, x, sizeof x);               \
        return true;                            \
    }
static inline bool
ref_few_add(int dtype, char *dst, const char *src, int64_t n)
{
    if (dtype != AIR_F32)
        return false;
    switch (n) {
        REF_ADD(float, 1)
        REF_ADD(float, 2)
        REF_ADD(float, 3)
        REF_ADD(float, 4)
        REF_ADD(float, 8)
    default: return false;
    }
}
#undef REF_ADD
static inline void
ref_box_add_alone(const ref_box *b, char *dst, const char *src)
{
    if (b->run == 0 ||
        !ref_few_add(b->dst_dtype, dst, src, (int64_t)b->run / b->bytes))
        ref_box_add(b, dst, src);
}

/* dst[i] = src[i] for every index of dst's sizes. src has the same sizes (its
 * own dims are not looked at); strides may be zero or negative. dtypes differ:
 * the elements are converted. No barrier. */
void ref_move(const ref_tensor *dst, const ref_tensor *src,
              const air_task *task);
/* dst[...] = the number, in dst's dtype. */
void ref_fill(const ref_tensor *dst, double value, const air_task *task);
/* src with the rank of dst and stride 0 along axes it is broadcast over. */
ref_tensor ref_expand(const ref_tensor *src, const ref_tensor *dst);
/* Axis `axis` of t limited to `count` elements from `begin`, `step` apart. */
ref_tensor ref_slice(ref_tensor t, int axis, int64_t begin, int64_t count,
                     int64_t step);
/* out[..., i, ...] = self[..., index[..., i, ...], ...] along an axis, for
 * every index of `index`'s sizes. */
void ref_gather_along(const ref_tensor *out, const ref_tensor *self,
                      const ref_tensor *index, int axis, const air_task *task);
/* out = self unless they are one memory; a barrier after it where the caller
 * goes on writing. */
void ref_start(const ref_tensor *out, const ref_tensor *self,
               const air_task *task);

#endif
