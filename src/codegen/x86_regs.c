/* x86_regs.c: which value lies where: linear scan over the nodes, with values
 * of the longest way to their next use spilled when registers run out. */
#include <assert.h>
#include <string.h>

#include "codegen/x86_emit.h"

static const x86_ins mov_aligned = {MAP_0F, PP_NONE, 0x28, false};
static const x86_ins mov_store = {MAP_0F, PP_NONE, 0x29, false};
static const x86_ins broadcast_ss = {MAP_0F38, PP_66, 0x18, false};
static const x86_ins broadcast_sd = {MAP_0F38, PP_66, 0x19, true};

void
emit_reset(x86_emit *e)
{
    size_t count = (size_t)e->l->count;
    memset(e->reg, -1, count * sizeof e->reg[0]);
    memset(e->spill, -1, count * sizeof e->spill[0]);
    memset(e->hoisted, 0, count * sizeof e->hoisted[0]);
    memset(e->mask, 0, count * sizeof e->mask[0]);
    memset(e->owner, -1, sizeof e->owner);
    memset(e->tables, -1, sizeof e->tables);
    bool high = e->s->evex && e->mode != EMIT_ONE;
    e->free = high ? UINT32_MAX : 0xffff;
    e->pinned = e->temps = 0;
    e->free_masks = e->l->pairs ? 0x3c : 0x7c;
    e->nspills = e->peak_spills = 0;
    e->low_free = 32;
    e->spilled = false;
}

void
emit_move(x86_emit *e, int dst, int src)
{
    if (dst != src)
        asm_v(e->s, mov_aligned, dst, 0, opd_reg(src), 0);
}

void
emit_broadcast(x86_emit *e, int reg, x86_opd mem)
{
    x86_ins ins = e->l->width == 8 ? broadcast_sd : broadcast_ss;
    if (mem.kind == OPD_CONST && !e->s->evex)
        ins = mov_aligned;
    ins.wide = ins.wide && e->s->evex;
    asm_v(e->s, ins, reg, 0, mem, 0);
}

x86_opd
emit_constant(x86_emit *e, uint64_t bits)
{
    return (x86_opd){
        .kind = OPD_CONST, .index = -1, .disp = asm_constant(e->s, bits)};
}

x86_opd
emit_invariant(x86_emit *e, int node)
{
    const x86_node *n = &e->nodes[node];
    if (n->op == X86_SCALAR)
        return opd_mem(REG_SCALARS, 8 * (int32_t)n->k);
    if (emit_varies(e, node) && n->imm == AIR_F32)
        return emit_buffer(e, (int)n->k, false, 0);
    if (n->op == X86_BCAST)
        return opd_mem(RSP, FRAME_BCAST + 8 * (int32_t)n->k);
    return emit_constant(e, n->k);
}

/* ---- spilling ---- */

static int
next_use(const x86_emit *e, int node)
{
    for (int i = e->at; i <= e->last[node]; i++) {
        const x86_node *n = &e->nodes[i];
        if (n->a == node || n->b == node || n->c == node)
            return i;
    }
    return e->last[node];
}

static x86_opd
spill_slot(int slot)
{
    return opd_mem(RSP, FRAME_SPILL + 64 * slot);
}

static int
spill_one(x86_emit *e)
{
    int best = -1, far = -1;
    for (int r = 0; r < 32; r++) {
        if (e->owner[r] < 0 || e->pinned >> r & 1)
            continue;
        int use = next_use(e, e->owner[r] / X86_MAX_UNROLL);
        if (use > far) {
            far = use;
            best = r;
        }
    }
    assert(best >= 0);
    int node = e->owner[best] / X86_MAX_UNROLL;
    int copy = e->owner[best] % X86_MAX_UNROLL;
    asm_v(e->s, mov_store, best, 0, spill_slot(e->nspills), 0);
    e->spill[node][copy] = (int16_t)e->nspills++;
    if (e->nspills > e->peak_spills)
        e->peak_spills = e->nspills;
    e->reg[node][copy] = -1;
    e->owner[best] = -1;
    e->spilled = true;
    return best;
}

