/* kern_scan.c: running folds along an axis, and the place of its greatest or
 * least element (text/scan.cuh). */
#include <inttypes.h>
#include <stdio.h>

#include "driver/cuda/kern_call.h"
#include "driver/dense.h"

enum {
    SHORT = 32,        /* elements of an axis that a thread has by itself */
    MIDDLE = 1024,     /* that a warp has */
    PART = 4096,       /* and of which each block has one, with few axes */
    MOST_PARTS = 256,  /* of an axis */
    FEW = 64,          /* axes: they leave a GPU idle */
    MOST_OF_ONE = 8192 /* of a single axis: torch's kernel has more blocks */
};

/* The axis that is folded, `count` elements of x that are `step` apart, and
 * what x has around it. */
typedef struct {
    const air_tensor *x;
    air_tensor around; /* x with one element along the axis */
    int axis;
    int64_t count, step;
} line;

static line
line_of(const air_tensor *x, int64_t axis)
{
    line l = {.x = x, .around = *x, .count = 1, .step = 1};
    if (x->rank == 0)
        return l;
    l.axis = kern_axis(axis, x->rank);
    l.count = x->dims[l.axis];
    l.step = x->strides[l.axis];
    l.around.dims[l.axis] = 1;
    return l;
}

/* Threads that have an axis together: 1, a warp, or a block. */
static int
threads_of(const line *l)
{
    const int64_t axes = kern_numel(&l->around);
    if (l->count <= SHORT || (l->step != 1 && axes >= 2048))
        return 1;
    return l->count <= MIDDLE ? 32 : KERN_THREADS;
}

static const char *
by(int threads)
{
    return threads == 1 ? "alone" : threads == 32 ? "in_warp" : "together";
}

/* The element of the axis, as an address or behind "[0". */
static void
put_place(kern *k, const char *name, const air_tensor *t, const int *axes)
{
    base_text_add(k->text, "%s", name);
    kern_at(k, t, axes);
}

static const char *
folds_in(int dtype)
{
    if (!kern_is_float(dtype))
        return "s64";
    return dtype == AIR_F64 ? "double" : "float";
}

static void
begin_lines(kern *k, const line *l)
{
    kern_body(k);
    kern_groups(k, l->around.dims, l->around.rank, threads_of(l));
}

static void
end_lines(kern *k, const line *l, const cuda_props *props)
{
    kern_end(k, kern_numel(&l->around) * threads_of(l), props);
}

/* ---- running folds ------------------------------------------------------- */

/* One block would have a single axis. */
static bool
is_shared_out(const air_call *call)
{
    const line l = line_of(call->args[0].t, kern_int(call, 1, 0));
    return l.count <= MOST_OF_ONE || kern_numel(&l.around) > 1;
}

/* What a float is rounded to before it is added would count. */
bool
kern_scan_on(const air_call *call, const cuda_props *props)
{
    const air_tensor *x = call->args[0].t, *y = &call->outs[0];
    const bool exact = x->dtype == y->dtype || !kern_is_float(x->dtype);
    return kern_has_dtype(x->dtype, props) && kern_has_dtype(y->dtype, props) &&
           exact && is_shared_out(call);
}

bool
kern_logs_on(const air_call *call, const cuda_props *props)
{
    return kern_is_float(call->outs[0].dtype) && kern_scan_on(call, props);
}

static void
put_scan(kern *k, const line *l, const char *fold, const cuda_props *props)
{
    base_text_add(k->text, "        scan_%s<%s>(to, ", by(threads_of(l)), fold);
    put_place(k, "x", &l->around, NULL);
    base_text_add(k->text, ", %" PRId64 ", %" PRId64 ");\n", l->count, l->step);
    end_lines(k, l, props);
}

static air_status
print_scan(const air_call *call, const cuda_props *props, cuda_source *out,
           const char *fold)
{
    const air_tensor *x = call->args[0].t, *y = &call->outs[0];
    const line l = line_of(x, kern_int(call, 1, 0));
    const line to = line_of(y, l.axis);
    const char *type = kern_type(y->dtype), *state = folds_in(y->dtype);
    char name[32];
    (void)snprintf(name, sizeof name, "%s<%s>", fold, state);
    kern k = kern_begin(out, kern_text_scan, "");
    kern_tensor(&k, type, "y", y);
    kern_tensor(&k, kern_type(x->dtype), "x", x);
    begin_lines(&k, &l);
    base_text_add(k.text, "        const Results<%s, %s> to{", type, state);
    put_place(&k, "y", &to.around, NULL);
    base_text_add(k.text, ", %" PRId64 "};\n", to.step);
    put_scan(&k, &l, name, props);
    return AIR_OK;
}

