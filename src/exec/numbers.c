/* numbers.c: integers of a call that no size depends on, such as the number of
 * a step: operands of pointwise nodes, and what tensors are filled with. They
 * are read from memory of the run, so that another value is no other
 * specialisation. A device that cannot read that memory (air_target.apart) is
 * told by value (air_rg_buf.number). What HOST nodes are told (`reads`) is part
 * of a specialisation where a device records them. */
#include <string.h>

#include "exec/exec.h"

/* By size expression. */
typedef struct {
    const ir_graph *g;
    bool records; /* the device does again what HOST nodes were told */
    bool *size;   /* a size depends on it */
    bool *loose;  /* it depends on an integer that no size depends on */
} finder;

static void
mark_all(finder *f, size_t count, const air_dim *dims)
{
    for (size_t i = 0; i < count; i++)
        f->size[dims[i].id] = true;
}

static void
mark_value(finder *f, air_ref ref)
{
    const ir_value *v = ir_val(f->g, ref);

    mark_all(f, v->rank, v->dims);
}

/* What a loop computes with may differ; what the first run computes stays. */
static bool
is_read(const ir_node *n)
{
    const ir_class cls = ir_info(n)->cls;

    return n->op != AIR_OP_HOST && !n->once &&
           (cls == IR_CLASS_POINTWISE || cls == IR_CLASS_CREATE);
}

static void
mark_node(finder *f, const ir_node *n)
{
    for (int i = 0; i < n->nouts; i++)
        if (n->outs[i].id != AIR_NO_REF.id)
            mark_value(f, n->outs[i]);
    for (int i = 0; i < n->nattrs; i++) {
        const air_attr *a = &n->attrs[i];
        if (a->kind == AIR_ATTR_INTS && (n->op != AIR_OP_HOST || f->records))
            mark_all(f, a->count, a->dims);
        if (a->kind == AIR_ATTR_INT && !is_read(n))
            mark_all(f, 1, &a->dim);
    }
}

static void
mark_sizes(finder *f)
{
    const ir_graph *g = f->g;

    for (size_t i = 0; i < g->inputs.count; i++)
        if (!g->inputs.data[i].is_int)
            mark_value(f, g->inputs.data[i].value);
    IR_FOR_EACH(g, id)
    mark_node(f, ir_node_at(g, id));
    for (size_t i = 0; i < g->results.count; i++) {
        const ir_result *r = &g->results.data[i];
        if (r->strides)
            mark_all(f, ir_val(g, r->value)->rank, r->strides);
    }
    for (size_t i = 0; i < g->equals.count; i++) {
        mark_all(f, 1, &g->equals.data[i].a);
        mark_all(f, 1, &g->equals.data[i].b);
    }
}

static bool
has_operands(const ir_dim_node *d)
{
    return d->op != IR_DIM_CONST && d->op != IR_DIM_SYMBOL;
}

/* Operands come before the expression. */
static void
spread(finder *f)
{
    const ir_graph *g = f->g;

    for (size_t i = g->dims.count; i-- > 0;) {
        const ir_dim_node *d = &g->dims.data[i];
        if (f->size[i] && has_operands(d))
            f->size[d->a] = f->size[d->b] = true;
    }
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_input *in = &g->inputs.data[i];
        if (in->is_int && g->dims.data[in->dim.id].op == IR_DIM_SYMBOL)
            f->loose[in->dim.id] = !f->size[in->dim.id];
    }
    for (size_t i = 0; i < g->dims.count; i++) {
        const ir_dim_node *d = &g->dims.data[i];
        if (has_operands(d))
            f->loose[i] = f->loose[d->a] || f->loose[d->b];
    }
}

/* The expressions that nodes read, each once. */
static void
collect(air_program *p, finder *f)
{
    IR_FOR_EACH(p->g, id)
    {
        const ir_node *n = ir_node_at(p->g, id);
        for (int i = 0; i < n->nattrs && is_read(n); i++) {
            const air_attr *a = &n->attrs[i];
            if (a->kind != AIR_ATTR_INT || !f->loose[a->dim.id])
                continue;
            p->numbers[p->nnumbers++] = a->dim.id;
            f->loose[a->dim.id] = false;
        }
    }
}

air_status
exec_numbers_find(air_program *p)
{
    base_arena scratch;
    finder f = {.g = p->g, .records = p->ctx->driver->foreign_begin != NULL};
    const size_t n = p->g->dims.count + 1;

    base_arena_init(&scratch, &p->ctx->alloc);
    air_status status = BASE_ARENA_ARRAY(&scratch, n, &f.size);
    if (status == AIR_OK)
        status = BASE_ARENA_ARRAY(&scratch, n, &f.loose);
    if (status == AIR_OK)
        status = BASE_ARENA_ARRAY(&p->arena, n, &p->numbers);
    if (status == AIR_OK) {
        mark_sizes(&f);
        spread(&f);
        for (size_t i = 0; i < p->g->inputs.count; i++) {
            ir_input *in = &p->g->inputs.data[i];
            in->loose = in->is_int && f.loose[in->dim.id];
        }
        collect(p, &f);
    }
    base_arena_deinit(&scratch);
    return status;
}

air_status
exec_numbers_place(exec_maker *m)
{
    const air_program *p = m->p;
    int32_t storage = 0;

    if (p->nnumbers == 0)
        return AIR_OK;
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, m->g->dims.count, &m->numbers));
    for (size_t i = 0; i < p->nnumbers; i++) {
        AIR_TRY(
            exec_add_storage(m, EXEC_NUMBER, sizeof(lower_number), &storage));
        m->numbers[p->numbers[i]] = storage + 1;
    }
    m->s->first_number = storage + 1 - (int32_t)p->nnumbers;
    return AIR_OK;
}

static air_status
take_symbols(exec_run *r, const air_value *inputs)
{
    const ir_graph *g = r->p->g;

    memcpy(r->symbols, r->s->symbols, g->symbols.count * sizeof *r->symbols);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_input *in = &g->inputs.data[i];
        if (!in->loose)
            continue;
        const uint32_t s = g->dims.data[in->dim.id].a;
        AIR_TRY(exec_check_symbol(g, i, &g->symbols.data[s], inputs[i].i));
        r->symbols[s] = inputs[i].i;
    }
    return AIR_OK;
}

air_status
exec_numbers_fill(exec_run *r, const air_value *inputs)
{
    const air_program *p = r->p;
    const exec_storage *first = r->s->storages.data + r->s->first_number;

    if (p->nnumbers == 0)
        return AIR_OK;
    AIR_TRY(take_symbols(r, inputs));
    for (size_t i = 0; i < p->nnumbers; i++) {
        lower_number *n = &r->numbers[i];
        AIR_TRY(ir_dim_eval(p->g, (air_dim){p->numbers[i]}, r->symbols, &n->i));
        n->d = (double)n->i;
        n->f = (float)n->d;
        n->b = n->i != 0;
        r->slots[first[i].slot] = n;
    }
    return AIR_OK;
}
