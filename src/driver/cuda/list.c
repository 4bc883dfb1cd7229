/* list.c: the steps of a list become launches; what they need is made. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "driver/cuda/blas.h"
#include "driver/cuda/fuse.h"
#include "driver/cuda/super.h"
#include "driver/cuda/touch.h"

/* Everything between steps and commands. */
typedef struct {
    air_device *dev;
    const air_step *steps;
    size_t count;
    cuda_source *sources;
    cuda_want *wants;
    size_t ncommands, nparams;
    size_t ordered; /* step of the last command that waits as a whole */
    size_t scratch; /* bytes */
    char note[CUDA_NOTE];
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
    const cuda_launch *launch;
    const cuda_param *params;
    size_t nparams;
} view;

static view
view_of(const cuda_source *s, int32_t k)
{
    const cuda_launch *l = &s->launches[s->shapes ? 0 : k];
    if (s->many)
        return (view){&l->shape, 0, l, s->many, s->nmany};
    return (view){s->shapes ? &s->shapes[k] : &l->shape,
                  s->shapes ? k : l->entry, l, l->params, (size_t)l->nparams};
}

/* Adds "_" and the words of a label, one "_" between them, as far as there is
 * room. */
static void
add_label(char name[CUDA_NAME], const char *label)
{
    size_t len = strlen(name);
    bool between = true;
    for (; label && *label && len + 2 < CUDA_NAME; label++) {
        const bool word = isalnum((unsigned char)*label);
        if (word && between)
            name[len++] = '_';
        if (word)
            name[len++] = *label;
        between = !word;
    }
    name[len] = '\0';
}

/* Of its step and those that it does as well: they have no launches. */
static void
name_want(const maker *m, size_t i, cuda_want *w)
{
    const size_t first = i;
    do
        add_label(w->name, m->steps[i++].label);
    while (i < m->count && m->sources[i].nlaunches == 0 &&
           m->sources[first].nlaunches > 0);
}

static void
want(maker *m, size_t i)
{
    const cuda_source *s = &m->sources[i];
    cuda_want *w = &m->wants[i];
    *w = (cuda_want){.text = s->text.len > 0 ? s->text.data : NULL,
                     .prelude = s->prelude,
                     .parts = s->parts};
    name_want(m, i, w);
    for (int32_t k = 0; k < s->nlaunches; k++) {
        const view v = view_of(s, k);
        if ((uint32_t)v.entry >= w->nentries)
            w->nentries = (uint32_t)v.entry + 1;
        if (v.shape->shared > w->shared)
            w->shared = v.shape->shared;
        w->threads = v.shape->block[0];
        if (is_empty(v.shape))
            continue;
        m->ncommands++;
        m->nparams += v.nparams;
    }
    m->scratch = s->scratch > m->scratch ? s->scratch : m->scratch;
}

/* Steps [i, *next): one launch, or one step as it is. The source is that of the
 * first; the others have no launches. */
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
    return AIR_OK;
}

static void
note_report(maker *m, const super_report *r)
{
    const char *why = r->why ? r->why : "fewer than two products of few rows";
    const char *label = r->why && r->label ? r->label : "";
    const char *of = *label ? " of " : "";
    if (r->kernels == 0 && !r->asked)
        return;
    if (r->kernels == 0)
        (void)snprintf(m->note, sizeof m->note,
                       "no persistent kernel: %s%s%.120s", why, of, label);
    else
        (void)snprintf(m->note, sizeof m->note,
                       "%zu persistent kernel%s of %zu phases%s%s%s%.120s",
                       r->kernels, r->kernels > 1 ? "s" : "", r->phases,
                       r->why ? "; launched by itself: " : "",
                       r->why ? why : "", of, label);
}

static air_status
join_all(maker *m)
{
    super_report report;
    AIR_TRY(cuda_super_join(m->dev, m->steps, m->count, m->sources, &report));
    note_report(m, &report);
    return AIR_OK;
}

static air_status
print_all(maker *m, bool persistent)
{
    size_t next;
    for (size_t i = 0; i < m->count; i++)
        base_text_init(&m->sources[i].text, &m->dev->alloc);
    for (size_t i = 0; i < m->count; i = next)
        AIR_TRY(print_some(m, i, &next));
    if (persistent)
        AIR_TRY(join_all(m));
    AIR_TRY(cuda_bundle_join(m->dev, m->steps, m->count, m->sources));
    for (size_t i = 0; i < m->count; i++)
        want(m, i);
    return AIR_OK;
}

