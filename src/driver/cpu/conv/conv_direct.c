/* conv_direct.c: convolutions of few channels, where columns would cost more
 * than the sums.
 *
 * The rows that a strip of results sees are copied, as floats and with their
 * padding, into a plane a channel that stays in the cache; windows then slide
 * over them without asking where the image ends. With a stride along the rows,
 * each row is stored by phases (columns 0, s, 2 s ..., then 1, s + 1 ...), so
 * that what adjacent results see is adjacent. Of bf16, where the CPU multiplies
 * pairs, a plane holds two channels, and a number of it a pixel of both. */
#include "driver/cpu/conv/conv_direct.h"
#include "driver/cpu/region/region_join.h"

#include <string.h>

#define BEHIND   32      /* floats that `correlate` may read behind a row */
#define VECTOR   16      /* of the plan, which no instruction set may change */
#define SUM_MAX  GEMM_KB /* terms of a sum */
#define OUTS_MAX 16      /* channels out at once */
#define DEEP     4       /* channels out of one channel in */
#define MANY     25      /* taps */

typedef struct {
    const conv_geometry *g;
    int64_t planes;  /* of channels or pairs of them */
    int64_t columns; /* of a phase */
    int64_t row;     /* floats: all phases */
    int64_t strip;   /* rows of results at most */
    int64_t strips;  /* of a plane of results */
    int64_t rows;    /* of the image, that a strip sees */
    int64_t at[SUM_MAX];
} layout;

static int64_t
rows_seen(const conv_geometry *g, int64_t strip)
{
    return (strip - 1) * g->stride[1] + (g->kernel[1] - 1) * g->dilation[1] + 1;
}

/* In a multiple of `parts` strips, where there are rows for them; strip 0: one
 * row of results sees too much. */
static layout
make_layout(const conv_geometry *g, int64_t planes, int64_t parts)
{
    int64_t s = g->stride[2], span = (g->kernel[2] - 1) * g->dilation[2];
    int64_t room = (int64_t)(AIR_SCRATCH / sizeof(float)) - BEHIND;
    layout l = {.g = g,
                .planes = planes,
                .columns = round_up(g->out[2], VECTOR) + span / s};
    l.row = l.columns * s;
    int64_t fit = room / (l.row * g->kernel[0] * planes);
    int64_t window = rows_seen(g, 1);
    if (fit < window)
        return l;
    const int64_t most = (fit - window) / g->stride[1] + 1;
    const int64_t strips = round_up((g->out[1] + most - 1) / most, parts);
    l.strip = (g->out[1] + strips - 1) / strips;
    l.strips = (g->out[1] + l.strip - 1) / l.strip;
    l.rows = rows_seen(g, l.strip);
    return l;
}

/* Terms of a sum in the order of the weights: [channel][tap]. */
static void
find_taps(layout *l)
{
    const conv_geometry *g = l->g;
    int64_t plane = g->kernel[0] * l->rows * l->row;
    for (int64_t i = 0; i < l->planes * g->taps; i++) {
        int64_t t = i % g->taps;
        int64_t x = t % g->kernel[2] * g->dilation[2];
        int64_t y = t / g->kernel[2] % g->kernel[1] * g->dilation[1];
        int64_t z = t / g->kernel[2] / g->kernel[1];
        l->at[i] = i / g->taps * plane + (z * l->rows + y) * l->row +
                   x % g->stride[2] * l->columns + x / g->stride[2];
    }
}

/* One channel in: always. A few channels: where the rows fill vectors, or half
 * of one, and columns would be used by few channels out or would be many for
 * each. */
bool
cpu_conv_is_direct(const conv_geometry *g)
{
    int64_t terms = g->c_in * g->taps, n = g->out[2];
    bool depthwise = g->c_in == 1 && g->c_out <= DEEP;
    int64_t vector = n <= VECTOR / 2 ? VECTOR / 2 : VECTOR;
    bool narrow = g->taps > 1 && (g->c_in <= 4 || g->c_out <= 16) &&
                  4 * n >= 3 * round_up(n, vector);
    return terms > 0 && terms <= SUM_MAX && g->out_pixels > 0 &&
           (depthwise || narrow) && make_layout(g, g->c_in, 1).strip > 0;
}

