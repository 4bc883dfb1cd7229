/* expand.h: the functions of expand.def. Each replaces one composite node by
 * pointwise, reduce, view and call nodes that reproduce eager: half precision
 * is computed in f32 and rounded once, as ATen does. */
#ifndef PASS_EXPAND_H
#define PASS_EXPAND_H

#include "pass/build.h"

#define EXPAND(op, fn) air_status fn(pass_context *ctx, uint32_t node);
#include "pass/expand.def"
#undef EXPAND

/* Shared by the files of expand. */

/* Sum over the axes, divided by the number of elements. */
air_ref expand_mean_over(pass_build *b, air_ref x, int n, const int *axes,
                         bool keep);
/* x in what its variance is computed in: double for f32, as ATen does, f32 for
 * half precision. Norms other than the first and second are, too. */
air_ref expand_in_double(pass_build *b, air_ref x);

#endif
