/* Driver cuda over a GPU that is none (tests/fake): what it asks of CUDA, what
 * it gives back, what it says when something fails. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "../fake/fake_cuda.h"
#include "driver/cuda/device.h"
#include "driver/driver.h"
#include "test.h"

enum { STEPS = 3, TEXT = 128 };

typedef struct {
    fake_state *cuda, *nvrtc;
    air_gpu gpu;
    air_options options;
    air_device *dev;
    air_rg_buf bufs[2];
    air_region region;
    char text[STEPS][TEXT];
    const air_kernel *kernels[STEPS];
    air_step steps[STEPS];
    air_list *list;
} fixture;

static fake_state *
state_of(const char *file)
{
    void *lib = dlopen(file, RTLD_NOW);
    void *found = lib ? dlsym(lib, "fake_cuda_state") : NULL;
    fake_cuda_state_fn fn;
    memcpy(&fn, &found, sizeof fn);
    return found ? fn() : NULL;
}

static const air_driver *const cuda = &air_driver_cuda;

/* Both libraries begin anew; nothing of an earlier test is alive. */
static bool
prepare(fixture *f)
{
    *f = (fixture){.cuda = state_of(FAKE_CUDA "/libcuda.so.1"),
                   .nvrtc = state_of(FAKE_CUDA "/libnvrtc.so.13"),
                   .gpu = {.libraries = FAKE_CUDA},
                   .options = {.threads = 1}};
    if (!CHECK(f->cuda && f->nvrtc))
        return false;
    *f->cuda = *f->nvrtc = (fake_state){.gpus = 1, .major = 9, .error = 999};
    return true;
}

static air_status
open_device(fixture *f, const air_alloc *alloc)
{
    f->options.gpu = &f->gpu;
    return cuda->open(&f->options, alloc, &f->dev);
}

/* A region of a buffer read and a buffer written; step i reads slot i and
 * writes slot i + 1. */
static air_status
make_step(fixture *f, size_t i, const char *note)
{
    snprintf(f->text[i], TEXT, "// params 3 %s\n", note);
    const size_t size = (strlen(f->text[i]) + 8) / 8 * 8;
    const uint64_t values[2] = {77, 78};
    memcpy(f->text[i] + size, values, sizeof values);
    const air_code code = {
        .bytes = (const uint8_t *)f->text[i],
        .size = size + sizeof values,
        .prelude = "// prelude\n",
        .nlaunches = 2,
        .launches = {{.grid = {7, 1, 1}, .block = {256, 1, 1}, .shared = 50000},
                     {.grid = {0, 1, 1}}},
        .values = f->text[i] + size,
        .value_bytes = sizeof values};
    f->bufs[0] = (air_rg_buf){.slot = 0, .offset = 16};
    f->bufs[1] = (air_rg_buf){.slot = 1, .offset = 32};
    f->region = (air_region){.nbufs = 2, .bufs = f->bufs};
    AIR_TRY(cuda->kernel_make(f->dev, &f->region, &code, &f->kernels[i]));
    f->steps[i] = (air_step){.kernel = f->kernels[i], .label = "step"};
    return AIR_OK;
}

static air_status
make_list(fixture *f)
{
    AIR_TRY(make_step(f, 0, "a"));
    AIR_TRY(make_step(f, 1, "b"));
    AIR_TRY(make_step(f, 2, "a"));
    return cuda->list_make(f->dev, f->steps, STEPS, &f->list);
}

static void
drop(fixture *f)
{
    cuda->list_free(f->dev, f->list);
    for (int i = 0; i < STEPS; i++)
        if (f->dev)
            cuda->kernel_free(f->dev, f->kernels[i]);
    if (f->dev)
        cuda->close(f->dev);
    CHECK_INT(f->cuda->live, 0);
    CHECK_INT(f->nvrtc->live, 0);
}

TEST(cuda_says_which_library_is_missing)
{
    fixture f;
    REQUIRE(prepare(&f));
    f.gpu.libraries = "/nonexistent";
    const air_status status = open_device(&f, &base_libc_alloc);
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
    fixture f;
    air_target target;
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    cuda->target(f.dev, &target);
    CHECK_STR(target.isa, "sm_90a:132:232448");
    CHECK(target.apart && target.source && target.regions);
    drop(&f);
}

