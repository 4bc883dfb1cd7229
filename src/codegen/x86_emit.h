/* x86_emit.h: registers and instructions of one phase. Private to x86_*.c. */
#ifndef CODEGEN_X86_EMIT_H
#define CODEGEN_X86_EMIT_H

#include "codegen/x86_asm.h"
#include "codegen/x86_nodes.h"

#define X86_MAX_UNROLL 8
#define X86_PAIR_MASK  6 /* k6 */

/* rdi ptrs, rsi n, rdx scalars, rcx acc, r8 rows, r9 steps as called; rax
 * counts elements. */
enum {
    REG_PTRS = RDI,
    REG_COUNT = RSI,
    REG_SCALARS = RDX,
    REG_ACCS = RCX,
    REG_INDEX = RAX,
    REG_TEMP = R11,
    REG_PART = RBX, /* element % 64, in phases that reduce rows */
    REG_COPY = R15  /* of short copies before and after a tail, AVX2 */
};

typedef enum {
    EMIT_FULL, /* whole vectors */
    EMIT_TAIL, /* fewer elements than a vector has */
    EMIT_ONE   /* scalar phases: one element */
} emit_mode;

/* The frame, from rsp up. */
enum {
    FRAME_MASK = 0,    /* AVX2: of the tail; behind it of words, beside wider;
                          AVX-512: of a tail of pairs */
    FRAME_BOUNCE = 64, /* 32 bytes a buffer */
    FRAME_BCAST = 64 + 32 * AIR_RG_MAX_BUFS, /* 8 bytes a buffer */
    FRAME_ROWS = FRAME_BCAST + 192,          /* as called */
    FRAME_STEPS = FRAME_ROWS + 8,
    FRAME_LEFT = FRAME_STEPS + 8,    /* rows behind the few at hand; INNER: all
                                        elements, of which a block comes now */
    FRAME_COUNT = FRAME_LEFT + 8,    /* x86_rows.c: as called; OUTER: rows left,
                                        while a tail is copied */
    FRAME_SCALARS = FRAME_COUNT + 8, /* the same */
    FRAME_BLOCK = FRAME_SCALARS + 8, /* where that begins */
    FRAME_ZERO = FRAME_BLOCK + 8,    /* not 0: a divisor was */
    FRAME_PTRS = FRAME_ROWS + 64,    /* the same: of the row at hand */
    FRAME_SPILL = FRAME_PTRS + 8 * AIR_RG_MAX_BUFS /* 64 bytes each */
};

typedef struct {
    x86_asm *s;
    const x86_list *l;
    const x86_node *nodes; /* of the list, or the same in another order */
    size_t masks; /* where in the code 32 bytes of ones and of zeros lie */
    emit_mode mode;
    int vector; /* elements of a register */
    int unroll;
    int at, lane; /* the node being emitted, which copy of it */
    int16_t last[X86_MAX_NODES];
    uint16_t uses[X86_MAX_NODES];
    int8_t reg[X86_MAX_NODES][X86_MAX_UNROLL];    /* -1: none */
    int16_t spill[X86_MAX_NODES][X86_MAX_UNROLL]; /* -1: none */
    bool hoisted[X86_MAX_NODES];
    int8_t mask[X86_MAX_NODES][X86_MAX_UNROLL]; /* AVX-512: k1 .., 0: none */
    int8_t tables[5]; /* registers of ASM_EVEN .. ASM_HIGH; -1: not needed */
    int8_t buf_reg[AIR_RG_MAX_BUFS];    /* -1: loaded into REG_TEMP */
    uint32_t loaded, stored, broadcast; /* sets of buffers */
    bool rows;   /* OUTER: several rows a call, for one vector after another */
    bool inside; /* INNER: the phases of a row follow each other (x86_rows.c) */
    int inside_count, inside_spills; /* phases so far, the most of one */
    size_t frame;                    /* where its size goes */
    bool holds; /* partial results are in registers now: part[s][copy] */
    int8_t part[AIR_RG_MAX_SCALARS][X86_MAX_UNROLL];
    int8_t total[AIR_RG_MAX_SCALARS][X86_MAX_UNROLL];
    uint32_t free, pinned, temps; /* sets of vector registers */
    uint32_t free_masks;          /* set of k2 to k6, or k5 with pairs */
    int16_t owner[32];            /* node * X86_MAX_UNROLL + copy, -1 */
    int nspills, peak_spills;
    int low_free;   /* fewest free registers seen */
    bool streaming; /* stores of whole lanes go past the caches */
    bool spilled;   /* a value of an element had to go to memory */
} x86_emit;

