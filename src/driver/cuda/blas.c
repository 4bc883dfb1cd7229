/* blas.c: products of cuBLASLt, where the process has it: large ones, for which
 * its kernels are hard to beat. The form of a product is chosen once, by its
 * heuristics, when a list is made.
 *
 * Matrices of the library are column-major: y = x w is asked for as
 * y^T = w^T x^T, so that its A is our w and its B our x. */
#include <pthread.h>
#include <string.h>

#include "driver/cuda/blas.h"
#include "driver/cuda/blas_pad.h"
#include "driver/cuda/kern_call.h"

/* The library's workspace is a multiple of 256 bytes; ours are of 64. */
enum { WORKSPACE = 32 << 20, PAGE = 256, ALIGNED = 16 };

typedef cuda_matrix matrix;

typedef struct {
    const air_tensor *x, *w, *y, *c; /* c: NULL where it is not read */
    matrix mx, mw, my, mc;
    int64_t batch;
    double alpha, beta;
    bool bias;    /* c is a row that is added to each */
    bool tf32;    /* of operands in f32 */
    int64_t rows; /* of y at once, as copies; 0: all, as they lie */
    cuda_pads pads;
} product;

struct cuda_product {
    air_alloc alloc;
    cu_product product;
    cu_layout w, x, y, c;      /* c: that of y where there is none */
    cu_algorithm aligned, any; /* pointers: of 16 bytes, of an element */
    bool has_any, bias, has_c;
    cuda_pads pads;
    int64_t rows, all;  /* of y: at once, with copies, and all in all */
    cuda_product *rest; /* of fewer rows, the last ones; NULL: there are none */
    pthread_mutex_t adding; /* the row to add is set in `product` for a call */
    union {
        float f;
        double d;
    } alpha, beta;
};

/* ---- what it can do ---- */

static bool
read_matrix(const air_tensor *t, matrix *out)
{
    const int r = t->rank - 2, c = t->rank - 1;
    const int64_t rows = t->dims[r], columns = t->dims[c];
    const int64_t row = t->strides[r], column = t->strides[c];
    *out = (matrix){.stride = r > 0 && t->dims[0] > 1 ? t->strides[0] : 0};
    if ((column == 1 || columns == 1) && (row >= columns || rows == 1)) {
        out->rows = columns, out->columns = rows;
        out->ld = rows > 1 ? row : columns;
        return true;
    }
    out->transposed = true;
    out->rows = rows, out->columns = columns;
    out->ld = columns > 1 ? column : rows;
    return (row == 1 || rows == 1) && out->ld >= rows;
}

static bool
is_row(const air_tensor *c, int64_t n)
{
    for (int i = 0; i < c->rank - 1; i++)
        if (c->dims[i] != 1)
            return false;
    return c->rank >= 1 && c->dims[c->rank - 1] == n &&
           (n == 1 || c->strides[c->rank - 1] == 1);
}

static bool
read_added(product *p)
{
    if (!p->c)
        return true;
    p->bias = p->batch == 1 && p->alpha == 1 && p->beta == 1 &&
              is_row(p->c, p->my.rows);
    if (p->bias)
        return true;
    if (p->c->rank != p->y->rank)
        return false;
    for (int i = 0; i < p->c->rank; i++)
        if (p->c->dims[i] != p->y->dims[i])
            return false;
    return read_matrix(p->c, &p->mc) && !p->mc.transposed;
}

/* The product with a weight [n, k] that is made of the call's integers, and
 * lies dense. */
static bool
read_words(const air_call *call, product *p)
{
    const kern_words_call c = kern_words_read(call);
    *p = (product){.x = c.x,
                   .w = c.w,
                   .y = c.y,
                   .c = c.bias,
                   .batch = 1,
                   .alpha = 1,
                   .beta = 1,
                   .mw = {c.k, c.n, c.k, 0, true}};
    return read_matrix(p->x, &p->mx) && read_matrix(p->y, &p->my) &&
           !p->my.transposed && (!p->c || (read_added(p) && p->bias));
}

static bool
read_matrices(const air_call *call, product *p)
{
    if (call->nargs == KERN_WORDS_ARGS)
        return read_words(call, p);
    const int at = kern_first_factor(call);
    *p = (product){.x = call->args[at].t,
                   .w = call->args[at + 1].t,
                   .y = &call->outs[0],
                   .alpha = 1};
    if (p->x->rank < 2 || p->x->rank > 3)
        return false;
    p->batch = p->x->rank == 3 ? p->x->dims[0] : 1;
    if (at == 1) {
        p->beta = kern_float(call, 3, 1);
        p->alpha = kern_float(call, 4, 1);
        p->c = p->beta != 0 ? call->args[0].t : NULL;
    }
    return read_matrix(p->x, &p->mx) && read_matrix(p->w, &p->mw) &&
           read_matrix(p->y, &p->my) && !p->my.transposed && read_added(p);
}

