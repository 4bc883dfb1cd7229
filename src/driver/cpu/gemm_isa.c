/* gemm_isa.c: the loops of the matrix product, compiled once per instruction
 * set (-DGEMM_ISA=avx2). Lanes are rows of x; w is broadcast. */
#include "driver/cpu/gemm_isa.h"
#include "driver/cpu/gemm_core.h"
#include "driver/cpu/gemm_vec.h"

INLINE vf
broadcast(const float *w)
{
    return set(*w);
}

INLINE vf
product(vf c, vf x, vf w)
{
    return fma_(x, w, c);
}

#ifdef NARROW
INLINE vn
narrow_broadcast(const float *w)
{
    return *w - (vn){0};
}

INLINE vn
narrow_product(vn c, vn x, vn w)
{
    return (vn)_mm256_fmadd_ps((__m256)x, (__m256)w, (__m256)c);
}
#endif

#include "driver/cpu/gemm_tile.h"

static void
block(float *acc, int64_t nr, const float *panel, int64_t xs, const float *w,
      int64_t rs, int64_t ks, int64_t kc, bool first)
{
    int64_t nb = (nr + ROWS_MAX - 1) / ROWS_MAX;
    for (int64_t i = 0; i < nb; i++) { /* even sizes: no thin last one */
        int64_t b = nr * i / nb, e = nr * (i + 1) / nb;
        tiles[e - b](acc + b * LANES, panel, xs, w + b * rs, rs, ks, kc, first,
                     (gemm_ahead){(const char *)panel, 0});
    }
}

/* ---- packing ------------------------------------------------------------- */

/* dst[k][ld]: lanes are adjacent in memory. */
INLINE void
pack_adjacent(float *dst, int64_t ld, const void *p, int64_t ks, int dtype,
              int64_t n, int64_t kc)
{
    for (int64_t k = 0; k < kc; k++) {
        int64_t l = 0;
        for (; l + VL <= n; l += VL)
            store(dst + k * ld + l, vget(p, k * ks + l, dtype));
        if (l < n && n >= VL) { /* again, a little of what was there */
            store(dst + k * ld + n - VL, vget(p, k * ks + n - VL, dtype));
            continue;
        }
        for (; l < n; l++)
            dst[k * ld + l] = get(p, k * ks + l, dtype);
    }
}

/* dst[k][ld]: k is adjacent in memory, VL lanes at a time. */
INLINE void
pack_turned(float *dst, int64_t ld, const void *p, int64_t rs, int dtype,
            int64_t n, int64_t kc)
{
    int64_t k = 0;
    for (; k + VL <= kc; k += VL) {
        vf r[VL];
        UNROLL for (int i = 0; i < VL; i++) r[i] =
            i < n ? vget(p, i * rs + k, dtype) : (vf){0};
        transpose(r);
        UNROLL for (int i = 0; i < VL; i++) store(dst + (k + i) * ld, r[i]);
    }
    for (; k < kc; k++)
        for (int64_t i = 0; i < VL; i++)
            dst[k * ld + i] = i < n ? get(p, i * rs + k, dtype) : 0;
}

static void
pack_any(float *dst, int64_t ld, const gemm_view *v, const void *p, int64_t n,
         int64_t kc)
{
    for (int64_t k = 0; k < kc; k++)
        for (int64_t l = 0; l < n; l++)
            dst[k * ld + l] = get(p, l * v->rs + k * v->ks, v->dtype);
}

static int64_t
dtype_size(int dtype)
{
    return dtype == AIR_F32 ? 4 : 2;
}

static const void *
view_at(const gemm_view *v, int64_t r, int64_t k)
{
    return (const char *)v->p + (r * v->rs + k * v->ks) * dtype_size(v->dtype);
}

/* The dtype is a constant inside each case. */
#define BY_DTYPE(dtype, call)  \
    switch (dtype) {           \
    case AIR_F32: {            \
        enum { D = AIR_F32 };  \
        call;                  \
        break;                 \
    }                          \
    case AIR_BF16: {           \
        enum { D = AIR_BF16 }; \
        call;                  \
        break;                 \
    }                          \
    default: {                 \
        enum { D = AIR_F16 };  \
        call;                  \
        break;                 \
    }                          \
    }

static void
pack_x(float *panel, const gemm_view *x, int64_t l0, int64_t nl, int64_t k0,
       int64_t k1)
{
    int64_t kc = k1 - k0;
    const void *p = view_at(x, l0, k0);
    if (x->ks == 1) {
        for (int64_t l = 0; l < LANES; l += VL) {
            const void *q = l < nl ? view_at(x, l0 + l, k0) : p;
            BY_DTYPE(x->dtype,
                     pack_turned(panel + l, LANES, q, x->rs, D, nl - l, kc));
        }
        return;
    }
    if (nl < LANES)
        memset(panel, 0, (size_t)(kc * LANES) * sizeof *panel);
    if (x->rs == 1)
        BY_DTYPE(x->dtype, pack_adjacent(panel, LANES, p, x->ks, D, nl, kc))
    else
        pack_any(panel, LANES, x, p, nl, kc);
}

