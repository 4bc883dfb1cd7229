/* list.c: a list of steps runs in as few parallel regions as possible.
 *
 * Entering a parallel region costs microseconds, a barrier 0.15: so all large
 * steps of a list share one region with barriers between them. Small steps run
 * on thread 0 alone, and next to each other need no barrier; small steps at
 * the ends, and lists of small steps only, need no region either. Calls of the
 * application's library bring their own threads and stand between regions.
 *
 * Nor does a step need one that waits for none of those since the last one
 * (air_step.beside): threads that are done begin with it.
 *
 * Steps that say what they wait for have places (lanes.c): each thread goes
 * through the steps that it is a member of, in order, and waits for those that
 * these wait for, not for all. No two can wait for each other: whatever is
 * first in the list among what is not done has nothing left to wait for. */
#include "driver/cpu/ahead.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/lanes.h"
#include "driver/cpu/product/choice.h"
#include "driver/fault.h"

#include <stdio.h>
#include <string.h>

/* Runs have room for so many, or twice that, and so on: few sizes of them. */
#define LEAST_STEPS 256

typedef enum { PART_SERIAL, PART_PARALLEL, PART_LANES, PART_LIBRARY } part_kind;

typedef struct {
    part_kind kind;
    size_t begin, end; /* steps */
} part;

struct air_list {
    const air_step *steps;
    size_t nparts, room;
    int threads;       /* at most: what workspaces were planned for */
    cpu_place *places; /* by step; NULL: all run in order */
    uint32_t *waits;
    bool *meets;      /* by step: all threads meet before it; count of them */
    cpu_ahead *ahead; /* by step */
    size_t count, nwaits, most_waits;
    size_t states; /* that a run needs */
    base_text note;
    part parts[];
};

/* One worker's view, on a cache line of its own. */
typedef struct {
    _Alignas(64) air_fault fault;
    const air_step *culprit; /* whose kernel raised the fault */
    const air_step *slow;    /* the first that took too long, and how long */
    double seconds;
    cpu_fetch fetch;
} worker;

/* Of a step that has a place. */
typedef struct {
    base_barrier barrier;  /* of its threads */
    _Alignas(64) int done; /* threads that are */
} state;

struct cpu_run {
    cpu_run *next;
    size_t size; /* of this block */
    int threads; /* has room for */
    worker *workers;
    base_barrier *barriers; /* barriers[n - 1] is for n threads */
    char *scratch;          /* AIR_SCRATCH each */
    size_t nstates, nsteps; /* room for */
    state *states;          /* by step of the part */
    int64_t *taken;         /* by step: air_task.taken */
    const air_device *dev;
    const air_generator *generator;
    air_philox *philox;
    /* of the run under way */
    const air_list *list;
    const part *part;
    void *const *slots;
};

/* ---- the idle runs ------------------------------------------------------- */

static air_status
run_new(const air_alloc *alloc, int threads, size_t states, size_t steps,
        cpu_run **out)
{
    size_t n = (size_t)threads, room = LEAST_STEPS;
    while (room < steps)
        room *= 2;
    size_t counts = room * sizeof(int64_t);
    size_t head =
        (sizeof(cpu_run) + 63) / 64 * 64 + states * sizeof(state) + counts;
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
    run->nstates = states;
    run->states = (void *)(at - states * sizeof(state));
    run->nsteps = room;
    run->taken = (void *)(at - states * sizeof(state) - counts);
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

/* An idle run with room for so many threads, states and steps, else a new one:
 * only the first time that so many lists run at once. */
static air_status
run_get(air_device *dev, int threads, size_t states, size_t steps,
        cpu_run **out)
{
    pthread_mutex_lock(&dev->mutex);
    cpu_run **at = &dev->idle;
    while (*at != NULL && ((*at)->threads < threads ||
                           (*at)->nstates < states || (*at)->nsteps < steps))
        at = &(*at)->next;
    cpu_run *run = *at;
    if (run != NULL)
        *at = run->next;
    pthread_mutex_unlock(&dev->mutex);
    *out = run;
    return run != NULL ? AIR_OK
                       : run_new(&dev->alloc, threads, states, steps, out);
}

air_status
cpu_runs_fill(air_device *dev, size_t states, size_t steps)
{
    cpu_run *run;
    int threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED);
    AIR_TRY(run_get(dev, threads, states, steps, &run));
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
    return step->cost < CPU_SMALL || step->threads == 1;
}

