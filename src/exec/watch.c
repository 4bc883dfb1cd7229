/* watch.c: runs that show every unit and its values (air_host.see). Steps run
 * one by one, each as a list of its own, so that no value has been overwritten
 * when it is shown; what runs is the same kernels on the same memory. */
#include <string.h>

#include "exec/exec.h"

typedef struct exec_watch {
    base_arena arena;
    air_list **lists; /* by step; NULL: HOST */
    size_t nlists;
    const char **tags;   /* of value v: those from begin[v] to begin[v + 1] */
    uint32_t *tag_begin; /* by value, and the end */
    size_t most;         /* values of one unit */
} exec_watch;

/* ---- what is kept for the runs to come ---- */

static air_status
sort_tags(exec_watch *w, const ir_graph *g)
{
    const size_t n = g->values.count;

    AIR_TRY(BASE_ARENA_ARRAY(&w->arena, g->tags.count + 1, &w->tags));
    AIR_TRY(BASE_ARENA_ARRAY(&w->arena, n + 2, &w->tag_begin));
    for (size_t i = 0; i < g->tags.count; i++)
        w->tag_begin[g->tags.data[i].value.id + 2]++;
    for (size_t i = 2; i < n + 2; i++)
        w->tag_begin[i] += w->tag_begin[i - 1];
    for (size_t i = 0; i < g->tags.count; i++)
        w->tags[w->tag_begin[g->tags.data[i].value.id + 1]++] =
            g->tags.data[i].text;
    return AIR_OK;
}

static void
count_operand(void *arg, air_ref *ref)
{
    (void)ref;
    ++*(size_t *)arg;
}

static size_t
most_values(const air_program *p)
{
    size_t most = 0;

    for (size_t u = 0; u < p->order.count; u++) {
        const exec_unit *unit = &p->order.units[u];
        size_t in = 0, out = 0;
        for (size_t i = 0; i < unit->count; i++) {
            ir_node *n = ir_node_at(p->g, unit->nodes[i]);
            ir_each_operand(NULL, n, count_operand, &in);
            out += n->nouts;
        }
        most = in > most ? in : most;
        most = out > most ? out : most;
    }
    return most;
}

static air_status
make_lists(exec_watch *w, const air_context *ctx, const exec_spec *s)
{
    air_step *alone; /* waiting for nothing: they run in order */

    AIR_TRY(BASE_ARENA_ARRAY(&w->arena, s->steps.count, &alone));
    AIR_TRY(BASE_ARENA_ARRAY(&w->arena, s->steps.count, &w->lists));
    for (; w->nlists < s->steps.count; w->nlists++) {
        const size_t i = w->nlists;
        alone[i] = s->steps.data[i].step;
        alone[i].after = NULL;
        alone[i].nafter = 0;
        if (s->steps.data[i].kind != EXEC_STEP_HOST)
            AIR_TRY(ctx->driver->list_make(ctx->device, &alone[i], 1,
                                           &w->lists[i]));
    }
    return AIR_OK;
}

static air_status
fill_watch(exec_watch *w, const air_program *p, const exec_spec *s)
{
    w->most = most_values(p);
    AIR_TRY(sort_tags(w, p->g));
    return make_lists(w, p->ctx, s);
}

/* Called under the program's mutex. */
static air_status
make_watch(air_program *p, exec_spec *s)
{
    air_status status;

    AIR_TRY(base_new(&p->ctx->alloc, sizeof(exec_watch), (void **)&s->watch));
    base_arena_init(&s->watch->arena, &p->ctx->alloc);
    status = fill_watch(s->watch, p, s);
    if (status != AIR_OK)
        exec_watch_free(p, s);
    return status;
}

