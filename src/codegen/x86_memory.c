/* x86_memory.c: instructions that touch buffers, row scalars and partial
 * results. */
#include "air.h"
#include "codegen/x86_emit.h"

static const x86_ins move_load = {MAP_0F, PP_NONE, 0x10, false};
static const x86_ins move_store = {MAP_0F, PP_NONE, 0x11, false};
static const x86_ins move_stream = {MAP_0F, PP_NONE, 0x2b, false};
static const x86_ins move_load_pd = {MAP_0F, PP_66, 0x10, true};
static const x86_ins move_store_pd = {MAP_0F, PP_66, 0x11, true};
static const x86_ins move_load_sd = {MAP_0F, PP_F2, 0x10, false};
static const x86_ins move_store_sd = {MAP_0F, PP_F2, 0x11, false};
static const x86_ins widen_f32 = {MAP_0F, PP_NONE, 0x5a, false};
static const x86_ins narrow_f64 = {MAP_0F, PP_66, 0x5a, true};
static const x86_ins widen_s32_long = {MAP_0F38, PP_66, 0x25, false};
static const x86_ins widen_s16_long = {MAP_0F38, PP_66, 0x24, false};
static const x86_ins widen_s8_long = {MAP_0F38, PP_66, 0x22, false};
static const x86_ins widen_u8_long = {MAP_0F38, PP_66, 0x32, false};
static const x86_ins narrow_long_32 = {MAP_0F38, PP_F3, 0x35, false};
static const x86_ins narrow_long_16 = {MAP_0F38, PP_F3, 0x34, false};
static const x86_ins narrow_long_8 = {MAP_0F38, PP_F3, 0x32, false};
static const x86_ins shift_right_long = {MAP_0F, PP_66, 0x73, true};
static const x86_ins move_load_ss = {MAP_0F, PP_F3, 0x10, false};
static const x86_ins move_store_ss = {MAP_0F, PP_F3, 0x11, false};
static const x86_ins move_from_gpr = {MAP_0F, PP_66, 0x6e, false};
static const x86_ins move_to_gpr = {MAP_0F, PP_66, 0x7e, false};
static const x86_ins mask_load = {MAP_0F38, PP_66, 0x2c, false};
static const x86_ins mask_store = {MAP_0F38, PP_66, 0x2e, false};
static const x86_ins half_to_single = {MAP_0F38, PP_66, 0x13, false};
static const x86_ins single_to_half = {MAP_0F3A, PP_66, 0x1d, false};
static const x86_ins widen_u16 = {MAP_0F38, PP_66, 0x33, false};
static const x86_ins widen_s16 = {MAP_0F38, PP_66, 0x23, false};
static const x86_ins widen_u8 = {MAP_0F38, PP_66, 0x31, false};
static const x86_ins widen_s8 = {MAP_0F38, PP_66, 0x21, false};
static const x86_ins widen_u8_words = {MAP_0F38, PP_66, 0x30, false};
static const x86_ins widen_s8_words = {MAP_0F38, PP_66, 0x20, false};
static const x86_ins move_load_bytes = {MAP_0F, PP_F2, 0x6f, false};
static const x86_ins move_store_bytes = {MAP_0F, PP_F2, 0x7f, false};
static const x86_ins shuffle_ps = {MAP_0F, PP_NONE, 0xc6, false};
static const x86_ins extract_high = {MAP_0F3A, PP_66, 0x39, false};
static const x86_ins pack_u16 = {MAP_0F38, PP_66, 0x2b, false};
static const x86_ins pack_s16 = {MAP_0F, PP_66, 0x6b, false};
static const x86_ins pack_s8 = {MAP_0F, PP_66, 0x63, false};
static const x86_ins pack_u8 = {MAP_0F, PP_66, 0x67, false};
static const x86_ins abs_s8 = {MAP_0F38, PP_66, 0x1c, false};
static const x86_ins abs_s16 = {MAP_0F38, PP_66, 0x1d, false};
static const x86_ins store_128 = {MAP_0F, PP_F3, 0x7f, false};
static const x86_ins store_64 = {MAP_0F, PP_66, 0xd6, false};
static const x86_ins narrow_16 = {MAP_0F38, PP_F3, 0x33, false};
static const x86_ins narrow_words = {MAP_0F38, PP_F3, 0x30, false};
static const x86_ins narrow_8 = {MAP_0F38, PP_F3, 0x31, false};
static const x86_ins xor_ps = {MAP_0F, PP_NONE, 0x57, false};
static const x86_ins shift_right = {MAP_0F, PP_66, 0x72, false};
static const x86_ins blend_variable = {MAP_0F3A, PP_66, 0x4a, false};
static const x86_ins blend_bytes = {MAP_0F3A, PP_66, 0x4c, false};
static const x86_ins above_long = {MAP_0F38, PP_66, 0x37, false};
static const x86_ins multiply_halves = {MAP_0F, PP_66, 0xf4, false};
static const x86_ins add_long = {MAP_0F, PP_66, 0xd4, false};
static const x86_ins move_aligned = {MAP_0F, PP_NONE, 0x28, false};
static const x86_ins test_not = {MAP_0F38, PP_F3, 0x27, false};
static const x86_ins or_masks = {MAP_0F, PP_NONE, 0x98, false};
static const x86_ins equal = {MAP_0F, PP_66, 0x76, false};
static const x86_ins equal_long = {MAP_0F38, PP_66, 0x29, true};
static const x86_ins and_ps = {MAP_0F, PP_NONE, 0x54, false};
static const x86_ins test_bits = {MAP_0F38, PP_66, 0x17, false};

