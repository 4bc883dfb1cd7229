/* Whose kernel does a product: what is measured once is kept in a file. */
#include "kernel_case.h"

#include "driver/cpu/product/choice.h"
#include "driver/driver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    char folder[64], path[96];
} place;

static bool
place_make(place *p)
{
    (void)snprintf(p->folder, sizeof p->folder, "/tmp/air_choice_XXXXXX");
    bool good = CHECK(mkdtemp(p->folder) != NULL);
    (void)snprintf(p->path, sizeof p->path, "%s/choices.txt", p->folder);
    return good;
}

static void
place_remove(const place *p)
{
    (void)unlink(p->path);
    CHECK_INT(rmdir(p->folder), 0); /* nothing else was left in it */
}

static void
put_file(const place *p, const char *text, size_t len)
{
    FILE *f = fopen(p->path, "wb");
    REQUIRE(f != NULL);
    CHECK_INT(fwrite(text, 1, len, f), len);
    CHECK_INT(fclose(f), 0);
}

static void
get_file(const place *p, char *text, size_t size)
{
    FILE *f = fopen(p->path, "rb");
    text[0] = '\0';
    REQUIRE(f != NULL);
    text[fread(text, 1, size - 1, f)] = '\0';
    CHECK_INT(fclose(f), 0);
}

/* What a measurement says, and how often it was asked. */
typedef struct {
    int64_t own, library;
    int calls;
    bool fails;
} fake;

static bool
fake_measure(void *arg, cpu_choice *out)
{
    fake *f = arg;
    f->calls++;
    out->own = f->own;
    out->library = f->library;
    return !f->fails;
}

static cpu_choices *
open_choices(const place *p, const char *machine)
{
    cpu_choices *c;
    CHECK_OK(cpu_choices_create(&base_libc_alloc, p->path, machine, &c));
    return c;
}

TEST(choice_is_measured_twice_and_kept)
{
    place p;
    fake f = {.own = 100, .library = 200};
    cpu_choice got;
    char text[256];
    REQUIRE(place_make(&p));
    cpu_choices *c = open_choices(&p, "a\tCPU");
    CHECK(!cpu_choices_find(c, "f32 nt 9 9 9 2", NULL, NULL, &got));
    CHECK(cpu_choices_find(c, "f32 nt 9 9 9 2", fake_measure, &f, &got));
    CHECK(cpu_choices_find(c, "f32 nt 9 9 9 2", fake_measure, &f, &got));
    CHECK_INT(f.calls, 1);
    CHECK_INT(got.own, 100);
    CHECK_INT(got.library, 200);
    cpu_choices_destroy(c);
    get_file(&p, text, sizeof text);
    CHECK_STR(text, "torchair choices 2\na CPU\tf32 nt 9 9 9 2\t100\t200\t1\n");
    /* the first one may have been disturbed: the least of either counts */
    for (int i = 0; i < 2; i++) {
        f = (fake){.own = 150, .library = 90};
        c = open_choices(&p, "a CPU");
        CHECK(cpu_choices_find(c, "f32 nt 9 9 9 2", NULL, NULL, &got));
        CHECK_INT(got.library, i == 0 ? 200 : 90);
        CHECK(cpu_choices_find(c, "f32 nt 9 9 9 2", fake_measure, &f, &got));
        CHECK(cpu_choices_find(c, "f32 nt 9 9 9 2", fake_measure, &f, &got));
        CHECK_INT(f.calls, i == 0); /* the third has it from the file */
        CHECK_INT(got.own, 100);
        CHECK_INT(got.library, 90);
        cpu_choices_destroy(c);
    }
    place_remove(&p);
}

