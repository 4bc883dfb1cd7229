/* list.c: a list of steps runs in as few parallel regions as possible.
 *
 * Entering a parallel region costs microseconds, a barrier 0.15: so all large
 * steps of a list share one region with barriers between them. Small steps run
 * on thread 0 alone, and next to each other need no barrier; small steps at
 * the ends, and lists of small steps only, need no region either. Calls of the
 * application's library bring their own threads and stand between regions. */
#include "driver/cpu/cpu.h"

#include <string.h>

#define SMALL 10000 /* ns on one thread: not worth waking others */

typedef enum { PART_SERIAL, PART_PARALLEL, PART_LIBRARY } part_kind;

typedef struct {
    part_kind kind;
    size_t begin, end; /* steps */
} part;

struct air_list {
    const air_step *steps;
    size_t nparts, room;
    int threads; /* at most: what workspaces were planned for */
    part parts[];
};

/* One worker's view, on a cache line of its own. */
typedef struct {
    _Alignas(64) air_fault fault;
    const air_step *culprit; /* whose kernel raised the fault */
} worker;

struct cpu_run {
    cpu_run *next;
    size_t size; /* of this block */
    int threads; /* has room for */
    worker *workers;
    base_barrier *barriers; /* barriers[n - 1] is for n threads */
    char *scratch;          /* AIR_SCRATCH each */
    const air_generator *generator;
    air_philox *philox;
    /* of the run under way */
    const air_list *list;
    const part *part;
    void *const *slots;
};

/* ---- the idle runs ------------------------------------------------------- */

static air_status
run_new(const air_alloc *alloc, int threads, cpu_run **out)
{
    size_t n = (size_t)threads;
    size_t head = (sizeof(cpu_run) + 63) / 64 * 64;
    size_t each = sizeof(worker) + sizeof(base_barrier) + AIR_SCRATCH;
    void *ptr;
    *out = NULL;
    AIR_REQUIRE(n < SIZE_MAX / 2 / each, AIR_ERROR_MEMORY, "%d threads",
                threads);
    AIR_TRY(driver_block_new(alloc, head + n * each, &ptr));
    cpu_run *run = ptr;
    char *at = (char *)ptr + head;
    memset(ptr, 0, head + n * (each - AIR_SCRATCH));
    run->size = head + n * each;
    run->threads = threads;
    run->workers = (void *)at;
    run->barriers = (void *)(at + n * sizeof(worker));
    run->scratch = at + n * (each - AIR_SCRATCH);
    for (int i = 0; i < threads; i++)
        base_barrier_init(&run->barriers[i], i + 1);
    *out = run;
    return AIR_OK;
}

static void
run_put(air_device *dev, cpu_run *run)
{
    pthread_mutex_lock(&dev->mutex);
    run->next = dev->idle;
    dev->idle = run;
    pthread_mutex_unlock(&dev->mutex);
}

/* An idle run with room for so many threads, else a new one: only the first
 * time that so many lists run at once. */
static air_status
run_get(air_device *dev, int threads, cpu_run **out)
{
    pthread_mutex_lock(&dev->mutex);
    cpu_run **at = &dev->idle;
    while (*at != NULL && (*at)->threads < threads)
        at = &(*at)->next;
    cpu_run *run = *at;
    if (run != NULL)
        *at = run->next;
    pthread_mutex_unlock(&dev->mutex);
    *out = run;
    return run != NULL ? AIR_OK : run_new(&dev->alloc, threads, out);
}

air_status
cpu_runs_fill(air_device *dev)
{
    cpu_run *run;
    AIR_TRY(run_new(&dev->alloc, dev->threads, &run));
    run_put(dev, run);
    return AIR_OK;
}

void
cpu_runs_free(air_device *dev)
{
    cpu_run *run = dev->idle;
    while (run != NULL) {
        cpu_run *next = run->next;
        driver_block_free(&dev->alloc, run, run->size);
        run = next;
    }
    dev->idle = NULL;
}

/* ---- making -------------------------------------------------------------- */

/* For thread 0 alone. */
static bool
step_is_small(const air_step *step)
{
    return step->cost < SMALL || step->threads == 1;
}

static bool
step_is_library(const air_step *step)
{
    return step->kernel->library != NULL && step->threads == 0;
}

static void
part_add(air_list *list, part_kind kind, size_t begin, size_t end)
{
    if (begin < end)
        list->parts[list->nparts++] = (part){kind, begin, end};
}

/* Steps [begin, end) without library calls: small steps at either end leave
 * the parallel part. */
static void
part_split(air_list *list, size_t begin, size_t end)
{
    size_t b = begin, e = end;
    while (b < e && (list->threads == 1 || step_is_small(&list->steps[b])))
        b++;
    while (e > b && step_is_small(&list->steps[e - 1]))
        e--;
    part_add(list, PART_SERIAL, begin, b);
    part_add(list, PART_PARALLEL, b, e);
    part_add(list, PART_SERIAL, e, end);
}

static void
parts_make(air_list *list, size_t count)
{
    size_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        if (!step_is_library(&list->steps[i]))
            continue;
        part_split(list, begin, i);
        part_add(list, PART_LIBRARY, i, i + 1);
        begin = i + 1;
    }
    part_split(list, begin, count);
}

static size_t
list_size(size_t room)
{
    return sizeof(air_list) + room * sizeof(part);
}

