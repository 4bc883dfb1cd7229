/* Lists of driver cuda as graphs: what is patched, captured again, and may
 * begin early. */
#include "cuda_case.h"
#include "driver/cuda/blas.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

TEST(cuda_graph_replays_and_changes_what_moved)
{
    cuda_case f;
    air_device_graph *graph = NULL;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
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
    cuda_case_drop(&f);
}

/* What the application gives to a stream meanwhile is launched in its turn,
 * and stays when the rest is patched; what is not kept is not there. */
TEST(cuda_graph_has_what_the_application_did)
{
    cuda_case f;
    air_device_graph *graph = NULL;
    void *stream, *slots[] = {(void *)0x1000, (void *)0x2000};
    cuda_entered was;
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    CHECK_FAILS(cuda->foreign_begin(f.dev, &stream), STATE);
    CHECK_FAILS(cuda->foreign_end(f.dev, true), STATE);
    CHECK_OK(cuda->capture_begin(f.dev, AIR_CAPTURE_GLOBAL));
    for (int keep = 0; keep < 3; keep++) {
        REQUIRE_OK(cuda->foreign_begin(f.dev, &stream));
        CHECK(stream != NULL);
        REQUIRE_OK(cuda_enter(f.dev, &was));
        CHECK_INT(f.dev->cu.launch(f.list->commands[0].function, 55, 1, 1, 1, 1,
                                   1, 0, stream, NULL, NULL),
                  0);
        cuda_leave(f.dev, &was);
        CHECK_OK(cuda->foreign_end(f.dev, keep > 0));
        if (keep == 1)
            CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    }
    REQUIRE_OK(cuda->capture_end(f.dev, &graph));
    const long before = f.cuda->launches;
    CHECK_OK(cuda->graph_launch(f.dev, graph));
    CHECK_INT(f.cuda->launches, before + STEPS);
    slots[1] = (void *)0x3000;
    CHECK_OK(cuda->graph_patch(f.dev, graph, slots));
    CHECK_INT(f.cuda->nodes_set, STEPS);
    CHECK_OK(cuda->graph_launch(f.dev, graph));
    cuda->graph_free(f.dev, graph);
    cuda_case_drop(&f);
}

TEST(cuda_every_call_may_fail_while_the_application_is_recorded)
{
    cuda_case f;
    bool done = false;
    for (long call = 1; !done && call < 40; call++) {
        air_device_graph *graph = NULL;
        void *stream, *slots[] = {(void *)0x1000, (void *)0x2000};
        REQUIRE(cuda_case_prepare(&f));
        REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
        REQUIRE_OK(cuda_case_list(&f));
        REQUIRE_OK(cuda->capture_begin(f.dev, AIR_CAPTURE_GLOBAL));
        f.cuda->fail_at = f.cuda->calls + call;
        air_status status = cuda->list_run(f.dev, f.list, slots);
        if (status == AIR_OK)
            status = cuda->foreign_begin(f.dev, &stream);
        if (status == AIR_OK)
            status = cuda->foreign_end(f.dev, true);
        const air_status ended = cuda->capture_end(f.dev, &graph);
        done = f.cuda->calls < f.cuda->fail_at;
        CHECK(done == (status == AIR_OK && ended == AIR_OK) ||
              !done); /* leaving a context may fail unseen */
        f.cuda->fail_at = 0;
        cuda->graph_free(f.dev, graph);
        cuda_case_drop(&f);
    }
    CHECK(done);
}

TEST(cuda_list_that_runs_again_is_a_graph)
{
    cuda_case f;
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_case_list(&f));
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->instantiated, 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->instantiated, 1);
    CHECK_INT(f.cuda->nodes_set, 0);
    CHECK_INT(f.cuda->launches, 4 * STEPS);
    slots[0] = (void *)0x3000;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->nodes_set, STEPS);
    CHECK_INT(f.cuda->launch[5 * STEPS - 1].params[0], 0x3010);
    CHECK_INT(f.cuda->launch[5 * STEPS - 1].params[1], 0x2020);
    CHECK_INT(f.cuda->launch[5 * STEPS - 1].params[2], 77);
    /* A graph of the application gets the kernels themselves. */
    f.cuda->captured = true;
    slots[0] = (void *)0x4000;
    CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    CHECK_INT(f.cuda->nodes_set, STEPS);
    CHECK_INT(f.cuda->launch[6 * STEPS - 1].params[0], 0x4010);
    f.cuda->captured = false;
    cuda_case_drop(&f);
}