TEST(choice_stays_where_the_second_measurement_fails)
{
    place p;
    fake f = {.own = 1, .library = 1, .fails = true};
    cpu_choice got;
    const char old[] = "torchair choices 2\nhere\tk\t5\t6\t1\n";
    REQUIRE(place_make(&p));
    put_file(&p, old, sizeof old - 1);
    cpu_choices *c = open_choices(&p, "here");
    for (int i = 0; i < 2; i++) {
        CHECK(cpu_choices_find(c, "k", fake_measure, &f, &got));
        CHECK_INT(got.own, 5);
        CHECK_INT(f.calls, 1);
    }
    cpu_choices_destroy(c);
    place_remove(&p);
}

TEST(choice_of_another_machine_does_not_count_and_stays)
{
    place p;
    fake f = {.own = 7, .library = 5};
    cpu_choice got;
    char text[256];
    const char old[] = "torchair choices 2\nother\tk\t1\t2\t1\n";
    REQUIRE(place_make(&p));
    put_file(&p, old, sizeof old - 1);
    cpu_choices *c = open_choices(&p, "here");
    CHECK(cpu_choices_find(c, "k", fake_measure, &f, &got));
    CHECK_INT(f.calls, 1);
    /* meanwhile another process of this machine has measured something */
    const char two[] =
        "torchair choices 2\nother\tk\t1\t2\t1\nhere\tm\t3\t4\t2\n";
    put_file(&p, two, sizeof two - 1);
    CHECK(cpu_choices_find(c, "n", fake_measure, &f, &got));
    cpu_choices_destroy(c);
    get_file(&p, text, sizeof text);
    CHECK_STR(text, "torchair choices 2\nother\tk\t1\t2\t1\n"
                    "here\tm\t3\t4\t2\nhere\tk\t7\t5\t1\n"
                    "here\tn\t7\t5\t1\n");
    place_remove(&p);
}

/* Anything but whole lines of ours is not there. */
TEST(choice_file_may_be_anything)
{
    static const char *const texts[] = {
        "",
        "torchair choices 1\nhere\tk\t1\t2\t1\n",
        "torchair choices 2",
        "torchair choices 2\nhere\tk\t1\t2\t1", /* cut: perhaps it was 15 */
        "torchair choices 2\nhere\tk\t1\n",
        "torchair choices 2\nhere\tk\t1\t2\n",
        "torchair choices 2\nhere\tk\t1\t2\t0\n",
        "torchair choices 2\nhere\tk\t1\t2\t15\n",
        "torchair choices 2\nhere\tk\t0\t2\t1\n",
        "torchair choices 2\nhere\tk\t-1\t2\t1\n",
        "torchair choices 2\nhere\tk\t1\t2\t3\t1\n",
        "torchair choices 2\nhere\tk\t1\t99999999999999999999\t1\n",
        "torchair choices 2\n\t\t\t\t\n\n\t\n",
        "torchair choices 2\nhere\t\t1\t2\t1\n",
        "\177ELF",
    };
    place p;
    cpu_choice got;
    REQUIRE(place_make(&p));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fake f = {.own = 3, .library = 4};
        put_file(&p, texts[i], strlen(texts[i]));
        cpu_choices *c = open_choices(&p, "here");
        CHECK(!cpu_choices_find(c, "k", NULL, NULL, &got));
        CHECK(cpu_choices_find(c, "k", fake_measure, &f, &got));
        CHECK_INT(got.own, 3);
        cpu_choices_destroy(c);
        c = open_choices(&p, "here"); /* the file is sound again */
        CHECK(cpu_choices_find(c, "k", NULL, NULL, &got));
        cpu_choices_destroy(c);
    }
    char line[400] = "torchair choices 2\nhere\t";
    memset(line + strlen(line), 'x', 300); /* a key of 300 bytes */
    put_file(&p, line, strlen(line));
    cpu_choices_destroy(open_choices(&p, "here"));
    place_remove(&p);
}

TEST(choice_without_a_file_holds_for_the_process)
{
    place p = {.path = "/nonexistent/folder/choices.txt"};
    fake f = {.own = 3, .library = 4};
    cpu_choice got;
    cpu_choices *c = open_choices(&p, "here");
    CHECK(cpu_choices_find(c, "k", fake_measure, &f, &got));
    CHECK(cpu_choices_find(c, "k", fake_measure, &f, &got));
    CHECK_INT(f.calls, 1);
    cpu_choices_destroy(c);
    CHECK_FAILS(cpu_choices_create(&base_libc_alloc, "", "here", &c), ARGUMENT);
    CHECK(c == NULL);
}

