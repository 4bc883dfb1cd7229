/* module.c: texts become loaded code: from this process, from the folder of
 * compiled code, or by NVRTC; what has to be compiled is, side by side. So are
 * the parts of a text that has some, which are then linked. */
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "driver/cuda/device.h"

/* Products and sums are fused where the text says so, as everywhere. */
static const char *const options[] = {"--std=c++17", "--fmad=false",
                                      "--device-as-default-execution-space"};
enum {
    OPTIONS = sizeof options / sizeof *options,
    MORE = 5, /* arguments besides */
    ROOM = 64,
    LONG_TEXT = 100000, /* bytes: a persistent kernel of many phases */
    /* NVRTC that takes functions of a text side by side, and knows how many
     * registers a function of a part preserves */
    SPLITS_SINCE = 13
};

typedef struct job {
    air_device *dev;
    cuda_want *want;
    base_text source;
    uint64_t hash[2];
    char *cubin; /* size bytes; NULL: not needed, or failed */
    size_t size;
    bool missing; /* neither loaded nor the text of an earlier job */
    bool fresh;   /* compiled now */
    air_status status;
    air_error error;
    struct job *parts;    /* of the same text, want->parts + 1; NULL: none */
    const struct job *of; /* whose part it is; NULL: a text by itself */
    uint32_t part;
} job;

typedef struct {
    job *jobs;
    size_t count, wants, next; /* jobs; those that are no parts */
} queue;

/* ---- one text ---- */

/* Parts of the want's text: one besides for the kernel itself. One after the
 * other they would take longer than the whole. */
static size_t
parts_of(const air_device *dev, const cuda_want *want)
{
    const bool can = dev->compiler[0] >= SPLITS_SINCE && dev->threads > 1;
    return can && want->parts > 0 ? want->parts + 1 : 0;
}

static air_status
make_source(job *j)
{
    const air_device *dev = j->dev;
    base_text *t = &j->source;
    base_text_add(t, "// %s, NVRTC %d.%d", dev->props.isa, dev->compiler[0],
                  dev->compiler[1]);
    for (int i = 0; i < OPTIONS; i++)
        base_text_add(t, " %s", options[i]);
    if (parts_of(dev, j->want) > 0)
        base_text_add(t, " in parts");
    base_text_add(t, "\n#define ENTRY(i) air_##i");
    if (j->want->name[0])
        base_text_add(t, "##%s", j->want->name);
    base_text_add(t, "\n");
    if (j->want->prelude)
        base_text_put(t, j->want->prelude, strlen(j->want->prelude));
    base_text_put(t, "\n", 1);
    base_text_put(t, j->want->text, strlen(j->want->text));
    AIR_TRY(t->status);
    j->hash[0] = base_hash(t->data, t->len, 0);
    j->hash[1] = base_hash(t->data, t->len, 0x9e3779b97f4a7c15U);
    return AIR_OK;
}

/* The line of the log that says why; its first one may be a warning. */
static const char *
line_of(const char *log)
{
    const char *error = strstr(log, "error");
    while (error && error > log && error[-1] != '\n')
        error--;
    return error ? error : log;
}

/* What the compiler says of a text that it does not take. */
static air_status
refuse(const job *j, cu_program program)
{
    const cuda_symbols *cu = &j->dev->cu;
    const air_alloc *alloc = &j->dev->alloc;
    size_t size = 0;
    void *text;
    (void)cu->program_log_size(program, &size);
    AIR_TRY(base_new(alloc, size + 1, &text));
    char *log = text;
    if (size > 0)
        (void)cu->program_log(program, log);
    const char *line = line_of(log);
    const int len = (int)strcspn(line, "\n");
    const air_status status =
        base_fail(AIR_ERROR_UNSUPPORTED, __func__, __LINE__,
                  "NVRTC does not compile a kernel: %.*s", len, line);
    base_free(alloc, text, size + 1);
    return status;
}

