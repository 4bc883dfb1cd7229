/* tile_libm_float.h: libm's names on float, for FUNC rows. What is not here is
 * libm's double function: glibc's takes no longer there, and the float one errs
 * by 1.5 ulp and more. No guard: undone by tile_libm_undef.h. */
#define exp2      exp2f
#define expm1     expm1f
#define log       logf
#define log2      log2f
#define log1p     log1pf
#define sin       sinf
#define cos       cosf
#define asin      asinf
#define acos      acosf
#define atan      atanf
#define lgamma    tile_lgamma
#define pow       powf
#define fmod      fmodf
#define hypot     hypotf
#define nextafter nextafterf
