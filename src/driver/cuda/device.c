/* device.c: one GPU: its primary context, memory, streams, errors. */
#include "driver/cuda/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver/cuda/fuse.h"
#include "driver/driver.h"

/* ---- errors ---- */

/* Errors after which every call of the process on this GPU fails: faults of
 * kernels that ran, which CUDA tells of at some later call. */
static bool
is_lost(int code)
{
    static const int lost[] = {214, 700, 702, 710, 714,
                               715, 716, 717, 718, 719};
    bool found = false;
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        found = found || code == lost[i];
    return found;
}

air_status
cuda_check(const air_device *dev, int code, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (code == 0)
        return AIR_OK;
    (void)dev->cu.error_name(code, &name);
    (void)dev->cu.error_text(code, &text);
    AIR_FAIL(code == CU_OUT_OF_MEMORY ? AIR_ERROR_MEMORY : AIR_ERROR_DRIVER,
             "%s on GPU %d: %s (%s, error %d of CUDA)%s", what, dev->gpu.index,
             text ? text : "unknown", name ? name : "?", code,
             is_lost(code) ? "; an earlier kernel failed, of whatever library: "
                             "start the process again, CUDA_LAUNCH_BLOCKING=1 "
                             "shows which"
                           : "");
}

air_status
cuda_fault_check(air_device *dev)
{
    cuda_fault *fault = dev->fault;
    const int raised = __atomic_load_n(&fault->raised, __ATOMIC_ACQUIRE);
    if (raised != CUDA_FAULT_INDEX && raised != CUDA_FAULT_STUCK)
        return AIR_OK;
    const cuda_fault seen = *fault;
    __atomic_store_n(&fault->raised, 0, __ATOMIC_RELEASE);
    AIR_REQUIRE(raised != CUDA_FAULT_STUCK, AIR_ERROR_DRIVER,
                "an earlier run gave up: phase %lld of a persistent kernel "
                "waited more than %lld ms for all blocks (%lld arrivals so "
                "far); its results are wrong. TORCHAIR_CUDA_PERSISTENT=0, "
                "persistent of air_gpu, turns such kernels off; "
                "TORCHAIR_CUDA_PATIENCE, persistent_ms, lets them wait longer",
                (long long)seen.index, (long long)(dev->patience / 1000000),
                (long long)seen.size);
    AIR_FAIL(AIR_ERROR_INDEX,
             "an earlier run met index %lld, which is out of range for a "
             "dimension of size %lld",
             (long long)seen.index, (long long)seen.size);
}

/* ---- context and stream ---- */

static air_status
push_context(const air_device *dev, bool *out_pushed)
{
    cu_context now = NULL;
    *out_pushed = false;
    CUDA_TRY(dev, "the context cannot be read", dev->cu.context_get(&now));
    if (now == dev->context)
        return AIR_OK;
    CUDA_TRY(dev, "the context cannot be entered",
             dev->cu.context_push(dev->context));
    *out_pushed = true;
    return AIR_OK;
}

air_status
cuda_enter(const air_device *dev, cuda_entered *out)
{
    *out = (cuda_entered){.mode = CU_CAPTURE_RELAXED};
    AIR_TRY(push_context(dev, &out->pushed));
    out->relaxed = dev->cu.capture_mode(&out->mode) == 0;
    return AIR_OK;
}

void
cuda_leave(const air_device *dev, const cuda_entered *was)
{
    cu_context gone;
    int mode = was->mode;
    if (was->relaxed)
        (void)dev->cu.capture_mode(&mode);
    if (was->pushed)
        (void)dev->cu.context_pop(&gone);
}

/* What is being captured by the application must not wait for anything that
 * is not. The legacy stream belongs to every capture of a blocking one, which
 * CUDA says as an error; to touch it would end that capture. */
bool
cuda_is_captured(const air_device *dev, cu_stream stream)
{
    int captured = 0;
    const int code = dev->cu.stream_capturing(stream, &captured);
    return code == CU_CAPTURE_IMPLICIT || (code == 0 && captured != 0);
}

/* What is given to `stream` from now on comes after what `other` has. */
static air_status
follow(air_device *dev, cu_stream other, cu_stream stream)
{
    if (cuda_is_captured(dev, stream) || cuda_is_captured(dev, other))
        return AIR_OK;
    CUDA_TRY(dev, "an event cannot be recorded",
             dev->cu.event_record(dev->passed, other));
    return cuda_check(dev, dev->cu.stream_after(stream, dev->passed, 0),
                      "a stream cannot wait");
}

/* Runs of one thread are over, for the host, when the next one begins: it is
 * enough to follow the last stream. Runs of several threads overlap, so that
 * any other stream may have got work since. */