/* A channel, or two whose pixels are pairs: second NULL: with zeros. */
typedef struct {
    const char *p, *second;
    int dtype;
    bool pairs;
} source;

/* Channels that plane i is made of. */
static source
find_source(const layout *l, const char *x, int dtype, int64_t i)
{
    int64_t step = l->g->in_pixels * cpu_gemm_size_of(dtype);
    bool pairs = l->planes != l->g->c_in;
    source s = {x + i * step, NULL, dtype, pairs};
    if (!pairs)
        return s;
    s.p = x + 2 * i * step;
    if (2 * i + 1 < l->g->c_in)
        s.second = s.p + step;
    return s;
}

/* Of bf16. */
static const uint16_t *
number(const char *p, int64_t i)
{
    return p != NULL ? (const uint16_t *)(const void *)p + i : NULL;
}

/* The pixels of a row that phase f has: n of them, the first one, and where
 * that lies. Divisions are slow. */
static void
find_phase(const layout *l, int64_t f, int64_t *first, int64_t *at, int64_t *n)
{
    int64_t s = l->g->stride[2], pad = l->g->pad[2], width = l->g->in[2];
    *first = 0, *at = pad, *n = width;
    if (s > 1) {
        *first = ((f - pad) % s + s) % s;
        *at = (*first + pad) / s;
        *n = (width - *first + s - 1) / s;
    }
    *n = *first < width ? min64(*n, l->columns - *at) : 0;
}

/* `count` rows of the image, from number `from` on, into the plane. */
static void
copy_rows(const layout *l, const gemm_ops *ops, float *to, const source *x,
          int64_t from, int64_t count)
{
    const conv_geometry *g = l->g;
    int64_t s = g->stride[2], width = g->in[2], first, at, n;
    for (int64_t f = 0; f < s; f++) {
        find_phase(l, f, &first, &at, &n);
        float *row = to + f * l->columns + at;
        if (n <= 0)
            continue;
        if (x->pairs)
            ops->copy_pairs(row, l->row, number(x->p, from + first),
                            number(x->second, from + first), width, s, n,
                            count);
        else
            ops->copies(row, l->row,
                        x->p + (from + first) * cpu_gemm_size_of(x->dtype),
                        width, s, x->dtype, n, count);
    }
}

static void
clear_rows(const layout *l, float *rows, int64_t count)
{
    memset(rows, 0, (size_t)(count * l->row) * sizeof *rows);
}

/* What results [y0, y0 + strip) of plane z see of one channel, in a plane whose
 * rows are zero beside the image. */
static void
fill(const layout *l, const gemm_ops *ops, float *plane, const source *x,
     int64_t z, int64_t y0)
{
    const conv_geometry *g = l->g;
    int64_t top = y0 * g->stride[1] - g->pad[1];
    int64_t b = min64(l->rows, max64(0, -top));
    int64_t e = max64(b, min64(l->rows, g->in[1] - top));
    for (int64_t k = 0; k < g->kernel[0]; k++, plane += l->rows * l->row) {
        int64_t iz = z * g->stride[0] - g->pad[0] + k * g->dilation[0];
        bool inside = iz >= 0 && iz < g->in[0];
        int64_t first = inside ? b : l->rows, last = inside ? e : l->rows;
        clear_rows(l, plane, first);
        if (first < last)
            copy_rows(l, ops, plane + first * l->row, x,
                      (iz * g->in[1] + top + first) * g->in[2], last - first);
        clear_rows(l, plane + last * l->row, l->rows - last);
    }
}

/* What a strip needs: results o .. o + outs of one group of one image. */
typedef struct {
    const char *x, *w, *bias; /* bias NULL: none */
    char *y;
    int dtype;
    const gemm_lines *lines; /* NULL: nobody takes them */
    int64_t at;              /* element of all results that y[0] is */
} operands;

static operands
find_operands(const air_call *call, const conv_geometry *g,
              const air_task *task, int64_t item)
{
    const air_tensor *x = call->args[0].t, *bias = call->args[2].t;
    int64_t size = cpu_gemm_size_of(x->dtype);
    int64_t channel = item % g->groups * g->c_out;
    operands f = {.dtype = x->dtype, .at = item * g->c_out * g->out_pixels};
    f.x =
        (const char *)air_data(x, task) + item * g->c_in * g->in_pixels * size;
    f.w = (const char *)air_data(call->args[1].t, task) +
          channel * g->c_in * g->taps * size;
    f.y = (char *)air_data(&call->outs[0], task) +
          item * g->c_out * g->out_pixels * size;
    if (call->args[2].kind == AIR_ARG_TENSOR && bias->dtype != AIR_DTYPE_NONE)
        f.bias = (const char *)air_data(bias, task) + channel * size;
    return f;
}

