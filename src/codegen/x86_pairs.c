/* x86_pairs.c: buffers of stride 2, as the parts of complex numbers are: read
 * as every other element of two vectors, both parts written together. AVX-512,
 * f32 lanes. Two parts of bf16 are words of 32 bits, which lie side by side. */
#include "air.h"
#include "codegen/x86_emit.h"

static const x86_ins load = {MAP_0F, PP_NONE, 0x10, false};
static const x86_ins store = {MAP_0F, PP_NONE, 0x11, false};
static const x86_ins stream = {MAP_0F, PP_NONE, 0x2b, false};
static const x86_ins permute = {MAP_0F38, PP_66, 0x7f, false}; /* of two */
static const x86_ins move_mask = {MAP_0F, PP_NONE, 0x90, false};

/* ---- which ---- */

static bool
is_part(const air_region *rg, int b)
{
    const air_rg_buf *buf = &rg->bufs[b];
    return (buf->dtype == AIR_F32 || buf->dtype == AIR_BF16) && !buf->scratch &&
           buf->strides[air_region_axis(rg)] == 2;
}

int
x86_pair_mate(const air_region *rg, int b)
{
    const air_rg_buf *first = &rg->bufs[b];
    const int64_t bytes = (int64_t)air_dtype_bytes((air_dtype)first->dtype);
    for (int c = 0; c < rg->nbufs; c++) {
        const air_rg_buf *second = &rg->bufs[c];
        bool same = is_part(rg, c) && first->dtype == second->dtype &&
                    first->slot == second->slot &&
                    first->offset + bytes == second->offset;
        for (int a = 0; a < rg->rank; a++)
            same = same && first->strides[a] == second->strides[a];
        if (same)
            return c;
    }
    return -1;
}

/* The one of a set whose mate is b; -1: none. */
static int
lead_of(const air_region *rg, uint32_t bufs, int b)
{
    for (uint32_t left = bufs; left; left &= left - 1)
        if (x86_pair_mate(rg, __builtin_ctz(left)) == b)
            return __builtin_ctz(left);
    return -1;
}

static int
count_ops(const air_region *rg, int op, int b)
{
    int count = 0;
    for (int i = 0; i < rg->nnodes; i++)
        count += rg->nodes[i].op == op && rg->nodes[i].buf == b;
    return count;
}

static bool
is_written(const air_region *rg, int b)
{
    return count_ops(rg, AIR_RG_STORE, b) == 1 &&
           count_ops(rg, AIR_RG_LOAD, b) == 0;
}

static bool
is_read(const air_region *rg, int b)
{
    return count_ops(rg, AIR_RG_STORE, b) == 0;
}

/* Are all of its numbers loaded as, and made of, f32? */
static bool
is_of_floats(const air_region *rg, int b)
{
    bool floats = true;
    for (int i = 0; i < rg->nnodes; i++) {
        const air_rg_node *n = &rg->nodes[i];
        if ((n->op == AIR_RG_STORE || n->op == AIR_RG_LOAD) && n->buf == b)
            floats = floats && n->lane == AIR_LANE_F32;
    }
    return floats;
}

static bool
can_walk(const air_region *rg)
{
    return rg->walk == AIR_WALK_MAP && rg->nphases == 1 && !rg->spread;
}

uint32_t
x86_pairs(const air_region *rg)
{
    uint32_t found = 0;
    for (int b = 0; b < rg->nbufs && can_walk(rg); b++) {
        if (!is_part(rg, b) || rg->bufs[b].dtype != AIR_F32)
            continue;
        const int mate = x86_pair_mate(rg, b);
        if (is_read(rg, b))
            found |= UINT32_C(1) << b;
        else if (mate >= 0 && is_written(rg, b) && is_written(rg, mate))
            found |= UINT32_C(1) << b | UINT32_C(1) << mate;
    }
    return found;
}

uint32_t
x86_words(const air_region *rg)
{
    uint32_t found = 0;
    for (int b = 0; b < rg->nbufs && can_walk(rg); b++) {
        if (!is_part(rg, b) || rg->bufs[b].dtype != AIR_BF16)
            continue;
        const int mate = x86_pair_mate(rg, b);
        if (mate >= 0 && is_of_floats(rg, b) && is_of_floats(rg, mate) &&
            ((is_read(rg, b) && is_read(rg, mate)) ||
             (is_written(rg, b) && is_written(rg, mate))))
            found |= UINT32_C(1) << b | UINT32_C(1) << mate;
    }
    return found;
}

int
x86_word_of(const air_region *rg, uint32_t words, int b)
{
    return x86_pair_mate(rg, b) >= 0 ? b : lead_of(rg, words, b);
}

/* ---- instructions ---- */

/* Elements from the first of the current vector on. */
static x86_opd
pairs_at(x86_emit *e, int buf, int32_t elements)
{
    x86_opd at = emit_buffer(e, buf, true, 2 * e->lane * e->vector + elements);
    at.scale = 3;
    return at;
}

