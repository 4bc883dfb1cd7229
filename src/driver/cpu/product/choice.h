/* choice.h: whose kernel does a matrix product, ours or the library's: by a
 * measurement for each class of shapes, kept in a file. What disturbs it makes
 * it slower: a second process measures again, and the least of both counts.
 *
 * The file is text: a line that names the format, then a line for each class:
 * machine, class, the nanoseconds of either kernel, and how many processes have
 * measured it, with tabs between. It is shared by processes and machines. What
 * is no such line is not read, and gone when the file is next written; a file
 * that cannot be read or written is as good as none. */
#ifndef CPU_CHOICE_H
#define CPU_CHOICE_H

#include "base/text.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm_call.h"

enum { CPU_CHOICE_KEY = 96, CPU_CHOICE_MACHINE = 192 };

typedef struct {
    char key[CPU_CHOICE_KEY];
    int64_t own, library; /* ns of one run, above 0 */
    int runs;             /* processes that have measured it: 1 .. 9 */
    bool here;            /* this one has, or has tried */
} cpu_choice;

/* Fills in own and library. false: it could not be measured. */
typedef bool (*cpu_measure_fn)(void *arg, cpu_choice *out);

/* machine: what a measurement holds for (CPU, instruction set, library, state
 * of our kernels); tabs and line ends in it become spaces. */
air_status cpu_choices_create(const air_alloc *alloc, const char *path,
                              const char *machine, cpu_choices **out);
void cpu_choices_destroy(cpu_choices *choices); /* may be NULL */
/* The choice of that key; what is not known, or by one other process only, is
 * measured, unless measuring has taken long enough in this process. measure
 * NULL: it is not. Any thread; false: there is none. */
bool cpu_choices_find(cpu_choices *choices, const char *key,
                      cpu_measure_fn measure, void *arg, cpu_choice *out);

/* By what is known before it runs; or what a measurement says, if that is
 * clear. */
bool cpu_choice_takes_library(const cpu_choice *choice, bool by_rule);

/* choice_measure.c */
/* A smaller product of the same class, for which either kernel is as good as
 * for the product itself: sizes in out, sides of memory as they were. */
void cpu_choice_sample(const gemm_product *p, int64_t *batch, int64_t *m,
                       int64_t *n, int64_t *k);
void cpu_choice_key(const gemm_product *p, int threads, char *key);
/* What `kernel_find` of the device takes. */
cpu_use cpu_choose(air_device *dev, const char *name, const air_call *call);
/* CPU, instruction set, library and state of our kernels, for
 * cpu_choices_create. */
void cpu_choice_machine(const air_device *dev, char *out, size_t size);
/* What was measured for products among the steps, in one line; NULL: nothing.
 * base_text of the device's allocator. */
air_status cpu_choice_note(const air_device *dev, const air_step *steps,
                           size_t count, base_text *out);

#endif
