/* scan_isa.c: running sums and products of dense tensors, compiled once per
 * instruction set. Columns go side by side. As the plain kernels do, sums of
 * f32 are kept in double, those of 16-bit floats in float, and integers wrap:
 * the same bits. */
#include "driver/cpu/rows/scan_isa.h"

#include "driver/cpu/product/gemm.h"
#include "driver/cpu/region/tile_float.h"
#include "driver/ref/args.h"

#define JOIN_(a, b)       cpu_##a##_##b
#define JOIN(a, b)        JOIN_(a, b)
#define SCAN_KERNEL(name) JOIN(name, TILE_ISA)

enum { COLUMNS = 64 };

/* n rows of `width` columns, `step` elements from row to row. */
#define SCAN(name, T, O, A, of, to, op, first)                            \
    static void name(const T *restrict x, O *restrict y, int64_t n,       \
                     int64_t step, int64_t width)                         \
    {                                                                     \
        A acc[COLUMNS];                                                   \
        for (int64_t j = 0; j < COLUMNS; j++)                             \
            acc[j] = first;                                               \
        for (int64_t k = 0; k < n; k++, x += step, y += step)             \
            for (int64_t j = 0; j < width; j++) {                         \
                acc[j] = acc[j] op(A) of(x[j]);                           \
                y[j] = (O)to(acc[j]);                                     \
            }                                                             \
    }                                                                     \
    static void name##_row(const T *restrict x, O *restrict y, int64_t n) \
    {                                                                     \
        A acc = first;                                                    \
        for (int64_t k = 0; k < n; k++) {                                 \
            acc = acc op(A) of(x[k]);                                     \
            y[k] = (O)to(acc);                                            \
        }                                                                 \
    }
#define SAME(x) (x)
/* from, its type, result, its type, type of the sums, conversions */
#define EACH_PAIR(_)                                                     \
    _(F32, float, F32, float, double, SAME, SAME)                        \
    _(F64, double, F64, double, double, SAME, SAME)                      \
    _(BF16, uint16_t, BF16, uint16_t, float, tile_of_bf16, tile_to_bf16) \
    _(F16, uint16_t, F16, uint16_t, float, tile_of_f16, tile_to_f16)     \
    _(I64, uint64_t, I64, uint64_t, uint64_t, SAME, SAME)                \
    _(I32, int32_t, I64, uint64_t, uint64_t, (int64_t), SAME)            \
    _(I16, int16_t, I64, uint64_t, uint64_t, (int64_t), SAME)            \
    _(I8, int8_t, I64, uint64_t, uint64_t, (int64_t), SAME)              \
    _(U8, uint8_t, I64, uint64_t, uint64_t, SAME, SAME)                  \
    _(BOOL, uint8_t, I64, uint64_t, uint64_t, SAME, SAME)
#define DEFINE(from, T, out, O, A, of, to)  \
    SCAN(sum_##from, T, O, A, of, to, +, 0) \
    SCAN(product_##from, T, O, A, of, to, *, 1)
EACH_PAIR(DEFINE)

typedef struct {
    const void *x;
    void *y;
    int dtype;
    int64_t n, step, width;
} piece;

static void
scan_piece(const piece *p, bool product)
{
    switch (p->dtype) {
#define CASE(from, ...)                                          \
    case AIR_##from:                                             \
        if (p->step == 1 && product)                             \
            product_##from##_row(p->x, p->y, p->n);              \
        else if (p->step == 1)                                   \
            sum_##from##_row(p->x, p->y, p->n);                  \
        else if (product)                                        \
            product_##from(p->x, p->y, p->n, p->step, p->width); \
        else                                                     \
            sum_##from(p->x, p->y, p->n, p->step, p->width);     \
        break;
        EACH_PAIR(CASE)
#undef CASE
    default: break;
    }
}

static bool
is_pair(int from, int out)
{
#define PAIR(a, T, b, ...)                 \
    if (from == AIR_##a && out == AIR_##b) \
        return true;
    EACH_PAIR(PAIR)
#undef PAIR
    return false;
}

bool
SCAN_KERNEL(scan_on)(const air_call *call, const char *isa)
{
    const air_tensor *a = call->args[0].t;
    return JOIN(on, TILE_ISA)(call, isa) && /* first: others may not run here */
           a->rank > 0 && is_pair(a->dtype, call->outs[0].dtype) &&
           cpu_is_dense(a) && cpu_is_dense(&call->outs[0]);
}

static void
scan(const air_call *call, const air_task *task, bool product)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    const int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    const int64_t n = self.dims[axis];
    int64_t outer = 1, inner = 1, begin, end;
    for (int i = 0; i < self.rank; i++)
        *(i < axis ? &outer : &inner) *= i == axis ? 1 : self.dims[i];
    const int64_t across = (inner + COLUMNS - 1) / COLUMNS;
    air_split(outer * across, task, &begin, &end);
    for (int64_t u = begin; u < end; u++) {
        int64_t col = u % across * COLUMNS, left = inner - col;
        int64_t at = u / across * n * inner + col;
        piece p = {self.data + at * (int64_t)ref_bytes(self.dtype),
                   out.data + at * (int64_t)ref_bytes(out.dtype),
                   self.dtype,
                   n,
                   inner,
                   left < COLUMNS ? left : COLUMNS};
        scan_piece(&p, product);
    }
}

/* (self, dim, dtype) */
void
SCAN_KERNEL(cumsum)(const air_call *call, const air_task *task)
{
    scan(call, task, false);
}

void
SCAN_KERNEL(cumprod)(const air_call *call, const air_task *task)
{
    scan(call, task, true);
}
