#include "driver/cpu/attention/attend.h"

#include <math.h>
#include <string.h>

#define KEYS ATTEND_KEYS

/* ---- few rows: lanes along the width ------------------------------------- */

typedef struct {
    float *q, *s, *mask, *tmp, *top, *sum, *out, *turn, *block;
} row_mem;

static int64_t
row_layout(int64_t depth, int64_t width_, float *mem, row_mem *m)
{
    int64_t width = round_up(width_, GEMM_LANES_MAX), at = 0;
    float **parts[] = {&m->q,   &m->s,   &m->mask, &m->tmp,  &m->top,
                       &m->sum, &m->out, &m->turn, &m->block};
    int64_t wide = width > depth ? width : depth;
    int64_t sizes[] = {GEMV_MAX * depth,
                       GEMV_MAX * KEYS,
                       KEYS,
                       KEYS,
                       GEMV_MAX,
                       GEMV_MAX,
                       GEMV_MAX * width,
                       width,
                       KEYS * (wide > GEMV_MAX ? wide : GEMV_MAX)};
    for (int i = 0; i < 9; i++) {
        *parts[i] = mem == NULL ? NULL : mem + at;
        at += round_up(sizes[i], 16);
    }
    return at;
}

void
attend_dots(const gemm_ops *ops, float *s, int64_t rows, const float *q,
            int64_t qs, const void *k, int64_t ks, int dtype, int64_t n,
            int64_t depth)
{
    if (gemm_is_float(dtype) && depth == qs && depth > 0 &&
        depth % ops->attend->vector == 0)
        ops->attend->scores(s, KEYS, rows, q, depth, k, ks, dtype, n);
    else
        ops->dots(s, rows, q, qs, n, k, ks, dtype, depth);
}

/* out += weights times values [j, j + n), as floats; s: of the first */
static void
weigh_floats(const attend *a, const row_mem *m, const float *s, int64_t j,
             int64_t n)
{
    int64_t lanes = a->ops->lanes, width = round_up(a->width, lanes), rs;
    const float *v = a->from->values(a, j, n, width, m->block, &rs);
    for (int64_t d = 0; d < width; d += lanes)
        a->ops->block(m->out + d * a->rows, a->rows, v + d, rs, s, KEYS, 1, n,
                      false);
}

/* The same, run by run where they lie. */
static void
rows_weigh(const attend *a, const row_mem *m, int64_t j, int64_t n)
{
    bool in_place =
        a->from->value_rows != NULL && a->width % a->ops->attend->vector == 0;
    int64_t count = 0, rs;
    int dtype;
    for (int64_t i = 0; i < n; i += count) {
        count = n - i;
        const void *here =
            in_place ? a->from->value_rows(a, j + i, &count, &rs, &dtype)
                     : NULL;
        if (here == NULL)
            weigh_floats(a, m, m->s + i, j + i, count);
        else
            a->ops->attend->weigh(m->out, a->rows, m->s + i, KEYS, here, rs,
                                  dtype, count, a->width);
    }
}

/* Keys of n up to the last one that is not hidden, of `width` rows each. */
static int64_t
seen(const float *mask, int64_t n, int64_t width)
{
    int64_t i = n * width;
    while (i > 0 && mask[i - 1] == -INFINITY)
        i--;
    return (i + width - 1) / width;
}

static bool
even_mask(const attend *a, int64_t r0, int64_t n, int64_t j, int64_t count,
          float *dst)
{
    return a->from->mask_even != NULL &&
           a->from->mask_even(a, r0, n, j, count, dst);
}

static void
rows_block(const attend *a, const row_mem *m, int64_t j, int64_t n)
{
    int64_t lanes = a->ops->lanes, width = round_up(a->width, lanes);
    bool masked = a->from->is_masked(a, 0, a->rows, j, n) != 0;
    bool even = masked && even_mask(a, 0, a->rows, j, n, m->mask);
    if (even)
        n = seen(m->mask, n, 1);
    if (n == 0)
        return;
    a->from->scores(a, m->q, j, n, m->s, m->block);
    for (int64_t r = 0; r < a->rows; r++) {
        if (masked && !even)
            a->from->mask(a, r, j, n, m->mask, 1, m->tmp);
        a->ops->attend->softmax_row(m->s + r * KEYS, masked ? m->mask : NULL, n,
                                    &m->top[r], &m->sum[r], m->out + r * lanes,
                                    a->rows, width);
    }
    rows_weigh(a, m, j, n);
}

