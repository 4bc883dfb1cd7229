/* Which neighbouring steps driver cuda makes one launch of, and what of their
 * results is still written. */
#include "../cuda/nvrtc.h"
#include "codegen/cuda.h"
#include "driver/cuda/fuse.h"
#include "driver/cuda/touch.h"
#include "test.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 64, N = 64, STEPS = 6, BUFS = 28 };

static const cuda_props h200 = {.capability = 90,
                                .processors = 132,
                                .shared_bytes = 227 * 1024,
                                .isa = "sm_90a"};

/* Steps over slot 0, the arena; weights in slots of their own. */
typedef struct {
    air_step steps[STEPS];
    air_kernel kernels[STEPS];
    air_region regions[STEPS];
    air_rg_buf bufs[STEPS][BUFS];
    air_tensor tensors[STEPS][4];
    air_arg args[STEPS][KERN_WORDS_ARGS];
    size_t count;
} list_case;

static const air_rg_phase one_phase = {AIR_PHASE_ROW, 0, 4};
static const air_rg_node product_nodes[] = {
    {.op = AIR_RG_LOAD, .buf = 0, .a = -1, .b = -1, .c = -1},
    {.op = AIR_RG_LOAD, .buf = 1, .a = -1, .b = -1, .c = -1},
    {.op = AIR_RG_MUL, .buf = -1, .a = 0, .b = 1, .c = -1},
    {.op = AIR_RG_STORE, .buf = 2, .a = 2, .b = -1, .c = -1}};

static const air_rg_phase row_phases[] = {{AIR_PHASE_ROW, 0, 2},
                                          {AIR_PHASE_ROW, 2, 6}};
static const air_rg_node row_nodes[] = {
    {.op = AIR_RG_LOAD, .buf = 0, .a = -1, .b = -1, .c = -1},
    {.op = AIR_RG_REDUCE,
     .reduce = AIR_REDUCE_SUM,
     .buf = 0,
     .a = 0,
     .b = -1,
     .c = -1},
    {.op = AIR_RG_LOAD, .buf = 0, .a = -1, .b = -1, .c = -1},
    {.op = AIR_RG_SCALAR, .buf = 0, .a = -1, .b = -1, .c = -1},
    {.op = AIR_RG_MUL, .buf = -1, .a = 2, .b = 3, .c = -1},
    {.op = AIR_RG_STORE, .buf = 1, .a = 4, .b = -1, .c = -1}};

static air_tensor
matrix(int slot, int64_t offset, int64_t rows, int64_t cols, int64_t rs,
       int64_t cs)
{
    return (air_tensor){.slot = slot,
                        .dtype = AIR_BF16,
                        .rank = 2,
                        .offset = offset,
                        .dims = {rows, cols},
                        .strides = {rs, cs}};
}

/* y = x w: x at one offset of the arena, y at another. */
static void
add_mm(list_case *c, int64_t x, int weight, int64_t y)
{
    const size_t i = c->count++;
    air_tensor *t = c->tensors[i];
    t[0] = matrix(0, x, 1, K, K, 1);
    t[1] = matrix(weight, 0, K, N, 1, K);
    t[2] = matrix(0, y, 1, N, N, 1);
    for (int a = 0; a < 2; a++)
        c->args[i][a] =
            (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &t[a]};
    c->steps[i].call =
        (air_call){.nargs = 2, .nouts = 1, .args = c->args[i], .outs = &t[2]};
    c->kernels[i].provider = cuda_provider_find("mm", &c->steps[i].call, &h200);
    c->steps[i].kernel = &c->kernels[i];
}

/* The same of a weight of 8 bits with so many groups, whose scales lie behind
 * it. */
