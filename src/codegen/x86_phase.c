/* x86_phase.c: entry, loops and exit of a phase.
 *
 *     frame, buffer pointers, hoisted constants
 *     rows that are folded: 64 elements at a time, in registers (hold_loop)
 *     while (i + unroll * vector <= n) body(unroll)
 *     while (i + vector <= n) body(1)
 *     if (i < n) body(1), the last n - i elements
 */
#include <string.h>

#include "codegen/x86_emit.h"

static const x86_ins move_unaligned = {MAP_0F, PP_NONE, 0x10, false};
static const x86_ins store_aligned = {MAP_0F, PP_NONE, 0x29, false};
static const x86_ins move_from_gpr = {MAP_0F, PP_66, 0x6e, false};
static const x86_ins store_ss = {MAP_0F, PP_F3, 0x11, false};
static const x86_ins store_sd = {MAP_0F, PP_F2, 0x11, false};
static const x86_ins widen_f32 = {MAP_0F, PP_NONE, 0x5a, false};
static const x86_ins half_to_single = {MAP_0F38, PP_66, 0x13, false};

static const uint8_t buffer_regs[] = {R8, R9, R10, R12, R13, R14, RBX, R15};
/* Held in registers: 4 of each. */
enum { MOST_PARTS = 2, PARTS = 64, BLOCK = 512 };

static const uint8_t saved_regs[] = {RBX, R12, R13, R14, R15};

/* ---- what a phase needs ---- */

static bool
folds_rows(const x86_emit *e)
{
    for (int i = 0; i < e->l->count; i++)
        if (e->nodes[i].op == X86_REDUCE)
            return !x86_has_columns(e->l->rg);
    return false;
}

static bool
copies_tail(const x86_emit *e)
{
    if (e->s->evex || e->mode == EMIT_ONE)
        return false;
    for (int b = 0; b < e->l->rg->nbufs; b++)
        if ((e->loaded | e->stored) >> b & 1 &&
            emit_dtype_bytes(e->l->rg->bufs[b].dtype) < 4)
            return true;
    return false;
}

static void
find_uses(x86_emit *e)
{
    size_t count = (size_t)e->l->count;
    memset(e->uses, 0, count * sizeof e->uses[0]);
    memset(e->last, -1, count * sizeof e->last[0]);
    e->loaded = e->stored = e->broadcast = 0;
    for (int i = e->l->count - 1; i >= 0; i--) {
        const x86_node *n = &e->nodes[i];
        const int16_t operands[3] = {n->a, n->b, n->c};
        if (emit_is_dead(e, i))
            continue;
        for (int k = 0; k < x86_arity(n); k++) {
            e->uses[operands[k]]++;
            if (e->last[operands[k]] < i)
                e->last[operands[k]] = (int16_t)i;
        }
        if (n->op == X86_LOAD)
            e->loaded |= UINT32_C(1) << n->k;
        if (n->op == X86_STORE)
            e->stored |= UINT32_C(1) << n->k;
        if (n->op == X86_BCAST)
            e->broadcast |= UINT32_C(1) << n->k;
    }
}

static int
count_parts(const x86_emit *e)
{
    int count = 0;
    for (int i = 0; i < e->l->count; i++)
        count += e->nodes[i].op == X86_REDUCE;
    return count;
}

/* Rows of OUTER are folded by one call where all that a row needs, and what it
 * is folded into, stays in registers. */
static bool
takes_rows(const x86_emit *e)
{
    for (int i = 0; i < e->l->count; i++)
        if (e->nodes[i].op == X86_BCAST &&
            (e->nodes[i].imm == AIR_F16 ||
             (e->nodes[i].imm == AIR_F32 && e->l->width == 8)))
            return false; /* its conversion needs a register */
    uint32_t all = e->loaded | e->stored | e->broadcast;
    int parts = count_parts(e);
    return e->l->rg->walk == AIR_WALK_OUTER && e->mode != EMIT_ONE &&
           e->l->width >= 4 && parts > 0 && parts <= MOST_PARTS &&
           (size_t)__builtin_popcount(all) + copies_tail(e) <=
               sizeof buffer_regs;
}

/* AVX2: a product of 64 bits is so many instructions after each other that
 * more of them have to overlap than registers hold. */