/* n results from place `at` on of each of `outs` channels, which are in a cache
 * now, for who takes them. They stay where they are, too. */
static void
give(const operands *f, const conv_geometry *g, int64_t at, int64_t n,
     int64_t outs)
{
    const int64_t size = cpu_gemm_size_of(f->dtype), ld = g->out_pixels;
    if (f->lines != NULL)
        f->lines->run_rows(f->lines->arg, f->y + at * size, ld * size,
                           f->at + at, n, outs, ld);
}

/* w[out][plane][tap] */
static void
place_weights(const layout *l, const operands *f, const gemm_ops *ops, float *w,
              int64_t o, int64_t outs)
{
    const conv_geometry *g = l->g;
    const char *from =
        f->w + o * g->c_in * g->taps * cpu_gemm_size_of(f->dtype);
    if (l->planes == g->c_in) {
        ops->widen(w, from, 1, f->dtype, outs * g->c_in * g->taps);
        return;
    }
    for (int64_t i = 0; i < outs * l->planes; i++) {
        int64_t c = i % l->planes * 2, row = i / l->planes * g->c_in + c;
        const uint16_t *a = number(from, row * g->taps);
        ops->copy_pairs(w + i * g->taps, 0, a,
                        c + 1 < g->c_in ? a + g->taps : NULL, 0, 1, g->taps, 1);
    }
}

/* Rows of results of one channel in share what they read; of many channels
 * out these would share it, too. */
static bool
shares_rows(const conv_geometry *g)
{
    return g->c_in == 1 && g->c_out < DEEP && g->kernel[0] == 1 &&
           g->out[1] > 1;
}

static void
slide_rows(const layout *l, const operands *f, const gemm_ops *ops,
           const float *plane, int64_t z, int64_t y0)
{
    const conv_geometry *g = l->g;
    int64_t size = cpu_gemm_size_of(f->dtype);
    float w[SUM_MAX], start = 0;
    gemm_slide s = {.rows = min64(l->strip, g->out[1] - y0),
                    .n = g->out[2],
                    .step = g->stride[1] * l->row,
                    .down = g->dilation[1] * l->row,
                    .kernel = {g->kernel[1], g->kernel[2]},
                    .across = l->at,
                    .dtype = f->dtype};
    for (int64_t o = 0; o < g->c_out; o++) {
        int64_t at = o * g->out_pixels + (z * g->out[1] + y0) * g->out[2];
        place_weights(l, f, ops, w, o, 1);
        if (f->bias != NULL)
            ops->widen(&start, f->bias + o * size, 1, f->dtype, 1);
        ops->correlate_rows(&s, plane, w, start, f->y + at * size);
        give(f, g, at, s.rows * s.n, 1);
    }
}

/* Results [y0, y0 + rows) of plane z, all channels out of the group. */
static void
run_strip(const layout *l, const operands *f, const gemm_ops *ops, float *plane,
          int64_t z, int64_t y0)
{
    const conv_geometry *g = l->g;
    int64_t size = cpu_gemm_size_of(f->dtype), terms = l->planes * g->taps;
    int64_t channel = g->kernel[0] * l->rows * l->row;
    float w[OUTS_MAX * SUM_MAX], start[OUTS_MAX] = {0};
    gemm_windows s = {.rows = min64(l->strip, g->out[1] - y0),
                      .n = g->out[2],
                      .step = g->stride[1] * l->row,
                      .ld = g->out_pixels,
                      .at = l->at,
                      .taps = terms,
                      .dtype = f->dtype};
    for (int64_t c = 0; c < l->planes; c++) {
        source x = find_source(l, f->x, f->dtype, c);
        fill(l, ops, plane + c * channel, &x, z, y0);
    }
    if (shares_rows(g)) {
        slide_rows(l, f, ops, plane, z, y0);
        return;
    }
    for (int64_t o = 0; o < g->c_out; o += OUTS_MAX) {
        int64_t outs = min64(OUTS_MAX, g->c_out - o);
        int64_t at = o * g->out_pixels + (z * g->out[1] + y0) * g->out[2];
        place_weights(l, f, ops, w, o, outs);
        if (f->bias != NULL)
            ops->widen(start, f->bias + o * size, 1, f->dtype, outs);
        ops->correlate(&s, plane, w, start, outs, f->y + at * size);
        give(f, g, at, s.rows * s.n, outs);
    }
}