static bool
read_product(const air_call *call, product *p)
{
    const bool read = read_matrices(call, p);
    p->tf32 = call->tf32;
    p->rows = 0;
    p->pads = (cuda_pads){0};
    if (read && p->batch == 1 && (!p->c || p->bias) &&
        air_dtype_bytes((air_dtype)p->y->dtype) == 2)
        p->rows = cuda_pads_rows(&p->mw, &p->mx, &p->my, p->bias);
    return read;
}

/* So many of its rows, as copies. */
static product
part_of(const product *p, int64_t rows)
{
    product part = *p;
    if (rows == 0)
        return part;
    cuda_pads_cut(&part.mx, &part.my, rows);
    cuda_pads_plan(&part.mw, &part.mx, &part.my, p->bias, &part.pads);
    part.mw = part.pads.w.to;
    part.mx = part.pads.x.to;
    part.my = part.pads.y.to;
    return part;
}

static int
type_of(uint8_t dtype)
{
    switch (dtype) {
    case AIR_F32: return CU_R_32F;
    case AIR_F64: return CU_R_64F;
    case AIR_F16: return CU_R_16F;
    case AIR_BF16: return CU_R_16BF;
    default: return -1;
    }
}

static bool
has_elements(const air_tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0)
            return false;
    return true;
}

bool
cuda_blas_on(const air_call *call, const cuda_props *props)
{
    product p;
    if (!props->blas || !read_product(call, &p) || !has_elements(p.x) ||
        !has_elements(p.w) || type_of(p.y->dtype) < 0)
        return false;
    return p.x->dtype == p.y->dtype && p.w->dtype == p.y->dtype &&
           (!p.c || p.c->dtype == p.y->dtype);
}

size_t
cuda_blas_workspace(const air_call *call, const cuda_props *props)
{
    product p;
    (void)props;
    const bool read = read_product(call, &p);
    return WORKSPACE + PAGE + (read ? part_of(&p, p.rows).pads.bytes : 0);
}

/* The order in which cuda_product_run takes them. made: where in the workspace
 * w was made; 0: it is an operand. */
static void
add_launch(const product *p, cuda_source *out, int64_t made)
{
    cuda_launch *launch = &out->launches[out->nlaunches++];
    *launch = (cuda_launch){.product = true};
    out->product = true;
    launch->shape = (air_launch){.grid = {1, 1, 1}, .block = {1, 1, 1}};
    cuda_add_workspace(launch, 0);
    if (made > 0)
        cuda_add_workspace(launch, made);
    else
        cuda_add_tensor(launch, p->w);
    cuda_add_tensor(launch, p->x);
    cuda_add_tensor(launch, p->y);
    cuda_add_tensor(launch, p->c ? p->c : p->y);
}

air_status
cuda_blas_print(const air_call *call, const cuda_props *props, cuda_source *out)
{
    product p;
    (void)props;
    if (!read_product(call, &p))
        AIR_FAIL(AIR_ERROR_UNSUPPORTED, "not a product of cuBLASLt");
    add_launch(&p, out, 0);
    return AIR_OK;
}

/* ---- weights of 8 and 4 bits: made in memory, then multiplied ---- */

/* A weight in half precision is rounded. */
bool
cuda_words_on(const air_call *call, const cuda_props *props)
{
    const kern_words_call c = kern_words_read(call);
    const bool half = kern_bytes(c.x->dtype) == 2;
    product p;
    return props->blas && (!half || c.rounded) &&
           kern_unpacked_on(call, props) && read_words(call, &p) &&
           has_elements(p.x) && has_elements(p.w) && type_of(p.y->dtype) >= 0 &&
           (!p.c || p.c->dtype == p.y->dtype);
}

size_t
cuda_words_workspace(const air_call *call, const cuda_props *props)
{
    const kern_words_call c = kern_words_read(call);
    return cuda_blas_workspace(call, props) +
           (size_t)(c.n * c.k) * kern_bytes(c.x->dtype);
}

air_status
cuda_words_print(const air_call *call, const cuda_props *props,
                 cuda_source *out)
{
    const kern_words_call c = kern_words_read(call);
    const int64_t made = (int64_t)cuda_blas_workspace(call, props);
    product p;
    if (!read_words(call, &p))
        AIR_FAIL(AIR_ERROR_UNSUPPORTED, "not a product of cuBLASLt");
    kern_unpack(&c, c.x->dtype, made, props, out);
    add_launch(&p, out, made);
    return AIR_OK;
}

/* ---- making one ---- */

