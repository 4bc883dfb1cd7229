/* choice_measure.c: the classes of matrix products, and the time that a product
 * of a class takes by either kernel, both as steps of a list of the device.
 *
 * Few rows and small products have a rule that is clear; they are no class. */
#include "base/text.h"
#include "driver/cpu/product/choice.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/library.h"
#include "driver/driver.h"

#include <stdio.h>
#include <string.h>

#define WORK    ((int64_t)1 << 28) /* multiply-adds of a sample at most */
#define ROWS    512                /* of a sample, where that is enough work */
#define COLUMNS 2048
#define DEPTH   4096
#define ALIAS   1024 /* rows of a multiple of it meet in a cache */
#define TURNS   20
#define SECONDS 0.06 /* of a class, but AGREE turns of either */
#define AGREE   3    /* the best of them must be as good within a tenth */
#define COST    ((int64_t)1 << 30) /* for all threads */

/* ---- classes ---- */

/* n or, if that is more than `most`, a smaller number that has as much to do
 * with the cache's sets. */
static int64_t
cut(int64_t n, int64_t most)
{
    if (n <= most)
        return n;
    return n % ALIAS == 0 ? most : most - 8;
}

void
cpu_choice_sample(const gemm_product *p, int64_t *batch, int64_t *m, int64_t *n,
                  int64_t *k)
{
    *m = cut(p->job.nx, ROWS);
    *n = cut(p->job.nw, COLUMNS);
    *k = cut(p->job.k, DEPTH);
    while (*m * *n * *k > WORK && *m > 128)
        *m /= 2;
    while (*m * *n * *k > WORK && *n > ALIAS)
        *n = *n % ALIAS == 0 ? *n - ALIAS : *n / 2;
    *batch = min64(p->batch, 8);
    while (*batch > 1 && *batch * *m * *n * *k > WORK)
        *batch /= 2;
}

static int
log_of(int64_t n)
{
    int bits = 0;
    while (n > 1) {
        n = (n + 1) / 2;
        bits++;
    }
    return bits;
}

/* Rows along rs that are not adjacent: an operand as PyTorch calls "n". */
static bool
is_plain(const gemm_view *v)
{
    return v->ks == 1;
}

void
cpu_choice_key(const gemm_product *p, int threads, char *key)
{
    int64_t batch, m, n, k;
    cpu_choice_sample(p, &batch, &m, &n, &k);
    (void)snprintf(
        key, CPU_CHOICE_KEY, "%s %c%c %d %d %d%s%s%s %d",
        p->job.x.dtype == AIR_F32 ? "f32" : "bf16",
        is_plain(&p->job.x) ? 'n' : 't', is_plain(&p->job.w) ? 't' : 'n',
        log_of(m), log_of(n), log_of(k), k % ALIAS == 0 ? " k" : "",
        n % ALIAS == 0 ? " n" : "", batch > 1 ? " batch" : "", threads);
}

/* ---- a sample, run ---- */

enum { X, W, Y, WORKSPACE, SLOTS };

typedef struct {
    air_device *dev;
    const gemm_product *product;
    air_tensor t[3];
    air_arg args[2];
    air_call call;
    void *slots[SLOTS];
    size_t sizes[SLOTS];
} sample;

static air_tensor
matrix(int slot, int dtype, int64_t batch, int64_t rows, int64_t cols,
       bool turned)
{
    air_tensor t = {.slot = slot, .dtype = (uint8_t)dtype};
    int d = 0;
    if (batch > 1) {
        t.dims[d] = batch;
        t.strides[d++] = rows * cols;
    }
    t.dims[d] = rows;
    t.strides[d++] = turned ? 1 : cols;
    t.dims[d] = cols;
    t.strides[d++] = turned ? rows : 1;
    t.rank = (uint8_t)d;
    return t;
}