TEST(cuda_refuses_a_gpu_that_is_not_there)
{
    fixture f;
    REQUIRE(prepare(&f));
    f.gpu.index = 3;
    CHECK_FAILS(open_device(&f, &base_libc_alloc), DRIVER);
    CHECK(strstr(air_last_error()->message, "no GPU 3"));
    f.gpu.index = -1;
    CHECK_FAILS(open_device(&f, &base_libc_alloc), ARGUMENT);
    f.gpu.index = 0;
    f.cuda->major = 6;
    CHECK_FAILS(open_device(&f, &base_libc_alloc), UNSUPPORTED);
    drop(&f);
}

TEST(cuda_compiles_equal_texts_once)
{
    fixture f;
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    CHECK_OK(make_list(&f));
    CHECK_INT(f.nvrtc->compiled, 2);
    CHECK(strstr(f.nvrtc->options, "--gpu-architecture=sm_90a"));
    CHECK(strstr(f.nvrtc->text, "#define ENTRY(i) air_##i"));
    CHECK(strstr(f.nvrtc->text, "// prelude\n"));
    drop(&f);
}

TEST(cuda_launches_in_order_with_pointers_of_slots)
{
    fixture f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_list(&f));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->launches, STEPS);
    CHECK_INT(f.cuda->launch[0].grid[0], 7);
    CHECK_INT(f.cuda->launch[0].block[0], 256);
    CHECK_INT(f.cuda->launch[0].shared, 50000);
    CHECK_INT(f.cuda->launch[0].params[0], 0x1010);
    CHECK_INT(f.cuda->launch[0].params[1], 0x2020);
    CHECK_INT(f.cuda->launch[0].params[2], 77);
    drop(&f);
}

TEST(cuda_graph_replays_and_changes_what_moved)
{
    fixture f;
    air_device_graph *graph = NULL;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_list(&f));
    CHECK_OK(cuda->capture_begin(f.dev, AIR_CAPTURE_GLOBAL));
    CHECK_FAILS(cuda->capture_begin(f.dev, AIR_CAPTURE_GLOBAL), STATE);
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    REQUIRE_OK(cuda->capture_end(f.dev, &graph));
    CHECK_INT(f.cuda->launches, 0);
    CHECK_OK(cuda->graph_launch(f.dev, graph));
    CHECK_INT(f.cuda->launches, STEPS);
    CHECK_OK(cuda->graph_patch(f.dev, graph, slots));
    CHECK_INT(f.cuda->nodes_set, 0);
    slots[1] = (void *)0x3000;
    CHECK_OK(cuda->graph_patch(f.dev, graph, slots));
    CHECK_INT(f.cuda->nodes_set, STEPS);
    CHECK_OK(cuda->graph_launch(f.dev, graph));
    CHECK_INT(f.cuda->launch[STEPS].params[0], 0x1010);
    CHECK_INT(f.cuda->launch[STEPS].params[1], 0x3020);
    CHECK_INT(f.cuda->launch[STEPS].params[2], 77);
    cuda->graph_free(f.dev, graph);
    CHECK_FAILS(cuda->capture_end(f.dev, &graph), STATE);
    drop(&f);
}

static void *
stream_of(void *user)
{
    return *(void **)user;
}

TEST(cuda_runs_on_the_stream_that_is_current)
{
    fixture f;
    void *now = NULL;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(prepare(&f));
    f.gpu.stream = stream_of;
    f.gpu.user = (void *)&now;
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_list(&f));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->waits, 0);
    now = &now;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK(f.cuda->launch[STEPS].stream == (void *)&now);
    CHECK_INT(f.cuda->waits, 1); /* for what the other stream has to do */
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->waits, 1);
    now = NULL;
    f.cuda->fail_at = f.cuda->calls + 3; /* the context, then the stream */
    f.cuda->error = 906;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->waits, 1); /* it belongs to a capture */
    drop(&f);
}