static void
pack_w(float *block_, const gemm_view *w, int64_t r0, int64_t r1, int64_t k0,
       int64_t k1, int64_t *out_rs, int64_t *out_ks)
{
    const void *p = view_at(w, r0, k0);
    bool rows = w->ks == 1;
    *out_rs = rows ? GEMM_WB : 1;
    *out_ks = rows ? 1 : GEMM_MB;
    if (rows)
        BY_DTYPE(w->dtype,
                 pack_adjacent(block_, GEMM_WB, p, w->rs, D, k1 - k0, r1 - r0))
    else if (w->rs == 1)
        BY_DTYPE(w->dtype,
                 pack_adjacent(block_, GEMM_MB, p, w->ks, D, r1 - r0, k1 - k0))
    else
        pack_any(block_, GEMM_MB, w, p, r1 - r0, k1 - k0);
}

static void
widen(float *dst, const void *p, int64_t stride, int dtype, int64_t n)
{
    if (stride == 1)
        BY_DTYPE(dtype, pack_adjacent(dst, n, p, n, D, n, 1))
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = get(p, i * stride, dtype);
}

static void
copies(float *dst, int64_t ld, const void *p, int64_t step, int64_t stride,
       int dtype, int64_t n, int64_t count)
{
    if (stride == 1) {
        BY_DTYPE(dtype, pack_adjacent(dst, ld, p, step, D, n, count))
        return;
    }
    for (int64_t c = 0; c < count; c++) {
        int64_t i = 0;
        if (stride == 2 && dtype == AIR_F32)
            for (; i + VL <= n; i += VL)
                store(dst + c * ld + i,
                      load_even((const float *)p + c * step + i * 2));
        for (; i < n; i++)
            dst[c * ld + i] = get(p, c * step + i * stride, dtype);
    }
}

static void
add(float *dst, const float *src, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        store(dst + i, load(dst + i) + load(src + i));
    for (; i < n; i++)
        dst[i] += src[i];
}

static void
narrow(void *p, int64_t stride, int dtype, const float *src, float scale,
       int64_t n)
{
    int64_t i = 0;
    for (; stride == 1 && i + VL <= n; i += VL)
        vput(p, i, dtype, load(src + i) * set(scale));
    for (; i < n; i++)
        put(p, i * stride, dtype, src[i] * scale);
}

/* ---- results ------------------------------------------------------------- */

/* One line of y: its results leave for memory. */
typedef struct {
    void *y;
    int64_t ys;
    const void *s;
    int64_t ss;
    int y_dtype, s_dtype;
    float alpha, beta;
} gemm_line;

INLINE vf
line_value(const gemm_line *o, vf t, int64_t i, const int S, bool each)
{
    vf v = set(o->alpha) * t;
    if (o->s == NULL)
        return v;
    vf s = each ? vget(o->s, i, S) : set(get(o->s, 0, S));
    return fma_(set(o->beta), s, v);
}

static void
line_any(const gemm_line *o, const float *t, int64_t b, int64_t n)
{
    for (int64_t i = b; i < n; i++) {
        float v = o->alpha * t[i];
        if (o->s != NULL)
            v += o->beta * get(o->s, i * o->ss, o->s_dtype);
        put(o->y, i * o->ys, o->y_dtype, v);
    }
}

INLINE void
line_vector(const gemm_line *o, const float *t, int64_t n, const int D,
            const int S)
{
    int64_t i = 0;
    bool each = o->ss != 0;
    for (; i + VL <= n; i += VL)
        vput(o->y, i, D, line_value(o, load(t + i), i, S, each));
    line_any(o, t, i, n);
}

static void
line(const gemm_line *o, const float *t, int64_t n)
{
    bool straight = o->ys == 1 && (o->s == NULL || o->ss == 0 || o->ss == 1);
    if (!straight || (o->s != NULL && o->s_dtype != o->y_dtype))
        line_any(o, t, 0, n);
    else
        BY_DTYPE(o->y_dtype, line_vector(o, t, n, D, D))
}

