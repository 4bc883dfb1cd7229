/* gemm_split.c: which thread of a team computes what of a matrix product.
 *
 * Where the rows are split, each thread reads its own rows of w, and panels
 * that others made but for its share: out of the cache of another core. Where
 * the lanes are split, each reads all rows of w, as a stream, and panels of its
 * own. Two threads of a Xeon, convolutions on 14 x 14 to 56 x 56 pixels and
 * BERT's products: a number of another's panel took as long as four of w. */
#include "driver/cpu/product/gemm_split.h"

#define OF_W 4

bool
gemm_splits_rows(const gemm_job *job, int threads)
{
    const int64_t nx = job->nx, nw = job->nw;
    if (threads == 1)
        return job->pack == NULL && nx < GEMM_NB &&
               (2 * nw >= nx || nx < 4 * GEMM_LANES_MAX);
    if (nx < threads * GEMM_LANES_MAX)
        return true; /* less than a panel each */
    return nx < threads * GEMM_NB && nw > OF_W * nx;
}

int64_t
gemm_panel_lanes(int64_t lanes, int threads)
{
    const int64_t shared = GEMM_LANES_MAX * (threads - 1);
    return lanes + min64(shared, round_up(lanes, GEMM_LANES_MAX));
}

gemm_place
gemm_place_of(const gemm_sheet *s, int64_t i, int64_t parts)
{
    const int64_t unit = min64(PLAN_LANES, s->width), wide = s->width / unit;
    const int64_t vectors = max64(1, (s->lanes - s->rest + unit - 1) / unit);
    const int64_t at = vectors * s->rows * i / parts;
    gemm_place p = {(s->lanes + s->width - 1) / s->width, 0};
    if (i == parts || s->rows == 0)
        return p;
    p.panel = at / (wide * s->rows);
    const int64_t left = at - p.panel * wide * s->rows;
    p.row = round_up(left / min64(wide, vectors - p.panel * wide), s->tile);
    return p.row < s->rows ? p : (gemm_place){p.panel + 1, 0};
}
