/* cuda_prelude.c: the device functions that printed kernels call, as text.
 * Primitives are the expressions of air_prims.def and nothing else: namespaces
 * f32, f64, i64 and b have one function per row and lane. */
#include "codegen/cuda.h"

#pragma GCC diagnostic ignored "-Woverlength-strings"
/* What stands in TEXT is not C. */
/* clang-format off */

#define TEXT(...) #__VA_ARGS__ "\n"

/* ---- rows as functions ---- */

#define ARGS_1  "T a"
#define ARGS_2  "T a, T b"
#define ARGS_3  "T a, T b, T c"
#define WRAPS_1 "W a"
#define WRAPS_2 "W a, W b"
#define FN(R, args, id, ...)    "AIR_FN " R " " #id "(" args ") { " __VA_ARGS__ " }\n"
#define VALUE(R, args, id, ...) FN(R, args, id, "return " #__VA_ARGS__ ";")
#define NONE(...)               ""
#define PRIM(id, n, lanes, ...) ROW_##lanes(id, n, __VA_ARGS__)
#define ROW_C(id, n, ...)       VALUE("bool", ARGS_##n, id, __VA_ARGS__)
#define ROW_S(id, n, ...)       VALUE("T", "bool a, T b, T c", id, a ? b : c)

#define LANE(type) "typedef " type " T;\nAIR_FN T of(bool a) { return (T)a; }\n"

/* Folding: (running value, next) -> running value, and what it starts at. */
#define FOLD(name, first, next)                                                \
    "struct air_" name " {\n"                                                  \
    "template <class T> AIR_METHOD T start() { return " first "; }\n"          \
    "template <class T> AIR_METHOD T op(T a, T x) { return " next "; }\n};\n"

/* Cases of WRAP, whose second operand is an air_dtype. */
#define WRAP_FLOAT(id) ""
#define WRAP_INT(id)   "case " NUMBER_##id ": return (air_" #id ")a;\n"
#define WRAP_BOOL(id)  "case " NUMBER_##id ": return a != 0;\n"
#define NUMBER_I8   "5"
#define NUMBER_U8   "6"
#define NUMBER_I16  "7"
#define NUMBER_I32  "8"
#define NUMBER_I64  "9"
#define NUMBER_BOOL "10"
_Static_assert(AIR_I8 == 5 && AIR_U8 == 6 && AIR_I16 == 7 && AIR_I32 == 8 &&
               AIR_I64 == 9 && AIR_BOOL == 10, "the numbers above");

const char cuda_prelude[] =
/* ---- dtypes, and the way to the lane that holds them and back ---- */
    "#pragma nv_diag_suppress 177,550\n"
    "#define AIR_FN static __device__ __forceinline__\n"
    "#define AIR_METHOD static __device__ __forceinline__\n"
    "#ifdef __CUDACC__\n"
    "#define __builtin_inff() __uint_as_float(0x7f800000u)\n"
    "#define __builtin_nanf(s) __uint_as_float(0x7fc00000u)\n"
    "#endif\n" TEXT(
    typedef long long air_i64;
    typedef float air_F32;
    typedef double air_F64;
    typedef unsigned short air_BF16;
    typedef unsigned short air_F16;
    typedef signed char air_I8;
    typedef unsigned char air_U8;
    typedef short air_I16;
    typedef int air_I32;
    typedef long long air_I64;
    typedef unsigned char air_BOOL;
    template <int N> struct air_values { air_i64 v[N]; };
    template <class T> AIR_FN T air_number(air_i64 bytes) {
        T number;
        memcpy(&number, &bytes, sizeof number);
        return number;
    }) TEXT(
    AIR_FN float air_of_F32(float a) { return a; }
    AIR_FN double air_of_F64(double a) { return a; }
    AIR_FN float air_of_BF16(air_BF16 a) { return __uint_as_float((unsigned)a << 16); }
    AIR_FN air_i64 air_of_I8(air_I8 a) { return a; }
    AIR_FN air_i64 air_of_U8(air_U8 a) { return a; }
    AIR_FN air_i64 air_of_I16(air_I16 a) { return a; }
    AIR_FN air_i64 air_of_I32(air_I32 a) { return a; }
    AIR_FN air_i64 air_of_I64(air_I64 a) { return a; }
    AIR_FN bool air_of_BOOL(air_BOOL a) { return a != 0; }) TEXT(
    AIR_FN air_F32 air_to_F32(float a) { return a; }
    AIR_FN air_F64 air_to_F64(double a) { return a; }
    AIR_FN air_I8 air_to_I8(air_i64 a) { return (air_I8)a; }
    AIR_FN air_U8 air_to_U8(air_i64 a) { return (air_U8)a; }
    AIR_FN air_I16 air_to_I16(air_i64 a) { return (air_I16)a; }
    AIR_FN air_I32 air_to_I32(air_i64 a) { return (air_I32)a; }
    AIR_FN air_I64 air_to_I64(air_i64 a) { return a; }
    AIR_FN air_BOOL air_to_BOOL(bool a) { return a; })
    "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n" TEXT(
    AIR_FN air_BF16 air_to_BF16(float a)
    { air_BF16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(a)); return h; })
    "#else\n" TEXT(
    AIR_FN air_BF16 air_to_BF16(float a)
    {
        unsigned u = __float_as_uint(a);
        return (air_BF16)(a != a ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
    })
    "#endif\n" TEXT(
    AIR_FN float air_of_F16(air_F16 h)
    { float a; asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(h)); return a; }) TEXT(
    AIR_FN air_F16 air_to_F16(float a)
    { air_F16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(a)); return h; })

