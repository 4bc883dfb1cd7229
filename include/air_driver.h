/* air_driver.h: what a device offers the engine. One table per driver; a NULL
 * entry marked `?` is done the plain way by the core.
 *
 * Order of life: open; then for each program kernel_find / kernel_make and
 * list_make; then list_run any number of times from any thread; then the frees;
 * close. Entries return AIR_OK or leave the message in base_fail.
 */
#ifndef AIR_DRIVER_H
#define AIR_DRIVER_H

#include "air.h"

#define AIR_DRIVER_ABI 1

typedef struct air_device air_device; /* each driver defines its own */
typedef struct air_kernel air_kernel;
typedef struct air_list air_list;
typedef struct air_device_graph air_device_graph;

/* How a kernel that is source text is launched. */
typedef struct {
    uint32_t grid[3], block[3];
    uint32_t shared; /* bytes, dynamic */
} air_launch;

#define AIR_CODE_LAUNCHES (2 * AIR_RG_MAX_PHASES)

/* Code of a region, made by the codegen layer. Machine code is position
 * independent; offset[p] is where phase p starts, -1: no code, the driver
 * interprets it.
 * Source text (NUL-terminated, for an isa "sm_...") has entries ENTRY(0) ..
 * ENTRY(nlaunches - 1), which run one after another; none: there is nothing to
 * do. Each takes a pointer to the first element of each buffer that is not
 * scratch, in order; then, where workspace > 0, a pointer to that many bytes;
 * then `values` as one struct. Texts that are equal are the same kernels. */
typedef struct {
    const uint8_t *bytes;
    size_t size;
    int32_t offset[AIR_RG_MAX_PHASES];
    uint32_t rows;  /* set of phases that take several rows a call */
    uint32_t pairs; /* set of buffers that are walked at their stride of 2 */
    int32_t all;    /* INNER: where code of all row phases starts, 0: none */
    /* text */
    const char *prelude; /* what it needs before it, static */
    int32_t nlaunches;
    air_launch launches[AIR_CODE_LAUNCHES];
    size_t workspace;
    const void *values; /* sizes and strides, inside of bytes[0 .. size) */
    size_t value_bytes; /* a multiple of 8 */
} air_code;

/* What the passes and the lowering may know of a device. */
typedef struct {
    const char *name;
    int threads;
    int64_t cache_bytes; /* last level, for `stream` of regions */
    size_t alignment;    /* of device blocks, bytes */
    const char *isa;     /* for the emitter: "avx512", "avx2", "scalar", or a
                            GPU's "sm_90a:132:232448": processors, bytes of
                            shared memory of a block */
    bool regions;        /* kernel_make takes regions */
    bool apart;          /* the host cannot touch the device's blocks */
    bool source;         /* regions need code, which is source text */
    bool sums;           /* regions may have buffers of SUMS */
    bool moments;        /* and reductions that are MOMENT */
    /* Attention of half precision, with a mask, keeps what keys weigh to 16
     * bits or more: it is no worse than of operands cast to f32. */
    bool fine_weights;
    /* Steps for which small memory stays as it is after its last use: steps
     * that the driver makes one of overwrite nothing that one of them reads. */
    int linger;
    /* A step is a launch, which costs more than little work: small steps that
     * need nothing of each other are one where they stand side by side. */
    bool bundles;
} air_target;

/* One step of a program. */
typedef struct {
    const air_kernel *kernel;
    air_call call;
    size_t workspace; /* bytes, as planned */
    int32_t workspace_slot;
    int64_t workspace_offset;
    int64_t cost; /* ns on one thread, an estimate: decides how many run it */
    int32_t threads; /* at most; 0: any number */
    int32_t lane;    /* 0: the main one; steps of a lane run in order */
    bool joined;     /* stays in one parallel region with its neighbours */
    bool exact;      /* rounds where eager mode does */
    bool untimed;    /* air_options.step_seconds is not for it */
    uint32_t beside; /* so many steps right before it may run while it runs:
                        their memory and its own are apart, workspaces too */
    /* The steps of the list that must be complete before it, by their numbers,
     * all smaller than its own; NULL: the one before it, and with it all. What
     * neither of two steps waits for, directly or not, may run side by side:
     * their memory is apart. */
    const uint32_t *after;
    uint32_t nafter;
    /* 1 + a slot that nobody reads once the list is over; 0: all may be read.
     */
    uint32_t scrap;
    const char *label;
} air_step;

