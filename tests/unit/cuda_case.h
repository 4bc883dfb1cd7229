/* cuda_case.h: driver cuda over a GPU that is none (tests/fake), and a list of
 * regions on it. */
#ifndef CUDA_CASE_H
#define CUDA_CASE_H

#include "../fake/fake_cuda.h"
#include "driver/cuda/device.h"
#include "driver/driver.h"
#include "test.h"

enum { STEPS = 3, TEXT = 128 };

typedef struct {
    fake_state *cuda, *nvrtc;
    air_gpu gpu;
    air_options options;
    air_device *dev;
    air_rg_buf bufs[2];
    air_region region;
    char text[STEPS][TEXT];
    const air_kernel *kernels[STEPS];
    air_step steps[STEPS];
    air_list *list;
} cuda_case;

static const air_driver *const cuda = &air_driver_cuda;

/* What the library of that name was asked for. */
fake_state *cuda_case_state(const char *file);
/* Both libraries begin anew; nothing of an earlier test is alive. */
bool cuda_case_prepare(cuda_case *f);
air_status cuda_case_open(cuda_case *f, const air_alloc *alloc);
/* Step i: a region that reads slot 0 and writes slot 1, its text ends in note.
 */
air_status cuda_case_step(cuda_case *f, size_t i, const char *note);
/* Three steps of two texts: each reads slot 0 and writes slot 1. */
air_status cuda_case_list(cuda_case *f);
/* Closes it; nothing is alive. */
void cuda_case_drop(cuda_case *f);

#endif