size_t
emit_dtype_bytes(int dtype)
{
    return air_dtype_bytes((air_dtype)dtype);
}

/* Of an element, or of a word of two. */
static size_t
bytes_of(const x86_emit *e, int buf)
{
    return e->l->words >> buf & 1 ? 4
                                  : emit_dtype_bytes(e->l->rg->bufs[buf].dtype);
}

x86_opd
emit_buffer(x86_emit *e, int buf, bool indexed, int32_t element)
{
    int base = e->buf_reg[buf];
    size_t bytes = bytes_of(e, buf);
    if (base < 0) {
        base = REG_TEMP;
        asm_mov_load(e->s, REG_TEMP, opd_mem(REG_PTRS, 8 * buf));
    }
    int32_t disp = element * (int32_t)bytes;
    if (!indexed)
        return opd_mem(base, disp);
    return opd_at(base, REG_INDEX, __builtin_ctz((unsigned)bytes), disp);
}

/* Memory of the current vector; short elements of a tail go through the
 * frame. */
static x86_opd
vector_at(x86_emit *e, int buf)
{
    bool bounce = e->mode == EMIT_TAIL && !e->s->evex &&
                  emit_dtype_bytes(e->l->rg->bufs[buf].dtype) < 4;
    if (bounce)
        return opd_mem(RSP, FRAME_BOUNCE + 32 * buf);
    return emit_buffer(e, buf, e->mode != EMIT_ONE, e->lane * e->vector);
}

static bool
is_masked(const x86_emit *e)
{
    return e->mode == EMIT_TAIL && e->s->evex;
}

static int
tail_mask(x86_emit *e)
{
    int r = emit_temp(e);
    asm_v(e->s, move_aligned, r, 0, opd_mem(RSP, FRAME_MASK), 0);
    return r;
}

/* Of four words, beside lanes of 8 bytes. */
static int
tail_mask_words(x86_emit *e)
{
    int r = emit_temp(e);
    asm_x(e->s, move_aligned, r, 0, opd_mem(RSP, FRAME_MASK + 32), 0);
    return r;
}

/* ---- loads ---- */

void
emit_load_gpr(x86_emit *e, int reg, x86_opd mem, int dtype)
{
    size_t bytes = emit_dtype_bytes(dtype);
    if (dtype == AIR_I8 || dtype == AIR_I16 ||
        (dtype == AIR_I32 && e->l->width == 8))
        asm_movsx(e->s, reg, mem, bytes);
    else
        asm_movzx(e->s, reg, mem, bytes);
}