static bool
has_long_fold(const x86_emit *e)
{
    for (int i = 0; i < e->l->count; i++)
        if (e->nodes[i].op == X86_REDUCE && !e->s->evex &&
            e->nodes[i].imm == (X86_OF_INTEGERS | AIR_REDUCE_PROD))
            return true;
    return false;
}

/* A loop that begins with the same partial result each time: with all of them,
 * or so many that a pass over the row for each share of them reads (and
 * writes) whole lines. */
static bool
may_hold(const x86_emit *e, int unroll)
{
    int step = unroll * e->vector, parts = count_parts(e);
    return folds_rows(e) && parts <= MOST_PARTS &&
           parts * unroll <= (e->s->evex ? 16 : 8) && !has_long_fold(e) &&
           (step == PARTS || (e->l->width >= 4 && step >= PARTS / 4));
}

/* ---- entry and exit ---- */

static uint32_t
assign_buffers(x86_emit *e)
{
    uint32_t used = 0;
    size_t next = 0;
    bool part = folds_rows(e), copy = copies_tail(e);
    memset(e->buf_reg, -1, sizeof e->buf_reg);
    for (int b = 0; b < e->l->rg->nbufs; b++) {
        if (!((e->loaded | e->stored | (e->rows ? e->broadcast : 0)) >> b & 1))
            continue;
        while (next < sizeof buffer_regs &&
               ((part && buffer_regs[next] == REG_PART) ||
                (copy && buffer_regs[next] == REG_COPY)))
            next++;
        if (next == sizeof buffer_regs)
            break;
        used |= UINT32_C(1) << buffer_regs[next];
        e->buf_reg[b] = (int8_t)buffer_regs[next++];
    }
    if (part)
        used |= UINT32_C(1) << REG_PART;
    if (copy)
        used |= UINT32_C(1) << REG_COPY;
    return used;
}

static void
load_pointers(x86_emit *e)
{
    for (int b = 0; b < e->l->rg->nbufs; b++)
        if (e->buf_reg[b] >= 0)
            asm_mov_load(e->s, e->buf_reg[b], opd_mem(REG_PTRS, 8 * b));
}

static void
enter(x86_emit *e, uint32_t used, bool raises)
{
    x86_asm *s = e->s;
    asm_push(s, RBP);
    asm_alu(s, ALU_MOV, RBP, RSP);
    for (size_t i = 0; i < sizeof saved_regs; i++)
        if (used >> saved_regs[i] & 1)
            asm_push(s, saved_regs[i]);
    asm_and_imm(s, RSP, -64);
    asm_add_imm(s, RSP, 0);
    e->frame = asm_here(s) - 4;
    asm_mov_store(s, opd_mem(RSP, FRAME_ROWS), R8, 8);
    asm_mov_store(s, opd_mem(RSP, FRAME_STEPS), R9, 8);
    if (raises) {
        asm_alu(s, ALU_XOR, RAX, RAX);
        asm_mov_store(s, opd_mem(RSP, FRAME_ZERO), RAX, 8);
    }
}

static void
leave(x86_emit *e, uint32_t used, int spills, bool raises)
{
    x86_asm *s = e->s;
    int pushed = 0;
    if (raises)
        asm_mov_load(s, RAX, opd_mem(RSP, FRAME_ZERO));
    else
        asm_alu(s, ALU_XOR, RAX, RAX);
    for (size_t i = 0; i < sizeof saved_regs; i++)
        pushed += (int)(used >> saved_regs[i] & 1);
    asm_lea(s, RSP, opd_mem(RBP, -8 * pushed));
    for (size_t i = sizeof saved_regs; i-- > 0;)
        if (used >> saved_regs[i] & 1)
            asm_pop(s, saved_regs[i]);
    asm_pop(s, RBP);
    asm_bytes(s, "\xc5\xf8\x77\xc3", 4); /* vzeroupper, ret */
    int32_t size = -(FRAME_SPILL + 64 * spills);
    asm_patch_word(s, e->frame, (uint32_t)size);
}

