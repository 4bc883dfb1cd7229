/* kern_move.c: kernels that put elements somewhere else, none computed: a
 * thread for each element that is written, its index in c0, c1, ... */
#include "driver/cuda/kern_call.h"

#include <inttypes.h>
#include <stdio.h>

bool
kern_any(const air_call *call, const cuda_props *props)
{
    (void)call, (void)props;
    return true;
}

/* to = from, broadcast, of one dtype. */
static void
print_copy(cuda_source *out, const cuda_props *props, const air_tensor *to,
           const air_tensor *from)
{
    const char *word = kern_word(to->dtype);
    kern k = kern_begin(out, kern_text_common, "");
    kern_tensor(&k, word, "y", to);
    kern_tensor(&k, word, "x", from);
    kern_body(&k);
    kern_loop(&k, to->dims, to->rank);
    base_text_add(k.text, "        y[0");
    kern_at(&k, to, NULL);
    base_text_add(k.text, "] = x[0");
    kern_at_broadcast(&k, from, to->rank);
    base_text_add(k.text, "];\n");
    kern_end(&k, kern_numel(to), props);
}

void
kern_print_start(cuda_source *out, const cuda_props *props,
                 const air_call *call)
{
    if (!kern_same_place(&call->outs[0], call->args[0].t))
        print_copy(out, props, &call->outs[0], call->args[0].t);
}

/* ---- a part of a tensor -------------------------------------------------- */

static int64_t
clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* slice_scatter(self, src, dim, start, end, step) */
air_status
kern_slice_scatter(const air_call *call, const cuda_props *props,
                   cuda_source *out)
{
    const air_tensor *src = call->args[1].t;
    air_tensor y = call->outs[0];
    const int axis = kern_axis(kern_int(call, 2, 0), y.rank);
    const int64_t size = y.dims[axis];
    int64_t begin = kern_int(call, 3, 0);
    begin = clamp(begin < 0 ? begin + size : begin, 0, size);
    y.offset += begin * y.strides[axis] * (int64_t)kern_bytes(y.dtype);
    y.strides[axis] *= kern_int(call, 5, 1);
    y.dims[axis] = src->dims[axis];
    kern_print_start(out, props, call);
    print_copy(out, props, &y, src);
    return AIR_OK;
}

/* select_scatter(self, src, dim, index) */
air_status
kern_select_scatter(const air_call *call, const cuda_props *props,
                    cuda_source *out)
{
    air_tensor y = call->outs[0];
    const int axis = kern_axis(kern_int(call, 2, 0), y.rank);
    int64_t index = kern_int(call, 3, 0);
    index += index < 0 ? y.dims[axis] : 0;
    AIR_REQUIRE(index >= 0 && index < y.dims[axis], AIR_ERROR_ARGUMENT,
                "select_scatter: index %" PRId64 " of %" PRId64, index,
                y.dims[axis]);
    y.offset += index * y.strides[axis] * (int64_t)kern_bytes(y.dtype);
    for (int i = axis; i + 1 < y.rank; i++) {
        y.dims[i] = y.dims[i + 1];
        y.strides[i] = y.strides[i + 1];
    }
    y.rank--;
    kern_print_start(out, props, call);
    print_copy(out, props, &y, call->args[1].t);
    return AIR_OK;
}

/* as_strided_scatter(self, src, size, stride, storage_offset): as if the memory
 * of the result began where its storage does. */
air_status
kern_as_strided_scatter(const air_call *call, const cuda_props *props,
                        cuda_source *out)
{
    const air_tensor *src = call->args[1].t;
    air_tensor y = *src;
    y.slot = call->outs[0].slot;
    y.offset = call->outs[0].offset +
               kern_int(call, 4, 0) * (int64_t)kern_bytes(y.dtype);
    for (int i = 0; i < y.rank; i++)
        y.strides[i] = call->args[3].ints[i];
    kern_print_start(out, props, call);
    print_copy(out, props, &y, src);
    return AIR_OK;
}

/* diagonal_scatter(self, src, offset, dim1, dim2) */
air_status
kern_diagonal_scatter(const air_call *call, const cuda_props *props,
                      cuda_source *out)
{
    const air_tensor *src = call->args[1].t, *all = &call->outs[0];
    const int64_t by = kern_int(call, 2, 0);
    const int one = kern_axis(kern_int(call, 3, 0), all->rank);
    const int two = kern_axis(kern_int(call, 4, 1), all->rank);
    air_tensor y = *all;
    y.offset += (by < 0 ? -by * all->strides[one] : by * all->strides[two]) *
                (int64_t)kern_bytes(y.dtype);
    y.rank = 0;
    for (int i = 0; i < all->rank; i++)
        if (i != one && i != two)
            y.strides[y.rank++] = all->strides[i];
    y.strides[y.rank++] = all->strides[one] + all->strides[two];
    for (int i = 0; i < y.rank; i++)
        y.dims[i] = src->dims[i];
    kern_print_start(out, props, call);
    print_copy(out, props, &y, src);
    return AIR_OK;
}

/* ---- one loop over the result -------------------------------------------- */

/* y[c] = x[...], opened up to `x[0`. */
static kern
begin_move(cuda_source *out, const air_call *call)
{
    const air_tensor *y = &call->outs[0], *x = call->args[0].t;
    const char *word = kern_word(y->dtype);
    kern k = kern_begin(out, kern_text_common, "");
    kern_tensor(&k, word, "y", y);
    kern_tensor(&k, word, "x", x);
    kern_body(&k);
    kern_loop(&k, y->dims, y->rank);
    base_text_add(k.text, "        %s *p = y", word);
    kern_at(&k, y, NULL);
    base_text_add(k.text, ";\n");
    return k;
}

