#include "emulate.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/cuda.h"

/* Shared memory of templates is each unit's own: hidden, and not unique. */
#define COMPILE                                                      \
    "g++ -std=c++17 -O1 -w -ffp-contract=off -fPIC -fno-gnu-unique " \
    "-fvisibility=hidden -fno-extern-tls-init "
#define SHOWN "extern \"C\" __attribute__((visibility(\"default\"))) "

enum { PATH = 300 };

/* emulate.hpp's */
typedef struct {
    unsigned grid[3], block[3], shared, there;
} emu_shape;
typedef struct {
    void (*run)(const emu_shape *shape, void **params);
    int (*sizes)(size_t *out);
} entry;
typedef struct {
    void *code;
    entry entries[FAKE_ENTRIES];
} library;

unsigned emulate_late;
static char folder[PATH / 2], plain[PATH / 2];
static uint64_t version; /* of emulate*.hpp */
static fake_state *blas;

/* ---- text -> C++ ---- */

static uint64_t
hash_file(const char *path, uint64_t hash)
{
    char data[4096];
    size_t n;
    FILE *f = fopen(path, "r");
    while (f && (n = fread(data, 1, sizeof data, f)) > 0)
        hash = base_hash(data, n, hash);
    if (f)
        (void)fclose(f);
    return hash;
}

static bool
write_text(const char *path, const base_text *t)
{
    FILE *f = t->status == AIR_OK ? fopen(path, "w") : NULL;
    return f && fwrite(t->data, 1, t->len, f) == t->len && fclose(f) == 0;
}

/* What many units begin with, compiled once: emulate.hpp, with the prelude of
 * regions or without. */
static bool
make_header(bool regions, char *path)
{
    char command[4 * PATH];
    base_text t;
    (void)snprintf(path, PATH, "%s/%s_%016llx.hpp", folder,
                   regions ? "regions" : "calls",
                   (unsigned long long)(base_hash(
                       cuda_prelude, strlen(cuda_prelude), version)));
    if (access(path, R_OK) == 0)
        return true;
    base_text_init(&t, &base_libc_alloc);
    base_text_add(&t, "#include \"%s/emulate.hpp\"\n", CUDA_TESTS);
    if (regions)
        emulate_translate(cuda_prelude, &t);
    (void)snprintf(command, sizeof command,
                   COMPILE "-x c++-header -o %s.gch %s", path, path);
    const bool good = write_text(path, &t) && system(command) == 0;
    base_text_deinit(&t);
    if (!good)
        (void)unlink(path);
    return good;
}

/* __cluster_dims__ of the entry whose name stands at `at`. */
static unsigned
cluster_of(const char *text, const char *at)
{
    static const char attribute[] = "__cluster_dims__(";
    unsigned found = 1;
    for (const char *c = text; (c = strstr(c, attribute)) && c < at; c++) {
        const char *end = strstr(c, "ENTRY(");
        if (end == at)
            found = (unsigned)strtol(c + sizeof attribute - 1, NULL, 10);
    }
    return found;
}

static void
put_entries(base_text *t, const char *text)
{
    for (int i = 0; i < FAKE_ENTRIES; i++) {
        char name[20];
        (void)snprintf(name, sizeof name, "ENTRY(%d)", i);
        const char *at = strstr(text, name);
        if (at)
            base_text_add(t,
                          SHOWN
                          "void run_%d(const emu_shape *s, void **args)\n"
                          "{ emu_launch(ENTRY(%d), %u, s, args); }\n" SHOWN
                          "int sizes_%d(size_t *out)\n"
                          "{ return emu_sizes(ENTRY(%d), out); }\n",
                          i, i, cluster_of(text, at), i, i);
    }
}

static bool
write_unit(const char *path, const char *text)
{
    char header[PATH];
    const char *prelude = strstr(text, cuda_prelude);
    /* A persistent kernel has it between others, with other names. */
    const bool regions = prelude && !strstr(text, "namespace call");
    base_text t;
    if (!make_header(regions, header))
        return false;
    base_text_init(&t, &base_libc_alloc);
    base_text_add(&t, "#include \"%s\"\n", strrchr(header, '/') + 1);
    if (regions) /* else the text says it */
        base_text_add(&t, "#define ENTRY(i) air_##i\n");
    emulate_translate(regions ? prelude + strlen(cuda_prelude) : text, &t);
    put_entries(&t, text);
    const bool good = write_text(path, &t);
    base_text_deinit(&t);
    return good;
}