air_status
cpu_list_make(air_device *dev, const air_step *steps, size_t count,
              air_list **out)
{
    size_t room = 3;
    void *ptr;
    *out = NULL;
    for (size_t i = 0; i < count; i++)
        room += step_is_library(&steps[i]) ? 4 : 0;
    AIR_TRY(base_new(&dev->alloc, list_size(room), &ptr));
    air_list *list = ptr;
    list->steps = steps;
    list->room = room;
    list->threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED);
    parts_make(list, count);
    *out = list;
    return AIR_OK;
}

void
cpu_list_free(air_device *dev, air_list *list)
{
    if (list != NULL)
        base_free(&dev->alloc, list, list_size(list->room));
}

/* ---- running ------------------------------------------------------------- */

static void
task_barrier(const air_task *task)
{
    base_barrier_wait(task->pool);
}

static air_task
task_make(cpu_run *run, int id, int count)
{
    return (air_task){
        .id = id,
        .count = count,
        .slots = run->slots,
        .scratch = run->scratch + (size_t)id * AIR_SCRATCH,
        .barrier = task_barrier,
        .pool = &run->barriers[count - 1],
        .fault = &run->workers[id].fault,
        .generator = run->generator,
        .philox = run->philox,
    };
}

static void
step_run(cpu_run *run, const air_step *step, air_task *task)
{
    worker *me = &run->workers[task->id];
    task->workspace =
        step->workspace > 0
            ? (char *)task->slots[step->workspace_slot] + step->workspace_offset
            : NULL;
    if (step->kernel->region != NULL)
        cpu_region_run(&(air_call){.extra = step->kernel->region}, task);
    else
        step->kernel->run(&step->call, task);
    if (me->fault.raised && me->culprit == NULL)
        me->culprit = step;
}

/* What thread id does for a step: a kernel sees as many threads as may run it,
 * and their barrier. The others wait for the next step. */
static void
step_share(cpu_run *run, const air_step *step, int id, int count)
{
    air_task task;
    if (step_is_small(step))
        count = 1;
    else if (step->threads > 0 && step->threads < count)
        count = step->threads;
    if (id >= count)
        return;
    task = task_make(run, id, count);
    step_run(run, step, &task);
}

/* Every thread of the region comes through here with the same count. */
static void
part_worker(void *arg, int id, int count)
{
    cpu_run *run = arg;
    const air_step *steps = run->list->steps;
    air_task all = task_make(run, id, count);
    for (size_t i = run->part->begin; i < run->part->end; i++) {
        bool small = step_is_small(&steps[i]);
        step_share(run, &steps[i], id, count);
        bool last = i + 1 == run->part->end;
        if (!last && !(small && step_is_small(&steps[i + 1])))
            task_barrier(&all);
    }
}

static void
part_serial(cpu_run *run, const part *p)
{
    air_task task = task_make(run, 0, 1);
    for (size_t i = p->begin; i < p->end; i++)
        step_run(run, &run->list->steps[i], &task);
}

static void
part_parallel(air_device *dev, cpu_run *run, const part *p, int threads)
{
    run->part = p;
    if (threads > 1)
        dev->parallel(dev->parallel_user, threads, part_worker, run);
    else
        part_serial(run, p);
}

static void
begin_worker(void *arg, int id, int count)
{
    cpu_run *run = arg;
    air_task task = task_make(run, id, count);
    const air_step *step = &run->list->steps[run->part->begin];
    step->kernel->begin(&step->call, &task);
}

/* false: not done */
static bool
part_library(air_device *dev, cpu_run *run, const part *p, int threads)
{
    const air_step *step = &run->list->steps[p->begin];
    run->part = p;
    if (step->kernel->begin != NULL) {
        if (threads > 1)
            dev->parallel(dev->parallel_user, threads, begin_worker, run);
        else
            begin_worker(run, 0, 1);
    }
    return step->kernel->library(&dev->library, &step->call, run->slots);
}

static void
part_run(air_device *dev, cpu_run *run, const part *p, int threads)
{
    if (p->kind == PART_SERIAL)
        part_serial(run, p);
    else if (p->kind == PART_PARALLEL || !part_library(dev, run, p, threads))
        part_parallel(dev, run, p, threads);
}

/* The first fault of the lowest thread becomes the status of the run. */
static air_status
run_status(cpu_run *run)
{
    const air_step *culprit = NULL;
    air_fault fault = {0, 0, false};
    for (int i = 0; i < run->threads; i++) {
        worker *w = &run->workers[i];
        if (w->culprit != NULL && culprit == NULL) {
            culprit = w->culprit;
            fault = w->fault;
        }
        w->culprit = NULL;
        w->fault.raised = false;
    }
    if (culprit == NULL)
        return AIR_OK;
    AIR_FAIL(AIR_ERROR_ARGUMENT,
             "index %lld is out of range for a dimension of size %lld in %s",
             (long long)fault.index, (long long)fault.size,
             culprit->label != NULL ? culprit->label : "a kernel");
}

air_status
cpu_list_run(air_device *dev, air_list *list, void *const *slots)
{
    cpu_run *run;
    int threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED);
    if (threads > list->threads)
        threads = list->threads;
    AIR_TRY(run_get(dev, threads, &run));
    run->generator = dev->generator;
    run->philox = &dev->philox;
    run->list = list;
    run->slots = slots;
    for (size_t i = 0; i < list->nparts; i++)
        part_run(dev, run, &list->parts[i], threads);
    air_status status = run_status(run);
    run_put(dev, run);
    return status;
}
