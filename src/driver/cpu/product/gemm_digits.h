/* gemm_digits.h: products of few rows of half precision with rows of numbers of
 * 4 bits, or of 8 in groups, on CPUs that multiply bytes (VPDPBUSD).
 * dots_digits_isa.c. */
#ifndef CPU_GEMM_DIGITS_H
#define CPU_GEMM_DIGITS_H

#include "driver/cpu/product/gemm_core.h"

#define DIGITS 3

/* What a vector of w meets: numbers of x, bytes of them as digits, an offset
 * and a unit for each lane. */
static inline int64_t
cpu_digits_of_block(int bits)
{
    return 512 / bits;
}

static inline int64_t
cpu_digits_block(int bits)
{
    const int64_t parts = 8 / bits;
    return 64 * (DIGITS * parts + 2);
}

/* Bytes of n numbers of x as digits: a multiple of 64. */
static inline int64_t
cpu_digits_bytes(int bits, int64_t n)
{
    const int64_t size = cpu_digits_of_block(bits);
    return (n + size - 1) / size * cpu_digits_block(bits);
}

/* n numbers as digits, zeros behind them. Where one is not finite, its product
 * with anything is NaN. */
void cpu_digits_make(void *dst, const float *x, int bits, int64_t n);
/* As gemm_ops.dots_words, of 4 bits or of 8 in several groups, those of
 * cpu_pairs_take; nn < GEMV_NB; xs: bytes from row to row of x, which are
 * digits. */
void cpu_digits_dots(float *t, int64_t nm, const void *x, int64_t xs,
                     int64_t nn, int bits, const gemm_words *from);

#endif
