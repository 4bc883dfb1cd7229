/* nvrtc.h: the compiler of CUDA C, where there is one: it needs no GPU. */
#ifndef CUDA_NVRTC_H
#define CUDA_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

/* From AIR_NVRTC (a path; then only from there), or the loader's own places. */
bool nvrtc_possible(void);
/* Compiles for AIR_NVRTC_ARCH (default sm_90a) with the driver's options;
 * false: `log` says why. */
bool nvrtc_compile(const char *text, char *log, size_t room);
/* The same of a part of a persistent kernel, 0 for the kernel itself. */
bool nvrtc_compile_part(const char *text, unsigned part, char *log,
                        size_t room);
/* A unit of one text: its prelude, a namespace, ENTRY. Free it. */
char *nvrtc_unit(const char *prelude, const char *text);

#endif
