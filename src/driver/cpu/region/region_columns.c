/* region_columns.c: INNER regions that also sum over their rows.
 *
 * Rows are cut into sets, by their number only; each set adds to SUMS of its
 * own in the workspace. Then the sets are folded pairwise, set i and set i + w
 * for w = 1, 2, 4 ..., and the COLUMN phase runs, both split by columns. */
#include <string.h>

#include "driver/cpu/region/region_plan.h"

static char *
sum_set(const region_run *run, int64_t set)
{
    const cpu_region *r = run->r;
    return (char *)run->task->workspace +
           region_own_bytes(r, run->task->count) + (size_t)set * r->sum_bytes;
}

static void
sum_rows(region_run *run)
{
    const cpu_region *r = run->r;
    int64_t begin, end;
    air_split(region_sum_sets(r), run->task, &begin, &end);
    for (int64_t set = begin; set < end; set++) {
        int64_t from = set * r->sum_rows, to = from + r->sum_rows;
        run->sums = sum_set(run, set);
        memset(run->sums, 0, r->sum_bytes);
        region_rows(run, from, to < r->rows ? to : r->rows);
    }
}

/* Columns [begin, begin + n) of all sets into set 0. */
static void
fold_sets(const region_run *run, int b, int64_t begin, int64_t n)
{
    const cpu_region *r = run->r;
    const air_lane lane =
        r->rg->bufs[b].dtype == AIR_F64 ? AIR_LANE_F64 : AIR_LANE_F32;
    const size_t at = r->row[b] + (size_t)begin * r->bytes[b];
    int64_t sets = region_sum_sets(r);
    for (int64_t w = 1; w < sets; w *= 2)
        for (int64_t i = 0; i + w < sets; i += 2 * w)
            (*r->set->eachs)[AIR_REDUCE_SUM][lane](sum_set(run, i) + at,
                                                   sum_set(run, i + w) + at, n);
}

void
region_columns(region_run *run)
{
    const cpu_region *r = run->r;
    int64_t begin, end;
    sum_rows(run);
    run->task->barrier(run->task);
    air_split((r->cols + 63) / 64, run->task, &begin, &end);
    begin *= 64;
    end = end * 64 < r->cols ? end * 64 : r->cols;
    if (begin >= end)
        return;
    for (int b = 0; b < r->rg->nbufs; b++)
        if (r->rg->bufs[b].scratch == AIR_RG_SUMS)
            fold_sets(run, b, begin, end - begin);
    run->sums = sum_set(run, 0);
    region_run_seek(run, 0, 0);
    region_run_span(run, r->row_phases, begin, end - begin);
}