/* Workspaces and the fault are pointers like any other from here on. */
static cuda_param
resolve(const air_device *dev, const air_list *list, const air_step *step,
        cuda_param p)
{
    switch ((cuda_param_kind)p.kind) {
    case CUDA_PARAM_WORKSPACE:
        return (cuda_param){CUDA_PARAM_POINTER, step->workspace_slot,
                            step->workspace_offset + p.value};
    case CUDA_PARAM_FAULT:
        return (cuda_param){CUDA_PARAM_INT, 0, (int64_t)(intptr_t)dev->fault};
    case CUDA_PARAM_OFFSET:
        return (cuda_param){CUDA_PARAM_OFFSET, 0, list->draws + p.value};
    case CUDA_PARAM_POINTER:
    case CUDA_PARAM_NUMBER:
    case CUDA_PARAM_INT:
    case CUDA_PARAM_SCRATCH:
    case CUDA_PARAM_SEED:
    case CUDA_PARAM_VALUES: break;
    }
    return p;
}

static void
add_param(const maker *m, air_list *list, size_t step, cuda_param p)
{
    const void *values = m->sources[step].values;
    const size_t i = list->nparams++;
    list->params[i] = resolve(m->dev, list, &m->steps[step], p);
    list->pointers[i] = &list->values[i];
    if (p.kind == CUDA_PARAM_VALUES)
        memcpy(&list->pointers[i], &values, sizeof values);
}

/* Commands since `ordered` may run at once: each begins when the one before it
 * has, and what it does before it waits needs nothing that they write. */
static bool
may_begin_early(const maker *m, const air_list *list, size_t step,
                const cuda_launch *params)
{
    if (!m->dev->overlaps || list->ncommands == 0 || params->product ||
        m->sources[step].together ||
        list->commands[list->ncommands - 1].product)
        return false;
    for (int32_t i = 0; i < params->nearly; i++)
        if (cuda_is_written(m->steps + m->ordered, step - m->ordered,
                            &params->early[i]))
            return false;
    return true;
}

static air_status
add_command(maker *m, air_list *list, size_t step, view v)
{
    const bool early = may_begin_early(m, list, step, v.launch);
    cuda_command *c = &list->commands[list->ncommands++];
    *c = (cuda_command){.shape = *v.shape,
                        .first = (uint32_t)list->nparams,
                        .nparams = (uint32_t)v.nparams,
                        .early = early,
                        .together = m->sources[step].together,
                        .draws = v.launch->draws > 0};
    m->ordered = early ? m->ordered : step;
    for (size_t i = 0; i < v.nparams; i++)
        add_param(m, list, step, v.params[i]);
    list->draws += v.launch->draws;
    if (!v.launch->product) {
        c->function = m->wants[step].module->functions[v.entry];
        return AIR_OK;
    }
    return cuda_product_make(m->dev, &m->steps[step].call, &c->product);
}

static air_status
add_commands(maker *m, air_list *list)
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

/* Zeros, once: kernels leave them as they find them. */
static air_status
zeros(const air_device *dev, uint64_t ptr, size_t bytes)
{
    CUDA_TRY(dev, "memory cannot be cleared", dev->cu.clear(ptr, 0, bytes));
    return cuda_check(dev, dev->cu.stream_wait(NULL),
                      "memory cannot be cleared");
}

air_status
cuda_scratch_new(const air_device *dev, const air_list *list, uint64_t *out)
{
    uint64_t ptr;
    *out = 0;
    if (list->scratch_bytes == 0)
        return AIR_OK;
    CUDA_TRY(dev, "memory cannot be had",
             dev->cu.alloc(&ptr, list->scratch_bytes));
    const air_status status = zeros(dev, ptr, list->scratch_bytes);
    if (status != AIR_OK)
        (void)dev->cu.free(ptr);
    else
        *out = ptr;
    return status;
}

air_status
cuda_scratch_add(const air_device *dev, air_list *list, uint64_t *out)
{
    void *memory;
    *out = 0;
    if (list->scratch_bytes == 0)
        return AIR_OK;
    AIR_TRY(base_new(&dev->alloc, sizeof(cuda_scratch), &memory));
    cuda_scratch *s = memory;
    const air_status status = cuda_scratch_new(dev, list, &s->ptr);
    if (status != AIR_OK) {
        base_free(&dev->alloc, s, sizeof *s);
        return status;
    }
    s->next = list->scratch;
    list->scratch = s;
    *out = s->ptr;
    return AIR_OK;
}

