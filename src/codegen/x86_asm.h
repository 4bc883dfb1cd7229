/* x86_asm.h: encoding of the few instruction forms that regions need. One
 * buffer of code, one pool of constants behind it. */
#ifndef CODEGEN_X86_ASM_H
#define CODEGEN_X86_ASM_H

#include "base/memory.h"

enum {
    RAX,
    RCX,
    RDX,
    RBX,
    RSP,
    RBP,
    RSI,
    RDI,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15
};

/* Opcode map and mandatory prefix as VEX and EVEX write them. */
enum { MAP_0F = 1, MAP_0F38 = 2, MAP_0F3A = 3 };
enum { PP_NONE, PP_66, PP_F3, PP_F2 };

typedef enum { OPD_REG, OPD_MEM, OPD_CONST } x86_opd_kind;
/* The operand that may lie in memory. */
typedef struct {
    uint8_t kind;
    uint8_t reg;    /* register, or base */
    int8_t index;   /* general register, -1: none */
    uint8_t scale;  /* log2 */
    bool broadcast; /* EVEX: one element for all lanes */
    int32_t disp;   /* CONST: number of the constant */
} x86_opd;

/* An instruction: what its row in a table says. */
typedef struct {
    uint8_t map, pp, op;
    bool wide; /* W */
} x86_ins;

typedef struct {
    size_t at; /* of the disp32 */
    uint16_t constant;
    uint8_t behind; /* bytes of the instruction after it */
} x86_fixup;

typedef struct {
    const air_alloc *alloc;
    bool evex;         /* AVX-512, 32 registers; else AVX2, 16 */
    air_status status; /* the first failure */
    BASE_VEC(uint8_t) code;
    BASE_VEC(x86_fixup) fixups;
    BASE_VEC(uint64_t) constants; /* of the current phase */
    bool wide;                    /* they are of 64 bits, not of 32 */
} x86_asm;

void asm_init(x86_asm *s, const air_alloc *alloc, bool evex);
void asm_deinit(x86_asm *s);
void asm_byte(x86_asm *s, unsigned byte);
void asm_bytes(x86_asm *s, const char *bytes, size_t n);
void asm_word(x86_asm *s, uint32_t word);
size_t asm_here(const x86_asm *s);
/* Throws away what was written after `code` bytes. */
void asm_rewind(x86_asm *s, size_t code);
uint16_t asm_constant(x86_asm *s, uint64_t bits);
/* Constants of 64 bytes, of 32-bit lanes: numbers for a permutation of two
 * vectors. Every other element, from the first one on, where the vectors share
 * one, or from the second one on; the elements of both in turns. */
enum { ASM_EVEN = 0xfffb, ASM_SHARED, ASM_ODD, ASM_LOW, ASM_HIGH };
/* Places the constants (32 bytes each for AVX2, 4 or 8 for AVX-512), resolves
 * the references to them and forgets them. */
void asm_finish_constants(x86_asm *s);

static inline x86_opd
opd_reg(int reg)
{
    return (x86_opd){.kind = OPD_REG, .reg = (uint8_t)reg, .index = -1};
}
static inline x86_opd
opd_mem(int base, int32_t disp)
{
    return (x86_opd){
        .kind = OPD_MEM, .reg = (uint8_t)base, .index = -1, .disp = disp};
}
static inline x86_opd
opd_at(int base, int index, int scale, int32_t disp)
{
    return (x86_opd){.kind = OPD_MEM,
                     .reg = (uint8_t)base,
                     .index = (int8_t)index,
                     .scale = (uint8_t)scale,
                     .disp = disp};
}

/* Vector instructions: reg, vvvv (0: unused) and rm; `imm` bytes (0 or 1) will
 * follow. Whole vectors (asm_v), or 128 bits of a VEX form (asm_x). */
void asm_v(x86_asm *s, x86_ins ins, int reg, int vvvv, x86_opd rm, int imm);
void asm_x(x86_asm *s, x86_ins ins, int reg, int vvvv, x86_opd rm, int imm);
/* EVEX with a mask register; zero: masked-out lanes become zero. */
void asm_masked(x86_asm *s, x86_ins ins, int reg, int vvvv, x86_opd rm, int imm,
                int mask, bool zero);
/* EVEX: a store of (or from) the lower 256 bits. */
void asm_store_half(x86_asm *s, x86_ins ins, int reg, x86_opd mem, int imm,
                    int mask);

/* General registers, 64 bits where nothing else is said. */
void asm_mov_load(x86_asm *s, int reg, x86_opd mem);
void asm_add_load(x86_asm *s, int reg, x86_opd mem); /* reg += */
void asm_movzx(x86_asm *s, int reg, x86_opd mem, size_t bytes);
/* 1, 2 or 4 bytes with their sign */
void asm_movsx(x86_asm *s, int reg, x86_opd mem, size_t bytes);
void asm_mov_store(x86_asm *s, x86_opd mem, int reg, size_t bytes);
void asm_lea(x86_asm *s, int reg, x86_opd mem);
/* Opcodes: dst op= src. */
enum {
    ALU_ADD = 0x01,
    ALU_OR = 0x09,
    ALU_SUB = 0x29,
    ALU_XOR = 0x31,
    ALU_CMP = 0x39,
    ALU_TEST = 0x85,
    ALU_MOV = 0x89
};
void asm_alu(x86_asm *s, int op, int dst, int src);
void asm_add_imm(x86_asm *s, int reg, int32_t imm);
void asm_and_imm(x86_asm *s, int reg, int32_t imm);
void asm_shift_imm(x86_asm *s, int reg, int32_t left);
void asm_mul_imm(x86_asm *s, int reg, int32_t imm); /* 32 bits */
void asm_push(x86_asm *s, int reg);
void asm_pop(x86_asm *s, int reg);
/* Condition codes; BELOW and ABOVE are of numbers without a sign. */
enum {
    NOT_BELOW = 3,
    EQUAL = 4,
    NOT_EQUAL = 5,
    BELOW_EQUAL = 6,
    ABOVE = 7,
    NOT_GREATER = 14,
    GREATER = 15
};
/* Conditional jumps. Gives the place to patch. */
size_t asm_jump(x86_asm *s, int cc);
void asm_jump_to(x86_asm *s, int cc, size_t target);
void asm_patch_here(x86_asm *s, size_t at);
void asm_patch_word(x86_asm *s, size_t at, uint32_t word);
void asm_align(x86_asm *s, size_t alignment);

#endif
