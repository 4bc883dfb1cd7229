/* tile_libm_float.h: libm's names for FUNC rows of the f32 lane: vector bodies
 * in double, rounded once. sin, cos, tan, fmod are for hard arguments only. No
 * guard: undone by tile_libm_undef.h. */
#define log2      tile_log2_f32
#define sin       sinf
#define cos       cosf
#define asin      tile_asin_f32
#define acos      tile_acos_f32
#define atan      tile_atan_f32
#define atan2     tile_atan2_f32
#define sinh      tile_sinh_f32
#define cosh      tile_cosh_f32
#define asinh     tile_asinh
#define acosh     tile_acosh
#define atanh     tile_atanh_f32
#define erfc      tile_erfc_f32
#define lgamma    tile_lgamma_f32
#define pow       tile_pow_f32
#define fmod      fmodf
#define hypot     tile_hypot_f32
#define nextafter nextafterf