/* ---- f32 ---- */
    "namespace f32 {\n" LANE("float") TEXT(
    AIR_FN T of(float a) { return a; }
    AIR_FN T of(double a) { return (float)a; }
    AIR_FN T of(air_i64 a) { return (float)a; }
    AIR_FN T K(T a) { return a; }
    AIR_FN T abs_(T a) { return fabsf(a); }
    AIR_FN T fma_(T a, T b, T c) { return fmaf(a, b, c); }
    AIR_FN T sqrt_(T a) { return sqrtf(a); }
    AIR_FN T rint_(T a) { return rintf(a); }
    AIR_FN T floor_(T a) { return floorf(a); }
    AIR_FN T ceil_(T a) { return ceilf(a); }
    AIR_FN T trunc_(T a) { return truncf(a); }
    AIR_FN T sign_(T a, T b) { return copysignf(a, b); }
    AIR_FN int int_(T a)
    { return a >= -0x1p31f && a < 0x1p31f ? (int)a : -2147483647 - 1; }) TEXT(
    AIR_FN T scalef_(T a, T b)
    {
        int n = int_(b);
        unsigned half = (unsigned)(n >> 1);
        return a * __uint_as_float((half + 127) << 23) *
               __uint_as_float(((unsigned)n - half + 127) << 23);
    }) TEXT(
    AIR_FN T scalen_(T a, T b)
    { return __uint_as_float(__float_as_uint(a) + ((unsigned)int_(b) << 23)); }
    AIR_FN T normal_(T a) { return a < 0x1p-126f ? a * 0x1p24f : a; }) TEXT(
    AIR_FN T logb_(T a)
    {
        unsigned e = __float_as_uint(normal_(a)) >> 23 & 255;
        return (__uint_as_float(e | 0x4b000000u) - 0x1p23f) -
               (a < 0x1p-126f ? 151.0f : 127.0f);
    }) TEXT(
    AIR_FN T mant_(T a)
    { return __uint_as_float((__float_as_uint(normal_(a)) & 0x7fffff) | 0x3f800000); }
    AIR_FN T round_bf16_(T a) { return air_of_BF16(air_to_BF16(a)); }
    AIR_FN T round_f16_(T a) { return air_of_F16(air_to_F16(a)); })
    /* In composites, whose arguments are below 2^22: adding 1.5 * 2^23 rounds,
     * and leaves the integer in the low bits (conversions run at a quarter of
     * the rate of additions). e^x is the library's, as in torch's kernels: it
     * takes 2^x from the special unit. */
    TEXT(
    namespace small {
        AIR_FN T RINT(T a) { return (a + 0x1.8p23f) - 0x1.8p23f; }
        AIR_FN unsigned integer(T a) { return __float_as_uint(a + 0x1.8p23f) - 0x4b400000u; }
        AIR_FN T power(unsigned n) { return __uint_as_float((n << 23) + 0x3f800000u); }
        AIR_FN T SCALEF(T a, T b)
        {
            unsigned n = integer(b);
            unsigned half = (unsigned)((int)n >> 1);
            return a * power(half) * power(n - half);
        }
        AIR_FN T SCALEN(T a, T b)
        {
            T r = __uint_as_float(__float_as_uint(a) + (__float_as_uint(b + 0x1.8p23f) << 23));
            return a != a ? a : r;
        }
        AIR_FN T EXP(T a) { return expf(a); }
        AIR_FN T EXPH(T a) { return 0.5f * expf(a); }
    })