TEST(choice_that_fails_is_none)
{
    place p;
    fake f = {.own = 3, .library = 4, .fails = true};
    cpu_choice got;
    REQUIRE(place_make(&p));
    cpu_choices *c = open_choices(&p, "here");
    CHECK(!cpu_choices_find(c, "k", fake_measure, &f, &got));
    f = (fake){.own = 0, .library = 4}; /* a clock that stands still */
    CHECK(!cpu_choices_find(c, "k", fake_measure, &f, &got));
    cpu_choices_destroy(c);
    place_remove(&p);
}

TEST(choice_is_the_rule_s_unless_clear)
{
    const cpu_choice close = {.own = 104, .library = 100};
    const cpu_choice faster = {.own = 120, .library = 100};
    const cpu_choice slower = {.own = 100, .library = 120};
    CHECK(!cpu_choice_takes_library(&close, false));
    CHECK(cpu_choice_takes_library(&close, true));
    CHECK(cpu_choice_takes_library(&faster, false));
    CHECK(!cpu_choice_takes_library(&slower, true));
}

/* ---- classes ---- */

static gemm_product
product(int64_t m, int64_t n, int64_t k)
{
    gemm_product p = {.batch = 1};
    p.job.nx = m, p.job.nw = n, p.job.k = k;
    p.job.x = (gemm_view){.rs = k, .ks = 1, .dtype = AIR_F32};
    p.job.w = (gemm_view){.rs = k, .ks = 1, .dtype = AIR_F32};
    return p;
}

TEST(choice_samples_are_small_and_of_the_class)
{
    static const int64_t sizes[][3] = {{512, 384, 1536},
                                       {128, 50257, 768},
                                       {100000, 100000, 100000},
                                       {4096, 4096, 4096},
                                       {13, 13, 1 << 30}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        gemm_product p = product(sizes[i][0], sizes[i][1], sizes[i][2]);
        char key[CPU_CHOICE_KEY], small[CPU_CHOICE_KEY];
        int64_t batch, m, n, k;
        cpu_choice_sample(&p, &batch, &m, &n, &k);
        CHECK(m * n * k <= (int64_t)1 << 29 && m >= 13 && n >= 13);
        CHECK_INT(n % 1024 == 0, sizes[i][1] % 1024 == 0 && n >= 1024);
        gemm_product q = product(m, n, k);
        cpu_choice_key(&p, 2, key);
        cpu_choice_key(&q, 2, small);
        CHECK_STR(key, small); /* a sample of a sample */
    }
    gemm_product p = product(512, 384, 384);
    char key[CPU_CHOICE_KEY];
    p.job.w = (gemm_view){.rs = 1, .ks = 384, .dtype = AIR_F32};
    p.batch = 4;
    cpu_choice_key(&p, 3, key);
    CHECK_STR(key, "f32 nn 9 9 9 batch 3");
}

/* ---- the device ---- */

/* Every look at the clock takes 10 ms, and the library what it likes. */
static double seconds;

static double
fake_now(void)
{
    return seconds += 0.01;
}

typedef struct {
    int calls;
    double takes; /* beside those 10 ms; s */
    int wavers;   /* only every so many calls are alike; 0: all are */
} blas;

/* Any result will do: the time counts. */
static int
blas_gemm(void *user, air_dtype dtype, bool trans_a, bool trans_b, int64_t m,
          int64_t n, int64_t k, double alpha, const void *a, int64_t lda,
          const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    blas *state = user;
    (void)dtype, (void)trans_a, (void)trans_b, (void)m, (void)n, (void)k;
    (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)ldc;
    state->calls++;
    seconds += state->takes;
    if (state->wavers > 0 && state->calls % state->wavers != 0)
        seconds += 0.1 * state->calls;
    *(float *)c = 0;
    return 0;
}