static void
load_one(x86_emit *e, const x86_node *n, int d)
{
    size_t bytes = emit_dtype_bytes(n->imm);
    x86_opd at = emit_buffer(e, (int)n->k, false, 0);
    bool long_lanes = e->l->width == 8;
    if (bytes == 8 || n->imm == AIR_F32 || (bytes == 4 && !long_lanes)) {
        asm_x(e->s, bytes == 8 ? move_load_sd : move_load_ss, d, 0, at, 0);
        if (long_lanes && bytes == 4)
            asm_x(e->s, widen_f32, d, 0, opd_reg(d), 0);
        return;
    }
    x86_ins move = move_from_gpr;
    move.wide = long_lanes;
    emit_load_gpr(e, RAX, at, n->imm);
    asm_x(e->s, move, d, 0, opd_reg(RAX), 0);
    if (n->imm == AIR_F16)
        asm_x(e->s, half_to_single, d, 0, opd_reg(d), 0);
}

/* Lanes of the dtype's own width; the W bit makes words of bytes. */
static x86_ins
move_form(const x86_emit *e, bool load)
{
    if (e->l->width == 8)
        return load ? move_load_pd : move_store_pd;
    if (!is_masked(e) || e->l->width == 4)
        return load ? move_load : move_store;
    x86_ins ins = load ? move_load_bytes : move_store_bytes;
    ins.wide = e->l->width == 2;
    return ins;
}

static x86_ins
load_form_long(int dtype)
{
    switch (dtype) {
    case AIR_F32: return widen_f32;
    case AIR_I32: return widen_s32_long;
    case AIR_I16: return widen_s16_long;
    case AIR_I8: return widen_s8_long;
    default: return widen_u8_long;
    }
}

static x86_ins
load_form(const x86_emit *e, int dtype)
{
    bool words = e->l->width == 2;
    if ((int)emit_dtype_bytes(dtype) == e->l->width)
        return move_form(e, true);
    if (e->l->width == 8)
        return load_form_long(dtype);
    switch (dtype) {
    case AIR_BF16: return widen_u16;
    case AIR_F16: return half_to_single;
    case AIR_I16: return widen_s16;
    case AIR_I8: return words ? widen_s8_words : widen_s8;
    default: return words ? widen_u8_words : widen_u8;
    }
}

/* AVX2: elements of 4 or 8 bytes in lanes as wide or twice as wide. */
static int
load_tail(x86_emit *e, x86_ins form, bool whole, x86_opd at)
{
    int mask = whole ? tail_mask(e) : tail_mask_words(e), d = emit_take(e);
    if (whole) {
        asm_v(e->s, mask_load, d, mask, at, 0);
        return d;
    }
    asm_x(e->s, mask_load, d, mask, at, 0);
    asm_v(e->s, form, d, 0, opd_reg(d), 0);
    return d;
}

static int
load_vector(x86_emit *e, const x86_node *n)
{
    x86_ins form = load_form(e, n->imm);
    x86_opd at = vector_at(e, (int)n->k);
    int bytes = (int)emit_dtype_bytes(n->imm);
    if (e->mode == EMIT_TAIL && !e->s->evex && bytes >= 4)
        return load_tail(e, form, bytes == e->l->width, at);
    int d = emit_take(e);
    if (is_masked(e))
        asm_masked(e->s, form, d, 0, at, 0, 7, true);
    else
        asm_v(e->s, form, d, 0, at, 0);
    return d;
}

void
emit_load(x86_emit *e, const x86_node *n)
{
    int d;
    if (e->mode == EMIT_ONE)
        load_one(e, n, d = emit_take(e));
    else
        d = load_vector(e, n);
    emit_define(e, d);
}

/* REG_TEMP: where the parts of a scalar begin. */
static x86_opd
part_of(const x86_emit *e, int index)
{
    int width = e->l->width;
    return opd_at(REG_TEMP, index, __builtin_ctz((unsigned)width),
                  e->lane * e->vector * width);
}

void
emit_acc(x86_emit *e, const x86_node *n)
{
    int d = emit_take(e);
    asm_mov_load(e->s, REG_TEMP, opd_mem(REG_ACCS, 8 * (int32_t)n->k));
    asm_v(e->s, move_load, d, 0, part_of(e, REG_INDEX), 0);
    emit_define(e, d);
}

/* ---- stores ---- */