#define ROW_F(id, n, ...)       VALUE("T", ARGS_##n, id, __VA_ARGS__)
#define ROW_FI                  ROW_F
#define ROW_V                   ROW_F
#define ROW_I                   NONE
#define ROW_B                   NONE
#define COMP(id, n, exact, ...) \
    FN("T", ARGS_##n, id, "using small::RINT; using small::SCALEF; using small::SCALEN; using small::EXPH; " #__VA_ARGS__)
#define FUNC                    ROW_F
#include "air_prims.def"
#undef ROW_V
#undef COMP
    /* What is stored in 16 bits: 2^x of the special unit, which errs by 2^-22 of
     * it (PTX ISA, ex2.approx), and quotients by 2 ulp; where x is rounded e^x
     * errs by x 2^-24. The polynomial is NDTR's in air_prims.def. */
    "namespace halves {\n" TEXT(
    AIR_FN T power(T a) { T r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a)); return r; }
    AIR_FN T EXP(T a) { return power(a * 1.44269504f); }
    AIR_FN T SIGMOID(T a) { return __fdividef(1.0f, 1.0f + power(a * -1.44269504f)); }
    AIR_FN T NDTR(T a)
    {
        T t = fabsf(a);
        T q = fmaf(-2.8349129e-06f, t, 3.9377686e-05f);
        q = fmaf(fmaf(q, t, -0.0001861802f), t, -0.00013693652f);
        q = fmaf(fmaf(q, t, 0.0070634205f), t, -0.05249618f);
        q = fmaf(fmaf(q, t, -0.4592082f), t, -1.1511052f);
        T h = power(fmaf(q, t, -1.0f));
        return a < 0.0f ? h : 1.0f - h;
    })
    "}\n"

/* ---- f64 ---- */
    "}\nnamespace f64 {\n" LANE("double") TEXT(
    AIR_FN T of(float a) { return (double)a; }
    AIR_FN T of(double a) { return a; }
    AIR_FN T of(air_i64 a) { return (double)a; }
    AIR_FN T abs_(T a) { return fabs(a); }
    AIR_FN T fma_(T a, T b, T c) { return fma(a, b, c); }
    AIR_FN T sqrt_(T a) { return sqrt(a); }
    AIR_FN T rint_(T a) { return rint(a); }
    AIR_FN T floor_(T a) { return floor(a); }
    AIR_FN T ceil_(T a) { return ceil(a); }
    AIR_FN T trunc_(T a) { return trunc(a); }
    AIR_FN T sign_(T a, T b) { return copysign(a, b); }) TEXT(
    AIR_FN T scalef_(T a, T b)
    { return ldexp(a, b > 4000 ? 4000 : b < -4000 ? -4000 : (int)b); }
    AIR_FN T scalen_(T a, T b) { return scalef_(a, b); }
    AIR_FN T logb_(T a) { return logb(a); }
    AIR_FN T mant_(T a)
    { return a > 0 && a <= 0x1.fffffffffffffp1023 ? ldexp(a, -(int)logb(a)) : a; })
#define ROW_V                   NONE
#define COMP(id, n, exact, ...) VALUE("T", ARGS_##n, id, exact)
#include "air_prims.def"
#undef ROW_F
#undef ROW_FI
#undef ROW_I
#undef COMP
#undef FUNC

