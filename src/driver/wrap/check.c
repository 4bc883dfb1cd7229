/* check.c: what the caller of a driver can get wrong: arguments, regions,
 * lifetimes. A broken rule fails the call where it can fail, and is always
 * sent to options.log as AIR_LOG_ERROR. */
#include <string.h>

#include "base/thread.h"
#include "driver/driver.h"
#include "driver/wrap/wrap.h"

typedef enum { BLOCK, KERNEL, LIST, GRAPH } kind;
static const char *const kind_text[] = {"block", "kernel", "list", "graph"};
static _Thread_local const air_device *capturing; /* by this thread */
static _Thread_local bool lent; /* the capture, to the application */

/* An object that is alive. Kernels found in a table come out many times. */
typedef struct {
    const void *ptr;
    size_t size; /* of blocks */
    kind kind;
} object;

struct air_device {
    wrap_inner in;
    pthread_mutex_t mutex;
    BASE_VEC(object) objects;
};

#define COMPLAIN(dev, ...) wrap_log(&(dev)->in, AIR_LOG_ERROR, __VA_ARGS__)

/* Fails the calling entry, and says so in the log. */
#define EXPECT(dev, cond, code, ...)     \
    do {                                 \
        if (!(cond)) {                   \
            COMPLAIN(dev, __VA_ARGS__);  \
            AIR_FAIL(code, __VA_ARGS__); \
        }                                \
    } while (0)

/* ---- objects ------------------------------------------------------------- */

static object *
find(air_device *dev, const void *ptr, kind k)
{
    for (size_t i = 0; i < dev->objects.count; i++)
        if (dev->objects.data[i].ptr == ptr && dev->objects.data[i].kind == k)
            return &dev->objects.data[i];
    return NULL;
}

static bool
is_alive(air_device *dev, const void *ptr, kind k)
{
    pthread_mutex_lock(&dev->mutex);
    bool found = find(dev, ptr, k) != NULL;
    pthread_mutex_unlock(&dev->mutex);
    return found;
}

static air_status
born(air_device *dev, const void *ptr, kind k, size_t size)
{
    object o = {ptr, size, k};
    air_status status = AIR_OK;
    if (ptr == NULL)
        return AIR_OK;
    pthread_mutex_lock(&dev->mutex);
    if (k != KERNEL || find(dev, ptr, k) == NULL)
        status = BASE_PUSH(&dev->in.alloc, &dev->objects, o);
    pthread_mutex_unlock(&dev->mutex);
    return status;
}

/* False: there is no such object, and the call must not go on. */
static bool
dies(air_device *dev, const void *ptr, kind k, size_t size)
{
    pthread_mutex_lock(&dev->mutex);
    object *o = find(dev, ptr, k);
    bool right = o != NULL && o->size == size;
    if (o != NULL)
        *o = dev->objects.data[--dev->objects.count];
    pthread_mutex_unlock(&dev->mutex);
    if (!right)
        COMPLAIN(dev, "free of a %s that is %s", kind_text[k],
                 o == NULL ? "not alive" : "of another size");
    return o != NULL;
}

/* ---- regions ------------------------------------------------------------- */

static air_status
check_node(air_device *dev, const air_region *rg, int i)
{
    const air_rg_node *n = &rg->nodes[i];
    const int16_t operands[] = {n->a, n->b, n->c};
    EXPECT(dev, n->op < AIR_RG_OP_COUNT && n->lane <= AIR_LANE_B,
           AIR_ERROR_ARGUMENT, "region node %d has op %d, lane %d", i, n->op,
           n->lane);
    for (int k = 0; k < 3; k++)
        EXPECT(dev, operands[k] >= -1 && operands[k] < i, AIR_ERROR_ARGUMENT,
               "region node %d reads node %d", i, operands[k]);
    if (n->op == AIR_RG_LOAD || n->op == AIR_RG_STORE)
        EXPECT(dev, n->buf >= 0 && n->buf < rg->nbufs, AIR_ERROR_ARGUMENT,
               "region node %d uses buffer %d of %d", i, n->buf, rg->nbufs);
    if (n->op == AIR_RG_REDUCE || n->op == AIR_RG_SCALAR || n->op == AIR_RG_SET)
        EXPECT(dev, n->buf >= 0 && n->buf < rg->nscalars, AIR_ERROR_ARGUMENT,
               "region node %d uses scalar %d of %d", i, n->buf, rg->nscalars);
    return AIR_OK;
}