static void
rows_run(const attend *a)
{
    int64_t lanes = a->ops->lanes, width = round_up(a->width, lanes);
    int64_t first, end;
    row_mem m;
    row_layout(a->depth, a->width, a->mem, &m);
    a->from->range(a, 0, a->rows, &first, &end);
    a->from->queries(a, 0, a->rows, m.q);
    memset(m.out, 0, (size_t)(a->rows * width) * sizeof *m.out);
    memset(m.block, 0, (size_t)(KEYS * width) * sizeof *m.block);
    for (int64_t r = 0; r < a->rows; r++)
        m.top[r] = -INFINITY, m.sum[r] = 0;
    for (int64_t j = first; j < end; j += KEYS)
        rows_block(a, &m, j, min64(KEYS, end - j));
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t d = 0; d < width; d += lanes)
            memcpy(m.turn + d, m.out + d * a->rows + r * lanes,
                   (size_t)lanes * sizeof *m.turn);
        a->from->put(a, r, m.turn, m.top[r], m.sum[r]);
    }
}

/* ---- many rows: lanes are queries ---------------------------------------- */

typedef struct {
    float *q, *s, *mask, *tmp, *top, *sum, *out, *k, *v, *turn;
} panel_mem;

static int64_t
panel_layout(int64_t depth, int64_t width, float *mem, panel_mem *m)
{
    enum { L = GEMM_LANES_MAX };
    int64_t wide = width > depth ? width : depth, at = 0;
    float **parts[] = {&m->q,   &m->s,   &m->mask, &m->tmp, &m->top,
                       &m->sum, &m->out, &m->k,    &m->v,   &m->turn};
    int64_t sizes[] = {ATTEND_PANELS * L * depth,
                       L * KEYS,
                       L * KEYS,
                       L * KEYS,
                       ATTEND_PANELS * L,
                       ATTEND_PANELS * L,
                       ATTEND_PANELS * L * width,
                       KEYS * depth,
                       KEYS * width,
                       L * wide};
    for (int i = 0; i < 10; i++) {
        *parts[i] = mem == NULL ? NULL : mem + at;
        at += round_up(sizes[i], 16);
    }
    return at;
}

bool
attend_query_panel(const attend *a, const gemm_view *v, int64_t n, float scale,
                   float *panel)
{
    gemm_view pairs = {v->p, v->rs / 2, 1, AIR_F32}; /* move as floats do */
    if (a->pairs != NULL && v->rs % 2 != 0)
        return false;
    if (a->pairs != NULL) {
        a->ops->pack_x(panel, &pairs, 0, n, 0, a->depth / 2);
        return true;
    }
    a->ops->pack_x(panel, v, 0, n, 0, a->depth);
    a->ops->attend->scale(panel, scale, a->depth * a->ops->lanes);
    return true;
}

/* Lanes without a row see nothing. */
void
attend_mask_panel(const attend *a, const gemm_view *v, int64_t n, int64_t keys,
                  float *dst)
{
    int64_t lanes = a->ops->lanes;
    a->ops->pack_x(dst, v, 0, n, 0, keys);
    for (int64_t i = 0; i < keys; i++)
        for (int64_t l = n; l < lanes; l++)
            dst[i * lanes + l] = -INFINITY;
}

void
attend_value_pairs(const attend *a, const void *rows, int64_t step, int64_t n,
                   float *dst)
{
    gemm_view v = {rows, 1, step, AIR_BF16};
    const uint16_t *last = (const uint16_t *)rows + (n - 1) * step;
    a->pairs->pack(dst, a->width, &v, 0, a->width, 0, n / 2);
    for (int64_t d = 0; n % 2 != 0 && d < a->width; d++) {
        uint32_t pair = last[d];
        memcpy(dst + n / 2 * a->width + d, &pair, sizeof pair);
    }
}