typedef struct air_driver {
    uint32_t abi, size; /* AIR_DRIVER_ABI; sizeof (air_driver) */
    const char *name;
    /* device */
    air_status (*open)(const air_options *options, const air_alloc *alloc,
                       air_device **out);
    void (*close)(air_device *dev);
    void (*target)(const air_device *dev, air_target *out);
    void (*set_threads)(air_device *dev, int threads); /* ? */
    /* ? Measures; called once. */
    air_status (*limits)(air_device *dev, air_limits *out);
    /* memory: blocks are 64-aligned, contents undefined */
    air_status (*alloc)(air_device *dev, size_t size, void **out);
    void (*free)(air_device *dev, void *ptr, size_t size);
    air_status (*copy)(air_device *dev, void *dst, const void *src,
                       size_t size); /* ? memcpy; where blocks are apart also
                                        to and from memory of the host */
    /* kernels: of a CALL op by name (NULL in *out: none, not an error), or of
     * a region. The region and what it points to must outlive the kernel. */
    air_status (*kernel_find)(air_device *dev, const char *name,
                              const air_call *call, const air_kernel **out);
    air_status (*kernel_make)(air_device *dev, const air_region *region,
                              const air_code *code /* copied; may be NULL */,
                              const air_kernel **out);
    /* ? Does nothing but a plain kernel take the call, one that goes element by
     * element, or none? Operands are copied dense where that changes it. */
    bool (*is_plain)(const air_device *dev, const char *name,
                     const air_call *call);
    /* ? One kernel of `first`, found for `call`, and of a MAP region behind it:
     * the region runs on pieces of the call's first result while they are in
     * the cache. Buffer `buf` of the region is that result, its element e the
     * result's element e; the region does not write it, and writes nothing that
     * the call reads. The step's call stays that of `first`. keep: the result
     * is stored, too; else its memory is not touched. NULL in *out: not for
     * this call. */
    air_status (*kernel_join)(air_device *dev, const air_kernel *first,
                              const air_call *call, const air_region *region,
                              const air_code *code /* copied; may be NULL */,
                              int buf, bool keep, const air_kernel **out);
    void (*kernel_free)(air_device *dev, const air_kernel *kernel);
    size_t (*workspace)(air_device *dev, const air_kernel *kernel,
                        const air_call *call);
    /* lists: steps that run in this order, or side by side where `after` allows
     * it, each seeing the writes of those it waits for. The steps must outlive
     * the list. */
    air_status (*list_make)(air_device *dev, const air_step *steps,
                            size_t count, air_list **out);
    air_status (*list_run)(air_device *dev, air_list *list, void *const *slots);
    void (*list_free)(air_device *dev, air_list *list);
    /* graphs ?: all or none. Between capture_begin and capture_end a list_run
     * of the same thread computes nothing: it is recorded, with the pointers of
     * its slots. graph_patch gives all that was recorded other pointers, in
     * slots of the same layout; a launch of a graph waits for the one before.
     * UNSUPPORTED of capture_begin or capture_end: lists are run plainly. */
    air_status (*capture_begin)(air_device *dev, air_capture_error_mode mode);
    air_status (*capture_end)(air_device *dev, air_device_graph **out);
    air_status (*graph_launch)(air_device *dev, air_device_graph *graph);
    air_status (*graph_patch)(air_device *dev, air_device_graph *graph,
                              void *const *slots);
    void (*graph_free)(air_device *dev, air_device_graph *graph);
    /* foreign ?: both or none; inside a capture of this thread. What the
     * application gives to *out_stream until foreign_end is recorded behind
     * what was, as it is: graph_patch does not change it. Not `keep`: none of
     * it is. A failure of foreign_end leaves the capture as it was. */
    air_status (*foreign_begin)(air_device *dev, void **out_stream);
    air_status (*foreign_end)(air_device *dev, bool keep);
    /* ? What became of the list, for people, in one line; NULL: nothing that
     * its steps do not say. The list's own. */
    const char *(*list_note)(const air_device *dev, const air_list *list);
    /* ? Is memory that of an allocator of the application, which keeps what it
     * is given back, and is quick? Then large blocks are not kept for it. */
    bool (*is_lent)(air_device *dev);
} air_driver;

#endif
