/* Persistent kernels on the host: programs of driver cuda over a GPU that is
 * none (tests/fake), whose one launch runs as plain C++ (emulate_super.hpp):
 * its blocks as threads, theirs as fibers. Results are compared with driver
 * ref.
 *
 *   super FOLDER GRAPH...
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../../tools/air_values.h"
#include "../fake/fake_cuda.h"
#include "driver/cuda/fuse.h"
#include "driver/cuda/super.h"
#include "emulate.h"
#include "exec/exec.h"

enum { PROCESSORS = 4, PATIENCE = 3000 /* ms */ };

static long passed, failed;
static const char *folder;
static void (*kernel)(unsigned grid, unsigned there, unsigned block,
                      void **args);
static unsigned missing; /* blocks that come when the others have gone */

static bool
fail(const char *file, const char *what, const char *message)
{
    fprintf(stderr, "%s: %s: %s\n", file, what, message);
    failed++;
    return false;
}

static void
run_kernel(unsigned grid, unsigned block, void **params)
{
    if (kernel)
        kernel(grid, grid - missing, block, params);
}

/* ---- a program of one driver --------------------------------------------- */

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_values inputs;
    air_value out;
} side;

static air_status
open_side(side *s, const char *text, bool cuda)
{
    const air_gpu gpu = {
        .libraries = FAKE_CUDA, .persistent = cuda, .persistent_ms = PATIENCE};
    const air_options options = {
        .driver = cuda ? "cuda" : "ref", .gpu = &gpu, .threads = 1};
    *s = (side){.ctx = NULL};
    AIR_TRY(air_context_create(&options, &s->ctx));
    AIR_TRY(air_graph_parse(s->ctx, text, strlen(text), &s->graph));
    AIR_TRY(values_make(s->graph, 1, &s->inputs));
    return air_program_create(s->ctx, s->graph, NULL, &s->program);
}

static air_status
run_side(side *s)
{
    air_value_release(&s->out);
    s->out = (air_value){.data = NULL};
    return air_program_run(s->program, NULL, s->inputs.count, s->inputs.values,
                           1, &s->out);
}

static void
close_side(side *s)
{
    air_value_release(&s->out);
    air_program_destroy(s->program);
    values_free(&s->inputs);
    air_graph_destroy(s->graph);
    air_context_destroy(s->ctx);
}

/* ---- its kernel ---------------------------------------------------------- */

static air_status
print_all(air_device *dev, const exec_spec *spec, cuda_source *sources)
{
    size_t next;
    for (size_t i = 0; i < spec->steps.count; i++)
        base_text_init(&sources[i].text, &base_libc_alloc);
    for (size_t i = 0; i < spec->steps.count; i = next) {
        const air_step *step = &spec->list_steps[i];
        fuse_group g;
        cuda_fuse_find(spec->list_steps, spec->steps.count, i, &g);
        next = i + (g.count > 1 ? (size_t)g.count : 1);
        if (g.count > 1)
            AIR_TRY(cuda_fuse_print(&g, &dev->props, &sources[i]));
        else
            AIR_TRY(
                cuda_kernel_print(dev, step->kernel, &step->call, &sources[i]));
    }
    super_report report;
    return cuda_super_join(dev, spec->list_steps, spec->steps.count, sources,
                           &report);
}

static bool
load(const char *text)
{
    char path[400], source[420], command[1200];
    (void)snprintf(path, sizeof path, "%s/%016llx.so", folder,
                   (unsigned long long)base_hash(text, strlen(text), 0));
    (void)snprintf(source, sizeof source, "%s.cpp", path);
    FILE *f = fopen(source, "w");
    if (!f)
        return false;
    (void)fprintf(f,
                  "#include \"" CUDA_TESTS "/emulate_super.hpp\"\n"
                  "#define ENTRY(i) air_##i\n%s\n"
                  "extern \"C\" void run(unsigned grid, unsigned there, "
                  "unsigned block, void **args)\n"
                  "{ emu_together(air_0, grid, there, block, args); }\n",
                  text);
    (void)fclose(f);
    (void)snprintf(command, sizeof command,
                   "g++ -std=c++17 -O1 -w -fPIC -fno-extern-tls-init "
                   "-ffp-contract=off -shared "
                   "-o %s %s -lpthread",
                   path, source);
    void *library = system(command) == 0 ? dlopen(path, RTLD_NOW) : NULL;
    void *found = library ? dlsym(library, "run") : NULL;
    memcpy(&kernel, &found, sizeof found);
    return kernel != NULL;
}

