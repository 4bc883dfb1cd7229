/* Which neighbouring steps driver cuda makes one launch of, and what of their
 * results is still written. */
#include "../cuda/nvrtc.h"
#include "codegen/cuda.h"
#include "driver/cuda/fuse.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 64, N = 64, STEPS = 6 };

static const cuda_props h200 = {.capability = 90,
                                .processors = 132,
                                .shared_bytes = 227 * 1024,
                                .isa = "sm_90a"};

/* Steps over slot 0, the arena; weights in slots of their own. */
typedef struct {
    air_step steps[STEPS];
    air_kernel kernels[STEPS];
    air_region regions[STEPS];
    air_rg_buf bufs[STEPS][3];
    air_tensor tensors[STEPS][3];
    air_arg args[STEPS][2];
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

TEST(cuda_fuse_prints_what_compiles)
{
    static char log[20000];
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
    if (nvrtc_possible()) {
        char *text = malloc(strlen(s.prelude) + s.text.len + 100);
        (void)snprintf(text, strlen(s.prelude) + s.text.len + 100,
                       "%s\n#define ENTRY(i) k_##i\n%s", s.prelude,
                       s.text.data);
        if (!nvrtc_compile(text, log, sizeof log))
            test_fail(__FILE__, __LINE__, "%s", log);
        free(text);
    }
    base_text_deinit(&s.text);
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
