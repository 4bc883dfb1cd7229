/* The plain kernels: eager's rules where they are easy to get wrong. (That they
 * take all dtypes and layouts is the business of tests/conform.) */
#include <math.h>
#include <stdlib.h>

#include "base/thread.h"
#include "driver/ref/kernels.h"
#include "test.h"

/* ---- calling one kernel -------------------------------------------------- */

typedef struct {
    void *slots[16];
    air_tensor tensors[16];
    air_arg args[12];
    air_tensor outs[4];
    air_call call;
    int nslots, nargs, nouts, threads;
    air_fault faults[4];
    base_barrier barrier;
    void *workspace;
    ref_kernel *kernel;
} bench;

static air_tensor
tensor(bench *b, void *data, air_dtype dtype, int rank, const int64_t *dims)
{
    air_tensor t = {
        .slot = b->nslots, .dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
    int64_t stride = 1;
    b->slots[b->nslots++] = data;
    for (int i = rank - 1; i >= 0; i--) {
        t.dims[i] = dims[i];
        t.strides[i] = stride;
        stride *= dims[i];
    }
    return t;
}

#define DIMS(...)                                              \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        (const int64_t[])                                      \
    {                                                          \
        __VA_ARGS__                                            \
    }

static void
push_tensor(bench *b, void *data, air_dtype dtype, int rank,
            const int64_t *dims)
{
    air_tensor *t = &b->tensors[b->nargs];
    *t = tensor(b, data, dtype, rank, dims);
    b->args[b->nargs++] = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = t};
}

static void
push_out(bench *b, void *data, air_dtype dtype, int rank, const int64_t *dims)
{
    b->outs[b->nouts++] = tensor(b, data, dtype, rank, dims);
}

static void
push_int(bench *b, int64_t i)
{
    b->args[b->nargs++] = (air_arg){.kind = AIR_ARG_INT, .i = i};
}

static void
barrier_wait(const air_task *task)
{
    base_barrier_wait(task->pool);
}

static void
thread_main(void *arg, int id, int count)
{
    bench *b = arg;
    air_task task = {.id = id,
                     .count = count,
                     .slots = b->slots,
                     .workspace = b->workspace,
                     .barrier = barrier_wait,
                     .pool = &b->barrier,
                     .fault = &b->faults[id]};
    b->kernel(&b->call, &task);
}

/* True: a kernel raised a fault. */
static bool
run(bench *b, ref_kernel *kernel, ref_workspace *workspace, int threads)
{
    bool raised = false;
    base_pool *pool;
    b->kernel = kernel;
    b->call = (air_call){b->nargs, b->nouts, b->args, b->outs, NULL};
    memset(b->faults, 0, sizeof b->faults);
    if (!CHECK_OK(base_pool_create(&base_libc_alloc, threads, &pool)))
        return false;
    b->workspace =
        workspace != NULL ? malloc(workspace(&b->call, threads)) : NULL;
    base_barrier_init(&b->barrier, threads);
    base_pool_run(pool, threads, thread_main, b);
    base_pool_destroy(pool);
    free(b->workspace);
    for (int i = 0; i < threads; i++)
        raised |= b->faults[i].raised;
    return raised;
}

static void
check_value(int line, size_t i, double got, double want)
{
    if (got != want && !(isnan(got) && isnan(want)))
        test_fail(__FILE__, line, "element %zu is %g, not %g", i, got, want);
}

#define CHECK_ARRAY(got, ...)                                          \
    do {                                                               \
        const double want_[] = {__VA_ARGS__};                          \
        for (size_t i_ = 0; i_ < sizeof want_ / sizeof want_[0]; i_++) \
            check_value(__LINE__, i_, (double)(got)[i_], want_[i_]);   \
    } while (0)

static const double nan_ = (double)NAN, inf_ = (double)INFINITY;

/* ---- order --------------------------------------------------------------- */

TEST(sort_puts_nan_last_and_keeps_ties)
{
    float x[7] = {2, NAN, -1, 0.0f, -0.0f, 2, INFINITY}, y[7];
    int64_t at[7];
    for (int threads = 1; threads <= 3; threads++) {
        bench b = {0};
        push_tensor(&b, x, AIR_F32, DIMS(7));
        push_int(&b, 0);
        push_int(&b, 0);
        push_out(&b, y, AIR_F32, DIMS(7));
        push_out(&b, at, AIR_I64, DIMS(7));
        CHECK(!run(&b, ref_sort, ref_sort_size, threads));
        CHECK_ARRAY(y, -1, 0, 0, 2, 2, inf_, nan_);
        CHECK_ARRAY(at, 2, 3, 4, 0, 5, 6, 1);
    }
}

