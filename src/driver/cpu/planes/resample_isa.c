/* resample_isa.c: upsampling of planes of floats and its gradients, compiled
 * once per instruction set and lane (real.h).
 *
 * A plane goes axis by axis, the last one first, through a table of what makes
 * each element: of the elements before, their weights. The gradient is the same
 * with the table turned round. Threads share the planes. Channels that are last
 * go side by side, some at a time. */
#include "driver/cpu/planes/resample_isa.h"

#include "driver/cpu/planes/real.h"
#include "driver/cpu/product/gemm.h"
#include "driver/dense.h"
#include "driver/ref/resample.h"

enum {
    AXES = REF_RESAMPLE_AXES,
    ALIGN = 64,
    TOGETHER = 16,     /* channels at least */
    IN_CACHE = 1 << 17 /* elements */
};

/* Element i is made of begin[i] .. begin[i + 1] - 1 of the entries; where all
 * have `taps` of them, entry t of element i is number t * to + i. */
typedef struct {
    int64_t from, to, taps; /* taps 0: not all alike */
    bool same;              /* nothing changes along this axis */
    int32_t *begin, *index;
    real *weight;
} table;

typedef struct {
    table axis[AXES];
    int dtype;
    int64_t planes, from, to;      /* elements of a plane */
    int64_t channels, part, parts; /* that are last; 1: planes by themselves */
    real *in, *work[2];
    const char *src;
    char *dst;
} resampling;

/* One entry: element `to` has `from`, times `weight`. */
typedef struct {
    int32_t to, from;
    real weight;
} entry;

/* ---- tables -------------------------------------------------------------- */

static int64_t
entries_of(const ref_resample *r)
{
    return r->out * ref_resample_most(r);
}

static size_t
rounded_up(int64_t bytes)
{
    return ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t
larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Room for a table, for what it is made from, and for entries in both orders.
 */
static size_t
table_bytes(const ref_resample *r)
{
    int64_t n = entries_of(r), ends = larger(r->in, r->out) + 2;
    return rounded_up(ends * 4) + rounded_up(n * 4) +
           rounded_up(n * (int64_t)sizeof(real)) +
           rounded_up(ref_resample_most(r) * 16) +
           rounded_up(n * (int64_t)sizeof(entry));
}

static bool
is_last(const air_call *call)
{
    const air_tensor *a = call->args[0].t, *out = &call->outs[0];
    return driver_is_last(a) && driver_is_last(out) &&
           !(driver_is_dense(a) && driver_is_dense(out));
}

static int64_t
plane_of(const ref_resample *axis)
{
    int64_t n = 1;
    for (int k = 0; k < AXES; k++)
        n *= larger(axis[k].in, axis[k].out);
    return n;
}

/* How many channels of an image go together. */
static int64_t
part_of(const air_call *call, const ref_resample *axis)
{
    const int64_t channels = is_last(call) ? call->args[0].t->dims[1] : 1;
    int64_t part = IN_CACHE / larger(plane_of(axis), 1) / TOGETHER * TOGETHER;
    part = larger(part, TOGETHER);
    return part < channels ? part : channels;
}

static size_t
plane_bytes(const air_call *call, const ref_resample *axis)
{
    return rounded_up(plane_of(axis) * part_of(call, axis) *
                      (int64_t)sizeof(real));
}

static size_t
workspace(const air_call *call, int threads, ref_filter filter, bool backward)
{
    ref_resample axis[AXES];
    size_t bytes;

    ref_resample_open(call, filter, backward, axis);
    bytes = 3 * plane_bytes(call, axis);
    for (int k = 0; k < AXES; k++)
        bytes += table_bytes(&axis[k]);
    return bytes * (size_t)threads;
}

static void *
take(char **memory, int64_t bytes)
{
    void *at = *memory;
    *memory += rounded_up(bytes);
    return at;
}

static int64_t
list_entries(const ref_resample *r, bool backward, entry *list, int64_t *index,
             double *weight)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->out; i++) {
        int64_t count = ref_resample_taps(r, i, index, weight);
        for (int64_t k = 0; k < count; k++) {
            int32_t in = (int32_t)index[k], out = (int32_t)i;
            list[n++] = (entry){backward ? in : out, backward ? out : in,
                                (real)weight[k]};
        }
    }
    return n;
}

