/* blas_pad.c: see blas_pad.h. On an H200, bf16, 8192 x 768 by a vocabulary of
 * 50,257: 6.7 ms, 0.9 with 50,264, and copying what is 50,257 wide 0.7; of
 * 30,522 1.9, 0.5 and 0.6. An even length of rows, or one of 8 bytes, helps
 * little, padded rows of a matrix that is not padded as well neither. */
#include "driver/cuda/blas_pad.h"

enum { UNIT = 8 /* elements of 16 bytes */, SIZE = 2, PAGE = 256 };
/* Bytes of copies, or rows. Powers of two fill the multiprocessors evenly. */
enum { TILE = 128, AT_ONCE = 128 << 20 };

/* Picoseconds: of a multiply-add more at 200 TFLOP/s than at 700, of a byte
 * that is copied at 1.2 TB/s, of a copy, and of zeros beside and behind one.
 * Copies have to win by a quarter. */
#define MORE  0.0072
#define BYTE  0.83
#define START 4e6
#define ZEROS 2e7
#define LEAST 1.25

static int64_t
up(int64_t n)
{
    return (n + UNIT - 1) / UNIT * UNIT;
}

static cuda_pad
pad_of(const cuda_matrix *m, int64_t rows, int64_t columns, bool zeros)
{
    cuda_pad pad = {.from = *m, .to = *m, .at = -1, .zeros = zeros};
    if (rows == m->rows && columns == m->columns && m->ld % UNIT == 0)
        return pad;
    pad.to.rows = rows, pad.to.columns = columns, pad.to.ld = up(rows);
    pad.at = 0;
    return pad;
}

static double
cost(const cuda_pad *pad)
{
    if (pad->at < 0)
        return 0;
    const double elements = (double)(pad->from.rows * pad->from.columns);
    return START + (pad->zeros ? ZEROS : 0) + BYTE * SIZE * elements;
}

/* Where so many elements have room. */
static int64_t
take(cuda_pads *pads, int64_t elements)
{
    const size_t at = pads->bytes;
    pads->bytes += ((size_t)(elements * SIZE) + PAGE - 1) / PAGE * PAGE;
    return (int64_t)at;
}

static void
place(cuda_pads *pads, cuda_pad *pad)
{
    if (pad->at >= 0)
        pad->at = take(pads, pad->to.ld * pad->to.columns);
}

/* Sizes of y, and of what w and x share, as far as rows of either have it. */
void
cuda_pads_plan(const cuda_matrix *w, const cuda_matrix *x, const cuda_matrix *y,
               bool row, cuda_pads *out)
{
    const int64_t m = y->columns, n = y->rows, n2 = up(n);
    const int64_t k = w->transposed ? w->rows : w->columns;
    const int64_t k2 = w->transposed || !x->transposed ? up(k) : k;
    *out = (cuda_pads){
        .w =
            pad_of(w, w->transposed ? k2 : n2, w->transposed ? n2 : k2, k2 > k),
        .x = pad_of(x, x->transposed ? m : k2, x->transposed ? k2 : m, k2 > k),
        .y = pad_of(y, n2, m, false),
        .row_at = -1};
    place(out, &out->w);
    if (row && n2 > n)
        out->row_at = take(out, n2);
    place(out, &out->x);
    place(out, &out->y);
}

int64_t
cuda_pads_rows(const cuda_matrix *w, const cuda_matrix *x, const cuda_matrix *y,
               bool row)
{
    cuda_pads all;
    const int64_t m = y->columns, k = w->transposed ? w->rows : w->columns;
    const double products = (double)m * (double)y->rows * (double)k;
    cuda_pads_plan(w, x, y, row, &all);
    const double copies = cost(&all.w) + cost(&all.x) + cost(&all.y);
    if (all.bytes == 0 || MORE * products <= LEAST * copies)
        return 0;
    int64_t width = 0; /* of what is copied for a row */
    if (all.x.at >= 0)
        width += all.x.to.transposed ? all.x.to.columns : all.x.to.ld;
    if (all.y.at >= 0)
        width += all.y.to.ld;
    int64_t rows = TILE;
    while (rows < m && 2 * rows * width * SIZE <= AT_ONCE)
        rows *= 2;
    return rows < m ? rows : m;
}