static void
add_words(list_case *c, int64_t x, int weight, int64_t y, int64_t groups)
{
    const size_t i = c->count++;
    air_tensor *t = c->tensors[i];
    t[0] = matrix(0, x, 1, K, K, 1);
    t[1] = matrix(weight, 0, N, K, K, 1);
    t[1].dtype = AIR_I8;
    t[2] = matrix(weight, N * K, N, groups, groups, 1);
    t[3] = matrix(0, y, 1, N, N, 1);
    for (int a = 0; a < 3; a++)
        c->args[i][a] =
            (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &t[a]};
    c->args[i][5] = (air_arg){.kind = AIR_ARG_INT, .i = 8};
    c->steps[i].call = (air_call){.nargs = KERN_WORDS_ARGS,
                                  .nouts = 1,
                                  .args = c->args[i],
                                  .outs = &t[3]};
    c->kernels[i].provider =
        cuda_provider_find("quantised_mm", &c->steps[i].call, &h200);
    c->steps[i].kernel = &c->kernels[i];
}

/* N numbers at `source` of the arena into row `index` of a cache of N / 16
 * heads, 32 rows and 16 columns, slot 9; the result is slot `to`. */
static void
add_copy(list_case *c, int64_t source, int to)
{
    const size_t i = c->count++;
    air_tensor *t = c->tensors[i];
    t[0] = (air_tensor){.slot = 9,
                        .dtype = AIR_BF16,
                        .rank = 4,
                        .dims = {1, N / 16, 32, 16},
                        .strides = {32 * N, 32 * 16, 16, 1}};
    t[1] = (air_tensor){
        .slot = 8, .dtype = AIR_I64, .rank = 1, .dims = {1}, .strides = {1}};
    t[2] = (air_tensor){.dtype = AIR_BF16,
                        .rank = 4,
                        .offset = source,
                        .dims = {1, N / 16, 1, 16},
                        .strides = {N, 16, 16, 1}};
    t[3] = t[0];
    t[3].slot = to;
    c->args[i][0] = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &t[0]};
    c->args[i][1] = (air_arg){.kind = AIR_ARG_INT, .i = 2};
    c->args[i][2] = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &t[1]};
    c->args[i][3] = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &t[2]};
    c->steps[i].call =
        (air_call){.nargs = 4, .nouts = 1, .args = c->args[i], .outs = &t[3]};
    c->kernels[i].provider =
        cuda_provider_find("index_copy", &c->steps[i].call, &h200);
    c->steps[i].kernel = &c->kernels[i];
}

static air_rg_buf
buf(int64_t offset)
{
    return (air_rg_buf){.dtype = AIR_BF16, .offset = offset, .strides = {1}};
}

static void
add_region(list_case *c, air_region rg, int64_t a, int64_t b, int64_t d)
{
    const size_t i = c->count++;
    c->bufs[i][0] = buf(a), c->bufs[i][1] = buf(b), c->bufs[i][2] = buf(d);
    rg.rank = 1;
    rg.bufs = c->bufs[i];
    c->regions[i] = rg;
    c->kernels[i].region = &c->regions[i];
    c->kernels[i].code.prelude = cuda_prelude;
    c->steps[i].kernel = &c->kernels[i];
}

/* d[i] = a[i] * b[i] of N elements */
static void
add_product(list_case *c, int64_t a, int64_t b, int64_t d)
{
    add_region(c,
               (air_region){.walk = AIR_WALK_MAP,
                            .dims = {N},
                            .nnodes = 4,
                            .nbufs = 3,
                            .nphases = 1,
                            .nodes = product_nodes,
                            .phases = &one_phase},
               a, b, d);
}

/* y = x * sum x, of K elements */
static void
add_row(list_case *c, int64_t x, int64_t y)
{
    add_region(c,
               (air_region){.walk = AIR_WALK_INNER,
                            .dims = {K},
                            .nnodes = 6,
                            .nbufs = 2,
                            .nscalars = 1,
                            .nphases = 2,
                            .nodes = row_nodes,
                            .phases = row_phases},
               x, y, 0);
}

