/* kern_index.c: kernels that read or write at indices. An index out of range
 * is raised; its element is skipped, or read as 0. */
#include "driver/cuda/kern_call.h"

#include <inttypes.h>
#include <stdio.h>

static bool
is_index(const air_tensor *t)
{
    return t && !kern_is_float(t->dtype) && t->dtype != AIR_BOOL;
}

/* ---- rows that are looked up --------------------------------------------- */

/* Are neighbours of the last axis of y neighbours in x, 8 and 8 of them? */
static bool
is_by_eights(const air_tensor *y, int64_t stride)
{
    const int last = y->rank - 1;
    return last >= 0 && y->dims[last] % 8 == 0 && y->dims[last] > 0 &&
           y->strides[last] == 1 && stride == 1;
}

/* The same with 8 neighbours as one. */
static air_tensor
by_eights(const air_tensor *t)
{
    air_tensor eights = *t;
    eights.dims[t->rank - 1] /= 8;
    eights.strides[t->rank - 1] *= 8;
    return eights;
}

/* y[...] = what lies at `from` in x where ok. */
static void
print_lookup(kern *k, const air_tensor *y, bool eights, const char *from)
{
    base_text_add(k->text, eights ? "        move8(y + (0" : "        y[0");
    kern_at(k, y, NULL);
    if (eights)
        base_text_add(k->text, "), x + (%s), ok);\n", from);
    else
        base_text_add(k->text, "] = ok ? x[%s] : 0;\n", from);
}

/* ---- index.Tensor, index_put --------------------------------------------- */

/* A tensor as seen through index tensors (ref/kernels_index.c has the rules):
 * axes of the outside tensor are those of the index tensors' common shape,
 * from `at` on, and around them the axes that have no index. */
typedef struct {
    int at, rank;              /* of the common shape */
    int outside[AIR_MAX_RANK]; /* of an axis of self: axis outside, -1 */
} places;

static places
find_places(const air_call *call)
{
    const air_arg *list = &call->args[1];
    const int rank = call->args[0].t->rank;
    int first = -1, last = -1, n = 0, next = 0;
    places p = {.rank = 0};
    for (int i = 0; i < list->count; i++) {
        if (list->t[i].dtype == AIR_DTYPE_NONE)
            continue;
        p.rank = list->t[i].rank > p.rank ? list->t[i].rank : p.rank;
        first = first < 0 ? i : first;
        last = i;
        n++;
    }
    p.at = last - first + 1 == n ? first : 0;
    for (int i = 0; i < rank; i++) {
        if (next == p.at)
            next += p.rank;
        const bool indexed =
            i < list->count && list->t[i].dtype != AIR_DTYPE_NONE;
        p.outside[i] = indexed ? -1 : next++;
    }
    return p;
}

static bool
are_indices(const air_call *call)
{
    const air_arg *list = &call->args[1];
    bool some = false;
    for (int i = 0; i < list->count; i++) {
        if (list->t[i].dtype == AIR_DTYPE_NONE)
            continue;
        if (!is_index(&list->t[i]))
            return false;
        some = true;
    }
    return some;
}

bool
kern_index_on(const air_call *call, const cuda_props *props)
{
    (void)props;
    return are_indices(call);
}

/* Places that the values meet twice would need an order. */
bool
kern_index_put_on(const air_call *call, const cuda_props *props)
{
    (void)props;
    return are_indices(call) && kern_int(call, 3, 0) == 0 &&
           call->args[2].t->dtype == call->outs[0].dtype;
}

static void
add_indices(kern *k, const air_call *call)
{
    char name[16];
    for (int i = 0; i < call->args[1].count; i++) {
        const air_tensor *t = &call->args[1].t[i];
        if (t->dtype == AIR_DTYPE_NONE)
            continue;
        (void)snprintf(name, sizeof name, "i%d", i);
        kern_tensor(k, kern_type(t->dtype), name, t);
    }
    kern_fault(k);
}

/* s64 at: where in self the element lies; bool ok. */
static void
print_at(kern *k, const air_call *call, const air_tensor *self, const places *p)
{
    int axes[AIR_MAX_RANK];
    base_text_add(k->text, "        s64 at = 0, j;\n        bool ok = true;\n");
    for (int i = 0; i < self->rank; i++) {
        if (p->outside[i] >= 0) {
            base_text_add(k->text, "        at += c%d * %" PRId64 ";\n",
                          p->outside[i], self->strides[i]);
            continue;
        }
        const air_tensor *t = &call->args[1].t[i];
        for (int a = 0; a < t->rank; a++)
            axes[a] = p->at + p->rank - t->rank + a;
        base_text_add(k->text, "        j = i%d[0", i);
        kern_at(k, t, axes);
        base_text_add(k->text,
                      "];\n        ok = wrap(j, %" PRId64 ", bad) && ok;\n"
                      "        at += j * %" PRId64 ";\n",
                      self->dims[i], self->strides[i]);
    }
}

