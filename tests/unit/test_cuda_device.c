/* Driver cuda over a GPU that is none (tests/fake): what it asks of CUDA, what
 * it gives back, what it says when something fails. */
#include <stdlib.h>
#include <unistd.h>

#include "cuda_case.h"
#include "driver/cuda/device.h"

TEST(cuda_says_which_library_is_missing)
{
    cuda_case f;
    REQUIRE(cuda_case_prepare(&f));
    f.gpu.libraries = "/nonexistent";
    const air_status status = cuda_case_open(&f, &base_libc_alloc);
    if (status == AIR_OK) {
        cuda->close(f.dev);
        test_skip("this machine has CUDA");
        return;
    }
    CHECK(status == AIR_ERROR_DRIVER);
    const char *message = air_last_error()->message;
    CHECK(strstr(message, "lib") && strstr(message, "/nonexistent"));
}

TEST(cuda_opens_a_gpu)
{
    cuda_case f;
    air_target target;
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    cuda->target(f.dev, &target);
    CHECK_STR(target.isa, "sm_90a:132:232448");
    CHECK(target.apart && target.source && target.regions);
    cuda_case_drop(&f);
}

TEST(cuda_refuses_a_gpu_that_is_not_there)
{
    cuda_case f;
    REQUIRE(cuda_case_prepare(&f));
    f.gpu.index = 3;
    CHECK_FAILS(cuda_case_open(&f, &base_libc_alloc), DRIVER);
    CHECK(strstr(air_last_error()->message, "no GPU 3"));
    f.gpu.index = -1;
    CHECK_FAILS(cuda_case_open(&f, &base_libc_alloc), ARGUMENT);
    f.gpu.index = 0;
    f.cuda->major = 6;
    CHECK_FAILS(cuda_case_open(&f, &base_libc_alloc), UNSUPPORTED);
    cuda_case_drop(&f);
}

TEST(cuda_compiles_equal_texts_once)
{
    cuda_case f;
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    CHECK_OK(cuda_case_list(&f));
    CHECK_INT(f.nvrtc->compiled, 2);
    CHECK(strstr(f.nvrtc->options, "--gpu-architecture=sm_90a"));
    CHECK(strstr(f.nvrtc->text, "#define ENTRY(i) air_##i##_step\n"));
    CHECK(strstr(f.nvrtc->text, "// prelude\n"));
    cuda_case_drop(&f);
}

/* Profilers show it. */
TEST(cuda_kernels_are_named_by_what_they_compute)
{
    char longest[200];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const char *const labels[] = {"_to_copy+prims::fma+1 more", "", longest};
    const char *const names[] = {"air_##i##_to_copy_prims_fma_1_more\n",
                                 "air_##i\n", "air_##i##_xxx"};
    for (int i = 0; i < 3; i++) {
        cuda_case f;
        REQUIRE(cuda_case_prepare(&f));
        REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
        CHECK_OK(cuda_case_step(&f, 0, "a"));
        f.steps[0].label = labels[i];
        CHECK_OK(cuda->list_make(f.dev, f.steps, 1, &f.list));
        CHECK(strstr(f.nvrtc->text, names[i]));
        CHECK(!strstr(f.nvrtc->text, longest));
        cuda_case_drop(&f);
    }
}

TEST(cuda_launches_in_order_with_pointers_of_slots)
{
    cuda_case f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->launches, STEPS);
    CHECK_INT(f.cuda->launch[0].grid[0], 7);
    CHECK_INT(f.cuda->launch[0].block[0], 256);
    CHECK_INT(f.cuda->launch[0].shared, 50000);
    CHECK_INT(f.cuda->launch[0].params[0], 0x1010);
    CHECK_INT(f.cuda->launch[0].params[1], 0x2020);
    CHECK_INT(f.cuda->launch[0].params[2], 77);
    cuda_case_drop(&f);
}

static void *
stream_of(void *user)
{
    return *(void **)user;
}