static fuse_group
find(const list_case *c, size_t first)
{
    fuse_group g;
    cuda_fuse_find(c->steps, c->count, first, &g);
    return g;
}

static bool
writes(const fuse_group *g, int step, int64_t offset)
{
    return fuse_is_written(g, step, 0, offset);
}

TEST(cuda_fuse_products_of_one_vector)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_mm(&c, 0, 2, 2000);
    add_mm(&c, 500, 3, 3000); /* another vector */
    const fuse_group g = find(&c, 0);
    CHECK_INT(g.count, 2);
    CHECK_INT(g.nparts, 2);
    CHECK(writes(&g, 0, 1000) && writes(&g, 1, 2000));
    CHECK(find(&c, 2).count < 2);
}

TEST(cuda_fuse_takes_the_region_behind)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_mm(&c, 0, 2, 2000);
    add_product(&c, 1000, 2000, 3000);
    add_product(&c, 3000, 3000, 1000); /* reads, then overwrites what was y */
    add_product(&c, 3000, 3000, 2000);
    const fuse_group g = find(&c, 0);
    REQUIRE(g.count == 3);
    CHECK_INT(g.nparts, 1);
    CHECK_INT(g.parts[0].loads, 2);
    CHECK(!writes(&g, 0, 1000)); /* nobody else wants them */
    CHECK(!writes(&g, 1, 2000));
    CHECK(writes(&g, 2, 3000));
}

TEST(cuda_fuse_writes_what_later_steps_read)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_mm(&c, 0, 2, 2000);
    add_product(&c, 1000, 2000, 3000);
    add_product(&c, 2000, 3000, 4000);
    add_product(&c, 3000, 3000, 1000);
    const fuse_group g = find(&c, 0);
    REQUIRE(g.count == 3);
    CHECK(!writes(&g, 0, 1000));
    CHECK(writes(&g, 1, 2000));
}

TEST(cuda_fuse_takes_the_region_before)
{
    list_case c = {.count = 0};
    add_row(&c, 0, 500);
    add_mm(&c, 500, 1, 1000);
    add_mm(&c, 500, 2, 2000);
    add_product(&c, 1000, 2000, 500); /* over the vector, which is dead then */
    const fuse_group g = find(&c, 0);
    REQUIRE(g.count == 4);
    CHECK_INT(g.before, 1);
    CHECK(!writes(&g, 0, 500));
    CHECK(writes(&g, 3, 500));
}

/* Steps of the group of two products and a region of n buffers: a launch has at
 * most 32 parameters. */
static int
with_buffers(bool words, int16_t n)
{
    list_case c = {.count = 0};
    for (int w = 1; w <= 2; w++)
        if (words)
            add_words(&c, 0, w, w * 1000, 1);
        else
            add_mm(&c, 0, w, w * 1000);
    add_product(&c, 1000, 2000, 3000);
    for (int i = 3; i < n; i++) {
        c.bufs[2][i] = c.bufs[2][0];
        c.bufs[2][i].slot = 20;
    }
    c.regions[2].nbufs = n;
    return find(&c, 0).count;
}

TEST(cuda_fuse_fills_the_parameters_of_a_launch)
{
    CHECK_INT(with_buffers(false, 26), 3);
    CHECK_INT(with_buffers(false, 27), 2);
    CHECK_INT(with_buffers(true, 24), 3); /* two scales */
    CHECK_INT(with_buffers(true, 25), 2);
}

TEST(cuda_fuse_never_writes_what_it_reads)
{
    list_case c = {.count = 0};
    add_row(&c, 0, 500);
    add_mm(&c, 500, 1, 1000);
    add_mm(&c, 500, 2, 2000);
    add_product(&c, 1000, 2000, 64); /* into the row that blocks still read */
    fuse_group g = find(&c, 0);
    CHECK_INT(g.count, 3);
    c.count = 0;
    memset(&c, 0, sizeof c);
    add_mm(&c, 0, 1, 1000);
    add_mm(&c, 0, 2, 64); /* over the vector itself */
    CHECK(find(&c, 0).count < 2);
}

