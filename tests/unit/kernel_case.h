/* kernel_case.h: calls of CPU kernels on random tensors, for unit tests.
 *
 * Tensors live in one table of slots; each has guard bytes around it. Elements
 * are read as double. Everything is freed by kcase_end. */
#ifndef KERNEL_CASE_H
#define KERNEL_CASE_H

#include "air_kernel.h"
#include "test.h"

#define CASE_TENSORS 16

typedef struct {
    air_tensor t[CASE_TENSORS];
    void *slots[CASE_TENSORS + 1]; /* the last one: workspace */
    size_t sizes[CASE_TENSORS + 1];
    int count;
    uint64_t seed;
    bool integral; /* fill with small integers: results are exact */
} kernel_case;

void kcase_begin(kernel_case *c, uint64_t seed);
void kcase_end(kernel_case *c);

/* A tensor of random elements. perm[i] is the memory order, outermost first
 * (NULL: row-major); pad: elements added to each row of memory; shift: elements
 * in front (alignment). Returns its index. */
int kcase_tensor(kernel_case *c, int dtype, int rank, const int64_t *dims,
                 const int *perm, int64_t pad, int64_t shift);
/* Stride 0 along dim. */
void kcase_expand(kernel_case *c, int tensor, int dim, int64_t size);
double kcase_get(const kernel_case *c, int tensor, int64_t element);
/* The larger one of errors; NaN, once it is one. */
double kcase_worse(double worst, double error);
void kcase_put(kernel_case *c, int tensor, int64_t element, double value);
/* Element offset of an index. */
int64_t kcase_at(const kernel_case *c, int tensor, const int64_t *index);
double kcase_random(kernel_case *c); /* [-1, 1) */

/* Runs the kernel on threads and checks the guards. */
void kcase_run(kernel_case *c, air_kernel_fn run, air_workspace_fn workspace,
               const air_call *call, int threads);

air_arg kcase_arg(const kernel_case *c, int tensor);
static inline air_arg
kcase_float(double f)
{
    return (air_arg){.kind = AIR_ARG_FLOAT, .f = f};
}
static inline air_arg
kcase_int(int64_t i)
{
    return (air_arg){.kind = AIR_ARG_INT, .i = i};
}

/* Memory for a test; aborts where there is none. */
void *kcase_new(size_t size);
void kcase_free(void *ptr, size_t size);

/* Can this CPU run kernels of "avx2"? */
bool kcase_has_isa(const char *isa);

/* An operator on an instruction set. */
typedef struct {
    const char *isa;
    air_kernel_fn run;
    air_workspace_fn workspace;
    bool (*accept)(const air_call *call, const char *isa); /* NULL: all calls */
} kcase_kernel;
/* Of rows of a table, which have an isa: those that this CPU can run; and, if
 * they have an accept, whether one is for a call. */
#define KCASE_EACH(type, row, table)                             \
    for (const type *row = (table);                              \
         row < (table) + sizeof(table) / sizeof *(table); row++) \
        if (kcase_has_isa(row->isa))
#define KCASE_TAKES(row, call) \
    ((row)->accept == NULL || (row)->accept((call), (row)->isa))

#endif