static air_status
check_region(air_device *dev, const air_region *rg)
{
    int at = 0;
    EXPECT(
        dev,
        rg->rank >= 1 && rg->rank <= AIR_MAX_RANK && rg->walk <= AIR_WALK_OUTER,
        AIR_ERROR_ARGUMENT, "region of rank %d, walk %d", rg->rank, rg->walk);
    EXPECT(dev,
           rg->nnodes <= AIR_RG_MAX_NODES && rg->nbufs <= AIR_RG_MAX_BUFS &&
               rg->nscalars <= AIR_RG_MAX_SCALARS &&
               rg->nphases <= AIR_RG_MAX_PHASES,
           AIR_ERROR_ARGUMENT, "region of %d nodes, %d buffers, %d scalars",
           rg->nnodes, rg->nbufs, rg->nscalars);
    for (int i = 0; i < rg->rank; i++)
        EXPECT(dev, rg->dims[i] >= 0, AIR_ERROR_ARGUMENT,
               "region axis %d has size %lld", i, (long long)rg->dims[i]);
    for (int i = 0; i < rg->nbufs; i++)
        EXPECT(dev,
               rg->bufs[i].dtype > AIR_DTYPE_NONE &&
                   rg->bufs[i].dtype < AIR_DTYPE_COUNT &&
                   (rg->bufs[i].scratch != 0 || rg->bufs[i].slot >= 0),
               AIR_ERROR_ARGUMENT, "region buffer %d: dtype %d, slot %d", i,
               rg->bufs[i].dtype, rg->bufs[i].slot);
    for (int i = 0; i < rg->nnodes; i++)
        AIR_TRY(check_node(dev, rg, i));
    for (int i = 0; i < rg->nphases; i++) {
        const air_rg_phase *p = &rg->phases[i];
        EXPECT(dev,
               p->begin >= at && p->end >= p->begin && p->end <= rg->nnodes,
               AIR_ERROR_ARGUMENT, "region phase %d has nodes %d to %d", i,
               p->begin, p->end);
        at = p->end;
    }
    return AIR_OK;
}

/* ---- calls --------------------------------------------------------------- */

static air_status
check_tensor(air_device *dev, const air_tensor *t, const char *what)
{
    if (t->dtype == AIR_DTYPE_NONE)
        return AIR_OK;
    EXPECT(dev,
           t->dtype < AIR_DTYPE_COUNT && t->rank <= AIR_MAX_RANK &&
               t->slot >= 0,
           AIR_ERROR_ARGUMENT, "%s: dtype %d, rank %d, slot %d", what, t->dtype,
           t->rank, t->slot);
    for (int i = 0; i < t->rank; i++)
        EXPECT(dev, t->dims[i] >= 0, AIR_ERROR_ARGUMENT,
               "%s: axis %d has size %lld", what, i, (long long)t->dims[i]);
    return AIR_OK;
}

static air_status
check_call(air_device *dev, const air_call *call)
{
    for (int i = 0; i < call->nargs; i++) {
        const air_arg *a = &call->args[i];
        bool tensors = a->kind == AIR_ARG_TENSOR || a->kind == AIR_ARG_TENSORS;
        int n = a->kind == AIR_ARG_TENSOR ? 1 : a->count;
        EXPECT(dev, a->kind <= AIR_ARG_STR, AIR_ERROR_ARGUMENT,
               "argument %d of a call is of kind %d", i, a->kind);
        for (int k = 0; tensors && k < n; k++)
            AIR_TRY(check_tensor(dev, &a->t[k], "argument of a call"));
    }
    for (int i = 0; i < call->nouts; i++)
        AIR_TRY(check_tensor(dev, &call->outs[i], "result of a call"));
    return AIR_OK;
}

/* ---- entries ------------------------------------------------------------- */

static air_status
check_open(const air_options *options, const air_alloc *alloc, air_device **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(alloc, sizeof(air_device), &ptr));
    air_device *dev = ptr;
    air_status status = wrap_open(options, alloc, &dev->in);
    if (status != AIR_OK) {
        base_free(alloc, dev, sizeof *dev);
        return status;
    }
    pthread_mutex_init(&dev->mutex, NULL);
    *out = dev;
    return AIR_OK;
}

/* Kernels of a table need not be freed; whether one is, only the driver
 * inside knows, so that kernels are not counted. */
static void
check_close(air_device *dev)
{
    air_alloc alloc = dev->in.alloc;
    for (size_t i = 0; i < dev->objects.count; i++)
        if (dev->objects.data[i].kind != KERNEL)
            COMPLAIN(dev, "close while a %s is alive",
                     kind_text[dev->objects.data[i].kind]);
    dev->in.driver->close(dev->in.device);
    pthread_mutex_destroy(&dev->mutex);
    BASE_VEC_FREE(&alloc, &dev->objects);
    base_free(&alloc, dev, sizeof *dev);
}

static void
check_target(const air_device *dev, air_target *out)
{
    dev->in.driver->target(dev->in.device, out);
}