static void
count_taps(table *t, const entry *list, int64_t n)
{
    memset(t->begin, 0, (size_t)(t->to + 2) * sizeof *t->begin);
    for (int64_t i = 0; i < n; i++)
        t->begin[list[i].to + 2]++;
    t->taps = t->to > 0 ? t->begin[2] : 0;
    for (int64_t i = 0; i < t->to; i++) {
        t->taps = t->begin[i + 2] == t->taps ? t->taps : 0;
        t->begin[i + 2] += t->begin[i + 1];
    }
}

/* Entries keep their order; begin[i + 1] moves from an element's first entry
 * to the next one's. */
static void
sort_entries(table *t, const entry *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t to = list[i].to, at = t->begin[to + 1]++;
        if (t->taps > 0)
            at = (at - to * t->taps) * t->to + to;
        t->index[at] = list[i].from;
        t->weight[at] = list[i].weight;
    }
}

static bool
changes_nothing(const table *t)
{
    if (t->from != t->to || t->taps != 1)
        return false;
    for (int64_t i = 0; i < t->to; i++)
        if (t->index[i] != i || t->weight[i] != 1)
            return false;
    return true;
}

static table
make_table(const ref_resample *r, bool backward, char **memory)
{
    int64_t most = ref_resample_most(r), n = entries_of(r);
    table t = {.from = backward ? r->out : r->in,
               .to = backward ? r->in : r->out};

    t.begin = take(memory, (larger(r->in, r->out) + 2) * 4);
    t.index = take(memory, n * 4);
    t.weight = take(memory, n * (int64_t)sizeof *t.weight);
    int64_t *index = take(memory, most * 16);
    entry *list = take(memory, n * (int64_t)sizeof *list);
    n = list_entries(r, backward, list, index,
                     (double *)(void *)(index + most));
    count_taps(&t, list, n);
    sort_entries(&t, list, n);
    t.same = changes_nothing(&t);
    return t;
}

/* ---- one axis ------------------------------------------------------------ */

static void
resize_row(const table *t, const real *restrict src, real *restrict dst)
{
    const int32_t *restrict index = t->index;
    const real *restrict w = t->weight;

    if (t->taps == 0) {
        for (int64_t i = 0; i < t->to; i++) {
            real sum = 0;
            for (int32_t k = t->begin[i]; k < t->begin[i + 1]; k++)
                sum += w[k] * src[index[k]];
            dst[i] = sum;
        }
        return;
    }
    for (int64_t i = 0; i < t->to; i++)
        dst[i] = w[i] * src[index[i]];
    for (int64_t k = 1; k < t->taps; k++) {
        index += t->to;
        w += t->to;
        for (int64_t i = 0; i < t->to; i++)
            dst[i] += w[i] * src[index[i]];
    }
}

/* dst[0 .. n - 1] = the weighted rows that make element i, n apart. */
static void
mix_rows(const table *t, int64_t i, const real *src, real *restrict dst,
         int64_t n)
{
    int64_t at = t->taps > 0 ? i : t->begin[i];
    int64_t step = t->taps > 0 ? t->to : 1;
    int64_t count = t->taps > 0 ? t->taps : t->begin[i + 1] - t->begin[i];

    if (count == 0)
        memset(dst, 0, (size_t)n * sizeof *dst);
    for (int64_t k = 0; k < count; k++, at += step) {
        const real *restrict row = src + t->index[at] * n;
        const real w = t->weight[at];
        if (k == 0 && count > 1) {
            const real *restrict next = src + t->index[at + step] * n;
            const real v = t->weight[at + step];
            for (int64_t c = 0; c < n; c++)
                dst[c] = w * row[c] + v * next[c];
            k++, at += step;
        } else if (k == 0) {
            for (int64_t c = 0; c < n; c++)
                dst[c] = w * row[c];
        } else {
            for (int64_t c = 0; c < n; c++)
                dst[c] += w * row[c];
        }
    }
}

static void
resize_axis(const resampling *s, int axis, const int64_t *dims,
            int64_t channels, const real *src, real *dst)
{
    const table *t = &s->axis[axis];
    int64_t before = 1, after = channels;

    for (int k = 0; k < axis; k++)
        before *= dims[k];
    for (int k = axis + 1; k < AXES; k++)
        after *= dims[k];
    for (int64_t b = 0; b < before; b++) {
        const real *from = src + b * t->from * after;
        real *to = dst + b * t->to * after;
        if (after == 1)
            resize_row(t, from, to);
        else
            for (int64_t i = 0; i < t->to; i++)
                mix_rows(t, i, from, to + i * after, after);
    }
}

/* ---- planes -------------------------------------------------------------- */