enum { N = 256 };

typedef struct {
    air_tensor x, w, y;
    air_arg args[2];
    air_call call;
} mm_call;

static void
mm_init(mm_call *m)
{
    *m = (mm_call){
        .x = {.dtype = AIR_F32, .rank = 2, .dims = {N, N}, .strides = {N, 1}}};
    m->w = m->x, m->y = m->x;
    m->args[0] = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &m->x};
    m->args[1] = (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &m->w};
    m->call =
        (air_call){.nargs = 2, .nouts = 1, .args = m->args, .outs = &m->y};
}

typedef struct {
    place p;
    blas state;
    air_library library;
    air_options options;
} device_case;

static void
device_init(device_case *d, double takes)
{
    d->state = (blas){.takes = takes};
    d->library = (air_library){&d->state, blas_gemm, "fake"};
    d->options = (air_options){
        .threads = 1, .library = &d->library, .choices = d->p.path};
}

static air_device *
device_open(device_case *d, double takes)
{
    air_device *dev;
    device_init(d, takes);
    CHECK_OK(air_driver_cpu.open(&d->options, &base_libc_alloc, &dev));
    dev->now = dev->work_now = fake_now;
    return dev;
}

/* Whatever the rule says. */
TEST(choice_of_the_device)
{
    for (int slow = 0; slow < 2; slow++) {
        device_case d;
        mm_call m;
        const air_kernel *k;
        REQUIRE(place_make(&d.p));
        air_device *dev = device_open(&d, slow ? 0.005 : -0.005);
        mm_init(&m);
        CHECK_OK(air_driver_cpu.kernel_find(dev, "mm", &m.call, &k));
        CHECK_INT(k->library != NULL, !slow);
        CHECK(d.state.calls >= 4);
        const int calls = d.state.calls;
        CHECK_OK(air_driver_cpu.kernel_find(dev, "mm", &m.call, &k));
        CHECK_INT(k->library != NULL, !slow);
        m.call.by_rule = true;
        CHECK_OK(air_driver_cpu.kernel_find(dev, "mm", &m.call, &k));
        CHECK_INT(k->library != NULL,
                  cpu_isa_is_intel() &&
                      strcmp(cpu_isa_base(dev->isa), "avx512") == 0);
        m.call.by_rule = false;
        m.x.dims[0] = m.y.dims[0] = 4; /* few rows: there is a rule */
        CHECK_OK(air_driver_cpu.kernel_find(dev, "mm", &m.call, &k));
        CHECK(k->library == NULL);
        CHECK_INT(d.state.calls, calls);
        air_driver_cpu.close(dev);
        place_remove(&d.p);
    }
}

/* A product without an element is no class: there is nothing to measure. */
TEST(choice_of_no_product)
{
    device_case d;
    mm_call m;
    const air_kernel *k;
    REQUIRE(place_make(&d.p));
    air_device *dev = device_open(&d, -0.005);
    mm_init(&m);
    m.x = (air_tensor){.dtype = AIR_F32,
                       .rank = 3,
                       .dims = {0, N, N},
                       .strides = {N * N, N, 1}};
    m.w = m.x, m.y = m.x;
    CHECK_OK(air_driver_cpu.kernel_find(dev, "bmm", &m.call, &k));
    CHECK(k != NULL && k->library == NULL);
    CHECK_INT(d.state.calls, 0);
    air_driver_cpu.close(dev);
    place_remove(&d.p);
}

