/* x86_ops.c: the instructions of computing nodes. */
#include <assert.h>

#include "codegen/x86_emit.h"

typedef enum {
    FORM_NONE,
    FORM_TWO,   /* d = op(a, b) */
    FORM_ONE,   /* d = op(a) */
    FORM_ROUND, /* d = op(a), immediate */
    FORM_SHIFT  /* d = op(a) by immediate bits, opcode extension */
} op_form;

static const struct {
    uint8_t form;
    bool commutes;
    uint8_t extension; /* SHIFT */
    x86_ins ins;
} rows[X86_OP_COUNT] = {
    [X86_ADD] = {FORM_TWO, true, 0, {MAP_0F, PP_NONE, 0x58, false}},
    [X86_SUB] = {FORM_TWO, false, 0, {MAP_0F, PP_NONE, 0x5c, false}},
    [X86_MUL] = {FORM_TWO, true, 0, {MAP_0F, PP_NONE, 0x59, false}},
    [X86_DIV] = {FORM_TWO, false, 0, {MAP_0F, PP_NONE, 0x5e, false}},
    [X86_MIN] = {FORM_TWO, false, 0, {MAP_0F, PP_NONE, 0x5d, false}},
    [X86_MAX] = {FORM_TWO, false, 0, {MAP_0F, PP_NONE, 0x5f, false}},
    [X86_SCALEF] = {FORM_TWO, false, 0, {MAP_0F38, PP_66, 0x2c, false}},
    [X86_AND] = {FORM_TWO, true, 0, {MAP_0F, PP_NONE, 0x54, false}},
    [X86_ANDN] = {FORM_TWO, false, 0, {MAP_0F, PP_NONE, 0x55, false}},
    [X86_OR] = {FORM_TWO, true, 0, {MAP_0F, PP_NONE, 0x56, false}},
    [X86_XOR] = {FORM_TWO, true, 0, {MAP_0F, PP_NONE, 0x57, false}},
    [X86_ADDI] = {FORM_TWO, true, 0, {MAP_0F, PP_66, 0xfe, false}},
    [X86_SUBI] = {FORM_TWO, false, 0, {MAP_0F, PP_66, 0xfa, false}},
    [X86_MULI] = {FORM_TWO, true, 0, {MAP_0F38, PP_66, 0x40, false}},
    [X86_MINS] = {FORM_TWO, true, 0, {MAP_0F38, PP_66, 0x39, false}},
    [X86_MINU] = {FORM_TWO, true, 0, {MAP_0F38, PP_66, 0x3b, false}},
    [X86_MAXS] = {FORM_TWO, true, 0, {MAP_0F38, PP_66, 0x3d, false}},
    [X86_MAXU] = {FORM_TWO, true, 0, {MAP_0F38, PP_66, 0x3f, false}},
    [X86_SHLV] = {FORM_TWO, false, 0, {MAP_0F38, PP_66, 0x47, false}},
    [X86_ABSI] = {FORM_ONE, false, 0, {MAP_0F38, PP_66, 0x1e, false}},
    [X86_SARV] = {FORM_TWO, false, 0, {MAP_0F38, PP_66, 0x46, false}},
    [X86_SHRV] = {FORM_TWO, false, 0, {MAP_0F38, PP_66, 0x45, false}},
    [X86_MULU32] = {FORM_TWO, true, 0, {MAP_0F, PP_66, 0xf4, false}},
    [X86_MULS32] = {FORM_TWO, true, 0, {MAP_0F38, PP_66, 0x28, false}},
    [X86_SQRT] = {FORM_ONE, false, 0, {MAP_0F, PP_NONE, 0x51, false}},
    [X86_TOINT] = {FORM_ONE, false, 0, {MAP_0F, PP_F3, 0x5b, false}},
    [X86_TOFLOAT] = {FORM_ONE, false, 0, {MAP_0F, PP_NONE, 0x5b, false}},
    [X86_OFF16] = {FORM_ONE, false, 0, {MAP_0F38, PP_66, 0x13, false}},
    [X86_ROUND] = {FORM_ROUND, false, 0, {MAP_0F3A, PP_66, 0x08, false}},
    [X86_SHL] = {FORM_SHIFT, false, 6, {MAP_0F, PP_66, 0x72, false}},
    [X86_SHR] = {FORM_SHIFT, false, 2, {MAP_0F, PP_66, 0x72, false}},
    [X86_SAR] = {FORM_SHIFT, false, 4, {MAP_0F, PP_66, 0x72, false}},
};