/* Programmatic edges of the list's graph. */
static long
early_edges(cuda_case *f)
{
    void *slots[] = {(void *)0x1000, (void *)0x2000};
    CHECK_OK(cuda_case_open(f, &base_libc_alloc));
    CHECK_OK(cuda_case_list(f));
    for (int i = 0; i < 2; i++)
        CHECK_OK(cuda->list_run(f->dev, f->list, slots));
    cuda_case_drop(f);
    return f->cuda->early;
}

TEST(cuda_kernels_begin_early_where_the_gpu_has_it)
{
    cuda_case f;
    REQUIRE(cuda_case_prepare(&f));
    CHECK_INT(early_edges(&f), STEPS - 1);
    REQUIRE(cuda_case_prepare(&f));
    f.gpu.no_overlap = true;
    CHECK_INT(early_edges(&f), 0);
    REQUIRE(cuda_case_prepare(&f));
    f.cuda->major = 8;
    CHECK_INT(early_edges(&f), 0);
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
make_product(cuda_case *f, product_case *p, bool tf32)
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
    p->call = (air_call){
        .nargs = 5, .nouts = 1, .args = p->args, .outs = &p->y, .tf32 = tf32};
    p->step = (air_step){.call = p->call, .workspace_slot = 4};
    AIR_TRY(cuda->kernel_find(f->dev, "addmm", &p->call, &p->step.kernel));
    p->step.workspace = cuda->workspace(f->dev, p->step.kernel, &p->step.call);
    return cuda->list_make(f->dev, &p->step, 1, &p->list);
}

/* A GPU whose cuBLASLt begins as `first`; NULL: the test has failed. */
static fake_state *
begin_blas(cuda_case *f, fake_state first)
{
    if (!CHECK(cuda_case_prepare(f)))
        return NULL;
    fake_state *blas = cuda_case_state(FAKE_CUDA "/libcublasLt.so.13");
    *blas = first;
    return CHECK_OK(cuda_case_open(f, &base_libc_alloc)) ? blas : NULL;
}

static void
drop_product(cuda_case *f, product_case *p)
{
    cuda->list_free(f->dev, p->list);
    cuda->kernel_free(f->dev, p->step.kernel);
}

static void *const product_slots[] = {(void *)0x1000, (void *)0x2000,
                                      (void *)0x3000, (void *)0x4000,
                                      (void *)0x5000};

TEST(cuda_product_is_asked_for_in_columns)
{
    cuda_case f;
    product_case p;
    fake_state *blas = begin_blas(&f, (fake_state){0});
    REQUIRE(blas != NULL);
    REQUIRE_OK(make_product(&f, &p, false));
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
    cuda_case_drop(&f);
    CHECK_INT(blas->live, 0);
}

TEST(cuda_products_are_of_tf32_where_they_may_be)
{
    for (int tf32 = 0; tf32 < 2; tf32++) {
        cuda_case f;
        product_case p;
        fake_state *blas = begin_blas(&f, (fake_state){0});
        REQUIRE(blas != NULL);
        REQUIRE_OK(make_product(&f, &p, tf32));
        CHECK_INT(blas->compute, tf32 ? 77 : 68); /* cublasComputeType_t */
        drop_product(&f, &p);
        cuda_case_drop(&f);
    }
}

enum { TURNS = 2000, ROW_BEHIND = 0x100000 };

typedef struct {
    air_device *dev;
    cuda_product *product;
    uint64_t at;
} multiplier;

/* The row that this product adds lies behind where it will be. */
static void
look_at_row(void *user, const uint64_t *bias, uint64_t out)
{
    (void)sched_yield();
    *(long *)user += *bias != out + ROW_BEHIND;
}

