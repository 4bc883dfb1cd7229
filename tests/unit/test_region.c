/* Regions by tile loops: values, all walks, threads. */
#include <math.h>

#include "region_case.h"
#include "test.h"

static const char *const isas[] = {"scalar", "avx2", "avx512"};
enum { ISAS = 3 };

/* Every ISA, one thread and several: same bits as the first. */
/* Rows by the block give the bits of rows one by one. */
static void
run_across(region_case *c, void *const *first)
{
    c->rg.across = 1;
    for (int i = 0; i < ISAS; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            REQUIRE(case_run(c, NULL, isas[i], threads));
            if (!case_equal(c, first))
                test_fail(__FILE__, __LINE__, "across, isa %s, %d threads",
                          isas[i], threads);
        }
    c->rg.across = 0;
}

static void
run_all(region_case *c)
{
    void *first[AIR_RG_MAX_BUFS];
    REQUIRE(case_run(c, NULL, "scalar", 1));
    case_save(c, first);
    for (int i = 0; i < ISAS; i++)
        for (int threads = 1; threads <= 4; threads++) {
            REQUIRE(case_run(c, NULL, isas[i], threads));
            if (!case_equal(c, first))
                test_fail(__FILE__, __LINE__, "isa %s, %d threads", isas[i],
                          threads);
        }
    if (c->rg.walk == AIR_WALK_INNER)
        run_across(c, first);
    case_drop(c, first);
}

TEST(region_map_broadcasts)
{
    region_case c;
    case_init(&c, AIR_WALK_MAP, 3, (int64_t[]){3, 5, 70}, 1);
    int x = case_dense(&c, AIR_F32, 0, false);
    int bias = case_dense(&c, AIR_F32, 3, false);
    int scale = case_dense(&c, AIR_BF16, 4, false);
    int y = case_dense(&c, AIR_F32, 0, false);
    case_phase(&c, AIR_PHASE_ROW);
    int a = case_load(&c, AIR_LANE_F32, x),
        b = case_load(&c, AIR_LANE_F32, bias);
    int s = case_load(&c, AIR_LANE_F32, scale);
    int sum = case_op(&c, AIR_RG_ADD, AIR_LANE_F32, a, b, -1);
    case_store(&c, y, case_op(&c, AIR_RG_MUL, AIR_LANE_F32, sum, s, -1));
    run_all(&c);
    for (int64_t i = 0; i < 1050; i++)
        CHECK_NEAR(case_get(&c, y, i),
                   (case_get(&c, x, i) + case_get(&c, bias, i % 70)) *
                       case_get(&c, scale, i / 70),
                   1e-5);
    case_free(&c);
}

/* Buffers of short rows that are written out to be dense: some once, some for
 * each block, results too. */
TEST(region_short_rows_are_one)
{
    static const int64_t sizes[][3] = {
        {1, 5000, 3}, {700, 8, 2}, {3, 1, 16}, {2, 333, 7}, {90, 40, 64}};
    for (int k = 0; k < 5; k++) {
        const int64_t *n = sizes[k];
        void *first[AIR_RG_MAX_BUFS];
        region_case c;
        case_init(&c, AIR_WALK_MAP, 3, n, (uint32_t)k);
        int in[] = {
            case_dense(&c, AIR_F32, 0, false),
            case_dense(&c, AIR_F32, 1, false),
            case_dense(&c, AIR_BF16, 2, false),
            case_dense(&c, AIR_F32, 4, false),
            case_dense(&c, AIR_F32, 3, false),
            case_dense(&c, AIR_F64, 7, false),
            case_buf(&c, AIR_F32, (int64_t[]){1, n[0], n[0] * n[1]}, false)};
        int y = case_dense(&c, AIR_F32, 0, false);
        int z = case_buf(&c, AIR_F16,
                         (int64_t[]){n[1] * (n[2] + 3), n[2] + 3, 1}, false);
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_F32, in[0]);
        for (int i = 1; i < 7; i++) {
            int b = case_load(&c, AIR_LANE_F32, in[i]);
            a = case_op(&c, i % 2 ? AIR_RG_ADD : AIR_RG_MUL, AIR_LANE_F32, a, b,
                        -1);
        }
        case_store(&c, y, a);
        case_store(&c, z, a);
        c.rg.spread = 0;
        c.rg.dims[2] = n[2];
        run_all(&c);
        case_save(&c, first);
        c.rg.spread = 1;
        run_all(&c);
        CHECK(case_equal(&c, first));
        case_drop(&c, first);
        case_free(&c);
    }
}

