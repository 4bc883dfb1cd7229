/* list.c: the steps of a list as launches on one stream, in their order: that
 * each sees the writes of those before it is what a stream promises. */
#include <string.h>

#include "driver/cuda/blas.h"
#include "driver/cuda/fuse.h"

/* Everything between steps and commands. */
typedef struct {
    air_device *dev;
    const air_step *steps;
    size_t count;
    cuda_source *sources;
    cuda_want *wants;
    size_t ncommands, nparams;
} maker;

/* ---- from steps to commands ---- */

static bool
is_empty(const air_launch *shape)
{
    return shape->grid[0] == 0 || shape->grid[1] == 0 || shape->grid[2] == 0;
}

/* Launch k of a source: its shape, entry and parameters. */
typedef struct {
    const air_launch *shape;
    int32_t entry;
    const cuda_launch *params;
} view;

static view
view_of(const cuda_source *s, int32_t k)
{
    if (s->shapes)
        return (view){&s->shapes[k], k, &s->launches[0]};
    return (view){&s->launches[k].shape, s->launches[k].entry, &s->launches[k]};
}

static void
want(maker *m, size_t i)
{
    const cuda_source *s = &m->sources[i];
    cuda_want *w = &m->wants[i];
    *w = (cuda_want){.text = s->product ? NULL : s->text.data,
                     .prelude = s->prelude};
    for (int32_t k = 0; k < s->nlaunches; k++) {
        const view v = view_of(s, k);
        if ((uint32_t)v.entry >= w->nentries)
            w->nentries = (uint32_t)v.entry + 1;
        if (v.shape->shared > w->shared)
            w->shared = v.shape->shared;
        if (is_empty(v.shape))
            continue;
        m->ncommands++;
        m->nparams += (size_t)v.params->nparams;
    }
}

/* Steps [i, *next): one launch, or one step as it is. What the first has is
 * wanted once; the others have no launches. */
static air_status
print_some(maker *m, size_t i, size_t *next)
{
    const air_step *step = &m->steps[i];
    fuse_group group;
    cuda_fuse_find(m->steps, m->count, i, &group);
    *next = i + (group.count > 1 ? (size_t)group.count : 1);
    if (group.count > 1)
        AIR_TRY(cuda_fuse_print(&group, &m->dev->props, &m->sources[i]));
    else
        AIR_TRY(cuda_kernel_print(m->dev, step->kernel, &step->call,
                                  &m->sources[i]));
    want(m, i);
    for (size_t k = i + 1; k < *next; k++)
        m->wants[k] = m->wants[i];
    return AIR_OK;
}

static air_status
print_all(maker *m)
{
    size_t next;
    for (size_t i = 0; i < m->count; i++)
        base_text_init(&m->sources[i].text, &m->dev->alloc);
    for (size_t i = 0; i < m->count; i = next)
        AIR_TRY(print_some(m, i, &next));
    return AIR_OK;
}

/* Workspaces and the fault are pointers like any other from here on. */
static cuda_param
resolve(const air_device *dev, const air_step *step, cuda_param p)
{
    switch ((cuda_param_kind)p.kind) {
    case CUDA_PARAM_WORKSPACE:
        return (cuda_param){CUDA_PARAM_POINTER, step->workspace_slot,
                            step->workspace_offset + p.value};
    case CUDA_PARAM_FAULT:
        return (cuda_param){CUDA_PARAM_INT, 0, (int64_t)(intptr_t)dev->fault};
    case CUDA_PARAM_POINTER:
    case CUDA_PARAM_INT:
    case CUDA_PARAM_VALUES: break;
    }
    return p;
}

static void
add_param(const maker *m, air_list *list, size_t step, cuda_param p)
{
    const void *values = m->sources[step].values;
    const size_t i = list->nparams++;
    list->params[i] = resolve(m->dev, &m->steps[step], p);
    list->pointers[i] = &list->values[i];
    if (p.kind == CUDA_PARAM_VALUES)
        memcpy(&list->pointers[i], &values, sizeof values);
}

static air_status
add_command(const maker *m, air_list *list, size_t step, view v)
{
    cuda_command *c = &list->commands[list->ncommands++];
    *c = (cuda_command){.shape = *v.shape,
                        .first = (uint32_t)list->nparams,
                        .nparams = (uint32_t)v.params->nparams};
    for (int32_t i = 0; i < v.params->nparams; i++)
        add_param(m, list, step, v.params->params[i]);
    if (!m->sources[step].product) {
        c->function = m->wants[step].module->functions[v.entry];
        return AIR_OK;
    }
    list->products = true;
    return cuda_product_make(m->dev, &m->steps[step].call, &c->product);
}