static void
store_one(x86_emit *e, const x86_node *n, int a)
{
    size_t bytes = emit_dtype_bytes(n->imm);
    bool long_lanes = e->l->width == 8;
    if (long_lanes && (n->imm == AIR_F32 || n->imm == AIR_F16)) {
        int t = emit_temp(e);
        asm_v(e->s, narrow_f64, t, 0, opd_reg(a), 0);
        a = t;
    }
    if (bytes == 8 || n->imm == AIR_F32 || (bytes == 4 && !long_lanes)) {
        asm_x(e->s, bytes == 8 ? move_store_sd : move_store_ss, a, 0,
              emit_buffer(e, (int)n->k, false, 0), 0);
        return;
    }
    if (n->imm == AIR_F16) {
        int t = emit_temp(e);
        asm_x(e->s, single_to_half, a, 0, opd_reg(t), 1);
        asm_byte(e->s, 0);
        a = t;
    }
    asm_x(e->s, move_to_gpr, a, 0, opd_reg(RAX), 0);
    if (n->imm == AIR_BOOL)
        asm_and_imm(e->s, RAX, 1);
    asm_mov_store(e->s, emit_buffer(e, (int)n->k, false, 0), RAX, bytes);
}

/* Whole lanes, and those of 4 bytes that are stored as 2. */
bool
emit_may_stream(const x86_emit *e, int buf)
{
    const air_region *rg = e->l->rg;
    const int bytes = (int)bytes_of(e, buf), width = e->l->width;
    return (bytes == width || (bytes == 2 && width == 4)) &&
           rg->bufs[buf].dtype != AIR_F16 && !rg->bufs[buf].scratch &&
           (x86_is_dense(rg, buf) || e->l->pairs >> buf & 1);
}

static bool
is_streamed(const x86_emit *e, const x86_node *n)
{
    return e->streaming && emit_may_stream(e, (int)n->k);
}

/* A vector, or what a tail has of it. */
static void
store_lanes(x86_emit *e, const x86_node *n, int a, x86_opd at)
{
    if (is_masked(e))
        asm_masked(e->s, move_form(e, false), a, 0, at, 0, 7, false);
    else if (e->mode == EMIT_TAIL && e->l->width >= 4)
        asm_v(e->s, mask_store, a, tail_mask(e), at, 0);
    else
        asm_v(e->s, is_streamed(e, n) ? move_stream : move_store, a, 0, at, 0);
}

/* Truth values of 1 or 2 bytes, as 0 and 1. */
static int
ones(x86_emit *e, int a)
{
    int t = emit_temp(e);
    asm_v(e->s, e->l->width == 1 ? abs_s8 : abs_s16, t, 0, opd_reg(a), 0);
    return t;
}

/* A vector's lanes, half as wide, to the low half of a temporary. */
static int
pack(x86_emit *e, x86_ins how, int a)
{
    int t = emit_temp(e);
    asm_v(e->s, extract_high, a, 0, opd_reg(t), 1);
    asm_byte(e->s, 1);
    asm_x(e->s, how, t, a, opd_reg(t), 0);
    return t;
}

/* AVX2: integers of fewer bytes than a lane, the others of which are zero. */
static void
store_packed(x86_emit *e, const x86_node *n, size_t bytes, int a, x86_opd at)
{
    bool words = e->l->width == 2;
    int t = pack(e, words ? pack_u8 : pack_u16, a);
    if (words || bytes == 2) {
        asm_x(e->s, is_streamed(e, n) ? move_stream : store_128, t, 0, at, 0);
        return;
    }
    asm_x(e->s, pack_u8, t, t, opd_reg(t), 0);
    asm_x(e->s, store_64, t, 0, at, 0);
}

