/* x86_asm.c: VEX, EVEX and a few general instructions. */
#include "codegen/x86_asm.h"

#include <assert.h>
#include <string.h>

void
asm_init(x86_asm *s, const air_alloc *alloc, bool evex)
{
    *s = (x86_asm){.alloc = alloc, .evex = evex};
}

void
asm_deinit(x86_asm *s)
{
    BASE_VEC_FREE(s->alloc, &s->code);
    BASE_VEC_FREE(s->alloc, &s->fixups);
    BASE_VEC_FREE(s->alloc, &s->constants);
}

void
asm_byte(x86_asm *s, unsigned byte)
{
    if (s->code.count < s->code.cap && s->status == AIR_OK)
        s->code.data[s->code.count++] = (uint8_t)byte;
    else if (s->status == AIR_OK)
        s->status = BASE_PUSH(s->alloc, &s->code, (uint8_t)byte);
}

void
asm_bytes(x86_asm *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        asm_byte(s, (uint8_t)bytes[i]);
}

void
asm_word(x86_asm *s, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        asm_byte(s, word >> 8 * i & 255);
}

size_t
asm_here(const x86_asm *s)
{
    return s->code.count;
}

void
asm_rewind(x86_asm *s, size_t code)
{
    if (s->code.count > code)
        s->code.count = code;
    while (s->fixups.count > 0 &&
           s->fixups.data[s->fixups.count - 1].at >= code)
        s->fixups.count--;
    s->constants.count = 0;
    for (size_t i = 0; i < s->fixups.count; i++)
        if (s->fixups.data[i].constant >= s->constants.count)
            s->constants.count = s->fixups.data[i].constant + (size_t)1;
}

uint16_t
asm_constant(x86_asm *s, uint64_t bits)
{
    for (size_t i = 0; i < s->constants.count; i++)
        if (s->constants.data[i] == bits)
            return (uint16_t)i;
    if (s->status == AIR_OK)
        s->status = BASE_PUSH(s->alloc, &s->constants, bits);
    return (uint16_t)(s->status == AIR_OK ? s->constants.count - 1 : 0);
}

void
asm_patch_word(x86_asm *s, size_t at, uint32_t word)
{
    for (int i = 0; i < 4 && s->status == AIR_OK; i++)
        s->code.data[at + (size_t)i] = (uint8_t)(word >> 8 * i);
}

void
asm_align(x86_asm *s, size_t alignment)
{
    /* the long form of nop keeps padding inside loops cheap */
    static const char nops[8][9] = {"\x90",
                                    "\x66\x90",
                                    "\x0f\x1f\x00",
                                    "\x0f\x1f\x40\x00",
                                    "\x0f\x1f\x44\x00\x00",
                                    "\x66\x0f\x1f\x44\x00\x00",
                                    "\x0f\x1f\x80\x00\x00\x00\x00",
                                    "\x0f\x1f\x84\x00\x00\x00\x00\x00"};
    size_t n = (alignment - asm_here(s) % alignment) % alignment;
    while (n > 0 && s->status == AIR_OK) {
        size_t k = n < 8 ? n : 8;
        asm_bytes(s, nops[k - 1], k);
        n -= k;
    }
}

static unsigned
table_entry(unsigned table, unsigned k)
{
    switch (table) {
    case ASM_EVEN: return 2 * k;
    case ASM_SHARED: return k < 8 ? 2 * k : 2 * k + 1;
    case ASM_ODD: return 2 * k + 1;
    default: return (table == ASM_HIGH ? 8 : 0) + k / 2 + k % 2 * 16;
    }
}

static size_t
put_table(x86_asm *s, unsigned table)
{
    asm_align(s, 64);
    for (unsigned k = 0; k < 16; k++)
        asm_word(s, table_entry(table, k));
    return asm_here(s) - 64;
}

/* Those tables that are referred to. */
static void
finish_tables(x86_asm *s)
{
    for (unsigned table = ASM_EVEN; table <= ASM_HIGH; table++) {
        size_t at = 0;
        for (size_t i = 0; i < s->fixups.count; i++) {
            const x86_fixup *f = &s->fixups.data[i];
            if (f->constant != table)
                continue;
            at = at != 0 ? at : put_table(s, table);
            asm_patch_word(s, f->at, (uint32_t)(at - (f->at + 4 + f->behind)));
        }
    }
}

void
asm_finish_constants(x86_asm *s)
{
    size_t size = !s->evex ? 32 : s->wide ? 8 : 4;
    if (s->constants.count > 0)
        asm_align(s, size);
    size_t pool = asm_here(s);
    for (size_t i = 0; i < s->constants.count; i++)
        for (size_t k = 0; k < size; k += 4)
            asm_word(s, (uint32_t)(s->constants.data[i] >>
                                   (s->wide ? 8 * (k & 4) : 0)));
    for (size_t i = 0; i < s->fixups.count; i++) {
        const x86_fixup *f = &s->fixups.data[i];
        if (f->constant >= ASM_EVEN)
            continue;
        size_t target = pool + f->constant * size;
        asm_patch_word(s, f->at, (uint32_t)(target - (f->at + 4 + f->behind)));
    }
    finish_tables(s);
    s->fixups.count = 0;
    s->constants.count = 0;
}