static void
sample_init(sample *s, air_device *dev, const gemm_product *p)
{
    int64_t batch, m, n, k;
    const int dtype = p->job.x.dtype;
    cpu_choice_sample(p, &batch, &m, &n, &k);
    *s = (sample){.dev = dev, .product = p};
    s->t[X] = matrix(X, dtype, batch, m, k, !is_plain(&p->job.x));
    s->t[W] = matrix(W, dtype, batch, k, n, is_plain(&p->job.w));
    s->t[Y] = matrix(Y, dtype, batch, m, n, false);
    for (int i = 0; i < 2; i++)
        s->args[i] =
            (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &s->t[i]};
    s->call = (air_call){.nargs = 2,
                         .nouts = 1,
                         .args = s->args,
                         .outs = &s->t[Y],
                         .by_rule = true}; /* nothing is looked up */
    const int64_t size = cpu_gemm_size_of(dtype) * batch;
    s->sizes[X] = (size_t)(m * k * size);
    s->sizes[W] = (size_t)(k * n * size);
    s->sizes[Y] = (size_t)(m * n * size);
}

static air_step
step_of(sample *s, const air_kernel *kernel)
{
    air_step step = {.kernel = kernel,
                     .call = s->call,
                     .workspace_slot = WORKSPACE,
                     .cost = COST,
                     .untimed = true,
                     .label = "a measurement"};
    step.workspace = air_driver_cpu.workspace(s->dev, kernel, &s->call);
    if (step.workspace > s->sizes[WORKSPACE])
        s->sizes[WORKSPACE] = step.workspace;
    return step;
}

static air_status
sample_fill(sample *s)
{
    for (int i = 0; i < SLOTS; i++) {
        if (s->sizes[i] == 0)
            continue;
        AIR_TRY(driver_block_new(&s->dev->alloc, s->sizes[i], &s->slots[i]));
        memset(s->slots[i], 0x3c, s->sizes[i]); /* about 0.01 in any float */
    }
    return AIR_OK;
}

static void
sample_free(sample *s)
{
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[i] != NULL)
            driver_block_free(&s->dev->alloc, s->slots[i], s->sizes[i]);
}

/* The best ones, the very best first. */
typedef struct {
    int64_t ns[AGREE];
} best;

static void
add_time(best *b, int64_t ns)
{
    for (int i = 0; i < AGREE && ns > 0; i++) {
        const int64_t was = b->ns[i];
        if (was > 0 && was <= ns)
            continue;
        b->ns[i] = ns;
        ns = was;
    }
}

static bool
agree(const best *b)
{
    return b->ns[AGREE - 1] > 0 && b->ns[AGREE - 1] / 11 <= b->ns[0] / 10;
}

/* Of one thread what it works: a neighbour on its core is not in it, and three
 * turns that lost the core alike do not pass for a slow kernel. */
static double
clock_of(const air_device *dev)
{
    const int threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED);
    return threads == 1 ? dev->work_now() : dev->now();
}

static air_status
turn(sample *s, air_list *list, best *to)
{
    const double start = clock_of(s->dev);
    AIR_TRY(cpu_list_run(s->dev, list, s->slots));
    add_time(to, (int64_t)((clock_of(s->dev) - start) * 1e9) + 1);
    return AIR_OK;
}

/* In turns: a neighbour disturbs both, and where it lets neither run twice
 * alike, nothing is known. The first turn is not counted. */
static air_status
turns(sample *s, air_list *const *lists, cpu_choice *out)
{
    best of[2] = {{{0}}, {{0}}}, first[2] = {{{0}}, {{0}}};
    const double start = s->dev->now();
    for (int i = 0; i <= TURNS; i++) {
        if (i > AGREE && s->dev->now() - start > SECONDS)
            break;
        for (int k = 0; k < 2; k++)
            AIR_TRY(turn(s, lists[k], i == 0 ? &first[k] : &of[k]));
    }
    if (agree(&of[0]) && agree(&of[1])) {
        out->own = of[0].ns[0];
        out->library = of[1].ns[0];
    }
    return AIR_OK;
}

static air_status
run_both(sample *s, const air_kernel *own, const air_kernel *library,
         cpu_choice *out)
{
    const air_step steps[] = {step_of(s, own), step_of(s, library)};
    air_list *lists[2] = {NULL, NULL};
    air_status status = sample_fill(s);
    for (int i = 0; i < 2 && status == AIR_OK; i++)
        status = cpu_list_make(s->dev, &steps[i], 1, &lists[i]);
    if (status == AIR_OK)
        status = turns(s, lists, out);
    for (int i = 0; i < 2; i++)
        cpu_list_free(s->dev, lists[i]);
    sample_free(s);
    return status;
}