static void *
multiply_often(void *user)
{
    const multiplier *m = user;
    const uint64_t values[] = {0x5000, 0x2000, 0x1000, m->at,
                               m->at + ROW_BEHIND};
    for (int i = 0; i < TURNS; i++)
        CHECK_OK(cuda_product_run(m->dev, m->product, values, NULL));
    return NULL;
}

/* Two threads run one program: the row is a part of what both describe. */
TEST(cuda_product_adds_the_row_of_its_own_thread)
{
    cuda_case f;
    product_case p;
    cuda_product *product;
    pthread_t threads[2];
    multiplier each[2];
    long others = 0;
    fake_state *blas =
        begin_blas(&f, (fake_state){.adding = look_at_row, .user = &others});
    REQUIRE(blas != NULL);
    REQUIRE_OK(make_product(&f, &p, false));
    REQUIRE_OK(cuda_product_make(f.dev, &p.call, &product));
    for (int i = 0; i < 2; i++) {
        each[i] = (multiplier){f.dev, product, 0x4000 + 0x1000 * (uint64_t)i};
        REQUIRE(pthread_create(&threads[i], NULL, multiply_often, &each[i]) ==
                0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(others, 0);
    CHECK_INT(blas->launches, 2 * TURNS);
    cuda_product_free(f.dev, product);
    drop_product(&f, &p);
    cuda_case_drop(&f);
    CHECK_INT(blas->live, 0);
}

TEST(cuda_product_in_a_graph_is_captured_again_when_pointers_move)
{
    cuda_case f;
    product_case p;
    air_device_graph *graph = NULL;
    fake_state *blas = begin_blas(&f, (fake_state){0});
    REQUIRE(blas != NULL);
    REQUIRE_OK(make_product(&f, &p, false));
    CHECK_OK(cuda->capture_begin(f.dev, AIR_CAPTURE_GLOBAL));
    CHECK_OK(cuda->list_run(f.dev, p.list, product_slots));
    REQUIRE_OK(cuda->capture_end(f.dev, &graph));
    CHECK_INT(blas->launches, 1);
    CHECK_OK(cuda->graph_launch(f.dev, graph));
    CHECK_INT(blas->launches, 1);
    CHECK_OK(cuda->graph_patch(f.dev, graph, product_slots));
    CHECK_INT(blas->launches, 1); /* nothing moved */
    void *moved[5];
    memcpy(moved, product_slots, sizeof moved);
    moved[3] = (void *)0x6000;
    CHECK_OK(cuda->graph_patch(f.dev, graph, moved));
    CHECK_INT(blas->launches, 2);
    CHECK_INT(blas->launch[1].params[3], 0x6000);
    CHECK_INT(f.cuda->updates, 1);
    CHECK_INT(f.cuda->instantiated, 1);
    f.cuda->others = true; /* no node takes it: all is made anew */
    moved[3] = (void *)0x7000;
    CHECK_OK(cuda->graph_patch(f.dev, graph, moved));
    CHECK_INT(f.cuda->updates, 1);
    CHECK_INT(f.cuda->instantiated, 2);
    CHECK_INT(blas->launch[3].params[3], 0x7000);
    f.cuda->fail_at = f.cuda->calls + 9; /* in the middle of that */
    moved[3] = (void *)0x8000;
    CHECK_FAILS(cuda->graph_patch(f.dev, graph, moved), DRIVER);
    CHECK_OK(cuda->graph_patch(f.dev, graph, moved));
    CHECK_INT(f.cuda->instantiated, 3);
    CHECK_OK(cuda->graph_launch(f.dev, graph));
    cuda->graph_free(f.dev, graph);
    drop_product(&f, &p);
    cuda_case_drop(&f);
    CHECK_INT(blas->live, 0);
}

TEST(cuda_every_call_of_a_product_may_fail)
{
    cuda_case f;
    product_case p;
    bool done = false;
    for (long call = 1; !done && call < 100; call++) {
        fake_state *blas =
            begin_blas(&f, (fake_state){.fail_at = call, .error = 15});
        REQUIRE(blas != NULL);
        air_status status = make_product(&f, &p, false);
        if (status == AIR_OK)
            status = cuda->list_run(f.dev, p.list, product_slots);
        CHECK(status == AIR_OK || status == AIR_ERROR_DRIVER ||
              status == AIR_ERROR_UNSUPPORTED);
        done = status == AIR_OK && blas->calls < call;
        drop_product(&f, &p);
        cuda_case_drop(&f);
        CHECK_INT(blas->live, 0);
    }
    CHECK(done);
}

/* ---- what is read before a kernel waits ---- */

enum { WIDE = 64, PRODUCTS = 3 };

typedef struct {
    air_tensor x, w, y;
    air_arg args[2];
} small_product;

/* y = x w for one row, w as PyTorch keeps it: rows of w are asked for early. */
static void
set_product(small_product *p, air_step *step, int x, int w, int y)
{
    p->x = matrix(x, 1, WIDE, false);
    p->w = matrix(w, WIDE, WIDE, true);
    p->y = matrix(y, 1, WIDE, false);
    p->x.dtype = p->w.dtype = p->y.dtype = AIR_BF16;
    p->args[0] = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &p->x};
    p->args[1] = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &p->w};
    step->call =
        (air_call){.nargs = 2, .nouts = 1, .args = p->args, .outs = &p->y};
}

