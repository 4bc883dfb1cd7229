/* device.h: the device's own state, shared by its files. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include <pthread.h>

#include "driver/cuda/cuda.h"
#include "driver/cuda/symbols.h"

/* Loaded code of one text: entry i of it is functions[i]. Texts of regions
 * serve many sizes: lists of one module differ in the shared memory they ask
 * for, and the functions are allowed the most of them. */
typedef struct cuda_module {
    struct cuda_module *next;
    uint64_t hash[2]; /* of everything that decides the code */
    size_t bytes;
    uint32_t shared; /* dynamic bytes that a block of the functions may have */
    cu_module module;
    cu_function functions[AIR_CODE_LAUNCHES];
} cuda_module;

/* A product of cuBLASLt that is ready to run: blas.h. */
typedef struct cuda_product cuda_product;

/* Most streams that are told apart; torch has 32 of each priority. */
enum { CUDA_STREAMS = 96 };

struct air_device {
    air_alloc alloc;
    cuda_symbols cu;
    air_gpu gpu; /* of the application; strings are own copies */
    char *folders, *cache;
    int ordinal;   /* CUdevice */
    bool retained; /* the primary context */
    cu_context context;
    cuda_props props;
    bool overlaps;     /* a launch of a graph may begin before the one before
                        * it is over */
    bool checks;       /* air_gpu: of persistent kernels */
    int64_t patience;  /* ns, of a persistent kernel */
    char target[40];   /* for the printer: isa, processors, shared bytes */
    int compiler[2];   /* version */
    int threads;       /* that compile */
    cuda_fault *fault; /* seen by host and device */
    pthread_mutex_t loading; /* of modules: held while NVRTC compiles, which
                              * runs of other threads must not wait for */
    cuda_module *modules;
    pthread_mutex_t mutex;           /* of what follows */
    cu_stream last;                  /* stream of the last run */
    pthread_t thread;                /* that gave it */
    bool mixed;                      /* several threads did */
    cu_stream streams[CUDA_STREAMS]; /* of all runs */
    int nstreams;
    cu_blas blas;    /* NULL: no product was made yet */
    cu_event passed; /* recorded where the stream changed */
};

/* Turns a code of libcuda into a status: `what` could not be done. */
air_status cuda_check(const air_device *dev, int code, const char *what);
#define CUDA_TRY(dev, what, call) AIR_TRY(cuda_check((dev), (call), (what)))

/* The device's context is the calling thread's between them. So is leave to do
 * what a capture of the application, in whatever thread, forbids others by
 * default: waiting for another stream, making memory, loading code. Nothing of
 * that touches what is captured, and refused it would end the capture. */
typedef struct {
    bool pushed, relaxed;
    int mode; /* the thread's own */
} cuda_entered;
air_status cuda_enter(const air_device *dev, cuda_entered *out);
void cuda_leave(const air_device *dev, const cuda_entered *was);

/* The application's current stream of this thread; work on it begins after
 * what was given to the device before, unless the application captures it. */
air_status cuda_stream(air_device *dev, cu_stream *out);
/* Does the application capture the stream? */
bool cuda_is_captured(const air_device *dev, cu_stream stream);
/* INDEX: a kernel of an earlier run met an index out of range. */
air_status cuda_fault_check(air_device *dev);

/* ---- module.c ---- */

/* A text that is wanted, and the code of it. Entry i is air_<i><name>:
 * profilers show what it computes. */
enum { CUDA_NAME = 80, CUDA_WHY = 160 };
typedef struct {
    const char *text, *prelude;
    char name[CUDA_NAME];      /* of letters, digits and _; may be "" */
    uint32_t nentries, shared; /* entries; most dynamic shared memory */
    uint32_t parts, threads;   /* of cuda_source; of a block, for parts */
    cuda_module *module;       /* out */
    char whole[CUDA_WHY]; /* out: why its parts were not linked; "": they were,
                           * or it has none, or it was there already */
} cuda_want;
/* Finds or compiles all of them, side by side. */
air_status cuda_modules_get(air_device *dev, cuda_want *wants, size_t count);
void cuda_modules_free(air_device *dev);

/* ---- link.c ---- */

typedef struct {
    char *code; /* NULL: none */
    size_t size;
} cuda_part;
/* One kernel of parts that were compiled to be linked; what it gives is the
 * caller's. In the device's context. */
air_status cuda_link(const air_device *dev, const cuda_part *parts,
                     size_t count, cuda_part *out);

/* ---- cache.c: compiled code in a folder, by hash ---- */

/* NULL in *out: not there, or damaged. */
air_status cuda_cache_read(const air_alloc *alloc, const char *folder,
                           const uint64_t hash[2], char **out,
                           size_t *out_size);
/* A failure to write is none of the program's. */
void cuda_cache_write(const char *folder, const uint64_t hash[2],
                      const char *data, size_t size);

