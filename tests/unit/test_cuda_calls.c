/* CALL kernels of the cuda device: which calls they take, that what they print
 * compiles (where there is an NVRTC; it needs no GPU), what is launched. What
 * they compute is compared with ref on a device: tests/conform --driver. */
#include "../cuda/nvrtc.h"
#include "driver/cuda/cuda.h"
#include "kernel_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cuda_props h200 = {.capability = 90,
                                .processors = 132,
                                .threads = 2048,
                                .draws = true,
                                .shared_bytes = 227 * 1024,
                                .registers = 65536,
                                .isa = "sm_90a"};

#define MOST 10
typedef struct {
    kernel_case tensors;
    air_arg args[MOST];
    air_tensor outs[2];
    air_call call;
} print_case;

static void
begin(print_case *c)
{
    memset(c, 0, sizeof *c);
    kcase_begin(&c->tensors, 3);
    c->call = (air_call){.args = c->args, .outs = c->outs};
}

static int
tensor(print_case *c, int dtype, int rank, const int64_t *dims)
{
    return kcase_tensor(&c->tensors, dtype, rank, dims, NULL, 0, 0);
}

#define DIMS(...)                                              \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        (const int64_t[])                                      \
    {                                                          \
        __VA_ARGS__                                            \
    }

static void
arg(print_case *c, air_arg a)
{
    c->args[c->call.nargs++] = a;
}

static void
arg_tensor(print_case *c, int dtype, int rank, const int64_t *dims)
{
    arg(c, kcase_arg(&c->tensors, tensor(c, dtype, rank, dims)));
}

/* Axes `rank - 2` and `rank - 1` change places: a weight as mm sees it. */
static void
arg_transposed(print_case *c, int dtype, int rank, const int64_t *dims)
{
    const int t = tensor(c, dtype, rank, dims);
    air_tensor *x = &c->tensors.t[t];
    const int64_t dim = x->dims[rank - 2], stride = x->strides[rank - 2];
    x->dims[rank - 2] = x->dims[rank - 1], x->dims[rank - 1] = dim;
    x->strides[rank - 2] = x->strides[rank - 1], x->strides[rank - 1] = stride;
    arg(c, kcase_arg(&c->tensors, t));
}

static void
out(print_case *c, int dtype, int rank, const int64_t *dims)
{
    c->outs[c->call.nouts++] = c->tensors.t[tensor(c, dtype, rank, dims)];
}

/* Prints it; *source is the caller's. False: no row takes the call. */
static bool
print(print_case *c, const char *name, cuda_source *source)
{
    const cuda_provider *p = cuda_provider_find(name, &c->call, &h200);
    memset(source, 0, sizeof *source);
    base_text_init(&source->text, &base_libc_alloc);
    if (!p)
        return false;
    CHECK_OK(p->print(&c->call, &h200, source));
    CHECK_OK(source->text.status);
    CHECK(source->nlaunches >= 1);
    return true;
}

static void
compile(const cuda_source *s)
{
    static char log[20000];
    if (!nvrtc_possible())
        return;
    char *unit = nvrtc_unit(s->prelude, s->text.data);
    if (!nvrtc_compile(unit, log, sizeof log)) {
        fprintf(stderr, "%s\n%s\n", s->text.data, log);
        test_fail(__FILE__, __LINE__, "%s", "it does not compile");
    }
    free(unit);
}

/* The call is taken, compiles, and has so many launches. */
static void
takes(print_case *c, const char *name, int launches)
{
    cuda_source s;
    CHECK(print(c, name, &s));
    CHECK(s.nlaunches == launches);
    if (s.nlaunches > 0)
        compile(&s);
    base_text_deinit(&s.text);
    kcase_end(&c->tensors);
}

static void
refuses(print_case *c, const char *name)
{
    cuda_source s;
    CHECK(!print(c, name, &s));
    kcase_end(&c->tensors);
}

/* ---- matrix products ----------------------------------------------------- */

