/* axes.c: the iteration space of a region: order, drop and merge axes. */
#include <string.h>

#include "lower/lower.h"

typedef struct {
    int rank;
    lower_role role[AIR_MAX_RANK];
    int64_t size[AIR_MAX_RANK];
    int from[AIR_MAX_RANK]; /* the domain axis it is */
} axis_list;

static void
push_axes(axis_list *list, lower_role role, int rank, const lower_role *roles,
          const int64_t *sizes, bool keep)
{
    for (int i = 0; i < rank; i++) {
        if (roles[i] != role || (sizes[i] == 1 && !keep))
            continue;
        list->role[list->rank] = role;
        list->size[list->rank] = sizes[i];
        list->from[list->rank++] = i;
    }
}

/* The vector axis goes last except under reductions of the innermost axis,
 * where the reduced axis is the vector axis and there is no VECTOR role. */
static void
order_axes(axis_list *list, int rank, const lower_role *roles,
           const int64_t *sizes, bool keep)
{
    list->rank = 0;
    push_axes(list, LOWER_OUTER, rank, roles, sizes, keep);
    push_axes(list, LOWER_REDUCED, rank, roles, sizes, keep);
    push_axes(list, LOWER_VECTOR, rank, roles, sizes, keep);
}

static int64_t
stride_of(const axis_list *list, const air_rg_buf *buf, int axis)
{
    return buf->strides[list->from[axis]];
}

/* The first buffer for which axes i and i + 1 are not one run, or -1. Without
 * an element every stride is right. */
static int
blocks_merge(const axis_list *list, int i, int nbufs, const air_rg_buf *bufs)
{
    const bool empty = list->size[i] == 0 || list->size[i + 1] == 0;

    for (int b = 0; b < nbufs && !empty; b++)
        if (stride_of(list, &bufs[b], i) !=
            stride_of(list, &bufs[b], i + 1) * list->size[i + 1])
            return b;
    return -1;
}

/* An outer axis of which each index goes on where the vector axis ends belongs
 * to it: rows of a fold are as long as they can be. */
static void
widen_vector(int rank, lower_role *roles, const int64_t *sizes, int nbufs,
             const air_rg_buf *bufs)
{
    int last = -1;

    for (int i = rank - 1; i >= 0; i--) {
        bool goes_on = roles[i] == LOWER_OUTER && last >= 0 && sizes[i] > 1;
        for (int b = 0; b < nbufs && goes_on; b++)
            goes_on = bufs[b].strides[i] == bufs[b].strides[last] * sizes[last];
        if (goes_on)
            roles[i] = LOWER_VECTOR;
        if (roles[i] == LOWER_VECTOR)
            last = i;
    }
}

static void
merge_axis(axis_list *list, int i)
{
    list->size[i + 1] *= list->size[i];
    for (int k = i; k + 1 < list->rank; k++) {
        list->role[k] = list->role[k + 1];
        list->size[k] = list->size[k + 1];
        list->from[k] = list->from[k + 1];
    }
    list->rank--;
}

/* A role that must end as exactly one axis gets one of size 1. */
static void
ensure_role(axis_list *list, lower_role role, int *unit_axis)
{
    int at = 0;
    while (at < list->rank && list->role[at] < role)
        at++;
    if (at < list->rank && list->role[at] == role)
        return;
    for (int k = list->rank; k > at; k--) {
        list->role[k] = list->role[k - 1];
        list->size[k] = list->size[k - 1];
        list->from[k] = list->from[k - 1];
    }
    list->role[at] = role;
    list->size[at] = 1;
    list->from[at] = -1;
    list->rank++;
    *unit_axis = at;
}

static void
swap_axes(int64_t *of, int i, int j)
{
    int64_t was = of[i];
    of[i] = of[j];
    of[j] = was;
}

void
lower_sort_axes(int rank, int64_t *sizes, int nbufs, air_rg_buf *bufs, int by)
{
    for (int i = 1; i < rank; i++) {
        for (int j = i; j > 0; j--) {
            if (bufs[by].strides[j - 1] >= bufs[by].strides[j])
                break;
            swap_axes(sizes, j - 1, j);
            for (int b = 0; b < nbufs; b++)
                swap_axes(bufs[b].strides, j - 1, j);
        }
    }
}

bool
lower_axes(int rank, const lower_role *roles, const int64_t *sizes, bool keep,
           int nbufs, air_rg_buf *bufs, int *out_rank, int64_t *out_dims,
           int *out_bad)
{
    axis_list list;
    lower_role own[AIR_MAX_RANK];
    bool has_reduced = false, has_vector = false;
    int unit = -1;

    for (int i = 0; i < rank; i++) {
        has_reduced |= roles[i] == LOWER_REDUCED;
        has_vector |= roles[i] == LOWER_VECTOR;
    }
    memcpy(own, roles, (size_t)rank * sizeof *own);
    if (has_reduced && !keep)
        widen_vector(rank, own, sizes, nbufs, bufs);
    order_axes(&list, rank, own, sizes, keep);
    if (has_reduced)
        ensure_role(&list, LOWER_REDUCED, &unit);
    if (has_vector)
        ensure_role(&list, LOWER_VECTOR, &unit);
    if (list.rank == 0)
        ensure_role(&list, LOWER_OUTER, &unit);
    for (int i = list.rank - 2; i >= 0 && !keep; i--) {
        if (list.role[i] != list.role[i + 1])
            continue;
        int bad = list.from[i] < 0 || list.from[i + 1] < 0
                      ? 0
                      : blocks_merge(&list, i, nbufs, bufs);
        if (bad < 0) {
            merge_axis(&list, i);
        } else if (list.role[i] == LOWER_REDUCED) {
            *out_bad = bad;
            return false;
        }
    }
    for (int b = 0; b < nbufs; b++) {
        int64_t strides[AIR_MAX_RANK] = {0};
        for (int i = 0; i < list.rank; i++)
            strides[i] = list.from[i] < 0 ? 0 : bufs[b].strides[list.from[i]];
        memcpy(bufs[b].strides, strides, sizeof strides);
    }
    *out_rank = list.rank;
    memcpy(out_dims, list.size, sizeof list.size);
    return true;
}