/* Four lanes of 8 bytes, in fewer. */
static void
store_quads(x86_emit *e, const x86_node *n, int a, x86_opd at)
{
    const x86_ins by_size[] = {
        [1] = move_to_gpr, [2] = store_64, [4] = store_128};
    size_t bytes = emit_dtype_bytes(n->imm);
    int t = emit_temp(e);
    if (n->imm == AIR_F16) {
        asm_v(e->s, narrow_f64, t, 0, opd_reg(a), 0);
        asm_x(e->s, single_to_half, t, 0, at, 1);
        asm_byte(e->s, 0);
        return;
    }
    if (n->imm == AIR_F32) {
        asm_v(e->s, narrow_f64, t, 0, opd_reg(a), 0);
    } else { /* the low half of each */
        asm_v(e->s, extract_high, a, 0, opd_reg(t), 1);
        asm_byte(e->s, 1);
        asm_x(e->s, shuffle_ps, t, a, opd_reg(t), 1);
        asm_byte(e->s, 0x88);
    }
    if (bytes < 4)
        asm_x(e->s, n->imm == AIR_BOOL ? pack_s16 : pack_u16, t, t, opd_reg(t),
              0);
    if (bytes == 1)
        asm_x(e->s, n->imm == AIR_BOOL ? pack_s8 : pack_u8, t, t, opd_reg(t),
              0);
    if (n->imm == AIR_BOOL)
        asm_x(e->s, abs_s8, t, 0, opd_reg(t), 0);
    if (bytes == 4 && e->mode == EMIT_TAIL)
        asm_x(e->s, mask_store, t, tail_mask_words(e), at, 0);
    else
        asm_x(e->s, by_size[bytes], t, 0, at, 0);
}

static void
store_avx2(x86_emit *e, const x86_node *n, int a)
{
    size_t bytes = emit_dtype_bytes(n->imm);
    x86_opd at = vector_at(e, (int)n->k);
    if (n->imm == AIR_BOOL && e->l->width < 4)
        a = ones(e, a);
    if ((int)bytes == e->l->width) {
        store_lanes(e, n, a, at);
    } else if (e->l->width == 8) {
        store_quads(e, n, a, at);
    } else if (n->imm == AIR_F16) {
        asm_v(e->s, single_to_half, a, 0, at, 1);
        asm_byte(e->s, 0);
    } else if (n->imm == AIR_BOOL && e->l->width == 4) {
        int t = pack(e, pack_s16, a);
        asm_x(e->s, pack_s8, t, t, opd_reg(t), 0);
        asm_x(e->s, abs_s8, t, 0, opd_reg(t), 0);
        asm_x(e->s, store_64, t, 0, at, 0);
    } else {
        store_packed(e, n, bytes, a, at);
    }
}

static void
store_long(x86_emit *e, const x86_node *n, int a, x86_opd at, int mask)
{
    size_t bytes = emit_dtype_bytes(n->imm);
    int t = emit_temp(e);
    if (n->imm == AIR_F32 || n->imm == AIR_F16) {
        const bool single = n->imm == AIR_F32;
        asm_v(e->s, narrow_f64, t, 0, opd_reg(a), 0);
        asm_store_half(e->s, single ? move_store : single_to_half, t, at,
                       !single, mask);
        if (!single)
            asm_byte(e->s, 0);
        return;
    }
    if (n->imm == AIR_BOOL) {
        asm_v(e->s, shift_right_long, 2, t, opd_reg(a), 1);
        asm_byte(e->s, 63);
        a = t;
    }
    x86_ins ins = bytes == 4   ? narrow_long_32
                  : bytes == 2 ? narrow_long_16
                               : narrow_long_8;
    asm_masked(e->s, ins, a, 0, at, 0, mask, false);
}

static void
store_avx512(x86_emit *e, const x86_node *n, int a)
{
    size_t bytes = emit_dtype_bytes(n->imm);
    int mask = is_masked(e) ? 7 : 0;
    x86_opd at = vector_at(e, (int)n->k);
    if (n->imm == AIR_BOOL && e->l->width < 4)
        a = ones(e, a);
    if ((int)bytes == e->l->width) {
        store_lanes(e, n, a, at);
    } else if (e->l->width == 8) {
        store_long(e, n, a, at, mask);
    } else if (n->imm == AIR_F16) {
        asm_masked(e->s, single_to_half, a, 0, at, 1, mask, false);
        asm_byte(e->s, 0);
    } else if (n->imm == AIR_BOOL && e->l->width == 4) {
        int t = emit_temp(e);
        asm_v(e->s, shift_right, 2, t, opd_reg(a), 1);
        asm_byte(e->s, 31);
        asm_masked(e->s, narrow_8, t, 0, at, 0, mask, false);
    } else if (is_streamed(e, n)) {
        int t = emit_temp(e);
        asm_masked(e->s, narrow_16, a, 0, opd_reg(t), 0, 0, false);
        asm_store_half(e->s, move_stream, t, at, false, 0);
    } else {
        x86_ins ins = e->l->width == 2 ? narrow_words
                      : bytes == 2     ? narrow_16
                                       : narrow_8;
        asm_masked(e->s, ins, a, 0, at, 0, mask, false);
    }
}