TEST(cuda_runs_on_the_stream_that_is_current)
{
    cuda_case f;
    void *now = NULL;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(cuda_case_prepare(&f));
    f.gpu.stream = stream_of;
    f.gpu.user = (void *)&now;
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->waits, 0);
    now = &now;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK(f.cuda->launch[STEPS].stream == (void *)&now);
    CHECK_INT(f.cuda->waits, 1); /* for what the other stream has to do */
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->waits, 1);
    now = NULL;
    f.cuda->fail_at = f.cuda->calls + 4; /* behind the context and the mode */
    f.cuda->error = 906;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->waits, 1); /* it belongs to a capture */
    cuda_case_drop(&f);
}

typedef struct {
    cuda_case f;
    void *slots[2];
    long waits[2]; /* after each run of the thread */
} other_thread;

static _Thread_local void *own_stream;

static void *
stream_of_thread(void *user)
{
    (void)user;
    return own_stream;
}

static void *
run_twice(void *arg)
{
    other_thread *o = arg;
    own_stream = o;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(cuda->list_run(o->f.dev, o->f.list, o->slots));
        o->waits[i] = o->f.cuda->waits;
    }
    return NULL;
}

/* A run of this thread, then what another one does. */
static bool
run_then(other_thread *o, void *(*other)(void *arg))
{
    pthread_t thread;
    *o = (other_thread){.slots = {(void *)0x1000, (void *)0x2000}};
    if (!CHECK(cuda_case_prepare(&o->f)))
        return false;
    o->f.gpu.stream = stream_of_thread;
    if (!CHECK_OK(cuda_case_open(&o->f, &base_libc_alloc)) ||
        !CHECK_OK(cuda_case_list(&o->f)))
        return false;
    CHECK_OK(cuda->list_run(o->f.dev, o->f.list, o->slots));
    CHECK_INT(o->f.cuda->waits, 0);
    if (!CHECK(pthread_create(&thread, NULL, other, o) == 0))
        return false;
    pthread_join(thread, NULL);
    return true;
}

/* A run of another thread may go on while this one begins: its stream has got
 * work since this thread's stream waited for it. */
TEST(cuda_threads_wait_for_each_other_s_streams)
{
    other_thread o;
    REQUIRE(run_then(&o, run_twice));
    CHECK_INT(o.waits[0], 1);
    CHECK_INT(o.waits[1], 2);
    cuda_case_drop(&o.f);
}

enum { MANY = CUDA_STREAMS + 4 };

static void *
run_on_many(void *arg)
{
    other_thread *o = arg;
    static char streams[MANY];
    for (int i = 0; i < MANY; i++) {
        own_stream = &streams[i];
        CHECK_OK(cuda->list_run(o->f.dev, o->f.list, o->slots));
    }
    o->f.cuda->watched = own_stream;
    o->f.cuda->followed = 0;
    own_stream = &streams[MANY / 2];
    CHECK_OK(cuda->list_run(o->f.dev, o->f.list, o->slots));
    return NULL;
}

/* More streams than are told apart: what the last one got is waited for. */
TEST(cuda_more_streams_than_are_kept)
{
    other_thread o;
    REQUIRE(run_then(&o, run_on_many));
    CHECK_INT(o.f.cuda->followed, 1);
    cuda_case_drop(&o.f);
}

TEST(cuda_memory_is_copied_both_ways)
{
    cuda_case f;
    void *block;
    char text[8] = "seven..", back[8] = "";
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda->alloc(f.dev, sizeof text, &block));
    CHECK_OK(cuda->copy(f.dev, block, text, sizeof text));
    CHECK_OK(cuda->copy(f.dev, back, block, sizeof back));
    CHECK_STR(back, text);
    cuda->free(f.dev, block, sizeof text);
    f.cuda->fail_at = f.cuda->calls + 2; /* the context, then the block */
    f.cuda->error = 2;
    CHECK_FAILS(cuda->alloc(f.dev, 64, &block), MEMORY);
    CHECK(!block);
    cuda_case_drop(&f);
}