/* n channels of each of `count` places. */
static void
read_places(const resampling *s, const char *src, int64_t count, int64_t n)
{
    const int64_t step = s->channels * reals_bytes(s->dtype);

    if (n == s->channels)
        reals_widen(s->in, src, s->dtype, count * n);
    else
        for (int64_t i = 0; i < count; i++)
            reals_widen(s->in + i * n, src + i * step, s->dtype, n);
}

static void
write_places(const resampling *s, char *dst, const real *src, int64_t count,
             int64_t n)
{
    const int64_t step = s->channels * reals_bytes(s->dtype);

    if (n == s->channels)
        reals_narrow(dst, src, s->dtype, count * n);
    else
        for (int64_t i = 0; i < count; i++)
            reals_narrow(dst + i * step, src + i * n, s->dtype, n);
}

/* Part p % parts of the channels of image p / parts. */
static void
resize_plane(const resampling *s, int64_t p)
{
    const int64_t bytes = reals_bytes(s->dtype), c = p % s->parts * s->part;
    const int64_t left = s->channels - c, n = left < s->part ? left : s->part;
    const int64_t image = p / s->parts * s->channels;
    const char *src = s->src + (image * s->from + c) * bytes;
    char *dst = s->dst + (image * s->to + c) * bytes;
    const bool whole = s->dtype == REAL_DTYPE && n == s->channels;
    int64_t dims[AXES];
    const real *now = s->in;
    int work = 0, end = 0;

    if (whole)
        now = (const real *)(const void *)src;
    else
        read_places(s, src, s->from, n);
    for (int k = 0; k < AXES; k++)
        dims[k] = s->axis[k].from;
    while (end < AXES && s->axis[end].same)
        end++;
    for (int k = AXES - 1; k >= 0; k--) {
        if (s->axis[k].same)
            continue;
        real *to = s->work[work];
        if (whole && k == end)
            to = (real *)(void *)dst;
        resize_axis(s, k, dims, n, now, to);
        dims[k] = s->axis[k].to;
        now = to;
        work = !work;
    }
    if (!whole || end == AXES)
        write_places(s, dst, now, s->to, n);
}

static void
resample(const air_call *call, const air_task *task, ref_filter filter,
         bool backward)
{
    ref_tensor a = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    resampling s = {.dtype = a.dtype, .from = 1, .to = 1};
    ref_resample axis[AXES];
    int64_t begin, end;
    char *memory = (char *)task->workspace +
                   workspace(call, 1, filter, backward) * (size_t)task->id;

    s.src = a.data;
    s.dst = out.data;
    ref_resample_open(call, filter, backward, axis);
    s.channels = is_last(call) ? a.dims[1] : 1;
    s.part = part_of(call, axis);
    s.parts = s.part > 0 ? (s.channels + s.part - 1) / s.part : 0;
    s.planes = a.dims[0] * (is_last(call) ? s.parts : a.dims[1]);
    air_split(s.planes, task, &begin, &end);
    if (begin == end)
        return;
    s.in = take(&memory, (int64_t)plane_bytes(call, axis));
    for (int k = 0; k < 2; k++)
        s.work[k] = take(&memory, (int64_t)plane_bytes(call, axis));
    for (int k = 0; k < AXES; k++) {
        s.axis[k] = make_table(&axis[k], backward, &memory);
        s.from *= s.axis[k].from;
        s.to *= s.axis[k].to;
    }
    for (int64_t p = begin; p < end; p++)
        resize_plane(&s, p);
}

/* Dense floats, planes and tables that 32 bits count. */
bool
REAL_KERNEL(resample_on)(const air_call *call, const char *isa)
{
    const air_tensor *a = call->args[0].t, *out = &call->outs[0];
    int64_t n = 1;

    if (!REAL_ISA(on)(call, isa)) /* first: the rest may not run here */
        return false;
    for (int i = 2; i < a->rank; i++)
        n *= larger(a->dims[i], out->dims[i]);
    return reals_take(a->dtype) && n < INT32_MAX / 16 &&
           (is_last(call) || (cpu_is_dense(a) && cpu_is_dense(out)));
}

#define ONE(name, filter, backward)                                    \
    void REAL_KERNEL(name)(const air_call *call, const air_task *task) \
    {                                                                  \
        resample(call, task, filter, backward);                        \
    }                                                                  \
    size_t REAL_KERNEL(name##_size)(const air_call *call, int threads) \
    {                                                                  \
        return workspace(call, threads, filter, backward);             \
    }
#define RESAMPLE(name, filter) \
    ONE(name, filter, false)   \
    ONE(name##_backward, filter, true)
#include "driver/ref/resample.def"