static void
mm(print_case *c, int dtype, int64_t m, int64_t n, int64_t k)
{
    begin(c);
    arg_tensor(c, dtype, DIMS(m, k));
    arg_transposed(c, dtype, DIMS(n, k));
    out(c, dtype, DIMS(m, n));
}

TEST(cuda_calls_mm_of_few_rows)
{
    static const int64_t sizes[][3] = {{1, 3072, 2048}, {1, 2048, 8192},
                                       {16, 96, 1000},  {3, 5, 40},
                                       {1, 1, 8},       {2, 30522, 384}};
    print_case c;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mm(&c, i % 2 ? AIR_F16 : AIR_BF16, sizes[i][0], sizes[i][1],
           sizes[i][2]);
        takes(&c, "mm", 1);
    }
}

/* Which row takes it on a GPU like that one; NULL: none. */
static const cuda_provider *
find(print_case *c, const char *name, int capability, size_t shared)
{
    cuda_props props = h200;
    props.capability = capability;
    props.shared_bytes = shared;
    return cuda_provider_find(name, &c->call, &props);
}

TEST(cuda_calls_mm_of_more_columns_than_a_grid_has)
{
    print_case c;
    mm(&c, AIR_F32, 2, 8, 4);
    CHECK(find(&c, "mm", 90, 227 << 10));
    c.tensors.t[1].dims[1] = c.outs[0].dims[1] = 65535 * 64 + 1;
    CHECK(!find(&c, "mm", 90, 227 << 10));
    kcase_end(&c.tensors);
}

/* Shares of a weight's tiles are counted in 32 bits. */
TEST(cuda_calls_mm_of_more_tiles_than_blocks_can_share)
{
    print_case c;
    mm(&c, AIR_BF16, 1, 16, 8);
    c.tensors.t[1].dims[1] = c.outs[0].dims[1] = 80000000;
    CHECK(find(&c, "mm", 90, 227 << 10));
    c.tensors.t[1].dims[1] = c.outs[0].dims[1] = 90000000;
    CHECK(!find(&c, "mm", 90, 227 << 10));
    kcase_end(&c.tensors);
}

TEST(cuda_calls_on_smaller_gpus)
{
    print_case c;
    mm(&c, AIR_BF16, 2, 16, 8);
    CHECK(find(&c, "mm", 80, 163 << 10));
    CHECK(!find(&c, "mm", 75, 64 << 10)); /* no mma, no conversions */
    kcase_end(&c.tensors);
    begin(&c);
    arg_tensor(&c, AIR_F32, DIMS(1, 2, 64, 256));
    arg_tensor(&c, AIR_F32, DIMS(1, 2, 64, 256));
    arg_tensor(&c, AIR_F32, DIMS(1, 2, 64, 256));
    out(&c, AIR_F32, DIMS(1, 2, 64, 256));
    CHECK(find(&c, "sdpa", 80, 163 << 10));
    CHECK(!find(&c, "sdpa", 75, 64 << 10));
    c.tensors.t[0].dims[2] = c.outs[0].dims[2] = (int64_t)65535 * 32 + 1;
    CHECK(!find(&c, "sdpa", 90, 227 << 10));
    kcase_end(&c.tensors);
}

TEST(cuda_calls_mm_grid_and_memory)
{
    print_case c;
    cuda_source s;
    mm(&c, AIR_BF16, 1, 16384, 2048);
    CHECK(print(&c, "mm", &s));
    CHECK(s.launches[0].shape.grid[0] == 3 * 132);
    CHECK(s.launches[0].shape.block[0] == 256);
    /* x, and two sets of sums: 8 warps, 2 parts, 8 rows */
    CHECK(s.launches[0].shape.shared == 2 * 2048 + 2 * 4 * 8 * 2 * 8);
    CHECK(s.launches[0].nparams == 3);
    base_text_deinit(&s.text);
    kcase_end(&c.tensors);
}