static void
check_set_threads(air_device *dev, int threads)
{
    if (threads < 1)
        COMPLAIN(dev, "set_threads %d", threads);
    if (dev->in.driver->set_threads != NULL)
        dev->in.driver->set_threads(dev->in.device, threads);
}

static air_status
check_alloc(air_device *dev, size_t size, void **out)
{
    AIR_TRY(dev->in.driver->alloc(dev->in.device, size, out));
    air_status status = born(dev, *out, BLOCK, size);
    if (status != AIR_OK) {
        dev->in.driver->free(dev->in.device, *out, size);
        *out = NULL;
    }
    return status;
}

static void
check_free(air_device *dev, void *ptr, size_t size)
{
    if (ptr != NULL && dies(dev, ptr, BLOCK, size))
        dev->in.driver->free(dev->in.device, ptr, size);
}

static air_status
check_copy(air_device *dev, void *dst, const void *src, size_t size)
{
    EXPECT(dev, size == 0 || (dst != NULL && src != NULL), AIR_ERROR_ARGUMENT,
           "copy of %zu bytes from or to nowhere", size);
    if (dev->in.driver->copy != NULL)
        return dev->in.driver->copy(dev->in.device, dst, src, size);
    memcpy(dst, src, size);
    return AIR_OK;
}

static air_status
check_kernel_find(air_device *dev, const char *name, const air_call *call,
                  const air_kernel **out)
{
    *out = NULL;
    AIR_TRY(check_call(dev, call));
    AIR_TRY(dev->in.driver->kernel_find(dev->in.device, name, call, out));
    return born(dev, *out, KERNEL, 0);
}

static air_status
check_kernel_make(air_device *dev, const air_region *region,
                  const air_code *code, const air_kernel **out)
{
    *out = NULL;
    AIR_TRY(check_region(dev, region));
    AIR_TRY(dev->in.driver->kernel_make(dev->in.device, region, code, out));
    air_status status = born(dev, *out, KERNEL, 0);
    if (status != AIR_OK) {
        dev->in.driver->kernel_free(dev->in.device, *out);
        *out = NULL;
    }
    return status;
}

static bool
check_is_plain(const air_device *dev, const char *name, const air_call *call)
{
    return wrap_is_plain(&dev->in, name, call);
}

static air_status
check_kernel_join(air_device *dev, const air_kernel *first,
                  const air_call *call, const air_region *region,
                  const air_code *code, int buf, bool keep,
                  const air_kernel **out)
{
    const air_driver *driver = dev->in.driver;
    *out = NULL;
    if (driver->kernel_join == NULL)
        return AIR_OK;
    EXPECT(dev, is_alive(dev, first, KERNEL), AIR_ERROR_STATE,
           "kernel_join of a kernel that is not alive");
    AIR_TRY(check_call(dev, call));
    AIR_TRY(check_region(dev, region));
    EXPECT(dev,
           call->nouts > 0 && region->walk == AIR_WALK_MAP && buf >= 0 &&
               buf < region->nbufs &&
               region->bufs[buf].slot == call->outs[0].slot,
           AIR_ERROR_ARGUMENT, "kernel_join by buffer %d", buf);
    AIR_TRY(driver->kernel_join(dev->in.device, first, call, region, code, buf,
                                keep, out));
    air_status status = born(dev, *out, KERNEL, 0);
    if (status != AIR_OK) {
        driver->kernel_free(dev->in.device, *out);
        *out = NULL;
    }
    return status;
}

static void
check_kernel_free(air_device *dev, const air_kernel *kernel)
{
    if (kernel != NULL && dies(dev, kernel, KERNEL, 0))
        dev->in.driver->kernel_free(dev->in.device, kernel);
}

static size_t
check_workspace(air_device *dev, const air_kernel *kernel, const air_call *call)
{
    if (!is_alive(dev, kernel, KERNEL))
        COMPLAIN(dev, "workspace of a kernel that is not alive");
    return dev->in.driver->workspace(dev->in.device, kernel, call);
}

static air_status
check_list_make(air_device *dev, const air_step *steps, size_t count,
                air_list **out)
{
    *out = NULL;
    for (size_t i = 0; i < count; i++) {
        EXPECT(dev, is_alive(dev, steps[i].kernel, KERNEL), AIR_ERROR_STATE,
               "step %zu has a kernel that is not alive", i);
        EXPECT(dev, steps[i].cost >= 0, AIR_ERROR_ARGUMENT,
               "step %zu costs %lld ns", i, (long long)steps[i].cost);
        AIR_TRY(check_call(dev, &steps[i].call));
    }
    AIR_TRY(dev->in.driver->list_make(dev->in.device, steps, count, out));
    air_status status = born(dev, *out, LIST, 0);
    if (status != AIR_OK) {
        dev->in.driver->list_free(dev->in.device, *out);
        *out = NULL;
    }
    return status;
}