TEST(cuda_says_what_the_compiler_says)
{
    cuda_case f;
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_step(&f, 0, "syntax error"));
    CHECK_FAILS(cuda->list_make(f.dev, f.steps, 1, &f.list), UNSUPPORTED);
    CHECK(strstr(air_last_error()->message, "error: so it is"));
    CHECK(!strstr(air_last_error()->message, "more"));
    cuda_case_drop(&f);
}

TEST(cuda_says_that_an_index_was_out_of_range)
{
    cuda_case f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    *f.dev->fault = (cuda_fault){12, 5, 1}; /* as a kernel writes it */
    CHECK_FAILS(cuda->list_run(f.dev, f.list, slots), INDEX);
    CHECK(strstr(air_last_error()->message, "index 12"));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    cuda_case_drop(&f);
}

/* Between the two a kernel writes index and size. */
TEST(cuda_waits_for_all_of_what_was_out_of_range)
{
    cuda_case f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    *f.dev->fault = (cuda_fault){0, 0, 2};
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    *f.dev->fault = (cuda_fault){12, 5, 1};
    CHECK_FAILS(cuda->list_run(f.dev, f.list, slots), INDEX);
    cuda_case_drop(&f);
}

TEST(cuda_says_what_to_do_when_the_context_is_lost)
{
    cuda_case f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    f.cuda->error = 700;
    f.cuda->fail_at = f.cuda->calls + 1;
    CHECK_FAILS(cuda->list_run(f.dev, f.list, slots), DRIVER);
    CHECK(strstr(air_last_error()->message, "start the process again"));
    cuda_case_drop(&f);
}

/* A text serves many sizes, which ask for more or less. */
TEST(cuda_shared_memory_of_a_kernel_only_grows)
{
    cuda_case f;
    cuda_entered was;
    cuda_want large = {.text = "// params 0", .nentries = 1, .shared = 90000};
    cuda_want small = {.text = "// params 0", .nentries = 1, .shared = 60000};
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_enter(f.dev, &was));
    REQUIRE_OK(cuda_modules_get(f.dev, &large, 1));
    REQUIRE_OK(cuda_modules_get(f.dev, &small, 1));
    CHECK(large.module == small.module);
    CHECK_INT(f.dev->cu.launch(large.module->functions[0], 1, 1, 1, 32, 1, 1,
                               large.shared, NULL, NULL, NULL),
              0);
    cuda_leave(f.dev, &was);
    cuda_case_drop(&f);
}

static void
try_stream(void *user)
{
    cuda_case *f = user;
    const bool is_free = pthread_mutex_trylock(&f->dev->mutex) == 0;
    CHECK(is_free);
    if (is_free)
        pthread_mutex_unlock(&f->dev->mutex);
}

TEST(cuda_runs_do_not_wait_for_the_compiler)
{
    cuda_case f;
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    f.nvrtc->compiling = try_stream;
    f.nvrtc->user = &f;
    CHECK_OK(cuda_case_list(&f));
    CHECK_INT(f.nvrtc->compiled, 2);
    cuda_case_drop(&f);
}

typedef struct {
    void *stream;
    fake_state *cuda;
    long waited; /* when memory was given back */
} owner;

static void *
owner_stream(void *user)
{
    return ((owner *)user)->stream;
}

static void *
owner_alloc(void *user, size_t size)
{
    (void)user;
    return malloc(size);
}

static void
owner_free(void *user, void *ptr, size_t size)
{
    owner *o = user;
    (void)size;
    o->waited = o->cuda->waited;
    free(ptr);
}

static bool
owner_prepare(cuda_case *f, owner *o)
{
    if (!cuda_case_prepare(f))
        return false;
    o->cuda = f->cuda;
    f->gpu.user = o;
    f->gpu.stream = owner_stream;
    f->gpu.alloc = owner_alloc;
    f->gpu.free = owner_free;
    return true;
}

