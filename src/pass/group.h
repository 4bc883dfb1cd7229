/* group.h: what may be fused into one region. Shared by pass `group`, which
 * forms groups on symbolic sizes, and by the lowering, which turns one group
 * into a region (air_kernel.h). */
#ifndef PASS_GROUP_H
#define PASS_GROUP_H

#include "ir/ir.h"

/* The iteration space of a group: sizes, and which axes its reductions fold. */
typedef struct {
    int rank;
    air_dim dims[AIR_MAX_RANK];
    bool reduced[AIR_MAX_RANK];
    int nreduced;
} group_domain;

/* How a value lies in a domain. */
typedef enum {
    GROUP_OTHER, /* not a whole value of the space: may be broadcast into it */
    GROUP_FULL,  /* one element per point */
    GROUP_ROW,   /* one per row, reduced axes kept with size 1 */
    GROUP_SQUEEZED, /* one per row, reduced axes gone */
    GROUP_COLUMN    /* a sum over all rows: one per index of the reduced axes */
} group_kind;

/* The domain that node n alone would span. False: n is not fusable. */
bool group_domain_of(const ir_graph *g, const ir_node *n, group_domain *out);
group_kind group_kind_of(const ir_graph *g, const group_domain *d, air_ref v);
/* Is n a sum over the rows of d, whose reductions fold the innermost axes? */
bool group_is_column(const ir_graph *g, const group_domain *d,
                     const ir_node *n);
/* May both be loops of one region? Of equal sizes; of equal or no reduced axes,
 * or one folds the axes that the other, whose domain it is, keeps. */
bool group_domain_join(const ir_graph *g, const group_domain *a,
                       const group_domain *b, group_domain *out);
/* A CREATE node whose value is one number everywhere: consumers inline it. */
bool group_is_constant(const ir_graph *g, const ir_node *n);
/* Axes that a REDUCE node folds. */
air_status group_reduced_axes(const ir_graph *g, const ir_node *n,
                              bool *reduced);
bool group_is_unit(const ir_graph *g, air_dim d);
/* Has v, broadcast to `dims`, some of the reduced axes but not all? No loop
 * walks those as one. */
bool group_has_some_axes(const ir_graph *g, int rank, const air_dim *dims,
                         const bool *reduced, air_ref v);

#endif