void
emit_enter_rows(x86_emit *e, const air_region *rg)
{
    x86_asm *s = e->s;
    enter(e, UINT32_MAX, true);
    asm_mov_store(s, opd_mem(RSP, FRAME_COUNT), REG_COUNT, 8);
    asm_mov_store(s, opd_mem(RSP, FRAME_SCALARS), REG_SCALARS, 8);
    for (int b = 0; b < rg->nbufs; b++) {
        asm_mov_load(s, RAX, opd_mem(REG_PTRS, 8 * b));
        asm_mov_store(s, opd_mem(RSP, FRAME_PTRS + 8 * b), RAX, 8);
    }
    asm_lea(s, REG_PTRS, opd_mem(RSP, FRAME_PTRS));
}

void
emit_leave_rows(x86_emit *e)
{
    leave(e, UINT32_MAX, e->inside_spills, true);
}

/* What a phase of a row finds: what the row was called with. */
static void
enter_inside(x86_emit *e)
{
    asm_mov_load(e->s, REG_COUNT, opd_mem(RSP, FRAME_COUNT));
    asm_mov_load(e->s, REG_SCALARS, opd_mem(RSP, FRAME_SCALARS));
}

/* Elements of broadcast buffers as 32 or 64 bits in the frame: one, or the same
 * narrow one several times. */
static void
place_broadcasts(x86_emit *e)
{
    x86_asm *s = e->s;
    for (int i = 0; i < e->l->count; i++) {
        const x86_node *n = &e->nodes[i];
        if (n->op != X86_BCAST || (e->rows && n->imm == AIR_F32))
            continue;
        x86_opd to = emit_invariant(e, i);
        emit_load_gpr(e, REG_TEMP, emit_buffer(e, (int)n->k, false, 0), n->imm);
        if (e->l->width < 4) {
            bool bytes = e->l->width == 1;
            asm_and_imm(s, REG_TEMP, bytes ? 0xff : 0xffff);
            asm_mul_imm(s, REG_TEMP, bytes ? 0x1010101 : 0x10001);
        }
        if (n->imm == AIR_F16) {
            asm_x(s, move_from_gpr, 0, 0, opd_reg(REG_TEMP), 0);
            asm_x(s, half_to_single, 0, 0, opd_reg(0), 0);
            asm_x(s, store_ss, 0, 0, to, 0);
            continue;
        }
        if (n->imm == AIR_F32 && e->l->width == 8) {
            asm_x(s, move_from_gpr, 0, 0, opd_reg(REG_TEMP), 0);
            asm_x(s, widen_f32, 0, 0, opd_reg(0), 0);
            asm_x(s, store_sd, 0, 0, to, 0);
            continue;
        }
        if (n->imm == AIR_BF16)
            asm_shift_imm(s, REG_TEMP, 16);
        asm_mov_store(s, to, REG_TEMP, e->l->width == 8 ? 8 : 4);
    }
}

/* The `count` most used invariants get registers. AVX2 has no broadcasting
 * operand: the others become whole vectors in the frame. */
static void
place_invariants(x86_emit *e, int count)
{
    for (; count > 0; count--) {
        int best = -1;
        for (int i = 0; i < e->l->count; i++)
            if (x86_is_invariant(&e->nodes[i]) && !e->hoisted[i] &&
                !emit_varies(e, i) && e->uses[i] > 0 &&
                (best < 0 || e->uses[i] > e->uses[best]))
                best = i;
        if (best < 0)
            break;
        int r = emit_take(e);
        emit_broadcast(e, r, emit_invariant(e, best));
        e->hoisted[best] = true;
        e->reg[best][0] = (int8_t)r;
    }
    e->pinned = 0;
    if (e->s->evex || e->mode == EMIT_ONE)
        return;
    for (int i = 0; i < e->l->count; i++) {
        const x86_node *n = &e->nodes[i];
        if ((n->op != X86_SCALAR && n->op != X86_BCAST) || e->hoisted[i] ||
            emit_varies(e, i))
            continue;
        int r = emit_take(e);
        emit_broadcast(e, r, emit_invariant(e, i));
        asm_v(e->s, store_aligned, r, 0,
              opd_mem(RSP, FRAME_SPILL + 64 * e->nspills), 0);
        for (int u = 0; u < X86_MAX_UNROLL; u++)
            e->spill[i][u] = (int16_t)e->nspills;
        e->peak_spills = ++e->nspills;
        e->free |= UINT32_C(1) << r;
        e->pinned = 0;
    }
}

