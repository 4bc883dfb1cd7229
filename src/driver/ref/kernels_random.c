/* kernels_random.c: random operators. The sizes and the dtype are those of the
 * result, whatever form the operator has. */
#include "driver/ref/kernels.h"
#include "driver/ref/random.h"

#define RANDOM_KERNEL(name) ref_##name
#include "driver/ref/random_calls.h"