static air_status
take_cubin(job *j, cu_program program)
{
    const cuda_symbols *cu = &j->dev->cu;
    void *data;
    AIR_REQUIRE(cu->program_cubin_size(program, &j->size) == 0 && j->size > 0,
                AIR_ERROR_DRIVER, "NVRTC gives no code for %s",
                j->dev->props.isa);
    AIR_TRY(base_new(&j->dev->alloc, j->size, &data));
    j->cubin = data;
    AIR_REQUIRE(cu->program_cubin(program, j->cubin) == 0, AIR_ERROR_DRIVER,
                "NVRTC gives no code");
    j->fresh = true;
    return AIR_OK;
}

/* Arguments, and room for those that are made here. */
typedef struct {
    const char *all[OPTIONS + MORE];
    char room[MORE][ROOM];
    int count, made;
} arguments;

/* Another argument, to be written there. */
static char *
more(arguments *a)
{
    char *to = a->room[a->made++];
    a->all[a->count++] = to;
    return to;
}

/* Registers of a thread are for a block of the kernel on each processor. */
static void
add_part(arguments *a, const job *j)
{
    const uint32_t threads = j->want->threads;
    const uint32_t each = (uint32_t)j->dev->props.registers / threads / 8 * 8;
    a->all[a->count++] = "--relocatable-device-code=true";
    (void)snprintf(more(a), ROOM, "--maxrregcount=%u", each < 255 ? each : 255);
    (void)snprintf(more(a), ROOM, "--define-macro=SUPER_PART=%u", j->part);
}

static void
add_all(arguments *a, const job *j, size_t bytes)
{
    memcpy(a->all, options, sizeof options);
    a->count = OPTIONS;
    (void)snprintf(more(a), ROOM, "--gpu-architecture=%s", j->dev->props.isa);
    if (j->of)
        add_part(a, j);
    /* Others have texts beside them for the processors. */
    else if (bytes > LONG_TEXT && j->dev->compiler[0] >= SPLITS_SINCE)
        a->all[a->count++] = "--split-compile=0";
}

static air_status
compile(job *j)
{
    const cuda_symbols *cu = &j->dev->cu;
    const base_text *source = j->of ? &j->of->source : &j->source;
    arguments a = {.count = 0};
    cu_program program = NULL;
    add_all(&a, j, source->len);
    AIR_REQUIRE(
        cu->program_new(&program, source->data, "air.cu", 0, NULL, NULL) == 0,
        AIR_ERROR_DRIVER, "NVRTC cannot be started");
    const bool good = cu->program_compile(program, a.count, a.all) == 0;
    const air_status status =
        good ? take_cubin(j, program) : refuse(j, program);
    (void)cu->program_free(&program);
    return status;
}

static air_status
read_cache(job *j)
{
    return cuda_cache_read(&j->dev->alloc, j->dev->cache, j->hash, &j->cubin,
                           &j->size);
}

static void
run_job(job *j)
{
    if (!j->of && !j->cubin)
        j->status = read_cache(j);
    if (j->status == AIR_OK && !j->cubin)
        j->status = compile(j);
    if (j->status != AIR_OK)
        j->error = *air_last_error(); /* of this thread */
}

static void
work(void *arg, int id, int count)
{
    queue *q = arg;
    (void)id, (void)count;
    for (;;) {
        const size_t i = __atomic_fetch_add(&q->next, 1, __ATOMIC_RELAXED);
        if (i >= q->count)
            return;
        /* Parts first, as the way of their kernel is the longest. */
        job *j = &q->jobs[(q->wants + i) % q->count];
        if (j->missing && !j->parts)
            run_job(j);
    }
}

/* ---- loaded code ---- */

static cuda_module *
find_module(const air_device *dev, const uint64_t hash[2])
{
    for (cuda_module *m = dev->modules; m; m = m->next)
        if (m->hash[0] == hash[0] && m->hash[1] == hash[1])
            return m;
    return NULL;
}

