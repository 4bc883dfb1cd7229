/* conv_spread_amx_isa.c: transposed convolution of bf16 in tiles of AMX: a
 * plane of pairs of channels is loaded at any place. */
#include "driver/cpu/conv/conv_spread.h"
#include "driver/cpu/product/amx_isa.h"
#include "driver/cpu/product/gemm_vec.h"

static void
multiply(const gemm_ops *ops, float *acc, const spread_taps *t)
{
    (void)ops;
    const int64_t row = t->row * 2, pair = t->plane * 4;
    const bool both = t->n > 16;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < t->count; i++) {
        const char *x = t->planes[i], *w = t->weights[i];
        for (int64_t k = 0; k < t->depth; k += AMX_DEPTH) {
            _tile_loadd(4, w, row);
            _tile_loadd(6, x, pair);
            _tile_loadd(7, x + 64, pair);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (both) {
                _tile_loadd(5, w + 16 * row, row);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            w += 2 * AMX_DEPTH, x += AMX_DEPTH / 2 * pair;
        }
    }
    _tile_stored(0, acc, 4 * AMX_COLS);
    _tile_stored(1, acc + 16, 4 * AMX_COLS);
    _tile_stored(2, acc + 16 * AMX_COLS, 4 * AMX_COLS);
    _tile_stored(3, acc + 16 * AMX_COLS + 16, 4 * AMX_COLS);
}

const spread_unit cpu_spread_amx = {.size = 2,
                                    .unit = AMX_DEPTH,
                                    .pairs = 2,
                                    .run = 128,
                                    .begin = amx_begin,
                                    .end = amx_end,
                                    .plane = cpu_spread_plane_pairs,
                                    .turn = cpu_spread_turn_pairs,
                                    .put2 = cpu_spread_put2_pairs,
                                    .multiply = multiply};
