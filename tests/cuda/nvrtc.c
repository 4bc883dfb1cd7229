#include "nvrtc.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *program;
static struct {
    int (*create)(program *, const char *, const char *, int,
                  const char *const *, const char *const *);
    int (*compile)(program, int, const char *const *);
    int (*log_size)(program, size_t *);
    int (*log)(program, char *);
    int (*destroy)(program *);
} nvrtc;

/* NVRTC opens its second library by name: it must be there already. */
static void
open_builtins(const char *path)
{
    char pattern[500];
    glob_t found;
    const char *slash = strrchr(path, '/');
    int len = slash != NULL ? (int)(slash - path) + 1 : 0;
    (void)snprintf(pattern, sizeof pattern, "%.*slibnvrtc-builtins.so*", len,
                   path);
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        (void)dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL);
    globfree(&found);
}

static void *
open_library(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                        "libnvrtc.so"};
    const char *path = getenv("AIR_NVRTC");
    if (path != NULL)
        open_builtins(path);
    if (path != NULL)
        return dlopen(path, RTLD_NOW);
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < 3; i++)
        library = dlopen(names[i], RTLD_NOW);
    return library;
}

static bool
find(void *library, const char *name, void *out)
{
    void *at = dlsym(library, name);
    memcpy(out, &at, sizeof at);
    return at != NULL;
}

bool
nvrtc_possible(void)
{
    static int known;
    if (known != 0)
        return known > 0;
    void *library = open_library();
    bool found = library != NULL &&
                 find(library, "nvrtcCreateProgram", &nvrtc.create) &&
                 find(library, "nvrtcCompileProgram", &nvrtc.compile) &&
                 find(library, "nvrtcGetProgramLogSize", &nvrtc.log_size) &&
                 find(library, "nvrtcGetProgramLog", &nvrtc.log) &&
                 find(library, "nvrtcDestroyProgram", &nvrtc.destroy);
    known = found ? 1 : -1;
    return found;
}

static bool
compile(const char *text, const char *more, char *log, size_t room)
{
    const char *named = getenv("AIR_NVRTC_ARCH");
    char arch[40];
    (void)snprintf(arch, sizeof arch, "--gpu-architecture=%s",
                   named != NULL ? named : "sm_90a");
    const char *const options[] = {arch,
                                   "--fmad=false",
                                   "--std=c++17",
                                   "--device-as-default-execution-space",
                                   "--relocatable-device-code=true",
                                   more};
    program p = NULL;
    size_t size = 0;
    log[0] = '\0';
    if (nvrtc.create(&p, text, "unit.cu", 0, NULL, NULL) != 0)
        return false;
    bool ok = nvrtc.compile(p, more ? 6 : 4, options) == 0;
    if (nvrtc.log_size(p, &size) == 0 && size < room)
        (void)nvrtc.log(p, log);
    (void)nvrtc.destroy(&p);
    return ok;
}

bool
nvrtc_compile(const char *text, char *log, size_t room)
{
    return compile(text, NULL, log, room);
}

bool
nvrtc_compile_part(const char *text, unsigned part, char *log, size_t room)
{
    char more[40];
    (void)snprintf(more, sizeof more, "--define-macro=SUPER_PART=%u", part);
    return compile(text, more, log, room);
}

char *
nvrtc_unit(const char *prelude, const char *text)
{
    size_t room = strlen(prelude) + strlen(text) + 100;
    char *unit = malloc(room);
    (void)snprintf(unit, room,
                   "%s\nnamespace k {\n#define ENTRY(i) k_##i\n%s\n}\n",
                   prelude, text);
    return unit;
}