TEST(cuda_calls_mm_of_any_sizes)
{
    static const int dtypes[] = {AIR_BF16, AIR_F16, AIR_F32, AIR_F64};
    print_case c;
    for (int i = 0; i < 4; i++) {
        mm(&c, dtypes[i], 300, 77, 33);
        takes(&c, "mm", 1);
        begin(&c); /* w lies along n */
        arg_tensor(&c, dtypes[i], DIMS(7, 64));
        arg_tensor(&c, dtypes[i], DIMS(64, 64));
        out(&c, dtypes[i], DIMS(7, 64));
        takes(&c, "mm", 1);
    }
    begin(&c);
    arg_tensor(&c, AIR_F32, DIMS(48));
    arg_tensor(&c, AIR_F32, DIMS(3, 20, 64));
    arg_tensor(&c, AIR_F32, DIMS(3, 64, 48));
    arg(&c, kcase_float(2));
    arg(&c, kcase_float(0.5));
    out(&c, AIR_F32, DIMS(3, 20, 48));
    takes(&c, "baddbmm", 1);
}

TEST(cuda_calls_mm_tiles)
{
    print_case c;
    cuda_source s;
    mm(&c, AIR_BF16, 2048, 2048, 64);
    CHECK(print(&c, "mm", &s));
    CHECK(s.launches[0].shape.grid[0] == 16); /* of 128 */
    CHECK(s.launches[0].shape.grid[1] == 16);
    base_text_deinit(&s.text);
    kcase_end(&c.tensors);
    mm(&c, AIR_F32, 128, 384, 384);
    CHECK(print(&c, "mm", &s));
    CHECK(s.launches[0].shape.grid[0] == 2); /* of 64 */
    base_text_deinit(&s.text);
    kcase_end(&c.tensors);
}

TEST(cuda_calls_mm_of_integers_is_refused)
{
    print_case c;
    mm(&c, AIR_I64, 4, 4, 4);
    refuses(&c, "mm");
}

TEST(cuda_calls_addmm_and_batches)
{
    print_case c;
    begin(&c);
    arg_tensor(&c, AIR_F16, DIMS(48));
    arg_tensor(&c, AIR_F16, DIMS(4, 64));
    arg_transposed(&c, AIR_F16, DIMS(48, 64));
    arg(&c, kcase_int(1));
    arg(&c, kcase_float(0.5));
    out(&c, AIR_F16, DIMS(4, 48));
    takes(&c, "addmm", 1);
    begin(&c);
    arg_tensor(&c, AIR_BF16, DIMS(5, 2, 64));
    arg_transposed(&c, AIR_BF16, DIMS(5, 48, 64));
    out(&c, AIR_BF16, DIMS(5, 2, 48));
    takes(&c, "bmm", 1);
}

/* ---- weights of 8 and 4 bits --------------------------------------------- */

static void
words(print_case *c, int dtype, int bits, int64_t m, int64_t k, int64_t groups)
{
    const int64_t n = 72;
    const air_arg none = {.kind = AIR_ARG_NONE};
    begin(c);
    arg_tensor(c, dtype, DIMS(m, k));
    arg_tensor(c, bits == 8 ? AIR_I8 : AIR_U8, DIMS(n, k * bits / 8));
    arg_tensor(c, AIR_BF16, DIMS(n, groups));
    arg(c, none);
    arg(c, none);
    arg(c, kcase_int(bits));
    arg(c, kcase_int(0));
    out(c, dtype, DIMS(m, n));
}

/* One launch reads the integers; what lanes load at once must be of a group. */
TEST(cuda_calls_weights_of_few_bits)
{
    print_case c;
    words(&c, AIR_BF16, 8, 1, 2048, 1);
    takes(&c, "quantised_mm", 1);
    words(&c, AIR_F16, 8, 5, 96, 6);
    takes(&c, "quantised_mm", 1);
    words(&c, AIR_BF16, 4, 1, 2048, 64);
    takes(&c, "quantised_mm", 1);
    words(&c, AIR_F16, 4, 16, 256, 4);
    takes(&c, "quantised_mm", 1);
    words(&c, AIR_BF16, 4, 1, 64, 4); /* groups of 16: text/wide.cuh */
    takes(&c, "quantised_mm", 1);
    words(&c, AIR_BF16, 4, 1, 64, 8);
    takes(&c, "quantised_mm", 2);
    words(&c, AIR_BF16, 8, 1, 72, 1); /* rows end within a load */
    takes(&c, "quantised_mm", 2);
    words(&c, AIR_BF16, 8, 17, 72, 1);
    takes(&c, "quantised_mm", 2);
    words(&c, AIR_F32, 4, 1, 64, 2);
    takes(&c, "quantised_mm", 2);
    words(&c, AIR_I32, 8, 1, 64, 1);
    refuses(&c, "quantised_mm");
}

