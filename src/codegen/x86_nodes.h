/* x86_nodes.h: a phase as a list of nodes of one instruction each. */
#ifndef CODEGEN_X86_NODES_H
#define CODEGEN_X86_NODES_H

#include "air_kernel.h"

typedef enum {
    /* the same for all elements of a call */
    X86_CONST,  /* k: bits */
    X86_SCALAR, /* k: scalar */
    X86_BCAST,  /* k: buffer of inner stride 0, imm: dtype; bf16 as f32 */
    /* elements */
    X86_LOAD, /* k: buffer, imm: dtype; widened to the lane, f16 converted */
    X86_ACC,  /* OUTER: k: scalar, its value of the column */
    /* effects */
    X86_STORE,  /* a -> buffer k, imm: dtype; b: of a pair (x86_pairs.c); bf16:
                   the low 16 bits, f16: of the f32 value, bool: of the truth
                   value, integers: the low bits */
    X86_REDUCE, /* a -> scalar k, imm: air_reduce, and X86_OF_INTEGERS */
    X86_SET,    /* a -> scalar k */
    X86_RAISE,  /* a is a divisor: is it 0? */
    /* d = op(a, b), the row names the instruction */
    X86_ADD,
    X86_SUB,
    X86_MUL,
    X86_DIV,
    X86_MIN,
    X86_MAX,
    X86_SCALEF, /* AVX-512 */
    X86_AND,
    X86_ANDN, /* ~a & b */
    X86_OR,
    X86_XOR,
    X86_ADDI, /* of integers as wide as the lanes */
    X86_SUBI,
    X86_MULI, /* bytes: of words */
    X86_MINS, /* signed */
    X86_MINU,
    X86_MAXS,
    X86_MAXU,
    X86_SHLV, /* lanes of 32 or 64 bits: a << b, 0 where b is not below that */
    X86_SARV, /* a >> b with the sign */
    X86_SHRV, /* AVX2, lanes of 64 bits: without */
    X86_MULU32, /* the same: product of the low halves */
    X86_MULS32,
    /* d = op(a) */
    X86_SQRT,
    X86_TOINT,       /* towards zero */
    X86_TOFLOAT,     /* of integers */
    X86_TOSINGLE,    /* lanes of 64 bits: rounded to f32, as f64 */
    X86_INTTOSINGLE, /* the same of integers */
    X86_ROUND,       /* imm: mode */
    X86_ABSI,
    X86_SHL, /* imm: bits; bytes: of words */
    X86_SHR,
    X86_SAR,
    X86_TOF16, /* to 16 bits, only half a register */
    X86_OFF16, /* back */
    /* truth values are all ones or all zeros */
    X86_CMP, /* imm: predicate */
    X86_CMPI_GT,
    X86_CMPI_EQ,
    X86_CMPS, /* AVX-512, signed; imm: predicate */
    X86_CMPU,
    X86_SEL, /* a ? b : c */
    X86_FMA, /* a * b + c */
    X86_OP_COUNT
} x86_op;

enum {
    X86_LE_OQ = 18,
    X86_LT_OQ = 17,
    X86_EQ_OQ = 0,
    X86_NE_UQ = 4,
    X86_UNORD = 3
};

enum { X86_OF_INTEGERS = 8 };
/* imm of X86_MULI: both fit 32 bits, signed; of conversions in lanes of 64
 * bits: numbers of at most 2^51, or (X86_TOINT) only 32 bits are needed. */
enum { X86_SMALL = 1, X86_LOW = 2 };

typedef struct {
    uint8_t op, imm;
    int16_t a, b, c; /* -1: none */
    uint64_t k;
} x86_node;

#define X86_MAX_NODES 2048

static inline bool
x86_is_effect(const x86_node *n)
{
    return n->op >= X86_STORE && n->op <= X86_RAISE;
}

typedef struct {
    int64_t low, high;
} x86_range;

typedef struct {
    const air_region *rg;
    int phase;
    bool evex;
    int width;      /* bytes of a lane: 4; 1, 2 where all is narrow; 8 */
    uint32_t pairs; /* buffers that are walked at stride 2 */
    uint32_t words; /* buffers of which two are words side by side */
    int16_t half[AIR_RG_MAX_BUFS]; /* of both, to store: the value; -1: none */
    const char *reason;            /* why there is no list */
    int count;
    x86_node nodes[X86_MAX_NODES];
    uint16_t bucket[X86_MAX_NODES * 2]; /* of equal nodes: number + 1 */
    /* the expanded phase and what became of its nodes */
    int nsource;
    air_rg_node source[AIR_RG_MAX_NODES];
    int16_t value[AIR_RG_MAX_NODES];
    x86_range range[AIR_RG_MAX_NODES]; /* of integers: what they can be */
    bool bf16[AIR_RG_MAX_NODES];       /* of floats: are all bf16's values? */
} x86_list;