static bool
step_is_library(const air_step *step)
{
    return step->kernel->library != NULL && step->threads == 0 && !step->joined;
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

/* The same of steps that say what they wait for. */
static air_status
part_place(air_device *dev, air_list *list, size_t begin, size_t end)
{
    while (begin < end) {
        size_t stop =
            end - begin > CPU_LANES_MOST ? begin + CPU_LANES_MOST : end;
        cpu_span span;
        AIR_TRY(cpu_lanes_place(&dev->alloc, list->steps, begin, stop,
                                list->threads, list->places, list->waits,
                                &list->nwaits, &span));
        part_add(list, PART_SERIAL, begin, span.begin);
        part_add(list, PART_LANES, span.begin, span.end);
        part_add(list, PART_SERIAL, span.end, stop);
        begin = stop;
    }
    return AIR_OK;
}

static air_status
part_make(air_device *dev, air_list *list, size_t begin, size_t end)
{
    if (list->places != NULL)
        return part_place(dev, list, begin, end);
    part_split(list, begin, end);
    return AIR_OK;
}

static air_status
parts_make(air_device *dev, air_list *list)
{
    size_t begin = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (!step_is_library(&list->steps[i]))
            continue;
        AIR_TRY(part_make(dev, list, begin, i));
        part_add(list, PART_LIBRARY, i, i + 1);
        begin = i + 1;
    }
    return part_make(dev, list, begin, list->count);
}

static size_t
list_size(size_t room)
{
    return sizeof(air_list) + room * sizeof(part);
}

static air_status
list_new(air_device *dev, const air_step *steps, size_t count, air_list **out)
{
    size_t room = 3 + 3 * (count / CPU_LANES_MOST);
    void *ptr;
    *out = NULL;
    for (size_t i = 0; i < count; i++)
        room += step_is_library(&steps[i]) ? 4 : 0;
    AIR_TRY(base_new(&dev->alloc, list_size(room), &ptr));
    *out = ptr;
    (*out)->steps = steps;
    (*out)->count = count;
    (*out)->room = room;
    (*out)->threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED);
    base_text_init(&(*out)->note, &dev->alloc);
    return AIR_OK;
}

/* Room for places, where steps have any. */
static air_status
places_new(air_device *dev, air_list *list)
{
    void *places, *waits;
    if (list->count < 2 || list->steps[0].after == NULL || list->threads == 1)
        return AIR_OK;
    for (size_t i = 0; i < list->count; i++)
        list->most_waits += list->steps[i].nafter;
    AIR_TRY(base_new(&dev->alloc, list->count * sizeof(cpu_place), &places));
    list->places = places;
    AIR_TRY(base_new(&dev->alloc, list->most_waits * sizeof(uint32_t), &waits));
    list->waits = waits;
    return AIR_OK;
}

/* All threads meet before a step that waits for one of those since they last
 * did; small ones follow each other on thread 0. */
static void
part_meets(air_list *list, const part *p)
{
    size_t last = p->begin, large = p->end; /* the first such one since */
    for (size_t i = p->begin; i < p->end; i++) {
        const size_t free = list->steps[i].beside;
        const bool small = step_is_small(&list->steps[i]);
        list->meets[i] = (small ? large : last) + free < i;
        if (list->meets[i])
            last = i, large = p->end;
        if (!small && large == p->end)
            large = i;
    }
}

static air_status
ahead_new(air_device *dev, air_list *list)
{
    void *ptr;
    AIR_TRY(base_new(&dev->alloc, list->count * sizeof *list->ahead, &ptr));
    list->ahead = ptr;
    for (size_t i = 0; i < list->count; i++)
        list->ahead[i] = cpu_ahead_of(&list->steps[i]);
    return AIR_OK;
}