TEST(region_map_reverses_and_transposes)
{
    region_case c;
    case_init(&c, AIR_WALK_MAP, 2, (int64_t[]){37, 53}, 2);
    int x = case_buf(&c, AIR_F32, (int64_t[]){1, 37}, false);
    int r = case_buf(&c, AIR_I16, (int64_t[]){53, -1}, false);
    int y = case_dense(&c, AIR_F64, 0, false);
    int z = case_buf(&c, AIR_I32, (int64_t[]){2, 74}, false);
    case_phase(&c, AIR_PHASE_ROW);
    int a = case_load(&c, AIR_LANE_F64, x);
    int b = case_load(&c, AIR_LANE_I64, r);
    case_store(&c, y, a);
    case_store(&c, z, b);
    run_all(&c);
    for (int64_t i = 0; i < 37; i++)
        for (int64_t j = 0; j < 53; j++) {
            CHECK(case_get(&c, y, i * 53 + j) == case_get(&c, x, i + j * 37));
            CHECK(case_get(&c, z, i * 2 + j * 74) ==
                  case_get(&c, r, i * 53 - j));
        }
    case_free(&c);
}

/* Regions that only move rows of a few elements, in pieces of many rows. */
TEST(region_copies_short_rows)
{
    static const int64_t steps[] = {0, 1, 2, 3, -1};
    static const air_dtype dtypes[] = {AIR_U8, AIR_BF16, AIR_F32, AIR_I64};
    const int count = sizeof steps / sizeof *steps;
    for (int k = 0; k < 4 * count * count; k++) {
        const int64_t row = steps[k % count], col = 3000 * row + 1;
        const int64_t size = 1 + k / count % count * 4;
        const air_dtype dtype = dtypes[k / (count * count)];
        region_case c;
        bool equal = true;
        case_init(&c, AIR_WALK_MAP, 2, (int64_t[]){1100, size}, (uint32_t)k);
        int x = case_buf(&c, dtype, (int64_t[]){row, col}, false);
        int y = case_buf(&c, dtype, (int64_t[]){size, 1}, false);
        case_phase(&c, AIR_PHASE_ROW);
        air_lane lane =
            dtype == AIR_BF16 || dtype == AIR_F32 ? AIR_LANE_F32 : AIR_LANE_I64;
        case_store(&c, y, case_load(&c, lane, x));
        run_all(&c);
        for (int64_t i = 0; i < 1100 * size; i++)
            equal &= case_get(&c, y, i) ==
                     case_get(&c, x, i / size * row + i % size * col);
        if (!equal)
            test_fail(__FILE__, __LINE__, "row %d of %d", (int)row, (int)size);
        case_free(&c);
    }
}