typedef struct {
    fixture f;
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

/* A run of another thread may go on while this one begins: its stream has got
 * work since this thread's stream waited for it. */
TEST(cuda_threads_wait_for_each_other_s_streams)
{
    other_thread o = {.slots = {(void *)0x1000, (void *)0x2000}};
    pthread_t thread;
    REQUIRE(prepare(&o.f));
    o.f.gpu.stream = stream_of_thread;
    REQUIRE_OK(open_device(&o.f, &base_libc_alloc));
    REQUIRE_OK(make_list(&o.f));
    CHECK_OK(cuda->list_run(o.f.dev, o.f.list, o.slots));
    CHECK_INT(o.f.cuda->waits, 0);
    REQUIRE(pthread_create(&thread, NULL, run_twice, &o) == 0);
    pthread_join(thread, NULL);
    CHECK_INT(o.waits[0], 1);
    CHECK_INT(o.waits[1], 2);
    drop(&o.f);
}

TEST(cuda_memory_is_copied_both_ways)
{
    fixture f;
    void *block;
    char text[8] = "seven..", back[8] = "";
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(cuda->alloc(f.dev, sizeof text, &block));
    CHECK_OK(cuda->copy(f.dev, block, text, sizeof text));
    CHECK_OK(cuda->copy(f.dev, back, block, sizeof back));
    CHECK_STR(back, text);
    cuda->free(f.dev, block, sizeof text);
    f.cuda->fail_at = f.cuda->calls + 2; /* the context, then the block */
    f.cuda->error = 2;
    CHECK_FAILS(cuda->alloc(f.dev, 64, &block), MEMORY);
    CHECK(!block);
    drop(&f);
}

TEST(cuda_says_what_the_compiler_says)
{
    fixture f;
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_step(&f, 0, "syntax error"));
    CHECK_FAILS(cuda->list_make(f.dev, f.steps, 1, &f.list), UNSUPPORTED);
    CHECK(strstr(air_last_error()->message, "error: so it is"));
    CHECK(!strstr(air_last_error()->message, "more"));
    drop(&f);
}

TEST(cuda_says_that_an_index_was_out_of_range)
{
    fixture f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_list(&f));
    *f.dev->fault = (cuda_fault){12, 5, 1}; /* as a kernel writes it */
    CHECK_FAILS(cuda->list_run(f.dev, f.list, slots), ARGUMENT);
    CHECK(strstr(air_last_error()->message, "index 12"));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    drop(&f);
}

/* Between the two a kernel writes index and size. */
TEST(cuda_waits_for_all_of_what_was_out_of_range)
{
    fixture f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_list(&f));
    *f.dev->fault = (cuda_fault){0, 0, 2};
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    *f.dev->fault = (cuda_fault){12, 5, 1};
    CHECK_FAILS(cuda->list_run(f.dev, f.list, slots), ARGUMENT);
    drop(&f);
}

TEST(cuda_says_what_to_do_when_the_context_is_lost)
{
    fixture f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_list(&f));
    f.cuda->error = 700;
    f.cuda->fail_at = f.cuda->calls + 1;
    CHECK_FAILS(cuda->list_run(f.dev, f.list, slots), DRIVER);
    CHECK(strstr(air_last_error()->message, "start the process again"));
    drop(&f);
}

/* A text serves many sizes, which ask for more or less. */
TEST(cuda_shared_memory_of_a_kernel_only_grows)
{
    fixture f;
    bool pushed;
    cuda_want large = {.text = "// params 0", .nentries = 1, .shared = 90000};
    cuda_want small = {.text = "// params 0", .nentries = 1, .shared = 60000};
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_enter(f.dev, &pushed));
    REQUIRE_OK(cuda_modules_get(f.dev, &large, 1));
    REQUIRE_OK(cuda_modules_get(f.dev, &small, 1));
    CHECK(large.module == small.module);
    CHECK_INT(f.dev->cu.launch(large.module->functions[0], 1, 1, 1, 32, 1, 1,
                               large.shared, NULL, NULL, NULL),
              0);
    cuda_leave(f.dev, pushed);
    drop(&f);
}

static void
try_stream(void *user)
{
    fixture *f = user;
    const bool is_free = pthread_mutex_trylock(&f->dev->mutex) == 0;
    CHECK(is_free);
    if (is_free)
        pthread_mutex_unlock(&f->dev->mutex);
}

TEST(cuda_runs_do_not_wait_for_the_compiler)
{
    fixture f;
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    f.nvrtc->compiling = try_stream;
    f.nvrtc->user = &f;
    CHECK_OK(make_list(&f));
    CHECK_INT(f.nvrtc->compiled, 2);
    drop(&f);
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

/* The application's allocator knows the stream that memory was had on. */
TEST(cuda_memory_goes_back_when_other_streams_are_done_with_it)
{
    fixture f;
    owner o = {.stream = &f};
    void *slots[] = {(void *)0x1000, (void *)0x2000}, *block;
    REQUIRE(prepare(&f));
    o.cuda = f.cuda;
    f.gpu.user = &o;
    f.gpu.stream = owner_stream;
    f.gpu.alloc = owner_alloc;
    f.gpu.free = owner_free;
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_list(&f));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    REQUIRE_OK(cuda->alloc(f.dev, 8, &block));
    cuda->free(f.dev, block, 8);
    CHECK_INT(o.waited, 0); /* one stream: its order is enough */
    REQUIRE_OK(cuda->alloc(f.dev, 8, &block));
    o.stream = &o;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    cuda->free(f.dev, block, 8);
    CHECK_INT(o.waited, 2); /* for both */
    drop(&f);
}

