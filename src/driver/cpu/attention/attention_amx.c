/* attention_amx.c: scaled_dot_product_attention of bf16 with AMX.
 *
 * For a run of queries and a block of keys: keys become panels whose columns
 * are keys, values panels whose depth is keys; rows of scores become weights
 * in bf16, which are the left side of the second product as they lie there.
 * The softmax is corrected from block to block. */
#include "driver/cpu/attention/attention_amx.h"
#include "driver/cpu/attention/attention.h"
#include "driver/cpu/product/gemm.h"

#include <math.h>
#include <string.h>

#define RUN  256 /* rows of queries that share panels */
#define KEYS 256 /* of a block */

/* ---- memory of a thread -------------------------------------------------- */

typedef struct {
    const sdpa_group *g;
    int64_t width; /* of out, whole panels */
    uint16_t *q, *k, *v, *p;
    float *s, *acc, *out, *mask, *top, *sum, *factor;
} work;

static int64_t
layout(const sdpa *s, char *mem, work *w)
{
    int64_t depth = round_up(s->depth, AMX_DEPTH), at = 0;
    int64_t width = round_up(s->width, AMX_COLS);
    void *parts[11];
    const int64_t bytes[11] = {
        2 * RUN * depth,
        2 * KEYS * depth,
        2 * KEYS * width,
        2 * AMX_ROWS * KEYS,
        4 * AMX_ROWS * KEYS,
        4 * AMX_ROWS * AMX_COLS,
        4 * RUN * width,
        4 * KEYS,
        4 * RUN,
        4 * RUN,
        4 * AMX_ROWS,
    };
    for (int i = 0; i < 11; i++) {
        parts[i] = mem == NULL ? NULL : mem + at;
        at += round_up(bytes[i], 64);
    }
    *w = (work){.width = width,
                .q = parts[0],
                .k = parts[1],
                .v = parts[2],
                .p = parts[3],
                .s = parts[4],
                .acc = parts[5],
                .out = parts[6],
                .mask = parts[7],
                .top = parts[8],
                .sum = parts[9],
                .factor = parts[10]};
    return at;
}

/* ---- panels -------------------------------------------------------------- */

/* Row r of t, the one before it being known (NULL: not). */
static char *
next_row(const work *w, const air_tensor *t, int64_t r, char *before)
{
    if (before == NULL || r % w->g->s->rows == 0)
        return sdpa_row(w->g, t, r);
    return before + 2 * sdpa_stride(t, 2);
}

static void
begin(const work *w, int64_t r0, int64_t n)
{
    const sdpa *s = w->g->s;
    int64_t size = amx_panel_size(s->depth);
    char *row = NULL;
    for (int64_t i = 0; i < round_up(n, AMX_ROWS); i++) {
        row = i < n ? next_row(w, s->q, r0 + i, row) : NULL;
        amx_copy_row(w->q + i / AMX_ROWS * size + i % AMX_ROWS * AMX_DEPTH,
                     (void *)row, s->depth);
        w->top[i] = -INFINITY;
        w->sum[i] = 0;
    }
}

static void
pack(const work *w, int64_t j, int64_t n)
{
    const sdpa *s = w->g->s;
    int64_t ks = sdpa_stride(s->k, 2), vs = sdpa_stride(s->v, 2);
    gemm_view k = {w->g->k + 2 * j * ks, ks, 1, AIR_BF16};
    gemm_view v = {w->g->v + 2 * j * vs, 1, vs, AIR_BF16};
    for (int64_t i = 0; i < n; i += AMX_COLS)
        amx_pack(w->k + i / AMX_COLS * amx_panel_size(s->depth), &k, i,
                 min64(AMX_COLS, n - i), s->depth);
    for (int64_t d = 0; d < s->width; d += AMX_COLS)
        amx_pack(w->v + d / AMX_COLS * amx_panel_size(KEYS), &v, d,
                 min64(AMX_COLS, s->width - d), n);
}

/* ---- one block of rows, one of keys -------------------------------------- */

/* One mask for all rows? */
static bool
is_even(const sdpa *s)
{
    return s->mask != NULL && sdpa_stride(s->mask, 2) == 0 &&
           (sdpa_stride(s->mask, 3) == 0 || s->share == 1);
}

static void
make_mask(const work *w, int64_t r, int64_t j, int64_t n)
{
    const air_tensor *t = w->g->s->mask;
    int64_t size = t->dtype == AIR_F32 ? 4 : t->dtype == AIR_BOOL ? 1 : 2;
    int64_t stride = sdpa_stride(t, 1);
    amx_mask(w->mask, sdpa_row(w->g, t, r) + j * stride * size, stride,
             t->dtype, n);
}

/* Keys [j, j + n) that row r sees. */
static int64_t
visible(const sdpa *s, int64_t r, int64_t j, int64_t n)
{
    int64_t end = s->causal ? r % s->rows + 1 - j : n;
    return end < 0 ? 0 : min64(end, n);
}