/* Regions that only move: every pair of these layouts, every element size. */
TEST(region_copies)
{
    static const int64_t dims[3] = {3, 21, 70};
    static const int64_t layouts[][3] = {
        {1470, 70, 1},  /* rows */
        {1470, 1, 21},  /* columns */
        {1, 210, 3},    /* the outer axis innermost */
        {4000, 80, 1},  /* with gaps */
        {3600, 2, 50},  /* nowhere dense */
        {2940, 140, 2}, /* every second */
        {1470, 70, -1}, /* reversed */
        {-1470, -1, 21},
    };
    static const air_dtype dtypes[] = {AIR_U8, AIR_BF16, AIR_F32, AIR_I64};
    const int count = sizeof layouts / sizeof *layouts;
    for (int k = 0; k < 4 * (count + 1) * (count - 2); k++) {
        static const int64_t same[3] = {0, 70, 0}; /* broadcast */
        const int from = k % (count + 1), to = k / (count + 1) % (count - 2);
        const air_dtype dtype = dtypes[k / ((count + 1) * (count - 2))];
        const int64_t *s = from == count ? same : layouts[from];
        const int64_t *d = layouts[to];
        region_case c;
        bool equal = true;
        case_init(&c, AIR_WALK_MAP, 3, dims, (uint32_t)k + 1);
        int x = case_buf(&c, dtype, s, false);
        int y = case_buf(&c, dtype, d, false);
        case_phase(&c, AIR_PHASE_ROW);
        air_lane lane =
            dtype == AIR_BF16 || dtype == AIR_F32 ? AIR_LANE_F32 : AIR_LANE_I64;
        case_store(&c, y, case_load(&c, lane, x));
        run_all(&c);
        for (int64_t i = 0; i < 3 * 21 * 70; i++) {
            const int64_t a = i / 1470, b = i / 70 % 21, e = i % 70;
            equal &= case_get(&c, y, a * d[0] + b * d[1] + e * d[2]) ==
                     case_get(&c, x, a * s[0] + b * s[1] + e * s[2]);
        }
        if (!equal)
            test_fail(__FILE__, __LINE__, "layout %d to %d", from, to);
        case_free(&c);
    }
}

TEST(region_map_index)
{
    region_case c;
    case_init(&c, AIR_WALK_MAP, 3, (int64_t[]){4, 1, 600}, 3);
    int y = case_dense(&c, AIR_I64, 0, false);
    case_phase(&c, AIR_PHASE_ROW);
    int n[3];
    for (int i = 0; i < 3; i++) {
        n[i] = case_op(&c, AIR_RG_INDEX, AIR_LANE_I64, -1, -1, -1);
        c.nodes[n[i]].buf = (int16_t)i;
    }
    int k = case_const(&c, AIR_LANE_I64, 1000);
    int row = case_op(&c, AIR_RG_MUL, AIR_LANE_I64, n[0], k, -1);
    int sum = case_op(&c, AIR_RG_ADD, AIR_LANE_I64, row, n[2], -1);
    case_store(&c, y, case_op(&c, AIR_RG_ADD, AIR_LANE_I64, sum, n[1], -1));
    run_all(&c);
    for (int64_t i = 0; i < 2400; i++)
        CHECK(case_get(&c, y, i) == (double)(i / 600 * 1000 + i % 600));
    case_free(&c);
}

/* Rows that are only folded: each reduction, lane and rest of a row, and of
 * chunks of one. */
TEST(region_rows_only_folded)
{
    static const air_dtype dtypes[] = {AIR_F32, AIR_F64, AIR_I64, AIR_U8,
                                       AIR_I32};
    static const air_lane lanes[] = {AIR_LANE_F32, AIR_LANE_F64, AIR_LANE_I64,
                                     AIR_LANE_I64, AIR_LANE_I64};
    static const air_reduce folds[] = {AIR_REDUCE_SUM, AIR_REDUCE_PROD,
                                       AIR_REDUCE_MAX, AIR_REDUCE_MIN};
    static const int64_t sizes[] = {1,    3,    7,    8,     9,     31,
                                    63,   64,   65,   130,   500,   4096,
                                    4097, 4160, 8192, 70003, 139400};
    const int nsizes = sizeof sizes / sizeof *sizes;
    for (int k = 0; k < 5 * 4 * nsizes; k++) {
        const int64_t cols = sizes[k % nsizes];
        const int lane = k / nsizes % 5;
        const int64_t rows = cols > 500 ? 2 : 19;
        region_case c;
        case_init(&c, AIR_WALK_INNER, 2, (int64_t[]){rows, cols}, (uint32_t)k);
        int x = case_buf(&c, dtypes[lane], (int64_t[]){cols + k % 2, 1},
                         k % 3 == 0);
        int y = case_dense(&c, dtypes[lane], 2, false);
        case_phase(&c, AIR_PHASE_ROW);
        int s = case_reduce(&c, folds[k / nsizes / 5],
                            case_load(&c, lanes[lane], x));
        case_phase(&c, AIR_PHASE_SCALAR);
        case_store(&c, y, case_scalar(&c, lanes[lane], s));
        run_all(&c);
        case_free(&c);
    }
}

