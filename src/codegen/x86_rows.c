/* x86_rows.c: all phases of a row in one loop over rows, where a row is one
 * chunk of the kernel ABI.
 *
 *     frame, a copy of the buffer pointers
 *     for each row: for each phase: its loops; what it reduces, folded
 *
 * A short row takes less time than the calls of its phases would. */
#include <math.h>
#include <string.h>

#include "codegen/x86_emit.h"

enum { PARTS = 64, MOST_VECTORS = 8 }; /* registers that hold the parts */

static const x86_ins store_vector = {MAP_0F, PP_NONE, 0x11, false};
static const x86_ins load_vector = {MAP_0F, PP_NONE, 0x10, false};
static const x86_ins store_ss = {MAP_0F, PP_F3, 0x11, false};
static const x86_ins store_sd = {MAP_0F, PP_F2, 0x11, false};
static const x86_ins upper_256 = {MAP_0F3A, PP_66, 0x1b, true};
static const x86_ins upper_128 = {MAP_0F3A, PP_66, 0x19, false};
static const x86_ins upper_64 = {MAP_0F, PP_66, 0x15, true};
static const x86_ins upper_32 = {MAP_0F, PP_F3, 0x16, false};

/* What a fold starts with, as bits of a lane. */
static uint64_t
identity(const x86_emit *e, const x86_node *n)
{
    static const double starts[] = {0, 1, -HUGE_VAL, HUGE_VAL};
    static const int64_t integers[] = {0, 1, INT64_MIN, INT64_MAX};
    double d = starts[n->imm & 3];
    float f = (float)d;
    uint32_t word;
    uint64_t bits;
    memcpy(&bits, &d, 8);
    memcpy(&word, &f, 4);
    if (n->imm & X86_OF_INTEGERS)
        return (uint64_t)integers[n->imm & 3];
    return e->l->width == 8 ? bits : word;
}

/* The lanes of a register from `bytes` on, in the first ones of another. */
static int
upper(x86_emit *e, int a, int bytes)
{
    int t = emit_temp(e);
    if (bytes >= 16) {
        asm_v(e->s, bytes == 32 ? upper_256 : upper_128, a, 0, opd_reg(t), 1);
        asm_byte(e->s, 1);
    } else if (bytes == 8) {
        asm_v(e->s, upper_64, t, a, opd_reg(a), 0);
    } else {
        asm_v(e->s, upper_32, t, 0, opd_reg(a), 0);
    }
    return t;
}

static void
fold_into(x86_emit *e, const x86_node *n, int to, int a)
{
    emit_fold(e, n, to, a, opd_reg(to));
    e->free |= e->temps;
    e->temps = 0;
}

/* Vectors i, i + held, .. of the parts, there are two at most, as one. */
static int
load_parts(x86_emit *e, const x86_node *n, int i, int held)
{
    const int bytes = e->vector * e->l->width, count = PARTS / e->vector;
    int v = emit_take(e), far = held < count ? emit_temp(e) : v;
    const x86_opd near = opd_mem(REG_TEMP, i * bytes);
    asm_v(e->s, load_vector, far, 0,
          opd_mem(REG_TEMP, (i + count - held) * bytes), 0);
    if (held < count)
        emit_fold(e, n, v, far, near);
    e->free |= e->temps;
    e->temps = 0;
    return v;
}

/* The tree of the kernel ABI; partial results are the identity again. */
static void
fold_parts(x86_emit *e, const x86_node *n)
{
    const int bytes = e->vector * e->l->width, all = PARTS / e->vector;
    const int count = all > MOST_VECTORS ? all / 2 : all;
    int v[MOST_VECTORS];
    emit_reset(e);
    asm_mov_load(e->s, REG_TEMP, opd_mem(REG_ACCS, 8 * (int32_t)n->k));
    for (int i = 0; i < count; i++)
        v[i] = load_parts(e, n, i, count);
    int start = emit_take(e);
    emit_broadcast(e, start, emit_constant(e, identity(e, n)));
    for (int i = 0; i < all; i++)
        asm_v(e->s, store_vector, start, 0, opd_mem(REG_TEMP, i * bytes), 0);
    for (int half = count / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            fold_into(e, n, v[i], v[i + half]);
    for (int half = bytes / 2; half >= e->l->width; half /= 2)
        fold_into(e, n, v[0], upper(e, v[0], half));
    asm_mov_load(e->s, REG_SCALARS, opd_mem(RSP, FRAME_SCALARS));
    asm_x(e->s, e->l->width == 8 ? store_sd : store_ss, v[0], 0,
          opd_mem(REG_SCALARS, 8 * (int32_t)n->k), 0);
}

/* Truth values are folded by the caller only. */
static bool
can_fold(const x86_list *l)
{
    for (int i = 0; i < l->count; i++)
        if (l->nodes[i].op == X86_REDUCE && l->width < 4)
            return false;
    return true;
}

size_t
emit_rows_begin(x86_emit *e, const air_region *rg)
{
    e->inside = true;
    e->inside_count = e->inside_spills = 0;
    emit_enter_rows(e, rg);
    return asm_here(e->s);
}

bool
emit_rows_phase(x86_emit *e, const x86_list *list, const x86_node *sorted,
                size_t masks)
{
    if (!can_fold(list) ||
        (e->inside_count++ > 0 && e->s->wide != (list->width == 8)))
        return false; /* constants are as wide as the lanes of a phase */
    emit_phase(e, list, sorted, masks);
    if (e->peak_spills > e->inside_spills)
        e->inside_spills = e->peak_spills;
    for (int i = 0; i < list->count; i++)
        if (e->nodes[i].op == X86_REDUCE)
            fold_parts(e, &e->nodes[i]);
    return true;
}

/* Pointers to the next row. */
void
emit_rows_end(x86_emit *e, const air_region *rg, size_t top)
{
    x86_asm *s = e->s;
    asm_mov_load(s, REG_TEMP, opd_mem(RSP, FRAME_STEPS));
    for (int b = 0; b < rg->nbufs; b++) {
        if (rg->bufs[b].scratch)
            continue;
        x86_opd at = opd_mem(RSP, FRAME_PTRS + 8 * b);
        asm_mov_load(s, RAX, at);
        asm_add_load(s, RAX, opd_mem(REG_TEMP, 8 * b));
        asm_mov_store(s, at, RAX, 8);
    }
    asm_mov_load(s, RAX, opd_mem(RSP, FRAME_ROWS));
    asm_add_imm(s, RAX, -1);
    asm_mov_store(s, opd_mem(RSP, FRAME_ROWS), RAX, 8);
    asm_jump_to(s, NOT_EQUAL, top);
    emit_leave_rows(e);
    asm_finish_constants(s);
    e->inside = false;
}
