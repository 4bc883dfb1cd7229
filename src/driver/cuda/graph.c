/* graph.c: CUDA graphs: lists run between capture_begin and capture_end become
 * kernel nodes, each after the one before. Nodes are made by name, not by
 * capturing a stream: nothing of other threads or of the application can get
 * into it, and the nodes are known when pointers have to change.
 *
 * What nodes a library makes is its own affair, so that a product is captured
 * on a stream of its own and becomes a node that is a graph. When its pointers
 * change it is captured again, and the node takes that over.
 *
 * What is drawn depends on where the generator is at each launch: nodes that
 * draw are given its seed and offset then.
 *
 * What the application does between foreign_begin and foreign_end is captured
 * in the same way; it cannot be asked for again, so that its graph is kept.
 *
 * An edge is programmatic where the kernel behind it waits by itself: it begins
 * when all blocks of the one before have, asks for its weights, and then waits
 * for the end of what it follows. */
#include <string.h>

#include "driver/cuda/blas.h"

typedef struct {
    air_list *list;   /* NULL: of the application */
    cu_graph foreign; /* what it did */
    int64_t offset;   /* numbers that the parts before draw */
    size_t bytes;     /* of what follows, one block */
    cu_node *nodes;   /* by command */
    uint64_t scratch; /* its own, as the graph is not in order with others */
    uint64_t *values; /* by parameter: what the nodes have */
    uint64_t *fresh;  /* room for a patch */
    void **pointers;  /* &fresh[i] */
} part;

struct air_device_graph {
    air_alloc alloc;
    cu_graph graph;
    cu_exec exec;
    BASE_VEC(part) parts;
    int64_t draws;    /* numbers that a launch takes of each thread */
    cuda_drawn drawn; /* what its nodes have */
    cu_node last;     /* of what was recorded so far */
    cu_stream side;   /* products are captured on; NULL: there was none yet */
    bool is_siding;   /* it is being captured */
    bool stale;       /* exec is to be made again */
};

static _Thread_local struct {
    air_device *dev; /* NULL: nothing is recorded */
    air_device_graph *graph;
} recording;

/* ---- recording ---- */

static size_t
part_bytes(const air_list *list)
{
    return list->ncommands * sizeof(cu_node) +
           list->nparams * (2 * sizeof(uint64_t) + sizeof(void *));
}

static air_status
part_new(const air_device *dev, const air_alloc *alloc, air_list *list,
         part *out)
{
    void *room;
    AIR_TRY(base_new(alloc, part_bytes(list), &room));
    *out = (part){.list = list, .bytes = part_bytes(list), .nodes = room};
    if (!room)
        return AIR_OK; /* an empty list */
    const air_status status = cuda_scratch_new(dev, list, &out->scratch);
    if (status != AIR_OK) {
        base_free(alloc, room, out->bytes);
        return status;
    }
    out->values = (void *)(out->nodes + list->ncommands);
    out->fresh = out->values + list->nparams;
    out->pointers = (void *)(out->fresh + list->nparams);
    for (size_t i = 0; i < list->nparams; i++)
        out->pointers[i] = list->params[i].kind == CUDA_PARAM_VALUES
                               ? list->pointers[i]
                               : &out->fresh[i];
    return AIR_OK;
}

static cu_kernel_node
node_of(const part *p, const cuda_command *c)
{
    const air_launch *s = &c->shape;
    return (cu_kernel_node){.function = c->function,
                            .grid = {s->grid[0], s->grid[1], s->grid[2]},
                            .block = {s->block[0], s->block[1], s->block[2]},
                            .shared = s->shared,
                            .parameters = p->pointers + c->first};
}

static air_status
begin_side(air_device *dev, air_device_graph *g)
{
    if (!g->side)
        CUDA_TRY(dev, "no stream",
                 dev->cu.stream_new(&g->side, CU_STREAM_NON_BLOCKING));
    CUDA_TRY(dev, "a stream cannot be captured",
             dev->cu.stream_capture(g->side, CU_CAPTURE_THREAD));
    g->is_siding = true;
    return AIR_OK;
}

/* *out: what was given to the side stream; NULL unless status is OK. */
static air_status
end_side(air_device *dev, air_device_graph *g, air_status status, cu_graph *out)
{
    *out = NULL;
    const int code = dev->cu.stream_captured(g->side, out);
    g->is_siding = false;
    if (status == AIR_OK)
        status = cuda_check(dev, code, "a capture failed");
    if (status != AIR_OK && *out) {
        (void)dev->cu.graph_free(*out);
        *out = NULL;
    }
    return status;
}

/* *out: what a product does on a stream, as a graph. */
static air_status
capture_product(air_device *dev, air_device_graph *g, const part *p,
                const cuda_command *c, cu_graph *out)
{
    *out = NULL;
    AIR_TRY(begin_side(dev, g));
    return end_side(
        dev, g, cuda_product_run(dev, c->product, p->fresh + c->first, g->side),
        out);
}