static void
block_run(const work *w, int64_t r0, int64_t i, int64_t nr, int64_t j,
          int64_t n)
{
    const sdpa *s = w->g->s;
    int64_t size = amx_panel_size(s->depth), tile = AMX_ROWS * AMX_COLS;
    amx_rows q = {w->q + i / AMX_ROWS * size, AMX_DEPTH, AMX_ROWS * AMX_DEPTH};
    amx_rows p = {w->p, KEYS, AMX_DEPTH};
    int64_t rows = nr > 16 ? 32 : 16;
    bool each = s->mask != NULL && !is_even(s);
    for (int64_t x = 0; x < n; x += AMX_COLS)
        amx_block(w->s + x / AMX_COLS * tile, false, rows, &q,
                  w->k + x / AMX_COLS * size, s->depth);
    for (int64_t r = 0; r < nr; r++) {
        int64_t seen = visible(s, r0 + i + r, j, n);
        if (each)
            make_mask(w, r0 + i + r, j, seen);
        w->factor[r] = amx_softmax_row(w->p + r * KEYS, w->s + r * AMX_COLS,
                                       s->mask != NULL ? w->mask : NULL,
                                       s->scale * AMX_LOG2_E, seen, n,
                                       &w->top[i + r], &w->sum[i + r]);
        if (j == 0)
            w->factor[r] = 0; /* there is no result yet */
    }
    for (int64_t d = 0; d < s->width; d += AMX_COLS) {
        amx_block(w->acc, false, rows, &p,
                  w->v + d / AMX_COLS * amx_panel_size(KEYS), n);
        amx_add_rows(w->out + i * w->width + d, w->width, w->acc, w->factor,
                     nr);
    }
}

/* ---- the kernel ---------------------------------------------------------- */

static void
end(const work *w, int64_t r0, int64_t n)
{
    const air_tensor *out = w->g->s->out;
    char *row = NULL;
    for (int64_t i = 0; i < n; i++) {
        float sum = w->sum[i];
        row = next_row(w, out, r0 + i, row);
        cpu_gemm_avx512.narrow(row, out->rank > 0 ? sdpa_stride(out, 1) : 1,
                               AIR_BF16, w->out + i * w->width,
                               sum < 0 || sum > 0 || isnan(sum) ? 1 / sum : 0,
                               w->g->s->width);
        sdpa_put_sum(w->g, r0 + i, w->top[i] / AMX_LOG2_E, sum);
    }
}

/* Keys that some of rows [r0, r0 + n) see. */
static int64_t
last_key(const sdpa *s, int64_t r0, int64_t n)
{
    int64_t last = r0 % s->rows + n;
    if (!s->causal)
        return s->keys;
    return min64(s->keys, last > s->rows ? s->rows : last);
}

static void
rows_run(const work *w, int64_t r0, int64_t nr)
{
    const sdpa *s = w->g->s;
    int64_t keys = last_key(s, r0, nr);
    begin(w, r0, nr);
    if (keys == 0)
        memset(w->out, 0, (size_t)(nr * w->width) * sizeof *w->out);
    for (int64_t j = 0; j < keys; j += KEYS) {
        int64_t n = min64(KEYS, keys - j);
        pack(w, j, n);
        if (is_even(s))
            make_mask(w, r0, j, n);
        for (int64_t i = 0; i < nr; i += AMX_ROWS)
            block_run(w, r0, i, min64(AMX_ROWS, nr - i), j, n);
    }
    end(w, r0, nr);
}

/* Items: groups, each cut into runs of rows. */
void
cpu_sdpa_amx(const air_call *call, const air_task *task)
{
    sdpa s = sdpa_read(call, task);
    int64_t rows = s.share * s.rows, runs = (rows + RUN - 1) / RUN, b, e;
    work w;
    int64_t size = layout(&s, NULL, &w);
    if (rows == 0 || s.width == 0)
        return;
    layout(&s, (char *)task->workspace + size * task->id, &w);
    air_split(s.outer * s.kv_heads * runs, task, &b, &e);
    amx_begin();
    for (int64_t i = b; i < e; i++) {
        sdpa_group g = sdpa_group_of(&s, i / runs);
        int64_t r = i % runs * RUN;
        w.g = &g;
        rows_run(&w, r, min64(RUN, rows - r));
    }
    amx_end();
}

size_t
cpu_sdpa_amx_workspace(const air_call *call, int threads)
{
    sdpa s = sdpa_read(call, NULL);
    work w;
    return (size_t)layout(&s, NULL, &w) * (size_t)threads;
}

bool
cpu_sdpa_on_amx(const air_call *call, const char *isa)
{
    return strcmp(isa, "amx") == 0 && cpu_sdpa_on_avx512(call, "avx512") &&
           sdpa_is_of_halves(call);
}
