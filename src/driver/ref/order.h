/* order.h: rows as pairs of a key and an index. Keys are unsigned and order as
 * ATen orders: NaN above everything, -0 equal to 0. */
#ifndef REF_ORDER_H
#define REF_ORDER_H

#include "driver/ref/args.h"

typedef struct {
    uint64_t key;
    int64_t index;
} ref_pair;

#define REF_KEY_NAN UINT64_MAX /* of floats */

uint64_t ref_order_key(int dtype, const char *p);
/* n elements `stride` bytes apart. */
void ref_order_read(ref_pair *pairs, int dtype, const char *src, int64_t stride,
                    int64_t n, bool descending);
/* Sorts by key, stably; returns where they are then: pairs or spare. */
ref_pair *ref_order_sort(ref_pair *pairs, ref_pair *spare, int64_t n);

#endif
