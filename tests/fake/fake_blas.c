/* cuBLASLt of a GPU that is none: a product is noted as it was asked for. Where
 * libcuda's stand-in lends its streams (`enqueue`), it is also computed, by the
 * rules of cublasLt.h: matrices lie by columns, D = epilogue(alpha op(A) op(B)
 * + beta C), a C of beta 0 is not read, sums are f32 (f64 of f64), operands as
 * TF32 where that is asked for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "driver/ref/element.h"
#include "fake_step.h"

enum { NOT_VALID = 7, NOT_SUPPORTED = 15 }; /* cublasStatus_t */
enum { EPILOGUE_NONE = 1, EPILOGUE_BIAS = 4 };
enum { REAL_32F, REAL_64F };
enum { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32F_TF32 = 77 };
enum { ALGORITHM = 96, WORKSPACE_UNIT = 256 };

typedef struct {
    int compute, scale, transposed[2], epilogue;
    uint64_t bias;
} description;
typedef struct {
    int64_t type, rows, columns, ld, batch, stride;
} layout;

/* Of cudaDataType_t; AIR_DTYPE_NONE: none that is used. */
static int
dtype_of(int64_t type)
{
    static const int dtypes[] = {
        [0] = AIR_F32, [1] = AIR_F64, [2] = AIR_F16, [14] = AIR_BF16};
    return type >= 0 && type < (int64_t)(sizeof dtypes / sizeof *dtypes)
               ? dtypes[type]
               : AIR_DTYPE_NONE;
}

/* ---- what is described ---- */

/* An object that begins as `made`. */
static int
new_like(void **out, const void *made, size_t size)
{
    const int failed = fake_new(out, size);
    if (failed == 0)
        memcpy(*out, made, size);
    return failed;
}

FAKE(cublasLtCreate, void **out)
{
    return fake_new(out, 1);
}
FAKE(cublasLtDestroy, void *object)
{
    return fake_drop(object);
}
FAKE(cublasLtMatmulDescCreate, void **out, int compute, int scale)
{
    const description made = {
        .compute = compute, .scale = scale, .epilogue = EPILOGUE_NONE};
    fake_cuda_state()->compute = compute;
    return new_like(out, &made, sizeof made);
}
FAKE(cublasLtMatmulDescDestroy, void *object)
{
    return fake_drop(object);
}
FAKE(cublasLtMatmulDescSetAttribute, description *desc, int which,
     const void *value, size_t size)
{
    fake_state *state = fake_cuda_state();
    const struct {
        void *to, *noted;
        size_t size;
    } attributes[] = {
        [3] = {&desc->transposed[0], &state->transposed[0], sizeof(int)},
        [4] = {&desc->transposed[1], &state->transposed[1], sizeof(int)},
        [7] = {&desc->epilogue, NULL, sizeof(int)},
        [8] = {&desc->bias, &state->bias, sizeof(uint64_t)},
    };
    FAKE_TRY;
    if (which < 0 || which > 8 || !attributes[which].to ||
        attributes[which].size != size)
        return NOT_VALID;
    memcpy(attributes[which].to, value, size);
    if (attributes[which].noted)
        memcpy(attributes[which].noted, value, size);
    return 0;
}
FAKE(cublasLtMatrixLayoutCreate, void **out, int type, uint64_t rows,
     uint64_t columns, int64_t ld)
{
    const layout made = {.type = type,
                         .rows = (int64_t)rows,
                         .columns = (int64_t)columns,
                         .ld = ld,
                         .batch = 1};
    return new_like(out, &made, sizeof made);
}
FAKE(cublasLtMatrixLayoutDestroy, void *object)
{
    return fake_drop(object);
}
FAKE(cublasLtMatrixLayoutSetAttribute, layout *l, int which, const void *value,
     size_t size)
{
    int32_t batch;
    FAKE_TRY;
    if (which == 5 && size == sizeof batch) {
        memcpy(&batch, value, size);
        l->batch = batch;
        return 0;
    }
    if (which != 6 || size != sizeof l->stride)
        return NOT_VALID;
    memcpy(&l->stride, value, size);
    return 0;
}
FAKE(cublasLtMatmulPreferenceCreate, void **out)
{
    return fake_new(out, 1);
}
FAKE(cublasLtMatmulPreferenceDestroy, void *object)
{
    return fake_drop(object);
}
FAKE(cublasLtMatmulPreferenceSetAttribute, void *object, int which,
     const void *value, size_t size)
{
    fake_state *state = fake_cuda_state();
    (void)object, (void)size;
    FAKE_TRY;
    if (which == 5)
        memcpy(&state->alignment, value, sizeof state->alignment);
    return 0;
}

