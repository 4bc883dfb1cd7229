/* tile_libm_undef.h: undoes tile_libm_float.h; lgamma without the global
 * sign for the double loops. */
#undef exp2
#undef expm1
#undef log
#undef log2
#undef log1p
#undef sin
#undef cos
#undef asin
#undef acos
#undef atan
#undef lgamma
#undef pow
#undef fmod
#undef hypot
#undef nextafter
#define lgamma tile_lgamma
