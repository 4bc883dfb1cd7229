#include "emulate.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "driver/driver.h"

#define COMPILE "g++ -std=c++17 -O0 -w -ffp-contract=off -fPIC "

typedef void run_fn(unsigned grid, unsigned block, void **args);

struct air_kernel {
    const air_kernel *ref; /* of a CALL; then the rest is unused */
    const air_region *region;
    int count;
    run_fn *run[AIR_CODE_LAUNCHES];
    air_launch launches[AIR_CODE_LAUNCHES];
    size_t workspace;
    void *values;
};

struct air_list {
    const air_step *steps;
    size_t count;
    air_step *inner;  /* with ref's kernels */
    air_list **lists; /* of one step each; NULL: a region */
};

static const air_driver *ref;
static char folder[128];
static long runs;

/* ---- text -> code ---- */

/* What all units begin with, compiled once. */
static bool
make_header(const char *prelude)
{
    static bool made;
    char path[160], command[500];
    if (made)
        return true;
    (void)snprintf(path, sizeof path, "%s/unit.hpp", folder);
    FILE *f = fopen(path, "w");
    if (f == NULL)
        return false;
    (void)fprintf(f, "#include \"%s/emulate.hpp\"\n%s\n", CUDA_TESTS, prelude);
    (void)fclose(f);
    (void)snprintf(command, sizeof command,
                   COMPILE "-x c++-header -o %s.gch %s", path, path);
    return made = system(command) == 0;
}

static unsigned
blocks_at_once(const char *text)
{
    const char *at = strstr(text, "__cluster_dims__(");
    return at != NULL ? (unsigned)atoi(at + strlen("__cluster_dims__(")) : 1;
}

static void
put_unit(FILE *f, const air_code *code, const char *text)
{
    (void)fprintf(f, "#include \"unit.hpp\"\nnamespace k {\n");
    (void)fprintf(f,
                  "air_piece<16> air_shared_rows[16384];\n"
                  "#define ENTRY(i) entry_##i\n%s\n}\n",
                  text);
    for (int i = 0; i < code->nlaunches; i++)
        (void)fprintf(f,
                      "extern \"C\" void run_%d(unsigned grid, unsigned block, "
                      "void **args)\n{ emu_launch(k::entry_%d, grid, block, "
                      "%d, %u, args); }\n",
                      i, i,
                      strstr(text, "air_fold") != NULL ||
                          strstr(text, "air_sync") != NULL,
                      blocks_at_once(text));
}

/* "extern __shared__" is a pointer elsewhere. */
static void
erase(char *text, const char *word)
{
    for (char *at = text; (at = strstr(at, word)) != NULL; at++)
        memset(at, ' ', strlen(word));
}

static bool
compile(const air_code *code, const char *path)
{
    char source[300], command[2000];
    if (!make_header(code->prelude))
        return false;
    char *text = strdup((const char *)code->bytes);
    erase(text, "__shared__");
    (void)snprintf(source, sizeof source, "%s.cpp", path);
    FILE *f = fopen(source, "w");
    if (f == NULL)
        return false;
    put_unit(f, code, text);
    free(text);
    (void)fclose(f);
    (void)snprintf(command, sizeof command,
                   COMPILE "-shared -o %s.tmp %s && mv %s.tmp %s", path, source,
                   path, path);
    return system(command) == 0;
}