void
emit_store(x86_emit *e, const x86_node *n)
{
    int a = emit_in_reg(e, n->a);
    if (e->mode == EMIT_ONE)
        store_one(e, n, a);
    else if (e->s->evex)
        store_avx512(e, n, a);
    else
        store_avx2(e, n, a);
}

/* ---- reductions: partial results stay in memory ---- */

static x86_opd
partial_at(x86_emit *e, const x86_node *n)
{
    bool columns = x86_has_columns(e->l->rg);
    asm_mov_load(e->s, REG_TEMP, opd_mem(REG_ACCS, 8 * (int32_t)n->k));
    return part_of(e, columns ? REG_INDEX : REG_PART);
}

/* The tail of a row. All partial results are stored, those without an element
 * as they were: what folds them reads whole vectors, and the store buffer
 * forwards those from whole stores only. */
static void
store_tail_parts(x86_emit *e, int a, x86_opd to)
{
    int t = emit_temp(e);
    asm_v(e->s, move_load, t, 0, to, 0);
    if (e->s->evex) {
        asm_masked(e->s, move_form(e, true), t, 0, opd_reg(a), 0, 7, false);
    } else {
        int mask = tail_mask(e);
        asm_v(e->s, e->l->width == 1 ? blend_bytes : blend_variable, t, t,
              opd_reg(a), 1);
        asm_byte(e->s, (unsigned)mask << 4);
    }
    asm_v(e->s, move_store, t, 0, to, 0);
}

/* Columns: a store of those that the call has. Of bytes AVX2 has none, and rows
 * of partial results are longer than the bytes in them. */
static bool
stores_lanes(const x86_emit *e)
{
    return x86_has_columns(e->l->rg) && (e->s->evex || e->l->width > 1);
}

static void
store_partial(x86_emit *e, int a, x86_opd to)
{
    if (e->mode == EMIT_TAIL && !stores_lanes(e))
        store_tail_parts(e, a, to);
    else if (is_masked(e))
        asm_masked(e->s, move_form(e, false), a, 0, to, 0, 7, false);
    else if (e->mode == EMIT_TAIL)
        asm_v(e->s, mask_store, a, tail_mask(e), to, 0);
    else
        asm_v(e->s, move_store, a, 0, to, 0);
}

/* Of the elements that a call has: nothing behind them is read. */
static void
load_partial(x86_emit *e, int to, x86_opd from)
{
    if (e->mode == EMIT_TAIL && x86_has_columns(e->l->rg) && !e->s->evex)
        asm_v(e->s, mask_load, to, tail_mask(e), from, 0);
    else if (is_masked(e) && x86_has_columns(e->l->rg))
        asm_masked(e->s, move_form(e, true), to, 0, from, 0, 7, true);
    else
        asm_v(e->s, move_load, to, 0, from, 0);
}

/* An instruction of floats, of the lanes' width. */
static x86_ins
float_ins(const x86_emit *e, int op)
{
    bool pd = e->l->width == 8;
    return (x86_ins){MAP_0F, pd ? PP_66 : PP_NONE, (uint8_t)op,
                     pd && e->s->evex};
}

/* t = larger (smaller) of a and acc, a where a is NaN */
static void
fold_extreme(x86_emit *e, int op, int t, int a, x86_opd acc)
{
    x86_ins ins = float_ins(e, op);
    int nan = e->s->evex ? 1 : emit_temp(e);
    asm_v(e->s, float_ins(e, 0xc2), nan, a, opd_reg(a), 1);
    asm_byte(e->s, X86_UNORD);
    asm_v(e->s, ins, t, a, acc, 0);
    if (e->s->evex) {
        asm_masked(e->s, float_ins(e, 0x10), t, 0, opd_reg(a), 0, 1, false);
    } else {
        asm_v(e->s, blend_variable, t, t, opd_reg(a), 1);
        asm_byte(e->s, (unsigned)nan << 4);
    }
}

