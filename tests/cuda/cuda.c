/* cuda.c: CUDA C of regions, without a GPU: `cuda [-u] FOLDER FILE...`. A file
 * is a text graph and, behind "# kernels:", what its regions are printed as.
 * Each graph also runs with its kernels compiled for this machine (g++), beside
 * driver ref, and is compiled by NVRTC where there is one (AIR_NVRTC: its
 * path). -u writes what was printed into the file. FOLDER keeps compiled code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/air_values.h"
#include "codegen/codegen.h"
#include "emulate.h"
#include "exec/exec.h"
#include "nvrtc.h"

#define RESULTS 8
static const char mark[] = "# kernels:\n";

static long passed, failed;
static bool updates, compiles;
static fake_state *gpu; /* on which they run; NULL: they do not */

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_value outs[RESULTS];
    size_t nouts;
} side;

static bool
fail(const char *file, const char *what, const char *why)
{
    printf("FAIL %s: %s: %s\n", file, what, why);
    failed++;
    return false;
}

static char *
read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return NULL;
    (void)fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    char *text = calloc(size + 1, 1);
    rewind(f);
    size = fread(text, 1, size, f);
    (void)fclose(f);
    return text;
}

/* ---- running ---- */

static air_status
open_side(side *s, const char *text, size_t len, bool cuda)
{
    air_values inputs = {0};
    const air_gpu lent = {.libraries = emulate_libraries(false)};
    const air_options options = {.driver = cuda ? "cuda" : "ref", .gpu = &lent};
    AIR_TRY(air_context_create(&options, &s->ctx));
    AIR_TRY(air_graph_parse(s->ctx, text, len, &s->graph));
    s->nouts = s->graph->results.count;
    AIR_TRY(air_program_create(s->ctx, s->graph, NULL, &s->program));
    AIR_TRY(values_make(s->graph, 3, &inputs));
    air_status status = air_program_run(s->program, NULL, inputs.count,
                                        inputs.values, s->nouts, s->outs);
    values_free(&inputs);
    return status;
}

static void
close_side(side *s)
{
    for (size_t i = 0; i < s->nouts; i++)
        air_value_release(&s->outs[i]);
    air_program_destroy(s->program);
    air_graph_destroy(s->graph);
    air_context_destroy(s->ctx);
}

static bool
compare(const char *file, const side *got, const side *want)
{
    char why[100];
    for (size_t i = 0; i < want->nouts; i++) {
        value_difference d = value_compare(&got->outs[i], &want->outs[i]);
        if (d.at < 0)
            continue;
        (void)snprintf(why, sizeof why, "result %zu, element %lld: %g, ref %g",
                       i, (long long)d.at, d.got, d.want);
        return fail(file, "on this machine", why);
    }
    return true;
}

static bool
emulate(const char *file, const char *text, size_t len, const side *want)
{
    side s = {0};
    const long before = gpu->launches;
    bool good = open_side(&s, text, len, true) == AIR_OK;
    if (!good)
        fail(file, "on this machine", air_last_error()->message);
    else if (gpu->launches == before)
        good = fail(file, "on this machine", "no kernel ran");
    else
        good = compare(file, &s, want);
    close_side(&s);
    return good;
}

/* ---- text ---- */

static bool
compile_regions(const char *file, const side *s)
{
    static char log[20000];
    exec_spec *spec = exec_specs_newest(s->program);
    bool good = true;
    for (size_t i = 0; good && i < spec->steps.count; i++) {
        air_code code;
        const char *reason;
        if (spec->steps.data[i].kind != EXEC_STEP_REGION ||
            codegen_region(&base_libc_alloc, spec->steps.data[i].region.region,
                           "sm_90a", &code, &reason) != AIR_OK)
            continue;
        char *unit = nvrtc_unit(code.prelude, (const char *)code.bytes);
        good = nvrtc_compile(unit, log, sizeof log) || fail(file, "NVRTC", log);
        free(unit);
        codegen_free(&base_libc_alloc, &code);
    }
    exec_spec_release(s->program, spec);
    return good;
}

static bool
write_golden(const char *path, const char *text, size_t len, const char *got)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return fail(path, "writing", "no");
    (void)fprintf(f, "%.*s%s%s", (int)len, text, mark, got);
    return fclose(f) == 0;
}

static bool
golden(const char *path, const char *text, size_t len, const side *s)
{
    char *got;
    if (air_program_print(s->program, AIR_TEXT_CUDA, &got) != AIR_OK)
        return fail(path, "printing", air_last_error()->message);
    const char *want = text[len] == '\0' ? "" : text + len + strlen(mark);
    bool good = strcmp(got, want) == 0;
    if (!good && updates)
        good = write_golden(path, text, len, got);
    else if (!good)
        fail(path, "printed", got);
    air_program_text_free(s->program, got);
    return good;
}

static void
run_file(const char *path)
{
    side want = {0};
    char *text = read_file(path);
    if (text == NULL) {
        fail(path, "reading", "no such file");
        return;
    }
    const char *end = strstr(text, mark);
    size_t len = end != NULL ? (size_t)(end - text) : strlen(text);
    bool good = open_side(&want, text, len, false) == AIR_OK ||
                fail(path, "driver ref", air_last_error()->message);
    good = good && golden(path, text, len, &want);
    if (good && compiles)
        good = compile_regions(path, &want);
    if (good && gpu)
        good = emulate(path, text, len, &want);
    passed += good;
    close_side(&want);
    free(text);
}

int
main(int argc, char **argv)
{
    int at = 1;
    updates = argc > 1 && strcmp(argv[1], "-u") == 0;
    at += updates;
    if (at >= argc)
        return 2;
    if (emulate_possible())
        gpu = emulate_start(argv[at]);
    compiles = nvrtc_possible();
    if (!gpu)
        printf("kernels do not run: there is no g++\n");
    if (!compiles && getenv("AIR_NVRTC"))
        fail(getenv("AIR_NVRTC"), "loading", "it is no NVRTC");
    else if (!compiles)
        printf("kernels are not compiled: there is no NVRTC (AIR_NVRTC)\n");
    for (int i = at + 1; i < argc; i++)
        run_file(argv[i]);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed > 0;
}