/* Columns of integers that are only folded: a tile of them and more, more rows
 * than are folded at once. */
TEST(region_columns_only_folded)
{
    static const air_dtype dtypes[] = {AIR_I8, AIR_U8, AIR_I16, AIR_I32};
    static const air_reduce folds[] = {AIR_REDUCE_MAX, AIR_REDUCE_MIN,
                                       AIR_REDUCE_SUM};
    static const int64_t sizes[] = {1, 7, 64, 130, 515};
    for (int k = 0; k < 4 * 3 * 5; k++) {
        const int64_t dims[] = {k % 7 == 0 ? 1 : 2 + k * 13 % 300,
                                sizes[k % 5]};
        const air_dtype dtype = dtypes[k / 5 % 4];
        region_case c;
        case_init(&c, AIR_WALK_OUTER, 2, dims, (uint32_t)k);
        int x = case_buf(&c, dtype, (int64_t[]){dims[1] + k % 2, 1}, false);
        int y = case_dense(&c, dtype, 1, false);
        case_phase(&c, AIR_PHASE_ROW);
        int s = case_reduce(&c, folds[k / 20], case_load(&c, AIR_LANE_I64, x));
        case_phase(&c, AIR_PHASE_ROW);
        case_store(&c, y, case_scalar(&c, AIR_LANE_I64, s));
        run_all(&c);
        case_free(&c);
    }
}

/* A few columns that are only folded, by vectors or not, as the instruction
 * set has it: parts of a vector, several, more rows than are folded at once. */
TEST(region_few_columns_only_folded)
{
    static const air_dtype dtypes[] = {AIR_F32, AIR_F64, AIR_I64};
    static const air_lane lanes[] = {AIR_LANE_F32, AIR_LANE_F64, AIR_LANE_I64};
    static const int64_t sizes[] = {3, 8, 13, 16, 31, 32, 40, 64, 65};
    static const int64_t heights[] = {1, 3, 4, 33, 64, 257, 300};
    for (uint32_t k = 0; k < 3 * 9 * 7 * 2; k++) {
        const int lane = (int)(k % 3);
        const int64_t rows = heights[k / 27 % 7], cols = sizes[k / 3 % 9];
        region_case c;
        case_init(&c, AIR_WALK_OUTER, 3, (int64_t[]){3, rows, cols}, k);
        const int64_t line = cols + k % 2;
        int x = case_buf(&c, dtypes[lane], (int64_t[]){rows * line, line, 1},
                         false);
        int y = case_buf(&c, dtypes[lane], (int64_t[]){cols, 0, 1}, false);
        case_phase(&c, AIR_PHASE_ROW);
        int s = case_reduce(&c, k / 189 ? AIR_REDUCE_PROD : AIR_REDUCE_SUM,
                            case_load(&c, lanes[lane], x));
        case_phase(&c, AIR_PHASE_ROW);
        case_store(&c, y, case_scalar(&c, lanes[lane], s));
        run_all(&c);
        case_free(&c);
    }
}

/* max, sum of exp(x - max) kept in scratch, divide. */
static void
softmax_case(region_case *c, int64_t rows, int64_t cols, air_dtype dtype)
{
    case_init(c, AIR_WALK_INNER, 2, (int64_t[]){rows, cols}, 4);
    int x = case_dense(c, dtype, 0, false);
    int y = case_dense(c, dtype, 0, false);
    int lse = case_dense(c, AIR_F32, 2, false);
    int t = case_scratch(c, AIR_F32);
    case_phase(c, AIR_PHASE_ROW);
    int max = case_reduce(c, AIR_REDUCE_MAX, case_load(c, AIR_LANE_F32, x));
    case_phase(c, AIR_PHASE_ROW);
    int a = case_load(c, AIR_LANE_F32, x);
    int m = case_scalar(c, AIR_LANE_F32, max);
    int d = case_op(c, AIR_RG_SUB, AIR_LANE_F32, a, m, -1);
    int e = case_op(c, AIR_RG_EXP, AIR_LANE_F32, d, -1, -1);
    case_store(c, t, e);
    int sum = case_reduce(c, AIR_REDUCE_SUM, e);
    case_phase(c, AIR_PHASE_SCALAR);
    int s = case_scalar(c, AIR_LANE_F32, sum);
    int one = case_const(c, AIR_LANE_F32, 1);
    int r = case_set(c, case_op(c, AIR_RG_DIV, AIR_LANE_F32, one, s, -1));
    int log = case_op(c, AIR_RG_LOG, AIR_LANE_F32, s, -1, -1);
    int m2 = case_scalar(c, AIR_LANE_F32, max);
    case_store(c, lse, case_op(c, AIR_RG_ADD, AIR_LANE_F32, log, m2, -1));
    case_phase(c, AIR_PHASE_ROW);
    int q = case_load(c, AIR_LANE_F32, t);
    int f = case_scalar(c, AIR_LANE_F32, r);
    case_store(c, y, case_op(c, AIR_RG_MUL, AIR_LANE_F32, q, f, -1));
}

