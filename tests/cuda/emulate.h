/* emulate.h: the CUDA C of regions, run on the host: compiled by g++ as plain
 * C++ (emulate.hpp), a block's threads as fibers. For tests of what codegen
 * prints on machines without a GPU. */
#ifndef CUDA_EMULATE_H
#define CUDA_EMULATE_H

#include "exec/exec.h"

/* Makes a context of driver ref run its regions as printed kernels; CALL
 * kernels stay ref's. `folder` keeps compiled text by content. */
void emulate_install(air_context *ctx, const char *folder);
/* Is there a compiler? */
bool emulate_possible(void);
/* Regions that ran as printed kernels since the start. */
long emulate_count(void);

#endif
