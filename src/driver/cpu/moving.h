/* moving.h: the kernels of driver/ref/moving.def by instruction set. */
#ifndef CPU_MOVING_H
#define CPU_MOVING_H

#include "driver/ref/kernels.h"

#define PLAIN(name, run) ref_kernel run##_scalar, run##_avx2, run##_avx512;
#define PLAIN_WS(name, run, workspace) \
    PLAIN(name, run)                   \
    ref_workspace workspace##_scalar, workspace##_avx2, workspace##_avx512;
#include "driver/ref/moving.def"
#undef PLAIN
#undef PLAIN_WS

#endif