static void
check_softmax(const region_case *c, int64_t rows, int64_t cols, double tol)
{
    for (int64_t i = 0; i < rows; i++) {
        double max = -HUGE_VAL, sum = 0;
        for (int64_t j = 0; j < cols; j++)
            max = fmax(max, case_get(c, 0, i * cols + j));
        for (int64_t j = 0; j < cols; j++)
            sum += exp(case_get(c, 0, i * cols + j) - max);
        CHECK_NEAR(case_get(c, 2, i), log(sum) + max, 1e-5);
        for (int64_t j = 0; j < cols; j++) {
            double want = exp(case_get(c, 0, i * cols + j) - max) / sum;
            CHECK_NEAR(case_get(c, 1, i * cols + j), want, want * tol);
        }
    }
}

TEST(region_inner_softmax)
{
    static const int64_t sizes[][2] = {{7, 1},    {5, 63},   {9, 64},
                                       {3, 65},   {600, 7},  {4, 1000},
                                       {2, 9000}, {1, 70001}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        region_case c;
        softmax_case(&c, sizes[i][0], sizes[i][1], AIR_F32);
        run_all(&c);
        check_softmax(&c, sizes[i][0], sizes[i][1], 1e-5);
        case_free(&c);
        softmax_case(&c, sizes[i][0], sizes[i][1], AIR_BF16);
        run_all(&c);
        check_softmax(&c, sizes[i][0], sizes[i][1], 1e-2);
        case_free(&c);
    }
}

/* Rows that lie along several short axes, whose buffers are broadcast along
 * some of them: a block is of all of these. */
TEST(region_inner_short_axes)
{
    static const int64_t sizes[][4] = {
        {70, 8, 8, 3}, {1, 9, 30, 2}, {500, 1, 2, 8}, {3, 2, 5, 40}};
    for (int k = 0; k < 4; k++) {
        const int64_t *n = sizes[k];
        region_case c;
        case_init(&c, AIR_WALK_INNER, 4, n, (uint32_t)k);
        int in[] = {
            case_dense(&c, AIR_F32, 0, false),
            case_dense(&c, AIR_F32, 4, false),
            case_dense(&c, AIR_BF16, 3, false),
            case_dense(&c, AIR_F64, 10, false),
            case_buf(&c, AIR_F32,
                     (int64_t[]){n[2] * n[3] * n[1], n[3], n[3] * n[1], 1},
                     false)};
        int y = case_dense(&c, AIR_F32, 8, false);
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_F32, in[0]);
        for (int i = 1; i < 5; i++)
            a = case_op(&c, i % 2 ? AIR_RG_ADD : AIR_RG_MUL, AIR_LANE_F32, a,
                        case_load(&c, AIR_LANE_F32, in[i]), -1);
        const int sum = case_reduce(&c, AIR_REDUCE_SUM, a);
        case_phase(&c, AIR_PHASE_SCALAR);
        case_store(&c, y, case_scalar(&c, AIR_LANE_F32, sum));
        run_all(&c);
        case_free(&c);
    }
}

