/* kern_matmul.c: products with few rows on one side, at the rate at which the
 * other one is read: text/skinny.cuh; all others: text/gemm.cuh. */
#include "driver/cuda/kern_call.h"

#include <inttypes.h>

enum {
    MOST_ROWS = 16,
    WARPS = 8,
    BLOCKS = 2,
    DEPTH = 8,     /* D, of several rows */
    SPLIT_ROWS = 8 /* of x, at most, where rows of w are read in two parts */
};

/* y[m, n] = alpha * sum over k of x[m, k] w[k, n] + beta * c[m, n] */
typedef struct {
    const air_tensor *x, *w, *c; /* c: NULL where it is not read */
    const air_tensor *y;
    int64_t batch, m, n, k;
    int64_t x_row, w_row; /* elements; of w from n to n + 1 */
    double alpha, beta;
    int tile;  /* rows of w */
    int parts; /* S of the text */
} product;

/* Parts double the instructions and what is read of x. Many rows fill a tile's
 * threads with 16 rows of w, are multiplied whole, and have an SM to
 * themselves: blocks beside each other would read all of x twice. */
static bool
is_whole(const product *p)
{
    return p->m > SPLIT_ROWS;
}

/* That run side by side on an SM. */
static int
blocks_of(const product *p)
{
    return p->m == 1 ? KERN_ROW_BLOCKS : is_whole(p) ? 1 : BLOCKS;
}

/* D of the text. */
static int
depth_of(const product *p)
{
    return p->m == 1     ? kern_row_depth(p->k, p->n)
           : is_whole(p) ? BLOCKS * DEPTH
                         : DEPTH;
}

static product
read_product(const air_call *call, const cuda_props *props)
{
    const int at = call->nargs == 2 ? 0 : 1;
    product p = {.x = call->args[at].t,
                 .w = call->args[at + 1].t,
                 .y = &call->outs[0],
                 .batch = 1,
                 .alpha = 1};
    const int r = p.x->rank - 2, c = p.x->rank - 1;
    p.batch = r > 0 ? p.x->dims[0] : 1;
    p.m = p.x->dims[r], p.k = p.x->dims[c], p.n = p.w->dims[c];
    p.x_row = kern_stride(p.x, r);
    p.w_row = kern_stride(p.w, c);
    if (at == 1) {
        p.beta = kern_float(call, 3, 1);
        p.alpha = kern_float(call, 4, 1);
        p.c = p.beta != 0 ? call->args[0].t : NULL;
    }
    p.parts = is_whole(&p) ? 1 : 2;
    p.tile =
        is_whole(&p)
            ? 16
            : kern_tile(p.n, p.m, blocks_of(&p) * (int64_t)props->processors);
    return p;
}

static int64_t
shared_bytes(const product *p)
{
    const int64_t unit = 32 * p->parts;
    const int64_t row = (p->k + unit - 1) / unit * unit;
    const int64_t pitch = p->m == 1 ? row : row + 32;
    return 2 * p->m * pitch + 8 * WARPS * p->parts * p->tile * p->m;
}

static bool
has_type(const product *p, int dtype)
{
    return p->x->dtype == dtype && p->w->dtype == dtype &&
           p->y->dtype == dtype && (!p->c || p->c->dtype == dtype);
}

bool
kern_skinny_on(const air_call *call, const cuda_props *props)
{
    const product p = read_product(call, props);
    const int r = p.x->rank - 2;
    return props->capability >= KERN_HALF_CAPABILITY &&
           (has_type(&p, AIR_BF16) || has_type(&p, AIR_F16)) && p.m >= 1 &&
           p.m <= MOST_ROWS && p.n >= 1 && kern_is_shared(p.n, props) &&
           p.k >= 8 && p.k % 8 == 0 && p.x->strides[r + 1] == 1 &&
           p.w->strides[r] == 1 && p.alpha != 0 && p.batch >= 1 &&
           p.batch <= KERN_MOST_Y &&
           shared_bytes(&p) <= (int64_t)props->shared_bytes;
}

static void
print_parameters(kern *k, const product *p, const char *type, char batch_axis)
{
    kern_tensor(k, type, "y", p->y);
    kern_tensor(k, type, "x", p->x);
    kern_tensor(k, type, "w", p->w);
    if (p->c)
        kern_tensor(k, type, "c", p->c);
    kern_body(k);
    if (p->batch > 1)
        base_text_add(k->text,
                      "    const s64 z = blockIdx.%c;\n"
                      "    y += z * %" PRId64 ";\n    x += z * %" PRId64
                      ";\n    w += z * %" PRId64 ";\n",
                      batch_axis, p->y->strides[0], kern_stride(p->x, 0),
                      kern_stride(p->w, 0));
    if (p->batch > 1 && p->c && p->c->rank == 3)
        base_text_add(k->text, "    c += z * %" PRId64 ";\n",
                      kern_stride(p->c, 0));
}

/* v = alpha * v + beta * c[m, n]: c broadcasts, axes counted from the right. */
static void
print_added(kern *k, const product *p)
{
    const int rank = p->c->rank;
    base_text_add(k->text,
                  "            typedef decltype(v) S;\n"
                  "            v = S(%.17g) * v + S(%.17g) * get(c[0",
                  p->alpha, p->beta);
    if (rank >= 1)
        base_text_add(k->text, " + n * %" PRId64, kern_stride(p->c, rank - 1));
    if (rank >= 2)
        base_text_add(k->text, " + m * %" PRId64, kern_stride(p->c, rank - 2));
    base_text_add(k->text, "]);\n");
}