/* Many rows, or a few with many groups: one launch by text/wide.cuh. */
TEST(cuda_calls_weights_of_few_bits_and_many_rows)
{
    static const int64_t rows[] = {17, 33, 100, 256, 1000};
    print_case c;
    for (int i = 0; i < 5; i++) {
        words(&c, i % 2 ? AIR_F16 : AIR_BF16, 8, rows[i], 4096, 1);
        takes(&c, "quantised_mm", 1);
        words(&c, i % 2 ? AIR_F16 : AIR_BF16, 4, rows[i], 1024, 32);
        takes(&c, "quantised_mm", 1);
    }
    words(&c, AIR_BF16, 4, 16, 256, 8);
    takes(&c, "quantised_mm", 1);
    words(&c, AIR_BF16, 8, 16, 16384, 1024); /* x does not fit beside it */
    takes(&c, "quantised_mm", 1);
    words(&c, AIR_BF16, 8, 40, 64, 8); /* groups of 8 */
    takes(&c, "quantised_mm", 2);
}

/* Without wgmma, and clusters, they go up to 64 rows; then cuBLASLt. */
TEST(cuda_calls_weights_of_few_bits_on_smaller_gpus)
{
    cuda_props props = h200;
    print_case c;
    cuda_source s;
    props.capability = 80;
    (void)snprintf(props.isa, sizeof props.isa, "sm_80");
    props.shared_bytes = 99 << 10;
    words(&c, AIR_BF16, 8, 64, 4096, 1);
    memset(&s, 0, sizeof s);
    base_text_init(&s.text, &base_libc_alloc);
    CHECK(cuda_provider_find("quantised_mm", &c.call, &props)
              ->print(&c.call, &props, &s) == AIR_OK);
    CHECK(s.nlaunches == 1);
    CHECK(strstr(s.text.data, "false, false> G;"));
    CHECK(!strstr(s.text.data, "__cluster_dims__"));
    CHECK(s.launches[0].shape.shared <= props.shared_bytes / 2);
    base_text_deinit(&s.text);
    kcase_end(&c.tensors);
    words(&c, AIR_BF16, 8, 65, 4096, 1);
    props.blas = true;
    c.args[6] = kcase_int(1);
    CHECK(cuda_provider_find("quantised_mm", &c.call, &props)->workspace);
    kcase_end(&c.tensors);
}

/* ---- attention ----------------------------------------------------------- */

static void
attention(print_case *c, int dtype, int mask, int64_t rows, int64_t width)
{
    begin(c);
    arg_tensor(c, dtype, DIMS(2, 8, rows, width));
    arg_tensor(c, dtype, DIMS(2, 2, 300, width));
    arg_tensor(c, dtype, DIMS(2, 2, 300, width));
    if (mask == AIR_DTYPE_NONE)
        arg(c, (air_arg){.kind = AIR_ARG_NONE});
    else
        arg_tensor(c, mask, DIMS(2, 1, rows, 300));
    arg(c, kcase_float(0));
    arg(c, kcase_int(0));
    out(c, dtype, DIMS(2, 8, rows, width));
    out(c, AIR_F32, DIMS(2, 8, rows, 1));
}

TEST(cuda_calls_attention_of_few_queries)
{
    static const int masks[] = {AIR_DTYPE_NONE, AIR_BOOL, AIR_BF16, AIR_F32};
    static const int64_t widths[] = {32, 64, 128, 256};
    print_case c;
    for (int i = 0; i < 4; i++) {
        attention(&c, i == 1 ? AIR_F16 : AIR_BF16, masks[i], 1 + i, widths[i]);
        takes(&c, "sdpa", 1);
    }
}

