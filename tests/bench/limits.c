/* limits.c: what this machine can do, as JSON: memory, caches, arithmetic.
 *
 *     cc -O3 -march=native -std=gnu11 -pthread limits.c -o limits && ./limits
 *     ./limits read THREADS    GB/s of reading memory, a number and no more
 *
 * Each figure is the best of several passes, with one thread and with all.
 * A pass begins and ends at a barrier of pinned, spinning threads.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 64
#define KIB         ((size_t)1024)
#define MIB         (1024 * KIB)
#ifdef __AVX512F__
enum { LANES = 16, ACCUMULATORS = 24 };
#else
enum { LANES = 8, ACCUMULATORS = 12 };
#endif
enum { STREAMS = 8, FMA_ROUNDS = 4000000, CROSSINGS = 100000 };

typedef float vec __attribute__((vector_size(LANES * sizeof(float))));

struct job {
    void (*work)(const struct job *job, int id);
    int threads, passes;
    size_t bytes, repeats; /* of memory, all threads together */
    double best;           /* seconds of a pass */
};

static char *buffers[3];
static volatile float sink; /* keeps results alive */

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- threads ------------------------------------------------------------- */

static atomic_int arrived, generation;

static void
barrier(int threads)
{
    int mine = atomic_load(&generation);
    if (atomic_fetch_add(&arrived, 1) + 1 == threads) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&generation, 1);
        return;
    }
    while (atomic_load(&generation) == mine)
        __builtin_ia32_pause();
}

struct worker {
    struct job *job;
    int id;
};

static void *
worker_main(void *arg)
{
    const struct worker *worker = arg;
    struct job *job = worker->job;
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET((size_t)worker->id, &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    for (int pass = 0; pass < job->passes; pass++) {
        barrier(job->threads);
        double began = now();
        job->work(job, worker->id);
        barrier(job->threads);
        double spent = now() - began;
        if (worker->id == 0 && spent < job->best)
            job->best = spent;
    }
    return NULL;
}

static double
run(struct job job)
{
    pthread_t threads[MAX_THREADS];
    struct worker workers[MAX_THREADS];
    job.best = 1e30;
    for (int i = 0; i < job.threads; i++) {
        workers[i] = (struct worker){&job, i};
        if (pthread_create(&threads[i], NULL, worker_main, &workers[i])) {
            fputs("limits: cannot start a thread\n", stderr);
            exit(1);
        }
    }
    for (int i = 0; i < job.threads; i++)
        pthread_join(threads[i], NULL);
    return job.best;
}

/* ---- memory -------------------------------------------------------------- */

static char *
map(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fputs("limits: out of memory\n", stderr);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes; i += 4096)
        p[i] = 1;
    return p;
}

/* The bytes of a thread, a whole number of pages, and where they begin. */
static size_t
part(const struct job *job, int id, size_t *out_start)
{
    size_t bytes = job->bytes / (size_t)job->threads / 4096 * 4096;
    *out_start = bytes * (size_t)id;
    return bytes;
}

static void
read_all(const struct job *job, int id)
{
    size_t start, bytes = part(job, id, &start);
    size_t count = bytes / sizeof(vec);
    vec sums[STREAMS] = {0};
    for (size_t r = 0; r < job->repeats; r++) {
        const vec *p = (const vec *)(const void *)(buffers[0] + start);
        for (size_t i = 0; i < count; i += STREAMS)
            for (int k = 0; k < STREAMS; k++)
                sums[k] += p[i + (size_t)k];
        __asm__ volatile("" ::: "memory");
    }
    for (int k = 1; k < STREAMS; k++)
        sums[0] += sums[k];
    sink = sums[0][0];
}

static void
triad(const struct job *job, int id)
{
    size_t start, bytes = part(job, id, &start);
    vec *a = (vec *)(void *)(buffers[0] + start);
    const vec *b = (const vec *)(const void *)(buffers[1] + start);
    const vec *c = (const vec *)(const void *)(buffers[2] + start);
    for (size_t i = 0; i < bytes / sizeof(vec); i++)
        a[i] = b[i] + 1.5f * c[i];
}

