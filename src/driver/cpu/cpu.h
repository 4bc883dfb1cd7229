/* cpu.h: what the files of the cpu device share. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "air_driver.h"
#include "base/memory.h"
#include "base/thread.h"
#include "driver/block.h"
#include "driver/cpu/region/region.h"

/* Measured choices between kernels: choice.h. */
typedef struct cpu_choices cpu_choices;

/* Can this provider run the call on a CPU of this isa ("avx2")? */
typedef bool (*cpu_accept_fn)(const air_call *call, const char *isa);
/* false: not done, the engine's own kernel does it. */
typedef bool (*cpu_library_fn)(const air_library *library, const air_call *call,
                               void *const *slots, void *workspace);

/* A provider of the kernel table, a region (then the rest is NULL), or both:
 * the provider with `join` as its call's extra. */
struct air_kernel {
    const char *name;
    air_kernel_fn run;
    air_workspace_fn workspace; /* NULL: none */
    cpu_accept_fn accept;       /* NULL: any call */
    cpu_accept_fn can; /* the library may do it, where a measurement says so;
                          NULL: by `accept` only */
    cpu_library_fn library; /* NULL: none */
    air_kernel_fn begin;    /* on all threads, before it; NULL: none */
    bool (*joins)(const air_call *call); /* takes a cpu_join as extra */
    cpu_region *region;
    const void *join; /* region_join.h */
};

/* OWN: the library has no part in it. LIBRARY: of rows that it does. */
typedef enum { CPU_OWN, CPU_BY_RULE, CPU_LIBRARY } cpu_use;

/* The first provider of the name that accepts the call. NULL: none. */
const air_kernel *cpu_kernel_find(const char *name, const air_call *call,
                                  const char *isa, cpu_use use);

/* Is it a plain kernel, one of driver/ref, that takes the call? */
bool cpu_kernel_is_plain(const char *name, const air_call *call,
                         const char *isa);

/* What one run needs for itself, kept and reused: scratch of its threads,
 * barriers, faults. */
typedef struct cpu_run cpu_run;

struct air_device {
    air_alloc alloc;
    air_parallel parallel;
    void *parallel_user;
    base_pool *pool; /* own: parallel_user; NULL: the application's */
    int threads;     /* atomic: set_threads */
    int max_threads; /* of the own pool, or INT_MAX */
    bool has_library;
    air_library library;
    cpu_choices *choices;           /* NULL: by rule */
    double (*now)(void);            /* of measurements; seconds */
    double (*work_now)(void);       /* what the calling thread has run */
    const air_generator *generator; /* the application's; NULL: philox */
    air_philox philox;
    const char *isa;
    int64_t cache_bytes;
    double step_seconds; /* 0: no limit */
    void (*on_step)(void *user, const air_step_event *event);
    void *on_step_user;
    void (*log)(void *user, air_log_level level, const char *line);
    void *log_user;
    pthread_mutex_t mutex; /* of `idle` */
    cpu_run *idle;
};

/* isa.c: the best of this CPU that is not above `want` (NULL: the fastest one,
 * which may be below what the CPU has). ARGUMENT: no such name. */
air_status cpu_isa_find(const char *want, const char **out);
/* The instruction set of regions and of what has no kernel above it: "avx512"
 * for those above it, else the same. */
const char *cpu_isa_base(const char *isa);
/* VDPBF16PS? */
bool cpu_isa_has_pairs(const char *isa);
/* That does more in a cycle than multiply-adds of floats? Not where there is
 * AMX: Intel's take two cycles. */
bool cpu_isa_has_fast_pairs(const char *isa);
/* VPDPBUSD, and no fast pairs? */
bool cpu_isa_has_bytes(const char *isa);
bool cpu_isa_is_intel(void);
/* Bytes of the last caches that so many threads reach, neighbours sharing one.
 */
int64_t cpu_isa_cache(int threads);
/* What the CPU calls itself; "CPU" where it says nothing. */
void cpu_isa_brand(char out[49]);

/* limits.c */
air_status cpu_limits(air_device *dev, air_limits *out);
/* Are multiply-adds of pairs of bf16 faster than those of floats? Measured,
 * in some 50 us. Of a CPU that has VDPBF16PS only. */
bool cpu_limits_pairs_pay(void);

/* list.c */
air_status cpu_list_make(air_device *dev, const air_step *steps, size_t count,
                         air_list **out);
air_status cpu_list_run(air_device *dev, air_list *list, void *const *slots);
void cpu_list_free(air_device *dev, air_list *list);
const char *cpu_list_note(const air_device *dev, const air_list *list);
/* Frees the idle runs. */
void cpu_runs_free(air_device *dev);
/* Makes sure that one run is idle that has room for so many steps that are
 * placed together, and in a parallel part. */
air_status cpu_runs_fill(air_device *dev, size_t states, size_t steps);

#endif