/* The same of lanes of 1 and 2 bytes. */
static const struct {
    uint8_t op;
    x86_ins ins[2];
} narrow[] = {
    {X86_ADDI, {{MAP_0F, PP_66, 0xfc, false}, {MAP_0F, PP_66, 0xfd, false}}},
    {X86_SUBI, {{MAP_0F, PP_66, 0xf8, false}, {MAP_0F, PP_66, 0xf9, false}}},
    {X86_MULI, {{MAP_0F, PP_66, 0xd5, false}, {MAP_0F, PP_66, 0xd5, false}}},
    {X86_MINS, {{MAP_0F38, PP_66, 0x38, false}, {MAP_0F, PP_66, 0xea, false}}},
    {X86_MINU, {{MAP_0F, PP_66, 0xda, false}, {MAP_0F38, PP_66, 0x3a, false}}},
    {X86_MAXS, {{MAP_0F38, PP_66, 0x3c, false}, {MAP_0F, PP_66, 0xee, false}}},
    {X86_MAXU, {{MAP_0F, PP_66, 0xde, false}, {MAP_0F38, PP_66, 0x3e, false}}},
    {X86_ABSI,
     {{MAP_0F38, PP_66, 0x1c, false}, {MAP_0F38, PP_66, 0x1d, false}}},
    {X86_SHL, {{MAP_0F, PP_66, 0x71, false}, {MAP_0F, PP_66, 0x71, false}}},
    {X86_SHR, {{MAP_0F, PP_66, 0x71, false}, {MAP_0F, PP_66, 0x71, false}}},
    {X86_SAR, {{MAP_0F, PP_66, 0x71, false}, {MAP_0F, PP_66, 0x71, false}}},
};

/* The same of lanes of 8 bytes; AVX2: but those in x86_long.c. */
static const x86_ins wide[X86_OP_COUNT] = {
    [X86_ADD] = {MAP_0F, PP_66, 0x58, true},
    [X86_SUB] = {MAP_0F, PP_66, 0x5c, true},
    [X86_MUL] = {MAP_0F, PP_66, 0x59, true},
    [X86_DIV] = {MAP_0F, PP_66, 0x5e, true},
    [X86_MIN] = {MAP_0F, PP_66, 0x5d, true},
    [X86_MAX] = {MAP_0F, PP_66, 0x5f, true},
    [X86_AND] = {MAP_0F, PP_66, 0x54, true},
    [X86_ANDN] = {MAP_0F, PP_66, 0x55, true},
    [X86_OR] = {MAP_0F, PP_66, 0x56, true},
    [X86_XOR] = {MAP_0F, PP_66, 0x57, true},
    [X86_ADDI] = {MAP_0F, PP_66, 0xd4, true},
    [X86_SUBI] = {MAP_0F, PP_66, 0xfb, true},
    [X86_MULI] = {MAP_0F38, PP_66, 0x40, true},
    [X86_MINS] = {MAP_0F38, PP_66, 0x39, true},
    [X86_MINU] = {MAP_0F38, PP_66, 0x3b, true},
    [X86_MAXS] = {MAP_0F38, PP_66, 0x3d, true},
    [X86_MAXU] = {MAP_0F38, PP_66, 0x3f, true},
    [X86_SHLV] = {MAP_0F38, PP_66, 0x47, true},
    [X86_SARV] = {MAP_0F38, PP_66, 0x46, true},
    [X86_SHRV] = {MAP_0F38, PP_66, 0x45, true},
    [X86_MULU32] = {MAP_0F, PP_66, 0xf4, true},
    [X86_MULS32] = {MAP_0F38, PP_66, 0x28, true},
    [X86_ABSI] = {MAP_0F38, PP_66, 0x1f, true},
    [X86_SQRT] = {MAP_0F, PP_66, 0x51, true},
    [X86_TOINT] = {MAP_0F, PP_66, 0x7a, true},
    [X86_TOFLOAT] = {MAP_0F, PP_F3, 0xe6, true},
    [X86_TOSINGLE] = {MAP_0F, PP_66, 0x5a, true},
    [X86_INTTOSINGLE] = {MAP_0F, PP_NONE, 0x5b, true},
    [X86_ROUND] = {MAP_0F3A, PP_66, 0x09, true},
    [X86_SHL] = {MAP_0F, PP_66, 0x73, true},
    [X86_SHR] = {MAP_0F, PP_66, 0x73, true},
    [X86_SAR] = {MAP_0F, PP_66, 0x72, true},
};