static air_status
add_commands(const maker *m, air_list *list)
{
    for (size_t i = 0; i < m->count; i++)
        for (int32_t k = 0; k < m->sources[i].nlaunches; k++) {
            const view v = view_of(&m->sources[i], k);
            if (!is_empty(v.shape))
                AIR_TRY(add_command(m, list, i, v));
        }
    return AIR_OK;
}

/* ---- the list ---- */

static air_status
new_list(const maker *m, air_list **out)
{
    void *ptr;
    const size_t bytes =
        sizeof(air_list) + m->ncommands * sizeof(cuda_command) +
        m->nparams * (sizeof(cuda_param) + sizeof(uint64_t) + sizeof(void *));
    AIR_TRY(base_new(&m->dev->alloc, bytes, &ptr));
    air_list *list = ptr;
    list->steps = m->steps;
    list->bytes = bytes;
    list->commands = (void *)(list + 1);
    list->params = (void *)(list->commands + m->ncommands);
    list->values = (void *)(list->params + m->nparams);
    list->pointers = (void *)(list->values + m->nparams);
    pthread_mutex_init(&list->mutex, NULL);
    *out = list;
    return AIR_OK;
}

static air_status
make_entered(maker *m, air_list **out)
{
    AIR_TRY(cuda_modules_get(m->dev, m->wants, m->count));
    AIR_TRY(new_list(m, out));
    return add_commands(m, *out);
}

static air_status
make(maker *m, air_list **out)
{
    bool pushed;
    AIR_TRY(print_all(m));
    AIR_TRY(cuda_enter(m->dev, &pushed));
    const air_status status = make_entered(m, out);
    cuda_leave(m->dev, pushed);
    if (status != AIR_OK) {
        cuda_list_free(m->dev, *out);
        *out = NULL;
    }
    return status;
}

air_status
cuda_list_make(air_device *dev, const air_step *steps, size_t count,
               air_list **out)
{
    maker m = {.dev = dev, .steps = steps, .count = count};
    const size_t bytes = count * (sizeof *m.sources + sizeof *m.wants);
    void *room;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, bytes, &room));
    m.sources = room;
    m.wants = count > 0 ? (void *)(m.sources + count) : NULL;
    const air_status status = make(&m, out);
    for (size_t i = 0; i < count && m.sources[i].text.alloc; i++)
        base_text_deinit(&m.sources[i].text);
    base_free(&dev->alloc, room, bytes);
    return status;
}

void
cuda_list_free(air_device *dev, air_list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->ncommands; i++)
        cuda_product_free(dev, list->commands[i].product);
    pthread_mutex_destroy(&list->mutex);
    base_free(&dev->alloc, list, list->bytes);
}

/* ---- running ---- */

void
cuda_fill(const air_list *list, const cuda_command *c, void *const *slots,
          uint64_t *values)
{
    for (uint32_t i = c->first; i < c->first + c->nparams; i++) {
        const cuda_param *p = &list->params[i];
        values[i] = (uint64_t)p->value;
        if (p->kind == CUDA_PARAM_POINTER)
            values[i] += (uint64_t)(uintptr_t)slots[p->slot];
    }
}

static air_status
launch(air_device *dev, const air_list *list, const cuda_command *c,
       cu_stream stream)
{
    const air_launch *s = &c->shape;
    return cuda_check(dev,
                      dev->cu.launch(c->function, s->grid[0], s->grid[1],
                                     s->grid[2], s->block[0], s->block[1],
                                     s->block[2], s->shared, stream,
                                     list->pointers + c->first, NULL),
                      "a kernel cannot be launched");
}

air_status
cuda_list_launch(air_device *dev, air_list *list, void *const *slots,
                 cu_stream stream)
{
    air_status status = AIR_OK;
    pthread_mutex_lock(&list->mutex);
    for (size_t i = 0; status == AIR_OK && i < list->ncommands; i++) {
        const cuda_command *c = &list->commands[i];
        cuda_fill(list, c, slots, list->values);
        status = c->product ? cuda_product_run(dev, c->product,
                                               list->values + c->first, stream)
                            : launch(dev, list, c, stream);
    }
    pthread_mutex_unlock(&list->mutex);
    return status;
}

static air_status
launch_all(air_device *dev, air_list *list, void *const *slots)
{
    cu_stream stream;
    AIR_TRY(cuda_fault_check(dev));
    AIR_TRY(cuda_stream(dev, &stream));
    return cuda_list_launch(dev, list, slots, stream);
}

air_status
cuda_list_run(air_device *dev, air_list *list, void *const *slots)
{
    bool recorded, pushed;
    AIR_TRY(cuda_enter(dev, &pushed));
    air_status status = cuda_graph_record(dev, list, slots, &recorded);
    if (status == AIR_OK && !recorded)
        status = launch_all(dev, list, slots);
    cuda_leave(dev, pushed);
    return status;
}