TEST(cuda_a_failed_launch_is_an_error_and_no_more)
{
    fixture f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(prepare(&f));
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_list(&f));
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
    drop(&f);
}

/* Everything from opening to replay, with each call of CUDA failing once. */
TEST(cuda_every_call_may_fail)
{
    fixture f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    bool done = false;
    for (long call = 1; !done && call < 200; call++) {
        air_device_graph *graph = NULL;
        REQUIRE(prepare(&f));
        f.cuda->fail_at = call;
        f.nvrtc->fail_at = call;
        air_status status = open_device(&f, &base_libc_alloc);
        if (status == AIR_OK)
            status = make_list(&f);
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
        drop(&f);
    }
    CHECK(done);
}

static air_status
open_and_run(const air_alloc *alloc, void *user)
{
    fixture *f = user;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    air_device_graph *graph = NULL;
    f->dev = NULL;
    f->list = NULL;
    memset(f->kernels, 0, sizeof f->kernels);
    air_status status = open_device(f, alloc);
    if (status == AIR_OK)
        status = make_list(f);
    if (status == AIR_OK)
        status = cuda->capture_begin(f->dev, AIR_CAPTURE_GLOBAL);
    if (status == AIR_OK) {
        status = cuda->list_run(f->dev, f->list, slots);
        const air_status ended = cuda->capture_end(f->dev, &graph);
        status = status == AIR_OK ? ended : status;
    }
    if (f->dev)
        cuda->graph_free(f->dev, graph);
    drop(f);
    return status;
}

TEST(cuda_every_allocation_may_fail)
{
    fixture f;
    REQUIRE(prepare(&f));
    TEST_OOM(open_and_run, &f);
}

/* ---- products of cuBLASLt ---- */

typedef struct {
    air_tensor x, w, c, y;
    air_arg args[5];
    air_call call;
    air_step step;
    air_list *list;
} product_case;

static air_tensor
matrix(int32_t slot, int64_t rows, int64_t columns, bool transposed)
{
    return (air_tensor){
        .slot = slot,
        .dtype = AIR_F32,
        .rank = 2,
        .dims = {rows, columns},
        .strides = {transposed ? 1 : columns, transposed ? rows : 1}};
}

/* y = c + x w of 64 x 40 and a transposed 40 x 96; the workspace is slot 4. */
static air_status
make_product(fixture *f, product_case *p)
{
    *p = (product_case){.x = matrix(0, 64, 40, false),
                        .w = matrix(1, 40, 96, true),
                        .c = {.slot = 2,
                              .dtype = AIR_F32,
                              .rank = 1,
                              .dims = {96},
                              .strides = {1}},
                        .y = matrix(3, 64, 96, false)};
    const air_tensor *tensors[] = {&p->c, &p->x, &p->w};
    for (int i = 0; i < 3; i++)
        p->args[i] = (air_arg){.kind = AIR_ARG_TENSOR, .t = tensors[i]};
    p->call =
        (air_call){.nargs = 5, .nouts = 1, .args = p->args, .outs = &p->y};
    p->step = (air_step){.call = p->call, .workspace_slot = 4};
    AIR_TRY(cuda->kernel_find(f->dev, "addmm", &p->call, &p->step.kernel));
    p->step.workspace = cuda->workspace(f->dev, p->step.kernel, &p->step.call);
    return cuda->list_make(f->dev, &p->step, 1, &p->list);
}

static void
drop_product(fixture *f, product_case *p)
{
    cuda->list_free(f->dev, p->list);
    cuda->kernel_free(f->dev, p->step.kernel);
}

static void *const product_slots[] = {(void *)0x1000, (void *)0x2000,
                                      (void *)0x3000, (void *)0x4000,
                                      (void *)0x5000};

