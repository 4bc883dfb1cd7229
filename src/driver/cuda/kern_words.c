/* kern_words.c: products with weights of 8 and 4 bits, air::quantised_mm: of
 * few rows by text/words.cuh, at the rate at which the integers are read; of
 * sizes that neither this nor kern_wide.c takes, the weight is made in memory
 * first, text/unpack.cuh. */
#include "driver/cuda/kern_call.h"
#include "driver/dense.h"

#include <inttypes.h>

enum { MOST_ROWS = 16, WARPS = 8, PART = 2 /* S of the text */, BLOCKS = 2 };

kern_words_call
kern_words_read(const air_call *call)
{
    kern_words_call c = {.x = call->args[0].t,
                         .w = call->args[1].t,
                         .scale = kern_arg(call, 2),
                         .zero = kern_arg(call, 3),
                         .bias = kern_arg(call, 4),
                         .y = &call->outs[0],
                         .bits = (int)kern_int(call, 5, 8),
                         .rounded = kern_int(call, 6, 0) != 0};
    const air_tensor *some = c.scale ? c.scale : c.zero;
    c.m = c.x->dims[0], c.k = c.x->dims[1], c.n = c.w->dims[0];
    c.groups = some ? some->dims[1] : 1;
    c.group = c.groups > 0 ? c.k / c.groups : 0;
    return c;
}

int
kern_words_each(const kern_words_call *c)
{
    return 128 / c->bits;
}

static const char *
type_of(const air_tensor *t, const char *otherwise)
{
    return t ? kern_type(t->dtype) : otherwise;
}

static void
put_factors(base_text *text, const kern_words_call *c, const char *no_scale,
            const char *no_zero)
{
    base_text_add(text, "%d, %" PRId64 ", %" PRId64 ", %s, %s", c->bits, c->k,
                  c->group, type_of(c->scale, no_scale),
                  type_of(c->zero, no_zero));
}

void
kern_words_type(base_text *text, const kern_words_call *c)
{
    base_text_add(text, "words<%s, ", kern_type(c->x->dtype));
    put_factors(text, c, "absent<1>", "absent<0>");
    base_text_add(text, ">");
}

void
kern_words_early(cuda_launch *launch, const kern_words_call *c)
{
    cuda_add_early(launch, c->w);
    if (c->scale)
        cuda_add_early(launch, c->scale);
    if (c->zero)
        cuda_add_early(launch, c->zero);
}

/* Of short rows, a load of each warp, a tile of 8 has too few in flight. */
int
kern_words_tile(const kern_words_call *c, int64_t rows, int64_t blocks)
{
    const bool is_short =
        c->k <= (int64_t)4 * PART * WARPS * kern_words_each(c);
    return is_short && rows >= 2 * KERN_ROW_TILE * blocks ? 2 * KERN_ROW_TILE
                                                          : KERN_ROW_TILE;
}

/* ---- few rows ------------------------------------------------------------ */

static int64_t
blocks_of(const kern_words_call *c)
{
    return c->m == 1 ? KERN_ROW_BLOCKS : BLOCKS;
}

static int
tile_of(const kern_words_call *c, const cuda_props *props)
{
    const int64_t blocks = blocks_of(c) * (int64_t)props->processors;
    return c->m == 1 ? kern_words_tile(c, c->n, blocks)
                     : kern_tile(c->n, c->m, blocks);
}

static int64_t
shared_bytes(const kern_words_call *c, int tile)
{
    const int64_t unit = (int64_t)4 * PART * kern_words_each(c);
    const int64_t row = (c->k + unit - 1) / unit * unit;
    const int64_t pitch = c->m == 1 ? row : row + 32;
    return 2 * c->m * pitch + 8 * WARPS * PART * tile * c->m;
}

static bool
is_factor(const air_tensor *t, const cuda_props *props)
{
    return !t || (kern_is_float(t->dtype) && kern_has_dtype(t->dtype, props) &&
                  driver_is_dense(t));
}

static bool
is_added(const air_tensor *t, const cuda_props *props)
{
    return !t || (kern_is_float(t->dtype) && kern_has_dtype(t->dtype, props));
}