/* ---- what fits ---- */

/* A product with all that it reads from the host. */
typedef struct {
    description desc;
    layout a, b, c, d;
    const char *at[4]; /* of A, B, C; the workspace */
    char *out;
    double alpha, beta;
    size_t workspace;
} product;

static bool
is_layout(const layout *l, const layout *like)
{
    return dtype_of(l->type) != AIR_DTYPE_NONE && l->type == like->type &&
           l->batch == like->batch && l->rows > 0 && l->columns > 0 &&
           l->ld >= l->rows;
}

/* op(A), op(B) */
static layout
turned(const layout *l, int transposed)
{
    layout t = *l;
    if (transposed)
        t.rows = l->columns, t.columns = l->rows;
    return t;
}

static bool
computes(const description *desc, int64_t type)
{
    if (type == REAL_64F)
        return desc->compute == COMPUTE_64F;
    return desc->compute == COMPUTE_32F ||
           (desc->compute == COMPUTE_32F_TF32 && type == REAL_32F);
}

static bool
fits(const description *desc, const layout *a, const layout *b, const layout *c,
     const layout *d)
{
    const layout m = turned(a, desc->transposed[0]);
    const layout n = turned(b, desc->transposed[1]);
    const bool wide = d->type == REAL_64F;
    return is_layout(a, d) && is_layout(b, d) && is_layout(c, d) &&
           is_layout(d, d) && computes(desc, d->type) &&
           desc->scale == (wide ? REAL_64F : 0) &&
           (desc->epilogue == EPILOGUE_NONE ||
            desc->epilogue == EPILOGUE_BIAS) &&
           m.columns == n.rows && m.rows == d->rows &&
           n.columns == d->columns && c->rows == d->rows &&
           c->columns == d->columns;
}

FAKE(cublasLtMatmulAlgoGetHeuristic, void *blas, const description *desc,
     const layout *a, const layout *b, const layout *c, const layout *d,
     void *preference, int most, void *out, int *found)
{
    const fake_state *state = fake_cuda_state();
    (void)blas, (void)preference, (void)most;
    FAKE_TRY;
    if (!fits(desc, a, b, c, d))
        return NOT_SUPPORTED;
    memset(out, 0, ALGORITHM);
    memcpy(out, &state->alignment, sizeof state->alignment);
    *found = 1;
    return 0;
}

/* ---- computing ---- */

static double
element(const layout *l, const char *at, int64_t z, int64_t row, int64_t column)
{
    const int dtype = dtype_of(l->type);
    const int64_t i = z * l->stride + row + column * l->ld;
    return ref_get(dtype, at + i * (int64_t)ref_bytes(dtype));
}

/* The float of 10 bits of mantissa that is next to x; of halves, the larger. */
static double
as_tf32(double x)
{
    const float f = (float)x;
    uint32_t bits;
    float rounded;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits + 0x1000) & ~0x1fffu;
    memcpy(&rounded, &bits, sizeof rounded);
    return isfinite(f) ? (double)rounded : x;
}

static double
operand(const product *p, int which, int64_t z, int64_t row, int64_t column)
{
    const layout *l = which == 0 ? &p->a : &p->b;
    const double x = p->desc.transposed[which]
                         ? element(l, p->at[which], z, column, row)
                         : element(l, p->at[which], z, row, column);
    return p->desc.compute == COMPUTE_32F_TF32 ? as_tf32(x) : x;
}