static air_status
meets_new(air_device *dev, air_list *list)
{
    void *ptr;
    AIR_TRY(base_new(&dev->alloc, list->count * sizeof *list->meets, &ptr));
    list->meets = ptr;
    for (size_t i = 0; i < list->count; i++)
        list->meets[i] = false;
    for (size_t i = 0; i < list->nparts; i++)
        part_meets(list, &list->parts[i]);
    return AIR_OK;
}

static bool
list_is_serial(const air_list *list)
{
    for (size_t i = 0; i < list->nparts; i++)
        if (list->parts[i].kind != PART_SERIAL)
            return false;
    return true;
}

/* Steps that are placed together, at most. */
static size_t
list_states(const air_list *list)
{
    size_t most = 0;
    for (size_t i = 0; i < list->nparts; i++) {
        const part *p = &list->parts[i];
        if (p->kind == PART_LANES && p->end - p->begin > most)
            most = p->end - p->begin;
    }
    return most;
}

static air_status
list_fill(air_device *dev, air_list *list)
{
    AIR_TRY(places_new(dev, list));
    AIR_TRY(parts_make(dev, list));
    AIR_TRY(meets_new(dev, list));
    AIR_TRY(ahead_new(dev, list));
    AIR_TRY(cpu_choice_note(dev, list->steps, list->count, &list->note));
    list->states = list_states(list);
    return list_is_serial(list) ? AIR_OK
                                : cpu_runs_fill(dev, list->states, list->count);
}

air_status
cpu_list_make(air_device *dev, const air_step *steps, size_t count,
              air_list **out)
{
    AIR_TRY(list_new(dev, steps, count, out));
    air_status status = list_fill(dev, *out);
    if (status != AIR_OK) {
        cpu_list_free(dev, *out);
        *out = NULL;
    }
    return status;
}

void
cpu_list_free(air_device *dev, air_list *list)
{
    if (list == NULL)
        return;
    base_text_deinit(&list->note);
    base_free(&dev->alloc, list->places, list->count * sizeof(cpu_place));
    base_free(&dev->alloc, list->meets, list->count * sizeof *list->meets);
    base_free(&dev->alloc, list->ahead, list->count * sizeof *list->ahead);
    base_free(&dev->alloc, list->waits, list->most_waits * sizeof(uint32_t));
    base_free(&dev->alloc, list, list_size(list->room));
}