/* ---- a window a channel, over planes of short rows ---- */

static gemm_planes
make_planes(const conv_geometry *g, int dtype)
{
    gemm_planes s = {.dtype = dtype};
    int64_t size[2];
    for (int k = 0; k < 2; k++) {
        s.in[k] = g->in[k + 1];
        s.out[k] = g->out[k + 1];
        s.kernel[k] = g->kernel[k + 1];
        s.stride[k] = g->stride[k + 1];
        s.pad[k] = g->pad[k + 1];
        s.dilation[k] = g->dilation[k + 1];
        size[k] = max64((s.out[k] - 1) * s.stride[k] +
                            (s.kernel[k] - 1) * s.dilation[k] + 1,
                        s.in[k] + s.pad[k]);
    }
    s.rows = size[0];
    s.row = size[1];
    return s;
}

/* Lanes are channels where rows would leave a good part of a vector empty, and
 * where rows share nothing and there are many taps: vectors of channels lie on
 * lines of the cache, those of a row anywhere; or with a stride: rows need no
 * phases then. */
static bool
is_by_channels(const conv_geometry *g, const gemm_ops *ops, int dtype)
{
    int64_t lanes = ops->lanes / 2, n = g->out[2];
    bool plain = dtype == AIR_F32 || (g->stride[2] == 1 && n >= lanes);
    bool share = shares_rows(g) && plain;
    bool hard = g->taps >= MANY || g->stride[2] > 1;
    gemm_planes s = make_planes(g, AIR_F32);
    int64_t floats =
        s.rows * s.row + g->taps + max64(g->in_pixels, g->out_pixels);
    return g->c_in == 1 && g->c_out == 1 && g->in[0] == 1 &&
           g->kernel[0] == 1 && g->out[0] == 1 && g->groups >= lanes &&
           (4 * n < 3 * round_up(n, lanes) || (hard && !share)) &&
           floats * lanes * (int64_t)sizeof(float) <= (int64_t)AIR_SCRATCH;
}

static void
run_by_channels(const air_call *call, const conv_geometry *g,
                const gemm_ops *ops, const air_task *task,
                const gemm_lines *lines)
{
    int64_t lanes = ops->lanes / 2, b, e;
    int64_t blocks = (g->groups + lanes - 1) / lanes;
    gemm_planes s = make_planes(g, call->args[0].t->dtype);
    air_split(g->batch * blocks, task, &b, &e);
    memset(task->scratch, 0, (size_t)(s.rows * s.row * lanes) * sizeof(float));
    for (int64_t i = b; i < e; i++) {
        int64_t channel = i % blocks * lanes;
        int64_t n = min64(lanes, g->groups - channel);
        operands f =
            find_operands(call, g, task, i / blocks * g->groups + channel);
        f.lines = lines;
        ops->depthwise(&s, f.x, f.w, f.bias, f.y, n, task->scratch);
        give(&f, g, 0, g->out_pixels, n);
    }
}

void
cpu_conv_direct(const air_call *call, const conv_geometry *g,
                const gemm_ops *ops, const air_task *task)
{
    cpu_join_run join;
    const gemm_lines *lines = cpu_join_begin(&join, call, task, 0);
    if (is_by_channels(g, ops, call->args[0].t->dtype)) {
        run_by_channels(call, g, ops, task, lines);
        return;
    }
    int64_t items = g->batch * g->groups, planes = items * g->out[0], b, e;
    bool pairs = ops->copy_pairs != NULL;
    layout l = make_layout(g, pairs ? (g->c_in + 1) / 2 : g->c_in,
                           planes >= task->count ? 1 : task->count);
    find_taps(&l);
    memset(task->scratch, 0,
           (size_t)(l.planes * g->kernel[0] * l.rows * l.row + BEHIND) *
               sizeof(float));
    air_split(planes * l.strips, task, &b, &e);
    int64_t strip = b % l.strips, z = b / l.strips % g->out[0];
    int64_t item = b / l.strips / g->out[0]; /* counted on, not divided */
    for (int64_t i = b; i < e; i++) {
        operands f = find_operands(call, g, task, item);
        f.lines = lines;
        run_strip(&l, &f, ops, task->scratch, z, strip * l.strip);
        if (++strip == l.strips)
            strip = 0, z++;
        if (z == g->out[0])
            z = 0, item++;
    }
}