TEST(choice_is_told)
{
    device_case d;
    mm_call m;
    air_list *list;
    REQUIRE(place_make(&d.p));
    air_device *dev = device_open(&d, -0.005);
    mm_init(&m);
    air_step steps[2] = {{.call = m.call, .cost = 1 << 20}};
    CHECK_OK(air_driver_cpu.kernel_find(dev, "mm", &m.call, &steps[0].kernel));
    steps[1] = steps[0];
    REQUIRE_OK(air_driver_cpu.list_make(dev, steps, 2, &list));
    const char *note = air_driver_cpu.list_note(dev, list);
    const char *begin = "products, own kernel or library, by measurement: f32 "
                        "256 x 256 x 256 library 2.00 x own";
    if (CHECK(note != NULL))
        CHECK_STR(note, begin); /* one class, once */
    air_driver_cpu.list_free(dev, list);
    steps[0].call.by_rule = steps[1].call.by_rule = true;
    REQUIRE_OK(air_driver_cpu.list_make(dev, steps, 2, &list));
    CHECK(air_driver_cpu.list_note(dev, list) == NULL);
    air_driver_cpu.list_free(dev, list);
    air_driver_cpu.close(dev);
    place_remove(&d.p);
}

static double lost; /* to neighbours; s */

static double
fake_wall(void)
{
    return seconds + (lost += 0.02);
}

/* What neighbours take is in the time of the clock on the wall alone. */
TEST(choice_by_what_one_thread_works)
{
    for (int threads = 1; threads <= 2; threads++) {
        device_case d;
        mm_call m;
        cpu_choice found;
        char key[CPU_CHOICE_KEY];
        REQUIRE(place_make(&d.p));
        air_device *dev = device_open(&d, 0.005);
        dev->now = fake_wall;
        dev->threads = threads;
        mm_init(&m);
        cpu_choose(dev, "mm", &m.call);
        gemm_product p = cpu_gemm_product(&m.call, NULL);
        cpu_choice_key(&p, threads, key);
        REQUIRE(cpu_choices_find(dev->choices, key, NULL, NULL, &found));
        CHECK((found.own < 15000000) == (threads == 1));
        air_driver_cpu.close(dev);
        place_remove(&d.p);
    }
}

/* On a machine that is busy with something else nothing is known. */
TEST(choice_of_a_busy_machine_is_the_rule_s)
{
    device_case d;
    mm_call m;
    const air_kernel *k;
    REQUIRE(place_make(&d.p));
    air_device *dev = device_open(&d, 0);
    d.state.wavers = 3;
    mm_init(&m);
    m.call.by_rule = true;
    CHECK_OK(air_driver_cpu.kernel_find(dev, "mm", &m.call, &k));
    const air_kernel *rule = k;
    m.call.by_rule = false;
    CHECK_OK(air_driver_cpu.kernel_find(dev, "mm", &m.call, &k));
    CHECK(k == rule && d.state.calls > 0);
    CHECK(access(d.p.path, F_OK) != 0);
    d.state = (blas){.takes = -0.005}; /* later */
    CHECK_OK(air_driver_cpu.kernel_find(dev, "mm", &m.call, &k));
    CHECK(k->library != NULL && access(d.p.path, F_OK) == 0);
    air_driver_cpu.close(dev);
    place_remove(&d.p);
}

static air_status
choose_once(const air_alloc *alloc, void *user)
{
    device_case *d = user;
    mm_call m;
    air_device *dev;
    air_list *list = NULL;
    (void)unlink(d->p.path);
    mm_init(&m);
    AIR_TRY(air_driver_cpu.open(&d->options, alloc, &dev));
    dev->now = dev->work_now = fake_now;
    air_step step = {.call = m.call, .cost = 1 << 20};
    air_status status =
        air_driver_cpu.kernel_find(dev, "mm", &m.call, &step.kernel);
    if (status == AIR_OK)
        status = air_driver_cpu.list_make(dev, &step, 1, &list);
    if (status == AIR_OK)
        air_driver_cpu.list_free(dev, list);
    air_driver_cpu.close(dev);
    return status;
}

TEST(choice_survives_out_of_memory)
{
    device_case d;
    REQUIRE(place_make(&d.p));
    device_init(&d, 0.005);
    TEST_OOM(choose_once, &d);
    place_remove(&d.p);
}
