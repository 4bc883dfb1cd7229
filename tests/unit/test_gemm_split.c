/* Parts of a matrix product: every row of every panel is in one, and no part
 * has more than its share but for a tile. */
#include "test.h"

#include "driver/cpu/product/gemm_split.h"

/* Vectors times rows of [from, to). */
static int64_t
work_of(const gemm_sheet *s, gemm_place from, gemm_place to)
{
    const int64_t unit = min64(PLAN_LANES, s->width), wide = s->width / unit;
    const int64_t vectors = max64(1, (s->lanes - s->rest + unit - 1) / unit);
    int64_t sum = 0;
    for (int64_t p = from.panel; p <= to.panel; p++) {
        const int64_t b = p == from.panel ? from.row : 0;
        const int64_t e = p == to.panel ? to.row : s->rows;
        sum += max64(0, min64(wide, vectors - p * wide)) * max64(0, e - b);
    }
    return sum;
}

static void
check_parts(const gemm_sheet *s, int64_t parts)
{
    const int64_t panels = (s->lanes + s->width - 1) / s->width;
    gemm_place at = gemm_place_of(s, 0, parts);
    CHECK_INT(at.panel, 0);
    CHECK_INT(at.row, 0);
    int64_t all = work_of(s, at, (gemm_place){panels, 0});
    for (int64_t i = 1; i <= parts; i++) {
        const gemm_place next = gemm_place_of(s, i, parts);
        const int64_t tile = s->tile * s->width / PLAN_LANES + s->tile;
        CHECK(next.panel > at.panel ||
              (next.panel == at.panel && next.row >= at.row));
        CHECK(next.row % s->tile == 0 && next.row < s->rows);
        CHECK(work_of(s, at, next) <= all / parts + tile);
        at = next;
    }
    CHECK_INT(at.panel, panels);
    CHECK_INT(at.row, 0);
}

TEST(gemm_parts)
{
    static const int widths[][2] = {{32, 14}, {16, 6}, {8, 4}};
    for (size_t w = 0; w < 3; w++)
        for (int64_t lanes = 1; lanes < 400; lanes += 13)
            for (int64_t rows = 1; rows < 300; rows += 37)
                for (int64_t parts = 2; parts < 20; parts += 3) {
                    gemm_sheet s = {lanes, lanes % 16 < 3 ? lanes % 16 : 0,
                                    rows, widths[w][0], widths[w][1]};
                    check_parts(&s, parts);
                }
}

/* The rows where w is much larger than x, or a thread had less than a panel. */
TEST(gemm_split_by)
{
    gemm_job job = {.nx = 196, .nw = 256, .k = 2304};
    CHECK(!gemm_splits_rows(&job, 2));
    CHECK(gemm_splits_rows(&job, 8));
    job.nx = 128, job.nw = 768;
    CHECK(gemm_splits_rows(&job, 2));
    job.nx = 2000;
    CHECK(!gemm_splits_rows(&job, 2));
}
