/* attend.h: softmax(queries keys^T + mask) values for the queries that share
 * one key/value head, whatever the tensors look like: where rows lie, what a
 * query sees and where results go is the source's.
 *
 * Keys come in blocks of ATTEND_KEYS; the softmax is corrected from block to
 * block. Keys at the end of a block that a mask hides from all (-inf) are not
 * read: a cache costs as much as is in it.
 *   few rows   lanes lie along the width: dot products with the keys, then
 *              weights are broadcast over value rows (a token at a time)
 *   many rows  lanes are queries: both products are the matrix kernel, whose
 *              result panel (the weights) is its next input panel */
#ifndef CPU_ATTEND_H
#define CPU_ATTEND_H

#include "driver/cpu/attention/attend_isa.h"
#include "driver/cpu/product/gemm_core.h"

#define ATTEND_KEYS   GEMV_NB /* of a block */
#define ATTEND_PANELS 4       /* of queries that share a block of keys */

typedef struct attend_source attend_source;

/* What is_masked says, bits */
enum {
    ATTEND_MASK = 1, /* what `mask` says */
    ATTEND_EDGE = 2  /* rows of a panel see keys up to `last` + lane; where it
                        is not set, `mask` has that rule too */
};

/* Many rows by pairs of bf16 (gemm_pairs.h): panels have a row for two. */
typedef struct {
    /* gemm_ops.block; cpu_pairs_pack */
    void (*block)(float *acc, int64_t nr, const float *panel, int64_t xs,
                  const float *w, int64_t rs, int64_t ks, int64_t kc,
                  bool first);
    void (*pack)(float *dst, int64_t ld, const gemm_view *v, int64_t r,
                 int64_t n, int64_t k0, int64_t k1);
    /* Rows 2 i and 2 i + 1 of a panel, of an even number, become row i. */
    void (*join)(float *panel, int64_t rows);
    /* attend_ops.softmax_panel of scores that are multiplied first; weights
     * are joined, the last of an odd number with 0. */
    void (*softmax)(float *s, const float *mask, bool even, int64_t keys,
                    int64_t last, float by, float *top, float *sum, float *out,
                    int64_t width);
} attend_pairs;

typedef struct {
    const attend_source *from;
    const void *front; /* the source's */
    const gemm_ops *ops;
    int64_t rows, depth, width;
    float *mem; /* of this thread: attend_floats */
    /* NULL: floats. Else the depth is even, and queries are not scaled. */
    const attend_pairs *pairs;
    float scale; /* of scores, with pairs */
} attend;

struct attend_source {
    /* dst[r][depth] = rows [r0, r0 + n) of the queries, scaled but for pairs */
    void (*queries)(const attend *a, int64_t r0, int64_t n, float *dst);
    /* Keys, values [j, j + n) as floats: in place, or in block, `room` apart */
    const float *(*keys)(const attend *a, int64_t j, int64_t n, float *block,
                         int64_t *out_rs);
    const float *(*values)(const attend *a, int64_t j, int64_t n, int64_t room,
                           float *block, int64_t *out_rs);
    /* With pairs: keys as pairs of the depth, as `keys`; dst[i][width] = values
     * j + 2 i and the one behind it, i < (n + 1) / 2, the last maybe with 0;
     * dst has room for ATTEND_KEYS rows */
    const float *(*key_pairs)(const attend *a, int64_t j, int64_t n,
                              float *block, int64_t *out_rs);
    void (*value_pairs)(const attend *a, int64_t j, int64_t n, float *dst);
    /* s[r * ATTEND_KEYS + i] = row r of q . key j + i, for all of few rows */
    void (*scores)(const attend *a, const float *q, int64_t j, int64_t n,
                   float *s, float *block);
    /* What is added to scores of rows [r0, r0 + rows), keys [j, j + n) */
    unsigned (*is_masked)(const attend *a, int64_t r0, int64_t rows, int64_t j,
                          int64_t n);
    /* ATTEND_EDGE: the last key that row r sees; one more for each behind */
    int64_t (*last)(const attend *a, int64_t r);
    /* Values [j, j + *count), *count of them at least one and at most what it
     * was, where their elements lie side by side; NULL */
    const void *(*value_rows)(const attend *a, int64_t j, int64_t *count,
                              int64_t *out_rs, int *out_dtype);
    /* dst[i * ds] = what is added to the score of row r with key j + i */
    void (*mask)(const attend *a, int64_t r, int64_t j, int64_t n, float *dst,
                 int64_t ds, float *tmp);
    /* Keys [*first, *end) that some of rows [r0, r0 + n) may see */
    void (*range)(const attend *a, int64_t r0, int64_t n, int64_t *first,
                  int64_t *end);
    /* The result of row r: sums of weights e^(score - top) times values, and
     * of weights */
    void (*put)(const attend *a, int64_t r, const float *out, float top,
                float sum);
    /* The same for the n rows of a panel at once, where they lie evenly in
     * memory. false, or NULL: they do not, take them row by row.
     * panel[depth or pairs of it][lane]; out[width][lane], which it may change;
     * mask: dst[key][lane] without ATTEND_EDGE's rule, tmp has the room of dst
     */
    bool (*query_panel)(const attend *a, int64_t r0, int64_t n, float *panel);
    bool (*mask_panel)(const attend *a, int64_t r0, int64_t n, int64_t j,
                       int64_t keys, float *dst, float *tmp);
    /* dst[key]: the mask of rows [r0, r0 + n) where it is the same for all */
    bool (*mask_even)(const attend *a, int64_t r0, int64_t n, int64_t j,
                      int64_t keys, float *dst);
    bool (*put_panel)(const attend *a, int64_t r0, int64_t n, float *out,
                      const float *top, const float *sum);
};

static inline bool
attend_is_few(int64_t rows)
{
    return rows <= GEMV_MAX;
}

/* Rows that are computed together, where they are many. */
static inline int64_t
attend_run_rows(const gemm_ops *ops)
{
    return ATTEND_PANELS * ops->lanes;
}

/* s[m * ATTEND_KEYS + i] = query m . key i, m < rows, i < n: elements of rows
 * of both lie side by side, those of keys `ks` apart. */
void attend_dots(const gemm_ops *ops, float *s, int64_t rows, const float *q,
                 int64_t qs, const void *k, int64_t ks, int dtype, int64_t n,
                 int64_t depth);
/* attend_source.query_panel of queries that v has; false: rows of pairs that
 * begin at odd numbers */
bool attend_query_panel(const attend *a, const gemm_view *v, int64_t n,
                        float scale, float *panel);
/* attend_source.mask_panel of the lines that v has */
void attend_mask_panel(const attend *a, const gemm_view *v, int64_t n,
                       int64_t keys, float *dst);
/* attend_source.value_pairs of n rows of bf16, `step` elements apart */
void attend_value_pairs(const attend *a, const void *rows, int64_t step,
                        int64_t n, float *dst);
/* Of a thread, for problems of these sizes and any number of rows up to it. */
int64_t attend_floats(int64_t rows, int64_t depth, int64_t width);
/* Rows [r0, r1): all where they are few, else attend_run_rows at most. */
void attend_run(const attend *a, int64_t r0, int64_t r1);
#if defined(__x86_64__)
extern const attend_pairs cpu_attend_pairs; /* attend_pairs_isa.c */
#endif

#endif