TEST(cuda_calls_attention_grid)
{
    print_case c;
    cuda_source s;
    attention(&c, AIR_BF16, AIR_BOOL, 3, 64);
    CHECK(print(&c, "sdpa", &s));
    CHECK(s.launches[0].shape.grid[0] == 8 * 2 * 2); /* batch, key heads */
    CHECK(s.launches[0].shape.grid[1] == 2); /* 12 queries of a head by 8 */
    base_text_deinit(&s.text);
    kcase_end(&c.tensors);
}

TEST(cuda_calls_attention_of_many_queries)
{
    print_case c;
    attention(&c, AIR_BF16, AIR_BOOL, 5, 64); /* 20 queries of a key head */
    takes(&c, "sdpa", 1);
    attention(&c, AIR_F32, AIR_F32, 40, 32);
    takes(&c, "sdpa", 1);
    attention(&c, AIR_F16, AIR_DTYPE_NONE, 1, 80);
    takes(&c, "sdpa", 1);
}

TEST(cuda_calls_attention_left_to_flash)
{
    print_case c;
    attention(&c, AIR_F64, AIR_BOOL, 1, 64);
    refuses(&c, "sdpa");
    begin(&c);
    for (int i = 0; i < 3; i++)
        arg_tensor(&c, AIR_BF16, DIMS(1, 1, 600, 72)); /* no matrix units */
    out(&c, AIR_BF16, DIMS(1, 1, 600, 72));
    refuses(&c, "sdpa");
}

/* Blocks of 64 queries, of fewer where that gives each multiprocessor one; then
 * up to four groups of warps share them. */
TEST(cuda_calls_attention_on_matrix_units)
{
    static const struct {
        int64_t heads, rows;
        uint32_t threads, blocks;
    } cases[] = {{12, 128, 64, 8}, {40, 197, 128, 4}, {12, 197, 128, 13}};
    print_case c;
    cuda_source s;
    for (int i = 0; i < 3; i++) {
        begin(&c);
        for (int k = 0; k < 3; k++)
            arg_tensor(&c, AIR_BF16,
                       DIMS(1, cases[i].heads, cases[i].rows, 80));
        out(&c, AIR_BF16, DIMS(1, cases[i].heads, cases[i].rows, 80));
        CHECK(print(&c, "sdpa", &s));
        CHECK_INT(s.launches[0].shape.block[0], cases[i].threads);
        CHECK_INT(s.launches[0].shape.grid[0], cases[i].heads);
        CHECK_INT(s.launches[0].shape.grid[1], cases[i].blocks);
        base_text_deinit(&s.text);
        kcase_end(&c.tensors);
    }
}

/* ---- movement ------------------------------------------------------------ */

TEST(cuda_calls_move)
{
    print_case c;
    begin(&c);
    arg_tensor(&c, AIR_I64, DIMS(5, 7));
    arg(&c,
        (air_arg){.kind = AIR_ARG_INTS, .count = 1, .ints = (int64_t[]){-1}});
    out(&c, AIR_I64, DIMS(5, 7));
    takes(&c, "flip", 1);
    begin(&c);
    arg_tensor(&c, AIR_BF16, DIMS(3, 5, 7));
    arg(&c, kcase_int(-1));
    out(&c, AIR_BF16, DIMS(3, 5, 7));
    takes(&c, "tril", 1);
    begin(&c);
    arg_tensor(&c, AIR_BF16, DIMS(3, 9));
    arg_tensor(&c, AIR_BF16, DIMS(3, 2));
    arg(&c, kcase_int(1));
    arg(&c, kcase_int(1));
    arg(&c, kcase_int(5));
    arg(&c, kcase_int(2));
    out(&c, AIR_BF16, DIMS(3, 9));
    takes(&c, "slice_scatter", 2);
}