/* flip(self, dims) */
air_status
kern_flip(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const air_tensor *x = call->args[0].t;
    bool back[AIR_MAX_RANK] = {false};
    for (int i = 0; i < call->args[1].count; i++)
        back[kern_axis(call->args[1].ints[i], x->rank)] = true;
    kern k = begin_move(out, call);
    base_text_add(k.text, "        *p = x[0");
    for (int i = 0; i < x->rank; i++)
        base_text_add(k.text,
                      back[i] ? " + (%" PRId64 " - c%d) * %" PRId64
                              : " + (%" PRId64 " + c%d) * %" PRId64,
                      back[i] ? x->dims[i] - 1 : 0, i, x->strides[i]);
    base_text_add(k.text, "];\n");
    kern_end(&k, kern_numel(&call->outs[0]), props);
    return AIR_OK;
}

static air_status
triangle(const air_call *call, const cuda_props *props, cuda_source *out,
         const char *keeps)
{
    const air_tensor *y = &call->outs[0];
    kern k = begin_move(out, call);
    base_text_add(k.text, "        *p = c%d - c%d %s %" PRId64 " ? x[0",
                  y->rank - 1, y->rank - 2, keeps, kern_int(call, 1, 0));
    kern_at(&k, call->args[0].t, NULL);
    base_text_add(k.text, "] : 0;\n");
    kern_end(&k, kern_numel(y), props);
    return AIR_OK;
}

/* tril(self, diagonal) */
air_status
kern_tril(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return triangle(call, props, out, "<=");
}

/* triu(self, diagonal) */
air_status
kern_triu(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return triangle(call, props, out, ">=");
}

/* ---- what lies around a tensor ------------------------------------------- */

/* Elements of `pad` in front of those of axis `axis`; pairs begin at the last
 * axis. */
static int64_t
before(const air_call *call, int axis)
{
    const int k = 2 * (call->outs[0].rank - 1 - axis);
    return k < call->args[1].count ? call->args[1].ints[k] : 0;
}

static bool
is_padded(const air_call *call, int axis)
{
    return before(call, axis) != 0 ||
           call->outs[0].dims[axis] != call->args[0].t->dims[axis];
}

static void
put_from(kern *k, const air_tensor *x)
{
    base_text_add(k->text, "x[0");
    for (int i = 0; i < x->rank; i++)
        if (x->dims[i] > 1)
            base_text_add(k->text, " + i%d * %" PRId64, i, x->strides[i]);
    base_text_add(k->text, "]");
}

bool
kern_pad_on(const air_call *call, const cuda_props *props)
{
    return kern_has_dtype(call->outs[0].dtype, props);
}

/* constant_pad_nd(self, pad, value): negative numbers crop. */
air_status
kern_pad(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const air_tensor *y = &call->outs[0], *x = call->args[0].t;
    const air_arg none = {.kind = AIR_ARG_FLOAT, .f = 0};
    const bool some = call->args[2].kind != AIR_ARG_NONE;
    kern k = kern_begin(out, kern_text_common, "");
    kern_tensor(&k, kern_type(y->dtype), "y", y);
    kern_tensor(&k, kern_type(x->dtype), "x", x);
    kern_body(&k);
    kern_loop(&k, y->dims, y->rank);
    base_text_add(k.text, "        bool ok = true;\n");
    for (int i = 0; i < y->rank; i++) {
        base_text_add(k.text, "        const s64 i%d = c%d - %" PRId64 ";\n", i,
                      i, before(call, i));
        if (is_padded(call, i))
            base_text_add(k.text,
                          "        ok = ok && i%d >= 0 && i%d < %" PRId64 ";\n",
                          i, i, x->dims[i]);
    }
    kern_number(&k, "value", y->dtype, some ? &call->args[2] : &none);
    base_text_add(k.text, "        y[0");
    kern_at(&k, y, NULL);
    base_text_add(k.text, "] = ok ? ");
    put_from(&k, x);
    base_text_add(k.text, " : value;\n");
    kern_end(&k, kern_numel(y), props);
    return AIR_OK;
}

/* Elements beyond an edge are the mirrored ones inside, or the edge. */
static air_status
print_edges(const air_call *call, const cuda_props *props, cuda_source *out,
            bool mirrored)
{
    const air_tensor *x = call->args[0].t;
    kern k = begin_move(out, call);
    for (int i = 0; i < x->rank; i++) {
        const int64_t last = x->dims[i] - 1;
        base_text_add(k.text, "        s64 i%d = c%d - %" PRId64 ";\n", i, i,
                      before(call, i));
        if (!is_padded(call, i))
            continue;
        if (mirrored)
            base_text_add(k.text,
                          "        i%d = i%d < 0 ? -i%d : i%d;\n"
                          "        i%d = i%d > %" PRId64 " ? %" PRId64
                          " - i%d : i%d;\n",
                          i, i, i, i, i, i, last, 2 * last, i, i);
        else
            base_text_add(k.text,
                          "        i%d = i%d < 0 ? 0 : i%d > %" PRId64
                          " ? %" PRId64 " : i%d;\n",
                          i, i, i, last, last, i);
    }
    base_text_add(k.text, "        *p = ");
    put_from(&k, x);
    base_text_add(k.text, ";\n");
    kern_end(&k, kern_numel(&call->outs[0]), props);
    return AIR_OK;
}

/* reflection_pad1d .. 3d(self, pad) */
air_status
kern_reflection_pad(const air_call *call, const cuda_props *props,
                    cuda_source *out)
{
    return print_edges(call, props, out, true);
}

/* replication_pad1d .. 3d(self, pad) */
air_status
kern_replication_pad(const air_call *call, const cuda_props *props,
                     cuda_source *out)
{
    return print_edges(call, props, out, false);
}