/* The text of the only launch that a run of the program has. */
static bool
load_kernel(const char *file, const side *s)
{
    const exec_spec *spec = atomic_load(&s->program->specs);
    const size_t count = spec->steps.count;
    cuda_source *sources = calloc(count, sizeof *sources);
    bool good = print_all(s->ctx->device, spec, sources) == AIR_OK;
    if (!good)
        fail(file, "printing", air_last_error()->message);
    for (size_t i = 1; good && i < count; i++)
        if (sources[i].nlaunches > 0)
            good = fail(file, s->ctx->driver->name, "several launches");
    if (good && !sources[0].together)
        good = fail(file, "printing", "no persistent kernel");
    if (good && !load(sources[0].text.data))
        good = fail(file, "g++", "the text does not compile");
    for (size_t i = 0; i < count; i++) {
        base_text_deinit(&sources[i].text);
        base_free(&base_libc_alloc, sources[i].many,
                  sources[i].rmany * sizeof(cuda_param));
    }
    free(sources);
    return good;
}

/* ---- what is tried ------------------------------------------------------- */

static bool
compare(const char *file, const side *got, const side *want)
{
    const value_difference d = value_compare(&got->out, &want->out);
    if (d.at < 0)
        return true;
    fprintf(stderr, "%s: element %lld is %g, not %g\n", file, (long long)d.at,
            d.got, d.want);
    failed++;
    return false;
}

/* Other inputs: what was left over from runs before is wrong for them. */
static air_status
renew(side *s)
{
    values_free(&s->inputs);
    return values_make(s->graph, 2, &s->inputs);
}

/* A block that comes too late: the others leave, the next run says so, and the
 * one after it is right again. */
static bool
give_up(const char *file, side *s, side *want)
{
    missing = 1;
    air_status status = run_side(s);
    missing = 0;
    if (status != AIR_OK)
        return fail(file, "a run that gives up", air_last_error()->message);
    if (run_side(s) != AIR_ERROR_DRIVER ||
        !strstr(air_last_error()->message, "persistent kernel"))
        return fail(file, "the run after it", "no error");
    if (renew(s) != AIR_OK || renew(want) != AIR_OK || run_side(want) != AIR_OK)
        return fail(file, "other inputs", air_last_error()->message);
    for (int i = 0; i < 2; i++)
        if (run_side(s) != AIR_OK)
            return fail(file, "the one after", air_last_error()->message);
        else if (!compare(file, s, want))
            return false;
    return true;
}

static void
run_text(const char *file, const char *text)
{
    side want, got;
    kernel = NULL;
    bool good = open_side(&want, text, false) == AIR_OK &&
                run_side(&want) == AIR_OK && open_side(&got, text, true) == 0;
    if (!good) {
        fail(file, "opening", air_last_error()->message);
        return;
    }
    good = (run_side(&got) == AIR_OK ||
            fail(file, "running", air_last_error()->message)) &&
           load_kernel(file, &got);
    for (int i = 0; good && i < 3; i++)
        good = (run_side(&got) == AIR_OK ||
                fail(file, "running", air_last_error()->message)) &&
               compare(file, &got, &want);
    good = good && give_up(file, &got, &want);
    passed += good;
    close_side(&got);
    close_side(&want);
}

static void
run_file(const char *file)
{
    static char text[1 << 16];
    FILE *f = fopen(file, "r");
    if (!f) {
        fail(file, "reading", "no such file");
        return;
    }
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    (void)fclose(f);
    run_text(file, text);
}

static fake_state *
fake(void)
{
    void *lib = dlopen(FAKE_CUDA "/libcuda.so.1", RTLD_NOW);
    void *found = lib ? dlsym(lib, "fake_cuda_state") : NULL;
    fake_cuda_state_fn fn;
    memcpy(&fn, &found, sizeof fn);
    return found ? fn() : NULL;
}

int
main(int argc, char **argv)
{
    fake_state *cuda = fake();
    if (argc < 3 || !cuda)
        return 2;
    folder = argv[1];
    (void)mkdir(folder, 0777);
    cuda->processors = PROCESSORS;
    cuda->run = run_kernel;
    if (!emulate_possible())
        printf("kernels do not run: there is no g++\n");
    for (int i = 2; emulate_possible() && i < argc; i++)
        run_file(argv[i]);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed > 0;
}
