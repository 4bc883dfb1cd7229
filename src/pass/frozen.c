/* frozen.c: what is made of frozen inputs alone (AIR_INPUT_FROZEN).
 *
 * Pass once marks its nodes: they run at the first run, what others read of
 * them is kept. Pass frozen makes more of them: behind a convolution
 *     y = conv(x, w, b) * scale + shift        one number each a channel
 * becomes conv(x, w * scale, b * scale + shift), where all but x are frozen. */
#include <string.h>

#include "pass/build.h"
#include "pass/group.h"

/* What is kept may be so many times what it was made of: reading it again
 * must not cost more than making it. */
#define GROWTH_MAX 4

typedef struct {
    ir_graph *g;
    bool *frozen; /* by value: made of frozen inputs alone */
    bool *taken;  /* by value: somebody else may see or write its memory */
} finder;

/* ---- which values -------------------------------------------------------- */

static void
take_operand(void *arg, air_ref *ref)
{
    finder *f = arg;

    f->taken[ref->id] = f->taken[pass_root(f->g, *ref).id] = true;
}

/* Results, what HOST nodes get, and what is written in place. */
static void
find_taken(finder *f)
{
    for (size_t i = 0; i < f->g->results.count; i++)
        take_operand(f, &f->g->results.data[i].value);
    IR_FOR_EACH(f->g, id)
    {
        ir_node *n = ir_node_at(f->g, id);
        if (n->op == AIR_OP_HOST || ir_info(n)->cls == IR_CLASS_EFFECT)
            ir_each_operand(NULL, n, take_operand, f);
        else if (n->inplace)
            take_operand(f, &n->attrs[0].value);
    }
}

static bool
is_fixed(const ir_graph *g, const air_attr *a)
{
    int64_t v;

    if (a->kind == AIR_ATTR_INT)
        return ir_dim_is_const(g, a->dim, &v);
    for (size_t i = 0; a->kind == AIR_ATTR_INTS && i < a->count; i++)
        if (!ir_dim_is_const(g, a->dims[i], &v))
            return false;
    return true;
}

typedef struct {
    const finder *f;
    const ir_node *node;
    bool all;    /* operands are frozen, or numbers that a region has in it */
    bool one;    /* some operand is frozen */
    double read; /* bytes of these */
} operands;

static double
bytes_of(const ir_graph *g, air_ref r)
{
    int64_t count;

    return pass_count_of(g, r, &count)
               ? (double)count *
                     (double)air_dtype_bytes((air_dtype)ir_val(g, r)->dtype)
               : -1;
}

static void
look_at(void *arg, air_ref *ref)
{
    operands *o = arg;
    const ir_graph *g = o->f->g;
    const uint32_t node = ir_val(g, *ref)->node;
    const ir_class cls = (ir_class)ir_info(o->node)->cls;

    if (o->f->frozen[ref->id]) {
        const double whole = bytes_of(g, pass_root(g, *ref));
        const double seen = bytes_of(g, *ref);
        o->one = true;
        o->read += seen < whole ? seen : whole;
        return;
    }
    o->all &= (cls == IR_CLASS_POINTWISE || cls == IR_CLASS_REDUCE) &&
              node != IR_NO_NODE && group_is_constant(g, ir_node_at(g, node));
}

static bool
is_pure(const ir_node *n)
{
    const ir_op_info *info = ir_info(n);

    return !n->inplace && !(info->flags & (IR_RANDOM | IR_DATA_SHAPE)) &&
           (info->cls == IR_CLASS_POINTWISE || info->cls == IR_CLASS_REDUCE ||
            info->cls == IR_CLASS_CALL || info->cls == IR_CLASS_VIEW);
}

static bool
is_frozen(const finder *f, ir_node *n)
{
    operands o = {.f = f, .node = n, .all = true};
    double made = 0;

    if (n->op == AIR_OP_HOST || !is_pure(n))
        return false;
    for (int i = 0; i < n->nattrs; i++)
        if (!is_fixed(f->g, &n->attrs[i]))
            return false;
    ir_each_operand(NULL, n, look_at, &o);
    for (int i = 0; i < n->nouts; i++) {
        const double bytes = bytes_of(f->g, n->outs[i]);
        if (bytes < 0 || f->taken[n->outs[i].id])
            return false;
        made += bytes;
    }
    return o.all && o.one &&
           (ir_info(n)->cls == IR_CLASS_VIEW || made <= GROWTH_MAX * o.read);
}