/* ---- list.c; cuda_fill, cuda_list_run: launch.c ---- */

/* Where the generator is before a launch. */
typedef struct {
    uint64_t seed, offset;
} cuda_drawn;
/* Takes so many numbers of each thread. */
air_status cuda_draw(const air_device *dev, int64_t count, cuda_drawn *out);

/* What one launch of a list needs, with places not yet known. */
typedef struct {
    cu_function function;
    cuda_product *product; /* instead of the function */
    air_launch shape;
    uint32_t first, nparams; /* of the list's */
    bool early; /* may begin while the command before it runs: it waits for it
                 * where it must, by itself */
    bool together; /* all its blocks are on the GPU at once */
    bool draws;
} cuda_command;
/* Memory that is 0 before and after a run of a list. */
typedef struct cuda_scratch {
    struct cuda_scratch *next;
    uint64_t ptr;
} cuda_scratch;
enum { CUDA_NOTE = 320 };
struct air_list {
    const air_step *steps;
    size_t ncommands, nparams;
    cuda_command *commands;
    cuda_param *params; /* workspaces and the fault are pointers by now */
    uint64_t *values;   /* room for a run; runs of a list take turns */
    void **pointers;    /* &values[i], or the values of a region */
    pthread_mutex_t mutex;
    size_t bytes;
    int64_t draws;           /* numbers that each thread takes in a run */
    size_t scratch_bytes;    /* that a run needs */
    cuda_scratch *scratch;   /* its own, and one of each capture of others */
    uint64_t own;            /* of the run command by command; 0: none */
    char note[CUDA_NOTE];    /* list_note; "": nothing to say */
    bool ran;                /* once, command by command */
    air_device_graph *graph; /* of the runs after that */
};
/* Fills values[first .. first + nparams) of a command; drawn: before the list.
 * Without slots pointers stay as they are. */
void cuda_fill(const air_list *list, const cuda_command *c, void *const *slots,
               cuda_drawn drawn, uint64_t scratch, uint64_t *values);
/* Memory for runs of the list, in the device's context; *out is 0 where they
 * need none. What is added is freed with the list, the rest by cu.free. */
air_status cuda_scratch_new(const air_device *dev, const air_list *list,
                            uint64_t *out);
air_status cuda_scratch_add(const air_device *dev, air_list *list,
                            uint64_t *out);
air_status cuda_list_make(air_device *dev, const air_step *steps, size_t count,
                          air_list **out);
air_status cuda_list_run(air_device *dev, air_list *list, void *const *slots);
void cuda_list_free(air_device *dev, air_list *list);
/* What became of the steps that were to be persistent; NULL: none were. */
const char *cuda_list_note(const air_device *dev, const air_list *list);

/* ---- kernel.c ---- */

struct air_kernel {
    const cuda_provider *provider; /* CALL; NULL: a region */
    const air_region *region;
    air_code code; /* own copy of its text and values */
};
air_status cuda_kernel_find(air_device *dev, const char *name,
                            const air_call *call, const air_kernel **out);
bool cuda_is_plain(const air_device *dev, const char *name,
                   const air_call *call);
air_status cuda_kernel_make(air_device *dev, const air_region *region,
                            const air_code *code, const air_kernel **out);
void cuda_kernel_free(air_device *dev, const air_kernel *kernel);
size_t cuda_kernel_workspace(air_device *dev, const air_kernel *kernel,
                             const air_call *call);
/* Text and launches of a kernel; *out borrows the kernel's text or owns it. */
air_status cuda_kernel_print(const air_device *dev, const air_kernel *kernel,
                             const air_call *call, cuda_source *out);

/* ---- graph.c ---- */

/* Is this thread between capture_begin and capture_end? Then the list is kept
 * and *out is true. */
air_status cuda_graph_record(air_device *dev, air_list *list,
                             void *const *slots, bool *out);
air_status cuda_capture_begin(air_device *dev, air_capture_error_mode mode);
air_status cuda_capture_end(air_device *dev, air_device_graph **out);
air_status cuda_foreign_begin(air_device *dev, void **out_stream);
air_status cuda_foreign_end(air_device *dev, bool keep);
air_status cuda_graph_launch(air_device *dev, air_device_graph *graph);
air_status cuda_graph_patch(air_device *dev, air_device_graph *graph,
                            void *const *slots);
void cuda_graph_free(air_device *dev, air_device_graph *graph);
/* A graph of one list, and a run of it that draws from there on: patched and
 * launched. In the device's context. */
air_status cuda_graph_of(air_device *dev, air_list *list, void *const *slots,
                         air_device_graph **out);
air_status cuda_graph_run(air_device *dev, air_device_graph *graph,
                          void *const *slots, cuda_drawn drawn,
                          cu_stream stream);

#endif
