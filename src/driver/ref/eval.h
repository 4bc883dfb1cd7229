/* eval.h: the value of one region node. F32 and F64 lanes are computed in
 * double by the exact expressions of air_prims.def, so that neither the
 * polynomials nor the order of the tile loops enter the oracle. */
#ifndef REF_EVAL_H
#define REF_EVAL_H

#include "air_kernel.h"

typedef union {
    double f;  /* F32, F64 lanes */
    int64_t i; /* I64, B lanes */
} ref_value;

/* from: the lane of operand a (compares, conversions). */
ref_value ref_eval(unsigned op, air_lane lane, air_lane from, ref_value a,
                   ref_value b, ref_value c);

#endif
