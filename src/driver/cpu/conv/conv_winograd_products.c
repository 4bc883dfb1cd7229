/* conv_winograd_products.c: transformed pixels times transformed weights. */
#include "driver/cpu/conv/conv_winograd_parts.h"

#define CHAIN 24  /* products in a row; then sums */
#define SPAN  192 /* channels of a sum of such sums */

/* acc = the products of one place, in chains, and spans of those. */
static void
multiply(const winograd_work *w, const winograd_block *b, float *acc,
         const float *v, const float *u, int64_t count, gemm_ahead *ahead)
{
    const int64_t depth = w->l->g->c_in, lanes = w->ops->lanes;
    const int64_t spans = (depth + SPAN - 1) / SPAN;
    for (int64_t s = 0; s < spans; s++) {
        int64_t k0 = depth * s / spans, n = depth * (s + 1) / spans - k0;
        int64_t chains = (n + CHAIN - 1) / CHAIN;
        float *to = s > 0 ? w->more : acc;
        for (int64_t i = 0; i < chains; i++) {
            int64_t k = k0 + n * i / chains, e = k0 + n * (i + 1) / chains;
            w->ops->tile(to, b->n, v + k * lanes, lanes, count, u + k,
                         w->l->step, 1, e - k, i == 0, ahead);
            ahead->p += ahead->step * (e - k);
        }
        if (s > 0)
            w->ops->add(acc, w->more, b->n * lanes);
    }
}

/* The last n tiles of a panel, from lane `lane` on. */
static void
add_rest(const winograd_work *w, const winograd_block *b, float *acc,
         const float *rest, const float *u, int64_t lane, int64_t n)
{
    float t[REST_MAX * GEMV_NB];
    w->ops->dots_near(t, n, rest, PLACES * w->l->g->c_in, b->n, u, w->l->step,
                      w->l->g->c_in);
    for (int64_t r = 0; r < b->n; r++)
        for (int64_t i = 0; i < n; i++)
            acc[r * w->ops->lanes + lane + i] = t[i * GEMV_NB + r];
}

void
cpu_winograd_multiply(const winograd_work *w, const winograd_block *b,
                      const float *v, int64_t count, int64_t rest,
                      gemm_ahead *ahead)
{
    for (int64_t i = 0; i < PLACES; i++) {
        const float *u = b->u + i * b->n * w->l->step;
        float *acc = w->sums + i * b->n * w->ops->lanes;
        if (count > rest)
            multiply(w, b, acc, v + i * cpu_winograd_step(w), u, count - rest,
                     ahead);
        if (rest > 0)
            add_rest(w, b, acc, w->rest + i * w->l->g->c_in, u, count - rest,
                     rest);
    }
}
