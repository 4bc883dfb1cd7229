/* blas.h: products of cuBLASLt as steps of a list. */
#ifndef CUDA_BLAS_H
#define CUDA_BLAS_H

#include "driver/cuda/device.h"

/* A product that is ready to run. UNSUPPORTED: the library has no form of it.
 * In the device's context. */
air_status cuda_product_make(air_device *dev, const air_call *call,
                             cuda_product **out);
void cuda_product_free(air_device *dev, cuda_product *product);
/* values: pointers in the order of cuda_blas_print. Any
 * thread: a row to add is of the call. */
air_status cuda_product_run(const air_device *dev, cuda_product *product,
                            const uint64_t *values, cu_stream stream);

#endif
