/* A region on the lines of a product or a convolution: the bits of the kernel
 * and the region one after the other. */
#include "kernel_case.h"

#include "codegen/codegen.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/region/region_join.h"
#include "driver/driver.h"

#include <string.h>

enum { PRODUCT = 8, OTHER, COLUMN, RESULT, ARENA }; /* tensors, behind args */

typedef struct {
    kernel_case c;
    air_device *dev;
    air_call call;
    air_region region;
    air_rg_node nodes[8];
    air_rg_buf bufs[4];
    air_rg_phase phase;
    void *slots[CASE_TENSORS + 1];
} join_case;

/* (product + other) * column on `rows` x `cols`; the column varies along
 * `axis`. */
static void
make_region(join_case *j, int64_t rows, int64_t cols, int axis, int dtype)
{
    kernel_case *c = &j->c;
    const int64_t dims[2] = {rows, cols};
    const int tensors[] = {0, OTHER, COLUMN, RESULT};
    c->count = OTHER;
    kcase_tensor(c, dtype, 2, dims, NULL, 0, 0);
    kcase_tensor(c, dtype, 1, &dims[axis], NULL, 0, 0);
    kcase_tensor(c, dtype, 2, dims, NULL, 0, 0);
    for (int i = 0; i < 4; i++)
        j->bufs[i] =
            (air_rg_buf){.slot = i == 0 ? PRODUCT : tensors[i],
                         .dtype = (uint8_t)dtype,
                         .offset = c->t[i == 0 ? PRODUCT : tensors[i]].offset,
                         .strides = {cols, 1}};
    j->bufs[2].strides[0] = axis == 0;
    j->bufs[2].strides[1] = axis == 1;
    for (int i = 0; i < 3; i++)
        j->nodes[i] = (air_rg_node){.op = AIR_RG_LOAD,
                                    .lane = AIR_LANE_F32,
                                    .buf = (int16_t)i,
                                    .a = -1,
                                    .b = -1,
                                    .c = -1};
    j->nodes[3] = (air_rg_node){AIR_RG_ADD, AIR_LANE_F32, 0, -1, 0, 1, -1, {0}};
    j->nodes[4] = (air_rg_node){AIR_RG_MUL, AIR_LANE_F32, 0, -1, 3, 2, -1, {0}};
    j->nodes[5] =
        (air_rg_node){AIR_RG_STORE, AIR_LANE_F32, 0, 3, 4, -1, -1, {0}};
    j->phase = (air_rg_phase){AIR_PHASE_ROW, 0, 6};
    j->region = (air_region){.walk = AIR_WALK_MAP,
                             .rank = 2,
                             .nnodes = 6,
                             .nbufs = 4,
                             .nphases = 1,
                             .dims = {rows, cols},
                             .nodes = j->nodes,
                             .bufs = j->bufs,
                             .phases = &j->phase};
}

static void
run_steps(join_case *j, air_step *steps, size_t count, size_t workspace)
{
    air_list *list;
    void *memory = kcase_new(workspace + 64);
    memcpy(j->slots, j->c.slots, sizeof j->slots);
    j->slots[ARENA] = memory;
    for (size_t i = 0; i < count; i++) {
        steps[i].workspace_slot = ARENA;
        steps[i].cost = 1 << 30;
    }
    REQUIRE_OK(air_driver_cpu.list_make(j->dev, steps, count, &list));
    CHECK_OK(air_driver_cpu.list_run(j->dev, list, j->slots));
    air_driver_cpu.list_free(j->dev, list);
    kcase_free(memory, workspace + 64);
}

static air_step
make_step(const join_case *j, const air_kernel *kernel, const air_call *call)
{
    return (air_step){.kernel = kernel,
                      .call = *call,
                      .workspace =
                          air_driver_cpu.workspace(j->dev, kernel, call)};
}

static void
tensor_copy(kernel_case *c, int tensor, void *copy, bool back)
{
    memcpy(back ? c->slots[tensor] : copy, back ? copy : c->slots[tensor],
           c->sizes[tensor]);
}