void
exec_watch_free(const air_program *p, exec_spec *s)
{
    exec_watch *w = s->watch;

    if (!w)
        return;
    for (size_t i = 0; i < w->nlists; i++)
        if (w->lists[i])
            p->ctx->driver->list_free(p->ctx->device, w->lists[i]);
    base_arena_deinit(&w->arena);
    base_free(&p->ctx->alloc, w, sizeof *w);
    s->watch = NULL;
}

/* ---- values ---- */

typedef struct {
    exec_run *r;
    const exec_unit *unit;
    air_seen_value *values;
    air_seen seen;
} watcher;

static void *
data_of(const exec_run *r, air_ref ref)
{
    const lower_place *p = &r->s->places[ref.id];
    const exec_storage *t = &r->s->storages.data[p->slot];
    const size_t size = air_dtype_bytes((air_dtype)ir_val(r->p->g, ref)->dtype);

    return (char *)r->slots[t->slot] + p->offset +
           p->layout.offset * (int64_t)size + exec_slot_offset(t);
}

static void
add_value(watcher *w, air_ref ref)
{
    const ir_graph *g = w->r->p->g;
    const exec_watch *watch = w->r->s->watch;
    const ir_value *v = ir_val(g, ref);
    const lower_place *p = &w->r->s->places[ref.id];
    const ir_node *n = v->node == IR_NO_NODE ? NULL : ir_node_at(g, v->node);
    const uint32_t *begin = &watch->tag_begin[ref.id];

    if (!w->r->s->placed[ref.id])
        return;
    for (size_t i = 0; i < w->seen.count; i++)
        if (strcmp(w->values[i].name, v->name) == 0)
            return;
    w->values[w->seen.count++] =
        (air_seen_value){.name = v->name,
                         .op = !n                     ? NULL
                               : n->op == AIR_OP_HOST ? n->host_op
                                                      : ir_info(n)->name,
                         .location = n ? n->loc : NULL,
                         .tags = &watch->tags[begin[0]],
                         .ntags = begin[1] - begin[0],
                         .value = {.dtype = (air_dtype)v->dtype,
                                   .rank = p->layout.rank,
                                   .dims = p->layout.dims,
                                   .strides = p->layout.strides,
                                   .data = data_of(w->r, ref),
                                   .alias = -1}};
}

static bool
in_unit(const exec_unit *unit, uint32_t node)
{
    for (size_t i = 0; i < unit->count; i++)
        if (unit->nodes[i] == node)
            return true;
    return false;
}

static void
add_operand(void *arg, air_ref *ref)
{
    watcher *w = arg;

    if (!in_unit(w->unit, ir_val(w->r->p->g, *ref)->node))
        add_value(w, *ref);
}

static air_status
show(watcher *w, bool done)
{
    const air_host *host = w->r->host;

    w->seen.done = done;
    w->seen.count = 0;
    w->seen.values = w->values;
    for (size_t i = 0; i < w->unit->count; i++) {
        ir_node *n = ir_node_at(w->r->p->g, w->unit->nodes[i]);
        if (!done)
            ir_each_operand(NULL, n, add_operand, w);
        for (int k = 0; done && k < n->nouts; k++)
            add_value(w, n->outs[k]);
    }
    air_status status = host->see(host->user, &w->seen);
    AIR_REQUIRE(status == AIR_OK, status,
                "who watches graph %s ended the run at step %zu (%s)",
                w->r->p->g->name, w->seen.index, w->seen.label);
    return AIR_OK;
}

/* ---- units ---- */

static air_status
run_step(exec_run *r, size_t i)
{
    const exec_step *step = &r->s->steps.data[i];
    air_context *ctx = r->p->ctx;

    if (step->kind == EXEC_STEP_HOST)
        return exec_run_host(r, step);
    return ctx->driver->list_run(ctx->device, r->s->watch->lists[i], r->slots);
}

/* Copies before and after it aside. NULL: a unit without a step. */
static const exec_step *
main_step(const exec_spec *s, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (!s->steps.data[i].reason)
            return &s->steps.data[i];
    return NULL;
}

