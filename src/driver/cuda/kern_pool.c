/* kern_pool.c: the largest of windows of images [N, H, W, C], and its gradient:
 * a thread has some channels of a pixel (text/pool.cuh). */
#include "driver/cuda/kern_call.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = 16 }; /* bytes that a thread reads at once */

typedef struct {
    const air_tensor *x, *y, *at; /* at: places; NULL: nobody asks */
    const air_call *call;
    int windows; /* argument of the sizes of windows; three follow it */
} pool;

bool
kern_pool_on(const air_call *call, const cuda_props *props)
{
    const int dtype = call->args[0].t->dtype;
    return kern_is_float(dtype) && kern_has_dtype(dtype, props);
}

/* Are elements of `v` channels side by side, at multiples of them? */
static bool
comes_in(const air_tensor *t, int64_t v)
{
    bool good = t->strides[3] == 1 && t->dims[3] % v == 0;
    for (int i = 0; i < 3; i++)
        good = good && (t->dims[i] == 1 || t->strides[i] % v == 0);
    return good;
}

static int64_t
channels_of(const pool *p)
{
    const int64_t v = WIDTH / (int64_t)kern_bytes(p->x->dtype);
    const bool good = comes_in(p->x, v) && comes_in(p->y, v) &&
                      (!p->at || comes_in(p->at, v));
    return good ? v : 1;
}

static int64_t
extent(const air_tensor *t)
{
    const cuda_span span = cuda_span_of(t);
    return (span.end - span.begin) / (int64_t)kern_bytes(t->dtype);
}

/* Of an axis of windows; one number may stand for both. */
enum { SIZE, STRIDE, PADDING, DILATION, SIZES };
static int64_t
entry(const pool *p, int of, int axis)
{
    const air_arg *a = &p->call->args[p->windows + of];
    return a->ints[a->count > 1 ? axis : 0];
}

static void
put_pair(kern *k, char name, int64_t h, int64_t w)
{
    base_text_add(k->text, "%cH = %" PRId64 ", %cW = %" PRId64 ", ", name, h,
                  name, w);
}

static void
put_strides(kern *k, char name, const air_tensor *t)
{
    for (int i = 0; i < 4; i++)
        base_text_add(k->text, "%c%c = %" PRId64 ", ", name, "NHWC"[i],
                      kern_stride(t, i));
}

/* The text computes places up to a window beyond an edge. */
static const char *
index_type(const pool *p)
{
    const int64_t most = INT32_MAX / 4;
    bool near = extent(p->x) < most && extent(p->y) < most &&
                (!p->at || extent(p->at) < most);
    for (int k = 0; k < 2; k++)
        near = near && entry(p, SIZE, k) * entry(p, DILATION, k) < most &&
               entry(p, STRIDE, k) < most && entry(p, PADDING, k) < most;
    return near ? "int" : "s64";
}

/* The type of indices and the constants of the text. */
static void
put_constants(kern *k, const pool *p)
{
    static const char names[SIZES + 1] = "KSPD";
    base_text_add(k->text,
                  "    typedef %s I;\n    struct P { enum : I {\n        "
                  "H = %" PRId64 ", W = %" PRId64 ", ",
                  index_type(p), p->x->dims[1], p->x->dims[2]);
    put_pair(k, 'O', p->y->dims[1], p->y->dims[2]);
    for (int i = 0; i < SIZES; i++)
        put_pair(k, names[i], entry(p, i, 0), entry(p, i, 1));
    put_strides(k, 'X', p->x);
    put_strides(k, 'Y', p->y);
    put_strides(k, 'A', p->at ? p->at : p->y);
    base_text_add(k->text, "}; };\n");
}

/* A loop over pixels of `over`. */
static void
put_pixels(kern *k, const pool *p, const air_tensor *over, const char *what,
           const char *operands, const cuda_props *props)
{
    const int64_t v = channels_of(p);
    int64_t dims[4];
    memcpy(dims, over->dims, sizeof dims);
    dims[3] /= v;
    put_constants(k, p);
    kern_loop(k, dims, 4);
    base_text_add(k->text,
                  "        %s<%s, %" PRId64 ", P, I>(%s, (I)c0, (I)c1, (I)c2, "
                  "(I)(c3 * %" PRId64 "));\n",
                  what, kern_type(p->x->dtype), v, operands, v);
    kern_end(k, kern_numel(over) / v, props);
}

/* (self, kernel_size, stride, padding, dilation, ceil_mode): the largest, and
 * where it lies if there is a second result */
air_status
kern_pool(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const pool p = {call->args[0].t, &call->outs[0],
                    call->nouts > 1 ? &call->outs[1] : NULL, call, 1};
    const char *type = kern_type(p.x->dtype);
    kern k = kern_begin(out, kern_text_pool, "");
    kern_tensor(&k, type, "y", p.y);
    if (p.at)
        kern_tensor(&k, "s64", "at", p.at);
    kern_tensor(&k, type, "x", p.x);
    kern_body(&k);
    put_pixels(&k, &p, p.y, "largest", p.at ? "y, at, x" : "y, 0, x", props);
    return AIR_OK;
}

/* (grad, self, kernel_size, stride, padding, dilation, ceil_mode, indices) */
air_status
kern_pool_backward(const air_call *call, const cuda_props *props,
                   cuda_source *out)
{
    const pool p = {&call->outs[0], call->args[0].t, call->args[7].t, call, 2};
    const char *type = kern_type(p.x->dtype);
    kern k = kern_begin(out, kern_text_pool, "");
    kern_tensor(&k, type, "x", p.x);
    kern_tensor(&k, type, "y", p.y);
    kern_tensor(&k, "s64", "at", p.at);
    kern_body(&k);
    put_pixels(&k, &p, p.x, "largest_gradient", "x, y, at", props);
    return AIR_OK;
}