/* false: the driver refused to join, or the bits differ. */
static bool
compare(join_case *j, const char *name, const air_code *code, bool keep)
{
    kernel_case *c = &j->c;
    const air_driver *d = &air_driver_cpu;
    const air_kernel *first, *region, *both;
    const air_call none = {.extra = NULL};
    bool same = false;
    if (!CHECK_OK(d->kernel_find(j->dev, name, &j->call, &first)) ||
        !CHECK_OK(d->kernel_make(j->dev, &j->region, code, &region)) ||
        !CHECK_OK(d->kernel_join(j->dev, first, &j->call, &j->region, code, 0,
                                 keep, &both)))
        return false;
    if (both != NULL) {
        void *result = kcase_new(c->sizes[RESULT]);
        void *product = kcase_new(c->sizes[PRODUCT]);
        void *empty = kcase_new(c->sizes[PRODUCT]);
        tensor_copy(c, PRODUCT, empty, false);
        air_step two[] = {make_step(j, first, &j->call),
                          make_step(j, region, &none)};
        size_t most = two[0].workspace + two[1].workspace;
        run_steps(j, two, 2, most);
        tensor_copy(c, RESULT, result, false);
        tensor_copy(c, PRODUCT, product, false);
        memset((char *)c->slots[RESULT] + c->t[RESULT].offset, 0x55, 8);
        tensor_copy(c, PRODUCT, empty, true);
        air_step one = make_step(j, both, &j->call);
        run_steps(j, &one, 1, one.workspace);
        same = memcmp(result, c->slots[RESULT], c->sizes[RESULT]) == 0 &&
               memcmp(keep ? product : empty, c->slots[PRODUCT],
                      c->sizes[PRODUCT]) == 0;
        kcase_free(result, c->sizes[RESULT]);
        kcase_free(product, c->sizes[PRODUCT]);
        kcase_free(empty, c->sizes[PRODUCT]);
    }
    d->kernel_free(j->dev, region);
    d->kernel_free(j->dev, both);
    return same;
}

/* Tile loops and machine code; with and without the product. */
static bool
check_join(join_case *j, const char *name, const char *isa)
{
    air_code code = {0};
    const char *reason;
    bool good = compare(j, name, NULL, false) && compare(j, name, NULL, true);
    if (codegen_region(&base_libc_alloc, &j->region, cpu_isa_base(isa), &code,
                       &reason) != AIR_OK ||
        code.size == 0)
        return CHECK(good);
    good = compare(j, name, &code, false) && good;
    codegen_free(&base_libc_alloc, &code);
    return CHECK(good);
}

static void
check_mm(const char *isa, int threads, int dtype, int64_t m, int64_t n,
         int64_t k, int turn)
{
    static const int turned[] = {1, 0};
    join_case j = {0};
    kernel_case *c = &j.c;
    const air_options options = {.threads = threads, .isa = isa};
    REQUIRE_OK(air_driver_cpu.open(&options, &base_libc_alloc, &j.dev));
    kcase_begin(c, (uint64_t)(m + n + k));
    int a = kcase_tensor(c, dtype, 2, (int64_t[]){m, k},
                         turn == 2 ? turned : NULL, 0, 0);
    int b = kcase_tensor(c, dtype, 2, (int64_t[]){k, n},
                         turn == 1 ? turned : NULL, 0, 0);
    int s = kcase_tensor(c, dtype, 1, &n, NULL, 0, 0);
    c->count = PRODUCT;
    kcase_tensor(c, dtype, 2, (int64_t[]){m, n}, NULL, 0, 0);
    make_region(&j, m, n, 1, dtype);
    air_arg args[] = {kcase_arg(c, s), kcase_arg(c, a), kcase_arg(c, b),
                      kcase_int(1), kcase_int(1)};
    j.call = (air_call){5, 1, args, &c->t[PRODUCT], NULL};
    if (!check_join(&j, "addmm", isa))
        printf("  isa %s m %d n %d k %d %s threads %d turn %d\n", isa, (int)m,
               (int)n, (int)k, air_dtype_text((air_dtype)dtype), threads, turn);
    kcase_end(c);
    air_driver_cpu.close(j.dev);
}

static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512_bf16"};

/* Dots, streams, blocks, blocks of the turned product, few columns, deep. */
TEST(join_products)
{
    static const int64_t sizes[][3] = {
        {3, 130, 70},  {300, 5, 70}, {100, 301, 270}, {530, 40, 33},
        {40, 530, 64}, {1, 40, 20},  {5000, 1, 20},   {90, 11, 70},
        {4, 8, 900},   {8, 4, 900}};
    for (size_t i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
        const char *isa = isas[i % 4];
        const int64_t *s = sizes[i / 4];
        if (!kcase_has_isa(isa))
            continue;
        for (int turn = 0; turn < 3; turn++) {
            check_mm(isa, 1 + turn, AIR_F32, s[0], s[1], s[2], turn);
            check_mm(isa, 3 - turn, AIR_BF16, s[0], s[1], s[2], turn);
        }
    }
}