static void
note_wholes(maker *m)
{
    for (size_t i = 0; i < m->count; i++) {
        const size_t used = strlen(m->note);
        if (m->wants[i].whole[0])
            (void)snprintf(m->note + used, sizeof m->note - used,
                           "; compiled as a whole: %s", m->wants[i].whole);
    }
}

static air_status
make_entered(maker *m, air_list **out)
{
    AIR_TRY(cuda_modules_get(m->dev, m->wants, m->count));
    note_wholes(m);
    for (size_t i = 0; i < m->count; i++)
        if (m->sources[i].together)
            AIR_TRY(cuda_super_fits(m->dev, &m->sources[i].launches[0].shape,
                                    m->wants[i].module->functions[0]));
    AIR_TRY(new_list(m, out));
    (*out)->scratch_bytes = m->scratch;
    AIR_TRY(cuda_scratch_add(m->dev, *out, &(*out)->own));
    return add_commands(m, *out);
}

static void
drop_sources(maker *m)
{
    for (size_t i = 0; i < m->count && m->sources[i].text.alloc; i++) {
        base_text_deinit(&m->sources[i].text);
        base_free(&m->dev->alloc, m->sources[i].many,
                  m->sources[i].rmany * sizeof(cuda_param));
        m->sources[i] = (cuda_source){.nlaunches = 0};
    }
}

static air_status
make(maker *m, bool persistent, air_list **out)
{
    cuda_entered was = {0};
    air_status status = print_all(m, persistent);
    if (status == AIR_OK)
        status = cuda_enter(m->dev, &was);
    if (status == AIR_OK) {
        status = make_entered(m, out);
        cuda_leave(m->dev, &was);
    }
    drop_sources(m);
    if (status != AIR_OK) {
        cuda_list_free(m->dev, *out);
        *out = NULL;
    }
    return status;
}

/* Launch after launch, because of what the last error says. */
static air_status
make_plain(maker *m, air_list **out)
{
    maker again = {.dev = m->dev,
                   .steps = m->steps,
                   .count = m->count,
                   .sources = m->sources,
                   .wants = m->wants};
    (void)snprintf(again.note, sizeof again.note,
                   "no persistent kernel: %.280s", air_last_error()->message);
    *m = again;
    return make(m, false, out);
}

static bool
is_any(bool (*is)(const air_device *, const air_step *), const maker *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (is(m->dev, &m->steps[i]))
            return true;
    return false;
}

/* What cannot be persistent here is launch after launch. */
air_status
cuda_list_make(air_device *dev, const air_step *steps, size_t count,
               air_list **out)
{
    const size_t bytes = count * (sizeof(cuda_source) + sizeof(cuda_want));
    void *room;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, bytes, &room));
    maker m = {.dev = dev, .steps = steps, .count = count, .sources = room};
    m.wants = count > 0 ? (void *)(m.sources + count) : NULL;
    const bool able = dev->props.capability >= CUDA_OVERLAP_CAPABILITY;
    const bool joins = able && is_any(cuda_super_wants, &m);
    air_status status = make(&m, joins, out);
    if (joins && status == AIR_ERROR_UNSUPPORTED)
        status = make_plain(&m, out);
    else if (!able && is_any(cuda_super_is_asked, &m))
        (void)snprintf(
            m.note, sizeof m.note,
            "no persistent kernel: compute capability 9.0 is needed");
    if (status == AIR_OK)
        memcpy((*out)->note, m.note, sizeof m.note);
    base_free(&dev->alloc, room, bytes);
    return status;
}

const char *
cuda_list_note(const air_device *dev, const air_list *list)
{
    (void)dev;
    return list->note[0] ? list->note : NULL;
}

static void
drop_scratch(air_device *dev, air_list *list)
{
    cuda_entered was = {0};
    if (!list->scratch)
        return;
    (void)cuda_enter(dev, &was);
    while (list->scratch) {
        cuda_scratch *s = list->scratch;
        list->scratch = s->next;
        (void)dev->cu.free(s->ptr);
        base_free(&dev->alloc, s, sizeof *s);
    }
    cuda_leave(dev, &was);
}

void
cuda_list_free(air_device *dev, air_list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->ncommands; i++)
        cuda_product_free(dev, list->commands[i].product);
    cuda_graph_free(dev, list->graph);
    drop_scratch(dev, list);
    pthread_mutex_destroy(&list->mutex);
    base_free(&dev->alloc, list, list->bytes);
}
