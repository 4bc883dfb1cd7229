/* dense.h: how a tensor lies in memory, for all drivers. */
#ifndef DRIVER_DENSE_H
#define DRIVER_DENSE_H

#include "air_kernel.h"

/* Row-major, without gaps. */
static inline bool
driver_is_dense(const air_tensor *t)
{
    int64_t stride = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != stride)
            return false;
        stride *= t->dims[i];
    }
    return true;
}

/* [N, C, ...] in the order of [N, ..., C], without gaps. */
static inline bool
driver_is_last(const air_tensor *t)
{
    int64_t stride = t->rank > 2 ? t->dims[1] : 0;
    if (t->rank < 3 || (t->dims[1] != 1 && t->strides[1] != 1))
        return false;
    for (int i = t->rank - 1; i >= 0; i -= i == 2 ? 2 : 1) {
        if (t->dims[i] != 1 && t->strides[i] != stride)
            return false;
        stride *= t->dims[i];
    }
    return true;
}

#endif
