/* build.h: the state of lowering one group (internal to src/lower). */
#ifndef LOWER_BUILD_H
#define LOWER_BUILD_H

#include "lower/lower.h"
#include "pass/group.h"

/* What is known of a value that the group computes. */
typedef struct {
    air_ref ref;
    group_kind kind;
    int level;   /* reductions that must be finished before it */
    int slot;    /* scalar, -1: none yet */
    int scratch; /* row buffer that holds it, -1: none */
    int stored;  /* buffer that it was stored into, once it was */
    bool inplace;
    int node; /* region node in the current phase, -1: none */
    int last; /* last level whose row phase reads it */
    int cost; /* nodes of work to compute it again */
} lower_member;

typedef struct {
    const lower_env *env;
    group_domain domain;
    int64_t sizes[AIR_MAX_RANK]; /* of the domain */
    air_walk walk;
    int vector; /* OUTER: the domain axis that vectors run along, -1: none */
    const uint32_t *nodes;
    size_t nnodes;
    lower_member *members; /* one per result of the group's nodes */
    size_t nmembers;
    int32_t *member_of; /* by value id, -1: not of this group */
    ir_record rec;
    air_rg_buf bufs[AIR_RG_MAX_BUFS];
    air_ref buf_value[AIR_RG_MAX_BUFS];
    int16_t buf_node[AIR_RG_MAX_BUFS]; /* LOAD in the current phase */
    int nbufs, nscalars, nphases;
    air_rg_phase phases[AIR_RG_MAX_PHASES];
} lower_build;

/* The region node of an operand in lane `lane`, in the current phase; scalar:
 * the phase runs once per row. UNSUPPORTED: the group is too large. */
air_status lower_operand(lower_build *b, air_ref ref, air_lane lane,
                         bool scalar, int *out_node);
air_status lower_store(lower_build *b, lower_member *m, int node);
/* The node of a member's value, recorded in this phase when needed. */
air_status lower_member_node(lower_build *b, lower_member *m, bool scalar,
                             int *out_node);
/* Strides of a value per domain axis: broadcast axes get 0. A sum over rows
 * may have lost the axes of the rows. */
void lower_spread(const lower_build *b, air_ref ref, group_kind kind,
                  int64_t *strides);
/* Does the node compute rows without the axes that are reduced? */
bool lower_is_squeezed(const lower_build *b, const ir_node *n);
/* Constants are never stored: each region makes its own. */
bool lower_is_constant(const lower_build *b, air_ref ref);

/* Many rows, each of which would hardly fill the vectors it starts? */
bool lower_is_short(int64_t row, int64_t rows);
/* An operand that is read as often, by a region of as many elements, may be
 * copied first to lie as vectors want it. */
enum { LOWER_READ_AGAIN = 4, LOWER_READ_ELEMENTS = 4096 };

/* Sets walk and vector, once members and their levels are known. *out_dense:
 * an operand that no walk suits, to be copied; else untouched. */
void lower_choose_walk(lower_build *b, air_ref *out_dense);

void lower_begin_phase(lower_build *b);
air_status lower_end_phase(lower_build *b, air_phase_kind kind, int begin);
air_status lower_put(lower_build *b, air_rg_node node, int *out_node);
/* An element of a buffer, loaded once in a phase. */
air_status lower_load(lower_build *b, int buf, air_lane lane, int *out_node);
/* As the dtype holds it: integers wrap, in exact mode bf16 and f16 round. */
air_status lower_round(lower_build *b, air_dtype dtype, int *node);
/* A row of scratch for a value, as wide as its lane; -1: no buffer is left. */
int lower_scratch(lower_build *b, const lower_member *m, air_rg_place place);
/* Reduction: folds its operand into the member's scalar. */
air_status lower_reduce(lower_build *b, const ir_node *n, lower_member *m);
/* Sum over rows: adds its operand to the member's row of SUMS. */
air_status lower_sum(lower_build *b, const ir_node *n, lower_member *m);
/* The phase after all rows, which stores the sums. */
air_status lower_column_phase(lower_build *b, int begin);

#endif