const char *
cpu_list_note(const air_device *dev, const air_list *list)
{
    (void)dev;
    return list->note.len > 0 ? list->note.data : NULL;
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

/* ---- who watches steps ---- */

static bool
is_watched(const air_device *dev)
{
    return dev->on_step != NULL || dev->step_seconds > 0;
}

static void
tell(const air_device *dev, const air_step *step, int thread, int threads,
     bool begins)
{
    if (dev->on_step != NULL)
        dev->on_step(dev->on_step_user, &(air_step_event){.label = step->label,
                                                          .lane = step->lane,
                                                          .thread = thread,
                                                          .threads = threads,
                                                          .begins = begins});
}

/* Of a thread that has run a step since `begin`. */
static void
check_time(const air_device *dev, worker *me, const air_step *step,
           double begin)
{
    const double seconds = base_now() - begin;
    if (dev->step_seconds <= 0 || seconds <= dev->step_seconds ||
        step->untimed || me->slow != NULL)
        return;
    me->slow = step;
    me->seconds = seconds;
}

/* Results are right, so that it is no more than a word in the log. */
static void
report_slow(air_device *dev, worker *w)
{
    char line[256];
    if (w->slow == NULL)
        return;
    (void)snprintf(line, sizeof line,
                   "step %s took %.3f s, the limit of time is %.3f s; the "
                   "scope op_never_timeout lifts it",
                   w->slow->label != NULL ? w->slow->label : "of a program",
                   w->seconds, dev->step_seconds);
    w->slow = NULL;
    if (dev->log != NULL)
        dev->log(dev->log_user, AIR_LOG_ERROR, line);
}

/* ---- a step ---- */

static void *
step_workspace(const air_step *step, void *const *slots)
{
    if (step->workspace == 0)
        return NULL;
    return (char *)slots[step->workspace_slot] + step->workspace_offset;
}

static void
step_compute(const air_step *step, air_task *task)
{
    task->workspace = step_workspace(step, task->slots);
    const air_kernel *kernel = step->kernel;
    air_call call = step->call;
    call.extra = kernel->join != NULL     ? kernel->join
                 : kernel->region != NULL ? kernel->region
                                          : call.extra;
    if (kernel->run != NULL)
        kernel->run(&call, task);
    else
        cpu_region_run(&call, task);
    if (kernel->region != NULL)
        cpu_region_fence(kernel->region);
}

/* first: the thread of the region that is number 0 of the step's. */
static void
step_run(cpu_run *run, const air_step *step, int first, air_task *task)
{
    worker *me = &run->workers[first + task->id];
    if (task->id == 0 && is_watched(run->dev)) {
        const double begin = base_now();
        tell(run->dev, step, first, task->count, true);
        step_compute(step, task);
        tell(run->dev, step, first, task->count, false);
        check_time(run->dev, me, step, begin);
    } else {
        step_compute(step, task);
    }
    if (me->fault.raised && me->culprit == NULL)
        me->culprit = step;
}

/* What thread id does for step i: a kernel sees as many threads as may run it,
 * and their barrier. The others wait for the next step. */
static void
step_share(cpu_run *run, size_t i, int id, int count)
{
    const air_step *step = &run->list->steps[i];
    air_task task;
    if (step_is_small(step))
        count = 1;
    else if (step->threads > 0 && step->threads < count)
        count = step->threads;
    if (id >= count)
        return;
    task = task_make(run, id, count);
    task.taken = &run->taken[i];
    step_run(run, step, 0, &task);
}

/* All threads come to step i; those that wait for others fetch what they will
 * read. */
static void
part_meet(cpu_run *run, size_t i, int id, int count)
{
    cpu_fetch *fetch = &run->workers[id].fetch;
    cpu_fetch_set(fetch, run->list->ahead, i, run->part->end, run->slots, id,
                  count);
    base_barrier_wait_busy(&run->barriers[count - 1], cpu_fetch_some, fetch);
}

/* Every thread of the region comes through here with the same count. */
static void
part_worker(void *arg, int id, int count)
{
    cpu_run *run = arg;
    run->workers[id].fetch = (cpu_fetch){0};
    for (size_t i = run->part->begin; i < run->part->end; i++) {
        if (run->list->meets[i])
            part_meet(run, i, id, count);
        step_share(run, i, id, count);
    }
}

/* Step i of the list, on thread `id` of the region: once those that it waits
 * for are done. */
static void
place_run(cpu_run *run, size_t i, int id)
{
    const cpu_place *place = &run->list->places[i];
    state *at = &run->states[i - run->part->begin];
    air_task task;
    if (id < place->first || id >= place->first + place->count)
        return;
    for (uint32_t w = 0; w < place->nwaits; w++) {
        const size_t other = place->waits[w];
        base_wait_count(&run->states[other - run->part->begin].done,
                        run->list->places[other].count);
    }
    task = task_make(run, id, place->count);
    task.id = id - place->first;
    task.pool = &at->barrier;
    task.taken = &run->taken[i];
    step_run(run, &run->list->steps[i], place->first, &task);
    __atomic_add_fetch(&at->done, 1, __ATOMIC_RELEASE);
}

/* Places are for as many threads as there were when the list was made; fewer
 * take the steps in order. */
static void
lanes_worker(void *arg, int id, int count)
{
    cpu_run *run = arg;
    if (count != run->list->threads) {
        part_worker(arg, id, count);
        return;
    }
    for (size_t i = run->part->begin; i < run->part->end; i++)
        place_run(run, i, id);
}

static void
reset_taken(cpu_run *run, const part *p)
{
    memset(run->taken + p->begin, 0, (p->end - p->begin) * sizeof(int64_t));
}

static void
part_lanes(air_device *dev, cpu_run *run, const part *p, int threads)
{
    run->part = p;
    for (size_t i = p->begin; i < p->end; i++) {
        state *at = &run->states[i - p->begin];
        at->done = 0;
        at->barrier.count = run->list->places[i].count;
    }
    reset_taken(run, p);
    dev->parallel(dev->parallel_user, threads, lanes_worker, run);
}

static void
part_serial(cpu_run *run, const part *p)
{
    air_task task = task_make(run, 0, 1);
    for (size_t i = p->begin; i < p->end; i++)
        step_run(run, &run->list->steps[i], 0, &task);
}

static void
part_parallel(air_device *dev, cpu_run *run, const part *p, int threads)
{
    run->part = p;
    if (threads == 1) {
        part_serial(run, p);
        return;
    }
    reset_taken(run, p);
    dev->parallel(dev->parallel_user, threads, part_worker, run);
}

static void
begin_worker(void *arg, int id, int count)
{
    cpu_run *run = arg;
    air_task task = task_make(run, id, count);
    const air_step *step = &run->list->steps[run->part->begin];
    task.workspace = step_workspace(step, run->slots);
    step->kernel->begin(&step->call, &task);
}

/* false: not done */
static bool
library_run(air_device *dev, cpu_run *run, const part *p, int threads)
{
    const air_step *step = &run->list->steps[p->begin];
    run->part = p;
    if (step->kernel->begin != NULL) {
        if (threads > 1)
            dev->parallel(dev->parallel_user, threads, begin_worker, run);
        else
            begin_worker(run, 0, 1);
    }
    return step->kernel->library(&dev->library, &step->call, run->slots,
                                 step_workspace(step, run->slots));
}

static bool
part_library(air_device *dev, cpu_run *run, const part *p, int threads)
{
    const air_step *step = &run->list->steps[p->begin];
    if (!is_watched(dev))
        return library_run(dev, run, p, threads);
    const double begin = base_now();
    tell(dev, step, 0, threads, true);
    const bool done = library_run(dev, run, p, threads);
    tell(dev, step, 0, threads, false);
    check_time(dev, &run->workers[0], step, begin);
    return done;
}

static void
part_run(air_device *dev, cpu_run *run, const part *p, int threads)
{
    if (p->kind == PART_SERIAL)
        part_serial(run, p);
    else if (p->kind == PART_LANES)
        part_lanes(dev, run, p, threads);
    else if (p->kind == PART_PARALLEL || !part_library(dev, run, p, threads))
        part_parallel(dev, run, p, threads);
}

/* The first fault of the lowest thread becomes the status of the run. */
static air_status
run_status(air_device *dev, cpu_run *run)
{
    const air_step *culprit = NULL;
    air_fault fault = {.raised = false};
    for (int i = 0; i < run->threads; i++) {
        worker *w = &run->workers[i];
        if (w->culprit != NULL && culprit == NULL) {
            culprit = w->culprit;
            fault = w->fault;
        }
        report_slow(dev, w);
        w->culprit = NULL;
        w->fault.raised = false;
    }
    if (culprit == NULL)
        return AIR_OK;
    return driver_fail(&fault, culprit->label);
}

air_status
cpu_list_run(air_device *dev, air_list *list, void *const *slots)
{
    cpu_run *run;
    int threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED);
    if (threads > list->threads)
        threads = list->threads;
    AIR_TRY(run_get(dev, threads, list->states, list->count, &run));
    run->dev = dev;
    run->generator = dev->generator;
    run->philox = &dev->philox;
    run->list = list;
    run->slots = slots;
    for (size_t i = 0; i < list->nparts; i++)
        part_run(dev, run, &list->parts[i], threads);
    air_status status = run_status(dev, run);
    run_put(dev, run);
    return status;
}