static double
multiply_one(const product *p, int64_t z, int64_t row, int64_t column)
{
    const bool wide = p->d.type == REAL_64F;
    const int64_t k = turned(&p->a, p->desc.transposed[0]).columns;
    const layout of_bias = {.type = p->d.type};
    double sum = 0;
    for (int64_t i = 0; i < k; i++) {
        sum += operand(p, 0, z, row, i) * operand(p, 1, z, i, column);
        sum = wide ? sum : (double)(float)sum;
    }
    sum *= p->alpha;
    if (p->beta != 0)
        sum += p->beta * element(&p->c, p->at[2], z, row, column);
    if (p->desc.epilogue == EPILOGUE_BIAS)
        sum +=
            element(&of_bias, (const char *)(uintptr_t)p->desc.bias, 0, row, 0);
    return sum;
}

static void
multiply(const void *data)
{
    product p;
    memcpy(&p, data, sizeof p);
    const int dtype = dtype_of(p.d.type);
    memset((char *)(uintptr_t)p.at[3], 0xff, p.workspace);
    for (int64_t z = 0; z < p.d.batch; z++)
        for (int64_t column = 0; column < p.d.columns; column++)
            for (int64_t row = 0; row < p.d.rows; row++) {
                const int64_t i = z * p.d.stride + row + column * p.d.ld;
                ref_put_float(dtype, p.out + i * (int64_t)ref_bytes(dtype),
                              multiply_one(&p, z, row, column));
            }
}

static double
scalar(const product *p, const void *at)
{
    return ref_get(p->desc.scale == REAL_64F ? AIR_F64 : AIR_F32, at);
}

static void
note(const product *p, const void *alpha, const void *beta,
     const fake_launch *made)
{
    fake_state *state = fake_cuda_state();
    memcpy(&state->alpha, alpha, sizeof state->alpha);
    memcpy(&state->beta, beta, sizeof state->beta);
    for (int i = 0; i < 2; i++) {
        const layout *l = i == 0 ? &p->a : &p->b;
        memcpy(state->sizes[i], (int64_t[]){l->rows, l->columns, l->ld},
               sizeof state->sizes[i]);
    }
    state->launch[state->launches++ % FAKE_LAUNCHES] = *made;
}

/* Pointers are what the algorithm was chosen for. */
static bool
is_aligned(const fake_launch *made)
{
    uint64_t bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= made->params[i];
    return made->shared > 0 && bits % made->shared == 0 &&
           made->params[4] % WORKSPACE_UNIT == 0;
}

FAKE(cublasLtMatmul, void *blas, const description *desc, const void *alpha,
     const char *a, const layout *la, const char *b, const layout *lb,
     const void *beta, const char *c, const layout *lc, char *d,
     const layout *ld, const void *algorithm, const char *workspace,
     size_t bytes, void *stream)
{
    const fake_state *state = fake_cuda_state();
    fake_launch made = {.stream = stream,
                        .params = {(uintptr_t)a, (uintptr_t)b, (uintptr_t)c,
                                   (uintptr_t)d, (uintptr_t)workspace, bytes}};
    product p = {.desc = *desc,
                 .a = *la,
                 .b = *lb,
                 .c = *lc,
                 .d = *ld,
                 .at = {a, b, c, workspace},
                 .out = d,
                 .workspace = bytes};
    (void)blas;
    if (state->adding)
        state->adding(state->user, &desc->bias, (uintptr_t)d);
    FAKE_TRY;
    p.alpha = scalar(&p, alpha);
    p.beta = scalar(&p, beta);
    memcpy(&made.shared, algorithm, sizeof made.shared);
    if (!fits(desc, la, lb, lc, ld) || !is_aligned(&made))
        return NOT_VALID;
    note(&p, alpha, beta, &made);
    return state->enqueue ? state->enqueue(stream, multiply, &p, sizeof p) : 0;
}