static air_status
find_entries(const air_device *dev, cuda_module *m, const cuda_want *want)
{
    char name[CUDA_NAME + 16];
    for (uint32_t i = 0; i < want->nentries; i++) {
        (void)snprintf(name, sizeof name, "air_%u%s", i, want->name);
        CUDA_TRY(dev, "a kernel has no such entry",
                 dev->cu.module_function(&m->functions[i], m->module, name));
    }
    return AIR_OK;
}

static air_status
load(job *j, cuda_module **out)
{
    air_device *dev = j->dev;
    void *ptr;
    AIR_TRY(base_new(&dev->alloc, sizeof(cuda_module), &ptr));
    cuda_module *m = ptr;
    air_status status =
        cuda_check(dev, dev->cu.module_load(&m->module, j->cubin),
                   "code cannot be loaded");
    if (status == AIR_OK)
        status = find_entries(dev, m, j->want);
    if (status != AIR_OK) {
        if (m->module)
            (void)dev->cu.module_unload(m->module);
        base_free(&dev->alloc, m, sizeof *m);
        return status;
    }
    memcpy(m->hash, j->hash, sizeof m->hash);
    m->bytes = j->size;
    *out = m;
    return AIR_OK;
}

/* A block may have 48 KB of shared memory unless more is asked for. */
static air_status
allow_shared(const air_device *dev, const cuda_want *want)
{
    enum { PLAIN = 48 << 10 };
    cuda_module *m = want->module;
    if (want->shared <= PLAIN || want->shared <= m->shared)
        return AIR_OK;
    for (uint32_t i = 0; i < want->nentries; i++)
        CUDA_TRY(dev, "shared memory of a kernel",
                 dev->cu.function_set(m->functions[i],
                                      CU_FUNCTION_DYNAMIC_SHARED,
                                      (int)want->shared));
    m->shared = want->shared;
    return AIR_OK;
}

/* ---- parts ---- */

static air_status
link_parts(job *j)
{
    const air_alloc *alloc = &j->dev->alloc;
    const size_t count = j->want->parts + 1;
    cuda_part made;
    void *room;
    for (size_t i = 0; i < count; i++)
        AIR_REQUIRE(j->parts[i].status == AIR_OK, j->parts[i].status, "%s",
                    j->parts[i].error.message);
    AIR_TRY(base_new(alloc, count * sizeof(cuda_part), &room));
    cuda_part *parts = room;
    for (size_t i = 0; i < count; i++)
        parts[i] = (cuda_part){j->parts[i].cubin, j->parts[i].size};
    const air_status status = cuda_link(j->dev, parts, count, &made);
    base_free(alloc, parts, count * sizeof(cuda_part));
    AIR_TRY(status);
    j->cubin = made.code;
    j->size = made.size;
    j->fresh = true;
    return AIR_OK;
}

/* What is not compiled in parts here is as a whole, which takes longer. */
static void
settle_parts(job *j)
{
    j->status = link_parts(j);
    if (j->status == AIR_OK)
        return;
    (void)snprintf(j->want->whole, sizeof j->want->whole, "%.150s",
                   air_last_error()->message);
    j->status = compile(j);
    if (j->status != AIR_OK)
        j->error = *air_last_error();
}

/* Another job may have had the same text. */
static air_status
settle(job *j)
{
    air_device *dev = j->dev;
    cuda_module *m =
        j->want->module ? j->want->module : find_module(dev, j->hash);
    if (!m) {
        if (j->parts)
            settle_parts(j);
        AIR_REQUIRE(j->status == AIR_OK, j->status, "%s", j->error.message);
        AIR_TRY(load(j, &m));
        m->next = dev->modules;
        dev->modules = m;
        if (j->fresh)
            cuda_cache_write(dev->cache, j->hash, j->cubin, j->size);
    }
    j->want->module = m;
    return allow_shared(dev, j->want);
}

/* ---- all of them ---- */