/* What a lane loads at once is of one group. */
bool
kern_words_on(const air_call *call, const cuda_props *props)
{
    const kern_words_call c = kern_words_read(call);
    const int each = kern_words_each(&c);
    return props->capability >= KERN_HALF_CAPABILITY &&
           kern_bytes(c.x->dtype) == 2 && kern_is_float(c.x->dtype) &&
           c.m >= 1 && c.m <= MOST_ROWS && c.n >= 1 && c.k >= each &&
           c.k % each == 0 && c.group % each == 0 && driver_is_dense(c.w) &&
           kern_is_shared(c.n, props) && (c.x->strides[1] == 1 || c.k == 1) &&
           is_factor(c.scale, props) && is_factor(c.zero, props) &&
           is_added(c.bias, props) &&
           shared_bytes(&c, tile_of(&c, props)) <=
               (int64_t)props->shared_bytes &&
           !kern_wide_beats(call, props);
}

void
kern_words_parameters(kern *k, const kern_words_call *c)
{
    kern_tensor(k, kern_type(c->y->dtype), "y", c->y);
    kern_tensor(k, kern_type(c->x->dtype), "x", c->x);
    kern_tensor(k, "u8", "w", c->w);
    if (c->scale)
        kern_tensor(k, kern_type(c->scale->dtype), "scale", c->scale);
    if (c->zero)
        kern_tensor(k, kern_type(c->zero->dtype), "zero", c->zero);
    if (c->bias)
        kern_tensor(k, kern_type(c->bias->dtype), "bias", c->bias);
    kern_body(k);
}

static void
put_factor_row(kern *k, const kern_words_call *c, const air_tensor *t,
               const char *name)
{
    if (t)
        base_text_add(k->text, ", %s + at * %" PRId64, name, c->groups);
    else
        base_text_add(k->text, ", 0");
}

void
kern_words_sum(kern *k, const kern_words_call *c)
{
    if (c->bias)
        base_text_add(k->text,
                      "            v += (decltype(v))get(bias[n * %" PRId64
                      "]);\n",
                      kern_stride(c->bias, 0));
    kern_put_sum(k, c->y, 0);
}

void
kern_words_row(kern *k, const kern_words_call *c)
{
    base_text_add(k->text,
                  "            const s64 at = n < %" PRId64 " ? n : %" PRId64
                  ";\n"
                  "            return W::pointer{w + at * %" PRId64,
                  c->n, c->n - 1, c->k * c->bits / 8);
    put_factor_row(k, c, c->scale, "scale");
    put_factor_row(k, c, c->zero, "zero");
    base_text_add(k->text, "};\n        },\n");
}

static void
put_product(kern *k, const kern_words_call *c, int tile)
{
    const char *type = kern_type(c->x->dtype);
    const int64_t x_row = kern_stride(c->x, 0);
    base_text_add(k->text, "    typedef ");
    kern_words_type(k->text, c);
    base_text_add(k->text,
                  " W;\n    typedef skinny<%s, %" PRId64 ", %" PRId64
                  ", %d, %d, %d, W> G;\n"
                  "    G::run(%" PRId64 ", %s && aligned(w) && aligned(x),\n",
                  type, c->m, c->k, tile, PART, KERN_WORDS_DEPTH,
                  (c->n + tile - 1) / tile, x_row % 8 == 0 ? "true" : "false");
    base_text_add(k->text,
                  "        [&](int tile, int i) {\n"
                  "            const s64 n = tile * %d + i;\n",
                  tile);
    kern_words_row(k, c);
    kern_stage(k, c->x, c->m, c->k, x_row, tile, c->n);
    kern_words_sum(k, c);
}

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

air_status
kern_words(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const kern_words_call c = kern_words_read(call);
    const int tile = tile_of(&c, props);
    const int64_t shared = shared_bytes(&c, tile);
    const int64_t room = (int64_t)props->shared_bytes / shared;
    kern k = kern_begin(out, kern_text_words, "");
    kern_words_parameters(&k, &c);
    put_product(&k, &c, tile);
    kern_words_early(k.launch, &c);
    kern_grid(&k,
              least((c.n + tile - 1) / tile,
                    least(room, blocks_of(&c)) * (int64_t)props->processors),
              1, (uint32_t)shared);
    return AIR_OK;
}

/* ---- any sizes: made of floats first ------------------------------------- */

static void
put_workspace(kern *k, int dtype, const char *name, int64_t at)
{
    base_text_add(k->text, "%s%s *%s", k->some ? ", " : "", kern_type(dtype),
                  name);
    k->some = true;
    cuda_add_workspace(k->launch, at);
}

