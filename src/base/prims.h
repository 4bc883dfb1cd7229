/* prims.h: what the tables of primitives and reductions say of a region's
 * nodes (air_kernel.h). */
#ifndef BASE_PRIMS_H
#define BASE_PRIMS_H

#include "air_kernel.h"

/* Of an AIR_RG_ operation: "ADD"; the others, which have no row in
 * air_prims.def, in small letters: "load". */
const char *base_prim_name(unsigned op);
/* Values that it takes; 0: none, or they are no nodes. */
int base_prim_arity(unsigned op);
/* Of an AIR_REDUCE_: "SUM". */
const char *base_reduction_name(unsigned reduce);

#endif