/* False: reason says what cannot be done. */
bool x86_list_make(x86_list *l, const air_region *rg, int phase, bool evex);

/* Nodes of a list under construction; equal ones are one. */
int x86_op1(x86_list *l, x86_op op, int imm, int a);
int x86_op2(x86_list *l, x86_op op, int a, int b);
int x86_op3(x86_list *l, x86_op op, int imm, int a, int b, int c);
int x86_bits(x86_list *l, uint32_t k); /* 64-bit lanes: with its sign */
int x86_long(x86_list *l, uint64_t k);
void x86_raise(x86_list *l, int divisor);        /* once for each */
int x86_refuse(x86_list *l, const char *reason); /* the first one stays */

/* x86_long.c: what stands for an operation that AVX2 has not in lanes of 64
 * bits; NULL: it has. b: -1 for operations of one operand. */
typedef int (*x86_sequence)(x86_list *l, int imm, int a, int b);
x86_sequence x86_long_sequence(int op);

/* x86_lanes.c: the width of the lanes, which needs the range of each integer;
 * 0: none that this instruction set has is wide enough. */
int x86_lanes_find(x86_list *l);
bool x86_range_is_signed(x86_range a, x86_range b, int width);
bool x86_range_fits(x86_range a, int dtype);
int x86_range_is_small(x86_range a); /* X86_SMALL of a conversion, or 0 */
/* Do floats as wide as the lanes hold both? */
bool x86_range_is_float(x86_range a, x86_range b, int width);

/* x86_integers.c */
int x86_integer(x86_list *l, const air_rg_node *n);
int x86_compare_integers(x86_list *l, const air_rg_node *n);
int x86_is_set(x86_list *l, int a);
int x86_narrow_integer(x86_list *l, int a, int dtype);
/* The value of a source node, or one with the same bits as far as a store of
 * this dtype takes them. */
int x86_low_bits(x86_list *l, int node, int dtype);

#define X86_SCHEDULED 512
typedef struct {
    const x86_list *l;
    int16_t height[X86_SCHEDULED]; /* cycles to the end */
    int16_t ready[X86_SCHEDULED];  /* cycle of the operands */
    int16_t place[X86_SCHEDULED];  /* new number, -1: not yet */
    x86_node sorted[X86_SCHEDULED];
} x86_schedule;
/* Another order of the nodes (s->sorted), with more of them alive at a time.
 * NULL: the list is too long. */
const x86_node *x86_schedule_nodes(const x86_list *l, x86_schedule *s);

/* x86_pairs.c: buffers of inner stride 2 that AVX-512 walks as they are: those
 * that are only read, and pairs of those that are only written. */
uint32_t x86_pairs(const air_region *rg);
/* The same of bf16, where both parts are read, or both written. */
uint32_t x86_words(const air_region *rg);
/* The first part of the word that holds buffer b of these, which may be b. */
int x86_word_of(const air_region *rg, uint32_t words, int b);
/* The buffer whose elements are behind those of b; -1: none. */
int x86_pair_mate(const air_region *rg, int b);

/* Are the elements of a call side by side in memory? Else those that are not
 * of pairs, nor broadcast, go through a dense copy. */
static inline bool
x86_is_dense(const air_region *rg, int buf)
{
    const int64_t *strides = rg->bufs[buf].strides;
    int axis = air_region_axis(rg);
    int64_t run = rg->dims[axis];
    bool dense = strides[axis] == 1;
    while (rg->spread && --axis >= 0) {
        dense = dense && (rg->dims[axis] == 1 || strides[axis] == run);
        run *= rg->dims[axis];
    }
    return dense;
}

/* Inner stride as machine code walks other buffers: 0 or 1. */
static inline bool
x86_is_broadcast(const air_region *rg, int buf)
{
    const int64_t *strides = rg->bufs[buf].strides;
    if (rg->bufs[buf].scratch)
        return false;
    if (!rg->across && !rg->spread)
        return strides[air_region_axis(rg)] == 0;
    int end = rg->across ? rg->rank - 1 : rg->rank;
    for (int a = rg->across ? air_region_flat(rg) : 0; a < end; a++)
        if (rg->dims[a] > 1 && strides[a] != 0)
            return false;
    return true;
}

/* Do the elements of a call have their own values of each scalar? */
static inline bool
x86_has_columns(const air_region *rg)
{
    return rg->walk == AIR_WALK_OUTER || rg->across;
}

static inline bool
x86_raises(const x86_list *l)
{
    for (int i = 0; i < l->count; i++)
        if (l->nodes[i].op == X86_RAISE)
            return true;
    return false;
}

/* Does the phase run for one element at a time? */
static inline bool
x86_is_single(const air_region *rg, int phase)
{
    return rg->phases[phase].kind == AIR_PHASE_SCALAR && !rg->across;
}

#endif