/* Early edges of products that read x[i], w[i] and write y[i]. */
static long
early_of_products(const int (*slots_of)[3])
{
    cuda_case f;
    small_product p[PRODUCTS];
    air_step steps[PRODUCTS] = {{.kernel = NULL}};
    void *slots[8];
    for (size_t i = 0; i < 8; i++)
        slots[i] = (void *)(0x10000 * (i + 1));
    CHECK(cuda_case_prepare(&f));
    CHECK_OK(cuda_case_open(&f, &base_libc_alloc));
    for (int i = 0; i < PRODUCTS; i++) {
        set_product(&p[i], &steps[i], slots_of[i][0], slots_of[i][1],
                    slots_of[i][2]);
        CHECK_OK(
            cuda->kernel_find(f.dev, "mm", &steps[i].call, &steps[i].kernel));
    }
    CHECK_OK(cuda->list_make(f.dev, steps, PRODUCTS, &f.list));
    for (int i = 0; i < 2; i++)
        CHECK_OK(cuda->list_run(f.dev, f.list, slots));
    for (int i = 0; i < PRODUCTS; i++)
        cuda->kernel_free(f.dev, steps[i].kernel);
    cuda_case_drop(&f);
    return f.cuda->early;
}

TEST(cuda_nothing_is_read_early_that_is_being_written)
{
    /* a chain: each x is the y before, weights are the program's */
    const int chain[PRODUCTS][3] = {{0, 4, 1}, {1, 5, 2}, {2, 6, 3}};
    CHECK_INT(early_of_products(chain), 2);
    /* the weight of the last is what the one before writes */
    const int fresh[PRODUCTS][3] = {{0, 4, 1}, {1, 5, 2}, {0, 2, 3}};
    CHECK_INT(early_of_products(fresh), 1);
    /* what the first writes: all three may run at once */
    const int older[PRODUCTS][3] = {{0, 4, 1}, {1, 5, 2}, {2, 1, 3}};
    CHECK_INT(early_of_products(older), 1);
    /* the second waits for the first, so that the third need not */
    const int waited[PRODUCTS][3] = {{0, 4, 1}, {0, 1, 2}, {2, 1, 3}};
    CHECK_INT(early_of_products(waited), 1);
}

/* ---- random numbers ------------------------------------------------------ */

static struct {
    uint64_t offset;
    long calls;
} drawn;

static bool
lend(void *user, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    (void)user;
    *seed = 70;
    *offset = drawn.offset;
    drawn.offset += count;
    drawn.calls++;
    return drawn.offset < 1000;
}

enum { EACH = 12 }; /* numbers that a thread takes for 3 lots of 2 */

/* A list of two steps that draw. */
typedef struct {
    cuda_case f;
    air_tensor out;
    air_arg args[2];
} draw_case;

