/* limits_amx_isa.c: products of tiles of bf16 that limits.c times. */
#include "driver/cpu/product/amx_isa.h"
#include "driver/cpu/product/gemm_amx.h"

#include <immintrin.h>
#include <string.h>

enum { SUMS = 4, TILE_ROUNDS = 64 /* rounds of vectors as long as one here */ };

/* Multiplications and additions of `rounds` / TILE_ROUNDS rounds: *flops. The
 * tiles hold x, whose product does not matter for the time. */
float
cpu_amx_limits(int64_t rounds, float x, double *flops)
{
    _Alignas(64) uint16_t in[16 * 32];
    _Alignas(64) float out[16 * 16];
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    for (int i = 0; i < 16 * 32; i++)
        in[i] = (uint16_t)(bits >> 16);
    amx_begin();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, in, 64);
    _tile_loadd(5, in, 64);
    for (int64_t r = 0; r < rounds / TILE_ROUNDS; r++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, out, 64);
    amx_end();
    *flops = 2.0 * 16 * 16 * 32 * SUMS * (double)(rounds / TILE_ROUNDS);
    return out[0];
}
