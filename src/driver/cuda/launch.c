/* launch.c: a list runs: its launches are given to one stream, in their order:
 * that each sees the writes of those before it is what a stream promises. From
 * the second time on they are one graph.
 *
 * A stream that the application captures gets launch after launch, whatever
 * was before: the graph is the application's. It has all that a launch is told
 * by value; memory that is the list's own would be shared with runs that the
 * application does not order, so that each capture has its own. */
#include <string.h>

#include "driver/cuda/blas.h"

static uint64_t
number_at(const void *slot, int64_t offset)
{
    uint64_t bits;
    memcpy(&bits, (const char *)slot + offset, sizeof bits);
    return bits;
}

static uint64_t
value_of(const cuda_param *p, void *const *slots, cuda_drawn drawn,
         uint64_t scratch)
{
    const uint64_t value = (uint64_t)p->value;
    switch ((cuda_param_kind)p->kind) {
    case CUDA_PARAM_POINTER: return value + (uint64_t)(uintptr_t)slots[p->slot];
    case CUDA_PARAM_NUMBER: return number_at(slots[p->slot], p->value);
    case CUDA_PARAM_SCRATCH: return value + scratch;
    case CUDA_PARAM_SEED: return drawn.seed;
    case CUDA_PARAM_OFFSET: return value + drawn.offset;
    case CUDA_PARAM_INT:
    case CUDA_PARAM_WORKSPACE:
    case CUDA_PARAM_FAULT:
    case CUDA_PARAM_VALUES: break;
    }
    return value;
}

static bool
is_in_slot(const cuda_param *p)
{
    return p->kind == CUDA_PARAM_POINTER || p->kind == CUDA_PARAM_NUMBER;
}

void
cuda_fill(const air_list *list, const cuda_command *c, void *const *slots,
          cuda_drawn drawn, uint64_t scratch, uint64_t *values)
{
    for (uint32_t i = c->first; i < c->first + c->nparams; i++)
        if (slots || !is_in_slot(&list->params[i]))
            values[i] = value_of(&list->params[i], slots, drawn, scratch);
}

/* How a command that is early begins while the one before it ends. */
static int
launch_early(const air_device *dev, const air_list *list, const cuda_command *c,
             cu_stream stream)
{
    const air_launch *s = &c->shape;
    cu_launch_attribute early = {.id = CU_LAUNCH_PROGRAMMATIC,
                                 .value = {.programmatic = 1}};
    const cu_launch how = {.grid = {s->grid[0], s->grid[1], s->grid[2]},
                           .block = {s->block[0], s->block[1], s->block[2]},
                           .shared = s->shared,
                           .stream = stream,
                           .attributes = &early,
                           .nattributes = 1};
    return dev->cu.launch_with(&how, c->function, list->pointers + c->first,
                               NULL);
}

static air_status
launch(const air_device *dev, const air_list *list, const cuda_command *c,
       cu_stream stream)
{
    const air_launch *s = &c->shape;
    if (c->together)
        return cuda_check(dev,
                          dev->cu.launch_together(
                              c->function, s->grid[0], s->grid[1], s->grid[2],
                              s->block[0], s->block[1], s->block[2], s->shared,
                              stream, list->pointers + c->first),
                          "a persistent kernel cannot be launched");
    if (c->early && dev->cu.launch_with)
        return cuda_check(dev, launch_early(dev, list, c, stream),
                          "a kernel cannot be launched");
    return cuda_check(dev,
                      dev->cu.launch(c->function, s->grid[0], s->grid[1],
                                     s->grid[2], s->block[0], s->block[1],
                                     s->block[2], s->shared, stream,
                                     list->pointers + c->first, NULL),
                      "a kernel cannot be launched");
}

static air_status
launch_each(air_device *dev, air_list *list, void *const *slots,
            cuda_drawn drawn, uint64_t scratch, cu_stream stream)
{
    for (size_t i = 0; i < list->ncommands; i++) {
        const cuda_command *c = &list->commands[i];
        cuda_fill(list, c, slots, drawn, scratch, list->values);
        if (c->product)
            AIR_TRY(cuda_product_run(dev, c->product, list->values + c->first,
                                     stream));
        else
            AIR_TRY(launch(dev, list, c, stream));
    }
    list->ran = true;
    return AIR_OK;
}

/* A list that runs again is a graph of its own, which is launched at once. CUDA
 * orders launches of one graph, whatever their streams: two threads may run a
 * list whose kernels share memory with each other. */
static air_status
launch_graph(air_device *dev, air_list *list, void *const *slots,
             cuda_drawn drawn, cu_stream stream)
{
    if (!list->graph)
        AIR_TRY(cuda_graph_of(dev, list, slots, &list->graph));
    return cuda_graph_run(dev, list->graph, slots, drawn, stream);
}

static air_status
launch_locked(air_device *dev, air_list *list, void *const *slots,
              cuda_drawn drawn, cu_stream stream)
{
    uint64_t scratch = list->own;
    const bool captured = cuda_is_captured(dev, stream);
    const bool worth = list->ncommands > 1 || list->scratch_bytes > 0;
    if (list->ran && worth && !captured)
        return launch_graph(dev, list, slots, drawn, stream);
    if (captured)
        AIR_TRY(cuda_scratch_add(dev, list, &scratch));
    return launch_each(dev, list, slots, drawn, scratch, stream);
}

/* The application is asked for its generator before the list is locked: it may
 * wait for a thread that waits for the list. */
static air_status
launch_all(air_device *dev, air_list *list, void *const *slots)
{
    cu_stream stream;
    cuda_drawn drawn;
    AIR_TRY(cuda_fault_check(dev));
    AIR_TRY(cuda_draw(dev, list->draws, &drawn));
    AIR_TRY(cuda_stream(dev, &stream));
    pthread_mutex_lock(&list->mutex);
    const air_status status = launch_locked(dev, list, slots, drawn, stream);
    pthread_mutex_unlock(&list->mutex);
    return status;
}

air_status
cuda_list_run(air_device *dev, air_list *list, void *const *slots)
{
    bool recorded;
    cuda_entered was;
    AIR_TRY(cuda_enter(dev, &was));
    air_status status = cuda_graph_record(dev, list, slots, &recorded);
    if (status == AIR_OK && !recorded)
        status = launch_all(dev, list, slots);
    cuda_leave(dev, &was);
    return status;
}