TEST(sort_descending_puts_nan_first_and_keeps_ties)
{
    float x[5] = {2, NAN, -1, 2, 7}, y[5];
    int64_t at[5];
    bench b = {0};
    push_tensor(&b, x, AIR_F32, DIMS(5));
    push_int(&b, 0);
    push_int(&b, 1);
    push_out(&b, y, AIR_F32, DIMS(5));
    push_out(&b, at, AIR_I64, DIMS(5));
    CHECK(!run(&b, ref_sort, ref_sort_size, 1));
    CHECK_ARRAY(y, nan_, 7, 2, 2, -1);
    CHECK_ARRAY(at, 1, 4, 0, 3, 2);
}

TEST(sort_of_a_long_row_is_stable)
{
    enum { N = 5000 };
    static int16_t x[N], y[N];
    static int64_t at[N];
    bench b = {0};
    for (int i = 0; i < N; i++)
        x[i] = (int16_t)(i * 7919 % 200 - 100);
    push_tensor(&b, x, AIR_I16, DIMS(N));
    push_int(&b, 0);
    push_int(&b, 0);
    push_out(&b, y, AIR_I16, DIMS(N));
    push_out(&b, at, AIR_I64, DIMS(N));
    CHECK(!run(&b, ref_sort, ref_sort_size, 2));
    for (int i = 1; i < N; i++) {
        CHECK(y[i - 1] <= y[i]);
        CHECK(y[i - 1] < y[i] || at[i - 1] < at[i]);
        CHECK_INT(x[at[i]], y[i]);
    }
}

TEST(topk_takes_nan_and_the_first_of_equals)
{
    float x[8] = {1, 5, NAN, 5, 2, 5, -3, 0}, y[3];
    int64_t at[3];
    bench b = {0};
    push_tensor(&b, x, AIR_F32, DIMS(8));
    push_int(&b, 3);
    push_int(&b, -1);
    push_int(&b, 1);
    push_int(&b, 1);
    push_out(&b, y, AIR_F32, DIMS(3));
    push_out(&b, at, AIR_I64, DIMS(3));
    CHECK(!run(&b, ref_topk, ref_topk_size, 1));
    CHECK_ARRAY(y, nan_, 5, 5);
    CHECK_ARRAY(at, 2, 1, 3);
}

TEST(argmax_takes_the_first_nan)
{
    float x[6] = {1, 9, NAN, 9, NAN, 0};
    int64_t at;
    bench b = {0};
    push_tensor(&b, x, AIR_F32, DIMS(6));
    b.args[b.nargs++] = (air_arg){.kind = AIR_ARG_NONE};
    push_out(&b, &at, AIR_I64, 0, NULL);
    CHECK(!run(&b, ref_argmax, NULL, 3));
    CHECK_INT(at, 2);
}

/* ---- indices ------------------------------------------------------------- */

/* x[:, i] of x[2, 4] with i of shape [3], negative ones from the end. */
TEST(index_with_none_and_negative_indices)
{
    int32_t x[8] = {0, 1, 2, 3, 10, 11, 12, 13}, y[6];
    int64_t i[3] = {-1, 0, -4};
    bench b = {0};
    push_tensor(&b, x, AIR_I32, DIMS(2, 4));
    air_tensor list[2] = {{.dtype = AIR_DTYPE_NONE}};
    list[1] = tensor(&b, i, AIR_I64, DIMS(3));
    b.args[b.nargs++] =
        (air_arg){.kind = AIR_ARG_TENSORS, .count = 2, .t = list};
    push_out(&b, y, AIR_I32, DIMS(2, 3));
    CHECK(!run(&b, ref_index, ref_index_size, 2));
    CHECK_ARRAY(y, 3, 0, 0, 13, 10, 10);
}

/* Index tensors apart: their shape comes first. x[2, 3, 2][i, :, j]. */
TEST(index_with_a_gap_puts_the_shape_in_front)
{
    int32_t x[12], y[6];
    int64_t i[2] = {1, 0}, j[2] = {0, 1};
    bench b = {0};
    for (int k = 0; k < 12; k++)
        x[k] = k;
    push_tensor(&b, x, AIR_I32, DIMS(2, 3, 2));
    air_tensor list[3] = {{.dtype = AIR_DTYPE_NONE}};
    list[0] = tensor(&b, i, AIR_I64, DIMS(2));
    list[1].dtype = AIR_DTYPE_NONE;
    list[2] = tensor(&b, j, AIR_I64, DIMS(2));
    b.args[b.nargs++] =
        (air_arg){.kind = AIR_ARG_TENSORS, .count = 3, .t = list};
    push_out(&b, y, AIR_I32, DIMS(2, 3));
    CHECK(!run(&b, ref_index, ref_index_size, 1));
    CHECK_ARRAY(y, 6, 8, 10, 1, 3, 5);
}

