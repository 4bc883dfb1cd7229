/* symbols.c: NVIDIA's libraries by dlopen. */
#include "driver/cuda/symbols.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMES = 4, MAX_PATH = 1024 };

static const struct {
    bool needed;
    const char *what, *names[MAX_NAMES];
} libraries[] = {
#define LIBRARY(id, needed, what, ...) {needed, what, {__VA_ARGS__}},
#include "driver/cuda/symbols.def"
};

static const struct {
    int library;
    bool needed;
    const char *exported;
    size_t offset;
} symbols[] = {
#define SYMBOL(library, name, exported, parameters) \
    {CUDA_LIBRARY_##library, true, exported, offsetof(cuda_symbols, name)},
#define EXTRA(library, name, exported, parameters) \
    {CUDA_LIBRARY_##library, false, exported, offsetof(cuda_symbols, name)},
#include "driver/cuda/symbols.def"
};

/* A framework in the process may have it already, under the same name. */
static void *
open_name(const char *folders, const char *name)
{
    char path[MAX_PATH];
    for (const char *at = folders; at && *at != '\0';) {
        const int len = (int)strcspn(at, ":");
        const int n = snprintf(path, sizeof path, "%.*s/%s", len, at, name);
        void *found = n > 0 && n < MAX_PATH ? dlopen(path, RTLD_LAZY) : NULL;
        if (found)
            return found;
        at += len + (at[len] == ':');
    }
    return dlopen(name, RTLD_LAZY);
}

static air_status
open_library(const char *folders, int id, void **out)
{
    const char *const *names = libraries[id].names;
    for (int i = 0; i < MAX_NAMES && names[i]; i++) {
        *out = open_name(folders, names[i]);
        if (*out)
            return AIR_OK;
    }
    if (!libraries[id].needed)
        return AIR_OK;
    AIR_FAIL(AIR_ERROR_DRIVER,
             "driver cuda needs %s, %s: neither in %s nor where the loader "
             "looks (LD_LIBRARY_PATH)",
             names[0], libraries[id].what,
             folders && *folders ? folders : "a folder given");
}

static air_status
find_symbols(cuda_symbols *s)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *lib = s->handles[symbols[i].library];
        void *found = lib ? dlsym(lib, symbols[i].exported) : NULL;
        if (!lib)
            continue;
        AIR_REQUIRE(found || !symbols[i].needed, AIR_ERROR_DRIVER,
                    "%s has no %s: driver cuda needs CUDA 12 or later",
                    libraries[symbols[i].library].names[0],
                    symbols[i].exported);
        memcpy((char *)s + symbols[i].offset, &found, sizeof found);
    }
    return AIR_OK;
}

air_status
cuda_symbols_open(const char *folders, cuda_symbols *out)
{
    air_status status = AIR_OK;
    *out = (cuda_symbols){0};
    for (int i = 0; status == AIR_OK && i < CUDA_LIBRARIES; i++)
        status = open_library(folders, i, &out->handles[i]);
    if (status == AIR_OK)
        status = find_symbols(out);
    if (status != AIR_OK)
        cuda_symbols_close(out);
    return status;
}

void
cuda_symbols_close(cuda_symbols *s)
{
    for (int i = 0; i < CUDA_LIBRARIES; i++)
        if (s->handles[i])
            dlclose(s->handles[i]);
    *s = (cuda_symbols){0};
}