TEST(region_inner_empty_rows)
{
    region_case c;
    softmax_case(&c, 3, 0, AIR_F32);
    run_all(&c);
    for (int64_t i = 0; i < 3; i++)
        CHECK(case_get(&c, 2, i) == -HUGE_VAL);
    case_free(&c);
}

/* A million terms, partly cancelling: the error of a pairwise sum. */
TEST(region_inner_sum_is_accurate)
{
    enum { COUNT = 1 << 20 };
    region_case c;
    case_init(&c, AIR_WALK_INNER, 2, (int64_t[]){1, COUNT}, 8);
    int x = case_dense(&c, AIR_F32, 0, false);
    int y = case_dense(&c, AIR_F32, 2, false);
    case_phase(&c, AIR_PHASE_ROW);
    int s = case_reduce(&c, AIR_REDUCE_SUM, case_load(&c, AIR_LANE_F32, x));
    case_phase(&c, AIR_PHASE_SCALAR);
    case_store(&c, y, case_scalar(&c, AIR_LANE_F32, s));
    run_all(&c);
    double sum = 0, size = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        sum += case_get(&c, x, i);
        size += fabs(case_get(&c, x, i));
    }
    CHECK_NEAR(case_get(&c, y, 0), sum, 1e-8 * size);
    case_free(&c);
}

TEST(region_inner_nan_wins)
{
    for (int at = 0; at < 130; at++) {
        region_case c;
        case_init(&c, AIR_WALK_INNER, 2, (int64_t[]){1, 130}, 5);
        int x = case_dense(&c, AIR_F32, 0, false);
        int y = case_dense(&c, AIR_F32, 2, false);
        ((float *)c.data[x])[at] = NAN;
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_F32, x);
        int s = case_reduce(&c, at % 2 ? AIR_REDUCE_MAX : AIR_REDUCE_MIN, a);
        case_phase(&c, AIR_PHASE_SCALAR);
        case_store(&c, y, case_scalar(&c, AIR_LANE_F32, s));
        REQUIRE(case_run(&c, NULL, "avx512", 1));
        CHECK(isnan(case_get(&c, y, 0)));
        case_free(&c);
    }
}

/* Sum, product of two things and any, over the rows. */
static void
outer_case(region_case *c, int64_t n, int64_t rows, int64_t cols)
{
    case_init(c, AIR_WALK_OUTER, 3, (int64_t[]){n, rows, cols}, 6);
    int x = case_dense(c, AIR_F32, 0, false);
    int y = case_dense(c, AIR_F32, 2, false);
    int z = case_dense(c, AIR_F64, 2, false);
    int w = case_dense(c, AIR_BOOL, 2, false);
    case_phase(c, AIR_PHASE_ROW);
    int a = case_load(c, AIR_LANE_F32, x), b = case_load(c, AIR_LANE_F64, x);
    int k = case_const(c, AIR_LANE_F64, 3.9);
    int sum = case_reduce(c, AIR_REDUCE_SUM,
                          case_op(c, AIR_RG_MUL, AIR_LANE_F32, a, a, -1));
    int max = case_reduce(c, AIR_REDUCE_MAX, b);
    int any = case_reduce(c, AIR_REDUCE_ANY,
                          case_op(c, AIR_RG_LT, AIR_LANE_B, k, b, -1));
    case_phase(c, AIR_PHASE_ROW);
    case_store(c, y, case_scalar(c, AIR_LANE_F32, sum));
    case_store(c, z, case_scalar(c, AIR_LANE_F64, max));
    case_store(c, w, case_scalar(c, AIR_LANE_B, any));
}

static void
check_outer(const region_case *c, int64_t n, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0, max = -HUGE_VAL;
            for (int64_t r = 0; r < rows; r++) {
                double x = case_get(c, 0, (i * rows + r) * cols + j);
                sum += x * x;
                max = fmax(max, x);
            }
            CHECK_NEAR(case_get(c, 1, i * cols + j), sum, 1e-4 * sum);
            CHECK(case_get(c, 2, i * cols + j) == max);
            CHECK(case_get(c, 3, i * cols + j) == (max > 3.9));
        }
}

