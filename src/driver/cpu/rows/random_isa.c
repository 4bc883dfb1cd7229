/* random_isa.c: random numbers, compiled once per instruction set: the same
 * bits in fewer instructions. */
#include "driver/cpu/rows/random_isa.h"
#include "driver/ref/random.h"

#define JOIN_(a, b)         cpu_##a##_##b
#define JOIN(a, b)          JOIN_(a, b)
#define RANDOM_KERNEL(name) JOIN(name, TILE_ISA)
#include "driver/ref/random_calls.h"
