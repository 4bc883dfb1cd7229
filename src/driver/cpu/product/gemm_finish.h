/* gemm_finish.h: how sums leave a product for memory, for a file that is
 * compiled once per instruction set: finish and finish_rows of gemm_ops. */
#ifndef CPU_GEMM_FINISH_H
#define CPU_GEMM_FINISH_H

#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/product/gemm_vec.h"

static int64_t
dtype_size(int dtype)
{
    return dtype == AIR_F32 ? 4 : 2;
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
    const bool even = o.s != NULL && o.ss == 1 && job->sl == 0;
    for (int64_t r = 0; r < nr; r += VL) {
        vf v[VL];
        UNROLL for (int i = 0; i < VL; i++) v[i] = load(acc + (r + i) * LANES);
        transpose(v);
        const vf b = even ? vget(o.s, r, D) : (vf){0};
        UNROLL for (int i = 0; i < VL; i++)
        {
            gemm_line at = o;
            vf t = set(o.alpha) * v[i];
            if (even)
                t = fma_(set(o.beta), b, t);
            else if (o.s != NULL) {
                at.s = (const char *)o.s + i * job->sl * dtype_size(D);
                t = line_value(&at, v[i], r, D, o.ss != 0);
            }
            vput((char *)o.y + i * job->yl * dtype_size(D), r, D, t);
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

/* What is added to a panel whose lanes lie side by side in y. */
typedef enum { ADD_NOTHING, ADD_BY_ROW, ADD_BY_LANE, ADD_ELSE } added;

static added
find_added(const gemm_job *job)
{
    if (job->s == NULL)
        return ADD_NOTHING;
    if (job->s_dtype != job->y_dtype)
        return ADD_ELSE;
    return job->sl == 0                   ? ADD_BY_ROW
           : job->sl == 1 && job->sr == 0 ? ADD_BY_LANE
                                          : ADD_ELSE;
}

/* A full panel, rows [r0, r0 + nr). */
INLINE void
straight_out(const gemm_job *job, const float *acc, int64_t l0, int64_t r0,
             int64_t nr, const int D, const added how)
{
    const int64_t size = dtype_size(D);
    const vf alpha = set(job->alpha), beta = set(job->beta);
    char *y = (char *)job->y + (l0 + r0 * job->yr) * size;
    vf s[2] = {{0}, {0}};
    UNROLL for (int v = 0; v < 2 && how == ADD_BY_LANE; v++) s[v] =
        vget(job->s, l0 + v * VL, D);
    for (int64_t r = 0; r < nr; r++, y += job->yr * size, acc += LANES) {
        if (how == ADD_BY_ROW)
            s[0] = s[1] = set(get(job->s, (r0 + r) * job->sr, D));
        UNROLL for (int v = 0; v < 2; v++)
        {
            vf t = alpha * load(acc + v * VL);
            vput(y, v * VL, D, how == ADD_NOTHING ? t : fma_(beta, s[v], t));
        }
    }
}

static void
finish_panel(const gemm_job *job, const float *acc, int64_t l0, int64_t r0,
             int64_t nr, added how)
{
    if (how == ADD_NOTHING)
        BY_DTYPE(job->y_dtype,
                 straight_out(job, acc, l0, r0, nr, D, ADD_NOTHING))
    else if (how == ADD_BY_ROW)
        BY_DTYPE(job->y_dtype,
                 straight_out(job, acc, l0, r0, nr, D, ADD_BY_ROW))
    else
        BY_DTYPE(job->y_dtype,
                 straight_out(job, acc, l0, r0, nr, D, ADD_BY_LANE))
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

static void finish(const gemm_job *job, const float *acc, int64_t acc_rows,
                   int64_t l0, int64_t nl, int64_t r0, int64_t nr);

/* Rows of a tile, nl lanes at most GEMM_NB, side by side for a moment. */
static void
give_rows_of_lanes(const gemm_job *job, const float *acc, int64_t acc_rows,
                   int64_t l0, int64_t nl, int64_t r0, int64_t nr)
{
    _Alignas(64) char y[ROWS_MAX * LINE_BYTES];
    const int64_t size = dtype_size(job->y_dtype), row = GEMM_NB;
    const int64_t at = l0 + r0 * job->yr;
    gemm_job one = *job;
    one.y = y - (l0 + r0 * row) * size;
    one.yr = row;
    one.lines = NULL;
    finish(&one, acc, acc_rows, l0, nl, r0, nr);
    for (int64_t r = 0; job->lines->keep && r < nr; r++)
        memcpy((char *)job->y + (at + r * job->yr) * size, y + r * row * size,
               (size_t)(nl * size));
    job->lines->run_rows(job->lines->arg, y, row * size, job->at + at, nl, nr,
                         job->yr);
}

static void
finish_lines(const gemm_job *job, const float *acc, int64_t acc_rows,
             int64_t l0, int64_t nl, int64_t r0, int64_t nr)
{
    float t[VL * GEMM_MB];
    for (int64_t l = 0; job->yl == 1 && l < nl; l += GEMM_NB)
        for (int64_t r = 0; r < nr; r += ROWS_MAX)
            give_rows_of_lanes(job, acc + l * acc_rows + r * LANES, acc_rows,
                               l0 + l, nl - l < GEMM_NB ? nl - l : GEMM_NB,
                               r0 + r, nr - r < ROWS_MAX ? nr - r : ROWS_MAX);
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
    const added how = find_added(job);
    for (int64_t l = 0; l < nl; l += LANES) {
        int64_t n = nl - l < LANES ? nl - l : LANES;
        if (n == LANES && job->yl == 1 && how != ADD_ELSE)
            finish_panel(job, acc, l0 + l, r0, nr, how);
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

#endif
