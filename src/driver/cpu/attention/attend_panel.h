/* attend_panel.h: the tops of a panel of scores, whose lanes are queries, for a
 * file that is compiled once per instruction set.
 *
 * A row whose keys were all masked so far has top -inf; its reference is 0
 * then, so that masked scores become weights of 0 and not NaN. */
#ifndef CPU_ATTEND_PANEL_H
#define CPU_ATTEND_PANEL_H

#include "driver/cpu/attention/attend_isa.h"
#include "driver/cpu/product/gemm_vec.h"

#include <math.h>

INLINE vf
finite_top(vf top)
{
    vi none = top == set(-INFINITY);
    return (vf)((vi)top & ~none);
}

enum { NONE, EVEN, EACH }; /* masks */

/* What hides the keys of a panel, and what its scores are multiplied by before
 * that, which counts where `scaled`. */
typedef struct {
    const float *mask;
    int32_t last;
    bool scaled;
    vf scale;
} panel_hides;

/* Scores of keys [b, e) with what hides them, stored where that is anything.
 * Lane l sees keys up to last + l, which counts where `edge`. */
INLINE vf
panel_top(const int M, const bool edge, const panel_hides *h, float *s,
          int64_t b, int64_t e, vf m)
{
    const vi lanes = LANE_NUMBERS;
    for (int64_t j = b; j < e; j++) {
        vf v = load(s + j * LANES);
        if (h->scaled)
            v *= h->scale;
        if (M == EVEN)
            v += set(h->mask[j]);
        if (M == EACH)
            v += load(h->mask + j * LANES);
        if (edge) {
            vi seen = lanes + h->last >= (vi){0} + (int32_t)j;
            v = (vf)(((vi)v & seen) | ((vi)set(-INFINITY) & ~seen));
        }
        if (M != NONE || edge || h->scaled)
            store(s + j * LANES, v);
        m = max_(m, v);
    }
    return m;
}

/* Keys before `even` are seen by all lanes. */
INLINE vf
panel_tops(const int M, const panel_hides *h, float *s, int64_t keys,
           int64_t even, vf m)
{
    m = panel_top(M, false, h, s, 0, even, m);
    return panel_top(M, true, h, s, even, keys, m);
}

/* The tops of VL lanes, which were `m` before these keys. Lane l sees keys up
 * to last + l; a mask is [key][lane] where it is for `each`, else [key]. */
INLINE vf
find_tops(float *s, const float *mask, bool each, int64_t keys, int64_t last,
          const bool scaled, float scale, vf m)
{
    int64_t even = last >= keys ? keys : last < -1 ? 0 : last + 1;
    int32_t at = (int32_t)(last < -LANES ? -LANES : last >= keys ? 0 : last);
    panel_hides h = {mask, at, scaled, set(scale)};
    return mask == NULL ? panel_tops(NONE, &h, s, keys, even, m)
           : each       ? panel_tops(EACH, &h, s, keys, even, m)
                        : panel_tops(EVEN, &h, s, keys, even, m);
}

#endif
