/* limits.c: what this machine can do: how fast all threads together read memory
 * and multiply and add. Each is the best of many short passes, so that a thread
 * that has to wait for a core spoils a few of them only. Passes walk through
 * the data, so that none finds what the one before it read. */
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm_amx.h"
#include "driver/cpu/product/gemm_pairs.h"

#include <string.h>

#define READ_BYTES ((size_t)128 << 20)
#define PIECES     8 /* of the data: one a pass */
#define ROUNDS     ((int64_t)1 << 17)
#define PASSES     32

#define SHORT_ROUNDS ((int64_t)1 << 9) /* microseconds */

#define LIMITS_OF(isa)                                  \
    float limits_read_##isa(const float *p, int64_t n); \
    float limits_compute_##isa(int64_t rounds, float x, double *flops);
LIMITS_OF(scalar)
#if defined(__x86_64__)
LIMITS_OF(avx2)
LIMITS_OF(avx512)
#endif

typedef struct {
    const char *isa;
    float (*read)(const float *p, int64_t n);
    float (*compute)(int64_t rounds, float x, double *flops);
} limits_isa;

static const limits_isa isas[] = {
#if defined(__x86_64__)
    {"avx512", limits_read_avx512, limits_compute_avx512},
    {"avx2", limits_read_avx2, limits_compute_avx2},
#endif
    {"scalar", limits_read_scalar, limits_compute_scalar},
};

typedef struct {
    const limits_isa *isa;
    float (*compute)(int64_t rounds, float x, double *flops);
    float *data;
    int piece;
    double flops; /* of a thread */
    int threads;  /* that there were */
    float sink;   /* keeps results alive */
} measurement;

/* What a thread has of the piece at hand: n floats. */
static float *
part(const measurement *m, int id, int count, int64_t *out_n)
{
    const int64_t size = (int64_t)(READ_BYTES / sizeof(float)) / PIECES;
    *out_n = size / count / 128 * 128;
    return m->data + m->piece * size + id * *out_n;
}

static void
keep(measurement *m, int id, int count, float result)
{
    if (id != 0)
        return;
    m->threads = count;
    m->sink = result;
}

static void
read_part(void *arg, int id, int count)
{
    measurement *m = arg;
    int64_t n;
    const float *p = part(m, id, count, &n);
    keep(m, id, count, m->isa->read(p, n));
}

static void
compute(void *arg, int id, int count)
{
    measurement *m = arg;
    double flops;
    float result = m->compute(ROUNDS, 0.5f, &flops);
    if (id == 0)
        m->flops = flops;
    keep(m, id, count, result);
}

static double
best_of(air_device *dev, int threads, measurement *m,
        void (*fn)(void *arg, int id, int count))
{
    double best = 0;
    for (int i = 0; i < PASSES; i++) {
        m->piece = i % PIECES;
        double begin = base_now();
        if (threads > 1)
            dev->parallel(dev->parallel_user, threads, fn, m);
        else
            fn(m, 0, 1);
        double seconds = base_now() - begin;
        if (i == 0 || seconds < best)
            best = seconds;
    }
    return best > 0 ? best : 1e-9;
}

/* A second, of all threads. */
static double
flops_of(air_device *dev, int threads, measurement *m,
         float (*compute_rounds)(int64_t rounds, float x, double *flops))
{
    m->compute = compute_rounds;
    double seconds = best_of(dev, threads, m, compute);
    return m->flops * m->threads / seconds;
}

static const limits_isa *
isa_of(const air_device *dev)
{
    const char *want = cpu_isa_base(dev->isa);
    size_t i = 0;
    while (strcmp(isas[i].isa, want) != 0)
        i++;
    return &isas[i];
}

#if defined(__x86_64__)
/* Seconds of one operation of a round, at best. */
static double
seconds_of(float (*compute_rounds)(int64_t rounds, float x, double *flops),
           double best)
{
    double flops, begin = base_now();
    volatile float kept = compute_rounds(SHORT_ROUNDS, 0.5f, &flops);
    double seconds = (base_now() - begin) / flops;
    (void)kept;
    return seconds < best ? seconds : best;
}

bool
cpu_limits_pairs_pay(void)
{
    double pairs = 1, floats = 1;
    for (int i = 0; i < PASSES; i++) {
        pairs = seconds_of(cpu_pairs_limits, pairs);
        floats = seconds_of(limits_compute_avx512, floats);
    }
    return pairs < floats;
}
#else
bool
cpu_limits_pairs_pay(void)
{
    return false;
}
#endif

air_status
cpu_limits(air_device *dev, air_limits *out)
{
    int threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED);
    measurement m = {.isa = isa_of(dev)};
    AIR_TRY(base_new(&dev->alloc, READ_BYTES, (void **)&m.data));
    memset(m.data, 1, READ_BYTES);
    out->read =
        (double)READ_BYTES / PIECES / best_of(dev, threads, &m, read_part);
    out->flops = flops_of(dev, threads, &m, m.isa->compute);
    out->pair_flops = 0;
#if defined(__x86_64__)
    if (strcmp(dev->isa, "avx512_bf16") == 0)
        out->pair_flops = flops_of(dev, threads, &m, cpu_pairs_limits);
    if (strcmp(dev->isa, "amx") == 0)
        out->pair_flops = flops_of(dev, threads, &m, cpu_amx_limits);
#endif
    out->threads = m.threads;
    base_free(&dev->alloc, m.data, READ_BYTES);
    return AIR_OK;
}
