/* fake_cuda.h: a GPU that is none: NVIDIA's functions that driver cuda uses
 * (symbols.def), over memory of the host. Kernels compute nothing: a launch is
 * noted with its parameters, unless `machine` runs it (products of cuBLASLt:
 * `enqueue`). One library stands for libcuda, for NVRTC and for cuBLASLt; a
 * test loads it by itself to see what was asked of it. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_LAUNCHES = 64, FAKE_PARAMS = 8, FAKE_ENTRIES = 16 };

typedef struct {
    unsigned grid[3], block[3], shared;
    uint64_t params[FAKE_PARAMS];
    void *stream;
} fake_launch;

/* What computes in place of a GPU. */
typedef struct {
    unsigned grid[3], block[3], shared;
    bool together; /* all blocks are there at once */
} fake_shape;
typedef struct {
    /* The code of a module's text, and entry air_<i> of it; NULL: none. */
    void *(*load)(const char *text);
    void *(*entry)(void *library, int i);
    void (*unload)(void *library);
    /* Bytes of its parameters, FAKE_WORDS at most; returns how many. */
    int (*sizes)(void *entry, size_t *out);
    void (*run)(void *entry, const fake_shape *shape, void **params);
} fake_machine;

/* Work of another library over a copy of `data`: done at once, or by the graph
 * that is captured on the stream. */
typedef void (*fake_work_fn)(const void *data);
typedef int (*fake_enqueue_fn)(void *stream, fake_work_fn work,
                               const void *data, size_t size);

typedef struct {
    /* The call that fails, counted from 1 over all of them; 0: none. */
    long fail_at, calls;
    long gone_at; /* from this call on all do: there is no GPU; 0: it stays */
    int error;    /* code it fails with */
    long launches, compiled;
    long parts;                        /* that were given to the linker */
    bool unlinked;                     /* it refuses them */
    fake_launch launch[FAKE_LAUNCHES]; /* number n is in [n % FAKE_LAUNCHES] */
    long nodes_set;                    /* parameters of nodes changed */
    long waits;                        /* streams that waited for an event */
    long waited;                       /* times the host waited for a stream */
    const void *watched;               /* a stream */
    long followed;                     /* times an event stood for its work */
    long live;    /* contexts, modules, blocks, graphs, events, programs */
    long updates; /* nodes that took over a graph */
    long instantiated;
    long early;    /* programmatic edges of the last graph that was made */
    bool others;   /* nodes that are graphs take over none */
    bool captured; /* streams are, by the application */
    const void *capturing; /* this one is; NULL: none */
    long broken;           /* calls that ended that capture */
    long launched_early;   /* kernels that begin while others end */
    /* of the last product: as cuBLASLt was asked */
    int transposed[2];
    uint64_t bias;
    int compute; /* of the last product that was described */
    uint32_t alignment;
    float alpha, beta;
    /* called with what a product is to add, before it is looked at, and where
     * the product will be */
    void (*adding)(void *user, const uint64_t *bias, uint64_t out);
    int64_t sizes[2][3]; /* rows, columns, leading dimension of A and B */
    int gpus, major, processors; /* 0 processors: 132 */
    const fake_machine *machine; /* NULL: nothing computes */
    /* cuBLASLt's: fake_cuda_enqueue of libcuda, which runs products; NULL:
     * they are noted only. */
    fake_enqueue_fn enqueue;
    long together; /* launches of blocks that are there at once */
    bool crowded;  /* there is no room for a block */
    void (*compiling)(void *user); /* called while a text is compiled */
    void *user;
    char options[256], text[512]; /* of the last compilation, cut off */
} fake_state;

/* Exported by the library under its name. */
typedef fake_state *(*fake_cuda_state_fn)(void);

#endif