static air_status
check_list_run(air_device *dev, air_list *list, void *const *slots)
{
    EXPECT(dev, is_alive(dev, list, LIST), AIR_ERROR_STATE,
           "list_run of a list that is not alive");
    EXPECT(dev, slots != NULL, AIR_ERROR_ARGUMENT, "list_run without slots");
    EXPECT(dev, !lent, AIR_ERROR_STATE, "list_run before foreign_end");
    return dev->in.driver->list_run(dev->in.device, list, slots);
}

static void
check_list_free(air_device *dev, air_list *list)
{
    if (list != NULL && dies(dev, list, LIST, 0))
        dev->in.driver->list_free(dev->in.device, list);
}

static air_status
check_capture_begin(air_device *dev, air_capture_error_mode mode)
{
    EXPECT(dev, capturing == NULL, AIR_ERROR_STATE,
           "capture_begin while this thread captures");
    AIR_TRY(wrap_capture_begin(&dev->in, mode));
    capturing = dev;
    return AIR_OK;
}

static air_status
check_foreign_begin(air_device *dev, void **out_stream)
{
    *out_stream = NULL;
    EXPECT(dev, capturing == dev && !lent, AIR_ERROR_STATE, "foreign_begin %s",
           lent ? "twice" : "without capture_begin");
    AIR_TRY(wrap_foreign_begin(&dev->in, out_stream));
    lent = true;
    return AIR_OK;
}

static air_status
check_foreign_end(air_device *dev, bool keep)
{
    EXPECT(dev, lent && capturing == dev, AIR_ERROR_STATE,
           "foreign_end without foreign_begin");
    lent = false;
    return wrap_foreign_end(&dev->in, keep);
}

static air_status
check_capture_end(air_device *dev, air_device_graph **out)
{
    *out = NULL;
    EXPECT(dev, capturing == dev && !lent, AIR_ERROR_STATE,
           "capture_end without %s", lent ? "foreign_end" : "capture_begin");
    capturing = NULL;
    AIR_TRY(dev->in.driver->capture_end(dev->in.device, out));
    air_status status = born(dev, *out, GRAPH, 0);
    if (status != AIR_OK) {
        dev->in.driver->graph_free(dev->in.device, *out);
        *out = NULL;
    }
    return status;
}

static air_status
check_graph_launch(air_device *dev, air_device_graph *graph)
{
    EXPECT(dev, is_alive(dev, graph, GRAPH), AIR_ERROR_STATE,
           "graph_launch of a graph that is not alive");
    EXPECT(dev, capturing == NULL, AIR_ERROR_STATE,
           "graph_launch while this thread captures");
    return dev->in.driver->graph_launch(dev->in.device, graph);
}

static air_status
check_graph_patch(air_device *dev, air_device_graph *graph, void *const *slots)
{
    EXPECT(dev, is_alive(dev, graph, GRAPH), AIR_ERROR_STATE,
           "graph_patch of a graph that is not alive");
    EXPECT(dev, slots != NULL, AIR_ERROR_ARGUMENT, "graph_patch without slots");
    return dev->in.driver->graph_patch(dev->in.device, graph, slots);
}

static void
check_graph_free(air_device *dev, air_device_graph *graph)
{
    if (graph != NULL && dies(dev, graph, GRAPH, 0))
        dev->in.driver->graph_free(dev->in.device, graph);
}

static const char *
check_list_note(const air_device *dev, const air_list *list)
{
    return wrap_list_note(&dev->in, list);
}

const air_driver air_driver_check = {
    .abi = AIR_DRIVER_ABI,
    .size = sizeof(air_driver),
    .name = "check",
    .open = check_open,
    .close = check_close,
    .target = check_target,
    .set_threads = check_set_threads,
    .alloc = check_alloc,
    .free = check_free,
    .copy = check_copy,
    .kernel_find = check_kernel_find,
    .kernel_make = check_kernel_make,
    .is_plain = check_is_plain,
    .kernel_join = check_kernel_join,
    .kernel_free = check_kernel_free,
    .workspace = check_workspace,
    .list_make = check_list_make,
    .list_run = check_list_run,
    .list_free = check_list_free,
    .list_note = check_list_note,
    .capture_begin = check_capture_begin,
    .capture_end = check_capture_end,
    .graph_launch = check_graph_launch,
    .graph_patch = check_graph_patch,
    .graph_free = check_graph_free,
    .foreign_begin = check_foreign_begin,
    .foreign_end = check_foreign_end,
};