TEST(cuda_fuse_wants_each_result_once)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_product(&c, 1000, 1000, 3000); /* twice */
    CHECK(find(&c, 0).count < 2);
    c.count = 0;
    memset(&c, 0, sizeof c);
    add_mm(&c, 0, 1, 1000);
    add_product(&c, 1002, 5000, 3000); /* one of them and one behind */
    CHECK(find(&c, 0).count < 2);
}

/* Where there is NVRTC. */
static void
check_compiles(const cuda_source *s)
{
    static char log[20000];
    if (!nvrtc_possible())
        return;
    const size_t size = strlen(s->prelude) + s->text.len + 100;
    char *text = malloc(size);
    (void)snprintf(text, size, "%s\n#define ENTRY(i) k_##i\n%s", s->prelude,
                   s->text.data);
    if (!nvrtc_compile(text, log, sizeof log))
        test_fail(__FILE__, __LINE__, "%s", log);
    free(text);
}

TEST(cuda_fuse_prints_what_compiles)
{
    list_case c = {.count = 0};
    cuda_source s = {.nlaunches = 0};
    add_row(&c, 0, 500);
    add_mm(&c, 500, 1, 1000);
    add_mm(&c, 500, 2, 2000);
    add_product(&c, 1000, 2000, 3000);
    const fuse_group g = find(&c, 0);
    REQUIRE(g.count == 4);
    base_text_init(&s.text, &base_libc_alloc);
    CHECK_OK(cuda_fuse_print(&g, &h200, &s));
    CHECK_INT(s.nlaunches, 1);
    CHECK_INT(s.launches[0].nparams, 2 + 2 + 2 + 3);
    CHECK_INT(s.launches[0].shape.grid[0], 2 * N / 8); /* tiles of 8 rows */
    check_compiles(&s);
    base_text_deinit(&s.text);
}

/* Its text, compiled where there is NVRTC; has(what): is it part of it? */
static bool
print_has(const fuse_group *g, const char *what)
{
    cuda_source s = {.nlaunches = 0};
    base_text_init(&s.text, &base_libc_alloc);
    CHECK_OK(cuda_fuse_print(g, &h200, &s));
    const bool found = strstr(s.text.data, what) != NULL;
    check_compiles(&s);
    base_text_deinit(&s.text);
    return found;
}

TEST(cuda_fuse_copies_results_into_a_cache)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_mm(&c, 0, 2, 2000);
    add_copy(&c, 2000, 9);
    add_product(&c, 1000, 1000, 1000); /* nobody wants what was copied */
    add_product(&c, 1000, 1000, 2000);
    const fuse_group g = find(&c, 0);
    REQUIRE(g.count == 3);
    REQUIRE(g.ncopies == 1);
    CHECK_INT(g.copies[0].from, 1);
    CHECK(!writes(&g, 1, 2000));
    CHECK(fuse_is_written(&g, 2, 9, 0));
    CHECK(print_has(&g, "const bool ok = inside(j, 32, bad);"));
    CHECK(print_has(&g, "ok, 0 + (s64)(e / 1 % 16) * 1 + "
                        "(s64)(e / 16 % 4) * 512, j, 16, "));
}

TEST(cuda_fuse_copies_what_a_region_makes)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_product(&c, 1000, 5000, 3000);
    add_copy(&c, 3000, 9);
    const fuse_group g = find(&c, 0);
    REQUIRE(g.count == 3);
    CHECK_INT(g.copies[0].from, 1);
    CHECK(writes(&g, 1, 3000)); /* the list ends: it may be wanted */
    CHECK(print_has(&g, "= v;"));
}