static void
describe(watcher *w, const exec_step *step)
{
    const ir_node *n = ir_node_at(w->r->p->g, w->unit->nodes[0]);
    const ir_op_info *info = ir_info(n);

    w->seen.seconds = 0;
    w->seen.once = n->once;
    w->seen.kind = w->unit->fused               ? "region"
                   : n->op == AIR_OP_HOST       ? "host"
                   : info->cls == IR_CLASS_VIEW ? "view"
                                                : "call";
    w->seen.label = step && step->label    ? step->label
                    : n->op == AIR_OP_HOST ? n->host_op
                                           : info->name;
}

/* The steps of a unit lie side by side; *at moves behind them. */
static air_status
run_unit(watcher *w, size_t *at)
{
    const exec_spec *s = w->r->s;
    const size_t begin = *at;
    double start;

    while (*at < s->steps.count && s->steps.data[*at].unit == w->unit)
        ++*at;
    describe(w, main_step(s, begin, *at));
    AIR_TRY(show(w, false));
    start = base_now();
    for (size_t i = begin; i < *at; i++)
        AIR_TRY(run_step(w->r, i));
    if (*at > begin)
        w->seen.seconds = base_now() - start;
    return show(w, true);
}

static air_status
run_units(exec_run *r, air_seen_value *values)
{
    const exec_order *order = &r->p->order;
    size_t at = 0;

    for (size_t u = 0; u < order->count; u++) {
        watcher w = {.r = r,
                     .unit = &order->units[u],
                     .values = values,
                     .seen = {.index = u}};
        AIR_TRY(run_unit(&w, &at));
    }
    for (; at < r->s->steps.count; at++) /* copies of results: of no unit */
        AIR_TRY(run_step(r, at));
    return AIR_OK;
}

air_status
exec_watch_segments(exec_run *r)
{
    const air_alloc *alloc = &r->p->ctx->alloc;
    air_seen_value *values;
    air_status status = AIR_OK;
    size_t bytes;

    pthread_mutex_lock(&r->p->mutex);
    if (!r->s->watch)
        status = make_watch(r->p, r->s);
    pthread_mutex_unlock(&r->p->mutex);
    AIR_TRY(status);
    bytes = (r->s->watch->most + 1) * sizeof *values;
    AIR_TRY(base_new(alloc, bytes, (void **)&values));
    status = run_units(r, values);
    base_free(alloc, values, bytes);
    return status;
}

/* ---- the memory plan as text ---- */

static void
print_values(const air_program *p, const exec_spec *s, size_t storage,
             base_text *out)
{
    const ir_graph *g = p->g;

    for (uint32_t v = 0; v < g->values.count; v++) {
        const char *mark = "=";
        if (!s->placed[v] || (size_t)s->places[v].slot != storage)
            continue;
        base_text_add(out, " %s", g->values.data[v].name);
        for (size_t i = 0; i < g->tags.count; i++)
            if (g->tags.data[i].value.id == v) {
                base_text_add(out, "%s%s", mark, g->tags.data[i].text);
                mark = ",";
            }
    }
}

void
exec_print_memory(const air_program *p, const exec_spec *s, base_text *out)
{
    static const char *const where[] = {
        [EXEC_ARENA] = "arena",   [EXEC_INPUT] = "input",
        [EXEC_BLOCK] = "result",  [EXEC_KEPT] = "kept",
        [EXEC_NUMBER] = "number", [EXEC_HOST] = "host",
        [EXEC_LEFT] = "left"};

    for (size_t i = 0; i < s->storages.count; i++) {
        const exec_storage *t = &s->storages.data[i];
        base_text_add(out, "%s %lld %lld %d %d", where[t->where],
                      (long long)t->offset, (long long)t->bytes, (int)t->first,
                      (int)t->last);
        print_values(p, s, i, out);
        base_text_add(out, "\n");
    }
}