static const x86_ins widen_f32 = {MAP_0F, PP_NONE, 0x5a, false};
static const x86_ins to_f16 = {MAP_0F3A, PP_66, 0x1d, false};
static const x86_ins ternary_logic = {MAP_0F3A, PP_66, 0x25, false};

/* By the bytes of a lane: 1, 2, 4, 8. */
enum { WIDTHS = 4 };
static const struct {
    uint8_t op;
    bool imm;
    x86_ins ins[WIDTHS];
} compares[] = {
    {X86_CMP,
     true,
     {[2] = {MAP_0F, PP_NONE, 0xc2, false}, [3] = {MAP_0F, PP_66, 0xc2, true}}},
    {X86_CMPI_GT,
     false,
     {{MAP_0F, PP_66, 0x64, false},
      {MAP_0F, PP_66, 0x65, false},
      {MAP_0F, PP_66, 0x66, false},
      {MAP_0F38, PP_66, 0x37, true}}},
    {X86_CMPI_EQ,
     false,
     {{MAP_0F, PP_66, 0x74, false},
      {MAP_0F, PP_66, 0x75, false},
      {MAP_0F, PP_66, 0x76, false},
      {MAP_0F38, PP_66, 0x29, true}}},
    {X86_CMPS,
     true,
     {{MAP_0F3A, PP_66, 0x3f, false},
      {MAP_0F3A, PP_66, 0x3f, true},
      {MAP_0F3A, PP_66, 0x1f, false},
      {MAP_0F3A, PP_66, 0x1f, true}}},
    {X86_CMPU,
     true,
     {{MAP_0F3A, PP_66, 0x3e, false},
      {MAP_0F3A, PP_66, 0x3e, true},
      {MAP_0F3A, PP_66, 0x1e, false},
      {MAP_0F3A, PP_66, 0x1e, true}}},
};
static const x86_ins mask_to_vector[WIDTHS] = {{MAP_0F38, PP_F3, 0x28, false},
                                               {MAP_0F38, PP_F3, 0x28, true},
                                               {MAP_0F38, PP_F3, 0x38, false},
                                               {MAP_0F38, PP_F3, 0x38, true}};
static const x86_ins blend_mask[WIDTHS] = {{MAP_0F38, PP_66, 0x66, false},
                                           {MAP_0F38, PP_66, 0x66, true},
                                           {MAP_0F38, PP_66, 0x65, false},
                                           {MAP_0F38, PP_66, 0x65, true}};
static const x86_ins blend_variable[WIDTHS] = {{MAP_0F3A, PP_66, 0x4c, false},
                                               {MAP_0F3A, PP_66, 0x4c, false},
                                               {MAP_0F3A, PP_66, 0x4a, false},
                                               {MAP_0F3A, PP_66, 0x4b, false}};

static int
width_row(const x86_emit *e)
{
    return __builtin_ctz((unsigned)e->l->width);
}

static x86_ins
instruction(const x86_emit *e, int op)
{
    if (e->l->width == 8) {
        x86_ins ins = wide[op];
        ins.wide = e->s->evex || ins.map != MAP_0F; /* ignored: a byte less */
        return ins;
    }
    for (size_t i = 0; e->l->width < 4 && i < sizeof narrow / sizeof *narrow;
         i++)
        if (narrow[i].op == op)
            return narrow[i].ins[width_row(e)];
    return rows[op].ins;
}

/* The register of a result; what its operands leave behind may be reused. */
static int
result(x86_emit *e, const x86_node *n)
{
    emit_drop(e, n->a);
    emit_drop(e, n->b);
    emit_drop(e, n->c);
    int d = emit_take(e);
    return d;
}

static void
emit_two(x86_emit *e, const x86_node *n)
{
    int a = n->a, b = n->b;
    if (rows[n->op].commutes && emit_in_memory(e, a) && !emit_in_memory(e, b)) {
        a = n->b;
        b = n->a;
    }
    int ra = emit_in_reg(e, a);
    x86_opd rb = emit_operand(e, b);
    int d = result(e, n);
    asm_v(e->s, instruction(e, n->op), d, ra, rb, 0);
    emit_define(e, d);
}