static void
print_sum(kern *k, const product *p)
{
    const int r = p->y->rank - 2;
    if (p->c)
        print_added(k, p);
    else if (p->alpha != 1)
        base_text_add(k->text, "            v *= decltype(v)(%.17g);\n",
                      p->alpha);
    kern_put_sum(k, p->y, r);
}

/* Blocks that the registers of an SM let run side by side. */
static int64_t
blocks(const product *p, const cuda_props *props)
{
    const int64_t tiles = (p->n + p->tile - 1) / p->tile;
    const int64_t room = (int64_t)props->shared_bytes / shared_bytes(p);
    const int64_t side = blocks_of(p);
    const int64_t most =
        (room < side ? room : side) * (int64_t)props->processors;
    return tiles < most ? tiles : most;
}

air_status
kern_skinny(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const product p = read_product(call, props);
    const char *type = kern_type(p.x->dtype);
    kern k = kern_begin(out, kern_text_skinny, "");
    print_parameters(&k, &p, type, 'y');
    base_text_add(k.text,
                  "    typedef skinny<%s, %" PRId64 ", %" PRId64
                  ", %d, %d, %d> G;\n"
                  "    G::run(%" PRId64 ", %s && aligned(w) && aligned(x),\n"
                  "        [&](int tile, int i) {\n"
                  "            const s64 n = tile * %d + i;\n"
                  "            return w + (n < %" PRId64 " ? n : %" PRId64
                  ") * %" PRId64 ";\n        },\n",
                  type, p.m, p.k, p.tile, p.parts, depth_of(&p),
                  (p.n + p.tile - 1) / p.tile,
                  p.w_row % 8 == 0 && p.x_row % 8 == 0 ? "true" : "false",
                  p.tile, p.n, p.n - 1, p.w_row);
    kern_stage(&k, p.x, p.m, p.k, p.x_row, p.tile, p.n);
    print_sum(&k, &p);
    cuda_add_early(k.launch, p.w);
    if (p.batch == 1 && (p.m == 1 || p.x_row % 8 == 0))
        k.launch->crossing = 3, k.launch->parts = 2; /* y, x */
    kern_grid(&k, blocks(&p, props), p.batch, (uint32_t)shared_bytes(&p));
    return AIR_OK;
}

/* ---- any sizes ----------------------------------------------------------- */

bool
kern_gemm_on(const air_call *call, const cuda_props *props)
{
    const product p = read_product(call, props);
    const int dtype = p.x->dtype;
    return kern_is_float(dtype) && has_type(&p, dtype) &&
           kern_has_dtype(dtype, props) && p.alpha != 0 &&
           p.batch <= KERN_MOST_Y && (p.n + 63) / 64 <= KERN_MOST_Y;
}

static void
print_operand(kern *k, const char *type, const char *name, const air_tensor *t,
              int row, int depth)
{
    const int64_t rs = kern_stride(t, row), ks = kern_stride(t, depth);
    const bool wide = t->dtype == AIR_BF16 || t->dtype == AIR_F16;
    const bool even =
        wide && ((ks == 1 && rs % 8 == 0) || (rs == 1 && ks % 8 == 0));
    base_text_add(k->text,
                  "    const operand<%s> o%s = {%s, %" PRId64 ", %" PRId64
                  ", %" PRId64 ", %s && aligned(%s)};\n",
                  type, name, name, rs, ks, t->dims[row],
                  even ? "true" : "false", name);
}

static bool
is_along(const air_tensor *t, int row, int depth)
{
    return kern_stride(t, depth) == 1 || kern_stride(t, row) != 1;
}

air_status
kern_gemm(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const product p = read_product(call, props);
    const char *type = kern_type(p.x->dtype);
    const int r = p.x->rank - 2;
    const bool half = p.x->dtype == AIR_BF16 || p.x->dtype == AIR_F16;
    const int64_t big = ((p.m + 127) / 128) * ((p.n + 127) / 128) * p.batch;
    const int tile =
        p.x->dtype != AIR_F64 && big >= props->processors ? 128 : 64;
    kern k = kern_begin(out, kern_text_gemm, "");
    print_parameters(&k, &p, type, 'z');
    print_operand(&k, type, "x", p.x, r, r + 1);
    print_operand(&k, type, "w", p.w, r + 1, r);
    base_text_add(k.text,
                  "    %s<%s, %d, %d, %s, %s>::run(ox, ow, %" PRId64 ",\n"
                  "        [&](s64 m, s64 n, %s v) {\n",
                  half ? "matrix_gemm" : "plain_gemm", type, tile, tile,
                  is_along(p.x, r, r + 1) ? "true" : "false",
                  is_along(p.w, r + 1, r) ? "true" : "false", p.k,
                  p.x->dtype == AIR_F64 ? "double" : "float");
    print_sum(&k, &p);
    kern_grid(&k, (p.m + tile - 1) / tile, (p.n + tile - 1) / tile, 0);
    k.launch->shape.grid[2] = (uint32_t)p.batch;
    return AIR_OK;
}