TEST(cuda_calls_index)
{
    print_case c;
    air_tensor list[3] = {0};
    begin(&c);
    arg_tensor(&c, AIR_F64, DIMS(4, 5, 6));
    list[1] = c.tensors.t[tensor(&c, AIR_I64, DIMS(2, 1))];
    list[2] = c.tensors.t[tensor(&c, AIR_I32, DIMS(3))];
    arg(&c, (air_arg){.kind = AIR_ARG_TENSORS, .count = 3, .t = list});
    out(&c, AIR_F64, DIMS(4, 2, 3));
    takes(&c, "index", 1);
    c.call.nargs = 0;
    begin(&c);
    arg_tensor(&c, AIR_F16, DIMS(4, 5, 6));
    list[1].dtype = AIR_DTYPE_NONE;
    list[0] = c.tensors.t[tensor(&c, AIR_I64, DIMS(2))];
    list[2] = c.tensors.t[tensor(&c, AIR_I64, DIMS(2))];
    arg(&c, (air_arg){.kind = AIR_ARG_TENSORS, .count = 3, .t = list});
    arg_tensor(&c, AIR_F16, DIMS(2, 5));
    out(&c, AIR_F16, DIMS(4, 5, 6));
    takes(&c, "index_put", 2);
}

static void
one_axis(print_case *c, const int64_t *index_dims, int index_rank)
{
    begin(c);
    arg_tensor(c, AIR_BF16, DIMS(2, 8, 64));
    arg(c, kcase_int(1));
    arg_tensor(c, AIR_I64, index_rank, index_dims);
}

TEST(cuda_calls_one_axis)
{
    print_case c;
    one_axis(&c, (int64_t[]){3}, 1);
    out(&c, AIR_BF16, DIMS(2, 3, 64));
    takes(&c, "index_select", 1);
    one_axis(&c, (int64_t[]){2, 3, 4}, 3);
    out(&c, AIR_BF16, DIMS(2, 3, 4));
    takes(&c, "gather", 1);
    one_axis(&c, (int64_t[]){1}, 1);
    arg_tensor(&c, AIR_BF16, DIMS(2, 1, 64));
    out(&c, AIR_BF16, DIMS(2, 8, 64));
    takes(&c, "index_copy", 2);
    one_axis(&c, (int64_t[]){2, 3, 4}, 3);
    arg_tensor(&c, AIR_BF16, DIMS(2, 3, 4));
    out(&c, AIR_BF16, DIMS(2, 8, 64));
    takes(&c, "scatter_src", 2);
}

TEST(cuda_calls_written_in_place_copy_nothing)
{
    print_case c;
    one_axis(&c, (int64_t[]){1}, 1);
    arg_tensor(&c, AIR_BF16, DIMS(2, 1, 64));
    c.outs[c.call.nouts++] = *c.args[0].t;
    takes(&c, "index_copy", 1);
}

TEST(cuda_calls_embedding)
{
    print_case c;
    begin(&c);
    arg_tensor(&c, AIR_BF16, DIMS(100, 64));
    arg_tensor(&c, AIR_I64, DIMS(2, 3));
    out(&c, AIR_BF16, DIMS(2, 3, 64));
    takes(&c, "embedding", 1);
}

/* ---- random numbers ------------------------------------------------------ */

/* (size, a, b, dtype), of the dtype and so many elements. */
static void
random_call(print_case *c, int dtype, int64_t n, air_arg a, air_arg b)
{
    begin(c);
    arg(c, kcase_int(n)); /* the size is not looked at */
    arg(c, a);
    arg(c, b);
    arg(c, kcase_int(dtype));
    out(c, dtype, DIMS(n));
}

/* (size, p, dtype, seed, width) */
static void
dropout(print_case *c, int dtype, int64_t n, int64_t width)
{
    begin(c);
    arg(c, kcase_int(n));
    arg(c, kcase_float(0.7));
    arg(c, kcase_int(dtype));
    arg(c, (air_arg){.kind = AIR_ARG_NONE});
    arg(c, kcase_int(width));
    out(c, dtype, DIMS(n));
}