int
emit_take(x86_emit *e)
{
    int r;
    if (e->free != 0) {
        r = __builtin_ctz(e->free);
        e->free &= e->free - 1;
        int left = __builtin_popcount(e->free);
        if (left < e->low_free)
            e->low_free = left;
    } else {
        e->low_free = -1;
        r = spill_one(e);
    }
    e->pinned |= UINT32_C(1) << r;
    return r;
}

int
emit_temp(x86_emit *e)
{
    int r = emit_take(e);
    e->temps |= UINT32_C(1) << r;
    return r;
}

/* ---- values ---- */

static int
copy_of(const x86_emit *e, int node)
{
    return e->hoisted[node] ? 0 : e->lane;
}

bool
emit_in_memory(const x86_emit *e, int node)
{
    return e->reg[node][copy_of(e, node)] < 0;
}

bool
emit_dies(const x86_emit *e, int node)
{
    return !e->hoisted[node] && !emit_in_memory(e, node) &&
           e->last[node] == e->at;
}

int
emit_in_reg(x86_emit *e, int node)
{
    int c = copy_of(e, node), r = e->reg[node][c];
    if (r < 0) {
        r = emit_temp(e);
        if (e->spill[node][c] >= 0)
            asm_v(e->s, mov_aligned, r, 0, spill_slot(e->spill[node][c]), 0);
        else
            emit_broadcast(e, r, emit_invariant(e, node));
    }
    e->pinned |= UINT32_C(1) << r;
    return r;
}

/* In memory only where an instruction can take the whole vector from there. */
x86_opd
emit_operand(x86_emit *e, int node)
{
    int c = copy_of(e, node);
    bool single = e->mode == EMIT_ONE || emit_varies(e, node);
    if (e->reg[node][c] >= 0 ||
        (single && !e->s->evex && e->nodes[node].op != X86_CONST &&
         e->spill[node][c] < 0))
        return opd_reg(emit_in_reg(e, node));
    if (e->spill[node][c] >= 0)
        return spill_slot(e->spill[node][c]);
    if (e->s->evex && e->l->width < 4) /* no broadcasts of such */
        return opd_reg(emit_in_reg(e, node));
    x86_opd mem = emit_invariant(e, node);
    mem.broadcast = e->s->evex;
    return mem;
}

void
emit_drop(x86_emit *e, int node)
{
    if (node < 0 || !emit_dies(e, node))
        return;
    int r = e->reg[node][e->lane];
    e->free |= UINT32_C(1) << r;
    e->owner[r] = -1;
    e->reg[node][e->lane] = -1;
}

void
emit_define(x86_emit *e, int reg)
{
    e->temps &= ~(UINT32_C(1) << reg);
    e->free &= ~(UINT32_C(1) << reg);
    if (e->last[e->at] <= e->at) { /* nobody reads it */
        e->free |= UINT32_C(1) << reg;
        return;
    }
    e->reg[e->at][e->lane] = (int8_t)reg;
    e->owner[reg] = (int16_t)(e->at * X86_MAX_UNROLL + e->lane);
}

/* ---- the nodes in order ---- */

static void
begin_body(x86_emit *e)
{
    for (int i = 0; i < e->l->count; i++) {
        if (e->hoisted[i])
            continue;
        bool kept = x86_is_invariant(&e->nodes[i]);
        for (int u = 0; u < X86_MAX_UNROLL; u++) {
            e->reg[i][u] = -1;
            e->spill[i][u] = kept ? e->spill[i][u] : -1;
        }
    }
}

void
emit_body(x86_emit *e, emit_mode mode, int unroll)
{
    int spills = e->nspills;
    e->mode = mode;
    e->unroll = unroll;
    begin_body(e);
    for (e->at = 0; e->at < e->l->count; e->at++) {
        const x86_node *n = &e->nodes[e->at];
        if (x86_is_invariant(n) || emit_is_dead(e, e->at))
            continue;
        for (e->lane = 0; e->lane < unroll; e->lane++) {
            emit_node(e);
            emit_drop(e, n->a);
            emit_drop(e, n->b);
            emit_drop(e, n->c);
            e->free |= e->temps;
            e->temps = e->pinned = 0;
        }
    }
    e->nspills = spills;
}
