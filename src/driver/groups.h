/* groups.h: where the groups of grouped_mm end. */
#ifndef DRIVER_GROUPS_H
#define DRIVER_GROUPS_H

#include "air_kernel.h"

/* The first of `places` behind group i, which begins at `begin`. A group that
 * ends before it begins is empty. */
static inline int64_t
driver_group_end(const air_tensor *offs, const air_task *task, int64_t i,
                 int64_t begin, int64_t places)
{
    const void *data = air_data(offs, task);
    int64_t at = i * offs->strides[0];
    int64_t end = offs->dtype == AIR_I32 ? ((const int32_t *)data)[at]
                                         : ((const int64_t *)data)[at];
    if (end < 0 || end > places) {
        air_raise(task, end, places + 1);
        end = begin;
    }
    return end < begin ? begin : end;
}

#endif