static inline bool
x86_is_invariant(const x86_node *n)
{
    return n->op <= X86_BCAST;
}

static inline int
x86_arity(const x86_node *n)
{
    return n->a < 0 ? 0 : n->b < 0 ? 1 : n->c < 0 ? 2 : 3;
}

/* Does nothing come of a node? */
static inline bool
emit_is_dead(const x86_emit *e, int node)
{
    return e->uses[node] == 0 && !x86_is_effect(&e->nodes[node]);
}

/* Every value without a register. */
void emit_reset(x86_emit *e);
/* Nodes of one pass over `unroll` vectors. */
void emit_body(x86_emit *e, emit_mode mode, int unroll);
/* Registers, for the frame of a phase. */
int emit_take(x86_emit *e);
/* Where an invariant lies in memory. */
x86_opd emit_invariant(x86_emit *e, int node);
x86_opd emit_constant(x86_emit *e, uint64_t bits);
void emit_broadcast(x86_emit *e, int reg, x86_opd mem);
/* The address of element `index` (rax where 0 <= scale) of a buffer. */
x86_opd emit_buffer(x86_emit *e, int buf, bool indexed, int32_t element);
size_t emit_dtype_bytes(int dtype);
/* An element, widened to the lane's bits; f32, f16 and bf16 as they are. */
void emit_load_gpr(x86_emit *e, int reg, x86_opd mem, int dtype);
/* Are stores to the buffer whole vectors that may go past the caches? */
bool emit_may_stream(const x86_emit *e, int buf);

/* x86_ops.c: one instruction node (operands are in place). */
void emit_node(x86_emit *e);
int emit_in_reg(x86_emit *e, int node);
x86_opd emit_operand(x86_emit *e, int node);
bool emit_in_memory(const x86_emit *e, int node);
bool emit_dies(const x86_emit *e, int node);
void emit_drop(x86_emit *e, int node); /* if it dies here */
int emit_temp(x86_emit *e);            /* until the end of the node */
void emit_define(x86_emit *e, int reg);
void emit_move(x86_emit *e, int dst, int src);

/* x86_memory.c: loads, stores, reductions. */
void emit_load(x86_emit *e, const x86_node *n);
void emit_store(x86_emit *e, const x86_node *n);
void emit_reduce(x86_emit *e, const x86_node *n);
/* t = acc op a, as `n` reduces; acc may be t. */
void emit_fold(x86_emit *e, const x86_node *n, int t, int a, x86_opd acc);
void emit_set(x86_emit *e, const x86_node *n);
void emit_raise(x86_emit *e, const x86_node *n);
/* Partial results of all reductions: to registers, or from there to memory. */
void emit_move_parts(x86_emit *e, emit_mode mode, int unroll, bool hold);
/* Of a few rows: held ones begin anew beside the totals, or are folded in. */
void emit_few(x86_emit *e, int unroll, bool begin);
void emit_acc(x86_emit *e, const x86_node *n);

/* x86_pairs.c: buffers of stride 2. */
void emit_load_part(x86_emit *e, const x86_node *n);
void emit_store_pair(x86_emit *e, const x86_node *n);
void x86_pair_masks(x86_emit *e);  /* of a tail */
void x86_pair_tables(x86_emit *e); /* what both need, for a whole phase */

/* Does the value of a BCAST node change from row to row of a call? */
static inline bool
emit_varies(const x86_emit *e, int node)
{
    return e->rows && e->nodes[node].op == X86_BCAST;
}

/* x86_phase.c: a whole phase. `sorted` (NULL: none) are its nodes in an order
 * that overlaps more and needs more registers: taken where they suffice. */
void emit_phase(x86_emit *e, const x86_list *list, const x86_node *sorted,
                size_t masks);
void emit_enter_rows(x86_emit *e, const air_region *rg);
void emit_leave_rows(x86_emit *e);

/* x86_rows.c: the phases of a row one after another, in a loop over rows that
 * begins at `top`. False: not this phase. */
size_t emit_rows_begin(x86_emit *e, const air_region *rg);
bool emit_rows_phase(x86_emit *e, const x86_list *list, const x86_node *sorted,
                     size_t masks);
void emit_rows_end(x86_emit *e, const air_region *rg, size_t top);

#endif