/* ---- i64: W has T's operators, which wrap ---- */
    "}\nnamespace i64 {\n" LANE("air_i64") TEXT(
    typedef unsigned long long U;
    AIR_FN T of(air_i64 a) { return a; }
    AIR_FN T of(double a)
    { return a >= -0x1p63 && a < 0x1p63 ? (T)a : (T)(U(1) << 63); }
    AIR_FN T of(float a) { return of((double)a); }) TEXT(
    struct W {
        T v;
        __device__ __forceinline__ W(T a) : v(a) {}
        __device__ __forceinline__ operator T() const { return v; }
        __device__ __forceinline__ W operator+(W o) const { return (T)((U)v + (U)o.v); }
        __device__ __forceinline__ W operator-(W o) const { return (T)((U)v - (U)o.v); }
        __device__ __forceinline__ W operator*(W o) const { return (T)((U)v * (U)o.v); }
        __device__ __forceinline__ W operator-() const { return (T)(0 - (U)v); }
        __device__ __forceinline__ bool operator>(W o) const { return v > o.v; }
    };) TEXT(
    AIR_FN T abs_(W a) { return a.v < 0 ? -a : a; }
    AIR_FN T idiv_(T a, T b) { return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b; }
    AIR_FN T imod_(T a, T b) { return b == 0 || b == -1 ? 0 : a % b; }
    AIR_FN T shl_(T a, T b) { return b < 0 || b > 63 ? 0 : (T)((U)a << b); }
    AIR_FN T shr_(T a, T b) { return a >> (b < 0 || b > 63 ? 63 : b); })
    "AIR_FN T wrap_(T a, T dtype) { switch (dtype) {\n"
#define DTYPE(id, text, size, kind, ...) WRAP_##kind(id)
#include "air_dtypes.def"
#undef DTYPE
    "default: return a;\n} }\n"
#define ROW_F             NONE
#define ROW_FI(id, n, ...) VALUE("T", WRAPS_##n, id, __VA_ARGS__)
#define ROW_I(id, n, ...) VALUE("T", ARGS_##n, id, __VA_ARGS__)
#define COMP              NONE
#define FUNC              NONE
#include "air_prims.def"
#undef ROW_FI
#undef ROW_I
#undef ROW_B

/* ---- b ---- */
    "}\nnamespace b {\ntypedef bool T;\n" TEXT(
    AIR_FN T of(bool a) { return a; }
    AIR_FN T of(float a) { return a != 0; }
    AIR_FN T of(double a) { return a != 0; }
    AIR_FN T of(air_i64 a) { return a != 0; })
#define ROW_FI            NONE
#define ROW_I             NONE
#define ROW_B(id, n, ...) VALUE("T", ARGS_##n, id, __VA_ARGS__)
#include "air_prims.def"
    "}\n"