static void
make_mask(const attend *a, const panel_mem *m, int64_t r0, int64_t nr,
          int64_t j, int64_t n)
{
    const attend_source *from = a->from;
    int64_t lanes = a->ops->lanes;
    if (from->mask_panel != NULL &&
        from->mask_panel(a, r0, nr, j, n, m->mask, m->tmp))
        return;
    for (int64_t i = 0; i < n * lanes; i++)
        m->mask[i] = -INFINITY;
    for (int64_t r = 0; r < nr; r++)
        from->mask(a, r0 + r, j, n, m->mask + r, lanes, m->tmp);
}

/* Keys and values as the products take them; with pairs, row i of the values is
 * those of keys 2 i and 2 i + 1. */
typedef struct {
    const float *k, *v;
    int64_t krs, vrs;
} key_block;

static void
get_block(const attend *a, const panel_mem *m, int64_t j, int64_t n,
          key_block *b)
{
    if (a->pairs == NULL) {
        b->k = a->from->keys(a, j, n, m->k, &b->krs);
        b->v = a->from->values(a, j, n, a->width, m->v, &b->vrs);
        return;
    }
    b->k = a->from->key_pairs(a, j, n, m->k, &b->krs);
    b->v = m->v, b->vrs = a->width;
    a->from->value_pairs(a, j, n, m->v);
}

/* Row `at` of the values without those of the second key, which no row sees. */
static const float *
lone_values(const attend *a, const panel_mem *m, const key_block *b, int64_t at)
{
    uint32_t pair;
    for (int64_t d = 0; d < a->width; d++) {
        memcpy(&pair, b->v + at * b->vrs + d, sizeof pair);
        pair &= 0xffff;
        memcpy(m->turn + d, &pair, sizeof pair);
    }
    return m->turn;
}

/* panel_block by pairs, of n keys that some lane sees. */
static void
pairs_block(const attend *a, const panel_mem *m, int64_t p, int64_t n,
            int64_t last, const float *mask, bool even, const key_block *b)
{
    int64_t lanes = a->ops->lanes, at = n / 2;
    float *out = m->out + p * lanes * a->width;
    a->pairs->block(m->s, n, m->q + p * lanes * a->depth, lanes, b->k, b->krs,
                    1, a->depth / 2, true);
    a->pairs->softmax(m->s, mask, even, n, last, a->scale, m->top + p * lanes,
                      m->sum + p * lanes, out, a->width);
    a->pairs->block(out, a->width, m->s, lanes, b->v, 1, b->vrs, at, false);
    if (n % 2 != 0)
        a->pairs->block(out, a->width, m->s + at * lanes, lanes,
                        lone_values(a, m, b, at), 1, a->width, 1, false);
}

/* panel_block of n keys that some lane sees; the first half of the lanes sees
 * less of them. */
static void
floats_block(const attend *a, const panel_mem *m, int64_t p, int64_t n,
             int64_t last, const float *mask, bool even, const key_block *b)
{
    const gemm_ops *ops = a->ops;
    const int64_t lanes = ops->lanes, half = lanes / 2;
    const int64_t both = last < n - half ? max64(0, last + half) : n;
    const float *q = m->q + p * lanes * a->depth;
    float *out = m->out + p * lanes * a->width, *s = m->s;
    ops->block(s, both, q, lanes, b->k, b->krs, 1, a->depth, true);
    s += both * lanes + half;
    ops->half_block(s, n - both, q + half, lanes, b->k + both * b->krs, b->krs,
                    1, a->depth, true);
    ops->attend->softmax_panel(m->s, mask, even, n, last, m->top + p * lanes,
                               m->sum + p * lanes, out, a->width);
    ops->block(out, a->width, m->s, lanes, b->v, 1, b->vrs, both, false);
    if (both < n)
        ops->half_block(out + half, a->width, s, lanes, b->v + both * b->vrs, 1,
                        b->vrs, n - both, false);
}

/* Scores, softmax and values of panel p, rows [r0, r0 + nr), for one block of
 * keys. */
