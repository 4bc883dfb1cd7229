/* kern_matmul.c: products with few rows on one side, at the rate at which the
 * other one is read: text/skinny.cuh; all others: text/gemm.cuh. */
#include "driver/cuda/kern_call.h"

#include <inttypes.h>

enum {
    MOST_ROWS = 16,
    WARPS = 8,
    BLOCKS = 2,
    DEPTH = 8,      /* D, of several rows */
    SPLIT_ROWS = 8, /* of x, at most, where rows of w are read in two parts */
    SHORT = 2048    /* K of which a warp has DEPTH loads, where they are not */
};

/* y[m, n] = alpha * sum over k of x[m, k] w[k, n] + beta * c[m, n] */
typedef struct {
    const air_tensor *x, *w, *c; /* c: NULL where it is not read */
    const air_tensor *y;
    int64_t batch, m, n, k;
    int64_t x_row, w_row; /* elements; of w from n to n + 1 */
    double alpha, beta;
    kern_skinny_shape shape;
} product;

/* Parts double the instructions and what is read of x. Many rows fill a tile's
 * threads with 16 rows of w, are multiplied whole, and have an SM to
 * themselves: blocks beside each other would read all of x twice. */
static bool
is_whole(int64_t m)
{
    return m > SPLIT_ROWS;
}

/* That run side by side on an SM. */
static int
blocks_of(int64_t m)
{
    return m == 1 ? KERN_ROW_BLOCKS : is_whole(m) ? 1 : BLOCKS;
}

static int
depth_of(int64_t m, int64_t n, int64_t k)
{
    return m == 1 ? kern_row_depth(k, n) : is_whole(m) ? BLOCKS * DEPTH : DEPTH;
}

/* Of several rows a thread has 128 registers, without spills, so that two
 * blocks, or one and the next kernel's, are side by side: 160 to 230 otherwise,
 * where results are taken. Loads of long rows that are read whole need more. */
static int
side_of(int64_t m, int64_t k)
{
    return m == 1 || (is_whole(m) && k > SHORT) ? 1 : BLOCKS;
}

static size_t
shared_bytes(int64_t m, int64_t k, const kern_skinny_shape *s)
{
    const int64_t unit = 32 * s->parts, row = (k + unit - 1) / unit * unit;
    const int64_t pitch = m == 1 ? row : row + 32;
    return (size_t)(2 * m * pitch + 8 * WARPS * s->parts * s->tile * m);
}

kern_skinny_shape
kern_skinny_of(int64_t m, int64_t n, int64_t k, bool pairs,
               const cuda_props *props)
{
    enum { LEAST = 8, WHOLE = 16 };
    const int64_t side = blocks_of(m), all = side * props->processors;
    kern_skinny_shape s = {.parts = is_whole(m) ? 1 : 2,
                           .tile = is_whole(m) ? WHOLE : kern_tile(n, m, all),
                           .depth = depth_of(m, n, k),
                           .side = side_of(m, k)};
    if (pairs && (s.tile == 24 || shared_bytes(m, k, &s) > props->shared_bytes))
        s.tile = is_whole(m) ? WHOLE : LEAST;
    s.bytes = shared_bytes(m, k, &s);
    const int64_t room = (int64_t)(props->shared_bytes / s.bytes);
    s.most = (room < side ? room : side) * props->processors;
    return s;
}

static product
read_product(const air_call *call, const cuda_props *props)
{
    const int at = kern_first_factor(call);
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
    p.shape = kern_skinny_of(p.m, p.n, p.k, false, props);
    return p;
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
           p.batch <= KERN_MOST_Y && p.shape.bytes <= props->shared_bytes;
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

air_status
kern_skinny(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const product p = read_product(call, props);
    const char *type = kern_type(p.x->dtype);
    const kern_skinny_shape *s = &p.shape;
    const int64_t tiles = (p.n + s->tile - 1) / s->tile;
    kern k = kern_begin_side(out, kern_text_skinny, "", s->side);
    print_parameters(&k, &p, type, 'y');
    base_text_add(k.text,
                  "    typedef skinny<%s, %" PRId64 ", %" PRId64
                  ", %d, %d, %d> G;\n"
                  "    G::run(%" PRId64 ", %s && aligned(w) && aligned(x),\n"
                  "        [&](int tile, int i) {\n"
                  "            const s64 n = tile * %d + i;\n"
                  "            return w + (n < %" PRId64 " ? n : %" PRId64
                  ") * %" PRId64 ";\n        },\n",
                  type, p.m, p.k, s->tile, s->parts, s->depth, tiles,
                  p.w_row % 8 == 0 && p.x_row % 8 == 0 ? "true" : "false",
                  s->tile, p.n, p.n - 1, p.w_row);
    kern_stage(&k, p.x, p.m, p.k, p.x_row, s->tile, p.n);
    print_sum(&k, &p);
    cuda_add_early(k.launch, p.w);
    if (p.batch == 1 && (p.m == 1 || p.x_row % 8 == 0))
        k.launch->crossing = 3, k.launch->parts = 2; /* y, x */
    kern_grid(&k, tiles < s->most ? tiles : s->most, p.batch,
              (uint32_t)s->bytes);
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