/* ---- reductions ---- */
    TEXT(
    template <class T> struct air_limit {
        AIR_METHOD T least() { return -__uint_as_float(0x7f800000); }
        AIR_METHOD T most() { return __uint_as_float(0x7f800000); }
    };) TEXT(
    template <> struct air_limit<air_i64> {
        AIR_METHOD air_i64 least() { return (air_i64)(1ull << 63); }
        AIR_METHOD air_i64 most() { return (air_i64)(~0ull >> 1); }
    };) TEXT(
    AIR_FN float air_plus(float a, float b) { return a + b; }
    AIR_FN double air_plus(double a, double b) { return a + b; }
    AIR_FN air_i64 air_plus(air_i64 a, air_i64 b) { return i64::ADD(a, b); }
    template <class T> AIR_FN T air_most(T a, T x) { return x > a || x != x ? x : a; }
    template <class T> AIR_FN T air_least(T a, T x) { return x < a || x != x ? x : a; })
    "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n" TEXT(
    AIR_FN float air_most(float a, float x)
    { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(x)); return r; }
    AIR_FN float air_least(float a, float x)
    { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(x)); return r; })
    "#endif\n" TEXT(
    AIR_FN float air_times(float a, float b) { return a * b; }
    AIR_FN double air_times(double a, double b) { return a * b; }
    AIR_FN air_i64 air_times(air_i64 a, air_i64 b) { return i64::MUL(a, b); })
    FOLD("SUM", "(T)0", "air_plus(a, x)")
    FOLD("PROD", "(T)1", "air_times(a, x)")
    FOLD("MAX", "air_limit<T>::least()", "air_most(a, x)")
    FOLD("MIN", "air_limit<T>::most()", "air_least(a, x)")
    FOLD("ANY", "(T)0", "(T)(a | x)")
    FOLD("ALL", "(T)1", "(T)(a & x)")
    "#ifdef __CUDA_ARCH__\n" TEXT(
    AIR_FN float air_reciprocal(float a)
    { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; })
    "#else\n" TEXT(
    AIR_FN float air_reciprocal(float a) { return 1.0f / a; })
    "#endif\n"
    /* Of a thread: how many, sums of what they are off the first of them, and
     * of squares of that. Behind close(): the mean, off `first`, and squares of
     * what they are off it; two are put together by Chan, Golub and LeVeque,
     * without branches: loads go ahead. `near` leaves to close() how many they
     * are, and skips x where it is not `in`, without a branch. */
    TEXT(
    struct alignas(16) air_moment {
        float n, first, mean, sum;
        __device__ __forceinline__ operator float() const { return sum; }
        __device__ __forceinline__ void close(float count)
        {
            const float all = mean;
            n = count;
            mean = all * air_reciprocal(n > 0 ? n : 1);
            sum -= all * mean;
            sum = sum < 0 ? 0 : sum;
        }
    };
    struct air_MOMENT {
        template <class T> AIR_METHOD T start() { return T{0, 0, 0, 0}; }
        AIR_METHOD air_moment op(air_moment a, float x)
        {
            a.first = a.n > 0 ? a.first : x;
            const float d = x - a.first;
            return {a.n + 1, a.first, a.mean + d, fmaf(d, d, a.sum)};
        }
        AIR_METHOD air_moment near(air_moment a, float x, bool first, bool in)
        {
            a.first = first ? x : a.first;
            const float d = in ? x - a.first : 0;
            return {a.n, a.first, a.mean + d, fmaf(d, d, a.sum)};
        }
        AIR_METHOD air_moment op(air_moment a, air_moment b)
        {
            const float n = a.n + b.n;
            const float part = b.n * air_reciprocal(n > 0 ? n : 1);
            const float first = a.n > 0 ? a.first : b.first;
            const float off = b.first - first + (b.mean - a.mean);
            const float d = b.n > 0 ? off : 0;
            return {n, first, a.mean + d * part, a.sum + b.sum + d * part * (d * a.n)};
        }
    };) TEXT(
    template <class T> AIR_FN T air_across(T v, int w)
    { return __shfl_xor_sync(0xffffffffu, v, w); }
    template <> __device__ __forceinline__ air_moment air_across<air_moment>(air_moment v, int w)
    {
        return {air_across(v.n, w), air_across(v.first, w), air_across(v.mean, w),
                air_across(v.sum, w)};
    }
    template <> __device__ __forceinline__ bool air_across<bool>(bool v, int w)
    { return (bool)__shfl_xor_sync(0xffffffffu, (int)v, w); }) TEXT(
    template <class O, int G, class T> AIR_FN T air_fold_warp(T v)
    {
        for (int w = G / 2; w > 0; w /= 2)
            v = O::op(v, air_across(v, w));
        return v;
    })
    /* Over G neighbouring threads, G a power of two; all get the result. More
     * than a warp: G is the block. */
    "#ifndef AIR_PARTS\n"
    "#define AIR_PARTS(T, name, count) __shared__ T name[count]\n"
    "#endif\n"
    TEXT(
    template <class O, int G, class T> AIR_FN T air_fold(T v)
    {
        if constexpr (G <= 32) {
            return air_fold_warp<O, G>(v);
        } else {
            AIR_PARTS(T, parts, G / 32);
            v = air_fold_warp<O, 32>(v);
            __syncthreads();
            if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
            __syncthreads();
            return air_fold_warp<O, G / 32>(parts[threadIdx.x % (G / 32)]);
        }
    })
    /* Over the T threads of C blocks, a cluster, neighbours in a row. Between
     * folds all blocks are between air_meet and air_met: what a fold writes
     * into the others, they have begun and read what was there before. */
    "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n" TEXT(
    AIR_FN void air_meet() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
    AIR_FN void air_met() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
    template <class T> AIR_FN T *air_of_block(T *p, int rank)
    { T *q; asm("mapa.u64 %0, %1, %2;" : "=l"(q) : "l"(p), "r"(rank)); return q; }) TEXT(
    template <class O, int T, int C, class V> AIR_FN V air_fold_cluster(V v)
    {
        __shared__ V all[C];
        v = air_fold<O, T>(v);
        air_met();
        if (threadIdx.x < C) *air_of_block(&all[blockIdx.x % C], threadIdx.x) = v;
        air_meet();
        air_met();
        v = all[0];
        for (int i = 1; i < C; i++) v = O::op(v, all[i]);
        air_meet();
        return v;
    })
    "#endif\n"
    /* Over Y rows of G threads with V values each; row 0 gets the result. */
    TEXT(
    template <class O, int Y, int G, int V, class T> AIR_FN void air_fold_rows(T (&t)[V])
    {
        __shared__ T parts[V * (Y / 2 * G + 1)];
        const int x = threadIdx.x % G;
        const int y = threadIdx.x / G;
        for (int h = Y / 2; h > 0; h /= 2) {
            __syncthreads();
            if (y >= h && y < 2 * h)
                for (int k = 0; k < V; k++)
                    parts[(k * (Y / 2) + y - h) * G + x] = t[k];
            __syncthreads();
            if (y < h)
                for (int k = 0; k < V; k++)
                    t[k] = O::op(t[k], parts[(k * (Y / 2) + y) * G + x]);
        }
    }) TEXT(
    template <int G> AIR_FN void air_sync()
    { if (G <= 32) __syncwarp(); else __syncthreads(); })

