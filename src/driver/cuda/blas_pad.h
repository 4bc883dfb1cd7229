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

/* y = x w, of numbers of 2 bytes; row: one is added to each of y. How many rows
 * of y, as PyTorch sees it, are multiplied at once, so that copies take no more
 * memory than they need to; 0: copies do not pay. */
int64_t cuda_pads_rows(const cuda_matrix *w, const cuda_matrix *x,
                       const cuda_matrix *y, bool row);
/* So many rows from `first` on of x and y; values: pointers to w, x, y. */
void cuda_pads_cut(cuda_matrix *x, cuda_matrix *y, int64_t rows);
void cuda_pads_move(const cuda_pads *pads, int64_t first, uint64_t values[3]);
/* All copies of a product. The copy of w, and that of the row, lie at the same
 * place whatever the rows of y are. */
void cuda_pads_plan(const cuda_matrix *w, const cuda_matrix *x,
                    const cuda_matrix *y, bool row, cuda_pads *out);
/* What all rows share, what some do, and after their product; values: pointers
 * to w, x, y and the row, afterwards those of their copies. */
air_status cuda_pads_share(const air_device *dev, const cuda_pads *pads,
                           uint64_t area, uint64_t values[4], cu_stream stream);
air_status cuda_pads_fill(const air_device *dev, const cuda_pads *pads,
                          uint64_t area, uint64_t values[4], cu_stream stream);
air_status cuda_pads_empty(const air_device *dev, const cuda_pads *pads,
                           uint64_t area, uint64_t y, cu_stream stream);

#endif