/* The application's allocator knows the stream that memory was had on. */
TEST(cuda_memory_goes_back_when_other_streams_are_done_with_it)
{
    cuda_case f;
    owner o = {.stream = &f};
    void *slots[] = {(void *)0x1000, (void *)0x2000}, *block;
    REQUIRE(owner_prepare(&f, &o));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    REQUIRE_OK(cuda->alloc(f.dev, 8, &block));
    cuda->free(f.dev, block, 8);
    CHECK_INT(o.waited, 0); /* one stream: its order is enough */
    REQUIRE_OK(cuda->alloc(f.dev, 8, &block));
    o.stream = &o;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    cuda->free(f.dev, block, 8);
    CHECK_INT(o.waited, 2); /* for both */
    cuda_case_drop(&f);
}

/* By default CUDA forbids every thread to wait for streams, to load code and to
 * make memory while the application captures one, and ends that capture. */
TEST(cuda_does_nothing_that_ends_a_capture)
{
    cuda_case f;
    owner o = {.stream = &f};
    void *slots[] = {(void *)0x1000, (void *)0x2000}, *block;
    int mode = 0;
    REQUIRE(owner_prepare(&f, &o));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    CHECK_INT(f.dev->cu.capture_mode(&mode), 0); /* as a thread begins */
    mode = 0;
    f.cuda->capturing = &block;
    REQUIRE_OK(cuda_case_list(&f)); /* loads code */
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    o.stream = &o;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->instantiated, 1);
    o.stream = &block;
    for (int i = 0; i < 3; i++)
        CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->instantiated, 1); /* launches, not a graph of its own */
    CHECK(f.cuda->launch[5 * STEPS - 1].stream == (void *)&block);
    CHECK_INT(f.cuda->waits, 1); /* of the second stream for the first */
    REQUIRE_OK(cuda->alloc(f.dev, 8, &block));
    cuda->free(f.dev, block, 8);
    CHECK_INT(o.waited, 2); /* not for what is captured */
    CHECK_INT(f.cuda->broken, 0);
    CHECK_INT(f.dev->cu.capture_mode(&mode), 0);
    CHECK_INT(mode, 0); /* the thread's own again */
    f.cuda->capturing = NULL;
    cuda_case_drop(&f);
}

/* Memory of a persistent kernel that is 0 between runs. */
TEST(cuda_a_capture_has_scratch_of_its_own)
{
    cuda_case f;
    uint64_t first, second;
    cuda_entered was;
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    REQUIRE_OK(cuda_enter(f.dev, &was));
    CHECK_OK(cuda_scratch_add(f.dev, f.list, &first));
    CHECK_INT(first, 0); /* none is needed */
    f.list->scratch_bytes = 64;
    CHECK_OK(cuda_scratch_add(f.dev, f.list, &first));
    f.cuda->fail_at = f.cuda->calls + 1;
    CHECK_FAILS(cuda_scratch_add(f.dev, f.list, &second), DRIVER);
    CHECK_OK(cuda_scratch_add(f.dev, f.list, &second));
    CHECK(first != 0 && second != 0 && first != second);
    cuda_leave(f.dev, &was);
    cuda_case_drop(&f);
}

TEST(cuda_a_failed_launch_is_an_error_and_no_more)
{
    cuda_case f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    for (long call = 1; call < 20; call++) {
        f.cuda->fail_at = f.cuda->calls + call;
        const air_status status = cuda->list_run(f.dev, f.list, slots);
        if (status == AIR_OK)
            break;
        CHECK(status == AIR_ERROR_DRIVER);
        CHECK(strstr(air_last_error()->message, "a failure on purpose"));
    }
    f.cuda->fail_at = 0;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    cuda_case_drop(&f);
}

