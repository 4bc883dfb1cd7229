/* graph.c: CUDA graphs: lists run between capture_begin and capture_end become
 * kernel nodes, each after the one before. Nodes are made by name, not by
 * capturing a stream: nothing of other threads or of the application can get
 * into it, and the nodes are known when pointers have to change.
 *
 * What nodes a library makes is its own affair, so that a list with products is
 * captured on a stream of its own. When its pointers change it is captured
 * again, and the graph that runs takes over what is different. */
#include <string.h>

#include "driver/cuda/device.h"

typedef struct {
    air_list *list;
    size_t bytes;     /* of what follows, one block */
    cu_node *nodes;   /* by command */
    uint64_t *values; /* by parameter: what the nodes have */
    uint64_t *fresh;  /* room for a patch */
    void **pointers;  /* &fresh[i] */
} part;

struct air_device_graph {
    air_alloc alloc;
    cu_graph graph;
    cu_exec exec;
    BASE_VEC(part) parts;
    cu_node last;       /* of what was recorded so far */
    air_list *captured; /* with products; then it is all there is */
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
part_new(const air_alloc *alloc, air_list *list, part *out)
{
    void *room;
    AIR_TRY(base_new(alloc, part_bytes(list), &room));
    *out = (part){.list = list, .bytes = part_bytes(list), .nodes = room};
    if (!room)
        return AIR_OK; /* an empty list */
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
add_nodes(air_device *dev, air_device_graph *g, part *p, void *const *slots)
{
    for (size_t i = 0; i < p->list->ncommands; i++) {
        const cuda_command *c = &p->list->commands[i];
        cuda_fill(p->list, c, slots, p->fresh);
        const cu_kernel_node node = node_of(p, c);
        CUDA_TRY(dev, "a node cannot be added",
                 dev->cu.graph_kernel(&p->nodes[i], g->graph, &g->last,
                                      g->last ? 1 : 0, &node));
        g->last = p->nodes[i];
    }
    if (p->list->nparams > 0)
        memcpy(p->values, p->fresh, p->list->nparams * sizeof *p->values);
    return AIR_OK;
}

/* *out: what the list does on a stream, as a graph. In the device's context. */
static air_status
capture_list(air_device *dev, air_list *list, void *const *slots, cu_graph *out)
{
    cu_stream stream;
    *out = NULL;
    CUDA_TRY(dev, "no stream",
             dev->cu.stream_new(&stream, CU_STREAM_NON_BLOCKING));
    air_status status =
        cuda_check(dev, dev->cu.stream_capture(stream, CU_CAPTURE_THREAD),
                   "a stream cannot be captured");
    if (status == AIR_OK) {
        status = cuda_list_launch(dev, list, slots, stream);
        const int code = dev->cu.stream_captured(stream, out);
        if (status == AIR_OK)
            status = cuda_check(dev, code, "a capture failed");
    }
    (void)dev->cu.stream_free(stream);
    if (status != AIR_OK && *out) {
        (void)dev->cu.graph_free(*out);
        *out = NULL;
    }
    return status;
}

static air_status
record_products(air_device *dev, air_device_graph *g, air_list *list,
                void *const *slots)
{
    cu_graph made;
    AIR_REQUIRE(!g->captured && g->parts.count == 0, AIR_ERROR_UNSUPPORTED,
                "a list with products is captured alone");
    AIR_TRY(capture_list(dev, list, slots, &made));
    (void)dev->cu.graph_free(g->graph);
    g->graph = made;
    g->captured = list;
    return AIR_OK;
}

air_status
cuda_graph_record(air_device *dev, air_list *list, void *const *slots,
                  bool *out)
{
    air_device_graph *g = recording.graph;
    part p;
    *out = recording.dev == dev;
    if (!*out)
        return AIR_OK;
    if (list->products)
        return record_products(dev, g, list, slots);
    AIR_REQUIRE(!g->captured, AIR_ERROR_UNSUPPORTED,
                "a list with products is captured alone");
    AIR_TRY(BASE_RESERVE(&g->alloc, &g->parts, g->parts.count + 1));
    AIR_TRY(part_new(&g->alloc, list, &p));
    g->parts.data[g->parts.count++] = p;
    return add_nodes(dev, g, &g->parts.data[g->parts.count - 1], slots);
}

air_status
cuda_capture_begin(air_device *dev, air_capture_error_mode mode)
{
    void *ptr;
    (void)mode; /* nothing that another thread does can come into it */
    AIR_REQUIRE(!recording.dev, AIR_ERROR_STATE,
                "this thread is capturing already");
    AIR_TRY(base_new(&dev->alloc, sizeof(air_device_graph), &ptr));
    air_device_graph *g = ptr;
    g->alloc = dev->alloc;
    const air_status status =
        cuda_check(dev, dev->cu.graph_new(&g->graph, 0), "no graph");
    if (status != AIR_OK) {
        base_free(&dev->alloc, g, sizeof *g);
        return status;
    }
    recording.dev = dev;
    recording.graph = g;
    return AIR_OK;
}

air_status
cuda_capture_end(air_device *dev, air_device_graph **out)
{
    air_device_graph *g = recording.graph;
    bool pushed;
    *out = NULL;
    AIR_REQUIRE(recording.dev == dev, AIR_ERROR_STATE,
                "this thread is not capturing");
    recording.dev = NULL;
    recording.graph = NULL;
    air_status status = cuda_enter(dev, &pushed);
    if (status == AIR_OK) {
        status = cuda_check(dev, dev->cu.graph_make(&g->exec, g->graph, 0),
                            "a graph cannot be instantiated");
        cuda_leave(dev, pushed);
    }
    if (status != AIR_OK) {
        cuda_graph_free(dev, g);
        return status;
    }
    *out = g;
    return AIR_OK;
}

/* ---- replay ---- */

static air_status
launch_entered(air_device *dev, air_device_graph *graph)
{
    cu_stream stream;
    AIR_TRY(cuda_stream(dev, &stream));
    return cuda_check(dev, dev->cu.exec_launch(graph->exec, stream),
                      "a graph cannot be launched");
}

air_status
cuda_graph_launch(air_device *dev, air_device_graph *graph)
{
    bool pushed;
    AIR_TRY(cuda_fault_check(dev));
    AIR_TRY(cuda_enter(dev, &pushed));
    const air_status status = launch_entered(dev, graph);
    cuda_leave(dev, pushed);
    return status;
}

static bool
is_same(const part *p, const cuda_command *c)
{
    return c->nparams == 0 || memcmp(p->values + c->first, p->fresh + c->first,
                                     c->nparams * sizeof *p->values) == 0;
}

/* Only nodes whose parameters differ: 0.3 us each. */
static air_status
patch_part(air_device *dev, const air_device_graph *g, part *p,
           void *const *slots)
{
    for (size_t i = 0; i < p->list->ncommands; i++) {
        const cuda_command *c = &p->list->commands[i];
        cuda_fill(p->list, c, slots, p->fresh);
        if (is_same(p, c))
            continue;
        const cu_kernel_node node = node_of(p, c);
        CUDA_TRY(dev, "a node cannot be changed",
                 dev->cu.exec_set(g->exec, p->nodes[i], &node));
        memcpy(p->values + c->first, p->fresh + c->first,
               c->nparams * sizeof *p->values);
    }
    return AIR_OK;
}

/* Kernels of a library may differ with the alignment of pointers; then the
 * graph is made anew. */
static air_status
capture_again(air_device *dev, air_device_graph *g, void *const *slots)
{
    cu_graph made;
    cu_exec exec = NULL;
    cu_update update;
    AIR_TRY(capture_list(dev, g->captured, slots, &made));
    air_status status = AIR_OK;
    if (dev->cu.exec_update(g->exec, made, &update) != 0)
        status = cuda_check(dev, dev->cu.graph_make(&exec, made, 0),
                            "a graph cannot be instantiated");
    if (exec) {
        (void)dev->cu.exec_free(g->exec);
        g->exec = exec;
    }
    (void)dev->cu.graph_free(made);
    return status;
}

air_status
cuda_graph_patch(air_device *dev, air_device_graph *graph, void *const *slots)
{
    bool pushed;
    air_status status = AIR_OK;
    AIR_TRY(cuda_enter(dev, &pushed));
    if (graph->captured)
        status = capture_again(dev, graph, slots);
    for (size_t i = 0; status == AIR_OK && i < graph->parts.count; i++)
        status = patch_part(dev, graph, &graph->parts.data[i], slots);
    cuda_leave(dev, pushed);
    return status;
}

void
cuda_graph_free(air_device *dev, air_device_graph *graph)
{
    bool pushed = false;
    if (!graph)
        return;
    (void)cuda_enter(dev, &pushed);
    if (graph->exec)
        (void)dev->cu.exec_free(graph->exec);
    (void)dev->cu.graph_free(graph->graph);
    cuda_leave(dev, pushed);
    for (size_t i = 0; i < graph->parts.count; i++)
        base_free(&graph->alloc, graph->parts.data[i].nodes,
                  graph->parts.data[i].bytes);
    BASE_VEC_FREE(&graph->alloc, &graph->parts);
    base_free(&dev->alloc, graph, sizeof *graph);
}