/* ---- the rm operand ---- */

static void
put_fixup(x86_asm *s, int constant, int behind)
{
    x86_fixup f = {asm_here(s), (uint16_t)constant, (uint8_t)behind};
    if (s->status == AIR_OK)
        s->status = BASE_PUSH(s->alloc, &s->fixups, f);
    asm_word(s, 0);
}

/* short_disp: may disp8 be used (not in EVEX, which scales it)? */
static void
put_modrm(x86_asm *s, int reg, x86_opd rm, int behind, bool short_disp)
{
    unsigned r = (unsigned)(reg & 7) << 3;
    if (rm.kind == OPD_REG) {
        asm_byte(s, 0xc0 | r | (rm.reg & 7));
        return;
    }
    if (rm.kind == OPD_CONST) {
        asm_byte(s, r | 5);
        put_fixup(s, rm.disp, behind);
        return;
    }
    bool sib = rm.index >= 0 || (rm.reg & 7) == 4;
    bool near = short_disp && rm.disp >= -128 && rm.disp < 128;
    asm_byte(s, (near ? 0x40 : 0x80) | r | (sib ? 4 : (rm.reg & 7)));
    if (sib)
        asm_byte(s, (unsigned)rm.scale << 6 |
                        (unsigned)(rm.index >= 0 ? rm.index & 7 : 4) << 3 |
                        (rm.reg & 7));
    if (near)
        asm_byte(s, (unsigned)rm.disp & 255);
    else
        asm_word(s, (uint32_t)rm.disp);
}

static unsigned
ext_base(x86_opd rm)
{
    return rm.kind == OPD_CONST ? 0 : rm.reg >> 3 & 1;
}

static unsigned
ext_index(x86_opd rm)
{
    return rm.kind == OPD_MEM && rm.index >= 0 ? (unsigned)rm.index >> 3 & 1
                                               : 0;
}

/* ---- VEX, EVEX ---- */

static void
put_vex(x86_asm *s, x86_ins i, int reg, int vvvv, x86_opd rm, int imm,
        unsigned length)
{
    unsigned r = (unsigned)~reg >> 3 & 1, v = (unsigned)~vvvv & 15;
    unsigned x = !ext_index(rm), b = !ext_base(rm);
    if (i.map == MAP_0F && !i.wide && x && b) {
        asm_byte(s, 0xc5);
        asm_byte(s, r << 7 | v << 3 | length << 2 | i.pp);
    } else {
        asm_byte(s, 0xc4);
        asm_byte(s, r << 7 | x << 6 | b << 5 | i.map);
        asm_byte(s, (unsigned)i.wide << 7 | v << 3 | length << 2 | i.pp);
    }
    asm_byte(s, i.op);
    put_modrm(s, reg, rm, imm, true);
}

static void
put_evex(x86_asm *s, x86_ins i, int reg, int vvvv, x86_opd rm, int imm,
         unsigned length, int mask, bool zero)
{
    unsigned r = (unsigned)~reg >> 3 & 1, r2 = (unsigned)~reg >> 4 & 1;
    unsigned x = rm.kind == OPD_REG ? !(rm.reg >> 4 & 1) : !ext_index(rm);
    unsigned b = !ext_base(rm);
    asm_byte(s, 0x62);
    asm_byte(s, r << 7 | x << 6 | b << 5 | r2 << 4 | i.map);
    asm_byte(s, (unsigned)i.wide << 7 | ((unsigned)~vvvv & 15) << 3 | 4 | i.pp);
    asm_byte(s, (unsigned)zero << 7 | length << 5 |
                    (unsigned)rm.broadcast << 4 |
                    ((unsigned)~vvvv >> 4 & 1) << 3 | (unsigned)mask);
    asm_byte(s, i.op);
    put_modrm(s, reg, rm, imm, false);
}

void
asm_masked(x86_asm *s, x86_ins ins, int reg, int vvvv, x86_opd rm, int imm,
           int mask, bool zero)
{
    put_evex(s, ins, reg, vvvv, rm, imm, 2, mask, zero);
}

void
asm_store_half(x86_asm *s, x86_ins ins, int reg, x86_opd mem, int imm, int mask)
{
    put_evex(s, ins, reg, 0, mem, imm, 1, mask, false);
}

void
asm_v(x86_asm *s, x86_ins i, int reg, int vvvv, x86_opd rm, int imm)
{
    if (s->evex)
        asm_masked(s, i, reg, vvvv, rm, imm, 0, false);
    else
        put_vex(s, i, reg, vvvv, rm, imm, 1);
}

