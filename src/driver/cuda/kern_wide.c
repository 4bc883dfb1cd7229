/* kern_wide.c: products of many rows with weights of 8 and 4 bits, read as they
 * lie: text/wide.cuh. Its tile of x has so many rows that the weight is read,
 * and made numbers of x's dtype, once; for more rows than a tile may have,
 * making it in memory for cuBLASLt costs less. */
#include "driver/cuda/kern_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    TILE = 128,        /* rows of w: TN of the text */
    STEP = 64,         /* numbers of a row at a time */
    MOST_ROWS = 256,   /* of a tile of x */
    MOST_WAITING = 64, /* the same by instructions that are waited for */
    MOST_PARTS = 8,    /* blocks of a cluster */
    MOST_STAGES = 12,
    RESERVED = 1024, /* shared memory that CUDA takes of each block */
    CLUSTERS = 90,   /* compute capability */
    LEAST = 4        /* stages: two are read, two on their way */
};

/* Rows of a tile of x; blocks that share the registers of an SM. */
static const struct {
    int rows, side;
} tiles[] = {{16, 2}, {32, 2}, {64, 2}, {128, 2}, {256, 1}};
enum { TILES = sizeof tiles / sizeof *tiles };

typedef struct {
    int rows, side, parts, stages;
    bool sums, async; /* SUMS and ASYNC of the text */
    int64_t stage;    /* bytes */
} form;