/* ---- the gradient of weights --------------------------------------------- */

bool
cpu_conv_weight_is_direct(const conv_geometry *g)
{
    return g->c_in == 1 && g->c_out <= DEEP && g->taps <= SUM_MAX &&
           g->out_pixels > 0 && make_layout(g, 1, 1).strip > 0;
}

/* sums += what results [y0, y0 + strip) of plane z, of all channels of a group,
 * saw of the plane. */
static void
weigh_strip(const layout *l, const operands *f, const gemm_ops *ops,
            float *plane, float *rows, int64_t z, int64_t y0, double *sums)
{
    const conv_geometry *g = l->g;
    int64_t size = cpu_gemm_size_of(f->dtype), n = g->out[2];
    gemm_windows s = {.rows = min64(l->strip, g->out[1] - y0),
                      .n = n,
                      .step = g->stride[1] * l->row,
                      .ld = round_up(n, VECTOR),
                      .at = l->at,
                      .taps = g->taps};
    memset(plane, 0,
           (size_t)(g->kernel[0] * l->rows * l->row + BEHIND) * sizeof *plane);
    fill(l, ops, plane, &(source){f->x, NULL, f->dtype, false}, z, y0);
    memset(rows, 0, (size_t)(s.rows * s.ld) * sizeof *rows);
    for (int64_t o = 0; o < g->c_out; o++) {
        int64_t at = o * g->out_pixels + (z * g->out[1] + y0) * n;
        ops->copies(rows, s.ld, f->y + at * size, n, 1, f->dtype, n, s.rows);
        ops->correlate_weights(&s, plane, rows, sums + o * g->taps);
    }
}

/* (a, small, ...) of one group of one image; y is read. */
static operands
find_gradients(const air_call *call, const conv_geometry *g,
               const air_task *task, int64_t item)
{
    const air_tensor *x = call->args[0].t, *y = call->args[1].t;
    int64_t size = cpu_gemm_size_of(x->dtype);
    return (operands){
        .dtype = x->dtype,
        .x = (const char *)air_data(x, task) + item * g->in_pixels * size,
        .y = (char *)air_data(y, task) + item * g->c_out * g->out_pixels * size,
    };
}

static void
weigh_group(const layout *l, const air_call *call, const gemm_ops *ops,
            const air_task *task, float *rows, int64_t group)
{
    const conv_geometry *g = l->g;
    const air_tensor *out = &call->outs[0];
    int64_t weights = g->c_out * g->taps;
    double sums[DEEP * SUM_MAX];
    float rounded[DEEP * SUM_MAX];
    memset(sums, 0, (size_t)weights * sizeof *sums);
    for (int64_t n = 0; n < g->batch; n++) {
        operands f = find_gradients(call, g, task, n * g->groups + group);
        for (int64_t i = 0; i < g->out[0] * l->strips; i++)
            weigh_strip(l, &f, ops, task->scratch, rows, i / l->strips,
                        i % l->strips * l->strip, sums);
    }
    for (int64_t i = 0; i < weights; i++)
        rounded[i] = (float)sums[i];
    ops->narrow((char *)air_data(out, task) +
                    group * weights * cpu_gemm_size_of(out->dtype),
                1, out->dtype, rounded, 1, weights);
}

void
cpu_conv_direct_weight(const air_call *call, const conv_geometry *g,
                       const gemm_ops *ops, const air_task *task, float *rows)
{
    layout l = make_layout(g, 1, 1);
    int64_t b, e;
    find_taps(&l);
    air_split(g->groups, task, &b, &e);
    for (int64_t i = b; i < e; i++)
        weigh_group(&l, call, ops, task, rows, i);
}