static bool
is_double(const job *jobs, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (memcmp(jobs[k].hash, jobs[i].hash, sizeof jobs[i].hash) == 0)
            return true;
    return false;
}

/* Products have none. */
static bool
has_text(const cuda_want *want)
{
    return want->text != NULL;
}

/* The text in parts, if it is not compiled already. */
static air_status
part(job *j, job *parts)
{
    AIR_TRY(read_cache(j));
    if (j->cubin)
        return AIR_OK;
    j->parts = parts;
    for (uint32_t i = 0; i <= j->want->parts; i++)
        parts[i] = (job){.dev = j->dev,
                         .want = j->want,
                         .missing = true,
                         .of = j,
                         .part = i};
    return AIR_OK;
}

/* jobs: one for each want, and for each of its parts behind them all. */
static air_status
prepare(air_device *dev, cuda_want *wants, size_t count, job *jobs,
        size_t *out_missing)
{
    job *more = jobs + count;
    *out_missing = 0;
    for (size_t i = 0; i < count; i++) {
        job *j = &jobs[i];
        j->dev = dev;
        j->want = &wants[i];
        base_text_init(&j->source, &dev->alloc);
        if (!has_text(j->want))
            continue;
        AIR_TRY(make_source(j));
        j->want->module = find_module(dev, j->hash);
        j->missing = !j->want->module && !is_double(jobs, i);
        if (j->missing && parts_of(dev, j->want) > 0)
            AIR_TRY(part(j, more));
        *out_missing += j->parts ? parts_of(dev, j->want) : j->missing;
        more += parts_of(dev, j->want);
    }
    return AIR_OK;
}

static air_status
compile_all(air_device *dev, job *jobs, size_t count, size_t wants,
            size_t missing)
{
    queue q = {.jobs = jobs, .count = count, .wants = wants};
    base_pool *pool;
    const int threads =
        missing < (size_t)dev->threads ? (int)missing : dev->threads;
    if (missing == 0)
        return AIR_OK;
    if (threads < 2) {
        work(&q, 0, 1);
        return AIR_OK;
    }
    AIR_TRY(base_pool_create(&dev->alloc, threads, &pool));
    base_pool_run(pool, threads, work, &q);
    base_pool_destroy(pool);
    return AIR_OK;
}

static void
free_jobs(air_device *dev, job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].dev)
            continue;
        if (!jobs[i].of)
            base_text_deinit(&jobs[i].source);
        base_free(&dev->alloc, jobs[i].cubin, jobs[i].size);
    }
    base_free(&dev->alloc, jobs, count * sizeof *jobs);
}

static air_status
get_all(air_device *dev, cuda_want *wants, size_t count, job *jobs, size_t all)
{
    size_t missing;
    AIR_TRY(prepare(dev, wants, count, jobs, &missing));
    AIR_TRY(compile_all(dev, jobs, all, count, missing));
    for (size_t i = 0; i < count; i++)
        if (has_text(&wants[i]))
            AIR_TRY(settle(&jobs[i]));
    return AIR_OK;
}

air_status
cuda_modules_get(air_device *dev, cuda_want *wants, size_t count)
{
    size_t all = count;
    void *jobs;
    if (count == 0)
        return AIR_OK;
    for (size_t i = 0; i < count; i++)
        all += parts_of(dev, &wants[i]);
    AIR_TRY(base_new(&dev->alloc, all * sizeof(job), &jobs));
    pthread_mutex_lock(&dev->loading);
    const air_status status = get_all(dev, wants, count, jobs, all);
    pthread_mutex_unlock(&dev->loading);
    free_jobs(dev, jobs, all);
    return status;
}

void
cuda_modules_free(air_device *dev)
{
    while (dev->modules) {
        cuda_module *m = dev->modules;
        dev->modules = m->next;
        (void)dev->cu.module_unload(m->module);
        base_free(&dev->alloc, m, sizeof *m);
    }
}
