/* kernels_loss.c: nll_loss. Rows are samples of self [N, C] or [C]. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"

enum { NONE, MEAN, SUM }; /* `reduction` */

typedef struct {
    ref_tensor self, target, weight;
    int64_t rows, classes, reduction, ignore;
} loss;

/* Arguments from `at`: self, target, weight, reduction, ignore_index. */
static loss
loss_make(const air_call *call, int at, const air_task *task)
{
    loss l = {.self = ref_arg(call, at, task),
              .target = ref_arg(call, at + 1, task),
              .weight = ref_arg(call, at + 2, task),
              .reduction = ref_int(call, at + 3, MEAN),
              .ignore = ref_int(call, at + 4, -100)};
    l.rows = l.self.rank == 2 ? l.self.dims[0] : 1;
    l.classes = l.self.dims[l.self.rank - 1];
    return l;
}

/* Class of row i, -1: ignored or (raised) out of range. */
static int64_t
class_of(const loss *l, int64_t i, const air_task *task)
{
    int64_t stride = l->target.rank > 0 ? l->target.strides[0] : 0;
    int64_t c = ref_get_int(l->target.dtype, l->target.data + i * stride);
    if (c == l->ignore)
        return -1;
    if (c >= 0 && c < l->classes)
        return c;
    air_raise(task, c, l->classes);
    return -1;
}

static double
weight_of(const loss *l, int64_t c)
{
    return l->weight.data == NULL
               ? 1
               : ref_get(l->weight.dtype,
                         l->weight.data + c * l->weight.strides[0]);
}

/* Element (i, c) of a tensor [N, C] or [C]. */
static char *
at_row(const ref_tensor *t, int64_t i, int64_t c)
{
    return t->data + (t->rank == 2 ? i * t->strides[0] : 0) +
           c * t->strides[t->rank - 1];
}

/* nll_loss_forward(self, target, weight, reduction, ignore_index)
 * -> (output, total_weight) */
void
ref_nll_loss_forward(const air_call *call, const air_task *task)
{
    loss l = loss_make(call, 0, task);
    ref_tensor out = ref_out(call, 0, task), total = ref_out(call, 1, task);
    bool each = l.reduction == NONE && l.self.rank == 2;
    double sum = 0, weights = 0;
    if (task->id != 0)
        return;
    for (int64_t i = 0; i < l.rows; i++) {
        int64_t c = class_of(&l, i, task);
        double w = c < 0 ? 0 : weight_of(&l, c);
        double x =
            c < 0 ? 0 : -w * ref_get(l.self.dtype, at_row(&l.self, i, c));
        sum += x;
        weights += w;
        if (each)
            ref_put(out.dtype, out.data + i * out.strides[0], x);
    }
    if (each)
        weights = 0;
    else
        ref_put(out.dtype, out.data, l.reduction == MEAN ? sum / weights : sum);
    ref_put(total.dtype, total.data, weights);
}

/* nll_loss_backward(grad_output, self, target, weight, reduction,
 * ignore_index, total_weight) */
void
ref_nll_loss_backward(const air_call *call, const air_task *task)
{
    loss l = loss_make(call, 1, task);
    ref_tensor grad = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    ref_tensor total = ref_arg(call, 6, task);
    bool each = l.reduction == NONE && l.self.rank == 2;
    double scale = 1;
    if (l.reduction == MEAN)
        scale = 1 / ref_get(total.dtype, total.data);
    ref_fill(&out, 0, task);
    task->barrier(task);
    for (int64_t i = task->id; i < l.rows; i += task->count) {
        int64_t c = class_of(&l, i, task);
        const char *g = grad.data + (each ? i * grad.strides[0] : 0);
        if (c >= 0)
            ref_put(out.dtype, at_row(&out, i, c),
                    -weight_of(&l, c) * ref_get(grad.dtype, g) * scale);
    }
}