/* ---- loops ---- */

/* REG_SCALARS: how many rows come now. FRAME_LEFT: those behind them, below
 * one if there are none. */
static void
take_few(x86_emit *e)
{
    x86_asm *s = e->s;
    asm_mov_load(s, REG_SCALARS, opd_mem(RSP, FRAME_LEFT));
    asm_alu(s, ALU_MOV, REG_TEMP, REG_SCALARS);
    asm_add_imm(s, REG_TEMP, -AIR_RG_FEW_ROWS);
    asm_mov_store(s, opd_mem(RSP, FRAME_LEFT), REG_TEMP, 8);
    size_t fewer = asm_jump(s, NOT_GREATER);
    asm_alu(s, ALU_XOR, REG_SCALARS, REG_SCALARS);
    asm_add_imm(s, REG_SCALARS, AIR_RG_FEW_ROWS);
    asm_patch_here(s, fewer);
}

/* Short elements of the tail, to or from the frame; rdx counts down. */
static void
copy_tail(x86_emit *e, int buf, bool out)
{
    x86_asm *s = e->s;
    size_t bytes = emit_dtype_bytes(e->l->rg->bufs[buf].dtype);
    int scale = __builtin_ctzll(bytes);
    asm_lea(s, REG_TEMP, emit_buffer(e, buf, true, 0));
    asm_alu(s, ALU_MOV, REG_SCALARS, REG_COUNT);
    size_t top = asm_here(s);
    x86_opd there = opd_at(REG_TEMP, REG_SCALARS, scale, -(int32_t)bytes);
    x86_opd here = opd_at(RSP, REG_SCALARS, scale,
                          FRAME_BOUNCE + 32 * buf - (int32_t)bytes);
    asm_movzx(s, REG_COPY, out ? here : there, bytes);
    asm_mov_store(s, out ? there : here, REG_COPY, bytes);
    asm_add_imm(s, REG_SCALARS, -1);
    asm_jump_to(s, NOT_EQUAL, top);
}

static void
copy_tails(x86_emit *e, uint32_t bufs, bool out)
{
    for (int b = 0; b < e->l->rg->nbufs; b++)
        if (bufs >> b & 1 && emit_dtype_bytes(e->l->rg->bufs[b].dtype) < 4)
            copy_tail(e, b, out);
}

/* A tail of each row is copied before, and behind its body. */
static void
copy_row(x86_emit *e, emit_mode mode, uint32_t bufs, bool out)
{
    if (mode != EMIT_TAIL || !copies_tail(e))
        return;
    asm_mov_store(e->s, opd_mem(RSP, FRAME_COUNT), REG_SCALARS, 8);
    copy_tails(e, bufs, out);
    asm_mov_load(e->s, REG_SCALARS, opd_mem(RSP, FRAME_COUNT));
}

/* All rows of the call for these columns. */
static void
row_loop(x86_emit *e, emit_mode mode, int unroll)
{
    x86_asm *s = e->s;
    emit_move_parts(e, mode, unroll, true);
    asm_mov_load(s, REG_TEMP, opd_mem(RSP, FRAME_ROWS));
    asm_mov_store(s, opd_mem(RSP, FRAME_LEFT), REG_TEMP, 8);
    size_t few = asm_here(s);
    emit_few(e, unroll, true);
    take_few(e);
    size_t top = asm_here(s);
    place_broadcasts(e);
    copy_row(e, mode, e->loaded, false);
    emit_body(e, mode, unroll);
    copy_row(e, mode, e->stored, true);
    asm_mov_load(s, REG_TEMP, opd_mem(RSP, FRAME_STEPS));
    for (int b = 0; b < e->l->rg->nbufs; b++)
        if (e->buf_reg[b] >= 0)
            asm_add_load(s, e->buf_reg[b], opd_mem(REG_TEMP, 8 * b));
    asm_add_imm(s, REG_SCALARS, -1);
    asm_jump_to(s, NOT_EQUAL, top);
    emit_few(e, unroll, false);
    asm_mov_load(s, REG_TEMP, opd_mem(RSP, FRAME_LEFT));
    asm_add_imm(s, REG_TEMP, 0);
    asm_jump_to(s, GREATER, few);
    emit_move_parts(e, mode, unroll, false);
    load_pointers(e);
}

