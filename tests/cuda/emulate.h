/* emulate.h: a machine for the GPU that is none (tests/fake): the texts that
 * driver cuda gives to NVRTC are compiled by g++ as plain C++ (emulate.hpp) and
 * run on the host, so that everything the driver launches computes. */
#ifndef CUDA_EMULATE_H
#define CUDA_EMULATE_H

#include "../fake/fake_cuda.h"
#include "base/text.h"

enum { EMULATE_PROCESSORS = 4 };

/* Is there a compiler? */
bool emulate_possible(void);
/* From now on contexts of driver cuda whose libraries are in emulate_libraries
 * compute. `folder` keeps compiled texts by content. NULL: it cannot be. */
fake_state *emulate_start(const char *folder);
/* For air_gpu.libraries; without cuBLASLt the driver's own kernels multiply. */
const char *emulate_libraries(bool with_blas);
/* Products that cuBLASLt was asked for, launched at once or captured. */
long emulate_products(void);
/* So many blocks of a cooperative launch come when the others have gone. */
extern unsigned emulate_late;

/* The text as C++: each asm statement is a call of ptx_<instruction>, shared
 * memory of the launch a pointer. */
void emulate_translate(const char *text, base_text *out);

#endif
