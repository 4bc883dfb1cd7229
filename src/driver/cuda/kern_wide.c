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
    PART = 64,         /* numbers of a row that are multiplied together */
    MOST_ROWS = 256,   /* of a tile of x */
    MOST_WAITING = 64, /* the same by instructions that are waited for */
    MOST_PARTS = 8,    /* blocks of a cluster */
    MOST_STAGES = 12,
    RESERVED = 1024, /* shared memory that CUDA takes of each block */
    CLUSTERS = 90,   /* compute capability */
    LEAST = 4        /* stages: two are read, two on their way */
};

/* Rows of a tile of x; blocks that share the registers of an SM; with 8 and 4
 * bits, STEP of the text for chunks, whose x is copied word by word: it is
 * worth that for few rows (0: not). H200, 14336 x 4096, us of a launch with
 * chunks and without: 8 bits, 32 rows 24.9 and 29.6, 64 rows 32.8 and 29.8; 4
 * bits in groups of 32, 64 rows 33.2 and 37.9, 128 rows 56.8 and 47.6. 16 rows
 * of 4 bits by steps of 256 and of 128: 23.8 and 27.7. */
static const struct {
    int rows, side, steps[2];
} tiles[] = {{16, 2, {128, 256}},
             {32, 2, {128, 128}},
             {64, 2, {0, 128}},
             {128, 2, {0, 0}},
             {256, 1, {0, 0}}};
enum { TILES = sizeof tiles / sizeof *tiles };

typedef struct {
    int rows, side, step, parts, stages;
    bool chunks, sums, early, async; /* of the text */
    int64_t stage;                   /* bytes */
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

static int64_t
count_blocks(const kern_words_call *c, const form *f)
{
    return ratio(c->n, TILE) * ratio(c->m, f->rows) * f->parts;
}

/* Where each SM has one block of two that it has room for, the next kernel
 * would put two on an SM that has none, and take as long as those. H200,
 * 2048 x 8192, 64 rows of 8 and 4 bits, us: 16.4 and 17.4 where it begins at
 * once, 11.9 and 13.2 where it begins late, 13.6 and 13.6 one after another. */
static bool
begins_early(const kern_words_call *c, const form *f, const cuda_props *props)
{
    return f->side == 1 || count_blocks(c, f) > props->processors;
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

/* In a unit of its own. A part with m rows of x takes as long as making the
 * numbers of w, and longer by each row: 130 + m (on an H200 380 ns with 16
 * rows, 570 with 128, 980 with 256). Beginning and end are as long as some
 * parts. Clusters of more than two blocks do not fill all SMs. */
static int64_t
cost(const kern_words_call *c, const form *f, const cuda_props *props)
{
    const int64_t all = (int64_t)f->side * props->processors;
    const int64_t room = f->parts > 2 && all >= 8 ? all * 7 / 8 : all;
    return load(count_blocks(c, f), room, f, props) *
           (ratio(ratio(c->k, PART), f->parts) + 6) * (130 + f->rows);
}

static bool
fits(form *f, const kern_words_call *c, const cuda_props *props, int step)
{
    const int64_t all = (int64_t)props->shared_bytes;
    const int64_t room = f->side == 1 ? all : (all + RESERVED) / 2 - RESERVED;
    const int gap = step > 0 ? 0 : 16;
    f->chunks = step > 0;
    f->step = f->chunks ? step : PART;
    f->stage = f->rows * 2 * f->step + TILE * (f->step * c->bits / 8 + gap);
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

/* Chunks take more memory: of some GPUs too much. */
static bool
take_tile(form *f, const kern_words_call *c, const cuda_props *props, int i)
{
    const int step = f->sums ? 0 : tiles[i].steps[c->bits == 4];
    f->rows = tiles[i].rows, f->side = tiles[i].side;
    return may_have(c, f, most_rows(f)) &&
           (fits(f, c, props, step) || fits(f, c, props, 0));
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
        if (!take_tile(&f, c, props, i))
            continue;
        for (f.parts = 1; f.parts <= parts; f.parts *= 2) {
            const int64_t found = cost(c, &f, props);
            if (found >= best || f.parts > ratio(c->k, f.step))
                continue;
            best = found;
            *out = f;
            out->early = begins_early(c, &f, props);
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
 * that four lanes load side by side. H200, 4096 x 14336, us: 16 rows of 8 bits
 * 24.9 and here 20.2; 4 bits in groups of 32, 4 rows 19, 8 rows 36.8, here 22;
 * in groups of 64, 8 rows 21, 16 rows 41; in groups of 128, 16 rows 25. Where
 * sums are weighed this takes 36. */
bool
kern_wide_beats(const air_call *call, const cuda_props *props)
{
    const kern_words_call c = kern_words_read(call);
    const int64_t loads = c.groups > 1 ? c.group / kern_words_each(&c) : 4;
    const int64_t split = loads % 4 == 0 ? 1 : loads % 2 == 0 ? 2 : 4;
    form f;
    if (c.m == 1 || !kern_wide_on(call, props) || !choose(&c, props, &f))
        return false;
    return f.async && c.m * split >= (f.sums ? 32 : split == 1 ? 16 : 20);
}

static const char *
truth(bool b)
{
    return b ? "true" : "false";
}

static void
put_type(kern *k, const kern_words_call *c, const form *f)
{
    base_text_add(k->text, "    typedef ");
    kern_words_type(k->text, c);
    base_text_add(k->text,
                  " W;\n    typedef wide<%s, %d, %d, %" PRId64
                  ", %d, %d, W, %s, %s, %s, %s> G;\n"
                  "    const s64 m0 = blockIdx.x / %d * %dll, n0 = blockIdx.y "
                  "* %dll;\n",
                  kern_type(c->x->dtype), f->rows, f->step, c->k, f->parts,
                  f->stages, truth(f->chunks), truth(f->sums), truth(f->early),
                  truth(f->async), f->parts, f->rows, TILE);
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