/* Masks of a tail, see x86_pair_masks. */
enum { LOW_READ = 0, LOW_BOTH = 4, HIGH_BOTH = 6, HIGH_READ = 8 };

static int
mask_of(x86_emit *e, int which)
{
    if (e->mode != EMIT_TAIL)
        return 0;
    asm_x(e->s, move_mask, X86_PAIR_MASK, 0, opd_mem(RSP, FRAME_MASK + which),
          0);
    return X86_PAIR_MASK;
}

/* d: every other element of it and of `high`, or both in turns. */
static void
put_permute(x86_emit *e, int d, int table, x86_opd high)
{
    asm_v(e->s, permute, d, e->tables[table - ASM_EVEN], high, 0);
}

/* How a part is read: of two vectors from an element of a buffer on. */
typedef struct {
    int buf, table, second; /* where the second vector begins */
    int low, high;          /* masks */
} reading;

/* Where both parts are read, they are read from the same two vectors. Else the
 * second one begins at the last element of the first: what is behind the last
 * element of all is not read. */
static reading
reading_of(const x86_emit *e, int b)
{
    const air_region *rg = e->l->rg;
    const uint32_t both = e->loaded & e->l->pairs;
    const int mate = x86_pair_mate(rg, b), lead = lead_of(rg, both, b);
    if (mate >= 0 && both >> mate & 1)
        return (reading){b, ASM_EVEN, 16, LOW_BOTH, HIGH_BOTH};
    if (lead >= 0)
        return (reading){lead, ASM_ODD, 16, LOW_BOTH, HIGH_BOTH};
    return (reading){b, ASM_SHARED, 15, LOW_READ, HIGH_READ};
}

void
emit_load_part(x86_emit *e, const x86_node *n)
{
    const reading r = reading_of(e, (int)n->k);
    const int d = emit_take(e);
    int mask = mask_of(e, r.low);
    asm_masked(e->s, load, d, 0, pairs_at(e, r.buf, 0), 0, mask, mask != 0);
    x86_opd high = pairs_at(e, r.buf, r.second);
    mask = mask_of(e, r.high);
    if (mask != 0) {
        const int t = emit_temp(e);
        asm_masked(e->s, load, t, 0, high, 0, mask, true);
        high = opd_reg(t);
    }
    put_permute(e, d, r.table, high);
    emit_define(e, d);
}

void
emit_store_pair(x86_emit *e, const x86_node *n)
{
    const int a = emit_in_reg(e, n->a), b = emit_in_reg(e, n->b);
    for (int half = 0; half < 2; half++) {
        const int t = emit_temp(e);
        const x86_opd at = pairs_at(e, (int)n->k, 16 * half);
        emit_move(e, t, a);
        put_permute(e, t, half ? ASM_HIGH : ASM_LOW, opd_reg(b));
        const int mask = mask_of(e, half ? HIGH_BOTH : LOW_BOTH);
        asm_masked(e->s, e->streaming ? stream : store, t, 0, at, 0, mask,
                   false);
    }
}

static void
place_table(x86_emit *e, int which)
{
    const x86_opd at = {.kind = OPD_CONST, .index = -1, .disp = which};
    int8_t *reg = &e->tables[which - ASM_EVEN];
    if (*reg >= 0)
        return;
    *reg = (int8_t)emit_take(e);
    asm_v(e->s, load, *reg, 0, at, 0);
}

void
x86_pair_tables(x86_emit *e)
{
    for (uint32_t left = e->l->pairs & e->loaded; left; left &= left - 1)
        place_table(e, reading_of(e, __builtin_ctz(left)).table);
    if (e->l->pairs & e->stored) {
        place_table(e, ASM_LOW);
        place_table(e, ASM_HIGH);
    }
    e->pinned = 0;
}

/* Of the n - i elements of a tail, which REG_COUNT is: of both parts 2 (n - i)
 * elements of memory, of one part one less. */
void
x86_pair_masks(x86_emit *e)
{
    x86_asm *s = e->s;
    asm_alu(s, ALU_ADD, REG_COUNT, REG_COUNT);
    asm_bytes(s, "\x49\xc7\xc3\xff\xff\xff\xff", 7); /* mov r11, -1 */
    asm_bytes(s, "\xc4\x42\xc8\xf5\xdb", 5);         /* bzhi r11, r11, rsi */
    asm_mov_store(s, opd_mem(RSP, FRAME_MASK + LOW_BOTH), REG_TEMP, 4);
    asm_bytes(s, "\x49\xd1\xeb", 3); /* shr r11, 1 */
    asm_mov_store(s, opd_mem(RSP, FRAME_MASK + LOW_READ), REG_TEMP, 4);
    asm_bytes(s, "\x49\xc1\xeb\x0f", 4); /* shr r11, 15 */
    asm_mov_store(s, opd_mem(RSP, FRAME_MASK + HIGH_READ), REG_TEMP, 4);
    asm_bytes(s, "\x48\xd1\xee", 3); /* shr rsi, 1 */
}