/* Where memory runs out nothing is measured, and the rule holds. */
static bool
measure(void *arg, cpu_choice *out)
{
    sample *s = arg;
    sample_init(s, s->dev, s->product);
    const char *name = s->t[X].rank == 3 ? "bmm" : "mm", *isa = s->dev->isa;
    const air_kernel *own = cpu_kernel_find(name, &s->call, isa, CPU_OWN);
    const air_kernel *library =
        cpu_kernel_find(name, &s->call, isa, CPU_LIBRARY);
    if (own == NULL || library == NULL ||
        run_both(s, own, library, out) != AIR_OK) {
        base_clear_error();
        return false;
    }
    return true;
}

/* ---- the device ---- */

/* Of products that either kernel may do: true and the class. */
static bool
find_class(const air_device *dev, const char *name, const air_call *call,
           gemm_product *p, char *key)
{
    if (dev->choices == NULL || !dev->has_library || call->by_rule ||
        cpu_kernel_find(name, call, dev->isa, CPU_LIBRARY) == NULL)
        return false;
    *p = cpu_gemm_product(call, NULL);
    cpu_choice_key(p, __atomic_load_n(&dev->threads, __ATOMIC_RELAXED), key);
    return true;
}

cpu_use
cpu_choose(air_device *dev, const char *name, const air_call *call)
{
    gemm_product p;
    cpu_choice found;
    char key[CPU_CHOICE_KEY];
    if (!dev->has_library)
        return CPU_OWN;
    if (!find_class(dev, name, call, &p, key))
        return CPU_BY_RULE;
    sample s = {.dev = dev, .product = &p};
    if (!cpu_choices_find(dev->choices, key, measure, &s, &found))
        return CPU_BY_RULE;
    const air_kernel *rule = cpu_kernel_find(name, call, dev->isa, CPU_BY_RULE);
    const bool by_rule = rule != NULL && rule->library != NULL;
    return cpu_choice_takes_library(&found, by_rule) ? CPU_LIBRARY : CPU_OWN;
}

/* Counts changes of own kernels that make measurements of before wrong. */
enum { KERNELS = 6 };

void
cpu_choice_machine(const air_device *dev, char *out, size_t size)
{
    char brand[49];
    cpu_isa_brand(brand);
    (void)snprintf(out, size, "%s, %s, %s, kernels %d", brand, dev->isa,
                   dev->library.name != NULL ? dev->library.name : "library",
                   KERNELS);
}

/* ---- for people ---- */

static void
note_choice(base_text *out, const gemm_product *p, const cpu_choice *c)
{
    const bool own = c->own <= c->library;
    const double ratio = own ? (double)c->library / (double)c->own
                             : (double)c->own / (double)c->library;
    base_text_add(
        out, "%s%s %lld x %lld x %lld %s %.2f x %s",
        out->len == 0 ? "products, own kernel or library, by measurement: "
                      : "; ",
        p->job.x.dtype == AIR_F32 ? "f32" : "bf16", (long long)p->job.nx,
        (long long)p->job.nw, (long long)p->job.k, own ? "own" : "library",
        ratio, own ? "library" : "own");
}

/* Is there a step of the same class before it? */
static bool
is_told(const air_device *dev, const air_step *steps, size_t at,
        const char *key)
{
    gemm_product p;
    char other[CPU_CHOICE_KEY];
    for (size_t i = 0; i < at; i++) {
        const char *name = steps[i].kernel->name;
        if (name != NULL && find_class(dev, name, &steps[i].call, &p, other) &&
            strcmp(key, other) == 0)
            return true;
    }
    return false;
}

air_status
cpu_choice_note(const air_device *dev, const air_step *steps, size_t count,
                base_text *out)
{
    gemm_product p;
    cpu_choice found;
    char key[CPU_CHOICE_KEY];
    for (size_t i = 0; dev->choices != NULL && i < count; i++) {
        const char *name = steps[i].kernel->name;
        if (name != NULL && find_class(dev, name, &steps[i].call, &p, key) &&
            cpu_choices_find(dev->choices, key, NULL, NULL, &found) &&
            !is_told(dev, steps, i, key))
            note_choice(out, &p, &found);
    }
    return out->status;
}
