/* tile_libm_undef.h: undoes tile_libm_float.h; lgamma without the global
 * sign for the double loops. */
#undef exp2
#undef expm1
#undef log
#undef log2
#undef log10
#undef log1p
#undef sin
#undef cos
#undef tan
#undef asin
#undef acos
#undef atan
#undef sinh
#undef cosh
#undef asinh
#undef acosh
#undef atanh
#undef lgamma
#undef erfc
#undef pow
#undef atan2
#undef fmod
#undef hypot
#undef nextafter
#define lgamma tile_lgamma
