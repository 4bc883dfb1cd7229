/* fake_step.h: what the functions of the libraries share. */
#ifndef FAKE_STEP_H
#define FAKE_STEP_H

#include "fake_cuda.h"

#define FAKE_EXPORT __attribute__((visibility("default")))
/* name(parameters) that may fail, then what it does. */
#define FAKE(name, ...)                \
    FAKE_EXPORT int name(__VA_ARGS__); \
    int name(__VA_ARGS__)
#define FAKE_TRY                         \
    do {                                 \
        const int failed_ = fake_step(); \
        if (failed_ != 0)                \
            return failed_;              \
    } while (0)

FAKE_EXPORT fake_state *fake_cuda_state(void);
/* Every function comes through here. */
int fake_step(void);
/* Objects that are counted. */
int fake_new(void **out, size_t size);
int fake_drop(void *object);

#endif