TEST(region_outer)
{
    static const int64_t sizes[][3] = {{1, 1, 1},     {2, 3, 70},  {1, 0, 5},
                                       {3, 255, 17},  {1, 257, 9}, {1, 2000, 3},
                                       {2, 600, 1300}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t *s = sizes[i];
        region_case c;
        outer_case(&c, s[0], s[1], s[2]);
        run_all(&c);
        check_outer(&c, s[0], s[1], s[2]);
        case_free(&c);
    }
}

/* Rows less their largest element, and their sums down the columns; sums of x
 * in double, every other element of their buffer. */
static void
columns_case(region_case *c, int64_t rows, int64_t cols)
{
    case_init(c, AIR_WALK_INNER, 3, (int64_t[]){2, rows, cols}, 13);
    const air_lane f = AIR_LANE_F32, d = AIR_LANE_F64;
    int x = case_dense(c, AIR_F32, 0, false);
    int y = case_dense(c, AIR_F32, 0, false);
    int down = case_dense(c, AIR_BF16, 3, false);
    int all = case_buf(c, AIR_F64, (int64_t[]){0, 0, 2}, false);
    int sums = case_sums(c, AIR_F32), wide = case_sums(c, AIR_F64);
    case_phase(c, AIR_PHASE_ROW);
    int a = case_load(c, f, x);
    int big = case_reduce(c, AIR_REDUCE_MAX, a);
    int add = case_op(c, AIR_RG_ADD, d, case_load(c, d, wide),
                      case_op(c, AIR_RG_CVT, d, a, -1, -1), -1);
    case_store(c, wide, add);
    case_phase(c, AIR_PHASE_ROW);
    int less = case_op(c, AIR_RG_SUB, f, case_load(c, f, x),
                       case_scalar(c, f, big), -1);
    case_store(c, y, less);
    case_store(c, sums,
               case_op(c, AIR_RG_ADD, f, case_load(c, f, sums), less, -1));
    case_phase(c, AIR_PHASE_COLUMN);
    case_store(c, down, case_load(c, f, sums));
    case_store(c, all, case_load(c, d, wide));
}

TEST(region_columns)
{
    static const int64_t sizes[][2] = {{0, 5},    {1, 1},     {9, 70},
                                       {8, 4099}, {100, 129}, {1100, 65}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t rows = 2 * sizes[i][0], cols = sizes[i][1];
        region_case c;
        columns_case(&c, sizes[i][0], cols);
        run_all(&c);
        for (int64_t j = 0; j < cols; j++) {
            double less = 0, sum = 0;
            for (int64_t r = 0; r < rows; r++) {
                less += case_get(&c, 1, r * cols + j);
                sum += case_get(&c, 0, r * cols + j);
            }
            CHECK_NEAR(case_get(&c, 2, j), less, 4e-3 * fabs(less));
            CHECK_NEAR(case_get(&c, 3, 2 * j), sum, 1e-9);
        }
        case_free(&c);
    }
}

/* Sets of 256 rows at most, added in order; the sets pairwise. */
TEST(region_columns_in_order)
{
    enum { ROWS = 40000, COLS = 3, SETS = (ROWS + 255) / 256 };
    region_case c;
    case_init(&c, AIR_WALK_INNER, 2, (int64_t[]){ROWS, COLS}, 17);
    int x = case_dense(&c, AIR_F32, 0, false);
    int y = case_dense(&c, AIR_F32, 1, false);
    int sums = case_sums(&c, AIR_F32);
    case_phase(&c, AIR_PHASE_ROW);
    int add =
        case_op(&c, AIR_RG_ADD, AIR_LANE_F32, case_load(&c, AIR_LANE_F32, sums),
                case_load(&c, AIR_LANE_F32, x), -1);
    case_store(&c, sums, add);
    case_phase(&c, AIR_PHASE_COLUMN);
    case_store(&c, y, case_load(&c, AIR_LANE_F32, sums));
    run_all(&c);
    for (int64_t j = 0; j < COLS; j++) {
        float set[SETS] = {0};
        for (int64_t r = 0; r < ROWS; r++)
            set[r / 256] += (float)case_get(&c, x, r * COLS + j);
        for (int w = 1; w < SETS; w *= 2)
            for (int i = 0; i + w < SETS; i += 2 * w)
                set[i] += set[i + w];
        CHECK(case_get(&c, y, j) == (double)set[0]);
    }
    case_free(&c);
}