/* x[i, j] with i of shape [20, 1, 1] and j of shape [1, 6, 5]: more places
 * than are looked at together, no memory for their offsets. */
TEST(index_with_index_tensors_that_are_broadcast)
{
    int32_t x[35], y[600];
    int64_t i[20], j[30];
    for (int k = 0; k < 35; k++)
        x[k] = k;
    for (int k = 0; k < 20; k++)
        i[k] = k % 10 - 5;
    for (int k = 0; k < 30; k++)
        j[k] = (3 * k) % 14 - 7;
    for (int threads = 1; threads <= 3; threads++) {
        bench b = {0};
        push_tensor(&b, x, AIR_I32, DIMS(5, 7));
        air_tensor list[2] = {tensor(&b, i, AIR_I64, DIMS(20, 1, 1)),
                              tensor(&b, j, AIR_I64, DIMS(1, 6, 5))};
        b.args[b.nargs++] =
            (air_arg){.kind = AIR_ARG_TENSORS, .count = 2, .t = list};
        push_out(&b, y, AIR_I32, DIMS(20, 6, 5));
        CHECK(!run(&b, ref_index, NULL, threads));
        for (int k = 0; k < 600; k++) {
            const int64_t row = (i[k / 30] + 5) % 5, column = j[k % 30] + 7;
            CHECK_INT(y[k], row * 7 + column % 7);
        }
    }
}

/* x[i, :, j] += 1, in the order of the places, with the same index tensors. */
TEST(index_put_with_index_tensors_that_are_broadcast)
{
    float x[5 * 2 * 7] = {0}, one = 1, y[5 * 2 * 7];
    int64_t i[20], j[30];
    for (int k = 0; k < 20; k++)
        i[k] = k % 5;
    for (int k = 0; k < 30; k++)
        j[k] = k % 3 * 3;
    for (int threads = 1; threads <= 3; threads++) {
        bench b = {0};
        push_tensor(&b, x, AIR_F32, DIMS(5, 2, 7));
        air_tensor list[3] = {tensor(&b, i, AIR_I64, DIMS(20, 1, 1)),
                              {.dtype = AIR_DTYPE_NONE},
                              tensor(&b, j, AIR_I64, DIMS(1, 6, 5))};
        b.args[b.nargs++] =
            (air_arg){.kind = AIR_ARG_TENSORS, .count = 3, .t = list};
        push_tensor(&b, &one, AIR_F32, 0, NULL);
        push_int(&b, 1);
        push_out(&b, y, AIR_F32, DIMS(5, 2, 7));
        CHECK(!run(&b, ref_index_put, ref_index_put_size, threads));
        for (int k = 0; k < 70; k++)
            CHECK(y[k] == (k % 7 % 3 == 0 ? 40 : 0));
    }
}

TEST(index_out_of_range_is_raised_and_read_as_zero)
{
    float x[4] = {1, 2, 3, 4}, y[3] = {9, 9, 9};
    int64_t i[3] = {3, 4, -5};
    bench b = {0};
    push_tensor(&b, x, AIR_F32, DIMS(4));
    push_int(&b, 0);
    push_tensor(&b, i, AIR_I64, DIMS(3));
    push_out(&b, y, AIR_F32, DIMS(3));
    CHECK(run(&b, ref_index_select, NULL, 1));
    CHECK_ARRAY(y, 4, 0, 0);
    CHECK_INT(b.faults[0].index, 4);
    CHECK_INT(b.faults[0].size, 4);
}

/* As eager: only indexing counts from the end. */
TEST(index_below_zero_is_raised_and_skipped)
{
    float x[4] = {1, 2, 3, 4}, y[2] = {9, 9}, z[4];
    int64_t i[2] = {2, -1};
    void (*const reads[])(const air_call *,
                          const air_task *) = {ref_index_select, ref_gather};
    void (*const writes[])(const air_call *, const air_task *) = {
        ref_index_copy, ref_scatter_src};
    for (int k = 0; k < 2; k++) {
        bench b = {0}, c = {0};
        push_tensor(&b, x, AIR_F32, DIMS(4));
        push_int(&b, 0);
        push_tensor(&b, i, AIR_I64, DIMS(2));
        c = b;
        push_out(&b, y, AIR_F32, DIMS(2));
        CHECK(run(&b, reads[k], NULL, 1));
        CHECK_ARRAY(y, 3, 0);
        CHECK_INT(b.faults[0].index, -1);
        y[0] = y[1] = 9;
        push_tensor(&c, y, AIR_F32, DIMS(2));
        push_out(&c, z, AIR_F32, DIMS(4));
        CHECK(run(&c, writes[k], NULL, 1));
        CHECK_ARRAY(z, 1, 2, 9, 4);
        CHECK_INT(c.faults[0].index, -1);
    }
}