static void
body(x86_emit *e, emit_mode mode, int unroll)
{
    if (e->rows) {
        row_loop(e, mode, unroll);
        return;
    }
    if (folds_rows(e) && !e->holds) {
        asm_alu(e->s, ALU_MOV, REG_PART, REG_INDEX);
        asm_and_imm(e->s, REG_PART, 63);
    }
    emit_body(e, mode, unroll);
}

static void
loop(x86_emit *e, int unroll)
{
    x86_asm *s = e->s;
    int32_t step = unroll * e->vector;
    asm_lea(s, REG_TEMP, opd_mem(REG_INDEX, step));
    asm_alu(s, ALU_CMP, REG_TEMP, REG_COUNT);
    size_t skip = asm_jump(s, ABOVE);
    asm_align(s, 32);
    size_t top = asm_here(s);
    body(e, EMIT_FULL, unroll);
    asm_add_imm(s, REG_INDEX, step);
    asm_lea(s, REG_TEMP, opd_mem(REG_INDEX, step));
    asm_alu(s, ALU_CMP, REG_TEMP, REG_COUNT);
    asm_jump_to(s, BELOW_EQUAL, top);
    asm_patch_here(s, skip);
}

/* As many times 64 elements as there are before REG_COUNT, with the partial
 * results from REG_PART on, which are held. */
static void
hold_pass(x86_emit *e, int unroll)
{
    x86_asm *s = e->s;
    emit_move_parts(e, EMIT_FULL, unroll, true);
    asm_align(s, 32);
    size_t top = asm_here(s);
    body(e, EMIT_FULL, unroll);
    asm_add_imm(s, REG_INDEX, PARTS);
    asm_lea(s, REG_TEMP, opd_mem(REG_INDEX, PARTS));
    asm_alu(s, ALU_SUB, REG_TEMP, REG_PART);
    asm_alu(s, ALU_CMP, REG_TEMP, REG_COUNT);
    asm_jump_to(s, BELOW_EQUAL, top);
    emit_move_parts(e, EMIT_FULL, unroll, false);
}

/* Those of a block, a pass for each share of the partial results. */
static void
hold_block(x86_emit *e, int32_t step)
{
    x86_asm *s = e->s;
    asm_mov_store(s, opd_mem(RSP, FRAME_BLOCK), REG_INDEX, 8);
    asm_lea(s, REG_TEMP, opd_mem(REG_INDEX, BLOCK));
    asm_alu(s, ALU_CMP, REG_TEMP, REG_COUNT);
    size_t last = asm_jump(s, ABOVE);
    asm_alu(s, ALU_MOV, REG_COUNT, REG_TEMP);
    asm_patch_here(s, last);
    size_t pass = asm_here(s);
    hold_pass(e, step / e->vector);
    asm_mov_load(s, REG_INDEX, opd_mem(RSP, FRAME_BLOCK));
    asm_add_imm(s, REG_PART, step);
    asm_alu(s, ALU_ADD, REG_INDEX, REG_PART);
    asm_alu(s, ALU_MOV, REG_TEMP, REG_PART);
    asm_add_imm(s, REG_TEMP, -PARTS);
    asm_jump_to(s, NOT_EQUAL, pass);
    asm_alu(s, ALU_XOR, REG_PART, REG_PART);
    /* to the end of the block */
    asm_mov_load(s, REG_INDEX, opd_mem(RSP, FRAME_BLOCK));
    asm_alu(s, ALU_SUB, REG_COUNT, REG_INDEX);
    asm_and_imm(s, REG_COUNT, -PARTS);
    asm_alu(s, ALU_ADD, REG_INDEX, REG_COUNT);
    asm_mov_load(s, REG_COUNT, opd_mem(RSP, FRAME_LEFT));
}

/* From the first element on. Blocks are short enough that what passes leave
 * out of a line's neighbours is read soon. */