/* Lanes are orders of their own, and a device that the host cannot touch runs
 * in streams: nothing is kept there. */
static bool
keeps_nothing(const pass_context *ctx)
{
    if (ctx->target && ctx->target->apart)
        return true;
    IR_FOR_EACH(ctx->g, id)
    if (ir_node_at(ctx->g, id)->scope.lane)
        return true;
    return false;
}

static void
find_frozen(finder *f)
{
    for (uint32_t v = 0; v < f->g->values.count; v++)
        f->frozen[v] =
            (f->g->values.data[v].flags & AIR_INPUT_FROZEN) && !f->taken[v];
    IR_FOR_EACH(f->g, id)
    {
        ir_node *n = ir_node_at(f->g, id);
        const bool frozen = is_frozen(f, n);
        for (int i = 0; frozen && i < n->nouts; i++)
            f->frozen[n->outs[i].id] = true;
    }
}

/* ---- what is better computed where it is read ---------------------------- */

typedef struct {
    const ir_graph *g;
    bool *narrow; /* by value: a region that is run each time reads it */
} readers;

static bool
is_fusable(const ir_node *n)
{
    const ir_class cls = (ir_class)ir_info(n)->cls;

    return n->op != AIR_OP_HOST &&
           (cls == IR_CLASS_POINTWISE || cls == IR_CLASS_REDUCE ||
            cls == IR_CLASS_VIEW);
}

static void
mark_read(void *arg, air_ref *ref)
{
    readers *r = arg;
    const air_dtype dtype = (air_dtype)ir_val(r->g, *ref)->dtype;

    r->narrow[ref->id] |= dtype == AIR_BF16 || dtype == AIR_F16;
}

/* A region has what it computes in f32; in memory it would be rounded. Readers
 * come after what they read. */
static void
drop_rounded(finder *f, bool *narrow)
{
    readers r = {f->g, narrow};

    for (uint32_t id = f->g->last; id != IR_NO_NODE;
         id = ir_node_at(f->g, id)->prev) {
        ir_node *n = ir_node_at(f->g, id);
        if (n->nouts == 0 || !is_fusable(n))
            continue;
        for (int i = 0; i < n->nouts; i++)
            if (narrow[n->outs[i].id])
                f->frozen[n->outs[0].id] = false;
        if (f->frozen[n->outs[0].id])
            continue;
        ir_each_operand(NULL, n, mark_read, &r);
    }
}

/* frozen stays NULL where no input is. */
static air_status
make_finder(pass_context *ctx, finder *f)
{
    const size_t count = ctx->g->values.count + 1;
    bool any = false;

    *f = (finder){.g = ctx->g};
    for (size_t i = 0; i < ctx->g->inputs.count; i++)
        any |= !ctx->g->inputs.data[i].is_int &&
               (ir_val(ctx->g, ctx->g->inputs.data[i].value)->flags &
                AIR_INPUT_FROZEN);
    if (!any || keeps_nothing(ctx))
        return AIR_OK;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, count, &f->frozen));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, count, &f->taken));
    find_taken(f);
    find_frozen(f);
    return AIR_OK;
}

/* In exact mode regions round as eager does wherever it stores. */
static air_status
keep_roundings(pass_context *ctx, finder *f)
{
    bool *narrow;

    if (!f->frozen || pass_exact(ctx))
        return AIR_OK;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, ctx->g->values.count + 1, &narrow));
    drop_rounded(f, narrow);
    return AIR_OK;
}

air_status
pass_once(pass_context *ctx)
{
    finder f;

    AIR_TRY(make_finder(ctx, &f));
    AIR_TRY(keep_roundings(ctx, &f));
    IR_FOR_EACH(ctx->g, id)
    {
        ir_node *n = ir_node_at(ctx->g, id);
        n->once = f.frozen && n->nouts > 0 && f.frozen[n->outs[0].id] &&
                  pass_allow(ctx);
    }
    return AIR_OK;
}

/* ---- factors of channels ------------------------------------------------- */

typedef struct {
    finder f;
    size_t known;   /* values that it knows */
    uint32_t *uses; /* by value */
} folder;