void
cuda_pads_cut(cuda_matrix *x, cuda_matrix *y, int64_t rows)
{
    y->columns = rows;
    if (x->transposed)
        x->rows = rows;
    else
        x->columns = rows;
}

void
cuda_pads_move(const cuda_pads *pads, int64_t first, uint64_t values[3])
{
    const cuda_matrix *x = &pads->x.from;
    const int64_t step = x->transposed ? 1 : x->ld;
    values[1] += (uint64_t)(first * step * SIZE);
    values[2] += (uint64_t)(first * pads->y.from.ld * SIZE);
}

static air_status
copy(const air_device *dev, uint64_t dst, int64_t dst_ld, uint64_t src,
     int64_t src_ld, const cuda_matrix *m, cu_stream stream)
{
    const cu_copy_2d what = {.src_type = CU_MEMORY_DEVICE,
                             .src = src,
                             .src_pitch = (size_t)src_ld * SIZE,
                             .dst_type = CU_MEMORY_DEVICE,
                             .dst = dst,
                             .dst_pitch = (size_t)dst_ld * SIZE,
                             .width = (size_t)m->rows * SIZE,
                             .height = (size_t)m->columns};
    CUDA_TRY(dev, "a matrix cannot be copied", dev->cu.copy_2d(&what, stream));
    return AIR_OK;
}

static air_status
clear(const air_device *dev, uint64_t at, int64_t ld, int64_t rows,
      int64_t columns, cu_stream stream)
{
    if (rows > 0 && columns > 0)
        CUDA_TRY(dev, "what is behind a matrix cannot be cleared",
                 dev->cu.clear_2d(at, (size_t)ld * SIZE, 0, (size_t)rows,
                                  (size_t)columns, stream));
    return AIR_OK;
}

static air_status
fill(const air_device *dev, const cuda_pad *pad, uint64_t area, uint64_t *value,
     cu_stream stream)
{
    const cuda_matrix *from = &pad->from, *to = &pad->to;
    if (pad->at < 0)
        return AIR_OK;
    const uint64_t at = area + (uint64_t)pad->at;
    AIR_TRY(copy(dev, at, to->ld, *value, from->ld, from, stream));
    *value = at;
    if (!pad->zeros)
        return AIR_OK;
    AIR_TRY(clear(dev, at + (uint64_t)(from->rows * SIZE), to->ld,
                  to->rows - from->rows, from->columns, stream));
    return clear(dev, at + (uint64_t)(to->ld * from->columns * SIZE), to->ld,
                 to->rows, to->columns - from->columns, stream);
}

air_status
cuda_pads_fill(const air_device *dev, const cuda_pads *pads, uint64_t area,
               uint64_t values[4], cu_stream stream)
{
    if (pads->y.at >= 0)
        values[2] = area + (uint64_t)pads->y.at;
    return fill(dev, &pads->x, area, &values[1], stream);
}

air_status
cuda_pads_share(const air_device *dev, const cuda_pads *pads, uint64_t area,
                uint64_t values[4], cu_stream stream)
{
    AIR_TRY(fill(dev, &pads->w, area, &values[0], stream));
    if (pads->row_at < 0)
        return AIR_OK;
    const uint64_t at = area + (uint64_t)pads->row_at;
    CUDA_TRY(
        dev, "a row cannot be copied",
        dev->cu.copy(at, values[3], (size_t)pads->y.from.rows * SIZE, stream));
    values[3] = at;
    return AIR_OK;
}

air_status
cuda_pads_empty(const air_device *dev, const cuda_pads *pads, uint64_t area,
                uint64_t y, cu_stream stream)
{
    if (pads->y.at < 0)
        return AIR_OK;
    return copy(dev, y, pads->y.from.ld, area + (uint64_t)pads->y.at,
                pads->y.to.ld, &pads->y.from, stream);
}
