/* ops_undef.h: no guard: undefines the row macros after each use of ops.def. */
#undef POINTWISE
#undef CREATE
#undef REDUCE
#undef VIEW
#undef COMPOSITE
#undef CALL
#undef EFFECT
