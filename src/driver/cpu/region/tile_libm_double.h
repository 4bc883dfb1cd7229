/* tile_libm_double.h: libm's names for FUNC rows and COMPs of the f64 lane:
 * vector bodies where they are as exact as libm's functions. No guard: undone
 * by tile_libm_undef.h. */
#define exp    tile_exp
#define exp2   tile_exp2
#define expm1  tile_expm1
#define log    tile_log
#define log2   tile_log2
#define log10  tile_log10
#define log1p  tile_log1p
#define asin   tile_asin
#define acos   tile_acos
#define atan   tile_atan
#define atan2  tile_atan2
#define sinh   tile_sinh
#define cosh   tile_cosh
#define tanh   tile_tanh
#define asinh  tile_asinh
#define acosh  tile_acosh
#define atanh  tile_atanh
#define erf    tile_erf
#define erfc   tile_erfc
#define pow    tile_pow
#define hypot  tile_hypot
#define lgamma tile_lgamma