TEST(cuda_calls_random_numbers)
{
    static const int dtypes[] = {AIR_F32, AIR_F64, AIR_F16, AIR_BF16};
    print_case c;
    for (int i = 0; i < 4; i++) {
        random_call(&c, dtypes[i], 1000, kcase_float(-2), kcase_float(5.3));
        takes(&c, "uniform", 1);
        random_call(&c, dtypes[i], 1000, kcase_float(1.5), kcase_float(3));
        takes(&c, "normal", 1);
        random_call(&c, dtypes[i], 100, kcase_int(-9), kcase_int(90));
        takes(&c, "random_integers", 1);
        dropout(&c, dtypes[i], 100, 0);
        takes(&c, "bernoulli_p", 1);
    }
    random_call(&c, AIR_I64, 9, kcase_int(INT64_MIN), kcase_int(INT64_MAX));
    takes(&c, "random_integers", 1);
    random_call(&c, AIR_BOOL, 9, kcase_int(0), kcase_int(2));
    takes(&c, "random_integers", 1);
}

TEST(cuda_calls_dropout)
{
    static const char *const texts[] = {"draw(", "draw_wide<2>(",
                                        "draw_wide<4>(", "draw_wide<8>("};
    print_case c;
    cuda_source s;
    for (int i = 0; i < 4; i++) {
        dropout(&c, AIR_BOOL, 999 << i, 8);
        CHECK(print(&c, "bernoulli_p", &s));
        CHECK(strstr(s.text.data, texts[i]));
        compile(&s);
        base_text_deinit(&s.text);
        kcase_end(&c.tensors);
    }
    dropout(&c, AIR_BOOL, 1 << 20, 2);
    CHECK(print(&c, "bernoulli_p", &s));
    CHECK(strstr(s.text.data, "double>")); /* compared as what it drops */
    base_text_deinit(&s.text);
    kcase_end(&c.tensors);
}

/* What torch's own launch takes of the generator. */
TEST(cuda_calls_random_grid_and_draws)
{
    static const struct {
        int64_t n;
        unsigned blocks;
        int64_t draws;
    } rows[] = {{1, 1, 4},
                {257, 2, 4},
                {132 * 2048 * 4, 132 * 8, 4},
                {132 * 2048 * 4 + 1, 132 * 8, 8},
                {0, 0, 0}};
    print_case c;
    cuda_source s;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        random_call(&c, AIR_F32, rows[i].n, kcase_float(0), kcase_float(1));
        CHECK(print(&c, "uniform", &s));
        CHECK_INT(s.launches[0].shape.grid[0], rows[i].blocks);
        CHECK_INT(s.launches[0].draws, rows[i].draws);
        base_text_deinit(&s.text);
        kcase_end(&c.tensors);
    }
}

TEST(cuda_calls_random_that_are_torchs)
{
    cuda_props without = h200;
    print_case c;
    without.draws = false;
    random_call(&c, AIR_F32, 8, kcase_float(0), kcase_float(1));
    CHECK(!cuda_provider_find("uniform", &c.call, &without));
    arg(&c, kcase_int(7)); /* a seed of its own */
    refuses(&c, "uniform");
    random_call(&c, AIR_F32, 8, kcase_float(0), kcase_float(1));
    c.outs[0].dims[0] = (int64_t)1 << 30; /* torch draws it in parts */
    refuses(&c, "uniform");
}

static void
padded(print_case *c, int dtype)
{
    static const int64_t pads[] = {1, -2, 0, 3};
    begin(c);
    arg_tensor(c, dtype, DIMS(5, 6, 7));
    arg(c, (air_arg){.kind = AIR_ARG_INTS, .count = 4, .ints = pads});
}

TEST(cuda_calls_pads)
{
    static const int dtypes[] = {AIR_F32, AIR_F64, AIR_BF16, AIR_F16,
                                 AIR_I64, AIR_I8,  AIR_BOOL};
    static const double values[] = {1e300, -0.5, (double)-INFINITY,
                                    (double)NAN};
    print_case c;
    for (int i = 0; i < 7; i++) {
        padded(&c, dtypes[i]);
        if (i < 4)
            arg(&c, kcase_float(values[i]));
        else
            arg(&c, kcase_int(-i));
        out(&c, dtypes[i], DIMS(5, 9, 6));
        takes(&c, "constant_pad_nd", 1);
    }
    padded(&c, AIR_BF16);
    out(&c, AIR_BF16, DIMS(5, 9, 6));
    takes(&c, "reflection_pad", 1);
    padded(&c, AIR_F64);
    out(&c, AIR_F64, DIMS(5, 9, 6));
    takes(&c, "replication_pad", 1);
}

