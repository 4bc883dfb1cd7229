/* symbols.h: functions of NVIDIA's libraries, found at run time (symbols.def):
 * building needs no CUDA, and a machine without one says what is missing. */
#ifndef CUDA_SYMBOLS_H
#define CUDA_SYMBOLS_H

#include "base/memory.h"

typedef struct cu_context_ *cu_context;
typedef struct cu_stream_ *cu_stream;
typedef struct cu_event_ *cu_event;
typedef struct cu_module_ *cu_module;
typedef struct cu_link_ *cu_link;
typedef struct cu_function_ *cu_function;
typedef struct cu_graph_ *cu_graph;
typedef struct cu_node_ *cu_node;
typedef struct cu_exec_ *cu_exec;
typedef struct cu_program_ *cu_program;
typedef struct cu_blas_ *cu_blas;
typedef struct cu_product_ *cu_product;
typedef struct cu_layout_ *cu_layout;
typedef struct cu_preference_ *cu_preference;

/* CUDA_KERNEL_NODE_PARAMS of CUDA 12 and later. */
typedef struct {
    cu_function function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    void *kernel;
    cu_context context;
} cu_kernel_node;

/* CUDA_MEMCPY2D; pitches and width in bytes. */
typedef struct {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uint64_t src;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uint64_t dst;
    void *dst_array;
    size_t dst_pitch, width, height;
} cu_copy_2d;

/* CUgraphEdgeData of CUDA 12.3 and later. */
typedef struct {
    unsigned char from_port, to_port, type, reserved[5];
} cu_edge;

/* CUlaunchAttributeValue */
typedef union {
    int cooperative, programmatic;
    char room[64];
} cu_attribute;

/* CUlaunchAttribute, CUlaunchConfig */
typedef struct {
    int id;
    char pad[4];
    cu_attribute value;
} cu_launch_attribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    cu_stream stream;
    cu_launch_attribute *attributes;
    unsigned nattributes;
} cu_launch;

/* cublasLtMatmulHeuristicResult_t: what cublasLtMatmul takes is its head. */
typedef struct {
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} cu_algorithm;
_Static_assert(sizeof(cu_algorithm) == 96, "cublasLt.h");

/* Constants of cuda.h, library_types.h and cublasLt.h that are used here. */
enum {
    CU_STREAM_NON_BLOCKING = 1,
    CU_CAPTURE_THREAD = 1,
    CU_CAPTURE_RELAXED = 2,
    CU_EDGE_PROGRAMMATIC = 1, /* its type */
    CU_PORT_PROGRAMMATIC = 1, /* once all blocks have let others begin */
    CU_R_32F = 0,
    CU_R_64F = 1,
    CU_R_16F = 2,
    CU_R_16BF = 14,
    CU_COMPUTE_32F = 68,
    CU_COMPUTE_64F = 70,
    CU_COMPUTE_32F_TF32 = 77,
    CU_PRODUCT_TRANS_A = 3,
    CU_PRODUCT_TRANS_B = 4,
    CU_PRODUCT_EPILOGUE = 7,
    CU_PRODUCT_BIAS = 8,
    CU_EPILOGUE_BIAS = 4,
    CU_LAYOUT_BATCH = 5,
    CU_LAYOUT_BATCH_STRIDE = 6,
    CU_PREFERENCE_WORKSPACE = 1,
    CU_PREFERENCE_ALIGN_A = 5, /* then B, C, D */
    CU_OUT_OF_MEMORY = 2,
    CU_LINK_CUBIN = 0,
    CU_LINK_ERRORS = 5, /* options: text of errors, and room for it */
    CU_LINK_ERROR_BYTES = 6,
    CU_CAPTURE_IMPLICIT = 906,
    CU_ATTRIBUTE_PROCESSORS = 16,
    CU_ATTRIBUTE_L2_BYTES = 38,
    CU_ATTRIBUTE_THREADS = 39, /* of a processor */
    CU_ATTRIBUTE_MAJOR = 75,
    CU_ATTRIBUTE_MINOR = 76,
    CU_ATTRIBUTE_REGISTERS = 82,
    CU_ATTRIBUTE_SHARED_BYTES = 97,
    CU_FUNCTION_DYNAMIC_SHARED = 8,
    CU_HOST_PORTABLE_MAPPED = 3,
    CU_EVENT_NO_TIMING = 2,
    CU_LAUNCH_COOPERATIVE = 2,
    CU_LAUNCH_PROGRAMMATIC = 6,
    CU_POINTER_MEMORY_TYPE = 2,
    CU_MEMORY_HOST = 1,
    CU_MEMORY_DEVICE = 2
};

typedef enum {
#define LIBRARY(id, needed, what, ...) CUDA_LIBRARY_##id,
#include "driver/cuda/symbols.def"
    CUDA_LIBRARIES
} cuda_library;

typedef struct {
#define SYMBOL(library, name, exported, parameters) int(*name) parameters;
#include "driver/cuda/symbols.def"
    void *handles[CUDA_LIBRARIES];
} cuda_symbols;

/* Opens each library (one that is not needed may be missing: its functions are
 * NULL then): the first of its names in the first of `folders` (":"
 * between; may be NULL) that has it, then where the loader looks. DRIVER,
 * naming what is missing and where it was looked for. */
air_status cuda_symbols_open(const char *folders, cuda_symbols *out);
void cuda_symbols_close(cuda_symbols *s);

#endif