static void
panel_block(const attend *a, const panel_mem *m, int64_t p, int64_t r0,
            int64_t nr, int64_t j, int64_t n, const key_block *b)
{
    int64_t lanes = a->ops->lanes, last = INT64_MAX;
    unsigned masked = a->from->is_masked(a, r0, nr, j, n);
    bool even =
        (masked & ATTEND_MASK) != 0 && even_mask(a, r0, nr, j, n, m->mask);
    if ((masked & ATTEND_MASK) != 0) {
        if (!even)
            make_mask(a, m, r0, nr, j, n);
        n = seen(m->mask, n, even ? 1 : lanes);
    }
    if (n == 0)
        return;
    if ((masked & ATTEND_EDGE) != 0)
        last = a->from->last(a, r0) - j;
    const float *mask = masked & ATTEND_MASK ? m->mask : NULL;
    if (a->pairs != NULL) {
        pairs_block(a, m, p, n, last, mask, even, b);
        return;
    }
    floats_block(a, m, p, n, last, mask, even, b);
}

static void
panel_begin(const attend *a, const panel_mem *m, int64_t p, int64_t r0,
            int64_t nr)
{
    int64_t lanes = a->ops->lanes;
    gemm_view rows = {m->turn, a->depth, 1, AIR_F32};
    float *q = m->q + p * lanes * a->depth;
    if (a->from->query_panel == NULL || !a->from->query_panel(a, r0, nr, q)) {
        a->from->queries(a, r0, nr, m->turn);
        a->ops->pack_x(q, &rows, 0, nr, 0, a->depth);
        if (a->pairs != NULL)
            a->pairs->join(q, a->depth);
    }
    memset(m->out + p * lanes * a->width, 0,
           (size_t)(lanes * a->width) * sizeof *m->out);
    for (int64_t i = p * lanes; i < (p + 1) * lanes; i++)
        m->top[i] = -INFINITY, m->sum[i] = 0;
}

static void
panel_end(const attend *a, const panel_mem *m, int64_t p, int64_t r0,
          int64_t nr)
{
    int64_t lanes = a->ops->lanes;
    float *out = m->out + p * lanes * a->width;
    const float *top = m->top + p * lanes, *sum = m->sum + p * lanes;
    if (a->from->put_panel != NULL &&
        a->from->put_panel(a, r0, nr, out, top, sum))
        return;
    for (int64_t r = 0; r < nr; r++) {
        for (int64_t d = 0; d < a->width; d++)
            m->turn[d] = out[d * lanes + r];
        a->from->put(a, r0 + r, m->turn, top[r], sum[r]);
    }
}

/* Rows [r0, r1), ATTEND_PANELS panels at most. */
static void
panels_run(const attend *a, int64_t r0, int64_t r1)
{
    int64_t lanes = a->ops->lanes, first, end;
    panel_mem m;
    key_block block;
    panel_layout(a->depth, a->width, a->mem, &m);
    a->from->range(a, r0, r1 - r0, &first, &end);
    for (int64_t r = r0; r < r1; r += lanes)
        panel_begin(a, &m, (r - r0) / lanes, r, min64(lanes, r1 - r));
    for (int64_t j = first; j < end; j += KEYS) {
        int64_t n = min64(KEYS, end - j);
        get_block(a, &m, j, n, &block);
        for (int64_t r = r0; r < r1; r += lanes) {
            int64_t nr = min64(lanes, r1 - r), b, e;
            a->from->range(a, r, nr, &b, &e);
            if (j < e && j + n > b)
                panel_block(a, &m, (r - r0) / lanes, r, nr, j, min64(n, e - j),
                            &block);
        }
    }
    for (int64_t r = r0; r < r1; r += lanes)
        panel_end(a, &m, (r - r0) / lanes, r, min64(lanes, r1 - r));
}

/* ---- both ---------------------------------------------------------------- */

int64_t
attend_floats(int64_t rows, int64_t depth, int64_t width)
{
    row_mem r;
    panel_mem p;
    int64_t few = row_layout(depth, width, NULL, &r);
    int64_t many = panel_layout(depth, width, NULL, &p);
    return attend_is_few(rows) || few > many ? few : many;
}

void
attend_run(const attend *a, int64_t r0, int64_t r1)
{
    if (attend_is_few(a->rows))
        rows_run(a);
    else
        panels_run(a, r0, r1);
}
