/* call.c: a CALL node's arguments, in the order of its schema. */
#include <string.h>

#include "exec/exec.h"

static void
set_tensor(const exec_maker *m, air_ref ref, air_tensor *out)
{
    const lower_place *p = &m->places[ref.id];
    const air_dtype dtype = (air_dtype)ir_val(m->g, ref)->dtype;

    out->slot = p->slot;
    out->dtype = (uint8_t)dtype;
    out->rank = (uint8_t)p->layout.rank;
    out->offset =
        p->offset + p->layout.offset * (int64_t)air_dtype_bytes(dtype);
    memcpy(out->dims, p->layout.dims, sizeof out->dims);
    memcpy(out->strides, p->layout.strides, sizeof out->strides);
}

static air_status
tensors_arg(exec_maker *m, const air_attr *attr, air_arg *out)
{
    air_tensor *t;

    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, attr->count, &t));
    for (size_t i = 0; i < attr->count; i++)
        if (attr->values[i].id != AIR_NO_REF.id)
            set_tensor(m, attr->values[i], &t[i]);
    *out = (air_arg){
        .kind = AIR_ARG_TENSORS, .count = (int32_t)attr->count, .t = t};
    return AIR_OK;
}

static air_status
ints_arg(exec_maker *m, const air_attr *attr, air_arg *out)
{
    int64_t *ints;

    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, attr->count, &ints));
    for (size_t i = 0; i < attr->count; i++)
        ints[i] = attr->kind == AIR_ATTR_BOOLS ? attr->bools[i]
                                               : m->s->dims[attr->dims[i].id];
    *out = (air_arg){
        .kind = AIR_ARG_INTS, .count = (int32_t)attr->count, .ints = ints};
    return AIR_OK;
}

static air_status
make_arg(exec_maker *m, const air_attr *attr, air_arg *out)
{
    air_tensor *t;
    void *copy;

    *out = (air_arg){.kind = AIR_ARG_NONE};
    switch (attr->kind) {
    case AIR_ATTR_NONE: break;
    case AIR_ATTR_VALUE:
        AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, 1, &t));
        set_tensor(m, attr->value, t);
        *out = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = t};
        break;
    case AIR_ATTR_VALUES: return tensors_arg(m, attr, out);
    case AIR_ATTR_INT:
        *out = (air_arg){.kind = AIR_ARG_INT, .i = m->s->dims[attr->dim.id]};
        break;
    case AIR_ATTR_BOOL:
        *out = (air_arg){.kind = AIR_ARG_INT, .i = attr->b};
        break;
    case AIR_ATTR_DTYPE:
        *out = (air_arg){.kind = AIR_ARG_INT, .i = attr->dtype};
        break;
    case AIR_ATTR_FLOAT:
        *out = (air_arg){.kind = AIR_ARG_FLOAT, .f = attr->f};
        break;
    case AIR_ATTR_INTS:
    case AIR_ATTR_BOOLS: return ints_arg(m, attr, out);
    case AIR_ATTR_FLOATS:
        AIR_TRY(base_arena_copy(&m->s->arena, attr->floats,
                                attr->count * sizeof *attr->floats, &copy));
        *out = (air_arg){.kind = AIR_ARG_FLOATS,
                         .count = (int32_t)attr->count,
                         .floats = copy};
        break;
    case AIR_ATTR_STR:
        *out = (air_arg){.kind = AIR_ARG_STR, .str = attr->str};
        break;
    }
    return AIR_OK;
}

static int64_t
tensor_bytes(const air_tensor *t)
{
    return exec_numel(t->rank, t->dims) *
           (int64_t)air_dtype_bytes((air_dtype)t->dtype);
}

static void
add_tensor(const air_tensor *t, int64_t *bytes, int64_t *longest)
{
    if (t->dtype == AIR_DTYPE_NONE)
        return;
    *bytes += tensor_bytes(t);
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] > *longest)
            *longest = t->dims[i];
}

/* Nanoseconds on one thread, roughly: bytes at 4 per ns, and for contractions
 * the flops of results x the longest operand axis at 30 per ns. Of what an
 * INDEX op picks from, or writes into in place, it touches a small part. */
static int64_t
call_cost(const ir_node *n, const air_call *call)
{
    const ir_op_info *info = ir_info(n);
    int64_t bytes = 0, longest = 1, unused = 1;

    if (info->flags & IR_RANDOM)
        return 0; /* a sequence: others could only wait for the thread */
    for (int i = info->flags & IR_INDEX ? 1 : 0; i < call->nargs; i++) {
        const air_arg *a = &call->args[i];
        int count = a->kind == AIR_ARG_TENSOR    ? 1
                    : a->kind == AIR_ARG_TENSORS ? a->count
                                                 : 0;
        for (int k = 0; k < count; k++)
            add_tensor(&a->t[k], &bytes, &longest);
    }
    for (int i = 0; i < call->nouts && !n->inplace; i++)
        add_tensor(&call->outs[i], &bytes, &unused);
    if (!(info->flags & IR_CONTRACT))
        return bytes / 4;
    return bytes / 8 +
           exec_numel(call->outs[0].rank, call->outs[0].dims) * longest / 15;
}

air_status
exec_make_call(exec_maker *m, const ir_node *n, exec_step *step)
{
    const ir_op_info *info = ir_info(n);
    air_arg *args;
    air_tensor *outs;

    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, n->nattrs, &args));
    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, n->nouts, &outs));
    for (int i = 0; i < n->nattrs; i++)
        AIR_TRY(make_arg(m, &n->attrs[i], &args[i]));
    for (int i = 0; i < n->nouts; i++)
        set_tensor(m, n->outs[i], &outs[i]);
    step->kind = EXEC_STEP_CALL;
    step->node = n;
    step->label = info->name;
    step->step.call = (air_call){
        .nargs = n->nattrs, .nouts = n->nouts, .args = args, .outs = outs};
    step->step.cost = call_cost(n, &step->step.call);
    return AIR_OK;
}