static air_status
follow_others(air_device *dev, cu_stream stream)
{
    if (!dev->mixed)
        return dev->nstreams == 0 || dev->last == stream
                   ? AIR_OK
                   : follow(dev, dev->last, stream);
    for (int i = 0; i < dev->nstreams; i++)
        if (dev->streams[i] != stream)
            AIR_TRY(follow(dev, dev->streams[i], stream));
    return AIR_OK;
}

/* Where there are more than can be told apart, the first one makes room: what
 * replaces it comes after all that it has been given. */
static void
note_stream(air_device *dev, cu_stream stream)
{
    int at = 0;
    while (at < dev->nstreams && dev->streams[at] != stream)
        at++;
    if (at == CUDA_STREAMS)
        at = 0;
    else if (at == dev->nstreams)
        dev->nstreams++;
    dev->streams[at] = stream;
    dev->last = stream;
    dev->thread = pthread_self();
}

air_status
cuda_stream(air_device *dev, cu_stream *out)
{
    *out = dev->gpu.stream ? dev->gpu.stream(dev->gpu.user) : NULL;
    if (cuda_is_captured(dev, *out))
        return AIR_OK; /* nothing runs on it now */
    pthread_mutex_lock(&dev->mutex);
    dev->mixed = dev->mixed || (dev->nstreams > 0 &&
                                !pthread_equal(dev->thread, pthread_self()));
    const air_status status = follow_others(dev, *out);
    if (status == AIR_OK)
        note_stream(dev, *out);
    pthread_mutex_unlock(&dev->mutex);
    return status;
}

air_status
cuda_draw(const air_device *dev, int64_t count, cuda_drawn *out)
{
    *out = (cuda_drawn){0, 0};
    AIR_REQUIRE(count == 0 || dev->gpu.draw(dev->gpu.user, (uint64_t)count,
                                            &out->seed, &out->offset),
                AIR_ERROR_HOST,
                "the application has no random numbers for GPU %d",
                dev->gpu.index);
    return AIR_OK;
}

/* ---- opening ---- */

static air_status
copy_text(const air_alloc *alloc, const char *text, char **out)
{
    void *copy;
    *out = NULL;
    if (!text)
        return AIR_OK;
    AIR_TRY(base_new(alloc, strlen(text) + 1, &copy));
    memcpy(copy, text, strlen(text) + 1);
    *out = copy;
    return AIR_OK;
}

static void
free_text(const air_alloc *alloc, char *text)
{
    if (text)
        base_free(alloc, text, strlen(text) + 1);
}

static air_status
take_options(air_device *dev, const air_options *options)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    dev->threads = options->threads > 0 ? options->threads
                   : online > 0         ? (int)online
                                        : 1;
    if (!options->gpu)
        return AIR_OK;
    dev->gpu = *options->gpu;
    AIR_REQUIRE(dev->gpu.index >= 0, AIR_ERROR_ARGUMENT,
                "options.gpu.index is %d: it must not be negative",
                dev->gpu.index);
    AIR_REQUIRE(!dev->gpu.alloc == !dev->gpu.free, AIR_ERROR_ARGUMENT,
                "options.gpu has one of alloc and free: give both or none");
    AIR_TRY(copy_text(&dev->alloc, options->gpu->libraries, &dev->folders));
    return copy_text(&dev->alloc, options->gpu->cache, &dev->cache);
}

static air_status
find_gpu(air_device *dev)
{
    int count = 0;
    int code = dev->cu.init(0);
    if (code == 0)
        code = dev->cu.device_count(&count);
    AIR_REQUIRE(code != 0 || dev->gpu.index < count, AIR_ERROR_DRIVER,
                "there is no GPU %d: this machine has %d", dev->gpu.index,
                count);
    CUDA_TRY(dev, "CUDA cannot be started", code);
    return cuda_check(dev, dev->cu.device_get(&dev->ordinal, dev->gpu.index),
                      "no such device");
}

static air_status
attribute(const air_device *dev, int which, int *out)
{
    return cuda_check(dev, dev->cu.device_attribute(out, which, dev->ordinal),
                      "a property cannot be read");
}

/* Instructions of one architecture only (wgmma, setmaxnreg) have a target of
 * their own from 9.0 on. */