static air_status
add_product(air_device *dev, air_device_graph *g, const part *p,
            const cuda_command *c, cu_node *out)
{
    cu_graph child;
    AIR_TRY(capture_product(dev, g, p, c, &child));
    const int code =
        dev->cu.graph_child(out, g->graph, &g->last, g->last ? 1 : 0, child);
    (void)dev->cu.graph_free(child);
    return cuda_check(dev, code, "a product cannot be added to a graph");
}

/* A command of the first list of the graph that is early follows another. */
static air_status
add_kernel(air_device *dev, air_device_graph *g, const part *p,
           const cuda_command *c, cu_node *out)
{
    const cu_edge edge = {.from_port = CU_PORT_PROGRAMMATIC,
                          .type = CU_EDGE_PROGRAMMATIC};
    const cu_kernel_node node = node_of(p, c);
    const cu_attribute together = {.cooperative = 1};
    const bool whole = g->last && !c->early;
    CUDA_TRY(
        dev, "a node cannot be added",
        dev->cu.graph_kernel(out, g->graph, &g->last, whole ? 1 : 0, &node));
    if (c->together)
        CUDA_TRY(dev, "a node cannot be persistent",
                 dev->cu.node_set(*out, CU_LAUNCH_COOPERATIVE, &together));
    if (!c->early)
        return AIR_OK;
    return cuda_check(dev,
                      dev->cu.graph_edge(g->graph, &g->last, out, &edge, 1),
                      "an edge cannot be added");
}

static air_status
add_foreign(air_device *dev, air_device_graph *g, const part *p)
{
    cu_node node;
    CUDA_TRY(dev, "what was captured cannot be added to a graph",
             dev->cu.graph_child(&node, g->graph, &g->last, g->last ? 1 : 0,
                                 p->foreign));
    g->last = node;
    return AIR_OK;
}

static cuda_drawn
drawn_before(const air_device_graph *g, const part *p)
{
    return (cuda_drawn){g->drawn.seed, g->drawn.offset + (uint64_t)p->offset};
}

static air_status
add_nodes(air_device *dev, air_device_graph *g, part *p, void *const *slots)
{
    if (!p->list)
        return add_foreign(dev, g, p);
    for (size_t i = 0; i < p->list->ncommands; i++) {
        const cuda_command *c = &p->list->commands[i];
        cuda_fill(p->list, c, slots, drawn_before(g, p), p->scratch, p->fresh);
        AIR_TRY(c->product ? add_product(dev, g, p, c, &p->nodes[i])
                           : add_kernel(dev, g, p, c, &p->nodes[i]));
        g->last = p->nodes[i];
    }
    if (p->list->nparams > 0)
        memcpy(p->values, p->fresh, p->list->nparams * sizeof *p->values);
    return AIR_OK;
}

static air_status
add_list(air_device *dev, air_device_graph *g, air_list *list,
         void *const *slots)
{
    part p;
    AIR_TRY(BASE_RESERVE(&g->alloc, &g->parts, g->parts.count + 1));
    AIR_TRY(part_new(dev, &g->alloc, list, &p));
    p.offset = g->draws;
    g->draws += list->draws;
    g->parts.data[g->parts.count++] = p;
    return add_nodes(dev, g, &g->parts.data[g->parts.count - 1], slots);
}

air_status
cuda_graph_record(air_device *dev, air_list *list, void *const *slots,
                  bool *out)
{
    *out = recording.dev == dev;
    return *out ? add_list(dev, recording.graph, list, slots) : AIR_OK;
}

/* In the device's context. */
static air_status
new_graph(air_device *dev, air_device_graph **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, sizeof(air_device_graph), &ptr));
    air_device_graph *g = ptr;
    g->alloc = dev->alloc;
    const air_status status =
        cuda_check(dev, dev->cu.graph_new(&g->graph, 0), "no graph");
    if (status != AIR_OK)
        base_free(&dev->alloc, g, sizeof *g);
    else
        *out = g;
    return status;
}

static air_status
finish(air_device *dev, air_device_graph *g)
{
    return cuda_check(dev, dev->cu.graph_make(&g->exec, g->graph, 0),
                      "a graph cannot be instantiated");
}

air_status
cuda_capture_begin(air_device *dev, air_capture_error_mode mode)
{
    air_device_graph *g;
    (void)mode; /* nothing that another thread does can come into it */
    AIR_REQUIRE(!recording.dev, AIR_ERROR_STATE,
                "this thread is capturing already");
    AIR_TRY(new_graph(dev, &g));
    recording.dev = dev;
    recording.graph = g;
    return AIR_OK;
}

/* ---- what the application does meanwhile ---- */