static air_status
draw_list(draw_case *d, const char *op)
{
    cuda_case *f = &d->f;
    const int64_t threads = 132 * 2048;
    d->out = (air_tensor){.dtype = AIR_F64,
                          .rank = 1,
                          .dims = {threads * 2 * (EACH / 4)},
                          .strides = {1},
                          .slot = 1};
    d->args[0] = (air_arg){.kind = AIR_ARG_NONE};
    const air_call call = {
        .args = d->args, .nargs = 1, .outs = &d->out, .nouts = 1};
    for (int i = 0; i < 2; i++) {
        AIR_TRY(cuda->kernel_find(f->dev, op, &call, &f->kernels[i]));
        AIR_REQUIRE(f->kernels[i], AIR_ERROR_STATE, "no kernel");
        f->steps[i] =
            (air_step){.kernel = f->kernels[i], .call = call, .label = "draw"};
    }
    return cuda->list_make(f->dev, f->steps, 2, &f->list);
}

static bool
begin_draws(draw_case *d)
{
    memset(&drawn, 0, sizeof drawn);
    if (!CHECK(cuda_case_prepare(&d->f)))
        return false;
    d->f.gpu.draw = lend;
    CHECK_OK(cuda_case_open(&d->f, &base_libc_alloc));
    return CHECK_INT(draw_list(d, "rand"), AIR_OK);
}

/* y, seed, offset of the launch before the last n. */
static void
check_draw(const draw_case *d, long n, uint64_t y, uint64_t offset)
{
    const fake_launch *l =
        &d->f.cuda->launch[(d->f.cuda->launches - n) % FAKE_LAUNCHES];
    CHECK_INT(l->params[0], y);
    CHECK_INT(l->params[1], 70);
    CHECK_INT(l->params[2], offset);
}

/* Launch by launch, then as a graph: each run begins where the generator is. */
TEST(cuda_list_draws_where_the_generator_is)
{
    draw_case d;
    void *slots[] = {NULL, (void *)0x2000};
    REQUIRE(begin_draws(&d));
    for (uint64_t run = 0; run < 4; run++) {
        CHECK_OK(cuda->list_run(d.f.dev, d.f.list, slots));
        check_draw(&d, 2, 0x2000, 100 * run);
        check_draw(&d, 1, 0x2000, 100 * run + EACH);
        CHECK_INT(drawn.offset, 100 * run + 2 * EACH);
        drawn.offset = 100 * (run + 1); /* others drew */
    }
    CHECK_INT(drawn.calls, 4);
    drawn.offset = 1000; /* the application fails */
    const long before = d.f.cuda->launches;
    CHECK_FAILS(cuda->list_run(d.f.dev, d.f.list, slots), HOST);
    CHECK_INT(d.f.cuda->launches, before);
    cuda_case_drop(&d.f);
}

/* A graph of two lists, whose slots do not change from launch to launch. */
TEST(cuda_graph_draws_where_the_generator_is)
{
    draw_case d;
    air_device_graph *graph = NULL;
    void *slots[] = {NULL, (void *)0x2000};
    REQUIRE(begin_draws(&d));
    CHECK_OK(cuda->capture_begin(d.f.dev, AIR_CAPTURE_GLOBAL));
    CHECK_OK(cuda->list_run(d.f.dev, d.f.list, slots));
    CHECK_OK(cuda->list_run(d.f.dev, d.f.list, slots));
    REQUIRE_OK(cuda->capture_end(d.f.dev, &graph));
    CHECK_INT(drawn.calls, 0);
    for (uint64_t run = 0; run < 3; run++) {
        drawn.offset = 100 * run;
        CHECK_OK(cuda->graph_launch(d.f.dev, graph));
        for (int i = 0; i < 4; i++)
            check_draw(&d, 4 - i, (uint64_t)(uintptr_t)slots[1],
                       100 * run + (uint64_t)i * EACH);
        slots[1] = (void *)0x3000;
        CHECK_OK(cuda->graph_patch(d.f.dev, graph, slots));
    }
    CHECK_INT(drawn.calls, 3);
    cuda->graph_free(d.f.dev, graph);
    cuda_case_drop(&d.f);
}