/* cumsum(self, dim, *, dtype) */
air_status
kern_cumsum(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_scan(call, props, out, "Sum");
}

/* cumprod(self, dim, *, dtype) */
air_status
kern_cumprod(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_scan(call, props, out, "Product");
}

/* logcumsumexp(self, dim) */
air_status
kern_logcumsumexp(const air_call *call, const cuda_props *props,
                  cuda_source *out)
{
    return print_scan(call, props, out, "LogSum");
}

static void
name_best(char *name, size_t size, int dtype, bool most, bool last)
{
    (void)snprintf(name, size, "Best<%s, %s, %s>", folds_in(dtype),
                   most ? "true" : "false", last ? "true" : "false");
}

static air_status
print_running_best(const air_call *call, const cuda_props *props,
                   cuda_source *out, bool most)
{
    const air_tensor *x = call->args[0].t;
    const air_tensor *y = &call->outs[0], *at = &call->outs[1];
    const line l = line_of(x, kern_int(call, 1, 0));
    const line to = line_of(y, l.axis), places = line_of(at, l.axis);
    char name[64];
    name_best(name, sizeof name, x->dtype, most, true);
    kern k = kern_begin(out, kern_text_scan, "");
    kern_tensor(&k, kern_word(y->dtype), "y", y);
    kern_tensor(&k, "s64", "at", at);
    kern_tensor(&k, kern_type(x->dtype), "x", x);
    begin_lines(&k, &l);
    base_text_add(k.text, "        const Places<%s> to{", kern_word(y->dtype));
    put_place(&k, "y", &to.around, NULL);
    put_place(&k, ", at", &places.around, NULL);
    base_text_add(k.text, ", (const %s *)(", kern_word(y->dtype));
    put_place(&k, "x", &l.around, NULL);
    base_text_add(k.text, "), %" PRId64 ", %" PRId64 ", %" PRId64 "};\n",
                  to.step, places.step, l.step);
    put_scan(&k, &l, name, props);
    return AIR_OK;
}

/* cummax(self, dim) */
air_status
kern_cummax(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_running_best(call, props, out, true);
}

/* cummin(self, dim) */
air_status
kern_cummin(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_running_best(call, props, out, false);
}

/* ---- the place of the greatest or least ---------------------------------- */

typedef struct {
    line l;
    const air_tensor *values, *at; /* values: NULL, nobody asks */
    int64_t parts;                 /* blocks of an axis */
    int threads;                   /* of an axis, or of a part */
    char fold[64];
} search;

/* Without an axis it is all of the tensor, in row-major order. */
static line
flat(const air_tensor *x)
{
    line l = {.x = x, .around = *x, .count = kern_numel(x), .step = 1};
    l.around.rank = 0;
    return l;
}

static search
search_of(const air_call *call, bool most)
{
    const air_tensor *x = call->args[0].t;
    const bool all = call->args[1].kind == AIR_ARG_NONE;
    search s = {.l = all ? flat(x) : line_of(x, kern_int(call, 1, 0)),
                .at = &call->outs[call->nouts - 1],
                .parts = 1};
    s.values = call->nouts > 1 ? &call->outs[0] : NULL;
    s.threads = threads_of(&s.l);
    if (s.threads == KERN_THREADS && s.l.count > PART &&
        kern_numel(&s.l.around) < FEW)
        s.parts = (s.l.count + PART - 1) / PART;
    s.parts = s.parts < MOST_PARTS ? s.parts : MOST_PARTS;
    name_best(s.fold, sizeof s.fold, x->dtype, most, false);
    return s;
}

bool
kern_best_on(const air_call *call, const cuda_props *props)
{
    const air_tensor *x = call->args[0].t;
    const bool all = call->args[1].kind == AIR_ARG_NONE;
    return kern_has_dtype(x->dtype, props) && (!all || driver_is_dense(x));
}