void
kern_unpack(const kern_words_call *c, int dtype, int64_t at,
            const cuda_props *props, cuda_source *out)
{
    const int64_t total = c->n * c->k, blocks = (total / 8 + 255) / 256;
    kern k = kern_begin(out, kern_text_unpack, "");
    put_workspace(&k, dtype, "y", at);
    kern_tensor(&k, "u8", "w", c->w);
    if (c->scale)
        kern_tensor(&k, kern_type(c->scale->dtype), "scale", c->scale);
    if (c->zero)
        kern_tensor(&k, kern_type(c->zero->dtype), "zero", c->zero);
    kern_body(&k);
    base_text_add(k.text, "    unpack_rows<%s, ", kern_type(dtype));
    put_factors(k.text, c, "float", "float");
    base_text_add(k.text, ">(y, w, %s, %s, %" PRId64 ");\n}\n",
                  c->scale ? "scale" : "0", c->zero ? "zero" : "0", total);
    kern_grid(&k, least(blocks + 1, (int64_t)props->processors * 8), 1, 0);
}

/* How the weight is made: in the dtype of x where that is exact, or allowed. */
typedef struct {
    kern_words_call made; /* without what is done behind the product */
    int dtype;
    bool matrix; /* on the matrix units */
} form;

static form
form_of(const kern_words_call *c)
{
    const bool half = kern_bytes(c->x->dtype) == 2;
    form f = {.made = *c, .dtype = c->x->dtype == AIR_F64 ? AIR_F64 : AIR_F32};
    if (half && c->groups == 1 && !c->zero)
        f.made.scale = NULL;
    f.matrix = half && (!f.made.scale ? !c->zero : c->rounded);
    if (f.matrix)
        f.dtype = c->x->dtype;
    return f;
}

bool
kern_unpacked_on(const air_call *call, const cuda_props *props)
{
    const kern_words_call c = kern_words_read(call);
    return kern_is_float(c.x->dtype) && kern_has_dtype(c.x->dtype, props) &&
           c.k >= 1 && c.group >= 1 && c.k <= INT32_MAX &&
           (c.n + 63) / 64 <= KERN_MOST_Y && driver_is_dense(c.w) &&
           is_factor(c.scale, props) && is_factor(c.zero, props) &&
           is_added(c.bias, props);
}

size_t
kern_unpacked_workspace(const air_call *call, const cuda_props *props)
{
    const kern_words_call c = kern_words_read(call);
    (void)props;
    return (size_t)(c.n * c.k) * kern_bytes(form_of(&c).dtype);
}

static void
put_unpacked_parameters(kern *k, const kern_words_call *c, const form *f)
{
    kern_tensor(k, kern_type(c->y->dtype), "y", c->y);
    kern_tensor(k, kern_type(c->x->dtype), "x", c->x);
    put_workspace(k, f->dtype, "w", 0);
    if (f->made.scale != c->scale)
        kern_tensor(k, kern_type(c->scale->dtype), "scale", c->scale);
    if (c->bias)
        kern_tensor(k, kern_type(c->bias->dtype), "bias", c->bias);
    kern_body(k);
}

static void
put_operands(kern *k, const kern_words_call *c, const form *f)
{
    const int64_t row = kern_stride(c->x, 0), depth = kern_stride(c->x, 1);
    base_text_add(
        k->text,
        "    const operand<%s> ox = {x, %" PRId64 ", %" PRId64 ", %" PRId64
        ", %s && aligned(x)};\n"
        "    const operand<%s> ow = {w, %" PRId64 ", 1, %" PRId64 ", %s};\n",
        kern_type(c->x->dtype), row, depth, c->m,
        depth == 1 && row % 8 == 0 ? "true" : "false", kern_type(f->dtype),
        c->k, c->n, c->k % 8 == 0 ? "true" : "false");
}

air_status
kern_unpacked(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const kern_words_call c = kern_words_read(call);
    const form f = form_of(&c);
    const int64_t big = ((c.m + 127) / 128) * ((c.n + 127) / 128);
    const int tile = f.dtype != AIR_F64 && big >= props->processors ? 128 : 64;
    kern_unpack(&f.made, f.dtype, 0, props, out);
    kern k = kern_begin(out, kern_text_unpack, "");
    put_unpacked_parameters(&k, &c, &f);
    put_operands(&k, &c, &f);
    base_text_add(k.text,
                  "    %s<%s, %d, %d, true, true>::run(ox, ow, %" PRId64 ",\n"
                  "        [&](s64 m, s64 n, %s v) {\n",
                  f.matrix ? "matrix_gemm" : "plain_gemm", kern_type(f.dtype),
                  tile, tile, c.k, f.dtype == AIR_F64 ? "double" : "float");
    if (f.made.scale != c.scale)
        base_text_add(k.text, "            v *= get(scale[n]);\n");
    kern_words_sum(&k, &c);
    kern_grid(&k, (c.m + tile - 1) / tile, (c.n + tile - 1) / tile, 0);
    return AIR_OK;
}
