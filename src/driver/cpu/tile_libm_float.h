/* tile_libm_float.h: libm's names on float, for FUNC rows. No guard: undone
 * by tile_libm_undef.h. */
#define exp2      exp2f
#define expm1     expm1f
#define log       logf
#define log2      log2f
#define log10     log10f
#define log1p     log1pf
#define sin       sinf
#define cos       cosf
#define tan       tanf
#define asin      asinf
#define acos      acosf
#define atan      atanf
#define sinh      sinhf
#define cosh      coshf
#define asinh     asinhf
#define acosh     acoshf
#define atanh     atanhf
#define lgamma    tile_lgammaf
#define erfc      erfcf
#define pow       powf
#define atan2     atan2f
#define fmod      fmodf
#define hypot     hypotf
#define nextafter nextafterf