static void *
load(const air_code *code)
{
    char path[160];
    struct stat st;
    uint64_t hash =
        base_hash(code->bytes, strlen((const char *)code->bytes), 1);
    hash = base_hash(code->prelude, strlen(code->prelude), hash);
    (void)snprintf(path, sizeof path, "%s/%016llx.so", folder,
                   (unsigned long long)hash);
    if (stat(path, &st) != 0 && !compile(code, path))
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static air_status
load_launches(const air_code *code, air_kernel *k)
{
    void *library = code->nlaunches > 0 ? load(code) : NULL;
    AIR_REQUIRE(library != NULL || code->nlaunches == 0, AIR_ERROR_DRIVER,
                "printed text does not compile: %s", (const char *)code->bytes);
    for (int i = 0; i < code->nlaunches; i++) {
        char name[20];
        (void)snprintf(name, sizeof name, "run_%d", i);
        void *at = dlsym(library, name);
        memcpy(&k->run[i], &at, sizeof at);
    }
    k->count = code->nlaunches;
    memcpy(k->launches, code->launches, sizeof k->launches);
    k->workspace = code->workspace;
    k->values = malloc(code->value_bytes + 1);
    memcpy(k->values, code->values, code->value_bytes);
    return AIR_OK;
}

/* ---- the driver ---- */

static air_status
emu_kernel_make(air_device *dev, const air_region *region, const air_code *code,
                const air_kernel **out)
{
    (void)dev;
    *out = NULL;
    AIR_REQUIRE(code != NULL, AIR_ERROR_UNSUPPORTED, "a region without text");
    air_kernel *k = calloc(1, sizeof *k);
    k->region = region;
    air_status status = load_launches(code, k);
    if (status == AIR_OK)
        *out = k;
    else
        free(k);
    return status;
}

static air_status
emu_kernel_find(air_device *dev, const char *name, const air_call *call,
                const air_kernel **out)
{
    const air_kernel *inner;
    *out = NULL;
    AIR_TRY(ref->kernel_find(dev, name, call, &inner));
    if (inner == NULL)
        return AIR_OK;
    air_kernel *k = calloc(1, sizeof *k);
    k->ref = inner;
    *out = k;
    return AIR_OK;
}

static void
emu_kernel_free(air_device *dev, const air_kernel *kernel)
{
    union {
        const air_kernel *from;
        air_kernel *to;
    } cast = {kernel};
    if (kernel == NULL)
        return;
    if (kernel->ref != NULL)
        ref->kernel_free(dev, kernel->ref);
    free(kernel->values);
    free(cast.to);
}

static size_t
emu_workspace(air_device *dev, const air_kernel *kernel, const air_call *call)
{
    return kernel->ref != NULL ? ref->workspace(dev, kernel->ref, call)
                               : kernel->workspace;
}

static air_status
emu_list_make(air_device *dev, const air_step *steps, size_t count,
              air_list **out)
{
    air_list *l = calloc(1, sizeof *l);
    *out = l;
    l->steps = steps;
    l->count = count;
    l->inner = calloc(count + 1, sizeof *l->inner);
    l->lists = calloc(count + 1, sizeof(air_list *));
    for (size_t i = 0; i < count; i++) {
        l->inner[i] = steps[i];
        l->inner[i].kernel = steps[i].kernel->ref;
        if (steps[i].kernel->ref != NULL)
            AIR_TRY(ref->list_make(dev, &l->inner[i], 1, &l->lists[i]));
    }
    return AIR_OK;
}

static void
run_region(const air_step *step, void *const *slots)
{
    const air_kernel *k = step->kernel;
    void *pointers[AIR_RG_MAX_BUFS + 1];
    void *args[AIR_RG_MAX_BUFS + 2];
    int n = 0;
    for (int b = 0; b < k->region->nbufs; b++)
        if (!k->region->bufs[b].scratch) {
            pointers[n] = (char *)slots[k->region->bufs[b].slot] +
                          k->region->bufs[b].offset;
            args[n] = &pointers[n];
            n++;
        }
    if (k->workspace > 0) {
        pointers[n] =
            (char *)slots[step->workspace_slot] + step->workspace_offset;
        memset(pointers[n], 0xff, k->workspace); /* contents are undefined */
        args[n] = &pointers[n];
        n++;
    }
    args[n] = k->values;
    for (int i = 0; i < k->count; i++)
        k->run[i](k->launches[i].grid[0], k->launches[i].block[0], args);
    runs++;
}

static air_status
emu_list_run(air_device *dev, air_list *l, void *const *slots)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->lists[i] != NULL)
            AIR_TRY(ref->list_run(dev, l->lists[i], slots));
        else
            run_region(&l->steps[i], slots);
    return AIR_OK;
}

static void
emu_list_free(air_device *dev, air_list *l)
{
    for (size_t i = 0; l != NULL && i < l->count; i++)
        if (l->lists[i] != NULL)
            ref->list_free(dev, l->lists[i]);
    if (l != NULL) {
        free(l->inner);
        free(l->lists);
    }
    free(l);
}

void
emulate_install(air_context *ctx, const char *where)
{
    static air_driver table;
    (void)snprintf(folder, sizeof folder, "%s", where);
    (void)mkdir(folder, 0777);
    ref = driver_find("ref");
    table = *ref;
    table.kernel_find = emu_kernel_find;
    table.kernel_make = emu_kernel_make;
    table.kernel_free = emu_kernel_free;
    table.workspace = emu_workspace;
    table.list_make = emu_list_make;
    table.list_run = emu_list_run;
    table.list_free = emu_list_free;
    ctx->driver = &table;
    ctx->target.isa = "sm_90a:4";
    ctx->target.source = true;
}

bool
emulate_possible(void)
{
    return system("g++ --version > /dev/null 2>&1") == 0;
}

long
emulate_count(void)
{
    return runs;
}