static void
hold_loop(x86_emit *e, int unroll)
{
    x86_asm *s = e->s;
    int32_t step = unroll * e->vector;
    asm_alu(s, ALU_XOR, REG_PART, REG_PART);
    asm_lea(s, REG_TEMP, opd_mem(REG_INDEX, PARTS));
    asm_alu(s, ALU_CMP, REG_TEMP, REG_COUNT);
    size_t skip = asm_jump(s, ABOVE), top = asm_here(s);
    if (step == PARTS) {
        hold_pass(e, unroll);
    } else {
        asm_mov_store(s, opd_mem(RSP, FRAME_LEFT), REG_COUNT, 8);
        hold_block(e, step);
        asm_lea(s, REG_TEMP, opd_mem(REG_INDEX, PARTS));
        asm_alu(s, ALU_CMP, REG_TEMP, REG_COUNT);
        asm_jump_to(s, BELOW_EQUAL, top);
    }
    asm_patch_here(s, skip);
}

/* Does memory, not arithmetic, bound the phase? Adam's step (28 nodes, 8
 * buffers) gains 10 to 20 %, swiglu (42, 3) nothing, softmax loses. */
static bool
may_stream(const x86_emit *e)
{
    int buffers = __builtin_popcount(e->loaded) + __builtin_popcount(e->stored);
    return e->l->rg->stream && e->l->rg->walk == AIR_WALK_MAP &&
           e->l->count <= 6 * buffers;
}

/* Results that will not be found in a cache anyway need not be read into one:
 * a loop whose stores of whole lanes go straight to memory, where they are
 * aligned. */
static void
stream_loop(x86_emit *e, int unroll)
{
    x86_asm *s = e->s;
    bool any = false;
    for (int b = 0; b < e->l->rg->nbufs; b++) {
        const bool second =
            e->l->pairs >> b & 1 && x86_pair_mate(e->l->rg, b) < 0;
        if (!(e->stored >> b & 1) || !emit_may_stream(e, b) || second)
            continue;
        if (e->buf_reg[b] < 0)
            return;
        asm_alu(s, any ? ALU_OR : ALU_MOV, REG_TEMP, e->buf_reg[b]);
        any = true;
    }
    if (!any)
        return;
    asm_and_imm(s, REG_TEMP, e->l->width * e->vector - 1);
    size_t skip = asm_jump(s, NOT_EQUAL);
    e->streaming = true;
    loop(e, unroll);
    if (unroll > 1)
        loop(e, 1); /* not the rest of a row some other way */
    e->streaming = false;
    asm_patch_here(s, skip);
}

/* k7 = the lowest (n - i) bits */
static void
mask_avx512(x86_emit *e)
{
    x86_asm *s = e->s;
    asm_alu(s, ALU_SUB, REG_COUNT, REG_INDEX);
    asm_bytes(s, "\x49\xc7\xc3\xff\xff\xff\xff", 7); /* mov r11, -1 */
    asm_bytes(s, "\xc4\x42\xc8\xf5\xdb", 5);         /* bzhi r11, r11, rsi */
    asm_bytes(s, "\xc4\xc1\xfb\x92\xfb", 5);         /* kmovq k7, r11 */
}

/* The ones before REG_TEMP - REG_SCALARS begin a mask. */
static void
put_mask(x86_emit *e, int place)
{
    int r = emit_take(e);
    asm_alu(e->s, ALU_SUB, REG_TEMP, REG_SCALARS);
    asm_v(e->s, move_unaligned, r, 0, opd_mem(REG_TEMP, 0), 0);
    asm_v(e->s, store_aligned, r, 0, opd_mem(RSP, place), 0);
    e->free |= UINT32_C(1) << r;
    e->pinned = 0;
}

/* The mask vector begins n - i words (or twice as many, or bytes) before the
 * end of the ones. Elements of fewer bytes go through the frame, what they are
 * folded into is as wide as its lanes. */
static void
mask_avx2(x86_emit *e, size_t masks)
{
    x86_asm *s = e->s;
    bool wide = e->l->width == 8;
    asm_alu(s, ALU_SUB, REG_COUNT, REG_INDEX);
    if (e->l->width < 4 && count_parts(e) == 0)
        return;
    asm_bytes(s, "\x4c\x8d\x1d", 3); /* lea r11, [rip + masks + 32] */
    asm_word(s, (uint32_t)(masks + 32 - (asm_here(s) + 4)));
    asm_alu(s, ALU_MOV, REG_SCALARS, REG_COUNT);
    if (e->l->width >= 4)
        asm_shift_imm(s, REG_SCALARS, 2);
    put_mask(e, wide ? FRAME_MASK + 32 : FRAME_MASK);
    if (wide)
        put_mask(e, FRAME_MASK);
}