/* index.Tensor(self, indices) */
air_status
kern_index(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const places p = find_places(call);
    air_tensor y = call->outs[0], x = *call->args[0].t;
    const bool eights = x.rank > 0 && p.outside[x.rank - 1] == y.rank - 1 &&
                        is_by_eights(&y, x.strides[x.rank - 1]);
    if (eights)
        y = by_eights(&y), x = by_eights(&x);
    kern k = kern_begin(out, kern_text_common, "");
    kern_tensor(&k, kern_word(y.dtype), "y", &y);
    kern_tensor(&k, kern_word(x.dtype), "x", &x);
    add_indices(&k, call);
    kern_body(&k);
    kern_loop(&k, y.dims, y.rank);
    print_at(&k, call, &x, &p);
    print_lookup(&k, &y, eights, "at");
    kern_end(&k, kern_numel(&y), props);
    return AIR_OK;
}

/* Sizes of index(self, indices). */
static int
outside_dims(const air_call *call, const places *p, int64_t *dims)
{
    const air_tensor *self = call->args[0].t;
    int rank = p->rank;
    for (int i = 0; i < p->rank; i++)
        dims[p->at + i] = 1;
    for (int i = 0; i < self->rank; i++) {
        if (p->outside[i] >= 0) {
            dims[p->outside[i]] = self->dims[i];
            rank++;
            continue;
        }
        const air_tensor *t = &call->args[1].t[i];
        for (int a = 0; a < t->rank; a++)
            if (t->dims[a] != 1)
                dims[p->at + p->rank - t->rank + a] = t->dims[a];
    }
    return rank;
}

/* index_put(self, indices, values, accumulate) */
air_status
kern_index_put(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const air_tensor *y = &call->outs[0], *v = call->args[2].t;
    const places p = find_places(call);
    int64_t dims[2 * AIR_MAX_RANK], total = 1;
    const int rank = outside_dims(call, &p, dims);
    AIR_REQUIRE(rank <= AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "index_put: values of %d axes", rank);
    for (int i = 0; i < rank; i++)
        total *= dims[i];
    kern_print_start(out, props, call);
    kern k = kern_begin(out, kern_text_common, "");
    kern_tensor(&k, kern_word(y->dtype), "y", y);
    kern_tensor(&k, kern_word(v->dtype), "v", v);
    add_indices(&k, call);
    kern_body(&k);
    kern_loop(&k, dims, rank);
    print_at(&k, call, y, &p);
    base_text_add(k.text, "        if (ok)\n            y[at] = v[0");
    kern_at_broadcast(&k, v, rank);
    base_text_add(k.text, "];\n");
    kern_end(&k, total, props);
    return AIR_OK;
}

/* ---- one axis ------------------------------------------------------------ */

/* (self, dim, index, ...): what is read or written has self's dtype. */
bool
kern_select_on(const air_call *call, const cuda_props *props)
{
    const air_tensor *src = kern_arg(call, 3), *index = kern_arg(call, 2);
    const air_tensor *y = &call->outs[0];
    (void)props;
    return is_index(index) && index->rank > 0 && y->rank > 0 &&
           (!src || (src->dtype == y->dtype && src->rank == y->rank));
}

/* ` + j * stride + c * stride ...` of t, j at `axis`. */
static void
print_through(kern *k, const air_tensor *t, int axis)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] > 1 && i == axis)
            base_text_add(k->text, " + j * %" PRId64, t->strides[i]);
        else if (t->dims[i] > 1)
            base_text_add(k->text, " + c%d * %" PRId64, i, t->strides[i]);
}

/* y, x (NULL: none) and the index as parameters, a loop over `over`, s64 j and
 * bool ok: the index at c[axis], or, with `full`, at the whole of c. checks:
 * `inside`, or `wrap` where it may count from the end. */
static kern
begin_axis(const air_call *call, cuda_source *out, const air_tensor *x,
           const air_tensor *over, bool full, const char *checks)
{
    const air_tensor *y = &call->outs[0], *index = call->args[2].t;
    const air_tensor *self = call->args[0].t;
    const int axis = kern_axis(kern_int(call, 1, 0), self->rank);
    kern k = kern_begin(out, kern_text_common, "");
    kern_tensor(&k, x ? kern_word(y->dtype) : kern_type(y->dtype), "y", y);
    if (x)
        kern_tensor(&k, kern_word(x->dtype), "x", x);
    kern_tensor(&k, kern_type(index->dtype), "index", index);
    kern_fault(&k);
    kern_body(&k);
    kern_loop(&k, over->dims, over->rank);
    base_text_add(k.text, "        s64 j = index[0");
    kern_at(&k, index, full ? NULL : &axis);
    base_text_add(k.text,
                  "];\n        const bool ok = %s(j, %" PRId64 ", bad);\n",
                  checks, self->dims[axis]);
    return k;
}

static air_status
print_read(const air_call *call, const cuda_props *props, cuda_source *out,
           bool full)
{
    const air_tensor *y = &call->outs[0], *x = call->args[0].t;
    kern k = begin_axis(call, out, x, y, full, "inside");
    base_text_add(k.text, "        y[0");
    kern_at(&k, y, NULL);
    base_text_add(k.text, "] = ok ? x[0");
    print_through(&k, x, kern_axis(kern_int(call, 1, 0), x->rank));
    base_text_add(k.text, "] : 0;\n");
    kern_end(&k, kern_numel(y), props);
    return AIR_OK;
}