/* What lies 2^27 elements apart is counted in 64 bits. */
TEST(cuda_fuse_reads_what_is_far_apart)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_product(&c, 1000, 0, 3000);
    c.bufs[1][1].slot = 20;
    c.bufs[1][1].strides[0] = 1 << 27;
    const fuse_group g = find(&c, 0);
    REQUIRE(g.count == 2);
    CHECK(print_has(&g, "[0 + c0 * 134217728ll]"));
    CHECK(print_has(&g, "[0 + c0 * 1]"));
}

/* Tiles of all weights of a launch are counted in 32 bits. */
TEST(cuda_fuse_leaves_endless_weights_alone)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_mm(&c, 0, 2, 2000);
    CHECK_INT(find(&c, 0).count, 2);
    c.tensors[1][1].dims[1] = c.tensors[1][2].dims[1] = (1 << 22) + 1;
    CHECK(find(&c, 0).count < 2);
}

TEST(cuda_fuse_leaves_other_copies_alone)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_copy(&c, 1000, 7); /* not in place: the rest is copied too */
    CHECK(find(&c, 0).count < 2);
    memset(&c, 0, sizeof c);
    add_mm(&c, 0, 1, 1000);
    add_copy(&c, 1002, 9); /* one number is of somebody else */
    CHECK(find(&c, 0).count < 2);
    memset(&c, 0, sizeof c);
    add_mm(&c, 0, 9, 1000); /* the weight is the cache */
    add_copy(&c, 1000, 9);
    CHECK(find(&c, 0).count < 2);
}

/* Two rows of one cache: what the second leaves of the first stays. */
TEST(cuda_fuse_keeps_both_copies_into_one_cache)
{
    list_case c = {.count = 0};
    add_mm(&c, 0, 1, 1000);
    add_mm(&c, 0, 2, 2000);
    add_copy(&c, 1000, 9);
    add_copy(&c, 2000, 9);
    const fuse_group g = find(&c, 0);
    for (int i = 0; i < g.ncopies; i++)
        CHECK(fuse_is_written(&g, g.copies[i].step, 9, 0));
    CHECK_INT(g.ncopies, 1); /* they are in order: one launch each */
}

/* ---- what is read before the kernel waits -------------------------------- */

/* Is the pointer's place among the spans that the launch lists? */
static bool
is_listed(const cuda_launch *l, int pointer)
{
    const cuda_param *p = &l->params[pointer];
    for (int i = 0; i < l->nearly; i++)
        if (l->early[i].slot == p->slot && l->early[i].begin <= p->value &&
            p->value < l->early[i].end)
            return true;
    return false;
}

/* `row` and `ahead` of a text run before it waits: every pointer they name must
 * be listed. Gives how many names there are. */
static int
check_early(const cuda_source *s, const char *begin, const char *end)
{
    int names = 0;
    for (const char *at = begin; at && at < end; at++) {
        int pointer;
        if (*at != 'p' || (at > begin && (isalnum(at[-1]) || at[-1] == '_')) ||
            sscanf(at, "p%d", &pointer) != 1)
            continue;
        names++;
        if (!is_listed(&s->launches[0], pointer))
            test_fail(__FILE__, __LINE__, "p%d is read early, not listed\n%s",
                      pointer, s->text.data);
    }
    return names;
}

static void
check_group(const list_case *c, size_t first, int least)
{
    const fuse_group g = find(c, first);
    cuda_source s = {.nlaunches = 0};
    REQUIRE(g.count > 1);
    base_text_init(&s.text, &base_libc_alloc);
    CHECK_OK(cuda_fuse_print(&g, &h200, &s));
    const char *row = strstr(s.text.data, "auto row ");
    const char *stage = strstr(s.text.data, "auto stage ");
    REQUIRE(row && stage && row < stage);
    CHECK(check_early(&s, row, stage) >= least);
    base_text_deinit(&s.text);
}