TEST(cuda_product_is_asked_for_in_columns)
{
    fixture f;
    product_case p;
    REQUIRE(prepare(&f));
    fake_state *blas = state_of(FAKE_CUDA "/libcublasLt.so.13");
    *blas = (fake_state){0};
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_product(&f, &p));
    CHECK(p.step.workspace > 0);
    REQUIRE_OK(cuda->list_run(f.dev, p.list, product_slots));
    CHECK_INT(blas->launches, 1);
    CHECK_INT(blas->launch[0].params[0], 0x2000); /* A is w, as it lies */
    CHECK_INT(blas->sizes[0][0], 40);
    CHECK_INT(blas->sizes[0][1], 96);
    CHECK_INT(blas->transposed[0], 1);
    CHECK_INT(blas->launch[0].params[1], 0x1000); /* B is x */
    CHECK_INT(blas->sizes[1][0], 40);
    CHECK_INT(blas->sizes[1][1], 64);
    CHECK_INT(blas->transposed[1], 0);
    CHECK_INT(blas->launch[0].params[3], 0x4000);
    CHECK_INT(blas->launch[0].params[4], 0x5000);
    CHECK_INT(blas->bias, 0x3000);
    CHECK_NEAR(blas->alpha, 1, 0);
    CHECK_NEAR(blas->beta, 0, 0); /* the row is added by the epilogue */
    CHECK_INT(blas->launch[0].shared, 16); /* the form for this alignment */
    void *odd[5];
    memcpy(odd, product_slots, sizeof odd);
    odd[0] = (void *)0x1004;
    odd[4] = (void *)0x5040; /* the arena's places are multiples of 64 */
    CHECK_OK(cuda->list_run(f.dev, p.list, odd));
    CHECK_INT(blas->launch[1].shared, 4);
    CHECK_INT(blas->launch[1].params[4], 0x5100);
    CHECK(0x5100 - 0x5040 + blas->launch[1].params[5] <= p.step.workspace);
    drop_product(&f, &p);
    drop(&f);
    CHECK_INT(blas->live, 0);
}

TEST(cuda_product_in_a_graph_is_captured_again_when_pointers_move)
{
    fixture f;
    product_case p;
    air_device_graph *graph = NULL;
    REQUIRE(prepare(&f));
    fake_state *blas = state_of(FAKE_CUDA "/libcublasLt.so.13");
    *blas = (fake_state){0};
    REQUIRE_OK(open_device(&f, &base_libc_alloc));
    REQUIRE_OK(make_product(&f, &p));
    CHECK_OK(cuda->capture_begin(f.dev, AIR_CAPTURE_GLOBAL));
    CHECK_OK(cuda->list_run(f.dev, p.list, product_slots));
    REQUIRE_OK(cuda->capture_end(f.dev, &graph));
    CHECK_INT(blas->launches, 1);
    CHECK_OK(cuda->graph_launch(f.dev, graph));
    CHECK_INT(blas->launches, 1);
    CHECK_OK(cuda->graph_patch(f.dev, graph, product_slots));
    CHECK_INT(blas->launches, 2);
    CHECK_INT(f.cuda->updates, 1);
    f.cuda->fail_at = f.cuda->calls + 7; /* the update: made anew then */
    CHECK_OK(cuda->graph_patch(f.dev, graph, product_slots));
    CHECK_INT(f.cuda->updates, 1);
    CHECK_OK(cuda->graph_launch(f.dev, graph));
    cuda->graph_free(f.dev, graph);
    drop_product(&f, &p);
    drop(&f);
    CHECK_INT(blas->live, 0);
}

TEST(cuda_every_call_of_a_product_may_fail)
{
    fixture f;
    product_case p;
    bool done = false;
    for (long call = 1; !done && call < 100; call++) {
        REQUIRE(prepare(&f));
        fake_state *blas = state_of(FAKE_CUDA "/libcublasLt.so.13");
        *blas = (fake_state){.fail_at = call, .error = 15};
        REQUIRE_OK(open_device(&f, &base_libc_alloc));
        air_status status = make_product(&f, &p);
        if (status == AIR_OK)
            status = cuda->list_run(f.dev, p.list, product_slots);
        CHECK(status == AIR_OK || status == AIR_ERROR_DRIVER ||
              status == AIR_ERROR_UNSUPPORTED);
        done = status == AIR_OK && blas->calls < call;
        drop_product(&f, &p);
        drop(&f);
        CHECK_INT(blas->live, 0);
    }
    CHECK(done);
}

/* ---- the folder of compiled code ---- */

TEST(cuda_keeps_what_it_compiled)
{
    fixture f;
    char folder[] = "/tmp/air_cuda_XXXXXX", command[64];
    REQUIRE(mkdtemp(folder) != NULL);
    for (int i = 0; i < 2; i++) {
        REQUIRE(prepare(&f));
        f.gpu.cache = folder;
        REQUIRE_OK(open_device(&f, &base_libc_alloc));
        CHECK_OK(make_list(&f));
        CHECK_INT(f.nvrtc->compiled, i == 0 ? 2 : 0);
        drop(&f);
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
