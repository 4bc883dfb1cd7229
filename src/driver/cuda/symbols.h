/* symbols.h: functions of NVIDIA's libraries, found at run time (symbols.def):
 * building needs no CUDA, and a machine without one says what is missing. */
#ifndef CUDA_SYMBOLS_H
#define CUDA_SYMBOLS_H

#include "base/memory.h"

typedef struct cu_context_ *cu_context;
typedef struct cu_stream_ *cu_stream;
typedef struct cu_event_ *cu_event;
typedef struct cu_module_ *cu_module;
typedef struct cu_function_ *cu_function;
typedef struct cu_graph_ *cu_graph;
typedef struct cu_node_ *cu_node;
typedef struct cu_exec_ *cu_exec;
typedef struct cu_program_ *cu_program;

/* CUDA_KERNEL_NODE_PARAMS of CUDA 12 and later. */
typedef struct {
    cu_function function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    void *kernel;
    cu_context context;
} cu_kernel_node;

/* Constants of cuda.h that are used here. */
enum {
    CU_OUT_OF_MEMORY = 2,
    CU_ATTRIBUTE_PROCESSORS = 16,
    CU_ATTRIBUTE_L2_BYTES = 38,
    CU_ATTRIBUTE_MAJOR = 75,
    CU_ATTRIBUTE_MINOR = 76,
    CU_ATTRIBUTE_REGISTERS = 82,
    CU_ATTRIBUTE_SHARED_BYTES = 97,
    CU_FUNCTION_DYNAMIC_SHARED = 8,
    CU_HOST_PORTABLE_MAPPED = 3,
    CU_EVENT_NO_TIMING = 2,
    CU_POINTER_MEMORY_TYPE = 2,
    CU_MEMORY_HOST = 1
};

typedef enum {
#define LIBRARY(id, what, ...) CUDA_LIBRARY_##id,
#include "driver/cuda/symbols.def"
    CUDA_LIBRARIES
} cuda_library;

typedef struct {
#define SYMBOL(library, name, exported, parameters) int(*name) parameters;
#include "driver/cuda/symbols.def"
    void *handles[CUDA_LIBRARIES];
} cuda_symbols;

/* Opens each library: the first of its names in the first of `folders` (":"
 * between; may be NULL) that has it, then where the loader looks. DRIVER,
 * naming what is missing and where it was looked for. */
air_status cuda_symbols_open(const char *folders, cuda_symbols *out);
void cuda_symbols_close(cuda_symbols *s);

#endif