static bool
is_grouped(const kern_words_call *c)
{
    return c->groups > 1 || c->zero;
}

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
ratio(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* How many blocks the busiest SM has one after another, in quarters, where
 * `room` are there at once, `side` on each. One that is alone leaves gaps. */
static int64_t
load(int64_t blocks, int64_t room, const form *f, const cuda_props *props)
{
    static const int quarters[] = {0, 5, 8};
    return quarters[f->side] * (blocks / room) +
           quarters[ratio(blocks % room, props->processors)];
}

/* In a unit of its own. A step with m rows of x takes as long as making the
 * numbers of w, and longer by each row: 130 + m (on an H200 380 ns with 16
 * rows, 570 with 128, 980 with 256). Beginning and end are as long as some
 * steps. Clusters of more than two blocks do not fill all SMs. */
static int64_t
cost(const kern_words_call *c, const form *f, const cuda_props *props)
{
    const int64_t all = (int64_t)f->side * props->processors;
    const int64_t room = f->parts > 2 && all >= 8 ? all * 7 / 8 : all;
    const int64_t blocks = ratio(c->n, TILE) * ratio(c->m, f->rows) * f->parts;
    return load(blocks, room, f, props) *
           (ratio(ratio(c->k, STEP), f->parts) + 6) * (130 + f->rows);
}

static bool
fits(form *f, const kern_words_call *c, const cuda_props *props)
{
    const int64_t all = (int64_t)props->shared_bytes;
    const int64_t room = f->side == 1 ? all : (all + RESERVED) / 2 - RESERVED;
    f->stage = f->rows * 128 + TILE * (STEP * c->bits / 8 + 16);
    f->stages = (int)least(room / f->stage, MOST_STAGES);
    return f->stages >= LEAST;
}

/* Sums of groups take registers of their own. */
static bool
may_have(const kern_words_call *c, const form *f, int64_t most)
{
    const int sums = c->zero ? 16 : 32;
    return f->rows <= (f->sums ? sums : most) &&
           (f->rows == tiles[0].rows || 2 * c->m > f->rows);
}

static int64_t
most_rows(const form *f)
{
    return f->async ? MOST_ROWS : MOST_WAITING;
}

/* False: there is none. */
static bool
choose(const kern_words_call *c, const cuda_props *props, form *out)
{
    const int parts = props->capability >= CLUSTERS ? MOST_PARTS : 1;
    form f = {.sums = is_grouped(c) && !c->rounded,
              .async = strcmp(props->isa, "sm_90a") == 0};
    int64_t best = INT64_MAX;
    for (int i = 0; i < TILES; i++) {
        f.rows = tiles[i].rows, f.side = tiles[i].side;
        if (!may_have(c, &f, most_rows(&f)) || !fits(&f, c, props))
            continue;
        for (f.parts = 1; f.parts <= parts; f.parts *= 2) {
            const int64_t found = cost(c, &f, props);
            if (found >= best || f.parts > ratio(c->k, STEP))
                continue;
            best = found;
            *out = f;
        }
    }
    return best < INT64_MAX;
}

/* Pieces of 16 bytes are of whole rows, products of 16 numbers of one group. */
bool
kern_wide_on(const air_call *call, const cuda_props *props)
{
    const kern_words_call c = kern_words_read(call);
    const int each = kern_words_each(&c);
    form f;
    if (props->capability < KERN_HALF_CAPABILITY ||
        kern_bytes(c.x->dtype) != 2 || !kern_is_float(c.x->dtype) || c.m < 1 ||
        c.n < 1 || c.k < each || c.k % each != 0 || c.group % 16 != 0 ||
        (c.x->strides[1] != 1 && c.k != 1) || c.k > INT32_MAX / 2 ||
        ratio(c.n, TILE) > KERN_MOST_Y || !kern_unpacked_on(call, props))
        return false;
    return choose(&c, props, &f) &&
           (c.m <= most_rows(&f) || !cuda_words_on(call, props));
}

/* Products of skinny.cuh have a column for each row of x in each of the groups
 * that four lanes load side by side, 32 of them at the price of this (H200,
 * 4096 x 14336, 4 bits in groups of 32: 8 rows 36.7 and 36.0 us, 16 rows 73.7).
 */
bool
kern_wide_beats(const air_call *call, const cuda_props *props)
{
    const kern_words_call c = kern_words_read(call);
    const int64_t loads = c.groups > 1 ? c.group / kern_words_each(&c) : 4;
    const int64_t split = loads % 4 == 0 ? 1 : loads % 2 == 0 ? 2 : 4;
    form f;
    return c.m > 1 && c.m * split >= 32 && kern_wide_on(call, props) &&
           choose(&c, props, &f) && f.async;
}

static void
put_type(kern *k, const kern_words_call *c, const form *f)
{
    base_text_add(k->text, "    typedef ");
    kern_words_type(k->text, c);
    base_text_add(k->text,
                  " W;\n    typedef wide<%s, %d, %" PRId64
                  ", %d, %d, W, %s, %s> G;\n"
                  "    const s64 m0 = blockIdx.x / %d * %dll, n0 = blockIdx.y "
                  "* %dll;\n",
                  kern_type(c->x->dtype), f->rows, c->k, f->parts, f->stages,
                  f->sums ? "true" : "false", f->async ? "true" : "false",
                  f->parts, f->rows, TILE);
}

static void
put_rows(kern *k, const kern_words_call *c)
{
    const int64_t row = kern_stride(c->x, 0);
    base_text_add(k->text,
                  "    G::run(%s && aligned(w) && aligned(x),\n"
                  "        [&](int i) {\n"
                  "            const s64 n = n0 + i;\n",
                  row % 8 == 0 ? "true" : "false");
    kern_words_row(k, c);
    base_text_add(k->text,
                  "        [&](int i) {\n"
                  "            const s64 m = m0 + i;\n"
                  "            return x + (m < %" PRId64 " ? m : %" PRId64
                  ") * %" PRId64 ";\n        },\n"
                  "        [&](int i, int j, float v) {\n"
                  "            const s64 m = m0 + i, n = n0 + j;\n"
                  "            if (m >= %" PRId64 " || n >= %" PRId64
                  ")\n                return;\n",
                  c->m, c->m - 1, row, c->m, c->n);
    if (c->scale && !is_grouped(c))
        base_text_add(k->text, "            v *= get(scale[n]);\n");
}

air_status
kern_wide(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const kern_words_call c = kern_words_read(call);
    char attribute[40] = "";
    form f;
    if (!choose(&c, props, &f))
        AIR_FAIL(AIR_ERROR_UNSUPPORTED, "not a product of text/wide.cuh");
    if (f.parts > 1)
        (void)snprintf(attribute, sizeof attribute,
                       "__cluster_dims__(%d, 1, 1) ", f.parts);
    kern k = kern_begin_side(out, kern_text_wide, attribute, f.side);
    kern_words_parameters(&k, &c);
    put_type(&k, &c, &f);
    put_rows(&k, &c);
    kern_words_sum(&k, &c);
    cuda_add_early(k.launch, c.w);
    kern_grid(&k, ratio(c.m, f.rows) * f.parts, ratio(c.n, TILE),
              (uint32_t)(f.stages * f.stage));
    return AIR_OK;
}
