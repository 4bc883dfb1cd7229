/* record_macros.h: what bodies of ops.def and air_prims.def are written in,
 * when they record region nodes. `rec` is the record, values are node indices.
 * COMP1(id, a) decides what a composed function becomes: one node (record.c)
 * or its primitives (expand.c). A new row of air_prims.def that bodies use
 * needs a line here. */
#ifndef IR_RECORD_MACROS_H
#define IR_RECORD_MACROS_H

#include "ir/record.h"

typedef int T;

#define P1(id, a)       record_prim(rec, AIR_RG_##id, (a), -1, -1)
#define P2(id, a, b)    record_prim(rec, AIR_RG_##id, (a), (b), -1)
#define P3(id, a, b, c) record_prim(rec, AIR_RG_##id, (a), (b), (c))

#define K(x) ir_record_const(rec, rec->lane, (double)(x))

#define ADD(a, b)    P2(ADD, a, b)
#define SUB(a, b)    P2(SUB, a, b)
#define MUL(a, b)    P2(MUL, a, b)
#define DIV(a, b)    P2(DIV, a, b)
#define FMA(a, b, c) P3(FMA, a, b, c)
#define NEG(a)       P1(NEG, a)
#define ABS(a)       P1(ABS, a)
#define MAX(a, b)    P2(MAX, a, b)
#define MIN(a, b)    P2(MIN, a, b)
#define SQRT(a)      P1(SQRT, a)
#define RINT(a)      P1(RINT, a)
#define FLOOR(a)     P1(FLOOR, a)
#define CEIL(a)      P1(CEIL, a)
#define TRUNC(a)     P1(TRUNC, a)
#define SCALEF(a, b) P2(SCALEF, a, b)
#define SCALEN(a, b) P2(SCALEN, a, b)
#define LOGB(a)      P1(LOGB, a)
#define MANT(a)      P1(MANT, a)
#define SIGN(a, b)   P2(SIGN, a, b)
#define IDIV(a, b)   P2(IDIV, a, b)
#define IMOD(a, b)   P2(IMOD, a, b)
#define IAND(a, b)   P2(IAND, a, b)
#define IOR(a, b)    P2(IOR, a, b)
#define IXOR(a, b)   P2(IXOR, a, b)
#define ISHL(a, b)   P2(ISHL, a, b)
#define ISHR(a, b)   P2(ISHR, a, b)
#define LT(a, b)     P2(LT, a, b)
#define LE(a, b)     P2(LE, a, b)
#define EQ(a, b)     P2(EQ, a, b)
#define NE(a, b)     P2(NE, a, b)
#define AND(a, b)    P2(AND, a, b)
#define OR(a, b)     P2(OR, a, b)
#define XOR(a, b)    P2(XOR, a, b)
#define NOT(a)       P1(NOT, a)
#define SEL(a, b, c) P3(SEL, a, b, c)

#define EXP(a)     COMP1(EXP, a)
#define EXPH(a)    COMP1(EXPH, a)
#define EXPNEG(a)  COMP1(EXPNEG, a)
#define SIGMOID(a) COMP1(SIGMOID, a)
#define TANH(a)    COMP1(TANH, a)
#define ERF(a)     COMP1(ERF, a)
#define NDTR(a)    COMP1(NDTR, a)

#define EXP2(a)     COMP1(EXP2, a)
#define EXPM1(a)    COMP1(EXPM1, a)
#define LOG(a)      COMP1(LOG, a)
#define LOG2(a)     P1(LOG2, a)
#define LOG10(a)    COMP1(LOG10, a)
#define LOG1P(a)    COMP1(LOG1P, a)
#define SIN(a)      P1(SIN, a)
#define COS(a)      P1(COS, a)
#define TAN(a)      P1(TAN, a)
#define ASIN(a)     P1(ASIN, a)
#define ACOS(a)     P1(ACOS, a)
#define ATAN(a)     P1(ATAN, a)
#define SINH(a)     P1(SINH, a)
#define COSH(a)     P1(COSH, a)
#define ASINH(a)    P1(ASINH, a)
#define ACOSH(a)    P1(ACOSH, a)
#define ATANH(a)    P1(ATANH, a)
#define LGAMMA(a)   P1(LGAMMA, a)
#define ERFC(a)     P1(ERFC, a)
#define POW(a, b)   P2(POW, a, b)
#define ATAN2(a, b) P2(ATAN2, a, b)
#define FMOD(a, b)  P2(FMOD, a, b)
#define HYPOT(a, b) P2(HYPOT, a, b)

#endif