/* Of one axis; a place is two words of 8 bytes. */
size_t
kern_best_workspace(const air_call *call, const cuda_props *props)
{
    const search s = search_of(call, true);
    (void)props;
    if (s.parts == 1)
        return 0;
    return (size_t)(kern_numel(&s.l.around) * s.parts) * 2 * sizeof(int64_t);
}

static void
put_parts(kern *k, const search *s)
{
    base_text_add(k->text, "%sPlace<%s> *parts", k->some ? ", " : "",
                  folds_in(s->l.x->dtype));
    k->some = true;
    cuda_add_workspace(k->launch, 0);
}

/* The first launch: each block has a part of an axis. */
static void
find_parts(cuda_source *out, const search *s, const cuda_props *props)
{
    const air_tensor *around = &s->l.around;
    const int64_t part = (s->l.count + s->parts - 1) / s->parts;
    int64_t dims[AIR_MAX_RANK + 1];
    for (int i = 0; i < around->rank; i++)
        dims[i] = around->dims[i];
    dims[around->rank] = s->parts;
    kern k = kern_begin(out, kern_text_scan, "");
    put_parts(&k, s);
    kern_tensor(&k, kern_type(s->l.x->dtype), "x", s->l.x);
    kern_body(&k);
    kern_groups(&k, dims, around->rank + 1, KERN_THREADS);
    base_text_add(k.text, "        const s64 begin = c%d * %" PRId64 ";\n",
                  around->rank, part);
    base_text_add(k.text, "        const auto found = find_together<%s>(x",
                  s->fold);
    kern_at(&k, around, NULL);
    base_text_add(k.text,
                  ", begin, least(begin + %" PRId64 ", %" PRId64 "), %" PRId64
                  ");\n        if (threadIdx.x == 0)\n"
                  "            parts[n] = found;\n",
                  part, s->l.count, s->l.step);
    kern_end(&k, kern_numel(around) * s->parts * KERN_THREADS, props);
}

static void
put_found(kern *k, const search *s)
{
    int axes[AIR_MAX_RANK];
    const bool dropped = s->at->rank < s->l.around.rank;
    for (int i = 0; i < s->at->rank; i++)
        axes[i] = i + (dropped && i >= s->l.axis);
    if (s->threads > 1)
        base_text_add(k->text,
                      "        if (threadIdx.x %% %d > 0)\n"
                      "            continue;\n",
                      s->threads);
    put_place(k, "        at[0", s->at, axes);
    base_text_add(k->text, "] = found.at;\n");
    if (!s->values)
        return;
    put_place(k, "        y[0", s->values, axes);
    base_text_add(k->text, "] = x[found.at * %" PRId64, s->l.step);
    kern_at(k, &s->l.around, NULL);
    base_text_add(k->text, "];\n");
}

static void
put_search(kern *k, const search *s)
{
    if (s->parts > 1) {
        base_text_add(k->text,
                      "        const auto found = find_in_parts<%s>(parts + n "
                      "* %" PRId64 ", %" PRId64 ");\n",
                      s->fold, s->parts, s->parts);
        return;
    }
    base_text_add(k->text, "        const auto found = find_%s<%s>(x",
                  by(s->threads), s->fold);
    kern_at(k, &s->l.around, NULL);
    base_text_add(k->text, ", 0, %" PRId64 ", %" PRId64 ");\n", s->l.count,
                  s->l.step);
}

static air_status
print_best(const air_call *call, const cuda_props *props, cuda_source *out,
           bool most)
{
    const search s = search_of(call, most);
    if (s.parts > 1)
        find_parts(out, &s, props);
    kern k = kern_begin(out, kern_text_scan, "");
    kern_tensor(&k, "s64", "at", s.at);
    if (s.values)
        kern_tensor(&k, kern_type(s.l.x->dtype), "y", s.values);
    if (s.parts > 1)
        put_parts(&k, &s);
    kern_tensor(&k, kern_type(s.l.x->dtype), "x", s.l.x);
    begin_lines(&k, &s.l);
    put_search(&k, &s);
    put_found(&k, &s);
    end_lines(&k, &s.l, props);
    return AIR_OK;
}

/* argmax(self, dim?, keepdim), max.dim(self, dim, keepdim) */
air_status
kern_argmax(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_best(call, props, out, true);
}

/* argmin(self, dim?, keepdim), min.dim(self, dim, keepdim) */
air_status
kern_argmin(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_best(call, props, out, false);
}