static air_status
check(int code, const char *what)
{
    AIR_REQUIRE(code == 0, AIR_ERROR_DRIVER, "%s: error %d of cuBLASLt", what,
                code);
    return AIR_OK;
}

static air_status
make_layout(const air_device *dev, int type, const matrix *m, int64_t batch,
            cu_layout *out)
{
    const int32_t count = (int32_t)batch;
    AIR_TRY(check(dev->cu.layout_new(out, type, (uint64_t)m->rows,
                                     (uint64_t)m->columns, m->ld),
                  "a layout cannot be made"));
    AIR_TRY(
        check(dev->cu.layout_set(*out, CU_LAYOUT_BATCH, &count, sizeof count),
              "a layout has no batch"));
    return check(dev->cu.layout_set(*out, CU_LAYOUT_BATCH_STRIDE, &m->stride,
                                    sizeof m->stride),
                 "a layout has no stride");
}

static air_status
set_product(const air_device *dev, const product *p, cu_product made)
{
    const int32_t a = p->mw.transposed, b = p->mx.transposed;
    const int32_t epilogue = CU_EPILOGUE_BIAS;
    AIR_TRY(check(dev->cu.product_set(made, CU_PRODUCT_TRANS_A, &a, sizeof a),
                  "a product cannot be described"));
    AIR_TRY(check(dev->cu.product_set(made, CU_PRODUCT_TRANS_B, &b, sizeof b),
                  "a product cannot be described"));
    if (!p->bias)
        return AIR_OK;
    return check(dev->cu.product_set(made, CU_PRODUCT_EPILOGUE, &epilogue,
                                     sizeof epilogue),
                 "a product cannot add a row");
}

/* *out_found: there is one for pointers that are multiples of `bytes`. */
static air_status
choose(const air_device *dev, const cuda_product *g, uint32_t bytes,
       cu_algorithm *out, bool *out_found)
{
    const cuda_symbols *cu = &dev->cu;
    const size_t most = WORKSPACE;
    cu_preference preference;
    int count = 0;
    AIR_TRY(check(cu->preference_new(&preference), "no preference"));
    int code = cu->preference_set(preference, CU_PREFERENCE_WORKSPACE, &most,
                                  sizeof most);
    for (int i = 0; code == 0 && i < 4; i++)
        code = cu->preference_set(preference, CU_PREFERENCE_ALIGN_A + i, &bytes,
                                  sizeof bytes);
    if (code == 0 && cu->heuristic(dev->blas, g->product, g->w, g->x, g->c,
                                   g->y, preference, 1, out, &count) != 0)
        count = 0;
    (void)cu->preference_free(preference);
    AIR_TRY(check(code, "a preference cannot be set"));
    *out_found = count > 0 && out->status == 0;
    return AIR_OK;
}

static int
compute_of(const product *p, int type)
{
    if (type == CU_R_64F)
        return CU_COMPUTE_64F;
    return type == CU_R_32F && p->tf32 ? CU_COMPUTE_32F_TF32 : CU_COMPUTE_32F;
}

static air_status
describe(const air_device *dev, const product *p, cuda_product *g)
{
    const int type = type_of(p->y->dtype);
    const int scale = type == CU_R_64F ? CU_R_64F : CU_R_32F;
    bool found;
    AIR_TRY(check(dev->cu.product_new(&g->product, compute_of(p, type), scale),
                  "a product cannot be made"));
    AIR_TRY(set_product(dev, p, g->product));
    AIR_TRY(make_layout(dev, type, &p->mw, p->batch, &g->w));
    AIR_TRY(make_layout(dev, type, &p->mx, p->batch, &g->x));
    AIR_TRY(make_layout(dev, type, &p->my, p->batch, &g->y));
    AIR_TRY(
        make_layout(dev, type, g->has_c ? &p->mc : &p->my, p->batch, &g->c));
    AIR_TRY(choose(dev, g, ALIGNED, &g->aligned, &found));
    AIR_TRY(choose(dev, g, (uint32_t)air_dtype_bytes(p->y->dtype), &g->any,
                   &g->has_any));
    AIR_REQUIRE(found && g->has_any, AIR_ERROR_UNSUPPORTED,
                "cuBLASLt has no form of a product");
    return AIR_OK;
}

static air_status
open_blas(air_device *dev)
{
    air_status status = AIR_OK;
    pthread_mutex_lock(&dev->mutex);
    if (!dev->blas)
        status = check(dev->cu.blas_new(&dev->blas), "cuBLASLt cannot start");
    pthread_mutex_unlock(&dev->mutex);
    return status;
}