void
asm_x(x86_asm *s, x86_ins i, int reg, int vvvv, x86_opd rm, int imm)
{
    assert(reg < 16 && vvvv < 16);
    put_vex(s, i, reg, vvvv, rm, imm, 0);
}

/* ---- general registers ---- */

static void
put_rex(x86_asm *s, bool wide, int reg, x86_opd rm, bool always)
{
    unsigned rex = (unsigned)wide << 3 | (unsigned)(reg >> 3 & 1) << 2 |
                   ext_index(rm) << 1 | ext_base(rm);
    if (rex != 0 || always)
        asm_byte(s, 0x40 | rex);
}

void
asm_mov_load(x86_asm *s, int reg, x86_opd mem)
{
    put_rex(s, true, reg, mem, false);
    asm_byte(s, 0x8b);
    put_modrm(s, reg, mem, 0, true);
}

void
asm_add_load(x86_asm *s, int reg, x86_opd mem)
{
    put_rex(s, true, reg, mem, false);
    asm_byte(s, 0x03);
    put_modrm(s, reg, mem, 0, true);
}

void
asm_movzx(x86_asm *s, int reg, x86_opd mem, size_t bytes)
{
    put_rex(s, bytes == 8, reg, mem, false);
    if (bytes < 4)
        asm_byte(s, 0x0f);
    asm_byte(s, bytes == 1 ? 0xb6 : bytes == 2 ? 0xb7 : 0x8b);
    put_modrm(s, reg, mem, 0, true);
}

void
asm_movsx(x86_asm *s, int reg, x86_opd mem, size_t bytes)
{
    put_rex(s, true, reg, mem, false);
    if (bytes < 4)
        asm_byte(s, 0x0f);
    asm_byte(s, bytes == 1 ? 0xbe : bytes == 2 ? 0xbf : 0x63);
    put_modrm(s, reg, mem, 0, true);
}

void
asm_mov_store(x86_asm *s, x86_opd mem, int reg, size_t bytes)
{
    if (bytes == 2)
        asm_byte(s, 0x66);
    put_rex(s, bytes == 8, reg, mem, bytes == 1);
    asm_byte(s, bytes == 1 ? 0x88 : 0x89);
    put_modrm(s, reg, mem, 0, true);
}

void
asm_lea(x86_asm *s, int reg, x86_opd mem)
{
    put_rex(s, true, reg, mem, false);
    asm_byte(s, 0x8d);
    put_modrm(s, reg, mem, 0, true);
}

void
asm_alu(x86_asm *s, int op, int dst, int src)
{
    put_rex(s, true, src, opd_reg(dst), false);
    asm_byte(s, (unsigned)op);
    put_modrm(s, src, opd_reg(dst), 0, true);
}

static void
put_alu_imm(x86_asm *s, int extension, int reg, int32_t imm)
{
    put_rex(s, true, 0, opd_reg(reg), false);
    asm_byte(s, 0x81);
    put_modrm(s, extension, opd_reg(reg), 0, true);
    asm_word(s, (uint32_t)imm);
}

void
asm_add_imm(x86_asm *s, int reg, int32_t imm)
{
    put_alu_imm(s, 0, reg, imm);
}

void
asm_and_imm(x86_asm *s, int reg, int32_t imm)
{
    put_alu_imm(s, 4, reg, imm);
}

void
asm_shift_imm(x86_asm *s, int reg, int32_t left)
{
    put_rex(s, true, 0, opd_reg(reg), false);
    asm_byte(s, 0xc1);
    put_modrm(s, 4, opd_reg(reg), 0, true);
    asm_byte(s, (unsigned)left);
}

void
asm_mul_imm(x86_asm *s, int reg, int32_t imm)
{
    put_rex(s, false, reg, opd_reg(reg), false);
    asm_byte(s, 0x69);
    put_modrm(s, reg, opd_reg(reg), 0, true);
    asm_word(s, (uint32_t)imm);
}

void
asm_push(x86_asm *s, int reg)
{
    put_rex(s, false, 0, opd_reg(reg), false);
    asm_byte(s, 0x50 | ((unsigned)reg & 7));
}

void
asm_pop(x86_asm *s, int reg)
{
    put_rex(s, false, 0, opd_reg(reg), false);
    asm_byte(s, 0x58 | ((unsigned)reg & 7));
}

size_t
asm_jump(x86_asm *s, int cc)
{
    asm_byte(s, 0x0f);
    asm_byte(s, 0x80 | (unsigned)cc);
    asm_word(s, 0);
    return asm_here(s) - 4;
}

void
asm_jump_to(x86_asm *s, int cc, size_t target)
{
    size_t at = asm_jump(s, cc);
    asm_patch_word(s, at, (uint32_t)(target - (at + 4)));
}

void
asm_patch_here(x86_asm *s, size_t at)
{
    asm_patch_word(s, at, (uint32_t)(asm_here(s) - (at + 4)));
}
