/* canon.h: the functions of canon.def. Each looks at one node and may forward
 * its result to something simpler. */
#ifndef PASS_CANON_H
#define PASS_CANON_H

#include "pass/build.h"

#define RENAME(from, to)
#define CANON(op, fn) air_status fn(pass_context *ctx, uint32_t node);
#include "pass/canon.def"
#undef CANON
#undef RENAME

/* Of view(permute(view(x))): done where it became one that copies nothing. */
air_status canon_split(pass_context *ctx, uint32_t node, bool *done);
/* Of add: done where it became parts side by side. */
air_status canon_sum_of_parts(pass_context *ctx, uint32_t node, bool *done);
/* Of a node that reads what is broadcast: done where another one took its
 * place. */
air_status canon_expanded(pass_context *ctx, uint32_t node, bool *done);
/* A copy or cast of a number becomes a `full`. */
air_status canon_number(pass_context *ctx, uint32_t node);
/* The result becomes operand `src` where that has its dtype and sizes and, for
 * a result with memory of its own, where nobody can tell them apart. */
air_status canon_drop(pass_context *ctx, uint32_t node, air_ref src);

#endif