TEST(cuda_fuse_lists_all_that_is_read_early)
{
    list_case c = {.count = 0};
    add_row(&c, 0, 500);
    add_mm(&c, 500, 1, 1000);
    add_mm(&c, 500, 2, 2000);
    add_product(&c, 1000, 2000, 3000);
    check_group(&c, 0, 3);
    memset(&c, 0, sizeof c);
    add_mm(&c, 600, 1, 0); /* makes the row */
    add_row(&c, 0, 500);
    add_mm(&c, 500, 2, 1000);
    check_group(&c, 1, 1);
    memset(&c, 0, sizeof c);
    add_mm(&c, 0, 1, 1000);
    add_product(&c, 1000, 5000, 3000);
    add_copy(&c, 3000, 9);
    check_group(&c, 0, 1);
    memset(&c, 0, sizeof c);
    add_row(&c, 0, 500);
    add_words(&c, 500, 1, 1000, 2);
    add_words(&c, 500, 2, 2000, 2);
    add_product(&c, 1000, 2000, 3000);
    check_group(&c, 0, 4); /* scales, too */
}

/* A text knows one way in which weights are stored. */
TEST(cuda_fuse_takes_weights_that_are_stored_alike)
{
    list_case c = {.count = 0};
    add_words(&c, 0, 1, 1000, 2);
    add_words(&c, 0, 2, 2000, 2);
    add_words(&c, 0, 3, 3000, 1);
    CHECK_INT(find(&c, 0).count, 2);
    memset(&c, 0, sizeof c);
    add_mm(&c, 0, 1, 1000);
    add_words(&c, 0, 2, 2000, 1);
    CHECK_INT(find(&c, 0).count, 1);
}

/* The weight of a norm is asked for early, a row that was made is not. */
TEST(cuda_fuse_asks_early_for_what_nobody_writes)
{
    list_case c = {.count = 0};
    cuda_source s = {.nlaunches = 0};
    add_mm(&c, 600, 1, 0); /* makes the row */
    add_row(&c, 0, 500);
    add_mm(&c, 500, 2, 1000);
    fuse_group g = find(&c, 1);
    REQUIRE(g.count == 2);
    base_text_init(&s.text, &base_libc_alloc);
    CHECK_OK(cuda_fuse_print(&g, &h200, &s));
    CHECK_INT(s.launches[0].nearly, 1); /* the weight */
    g.older = 0; /* without the first step nothing writes it */
    s.nlaunches = 0;
    CHECK_OK(cuda_fuse_print(&g, &h200, &s));
    CHECK_INT(s.launches[0].nearly, 2);
    base_text_deinit(&s.text);
}

/* ---- what is left of a span ---------------------------------------------- */

/* A cut in the first of as many pieces as there is room for makes one more. */
TEST(cuda_touch_keeps_all_pieces_or_says_so)
{
    cuda_remains r = {.count = 1, .piece = {{0, 0, 1000}}};
    for (int i = 1; i < CUDA_PIECES; i++)
        CHECK(cuda_remains_cut(&r, &(cuda_span){0, i * 100, i * 100 + 10}));
    REQUIRE(r.count == CUDA_PIECES);
    CHECK(!cuda_remains_cut(&r, &(cuda_span){0, 40, 50}));
    CHECK_INT(r.count, CUDA_PIECES);
    CHECK(cuda_remains_cut(&r, &(cuda_span){0, 0, 100}));
    CHECK_INT(r.count, CUDA_PIECES - 1);
    CHECK(cuda_remains_meet(&r, &(cuda_span){0, 999, 1000}));
}

static air_status
print_all(const air_alloc *alloc, void *user)
{
    cuda_source s = {.nlaunches = 0};
    base_text_init(&s.text, alloc);
    const air_status status = cuda_fuse_print(user, &h200, &s);
    base_text_deinit(&s.text);
    return status;
}

TEST(cuda_fuse_oom)
{
    list_case c = {.count = 0};
    add_row(&c, 0, 500);
    add_mm(&c, 500, 1, 1000);
    fuse_group g = find(&c, 0);
    REQUIRE(g.count == 2);
    TEST_OOM(print_all, &g);
}