static air_status
read_props(air_device *dev)
{
    int major, minor, processors, l2, shared, registers, threads;
    AIR_TRY(attribute(dev, CU_ATTRIBUTE_MAJOR, &major));
    AIR_TRY(attribute(dev, CU_ATTRIBUTE_MINOR, &minor));
    AIR_TRY(attribute(dev, CU_ATTRIBUTE_PROCESSORS, &processors));
    AIR_TRY(attribute(dev, CU_ATTRIBUTE_L2_BYTES, &l2));
    AIR_TRY(attribute(dev, CU_ATTRIBUTE_SHARED_BYTES, &shared));
    AIR_TRY(attribute(dev, CU_ATTRIBUTE_REGISTERS, &registers));
    AIR_TRY(attribute(dev, CU_ATTRIBUTE_THREADS, &threads));
    AIR_REQUIRE(major >= 7, AIR_ERROR_UNSUPPORTED,
                "GPU %d has compute capability %d.%d: driver cuda needs 7.0",
                dev->gpu.index, major, minor);
    dev->props = (cuda_props){.capability = 10 * major + minor,
                              .processors = processors,
                              .threads = threads,
                              .l2_bytes = l2,
                              .shared_bytes = (size_t)shared,
                              .registers = (size_t)registers,
                              .blas = dev->cu.multiply != NULL,
                              .draws = dev->gpu.draw != NULL};
    (void)snprintf(dev->props.isa, sizeof dev->props.isa, "sm_%d%s",
                   dev->props.capability, major >= 9 ? "a" : "");
    (void)snprintf(dev->target, sizeof dev->target, "%s:%d:%d", dev->props.isa,
                   processors, shared);
    dev->checks = dev->gpu.persistent_checks;
    dev->patience = dev->gpu.persistent_ms * 1000000;
    dev->overlaps = dev->props.capability >= CUDA_OVERLAP_CAPABILITY &&
                    dev->cu.graph_edge && !dev->gpu.no_overlap;
    return cuda_check(
        dev, dev->cu.compiler_version(&dev->compiler[0], &dev->compiler[1]),
        "NVRTC has no version");
}

/* In the context. */
static air_status
make_shared(air_device *dev)
{
    void *fault;
    CUDA_TRY(dev, "an event cannot be made",
             dev->cu.event_new(&dev->passed, CU_EVENT_NO_TIMING));
    CUDA_TRY(dev, "memory of the host cannot be had",
             dev->cu.host_alloc(&fault, sizeof *dev->fault,
                                CU_HOST_PORTABLE_MAPPED));
    dev->fault = fault;
    *dev->fault = (cuda_fault){0};
    return AIR_OK;
}

static air_status
open_gpu(air_device *dev)
{
    cuda_entered was;
    AIR_TRY(cuda_symbols_open(dev->folders, &dev->cu));
    AIR_TRY(find_gpu(dev));
    AIR_TRY(read_props(dev));
    CUDA_TRY(dev, "the primary context cannot be had",
             dev->cu.context_retain(&dev->context, dev->ordinal));
    dev->retained = true;
    AIR_TRY(cuda_enter(dev, &was));
    const air_status status = make_shared(dev);
    cuda_leave(dev, &was);
    return status;
}

/* Where the context cannot be entered CUDA may refuse to free what is its own;
 * what is the host's goes. */
static void
close_context(air_device *dev)
{
    cuda_entered was;
    (void)cuda_enter(dev, &was);
    cuda_modules_free(dev);
    if (dev->blas)
        (void)dev->cu.blas_free(dev->blas);
    if (dev->fault)
        (void)dev->cu.host_free(dev->fault);
    if (dev->passed)
        (void)dev->cu.event_free(dev->passed);
    cuda_leave(dev, &was);
    (void)dev->cu.context_release(dev->ordinal);
}

static void
cuda_close(air_device *dev)
{
    const air_alloc alloc = dev->alloc;
    if (dev->retained)
        close_context(dev);
    cuda_symbols_close(&dev->cu);
    free_text(&alloc, dev->folders);
    free_text(&alloc, dev->cache);
    pthread_mutex_destroy(&dev->loading);
    pthread_mutex_destroy(&dev->mutex);
    base_free(&alloc, dev, sizeof *dev);
}

static air_status
cuda_open(const air_options *options, const air_alloc *alloc, air_device **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(alloc, sizeof(air_device), &ptr));
    air_device *dev = ptr;
    dev->alloc = *alloc;
    pthread_mutex_init(&dev->loading, NULL);
    pthread_mutex_init(&dev->mutex, NULL);
    air_status status = take_options(dev, options);
    if (status == AIR_OK)
        status = open_gpu(dev);
    if (status != AIR_OK) {
        cuda_close(dev);
        return base_trace(status, __func__, __LINE__);
    }
    *out = dev;
    return AIR_OK;
}