/* ---- indices and memory ---- */
    /* air_begin: the next kernel may start, this one waits for the one before,
     * where the launch allows it. air_div: n / d by a multiplication with what
     * cuda_walk.c gives. */
    "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n" TEXT(
    AIR_FN void air_begin()
    {
        asm volatile("griddepcontrol.launch_dependents;");
        asm volatile("griddepcontrol.wait;" ::: "memory");
    })
    "#else\n" TEXT(
    AIR_FN void air_begin() {})
    "#endif\n" TEXT(
    AIR_FN int air_div(int n, air_i64, air_i64 m, air_i64 s)
    { return (int)((__umulhi((unsigned)n, (unsigned)m) + (unsigned)n) >> (int)s); }
    AIR_FN air_i64 air_div(air_i64 n, air_i64 d, air_i64, air_i64) { return n / d; })
    /* V elements of which n are there; fast: in pieces of up to 16 bytes. */
    TEXT(
    template <int N> struct alignas(N) air_piece { unsigned char x; };
    template <> struct alignas(16) air_piece<16> { unsigned x, y, z, w; };
    template <> struct alignas(8) air_piece<8> { unsigned x, y; };
    template <> struct alignas(4) air_piece<4> { unsigned x; };
    template <> struct alignas(2) air_piece<2> { unsigned short x; };
    template <int V, class R> struct air_pieces {
        static constexpr int all = V * (int)sizeof(R);
        static constexpr int bytes = all < 16 ? all : 16;
        static constexpr int count = all / bytes;
        static constexpr int step = bytes / (int)sizeof(R);
        typedef air_piece<bytes> piece;
    };) TEXT(
    template <int V, class R> AIR_FN void air_load(R *d, const R *p, int n, bool fast)
    {
        typedef air_pieces<V, R> P;
        if (fast && n >= V)
            for (int j = 0; j < P::count; j++) {
                typename P::piece q = ((const typename P::piece *)p)[j];
                memcpy(d + j * P::step, &q, P::bytes);
            }
        else
            for (int k = 0; k < V; k++) d[k] = k < n ? p[k] : (R)0;
    }) TEXT(
    template <int V, class R> AIR_FN void air_store(R *p, const R *d, int n, bool fast)
    {
        typedef air_pieces<V, R> P;
        if (fast && n >= V)
            for (int j = 0; j < P::count; j++) {
                typename P::piece q;
                memcpy(&q, d + j * P::step, P::bytes);
                ((typename P::piece *)p)[j] = q;
            }
        else
            for (int k = 0; k < V; k++) if (k < n) p[k] = d[k];
    }) TEXT(
    template <int V, class R, class I>
    AIR_FN void air_gather(R *d, const R *p, I stride, int n)
    { for (int k = 0; k < V; k++) d[k] = k < n ? p[k * stride] : (R)0; }
    template <int V, class R, class I>
    AIR_FN void air_scatter(R *p, const R *d, I stride, int n)
    { for (int k = 0; k < V; k++) if (k < n) p[k * stride] = d[k]; }
    template <int V, class R> AIR_FN bool air_is_fast(const R *p, air_i64 mask, int buf)
    {
        return (mask >> buf & 1) != 0 &&
               ((size_t)p & (air_pieces<V, R>::bytes - 1)) == 0;
    });