static air_status
make_part(air_device *dev, const product *p, cuda_product **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, sizeof **out, &ptr));
    cuda_product *g = ptr;
    pthread_mutex_init(&g->adding, NULL);
    g->bias = p->bias;
    g->pads = p->pads;
    g->has_c = p->c && !p->bias;
    const double beta = g->has_c ? p->beta : 0;
    if (p->y->dtype == AIR_F64)
        g->alpha.d = p->alpha, g->beta.d = beta;
    else
        g->alpha.f = (float)p->alpha, g->beta.f = (float)beta;
    const air_status status = describe(dev, p, g);
    if (status != AIR_OK) {
        cuda_product_free(dev, g);
        return status;
    }
    *out = g;
    return AIR_OK;
}

air_status
cuda_product_make(air_device *dev, const air_call *call, cuda_product **out)
{
    product p;
    *out = NULL;
    AIR_TRY(open_blas(dev));
    AIR_REQUIRE(read_product(call, &p), AIR_ERROR_UNSUPPORTED,
                "no product of cuBLASLt");
    const product first = part_of(&p, p.rows);
    AIR_TRY(make_part(dev, &first, out));
    (*out)->rows = p.rows;
    (*out)->all = p.my.columns;
    if (p.rows == 0 || p.my.columns % p.rows == 0)
        return AIR_OK;
    const product last = part_of(&p, p.my.columns % p.rows);
    const air_status status = make_part(dev, &last, &(*out)->rest);
    if (status != AIR_OK) {
        cuda_product_free(dev, *out);
        *out = NULL;
    }
    return status;
}

void
cuda_product_free(air_device *dev, cuda_product *g)
{
    if (!g)
        return;
    cuda_product_free(dev, g->rest);
    if (g->product)
        (void)dev->cu.product_free(g->product);
    const cu_layout layouts[] = {g->w, g->x, g->y, g->c};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            (void)dev->cu.layout_free(layouts[i]);
    pthread_mutex_destroy(&g->adding);
    base_free(&dev->alloc, g, sizeof *g);
}

/* ---- running ---- */

enum { AT_WORKSPACE, AT_W, AT_X, AT_Y, AT_C, POINTERS };

static void *
pointer(uint64_t value)
{
    return (void *)(uintptr_t)value;
}

/* Where the library's workspace begins, and behind it copies of matrices. */
static uint64_t
area_of(const uint64_t *values)
{
    return (values[AT_WORKSPACE] + PAGE - 1) / PAGE * PAGE;
}

static air_status
multiply(const air_device *dev, const cuda_product *g, const uint64_t *values,
         cu_stream stream)
{
    uint64_t bits = 0;
    for (int i = AT_W; i < POINTERS; i++)
        bits |= values[i];
    const cu_algorithm *algorithm = bits % ALIGNED ? &g->any : &g->aligned;
    if (g->bias)
        AIR_TRY(check(dev->cu.product_set(g->product, CU_PRODUCT_BIAS,
                                          &values[AT_C], sizeof *values),
                      "a product cannot add a row"));
    return check(dev->cu.multiply(dev->blas, g->product, &g->alpha,
                                  pointer(values[AT_W]), g->w,
                                  pointer(values[AT_X]), g->x, &g->beta,
                                  pointer(values[g->has_c ? AT_C : AT_Y]), g->c,
                                  pointer(values[AT_Y]), g->y, algorithm,
                                  pointer(area_of(values)), WORKSPACE, stream),
                 "a product cannot be launched");
}

static air_status
multiply_copies(const air_device *dev, const cuda_product *g,
                const uint64_t *values, cu_stream stream)
{
    const uint64_t area = area_of(values) + WORKSPACE;
    uint64_t shared[POINTERS];
    memcpy(shared, values, sizeof shared);
    AIR_TRY(cuda_pads_share(dev, &g->pads, area, &shared[AT_W], stream));
    for (int64_t i = 0; i < g->all; i += g->rows) {
        const cuda_product *part = g->all - i < g->rows ? g->rest : g;
        uint64_t own[POINTERS];
        memcpy(own, shared, sizeof own);
        cuda_pads_move(&part->pads, i, &own[AT_W]);
        const uint64_t y = own[AT_Y];
        AIR_TRY(cuda_pads_fill(dev, &part->pads, area, &own[AT_W], stream));
        AIR_TRY(multiply(dev, part, own, stream));
        AIR_TRY(cuda_pads_empty(dev, &part->pads, area, y, stream));
    }
    return AIR_OK;
}

air_status
cuda_product_run(const air_device *dev, cuda_product *g, const uint64_t *values,
                 cu_stream stream)
{
    pthread_mutex_lock(&g->adding);
    air_status status = g->rows > 0 ? multiply_copies(dev, g, values, stream)
                                    : multiply(dev, g, values, stream);
    pthread_mutex_unlock(&g->adding);
    return status;
}