/* One operand is read from a register: broadcasting and 16-bit forms of the
 * memory operand differ from one instruction to the next. */
static void
emit_one(x86_emit *e, const x86_node *n)
{
    int ra = emit_in_reg(e, n->a);
    int d = result(e, n);
    bool round = rows[n->op].form == FORM_ROUND;
    asm_v(e->s, instruction(e, n->op), d, 0, opd_reg(ra), round);
    if (round)
        asm_byte(e->s, n->imm);
    emit_define(e, d);
}

/* To f32 and back. */
static void
emit_to_single(x86_emit *e, const x86_node *n)
{
    int ra = emit_in_reg(e, n->a);
    int d = result(e, n);
    asm_v(e->s, wide[n->op], d, 0, opd_reg(ra), 0);
    asm_v(e->s, widen_f32, d, 0, opd_reg(d), 0);
    emit_define(e, d);
}

static void
emit_shift(x86_emit *e, const x86_node *n)
{
    int ra = emit_in_reg(e, n->a);
    int d = result(e, n);
    asm_v(e->s, instruction(e, n->op), rows[n->op].extension, d, opd_reg(ra),
          1);
    asm_byte(e->s, n->imm);
    emit_define(e, d);
}

static void
emit_to_f16(x86_emit *e, const x86_node *n)
{
    int ra = emit_in_reg(e, n->a);
    int d = result(e, n);
    asm_v(e->s, to_f16, ra, 0, opd_reg(d), 1);
    asm_byte(e->s, 0);
    emit_define(e, d);
}

/* AVX-512: a mask register of its own for a comparison that only chooses, once;
 * 0: none. k1 is free between nodes, k7 the tail's. */
static int
take_mask(x86_emit *e)
{
    if (!e->s->evex || e->uses[e->at] != 1 || e->free_masks == 0)
        return 0;
    const x86_node *user = &e->nodes[e->last[e->at]];
    if (user->op != X86_SEL || user->a != e->at)
        return 0;
    int k = __builtin_ctz(e->free_masks);
    e->free_masks &= e->free_masks - 1;
    e->mask[e->at][e->lane] = (int8_t)k;
    return k;
}

static void
emit_compare(x86_emit *e, const x86_node *n)
{
    int row = 0, width = width_row(e);
    while (compares[row].op != n->op)
        row++;
    int ra = emit_in_reg(e, n->a), k = take_mask(e);
    x86_opd rb = emit_operand(e, n->b);
    int d = k != 0 ? k : result(e, n);
    asm_v(e->s, compares[row].ins[width], e->s->evex && k == 0 ? 1 : d, ra, rb,
          compares[row].imm);
    if (compares[row].imm)
        asm_byte(e->s, n->imm);
    if (k != 0)
        return;
    if (e->s->evex)
        asm_v(e->s, mask_to_vector[width], d, 0, opd_reg(1), 0);
    emit_define(e, d);
}

static void
emit_blend(x86_emit *e, const x86_node *n, int k)
{
    int rc = emit_in_reg(e, n->c);
    x86_opd rb = emit_operand(e, n->b);
    int d = result(e, n);
    asm_masked(e->s, blend_mask[width_row(e)], d, rc, rb, 0, k, false);
    e->mask[n->a][e->lane] = 0;
    e->free_masks |= UINT32_C(1) << k;
    emit_define(e, d);
}

/* AVX-512, from a vector: d = d & b | ~d & c on the mask itself. */
static void
emit_select(x86_emit *e, const x86_node *n)
{
    int k = e->mask[n->a][e->lane];
    if (k != 0) {
        emit_blend(e, n, k);
        return;
    }
    int mask = emit_in_reg(e, n->a);
    if (!e->s->evex) {
        int rc = emit_in_reg(e, n->c);
        x86_opd rb = emit_operand(e, n->b);
        int d = result(e, n);
        asm_v(e->s, blend_variable[width_row(e)], d, rc, rb, 1);
        asm_byte(e->s, (unsigned)mask << 4);
        emit_define(e, d);
        return;
    }
    int rb = emit_in_reg(e, n->b);
    x86_opd rc = emit_operand(e, n->c);
    int d = mask;
    if (emit_dies(e, n->a) && n->a != n->b && n->a != n->c) {
        emit_drop(e, n->a);
    } else if (!(e->temps >> mask & 1)) {
        d = emit_take(e);
        emit_move(e, d, mask);
    }
    x86_ins ins = ternary_logic;
    ins.wide = e->l->width == 8;
    asm_v(e->s, ins, d, rb, rc, 1);
    asm_byte(e->s, 0xca);
    emit_define(e, d);
}

