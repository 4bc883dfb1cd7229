/* attention.h: what a call of scaled_dot_product_attention asks for. */
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H

#include "driver/cpu/attention/attend.h"

typedef struct {
    const air_tensor *q, *k, *v, *mask, *out; /* mask may be NULL */
    const air_tensor *sums; /* [.., rows, 1]; NULL: not wanted */
    const air_task *task;
    int64_t rows, keys, depth, width; /* rows: queries of one head */
    int64_t heads, kv_heads, share;   /* share: query heads of a kv head */
    int64_t outer;                    /* product of the dims before heads */
    bool causal;
    float scale;
} sdpa;

/* The problem of one key/value head; row r is query r % rows of head
 * r / rows of its group. */
typedef struct {
    const sdpa *s;
    int64_t outer, kv;
    const char *k, *v;
} sdpa_group;

static inline int64_t
sdpa_dim(const air_tensor *t, int from_end)
{
    return t->rank >= from_end ? t->dims[t->rank - from_end] : 1;
}

/* 0 for dims that are broadcast. */
static inline int64_t
sdpa_stride(const air_tensor *t, int from_end)
{
    return sdpa_dim(t, from_end) > 1 ? t->strides[t->rank - from_end] : 0;
}

/* Is the last dim adjacent in memory? */
static inline bool
sdpa_is_straight(const air_tensor *t)
{
    return sdpa_dim(t, 1) == 1 || sdpa_stride(t, 1) == 1;
}

/* task NULL: sizes and strides only, no pointers. */
sdpa sdpa_read(const air_call *call, const air_task *task);
/* Number i of outer * kv_heads. */
sdpa_group sdpa_group_of(const sdpa *s, int64_t i);
/* Row r of q, out, mask or sums. */
char *sdpa_row(const sdpa_group *g, const air_tensor *t, int64_t r);
/* The logarithm of the sum of e^score of row r, for the gradient; 0 for a row
 * without any visible key, as in ATen. */
void sdpa_put_sum(const sdpa_group *g, int64_t r, float top, float sum);
/* Of bf16, many rows, their elements side by side? */
bool sdpa_is_of_halves(const air_call *call);
/* pairs may be NULL. */
void sdpa_run(const air_call *call, const air_task *task, const gemm_ops *ops,
              const attend_pairs *pairs);

#endif