static bool
compile(const char *path, const char *text)
{
    char source[PATH + 8], command[5 * PATH];
    (void)snprintf(source, sizeof source, "%s.cpp", path);
    (void)snprintf(command, sizeof command,
                   COMPILE "-shared -o %s.%d %s -lpthread && mv %s.%d %s", path,
                   (int)getpid(), source, path, (int)getpid(), path);
    return write_unit(source, text) && system(command) == 0;
}

/* ---- what the GPU that is none asks for ---- */

static void *
symbol(const library *l, const char *what, int i)
{
    char name[20];
    (void)snprintf(name, sizeof name, "%s_%d", what, i);
    return dlsym(l->code, name);
}

static void *
load(const char *text)
{
    char path[PATH];
    (void)snprintf(path, sizeof path, "%s/%016llx.so", folder,
                   (unsigned long long)base_hash(text, strlen(text), version));
    if (access(path, R_OK) != 0 && !compile(path, text))
        return NULL;
    library *l = calloc(1, sizeof *l);
    l->code = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; l->code && i < FAKE_ENTRIES; i++) {
        void *run = symbol(l, "run", i), *sizes = symbol(l, "sizes", i);
        memcpy(&l->entries[i].run, &run, sizeof run);
        memcpy(&l->entries[i].sizes, &sizes, sizeof sizes);
    }
    if (l->code)
        return l;
    fprintf(stderr, "%s: %s\n", path, dlerror());
    free(l);
    return NULL;
}

/* LeakSanitizer asks. It looks for pointers in the thread_local memory of
 * modules, where shared memory is, and dies in that of modules that are gone.
 */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

static bool unloaded;

int
__lsan_is_turned_off(void)
{
    return unloaded;
}

static void
unload(void *at)
{
    library *l = at;
    unloaded = true;
    (void)dlclose(l->code);
    free(l);
}

static void *
find_entry(void *at, int i)
{
    library *l = at;
    return l->entries[i].run ? &l->entries[i] : NULL;
}

static int
sizes(void *at, size_t *out)
{
    const entry *e = at;
    return e->sizes(out);
}

static void
run(void *at, const fake_shape *shape, void **params)
{
    const entry *e = at;
    emu_shape s = {.shared = shape->shared};
    memcpy(s.grid, shape->grid, sizeof s.grid);
    memcpy(s.block, shape->block, sizeof s.block);
    if (shape->together)
        s.there = s.grid[0] - emulate_late;
    e->run(&s, params);
}

/* ---- starting ---- */

bool
emulate_possible(void)
{
#if defined(__x86_64__)
    return system("g++ --version > /dev/null 2>&1") == 0;
#else
    return false; /* fibers of emulate.hpp */
#endif
}

static bool
link_library(const char *name)
{
    char to[PATH], from[PATH];
    (void)snprintf(from, sizeof from, "%s/%s", FAKE_CUDA, name);
    (void)snprintf(to, sizeof to, "%s/%s", plain, name);
    (void)unlink(to);
    return symlink(from, to) == 0;
}

/* *out: the function of a library's stand-in; NULL where there is none. */
static void
find_function(const char *path, const char *name, void *out)
{
    void *lib = dlopen(path, RTLD_NOW);
    void *found = lib ? dlsym(lib, name) : NULL;
    memcpy(out, &found, sizeof found);
}

fake_state *
emulate_start(const char *where)
{
    static const fake_machine machine = {load, find_entry, unload, sizes, run};
    fake_cuda_state_fn fn, of_blas;
    fake_enqueue_fn enqueue;
    find_function(FAKE_CUDA "/libcuda.so.1", "fake_cuda_state", &fn);
    find_function(FAKE_CUDA "/libcuda.so.1", "fake_cuda_enqueue", &enqueue);
    find_function(FAKE_CUDA "/libcublasLt.so.13", "fake_cuda_state", &of_blas);
    (void)snprintf(folder, sizeof folder, "%s", where);
    (void)snprintf(plain, sizeof plain, "%s/without_blas", where);
    (void)mkdir(folder, 0777);
    (void)mkdir(plain, 0777);
    if (!fn || !of_blas || !link_library("libcuda.so.1") ||
        !link_library("libnvrtc.so.13"))
        return NULL;
    version = hash_file(CUDA_TESTS "/emulate.hpp", 0);
    version = hash_file(CUDA_TESTS "/emulate_ptx.hpp", version);
    fake_state *state = fn();
    state->processors = EMULATE_PROCESSORS;
    state->machine = &machine;
    blas = of_blas();
    blas->enqueue = enqueue;
    return state;
}

const char *
emulate_libraries(bool with_blas)
{
    return with_blas ? FAKE_CUDA : plain;
}

long
emulate_products(void)
{
    return blas ? blas->launches : 0;
}