/* ---- multiply-add: the form by which operand is overwritten ---- */

enum { FMA_132 = 0x98, FMA_213 = 0xa8, FMA_231 = 0xb8 };

static void
put_fma(x86_emit *e, int form, int d, int v, x86_opd rm)
{
    const x86_node *n = &e->nodes[e->at];
    x86_ins ins = {MAP_0F38, PP_66, (uint8_t)form, e->l->width == 8};
    asm_v(e->s, ins, d, v, rm, 0);
    emit_drop(e, n->a);
    emit_drop(e, n->b);
    emit_drop(e, n->c);
    emit_define(e, d);
}

/* d = c: multiply a and b into it. */
static void
fma_onto_sum(x86_emit *e, const x86_node *n, int d)
{
    int a = n->a, b = n->b;
    if (emit_in_memory(e, a)) {
        a = n->b;
        b = n->a;
    }
    int ra = emit_in_reg(e, a);
    put_fma(e, FMA_231, d, ra, emit_operand(e, b));
}

/* d = factor a: multiply by b, add c. */
static void
fma_onto_factor(x86_emit *e, int d, int b, int c)
{
    if (emit_in_memory(e, b) && !emit_in_memory(e, c)) {
        int rc = emit_in_reg(e, c);
        put_fma(e, FMA_132, d, rc, emit_operand(e, b));
    } else {
        int rb = emit_in_reg(e, b);
        put_fma(e, FMA_213, d, rb, emit_operand(e, c));
    }
}

static void
emit_fma(x86_emit *e, const x86_node *n)
{
    if (emit_dies(e, n->c) && n->c != n->a && n->c != n->b) {
        int d = emit_in_reg(e, n->c);
        fma_onto_sum(e, n, d);
    } else if (emit_dies(e, n->a) && n->a != n->c && n->a != n->b) {
        int d = emit_in_reg(e, n->a);
        fma_onto_factor(e, d, n->b, n->c);
    } else if (emit_dies(e, n->b) && n->b != n->c && n->a != n->b) {
        int d = emit_in_reg(e, n->b);
        fma_onto_factor(e, d, n->a, n->c);
    } else if (emit_in_memory(e, n->c)) {
        fma_onto_sum(e, n, emit_in_reg(e, n->c)); /* a fresh copy */
    } else if (emit_in_memory(e, n->b)) {
        fma_onto_factor(e, emit_in_reg(e, n->b), n->a, n->c);
    } else {
        int ra = emit_in_reg(e, n->a), d = emit_take(e);
        emit_move(e, d, ra);
        fma_onto_factor(e, d, n->b, n->c);
    }
}

void
emit_node(x86_emit *e)
{
    const x86_node *n = &e->nodes[e->at];
    switch (n->op) {
    case X86_LOAD:
        if (e->l->pairs >> n->k & 1)
            emit_load_part(e, n);
        else
            emit_load(e, n);
        return;
    case X86_ACC: emit_acc(e, n); return;
    case X86_STORE:
        if (n->b >= 0)
            emit_store_pair(e, n);
        else
            emit_store(e, n);
        return;
    case X86_REDUCE: emit_reduce(e, n); return;
    case X86_SET: emit_set(e, n); return;
    case X86_RAISE: emit_raise(e, n); return;
    case X86_CMP:
    case X86_CMPI_GT:
    case X86_CMPI_EQ:
    case X86_CMPS:
    case X86_CMPU: emit_compare(e, n); return;
    case X86_SEL: emit_select(e, n); return;
    case X86_FMA: emit_fma(e, n); return;
    case X86_TOF16: emit_to_f16(e, n); return;
    case X86_TOSINGLE:
    case X86_INTTOSINGLE: emit_to_single(e, n); return;
    default: break;
    }
    switch (rows[n->op].form) {
    case FORM_TWO: emit_two(e, n); return;
    case FORM_ONE:
    case FORM_ROUND: emit_one(e, n); return;
    default: assert(rows[n->op].form == FORM_SHIFT); emit_shift(e, n);
    }
}