static void
line_at(const gemm_job *job, int64_t l, int64_t r, bool along_lanes,
        gemm_line *out)
{
    int64_t y = l * job->yl + r * job->yr, s = l * job->sl + r * job->sr;
    *out = (gemm_line){
        .y = (char *)job->y + y * dtype_size(job->y_dtype),
        .ys = along_lanes ? job->yl : job->yr,
        .s = job->s == NULL
                 ? NULL
                 : (const char *)job->s + s * dtype_size(job->s_dtype),
        .ss = along_lanes ? job->sl : job->sr,
        .y_dtype = job->y_dtype,
        .s_dtype = job->s_dtype,
        .alpha = job->alpha,
        .beta = job->beta,
    };
}

/* t[VL][GEMM_MB] = VL columns of a panel of sums. */
static void
turn(float *t, const float *acc, int64_t nr)
{
    int64_t r = 0;
    for (; r + VL <= nr; r += VL) {
        vf v[VL];
        UNROLL for (int i = 0; i < VL; i++) v[i] = load(acc + (r + i) * LANES);
        transpose(v);
        UNROLL for (int i = 0; i < VL; i++) store(t + i * GEMM_MB + r, v[i]);
    }
    for (; r < nr; r++)
        for (int i = 0; i < VL; i++)
            t[i * GEMM_MB + r] = acc[r * LANES + i];
}

/* VL lanes from l on, rows [r0, r0 + nr): nr a multiple of VL, y of rows next
 * to each other. */
INLINE void
turn_out(const gemm_job *job, const float *acc, int64_t l, int64_t r0,
         int64_t nr, const int D)
{
    gemm_line o;
    line_at(job, l, r0, false, &o);
    for (int64_t r = 0; r < nr; r += VL) {
        vf v[VL];
        UNROLL for (int i = 0; i < VL; i++) v[i] = load(acc + (r + i) * LANES);
        transpose(v);
        for (int i = 0; i < VL; i++) {
            gemm_line at = o;
            if (o.s != NULL)
                at.s = (const char *)o.s + i * job->sl * dtype_size(D);
            vput((char *)o.y + i * job->yl * dtype_size(D), r, D,
                 line_value(&at, v[i], r, D, o.ss != 0));
        }
    }
}

/* The same of any rows and of n lanes at most VL. */
static void
lines_out(const gemm_job *job, const float *acc, int64_t l, int64_t n,
          int64_t r0, int64_t nr)
{
    float t[VL * GEMM_MB];
    gemm_line o;
    turn(t, acc, nr);
    for (int64_t i = 0; i < n; i++) {
        line_at(job, l + i, r0, false, &o);
        line(&o, t + i * GEMM_MB, nr);
    }
}

static void
finish_turned(const gemm_job *job, const float *acc, int64_t l0, int64_t nl,
              int64_t r0, int64_t nr)
{
    bool plain = job->s == NULL || (job->s_dtype == job->y_dtype &&
                                    (job->sr == 0 || job->sr == 1));
    for (int64_t l = 0; l < nl; l += VL) {
        int64_t n = nl - l < VL ? nl - l : VL;
        int64_t done = plain && n == VL ? nr / VL * VL : 0;
        BY_DTYPE(job->y_dtype, turn_out(job, acc + l, l0 + l, r0, done, D))
        if (done < nr)
            lines_out(job, acc + l + done * LANES, l0 + l, n, r0 + done,
                      nr - done);
    }
}

/* The common case: f32 lines of lanes, one s for a line. */
static void
finish_floats(const gemm_job *job, const float *acc, int64_t l0, int64_t r0,
              int64_t nr)
{
    float *y = (float *)job->y + l0 + r0 * job->yr;
    const float *s = job->s;
    vf alpha = set(job->alpha);
    for (int64_t r = 0; r < nr; r++, y += job->yr, acc += LANES) {
        vf b = {0};
        if (s != NULL)
            b = set(job->beta * s[l0 * job->sl + (r0 + r) * job->sr]);
        store(y, fma_(load(acc), alpha, b));
        store(y + VL, fma_(load(acc + VL), alpha, b));
    }
}

static bool
is_floats(const gemm_job *job, int64_t nl)
{
    return nl == LANES && job->yl == 1 && job->y_dtype == AIR_F32 &&
           (job->s == NULL || (job->sl == 0 && job->s_dtype == AIR_F32));
}

static void
finish_straight(const gemm_job *job, const float *acc, int64_t l0, int64_t nl,
                int64_t r0, int64_t nr)
{
    gemm_line o;
    for (int64_t r = 0; r < nr; r++) {
        line_at(job, l0, r0 + r, true, &o);
        line(&o, acc + r * LANES, nl);
    }
}

/* ---- results that somebody takes line by line ---- */

#define LINE_BYTES ((size_t)(GEMM_NB * 4))