/* ---- arithmetic ---------------------------------------------------------- */

static void
multiply_add(const struct job *job, int id)
{
    (void)job;
    (void)id;
    vec sums[ACCUMULATORS], factor = {0}, addend = {0};
    factor += 0.999f;
    addend += 1e-9f;
#pragma GCC unroll 32
    for (int k = 0; k < ACCUMULATORS; k++)
        sums[k] = addend * (float)k;
    for (long i = 0; i < FMA_ROUNDS; i++) {
#pragma GCC unroll 32
        for (int k = 0; k < ACCUMULATORS; k++) {
            sums[k] = sums[k] * factor + addend;
            __asm__ volatile("" : "+x"(sums[k]));
        }
    }
#pragma GCC unroll 32
    for (int k = 1; k < ACCUMULATORS; k++)
        sums[0] += sums[k];
    sink = sums[0][0];
}

static void
cross_barriers(const struct job *job, int id)
{
    (void)id;
    for (int i = 0; i < CROSSINGS; i++)
        barrier(job->threads);
}

/* ---- the report ---------------------------------------------------------- */

static void
put(const char *name, int threads, double value, const char *unit)
{
    static bool later;
    printf("%s\n  \"%s, %d threads\": {\"value\": %.2f, \"unit\": \"%s\"}",
           later ? "," : "{", name, threads, value, unit);
    fflush(stdout);
    later = true;
}

static void
report_memory(int threads)
{
    const struct {
        const char *name;
        size_t bytes, repeats;
        void (*work)(const struct job *, int);
        double factor; /* bytes moved a byte of the span */
    } rows[] = {
        {"DRAM read", 512 * MIB, 1, read_all, 1},
        {"DRAM triad", 512 * MIB, 1, triad, 3},
        {"L1 read", 16 * KIB * (size_t)threads, 40000, read_all, 1},
        {"L2 read", 256 * KIB * (size_t)threads, 4000, read_all, 1},
        {"L3 read", 6 * MIB, 60, read_all, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double s = run((struct job){rows[i].work, threads, 8, rows[i].bytes,
                                    rows[i].repeats, 0});
        double moved =
            (double)rows[i].bytes * (double)rows[i].repeats * rows[i].factor;
        put(rows[i].name, threads, moved / s * 1e-9, "GB/s");
    }
}

static void
report_arithmetic(int threads)
{
    double s = run((struct job){multiply_add, threads, 4, 0, 0, 0});
    double operations = 2.0 * LANES * ACCUMULATORS * FMA_ROUNDS * threads;
    put("f32 multiply-add", threads, operations / s * 1e-9, "GFLOP/s");
    if (threads == 1)
        return;
    s = run((struct job){cross_barriers, threads, 4, 0, 0, 0});
    put("barrier", threads, s / CROSSINGS * 1e9, "ns");
}

static void
report_read(int threads)
{
    const size_t bytes = 512 * MIB;
    buffers[0] = map(bytes);
    double s = run((struct job){read_all, threads, 8, bytes, 1, 0});
    printf("%.2f\n", (double)bytes / s * 1e-9);
}

int
main(int argc, char **argv)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cpus > MAX_THREADS ? MAX_THREADS : (int)cpus;
    if (argc == 3 && strcmp(argv[1], "read") == 0) {
        int threads = atoi(argv[2]);
        report_read(threads < 1 ? 1 : threads > most ? most : threads);
        return 0;
    }
    for (int i = 0; i < 3; i++)
        buffers[i] = map(512 * MIB);
    for (int threads = 1;; threads = most) {
        report_memory(threads);
        report_arithmetic(threads);
        if (threads == most)
            break;
    }
    puts("\n}");
    return 0;
}