TEST(join_batches)
{
    static const int64_t batches[] = {2, 7};
    for (int i = 0; i < 2; i++) {
        join_case j = {0};
        kernel_case *c = &j.c;
        const int64_t n = batches[i];
        const air_options options = {.threads = 2};
        REQUIRE_OK(air_driver_cpu.open(&options, &base_libc_alloc, &j.dev));
        kcase_begin(c, 5);
        int a = kcase_tensor(c, AIR_F32, 3, (int64_t[]){n, 37, 50}, NULL, 0, 0);
        int b = kcase_tensor(c, AIR_F32, 3, (int64_t[]){n, 50, 61}, NULL, 0, 0);
        c->count = PRODUCT;
        kcase_tensor(c, AIR_F32, 3, (int64_t[]){n, 37, 61}, NULL, 0, 0);
        make_region(&j, n * 37, 61, 0, AIR_F32);
        air_arg args[] = {kcase_arg(c, a), kcase_arg(c, b)};
        j.call = (air_call){2, 1, args, &c->t[PRODUCT], NULL};
        check_join(&j, "bmm", j.dev->isa);
        kcase_end(c);
        air_driver_cpu.close(j.dev);
    }
}

static void
conv_case(join_case *j, air_arg *args, int64_t channels, int64_t kernel,
          int threads)
{
    static const int64_t one[] = {1}, zero[] = {0};
    kernel_case *c = &j->c;
    const int64_t side = 15 - kernel + 1, pixels = side * side;
    const air_options options = {.threads = threads};
    REQUIRE_OK(air_driver_cpu.open(&options, &base_libc_alloc, &j->dev));
    kcase_begin(c, 9);
    int x = kcase_tensor(c, AIR_F32, 4, (int64_t[]){2, channels, 15, 15}, NULL,
                         0, 0);
    int w = kcase_tensor(c, AIR_F32, 4,
                         (int64_t[]){40, channels, kernel, kernel}, NULL, 0, 0);
    c->count = PRODUCT;
    kcase_tensor(c, AIR_F32, 4, (int64_t[]){2, 40, side, side}, NULL, 0, 0);
    make_region(j, 80, pixels, 0, AIR_F32);
    args[0] = kcase_arg(c, x), args[1] = kcase_arg(c, w);
    args[2] = (air_arg){.kind = AIR_ARG_NONE};
    for (int i = 3; i < 6; i++)
        args[i] = (air_arg){
            .kind = AIR_ARG_INTS, .count = 1, .ints = i == 4 ? zero : one};
    args[6] = kcase_int(0);
    args[7] = (air_arg){.kind = AIR_ARG_INTS, .count = 1, .ints = zero};
    args[8] = kcase_int(1);
    j->call = (air_call){9, 1, args, &c->t[PRODUCT], NULL};
}

TEST(join_convolutions)
{
    for (int i = 0; i < 6; i++) { /* of 96 channels: in fewer products */
        join_case j = {0};
        air_arg args[9];
        conv_case(&j, args, i < 4 ? 17 : 96, i % 2 == 0 && i < 4 ? 1 : 3,
                  i < 4 ? 1 + i / 2 : i - 3);
        check_join(&j, "convolution", j.dev->isa);
        kcase_end(&j.c);
        air_driver_cpu.close(j.dev);
    }
}

/* A region that reads the result in another order, or writes it. */
TEST(join_refuses)
{
    join_case j = {0};
    air_arg args[9];
    conv_case(&j, args, 17, 1, 1);
    j.bufs[0].strides[0] = 1;
    j.bufs[0].strides[1] = 80;
    CHECK(!compare(&j, "convolution", NULL, false));
    j.bufs[0].strides[0] = 225;
    j.bufs[0].strides[1] = 1;
    j.nodes[5].buf = 0;
    CHECK(!compare(&j, "convolution", NULL, false));
    kcase_end(&j.c);
    air_driver_cpu.close(j.dev);
}