/* n elements of y from lane l, row r on. */
static void
give_line(const gemm_job *job, const void *y, int64_t l, int64_t r, int64_t n)
{
    int64_t at = l * job->yl + r * job->yr, size = dtype_size(job->y_dtype);
    if (job->lines->keep)
        memcpy((char *)job->y + at * size, y, (size_t)(n * size));
    job->lines->run(job->lines->arg, y, job->at + at, n);
}

/* Lane l, rows [r, r + n): t. */
static void
give_rows(const gemm_job *job, const float *t, int64_t l, int64_t r, int64_t n)
{
    _Alignas(64) char y[LINE_BYTES];
    gemm_line o;
    line_at(job, l, r, false, &o);
    o.y = y, o.ys = 1;
    line(&o, t, n);
    give_line(job, y, l, r, n);
}

/* Row r, lanes [l, l + n): acc, of its panels. */
static void
give_lanes(const gemm_job *job, const float *acc, int64_t acc_rows, int64_t l,
           int64_t n, int64_t r)
{
    _Alignas(64) char y[LINE_BYTES];
    gemm_line o;
    for (int64_t i = 0; i < n; i += LANES) {
        line_at(job, l + i, r, true, &o);
        o.y = y + i * dtype_size(job->y_dtype), o.ys = 1;
        line(&o, acc + i * acc_rows, n - i < LANES ? n - i : LANES);
    }
    give_line(job, y, l, r, n);
}

/* Rows [r0, r0 + nr) of the few lanes that there are. */
static void
give_dots(const gemm_job *job, const float *t, int64_t ts, int64_t r0,
          int64_t nr)
{
    float lanes[LANES > GEMV_MAX ? LANES : GEMV_MAX];
    for (int64_t l = 0; job->yr == 1 && l < job->nx; l++)
        give_rows(job, t + l * ts, l, r0, nr);
    for (int64_t r = 0; job->yr != 1 && r < nr; r++) {
        for (int64_t l = 0; l < job->nx; l++)
            lanes[l] = t[l * ts + r];
        give_lanes(job, lanes, 1, 0, job->nx, r0 + r);
    }
}

static void
finish_lines(const gemm_job *job, const float *acc, int64_t acc_rows,
             int64_t l0, int64_t nl, int64_t r0, int64_t nr)
{
    float t[VL * GEMM_MB];
    for (int64_t l = 0; job->yl == 1 && l < nl; l += GEMM_NB)
        for (int64_t r = 0; r < nr; r++)
            give_lanes(job, acc + l * acc_rows + r * LANES, acc_rows, l0 + l,
                       nl - l < GEMM_NB ? nl - l : GEMM_NB, r0 + r);
    for (int64_t l = 0; job->yl != 1 && l < nl; l++) {
        if (l % VL == 0)
            turn(t, acc + l / LANES * acc_rows * LANES + l % LANES, nr);
        give_rows(job, t + l % VL * GEMM_MB, l0 + l, r0, nr);
    }
}

static void
finish(const gemm_job *job, const float *acc, int64_t acc_rows, int64_t l0,
       int64_t nl, int64_t r0, int64_t nr)
{
    if (job->lines != NULL) {
        finish_lines(job, acc, acc_rows, l0, nl, r0, nr);
        return;
    }
    for (int64_t l = 0; l < nl; l += LANES) {
        int64_t n = nl - l < LANES ? nl - l : LANES;
        if (is_floats(job, n))
            finish_floats(job, acc, l0 + l, r0, nr);
        else if (job->yl == 1 || job->yr != 1)
            finish_straight(job, acc, l0 + l, n, r0, nr);
        else
            finish_turned(job, acc, l0 + l, n, r0, nr);
        acc += acc_rows * LANES;
    }
}

static void
finish_rows(const gemm_job *job, const float *t, int64_t ts, int64_t r0,
            int64_t nr)
{
    gemm_line o;
    if (job->lines != NULL) {
        give_dots(job, t, ts, r0, nr);
        return;
    }
    for (int64_t l = 0; l < job->nx; l++) {
        line_at(job, l, r0, false, &o);
        line(&o, t + l * ts, nr);
    }
}

const gemm_ops ISA_NAME(cpu_gemm) = {
    .isa = ISA_TEXT,
    .lanes = LANES,
    .rows = ROWS_MAX,
    .pack_x = pack_x,
    .pack_w = pack_w,
    .block = block,
    .tile = tile_rows,
    .finish = finish,
    .finish_rows = finish_rows,
    .widen = widen,
    .dots = ISA_NAME(gemv_dots),
    .copies = copies,
    .add = add,
    .correlate = ISA_NAME(correlate),
    .narrow = narrow,
    .unquant = ISA_NAME(unquant),
    .integers = ISA_NAME(integers),
    .order_words = ISA_NAME(order_words),
    .dots_words = ISA_NAME(dots_words),
    .attend = &ISA_NAME(cpu_attend),
};