air_status
cuda_foreign_begin(air_device *dev, void **out_stream)
{
    cuda_entered was;
    *out_stream = NULL;
    AIR_REQUIRE(recording.dev == dev, AIR_ERROR_STATE,
                "this thread is not capturing");
    AIR_TRY(cuda_enter(dev, &was));
    const air_status status = begin_side(dev, recording.graph);
    cuda_leave(dev, &was);
    if (status == AIR_OK)
        *out_stream = recording.graph->side;
    return status;
}

/* The graph is the part's as soon as there is room for one. */
static air_status
take_foreign(air_device *dev, air_device_graph *g, bool keep)
{
    cu_graph found;
    const cu_node last = g->last;
    AIR_TRY(end_side(dev, g, AIR_OK, &found));
    air_status status =
        keep ? BASE_RESERVE(&g->alloc, &g->parts, g->parts.count + 1) : AIR_OK;
    if (!keep || status != AIR_OK) {
        (void)dev->cu.graph_free(found);
        return status;
    }
    const part p = {.foreign = found};
    status = add_foreign(dev, g, &p);
    if (status == AIR_OK)
        g->parts.data[g->parts.count++] = p;
    else {
        g->last = last;
        (void)dev->cu.graph_free(found);
    }
    return status;
}

/* The side stream is captured no longer, whatever fails. */
air_status
cuda_foreign_end(air_device *dev, bool keep)
{
    cuda_entered was;
    AIR_REQUIRE(recording.dev == dev, AIR_ERROR_STATE,
                "this thread is not capturing");
    const air_status entered = cuda_enter(dev, &was);
    const air_status taken =
        take_foreign(dev, recording.graph, keep && entered == AIR_OK);
    cuda_leave(dev, &was);
    if (!keep)
        return AIR_OK;
    return entered != AIR_OK ? entered : taken;
}

air_status
cuda_capture_end(air_device *dev, air_device_graph **out)
{
    air_device_graph *g = recording.graph;
    cuda_entered was;
    *out = NULL;
    AIR_REQUIRE(recording.dev == dev, AIR_ERROR_STATE,
                "this thread is not capturing");
    recording.dev = NULL;
    recording.graph = NULL;
    air_status status = cuda_enter(dev, &was);
    if (status == AIR_OK) {
        status = finish(dev, g);
        cuda_leave(dev, &was);
    }
    if (status != AIR_OK) {
        cuda_graph_free(dev, g);
        return status;
    }
    *out = g;
    return AIR_OK;
}

air_status
cuda_graph_of(air_device *dev, air_list *list, void *const *slots,
              air_device_graph **out)
{
    air_device_graph *g;
    *out = NULL;
    AIR_TRY(new_graph(dev, &g));
    air_status status = add_list(dev, g, list, slots);
    if (status == AIR_OK)
        status = finish(dev, g);
    if (status == AIR_OK)
        *out = g;
    else
        cuda_graph_free(dev, g);
    return status;
}

/* ---- replay ---- */

static air_status
launch(const air_device *dev, const air_device_graph *graph, cu_stream stream)
{
    return cuda_check(dev, dev->cu.exec_launch(graph->exec, stream),
                      "a graph cannot be launched");
}

/* Node i has fresh parameters from now on. */
static air_status
set_node(air_device *dev, const air_device_graph *g, part *p, size_t i)
{
    const cuda_command *c = &p->list->commands[i];
    const cu_kernel_node node = node_of(p, c);
    CUDA_TRY(dev, "a node cannot be changed",
             dev->cu.exec_set(g->exec, p->nodes[i], &node));
    memcpy(p->values + c->first, p->fresh + c->first,
           c->nparams * sizeof *p->values);
    return AIR_OK;
}

/* The nodes of a part that draw, where the generator is now; all else of them
 * stays as it is. */
static air_status
renew_draws(air_device *dev, const air_device_graph *g, part *p)
{
    for (size_t i = 0; p->list && i < p->list->ncommands; i++) {
        const cuda_command *c = &p->list->commands[i];
        if (!c->draws)
            continue;
        memcpy(p->fresh + c->first, p->values + c->first,
               c->nparams * sizeof *p->values);
        cuda_fill(p->list, c, NULL, drawn_before(g, p), p->scratch, p->fresh);
        AIR_TRY(set_node(dev, g, p, i));
    }
    return AIR_OK;
}

static air_status
launch_entered(air_device *dev, air_device_graph *graph)
{
    cu_stream stream;
    AIR_TRY(cuda_stream(dev, &stream));
    AIR_TRY(cuda_draw(dev, graph->draws, &graph->drawn));
    for (size_t i = 0; graph->draws > 0 && i < graph->parts.count; i++)
        AIR_TRY(renew_draws(dev, graph, &graph->parts.data[i]));
    return launch(dev, graph, stream);
}