/* Blocks of indices are checked together: one that is wrong spoils none. */
TEST(gather_goes_around_a_wrong_index)
{
    float x[100], y[100];
    int64_t at[100];
    bench b = {0};
    for (int k = 0; k < 100; k++) {
        x[k] = (float)k;
        at[k] = k == 45 ? 100 : 99 - k;
    }
    push_tensor(&b, x, AIR_F32, DIMS(100));
    push_int(&b, 0);
    push_tensor(&b, at, AIR_I64, DIMS(100));
    push_out(&b, y, AIR_F32, DIMS(100));
    CHECK(run(&b, ref_gather, NULL, 1));
    CHECK_INT(b.faults[0].index, 100);
    for (int k = 0; k < 100; k++)
        CHECK(y[k] == (k == 45 ? 0 : x[99 - k]));
}

/* In place, only what is indexed is written; else self is copied first. */
TEST(index_copy_in_place_writes_only_the_rows)
{
    float cache[8] = {1, 2, 3, 4, 5, 6, 7, 8}, rows[2] = {50, 60}, fresh[8];
    int64_t at[1] = {2};
    for (int in_place = 0; in_place < 2; in_place++) {
        bench b = {0};
        push_tensor(&b, cache, AIR_F32, DIMS(4, 2));
        push_int(&b, 0);
        push_tensor(&b, at, AIR_I64, DIMS(1));
        push_tensor(&b, rows, AIR_F32, DIMS(1, 2));
        push_out(&b, in_place ? cache : fresh, AIR_F32, DIMS(4, 2));
        cache[7] = 8.5f;
        CHECK(!run(&b, ref_index_copy, NULL, 3));
        CHECK_ARRAY(in_place ? cache : fresh, 1, 2, 3, 4, 50, 60, 7, 8.5);
        CHECK_NEAR(cache[4], in_place ? 50 : 5, 0);
    }
}

TEST(index_put_accumulates_repeated_indices)
{
    float x[4] = {1, 1, 1, 1}, v[6] = {1, 2, 3, 4, 5, 6}, y[4];
    int64_t i[6] = {0, 3, 0, -1, 0, 2};
    for (int threads = 1; threads <= 3; threads++) {
        bench b = {0};
        push_tensor(&b, x, AIR_F32, DIMS(4));
        air_tensor list[1] = {tensor(&b, i, AIR_I64, DIMS(6))};
        b.args[b.nargs++] =
            (air_arg){.kind = AIR_ARG_TENSORS, .count = 1, .t = list};
        push_tensor(&b, v, AIR_F32, DIMS(6));
        push_int(&b, 1);
        push_out(&b, y, AIR_F32, DIMS(4));
        CHECK(!run(&b, ref_index_put, ref_index_put_size, threads));
        CHECK_ARRAY(y, 10, 1, 7, 7);
    }
}

/* ---- threads give what one gives ----------------------------------------- */

TEST(move_of_a_transposed_matrix_on_threads)
{
    enum { ROWS = 77, COLS = 131 };
    static float x[ROWS * COLS], y[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)i;
    for (int threads = 1; threads <= 3; threads++) {
        bench b = {0};
        push_tensor(&b, x, AIR_F32, DIMS(COLS, ROWS));
        b.tensors[0].strides[0] = 1;
        b.tensors[0].strides[1] = COLS;
        push_out(&b, y, AIR_F32, DIMS(COLS, ROWS));
        memset(y, 0, sizeof y);
        CHECK(!run(&b, ref_flip, NULL, threads));
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLS; c++)
                if (y[c * ROWS + r] != x[r * COLS + c]) {
                    CHECK_NEAR(y[c * ROWS + r], x[r * COLS + c], 0);
                    return;
                }
    }
}

TEST(embedding_backward_on_threads_adds_in_order)
{
    enum { N = 300, ROWS = 17, COLS = 9 };
    static float grad[N * COLS], one[ROWS * COLS], many[ROWS * COLS];
    int64_t at[N];
    for (int i = 0; i < N * COLS; i++)
        grad[i] = (float)(i % 13) / 7;
    for (int i = 0; i < N; i++)
        at[i] = i * i % ROWS;
    for (int threads = 1; threads <= 3; threads += 2) {
        bench b = {0};
        push_tensor(&b, grad, AIR_F32, DIMS(N, COLS));
        push_tensor(&b, at, AIR_I64, DIMS(N));
        push_int(&b, ROWS);
        push_int(&b, 4);
        push_int(&b, 0);
        push_out(&b, threads == 1 ? one : many, AIR_F32, DIMS(ROWS, COLS));
        CHECK(!run(&b, ref_embedding_dense_backward, NULL, threads));
    }
    CHECK(memcmp(one, many, sizeof one) == 0);
    CHECK_NEAR(one[4 * COLS], 0, 0); /* the padding row */
}