/* t = acc op a of integers of 64 bits, for which AVX2 has no instruction. */
static void
fold_extreme_long(x86_emit *e, bool largest, int t, int a, int acc)
{
    int beats = emit_temp(e);
    asm_v(e->s, above_long, beats, largest ? a : acc,
          opd_reg(largest ? acc : a), 0);
    asm_v(e->s, blend_variable, t, acc, opd_reg(a), 1);
    asm_byte(e->s, (unsigned)beats << 4);
}

static void
put_shift_long(x86_emit *e, bool left, int d, int a)
{
    asm_v(e->s, shift_right_long, left ? 6 : 2, d, opd_reg(a), 1);
    asm_byte(e->s, 32);
}

static void
fold_product_long(x86_emit *e, int t, int a, int acc)
{
    int x = emit_temp(e), y = emit_temp(e);
    put_shift_long(e, false, x, a);
    put_shift_long(e, false, y, acc);
    asm_v(e->s, multiply_halves, x, x, opd_reg(acc), 0);
    asm_v(e->s, multiply_halves, y, y, opd_reg(a), 0);
    asm_v(e->s, add_long, x, x, opd_reg(y), 0);
    put_shift_long(e, true, x, x);
    asm_v(e->s, multiply_halves, y, a, opd_reg(acc), 0);
    asm_v(e->s, add_long, t, x, opd_reg(y), 0);
}

static void
fold_long(x86_emit *e, int how, int t, int a, x86_opd from)
{
    int acc = from.reg;
    if (from.kind != OPD_REG) {
        acc = emit_temp(e);
        asm_v(e->s, move_load, acc, 0, from, 0);
    }
    if (how == AIR_REDUCE_PROD)
        fold_product_long(e, t, a, acc);
    else
        fold_extreme_long(e, how == AIR_REDUCE_MAX, t, a, acc);
}

static void
free_temps(x86_emit *e)
{
    e->free |= e->temps;
    e->temps = e->pinned = 0;
}

static x86_ins
fold_ins(const x86_emit *e, const x86_node *n)
{
    static const x86_ins integers[] = {
        [AIR_REDUCE_SUM] = {MAP_0F, PP_66, 0xd4, true},
        [AIR_REDUCE_PROD] = {MAP_0F38, PP_66, 0x40, true},
        [AIR_REDUCE_MAX] = {MAP_0F38, PP_66, 0x3d, true},
        [AIR_REDUCE_MIN] = {MAP_0F38, PP_66, 0x39, true}};
    if (n->imm == AIR_REDUCE_ANY || n->imm == AIR_REDUCE_ALL)
        return float_ins(e, n->imm == AIR_REDUCE_ANY ? 0x56 : 0x54);
    if (n->imm & X86_OF_INTEGERS)
        return integers[n->imm & ~X86_OF_INTEGERS];
    return float_ins(e, n->imm == AIR_REDUCE_SUM ? 0x58 : 0x59);
}

static void
hold_part(x86_emit *e, const x86_node *n)
{
    int r = emit_take(e);
    load_partial(e, r, partial_at(e, n));
    e->part[n->k][e->lane] = (int8_t)r;
    free_temps(e);
}

static void
put_part(x86_emit *e, const x86_node *n)
{
    int r = e->part[n->k][e->lane];
    store_partial(e, r, partial_at(e, n));
    e->free |= UINT32_C(1) << r;
    free_temps(e);
}

/* Sums and products of f32, of which each few rows are folded apart. Others
 * go on with what they are. */
static bool
begins_anew(const x86_emit *e, const x86_node *n)
{
    return e->l->width == 4 && n->imm != AIR_REDUCE_MAX &&
           n->imm != AIR_REDUCE_MIN;
}

static void
begin_few(x86_emit *e, const x86_node *n)
{
    int r = emit_take(e);
    e->total[n->k][e->lane] = e->part[n->k][e->lane];
    e->part[n->k][e->lane] = (int8_t)r;
    if (n->imm == AIR_REDUCE_SUM)
        asm_v(e->s, xor_ps, r, r, opd_reg(r), 0);
    else
        emit_broadcast(e, r, emit_constant(e, 0x3f800000));
    free_temps(e);
}

static void
end_few(x86_emit *e, const x86_node *n)
{
    int r = e->part[n->k][e->lane], total = e->total[n->k][e->lane];
    asm_v(e->s, fold_ins(e, n), total, total, opd_reg(r), 0);
    e->part[n->k][e->lane] = (int8_t)total;
    e->free |= UINT32_C(1) << r;
}

