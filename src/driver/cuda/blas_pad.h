/* blas_pad.h: products of half precision whose rows are no multiples of 16
 * bytes (a vocabulary of 50,257), for which cuBLASLt has slow kernels only:
 * their matrices are copied to where rows are, and with zeros behind them. */
#ifndef CUDA_BLAS_PAD_H
#define CUDA_BLAS_PAD_H

#include "driver/cuda/device.h"

/* A matrix as the library sees it, by columns. */
typedef struct {
    int64_t rows, columns, ld, stride; /* elements; of the batch */
    bool transposed;
} cuda_matrix;

/* What a copy of a matrix has more; at: bytes into the area, the product's
 * own, -1: the matrix stays where it is. */
typedef struct {
    cuda_matrix from, to;
    int64_t at;
    bool zeros; /* what is behind it is multiplied */
} cuda_pad;

typedef struct {
    cuda_pad w, x, y;
    int64_t row_at; /* of the row that is added; -1: it stays */
    size_t bytes;   /* of the area, from a multiple of 256; 0: no copies */
} cuda_pads;

/* y = x w, of numbers of 2 bytes; row: one is added to each of y. plan: all
 * copies that it takes; make: none where they do not pay, otherwise *w, *x and
 * *y become what is multiplied. */
void cuda_pads_plan(const cuda_matrix *w, const cuda_matrix *x,
                    const cuda_matrix *y, bool row, cuda_pads *out);
void cuda_pads_make(cuda_matrix *w, cuda_matrix *x, cuda_matrix *y, bool row,
                    cuda_pads *out);
/* Before and after the product; values: pointers to w, x, y and the row, in the
 * first case then those of their copies. */
air_status cuda_pads_fill(const air_device *dev, const cuda_pads *pads,
                          uint64_t area, uint64_t values[4], cu_stream stream);
air_status cuda_pads_empty(const air_device *dev, const cuda_pads *pads,
                           uint64_t area, uint64_t y, cu_stream stream);

#endif