/* Sums of dense rows by the block, each length of a tail; the rows lie apart,
 * and some elements are not numbers. */
TEST(region_row_sums)
{
    for (int64_t cols = 1; cols < 300; cols += cols < 140 ? 1 : 37) {
        region_case c;
        const int64_t rows = 37;
        case_init(&c, AIR_WALK_INNER, 2, (int64_t[]){rows, cols},
                  (uint32_t)cols);
        int x = case_buf(&c, AIR_F32, (int64_t[]){cols + 3, 1}, cols % 5 == 0);
        int y = case_buf(&c, AIR_F32, (int64_t[]){2, 0}, false);
        case_phase(&c, AIR_PHASE_ROW);
        int s = case_reduce(&c, AIR_REDUCE_SUM, case_load(&c, AIR_LANE_F32, x));
        case_phase(&c, AIR_PHASE_SCALAR);
        case_store(&c, y, case_scalar(&c, AIR_LANE_F32, s));
        run_all(&c);
        for (int64_t r = 0; r < rows && cols % 5 != 0; r++) {
            double sum = 0;
            for (int64_t i = 0; i < cols; i++)
                sum += case_get(&c, x, r * (cols + 3) + i);
            CHECK_NEAR(case_get(&c, y, 2 * r), sum, 1e-4);
        }
        case_free(&c);
    }
}

TEST(region_refuses_sums_without_columns)
{
    region_case c;
    cpu_region *r;
    columns_case(&c, 4, 8);
    c.phases[2].kind = AIR_PHASE_ROW;
    CHECK_FAILS(cpu_region_make(&base_libc_alloc, &c.rg, NULL, "avx2", &r),
                ARGUMENT);
    c.phases[2].kind = AIR_PHASE_COLUMN;
    c.bufs[4].dtype = AIR_BF16;
    CHECK_FAILS(cpu_region_make(&base_libc_alloc, &c.rg, NULL, "avx2", &r),
                ARGUMENT);
    c.bufs[4].scratch = c.bufs[5].scratch = AIR_RG_ROW;
    CHECK_FAILS(cpu_region_make(&base_libc_alloc, &c.rg, NULL, "avx2", &r),
                ARGUMENT);
    case_free(&c);
}

TEST(region_refuses_bad_nodes)
{
    region_case c;
    cpu_region *r;
    case_init(&c, AIR_WALK_MAP, 1, (int64_t[]){8}, 7);
    int x = case_dense(&c, AIR_F32, 0, false);
    case_phase(&c, AIR_PHASE_ROW);
    int a = case_load(&c, AIR_LANE_F32, x);
    int bad = case_op(&c, AIR_RG_IDIV, AIR_LANE_F32, a, a, -1);
    CHECK_FAILS(cpu_region_make(&base_libc_alloc, &c.rg, NULL, "avx2", &r),
                DTYPE);
    CHECK(r == NULL);
    c.nodes[bad].a = 5;
    CHECK_FAILS(cpu_region_make(&base_libc_alloc, &c.rg, NULL, "avx2", &r),
                ARGUMENT);
    c.nodes[bad] = c.nodes[a];
    c.nodes[bad].buf = 9;
    CHECK_FAILS(cpu_region_make(&base_libc_alloc, &c.rg, NULL, "avx2", &r),
                ARGUMENT);
    case_free(&c);
}

static air_status
make_and_free(const air_alloc *alloc, void *user)
{
    cpu_region *r;
    region_case *c = user;
    AIR_TRY(cpu_region_make(alloc, &c->rg, NULL, "avx2", &r));
    cpu_region_free(r);
    return AIR_OK;
}

TEST(region_make_out_of_memory)
{
    region_case c;
    softmax_case(&c, 3, 100, AIR_F32);
    TEST_OOM(make_and_free, &c);
    case_free(&c);
}