void
emit_few(x86_emit *e, int unroll, bool begin)
{
    for (int i = 0; i < e->l->count; i++)
        for (e->lane = 0; e->lane < unroll; e->lane++)
            if (e->nodes[i].op == X86_REDUCE && begins_anew(e, &e->nodes[i]))
                (begin ? begin_few : end_few)(e, &e->nodes[i]);
}

void
emit_move_parts(x86_emit *e, emit_mode mode, int unroll, bool hold)
{
    e->mode = mode;
    e->holds = hold;
    for (int i = 0; i < e->l->count; i++)
        for (e->lane = 0; e->lane < unroll; e->lane++)
            if (e->nodes[i].op == X86_REDUCE)
                (hold ? hold_part : put_part)(e, &e->nodes[i]);
}

void
emit_fold(x86_emit *e, const x86_node *n, int t, int a, x86_opd acc)
{
    int how = n->imm & ~X86_OF_INTEGERS;
    if (n->imm & X86_OF_INTEGERS && !e->s->evex && how != AIR_REDUCE_SUM)
        fold_long(e, how, t, a, acc);
    else if (n->imm == AIR_REDUCE_MAX || n->imm == AIR_REDUCE_MIN)
        fold_extreme(e, n->imm == AIR_REDUCE_MAX ? 0x5f : 0x5d, t, a, acc);
    else
        asm_v(e->s, fold_ins(e, n), t, a, acc, 0);
}

void
emit_reduce(x86_emit *e, const x86_node *n)
{
    int held = e->holds ? e->part[n->k][e->lane] : -1;
    int a = emit_in_reg(e, n->a), t = held < 0 ? emit_temp(e) : held;
    x86_opd acc = held < 0 ? partial_at(e, n) : opd_reg(held);
    emit_fold(e, n, t, a, acc);
    if (held < 0)
        store_partial(e, t, acc);
}

void
emit_set(x86_emit *e, const x86_node *n)
{
    int a = emit_in_reg(e, n->a);
    if (e->mode == EMIT_ONE)
        asm_x(e->s, e->l->width == 8 ? move_store_sd : move_store_ss, a, 0,
              opd_mem(REG_SCALARS, 8 * (int32_t)n->k), 0);
    else
        store_partial(e, a, partial_at(e, n));
}

/* Flags: zero where no element of the vector is. */
static void
find_zero(x86_emit *e, int a)
{
    if (e->s->evex) {
        x86_ins ins = test_not;
        ins.wide = e->l->width == 8;
        asm_masked(e->s, ins, 1, a, opd_reg(a), 0, is_masked(e) ? 7 : 0, false);
        asm_x(e->s, or_masks, 1, 0, opd_reg(1), 0);
        return;
    }
    int t = emit_temp(e);
    asm_v(e->s, xor_ps, t, t, opd_reg(t), 0);
    asm_v(e->s, e->l->width == 8 ? equal_long : equal, t, t, opd_reg(a), 0);
    if (e->mode == EMIT_TAIL)
        asm_v(e->s, and_ps, t, t, opd_reg(tail_mask(e)), 0);
    asm_v(e->s, test_bits, t, 0, opd_reg(t), 0);
}

/* Lanes of 4 or 8 bytes. */
void
emit_raise(x86_emit *e, const x86_node *n)
{
    x86_asm *s = e->s;
    const int a = emit_in_reg(e, n->a);
    const bool one = e->mode == EMIT_ONE;
    if (one) {
        x86_ins ins = move_to_gpr;
        ins.wide = e->l->width == 8;
        asm_x(s, ins, a, 0, opd_reg(REG_TEMP), 0);
        asm_alu(s, ALU_TEST, REG_TEMP, REG_TEMP);
    } else {
        find_zero(e, a);
    }
    size_t skip = asm_jump(s, one ? NOT_EQUAL : EQUAL);
    asm_alu(s, ALU_XOR, REG_TEMP, REG_TEMP);
    asm_add_imm(s, REG_TEMP, 1);
    asm_mov_store(s, opd_mem(RSP, FRAME_ZERO), REG_TEMP, 8);
    asm_patch_here(s, skip);
}