/* Everything from opening to replay, with each call of CUDA failing once. */
TEST(cuda_every_call_may_fail)
{
    cuda_case f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    bool done = false;
    for (long call = 1; !done && call < 200; call++) {
        air_device_graph *graph = NULL;
        REQUIRE(cuda_case_prepare(&f));
        f.cuda->fail_at = call;
        f.nvrtc->fail_at = call;
        air_status status = cuda_case_open(&f, &base_libc_alloc);
        if (status == AIR_OK)
            status = cuda_case_list(&f);
        for (int i = 0; status == AIR_OK && i < 2;
             i++) /* the second: a graph */
            status = cuda->list_run(f.dev, f.list, slots);
        if (status == AIR_OK)
            status = cuda->capture_begin(f.dev, AIR_CAPTURE_GLOBAL);
        if (status == AIR_OK) {
            const air_status run = cuda->list_run(f.dev, f.list, slots);
            status = cuda->capture_end(f.dev, &graph);
            if (run == AIR_OK && status == AIR_OK)
                status = cuda->graph_launch(f.dev, graph);
            else
                status = AIR_ERROR_DRIVER;
        }
        done = status == AIR_OK && f.cuda->calls < call;
        if (f.dev)
            cuda->graph_free(f.dev, graph);
        cuda_case_drop(&f);
    }
    CHECK(done);
}

static air_status
open_and_run(const air_alloc *alloc, void *user)
{
    cuda_case *f = user;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    air_device_graph *graph = NULL;
    f->dev = NULL;
    f->list = NULL;
    memset(f->kernels, 0, sizeof f->kernels);
    air_status status = cuda_case_open(f, alloc);
    if (status == AIR_OK)
        status = cuda_case_list(f);
    for (int i = 0; status == AIR_OK && i < 2; i++)
        status = cuda->list_run(f->dev, f->list, slots);
    if (status == AIR_OK)
        status = cuda->capture_begin(f->dev, AIR_CAPTURE_GLOBAL);
    if (status == AIR_OK) {
        status = cuda->list_run(f->dev, f->list, slots);
        const air_status ended = cuda->capture_end(f->dev, &graph);
        status = status == AIR_OK ? ended : status;
    }
    if (f->dev)
        cuda->graph_free(f->dev, graph);
    cuda_case_drop(f);
    return status;
}

TEST(cuda_every_allocation_may_fail)
{
    cuda_case f;
    REQUIRE(cuda_case_prepare(&f));
    TEST_OOM(open_and_run, &f);
}

/* ---- the folder of compiled code ---- */

TEST(cuda_keeps_what_it_compiled)
{
    cuda_case f;
    char folder[] = "/tmp/air_cuda_XXXXXX", command[64];
    REQUIRE(mkdtemp(folder) != NULL);
    for (int i = 0; i < 2; i++) {
        REQUIRE(cuda_case_prepare(&f));
        f.gpu.cache = folder;
        REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
        CHECK_OK(cuda_case_list(&f));
        CHECK_INT(f.nvrtc->compiled, i == 0 ? 2 : 0);
        cuda_case_drop(&f);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_INT(system(command), 0);
}

TEST(cuda_a_damaged_file_is_none)
{
    const uint64_t hash[2] = {1, 2};
    char folder[] = "/tmp/air_cuda_XXXXXX", path[128], *data;
    size_t size;
    REQUIRE(mkdtemp(folder) != NULL);
    cuda_cache_write(folder, hash, "cubin of some bytes", 20);
    CHECK_OK(cuda_cache_read(&base_libc_alloc, folder, hash, &data, &size));
    CHECK_INT(size, 20);
    CHECK_STR(data, "cubin of some bytes");
    base_free(&base_libc_alloc, data, size);
    snprintf(path, sizeof path, "%s/00000000000000010000000000000002.cubin",
             folder);
    for (long at = 0; at < 44; at += 4) { /* flip a byte of head and body */
        FILE *file = fopen(path, "r+b");
        REQUIRE(file != NULL);
        fseek(file, at, SEEK_SET);
        const int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 1, file);
        fclose(file);
        CHECK_OK(cuda_cache_read(&base_libc_alloc, folder, hash, &data, &size));
        CHECK(!data);
        cuda_cache_write(folder, hash, "cubin of some bytes", 20);
    }
    CHECK_INT(truncate(path, 30), 0);
    CHECK_OK(cuda_cache_read(&base_libc_alloc, folder, hash, &data, &size));
    CHECK(!data);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(rmdir(folder), 0);
}