/* A number of 16 bits is made by an instruction of 8.0. */
TEST(cuda_calls_pads_on_smaller_gpus)
{
    cuda_props props = h200;
    print_case c;
    props.capability = 75;
    padded(&c, AIR_BF16);
    arg(&c, kcase_float(1));
    out(&c, AIR_BF16, DIMS(5, 9, 6));
    CHECK(!cuda_provider_find("constant_pad_nd", &c.call, &props));
    kcase_end(&c.tensors);
    padded(&c, AIR_F32);
    arg(&c, kcase_float(1));
    out(&c, AIR_F32, DIMS(5, 9, 6));
    CHECK(cuda_provider_find("constant_pad_nd", &c.call, &props));
    kcase_end(&c.tensors);
}

/* ---- folds along an axis ------------------------------------------------- */

static void
scanned(print_case *c, int from, int to, int64_t rows, int64_t n)
{
    begin(c);
    arg_tensor(c, from, DIMS(rows, n));
    arg(c, kcase_int(1));
    arg(c, (air_arg){.kind = AIR_ARG_NONE});
    out(c, to, DIMS(rows, n));
}

TEST(cuda_calls_scans)
{
    static const int to[] = {AIR_F32, AIR_F64, AIR_BF16,
                             AIR_F16, AIR_I64, AIR_I32};
    static const int64_t lengths[] = {9, 5000, 100}; /* a thread, block, warp */
    print_case c;
    for (int i = 0; i < 12; i++) {
        const int dtype = to[i % 6];
        const int64_t n = lengths[i % 3];
        scanned(&c, i == 4 ? AIR_BOOL : dtype, dtype, 3, n);
        takes(&c, "cumsum", 1);
        scanned(&c, dtype, dtype, 3, n);
        out(&c, AIR_I64, DIMS(3, n));
        takes(&c, i % 2 ? "cummax" : "cummin", 1);
    }
    scanned(&c, AIR_BF16, AIR_BF16, 3, 40);
    takes(&c, "logcumsumexp", 1);
    scanned(&c, AIR_F64, AIR_F64, 3, 40);
    takes(&c, "logcumsumexp", 1);
    scanned(&c, AIR_F32, AIR_F32, 3, 40);
    takes(&c, "cumprod", 1);
    scanned(&c, AIR_F32, AIR_F16, 3, 40); /* it would round first */
    refuses(&c, "cumsum");
    scanned(&c, AIR_F32, AIR_F32, 1, 1 << 20); /* one block would do it all */
    refuses(&c, "cumsum");
}

TEST(cuda_calls_places)
{
    print_case c;
    for (int parts = 0; parts < 2; parts++) {
        begin(&c);
        arg_tensor(&c, AIR_BF16, DIMS(3, parts ? 9000 : 3000));
        arg(&c, kcase_int(-1));
        arg(&c, kcase_int(parts));
        out(&c, AIR_I64, DIMS(3, 1));
        takes(&c, "argmax", 1 + parts);
        begin(&c);
        arg_tensor(&c, AIR_I64, DIMS(parts ? 9000 : 100, 3));
        arg(&c, kcase_int(0));
        arg(&c, kcase_int(0));
        out(&c, AIR_I64, DIMS(3));
        out(&c, AIR_I64, DIMS(3));
        takes(&c, "min_dim", 1 + parts);
    }
    begin(&c);
    arg_tensor(&c, AIR_F64, DIMS(3, 5));
    arg(&c, (air_arg){.kind = AIR_ARG_NONE});
    out(&c, AIR_I64, 0, NULL);
    takes(&c, "argmin", 1);
}