/* index_select(self, dim, index) */
air_status
kern_index_select(const air_call *call, const cuda_props *props,
                  cuda_source *out)
{
    return print_read(call, props, out, false);
}

/* gather(self, dim, index) */
air_status
kern_gather(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_read(call, props, out, true);
}

static air_status
print_write(const air_call *call, const cuda_props *props, cuda_source *out,
            const air_tensor *over, bool full)
{
    const air_tensor *y = &call->outs[0], *x = call->args[3].t;
    kern_print_start(out, props, call);
    kern k = begin_axis(call, out, x, over, full, "inside");
    base_text_add(k.text, "        if (ok)\n            y[0");
    print_through(&k, y, kern_axis(kern_int(call, 1, 0), y->rank));
    base_text_add(k.text, "] = x[0");
    kern_at(&k, x, NULL);
    base_text_add(k.text, "];\n");
    kern_end(&k, kern_numel(over), props);
    return AIR_OK;
}

/* index_copy(self, dim, index, source) */
air_status
kern_index_copy(const air_call *call, const cuda_props *props, cuda_source *out)
{
    return print_write(call, props, out, call->args[3].t, false);
}

/* scatter.src(self, dim, index, src): of src what index has sizes for. */
air_status
kern_scatter_src(const air_call *call, const cuda_props *props,
                 cuda_source *out)
{
    return print_write(call, props, out, call->args[2].t, true);
}

/* (self, dim, index, value): a number, or a tensor of one element. */
bool
kern_value_on(const air_call *call, const cuda_props *props)
{
    const air_tensor *y = &call->outs[0], *value = kern_arg(call, 3);
    return is_index(kern_arg(call, 2)) && y->rank > 0 &&
           kern_has_dtype(y->dtype, props) &&
           (!value || (value->dtype == y->dtype && kern_numel(value) == 1));
}

/* The value at the places of a loop over `over`. */
static air_status
print_value(const air_call *call, const cuda_props *props, cuda_source *out,
            const air_tensor *over, bool full, const char *checks)
{
    const air_tensor *y = &call->outs[0], *value = kern_arg(call, 3);
    kern_print_start(out, props, call);
    kern k = begin_axis(call, out, value, over, full, checks);
    if (!value)
        kern_number(&k, "value", y->dtype, &call->args[3]);
    base_text_add(k.text, "        if (ok)\n            y[0");
    print_through(&k, y, kern_axis(kern_int(call, 1, 0), y->rank));
    base_text_add(k.text, "] = %s;\n", value ? "x[0]" : "value");
    kern_end(&k, kern_numel(over), props);
    return AIR_OK;
}

/* scatter.value(self, dim, index, value) */
air_status
kern_scatter_value(const air_call *call, const cuda_props *props,
                   cuda_source *out)
{
    return print_value(call, props, out, call->args[2].t, true, "inside");
}

/* index_fill(self, dim, index, value) */
air_status
kern_index_fill(const air_call *call, const cuda_props *props, cuda_source *out)
{
    air_tensor over = call->outs[0];
    const int axis = kern_axis(kern_int(call, 1, 0), over.rank);
    over.dims[axis] = kern_numel(call->args[2].t);
    return print_value(call, props, out, &over, false, "wrap");
}

/* ---- embedding ----------------------------------------------------------- */

bool
kern_embedding_on(const air_call *call, const cuda_props *props)
{
    (void)props;
    return is_index(kern_arg(call, 1));
}

/* embedding(weight, indices, ...): rows of the weight. */
air_status
kern_embedding(const air_call *call, const cuda_props *props, cuda_source *out)
{
    air_tensor y = call->outs[0], w = *call->args[0].t;
    const air_tensor *index = call->args[1].t;
    const bool eights = is_by_eights(&y, w.strides[1]);
    char from[80];
    if (eights)
        y = by_eights(&y), w = by_eights(&w);
    kern k = kern_begin(out, kern_text_common, "");
    kern_tensor(&k, kern_word(y.dtype), "y", &y);
    kern_tensor(&k, kern_word(w.dtype), "x", &w);
    kern_tensor(&k, kern_type(index->dtype), "index", index);
    kern_fault(&k);
    kern_body(&k);
    kern_loop(&k, y.dims, y.rank);
    base_text_add(k.text, "        s64 j = index[0");
    kern_at(&k, index, NULL);
    base_text_add(k.text,
                  "];\n        const bool ok = inside(j, %" PRId64 ", bad);\n",
                  w.dims[0]);
    (void)snprintf(from, sizeof from, "j * %" PRId64 " + c%d * %" PRId64,
                   w.strides[0], y.rank - 1, w.strides[1]);
    print_lookup(&k, &y, eights, from);
    /* What a first layer then reads is what later ones read. */
    if (eights && kern_bytes(y.dtype) == 2 && kern_is_float(y.dtype))
        k.launch->crossing = 1;
    kern_end(&k, kern_numel(&y), props);
    return AIR_OK;
}
