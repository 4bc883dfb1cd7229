/* touch.c: what memory a step reads and writes. */
#include "driver/cuda/touch.h"

#include "driver/cuda/kern_call.h"

static cuda_span
span_of(int32_t slot, int64_t offset, int dtype, int rank, const int64_t *dims,
        const int64_t *strides)
{
    const int64_t bytes = (int64_t)air_dtype_bytes((air_dtype)dtype);
    cuda_span s = {.slot = slot, .begin = offset, .end = offset + bytes};
    for (int i = 0; i < rank; i++) {
        const int64_t reach = (dims[i] - 1) * strides[i] * bytes;
        if (dims[i] == 0)
            return (cuda_span){.slot = slot};
        *(reach < 0 ? &s.begin : &s.end) += reach;
    }
    return s;
}

cuda_span
cuda_span_of(const air_tensor *t)
{
    return span_of(t->slot, t->offset, t->dtype, t->rank, t->dims, t->strides);
}

bool
cuda_overlap(const cuda_span *a, const cuda_span *b)
{
    return a->slot == b->slot && a->begin < b->end && b->begin < a->end;
}

bool
cuda_region_uses(const air_region *rg, unsigned op, int buf)
{
    for (int i = 0; i < rg->nnodes; i++)
        if (rg->nodes[i].op == op && rg->nodes[i].buf == buf)
            return true;
    return false;
}

bool
cuda_region_stores(const air_region *rg, int buf)
{
    return cuda_region_uses(rg, AIR_RG_STORE, buf);
}

int64_t
cuda_region_elements(const air_region *rg)
{
    int64_t n = 1;
    for (int i = 0; i < rg->rank; i++)
        n *= rg->dims[i];
    return n;
}

static cuda_span
span_of_buf(const air_region *rg, int i)
{
    const air_rg_buf *b = &rg->bufs[i];
    return b->scratch || b->number ? (cuda_span){.slot = -1}
                                   : span_of(b->slot, b->offset, b->dtype,
                                             rg->rank, rg->dims, b->strides);
}

/* Stores that lie between each other, halves of heads, count as one. */
static cuda_touch
touch_of_buf(const air_region *rg, int i)
{
    cuda_touch t = {.span = span_of_buf(rg, i),
                    .read = cuda_region_uses(rg, AIR_RG_LOAD, i),
                    .write = cuda_region_stores(rg, i),
                    .index = i};
    int64_t bytes = 0;
    for (int k = 0; t.write && k < rg->nbufs; k++) {
        const cuda_span s = span_of_buf(rg, k);
        if (!cuda_region_stores(rg, k) ||
            (k != i && !cuda_overlap(&t.span, &s)))
            continue;
        bytes += cuda_region_elements(rg) *
                 (int64_t)air_dtype_bytes((air_dtype)rg->bufs[k].dtype);
        t.span.begin = s.begin < t.span.begin ? s.begin : t.span.begin;
        t.span.end = s.end > t.span.end ? s.end : t.span.end;
    }
    t.dense = t.span.end - t.span.begin == bytes;
    return t;
}

static cuda_touch
touch_of_tensor(const air_tensor *x, int index, bool write)
{
    cuda_touch t = {.index = index};
    if (x->dtype == AIR_DTYPE_NONE)
        return t;
    t.span = cuda_span_of(x);
    t.read = !write, t.write = write;
    t.dense = t.span.end - t.span.begin ==
              kern_numel(x) * (int64_t)air_dtype_bytes((air_dtype)x->dtype);
    return t;
}

/* What is changed in place, an index_copy, keeps what it does not name. */
static bool
is_in_place(const air_call *c, const air_tensor *y)
{
    for (int a = 0; a < c->nargs; a++)
        if (c->args[a].kind == AIR_ARG_TENSOR &&
            kern_same_place(c->args[a].t, y))
            return true;
    return false;
}

bool
cuda_touch_at(const air_step *step, int i, cuda_touch *out)
{
    const air_region *rg = step->kernel->region;
    const air_call *c = &step->call;
    if (rg) {
        if (i < rg->nbufs)
            *out = touch_of_buf(rg, i);
        return i < rg->nbufs;
    }
    for (int a = 0; a < c->nargs; a++) {
        const air_arg *arg = &c->args[a];
        const int n = arg->kind == AIR_ARG_TENSOR    ? 1
                      : arg->kind == AIR_ARG_TENSORS ? arg->count
                                                     : 0;
        if (i < n) {
            *out = touch_of_tensor(&arg->t[i], a, false);
            return true;
        }
        i -= n;
    }
    if (i >= c->nouts)
        return false;
    *out = touch_of_tensor(&c->outs[i], c->nargs, true);
    out->dense = out->dense && !is_in_place(c, &c->outs[i]);
    return true;
}

bool
cuda_is_written(const air_step *steps, size_t count, const cuda_span *span)
{
    cuda_touch t;
    for (size_t s = 0; s < count; s++)
        for (int i = 0; cuda_touch_at(&steps[s], i, &t); i++)
            if (t.write && cuda_overlap(&t.span, span))
                return true;
    return false;
}

/* ---- what is left of a span ----------------------------------------------
 */

bool
cuda_remains_meet(const cuda_remains *r, const cuda_span *s)
{
    for (int i = 0; i < r->count; i++)
        if (cuda_overlap(&r->piece[i], s))
            return true;
    return false;
}

/* False: there is no room for it. */
static bool
keep(cuda_remains *r, const cuda_span *s)
{
    if (s->begin >= s->end)
        return true;
    if (r->count == CUDA_PIECES)
        return false;
    r->piece[r->count++] = *s;
    return true;
}

bool
cuda_remains_cut(cuda_remains *r, const cuda_span *s)
{
    cuda_remains left = {.count = 0};
    for (int i = 0; i < r->count; i++) {
        const cuda_span *p = &r->piece[i];
        cuda_span low = *p, high = *p;
        if (!cuda_overlap(p, s)) {
            high.begin = high.end;
        } else {
            low.end = s->begin;
            high.begin = s->end;
        }
        if (!keep(&left, &low) || !keep(&left, &high))
            return false;
    }
    *r = left;
    return true;
}