air_status
cuda_graph_launch(air_device *dev, air_device_graph *graph)
{
    cuda_entered was;
    AIR_TRY(cuda_fault_check(dev));
    AIR_TRY(cuda_enter(dev, &was));
    const air_status status = launch_entered(dev, graph);
    cuda_leave(dev, &was);
    return status;
}

static bool
is_same(const part *p, const cuda_command *c)
{
    return c->nparams == 0 || memcmp(p->values + c->first, p->fresh + c->first,
                                     c->nparams * sizeof *p->values) == 0;
}

/* *out_fits: false where the library takes other kernels for other pointers
 * (their alignment), which a node does not take over. */
static air_status
patch_product(air_device *dev, air_device_graph *g, const part *p, size_t i,
              bool *out_fits)
{
    cu_graph child;
    AIR_TRY(capture_product(dev, g, p, &p->list->commands[i], &child));
    *out_fits = dev->cu.exec_child(g->exec, p->nodes[i], child) == 0;
    (void)dev->cu.graph_free(child);
    return AIR_OK;
}

/* Only nodes whose parameters differ: 0.3 us each. */
static air_status
patch_part(air_device *dev, air_device_graph *g, part *p, void *const *slots,
           bool *out_fits)
{
    for (size_t i = 0; p->list && *out_fits && i < p->list->ncommands; i++) {
        const cuda_command *c = &p->list->commands[i];
        cuda_fill(p->list, c, slots, drawn_before(g, p), p->scratch, p->fresh);
        if (is_same(p, c))
            continue;
        if (!c->product) {
            AIR_TRY(set_node(dev, g, p, i));
            continue;
        }
        AIR_TRY(patch_product(dev, g, p, i, out_fits));
        memcpy(p->values + c->first, p->fresh + c->first,
               c->nparams * sizeof *p->values);
    }
    return AIR_OK;
}

/* All of it again, with these pointers. */
static air_status
make_again(air_device *dev, air_device_graph *g, void *const *slots)
{
    cu_exec exec;
    if (g->graph)
        (void)dev->cu.graph_free(g->graph);
    g->graph = NULL;
    g->last = NULL;
    CUDA_TRY(dev, "no graph", dev->cu.graph_new(&g->graph, 0));
    for (size_t i = 0; i < g->parts.count; i++)
        AIR_TRY(add_nodes(dev, g, &g->parts.data[i], slots));
    CUDA_TRY(dev, "a graph cannot be instantiated",
             dev->cu.graph_make(&exec, g->graph, 0));
    (void)dev->cu.exec_free(g->exec);
    g->exec = exec;
    g->stale = false;
    return AIR_OK;
}

static air_status
patch(air_device *dev, air_device_graph *g, void *const *slots)
{
    bool fits = true;
    for (size_t i = 0; !g->stale && i < g->parts.count; i++) {
        AIR_TRY(patch_part(dev, g, &g->parts.data[i], slots, &fits));
        g->stale = !fits;
    }
    return g->stale ? make_again(dev, g, slots) : AIR_OK;
}

air_status
cuda_graph_patch(air_device *dev, air_device_graph *graph, void *const *slots)
{
    cuda_entered was;
    AIR_TRY(cuda_enter(dev, &was));
    const air_status status = patch(dev, graph, slots);
    cuda_leave(dev, &was);
    return status;
}

air_status
cuda_graph_run(air_device *dev, air_device_graph *graph, void *const *slots,
               cuda_drawn drawn, cu_stream stream)
{
    graph->drawn = drawn;
    AIR_TRY(patch(dev, graph, slots));
    return launch(dev, graph, stream);
}

void
cuda_graph_free(air_device *dev, air_device_graph *graph)
{
    cuda_entered was = {0};
    cu_graph left;
    if (!graph)
        return;
    (void)cuda_enter(dev, &was);
    if (graph->exec)
        (void)dev->cu.exec_free(graph->exec);
    if (graph->graph)
        (void)dev->cu.graph_free(graph->graph);
    if (graph->is_siding) /* foreign_end could not */
        (void)end_side(dev, graph, AIR_ERROR_STATE, &left);
    if (graph->side)
        (void)dev->cu.stream_free(graph->side);
    for (size_t i = 0; i < graph->parts.count; i++) {
        if (graph->parts.data[i].foreign)
            (void)dev->cu.graph_free(graph->parts.data[i].foreign);
        if (graph->parts.data[i].scratch)
            (void)dev->cu.free(graph->parts.data[i].scratch);
    }
    cuda_leave(dev, &was);
    for (size_t i = 0; i < graph->parts.count; i++)
        base_free(&graph->alloc, graph->parts.data[i].nodes,
                  graph->parts.data[i].bytes);
    BASE_VEC_FREE(&graph->alloc, &graph->parts);
    base_free(&dev->alloc, graph, sizeof *graph);
}