static void
cuda_target(const air_device *dev, air_target *out)
{
    *out = (air_target){.name = "cuda",
                        .threads = dev->props.processors,
                        .cache_bytes = dev->props.l2_bytes,
                        .alignment = 256,
                        .isa = dev->target,
                        .regions = true,
                        .sums = true,
                        .moments = true,
                        .apart = true,
                        .source = true,
                        .fine_weights = true,
                        .linger = FUSE_STEPS,
                        .bundles = true};
}

/* ---- memory ---- */

static air_status
own_alloc(air_device *dev, size_t size, void **out)
{
    cuda_entered was;
    uint64_t ptr = 0;
    AIR_TRY(cuda_enter(dev, &was));
    const int code = dev->cu.alloc(&ptr, size > 0 ? size : 1);
    cuda_leave(dev, &was);
    CUDA_TRY(dev, "memory cannot be had", code);
    *out = (void *)(uintptr_t)ptr;
    return AIR_OK;
}

static air_status
cuda_alloc(air_device *dev, size_t size, void **out)
{
    *out = NULL;
    if (!dev->gpu.alloc)
        return own_alloc(dev, size, out);
    *out = dev->gpu.alloc(dev->gpu.user, size);
    AIR_REQUIRE(*out, AIR_ERROR_MEMORY, "GPU %d is out of memory: %zu bytes",
                dev->gpu.index, size);
    return AIR_OK;
}

/* The application hands memory on in the order of the stream on which it was
 * had: what runs of other streams still do with it must be over by then. */
static void
finish_runs(air_device *dev)
{
    cuda_entered was;
    pthread_mutex_lock(&dev->mutex);
    if (dev->nstreams > 1 && cuda_enter(dev, &was) == AIR_OK) {
        for (int i = 0; i < dev->nstreams; i++)
            if (!cuda_is_captured(dev, dev->streams[i]))
                (void)dev->cu.stream_wait(dev->streams[i]);
        cuda_leave(dev, &was);
    }
    pthread_mutex_unlock(&dev->mutex);
}

static void
cuda_free(air_device *dev, void *ptr, size_t size)
{
    cuda_entered was;
    if (!ptr)
        return;
    if (dev->gpu.free) {
        finish_runs(dev);
        dev->gpu.free(dev->gpu.user, ptr, size);
    } else {
        (void)cuda_enter(dev, &was);
        (void)dev->cu.free((uint64_t)(uintptr_t)ptr);
        cuda_leave(dev, &was);
    }
}

/* Not where finish_runs would wait. */
static bool
cuda_is_lent(air_device *dev)
{
    pthread_mutex_lock(&dev->mutex);
    const bool lent = dev->gpu.free != NULL && dev->nstreams <= 1;
    pthread_mutex_unlock(&dev->mutex);
    return lent;
}

/* Memory that CUDA does not know is the host's. */
static bool
is_host(const air_device *dev, const void *ptr)
{
    int type = CU_MEMORY_HOST;
    if (dev->cu.pointer_attribute(&type, CU_POINTER_MEMORY_TYPE,
                                  (uint64_t)(uintptr_t)ptr) != 0)
        return true;
    return type == CU_MEMORY_HOST;
}

static air_status
copy_entered(air_device *dev, void *dst, const void *src, size_t size)
{
    cu_stream stream;
    AIR_TRY(cuda_stream(dev, &stream));
    CUDA_TRY(dev, "memory cannot be copied",
             dev->cu.copy((uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src,
                          size, stream));
    if (is_host(dev, dst) || is_host(dev, src))
        CUDA_TRY(dev, "a copy failed", dev->cu.stream_wait(stream));
    return AIR_OK;
}

static air_status
cuda_copy(air_device *dev, void *dst, const void *src, size_t size)
{
    cuda_entered was;
    if (size == 0)
        return AIR_OK;
    AIR_TRY(cuda_enter(dev, &was));
    const air_status status = copy_entered(dev, dst, src, size);
    cuda_leave(dev, &was);
    return status;
}

const air_driver air_driver_cuda = {
    .abi = AIR_DRIVER_ABI,
    .size = sizeof(air_driver),
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .target = cuda_target,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .kernel_find = cuda_kernel_find,
    .kernel_make = cuda_kernel_make,
    .is_plain = cuda_is_plain,
    .kernel_free = cuda_kernel_free,
    .workspace = cuda_kernel_workspace,
    .list_make = cuda_list_make,
    .list_run = cuda_list_run,
    .list_free = cuda_list_free,
    .list_note = cuda_list_note,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_patch = cuda_graph_patch,
    .graph_free = cuda_graph_free,
    .foreign_begin = cuda_foreign_begin,
    .foreign_end = cuda_foreign_end,
    .is_lent = cuda_is_lent,
};