static void
tail(x86_emit *e, size_t masks)
{
    asm_alu(e->s, ALU_CMP, REG_INDEX, REG_COUNT);
    size_t skip = asm_jump(e->s, NOT_BELOW);
    if (e->s->evex) {
        mask_avx512(e);
        if (e->l->pairs)
            x86_pair_masks(e);
        body(e, EMIT_TAIL, 1);
    } else {
        mask_avx2(e, masks);
        if (!e->rows)
            copy_tails(e, e->loaded, false);
        body(e, EMIT_TAIL, 1);
        if (!e->rows)
            copy_tails(e, e->stored, true);
    }
    asm_patch_here(e->s, skip);
}

/* ---- the phase ---- */

static void
attempt(x86_emit *e, size_t start, size_t masks, int unroll, int hoists)
{
    asm_rewind(e->s, start);
    emit_reset(e);
    uint32_t used = assign_buffers(e);
    if (e->inside)
        enter_inside(e);
    else
        enter(e, used, x86_raises(e->l));
    load_pointers(e);
    asm_alu(e->s, ALU_XOR, REG_INDEX, REG_INDEX);
    x86_pair_tables(e);
    if (!e->rows)
        place_broadcasts(e);
    place_invariants(e, hoists);
    if (e->mode == EMIT_ONE) {
        emit_body(e, EMIT_ONE, 1);
    } else {
        if (may_stream(e))
            stream_loop(e, unroll);
        bool hold = may_hold(e, unroll);
        if (hold)
            hold_loop(e, unroll);
        if (!hold || unroll * e->vector < PARTS)
            loop(e, unroll);
        bool spilled = e->spilled;
        int low_free = e->low_free;
        for (int u = e->rows ? unroll / 2 : 1; u > 0 && unroll > 1; u /= 2)
            loop(e, u);
        tail(e, masks);
        e->spilled = spilled; /* what the main loop does is what matters */
        e->low_free = low_free;
        e->mode = EMIT_FULL;
    }
    if (!e->inside)
        leave(e, used, e->peak_spills, x86_raises(e->l));
}

/* Half of the registers, with the totals of rows. */
static bool
may_hold_rows(const x86_emit *e, int unroll)
{
    return 2 * count_parts(e) * unroll <= (e->s->evex ? 16 : 8);
}

static bool
fits(x86_emit *e, const x86_node *nodes, size_t start, size_t masks, int unroll)
{
    if (nodes == NULL)
        return false;
    e->nodes = nodes;
    find_uses(e);
    e->rows = takes_rows(e);
    if (e->rows && !may_hold_rows(e, unroll))
        return false;
    attempt(e, start, masks, unroll, 0);
    return !e->spilled;
}

/* Partial results stay in registers where a pass has one of each. */
static int
first_unroll(const x86_emit *e, bool scalar)
{
    int copies = e->l->count <= 24 ? 4 : 2;
    if (e->l->width == 1 && folds_rows(e))
        return PARTS / e->vector;
    bool all = e->l->width == 8 && folds_rows(e) && e->l->count <= 8;
    return scalar ? 1 : all ? 8 : copies;
}

void
emit_phase(x86_emit *e, const x86_list *list, const x86_node *sorted,
           size_t masks)
{
    size_t start = asm_here(e->s);
    bool scalar = x86_is_single(list->rg, list->phase);
    e->l = list;
    e->nodes = list->nodes;
    e->mode = scalar ? EMIT_ONE : EMIT_FULL;
    e->vector = (e->s->evex ? 64 : 32) / list->width;
    e->s->wide = list->width == 8;
    int unroll = first_unroll(e, scalar);
    while (!fits(e, sorted, start, masks, unroll) &&
           !fits(e, list->nodes, start, masks, unroll) && unroll > 1)
        unroll /= 2;
    int hoists = scalar || e->spilled ? 0 : e->low_free;
    if (hoists > 0)
        attempt(e, start, masks, unroll, hoists);
    while (e->spilled && hoists > 0)
        attempt(e, start, masks, unroll, --hoists);
    if (!e->inside)
        asm_finish_constants(e->s);
}