static bool
is_known(const folder *k, air_ref r)
{
    return r.id < k->known && k->f.frozen[r.id];
}

/* The vector of one number a channel that r, [1, C, 1, 1] or [C, 1, 1], is a
 * view of: AIR_NO_REF where it is none. */
static bool
is_of_channels(const ir_graph *g, air_ref r, int rank, air_dim channels)
{
    const ir_value *v = ir_val(g, r);
    const int first = rank - v->rank;

    if (v->rank < rank - 1 || v->rank > rank)
        return false;
    for (int i = 0; i < v->rank; i++)
        if (i + first == 1 ? !ir_dim_eq(v->dims[i], channels)
                           : !group_is_unit(g, v->dims[i]))
            return false;
    return true;
}

/* A convolution of f32, not transposed, that only this node reads. In less than
 * f32 the weights would be rounded once more than eager's. */
static const ir_node *
find_convolution(const folder *k, air_ref r)
{
    const ir_node *c = pass_made_by(k->f.g, r, "convolution");

    if (!c || r.id >= k->known || k->uses[r.id] != 1 ||
        ir_val(k->f.g, r)->dtype != AIR_F32 || c->attrs[6].b ||
        ir_val(k->f.g, c->attrs[1].value)->dtype != AIR_F32 ||
        !is_known(k, c->attrs[1].value) ||
        (c->attrs[2].kind == AIR_ATTR_VALUE && !is_known(k, c->attrs[2].value)))
        return NULL;
    return c;
}

static bool
is_factor(const folder *k, const ir_node *c, const air_attr *a)
{
    const ir_value *y = ir_val(k->f.g, c->outs[0]);

    return a->kind == AIR_ATTR_VALUE && is_known(k, a->value) &&
           ir_val(k->f.g, a->value)->dtype == AIR_F32 &&
           is_of_channels(k->f.g, a->value, y->rank, y->dims[1]);
}

static air_status
write_folded(pass_context *ctx, uint32_t node, const ir_node *c, air_ref scale,
             air_ref shift)
{
    pass_build b = build_at(ctx, node);
    const ir_value *w = ir_val(b.g, c->attrs[1].value);
    const air_dim channels = w->dims[0];
    const int rank = w->rank;
    air_attr attrs[9]; /* c and w move as nodes are added */
    air_dim along[AIR_MAX_RANK];

    memcpy(attrs, c->attrs, sizeof attrs);
    along[0] = channels;
    for (int i = 1; i < rank; i++)
        along[i] = b_dim(&b, 1);
    air_ref factor = b_view(&b, scale, rank, along);
    air_ref term = b_view(&b, shift, 1, &channels);
    if (attrs[2].kind == AIR_ATTR_VALUE)
        term = b_fma(&b, attrs[2].value, b_view(&b, scale, 1, &channels), term);
    attrs[1] = at_value(b_mul(&b, attrs[1].value, factor));
    attrs[2] = at_value(term);
    air_ref y = b_op(&b, "convolution", 9, attrs);
    AIR_TRY(b.status);
    return build_forward(&b, node, 0, y);
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const folder *k = arg;
    const ir_node *n = ir_node_at(ctx->g, node);
    const ir_node *c;

    if (n->op == AIR_OP_HOST || strcmp(ir_info(n)->name, "prims::fma") != 0 ||
        n->attrs[0].kind != AIR_ATTR_VALUE ||
        !(c = find_convolution(k, n->attrs[0].value)) ||
        !is_factor(k, c, &n->attrs[1]) || !is_factor(k, c, &n->attrs[2]) ||
        !pass_same_dims(ctx->g, n->outs[0], c->outs[0]) || !pass_allow(ctx))
        return AIR_OK;
    return write_folded(ctx, node, c, n->attrs[1].value, n->attrs[2].value);
}

air_status
pass_frozen(pass_context *ctx)
{
    folder k = {.known = ctx->g->values.count};

    AIR_TRY(make_finder(ctx, &k.f));
    if (!k.f.frozen)
        return AIR_OK;
    AIR_TRY(pass_count_uses(ctx, &k.uses));
    AIR_TRY(pass_walk(ctx, visit, &k));
    return pass_sweep(ctx);
}
