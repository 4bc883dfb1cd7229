/* Programs of driver cuda over a GPU that is none (tests/fake), whose launches
 * run as plain C++ (emulate.hpp), beside driver ref. Their runs after the first
 * are graphs of the driver, then come calls of a capture. With --persistent a
 * program is one kernel, which also has to give up where a block comes too
 * late; with --blas products are cuBLASLt's.
 *
 * All memory ends where a page does (fence.h), and begins anew with each run,
 * so that nothing is left over from the one before; of persistent kernels only
 * inputs do. Every other inputs begin at
 * addresses that are no multiples of 16.
 *
 * A graph may say in a comment how many launches its first run takes, and how
 * many multiprocessors the GPU has.
 *
 *   programs [--persistent | --blas] FOLDER GRAPH...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/air_values.h"
#include "emulate.h"
#include "exec/exec.h"
#include "fence.h"

enum { PATIENCE = 30000 /* ms */, RESULTS = 9, RUNS = 3, INPUTS = 64 };

static long passed, failed;
static fake_state *gpu;
static bool persistent, blas;

static bool
fail(const char *file, const char *what, const char *message)
{
    fprintf(stderr, "%s: %s: %s\n", file, what, message);
    failed++;
    return false;
}

/* ---- a program of one driver --------------------------------------------- */

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_capture *capture; /* NULL: runs are the program's */
    air_values inputs;
    void *was[INPUTS]; /* what values_make gave */
    uint64_t seed;     /* of inputs */
    air_value outs[RESULTS];
    size_t nouts;
} side;

static size_t
bytes_of(const air_value *v)
{
    return (size_t)value_count(v) * air_dtype_bytes(v->dtype);
}

static air_status
make_inputs(side *s)
{
    AIR_TRY(values_make(s->graph, s->seed, &s->inputs));
    for (size_t i = 0; i < s->inputs.count && i < INPUTS; i++) {
        air_value *v = &s->inputs.values[i];
        if (v->is_int) { /* no size depends on it */
            v->i += (int64_t)s->seed;
            continue;
        }
        void *copy = fence_copy(v->data, bytes_of(v), air_dtype_bytes(v->dtype),
                                s->seed % 2 == 0);
        if (!copy)
            return AIR_ERROR_MEMORY;
        s->was[i] = v->data;
        v->data = copy;
    }
    return AIR_OK;
}

static void
drop_inputs(side *s)
{
    for (size_t i = 0; i < s->inputs.count && i < INPUTS; i++) {
        air_value *v = &s->inputs.values[i];
        if (!s->was[i])
            continue;
        fence_drop(v->data, bytes_of(v));
        v->data = s->was[i];
        s->was[i] = NULL;
    }
    values_free(&s->inputs);
}

static air_status
open_side(side *s, const char *text, bool cuda)
{
    air_gpu lent = {.libraries = emulate_libraries(blas),
                    .persistent =
                        persistent ? AIR_PERSISTENT_ALL : AIR_PERSISTENT_NONE,
                    .persistent_ms = PATIENCE};
    const air_options options = {
        .driver = cuda ? "cuda" : "ref", .gpu = &lent, .threads = 1};
    *s = (side){.seed = 1};
    if (!persistent) /* one that gives up would show as NaN, without a word */
        fence_lend(&lent);
    AIR_TRY(air_context_create(&options, &s->ctx));
    AIR_TRY(air_graph_parse(s->ctx, text, strlen(text), &s->graph));
    AIR_TRY(make_inputs(s));
    s->nouts = s->graph->results.count;
    return air_program_create(s->ctx, s->graph, NULL, &s->program);
}

static void
drop_results(side *s)
{
    for (size_t i = 0; i < s->nouts; i++) {
        air_value_release(&s->outs[i]);
        s->outs[i] = (air_value){.data = NULL};
    }
}

static air_status
run_side(side *s)
{
    drop_results(s);
    if (!persistent)
        air_context_trim(s->ctx); /* the next blocks are new ones */
    air_capture_call call = {0};
    return s->capture
               ? air_capture_run(s->capture, &call, NULL, s->inputs.count,
                                 s->inputs.values, s->nouts, s->outs)
               : air_program_run(s->program, NULL, s->inputs.count,
                                 s->inputs.values, s->nouts, s->outs);
}

static void
close_side(side *s)
{
    drop_results(s);
    air_capture_destroy(s->capture);
    air_program_destroy(s->program);
    drop_inputs(s);
    air_graph_destroy(s->graph);
    air_context_destroy(s->ctx);
}

/* ---- what is tried ------------------------------------------------------- */

/* Has nobody written behind the last element? */
static bool
ends(const air_value *v)
{
    const int64_t last = value_count(v) - 1;
    const int64_t count = last < 0 ? 0 : value_offset(v, last) + 1;
    return fence_is_whole((const char *)v->data +
                          (size_t)count * air_dtype_bytes(v->dtype));
}

/* A graph pool has results beside each other. */
static bool
ends_where_a_page_does(const side *s)
{
    return !persistent && !s->capture;
}

static bool
compare(const char *file, const side *got, const side *want)
{
    for (size_t i = 0; i < want->nouts; i++) {
        if (ends_where_a_page_does(got) && !ends(&got->outs[i]))
            return fail(file, "running", "a result goes on behind its end");
        const value_difference d = value_compare(&got->outs[i], &want->outs[i]);
        if (d.at < 0)
            continue;
        fprintf(stderr, "%s: result %zu, element %lld is %g, not %g\n", file, i,
                (long long)d.at, d.got, d.want);
        failed++;
        return false;
    }
    return true;
}

/* Other inputs: what was left over from runs before is wrong for them. */
static air_status
renew(side *s)
{
    drop_inputs(s);
    s->seed++;
    return make_inputs(s);
}

static bool
renew_both(const char *file, side *got, side *want)
{
    return (renew(got) == AIR_OK && renew(want) == AIR_OK &&
            run_side(want) == AIR_OK) ||
           fail(file, "other inputs", air_last_error()->message);
}

/* A block that comes too late: the others leave, the next run says so, and the
 * one after it is right again. */
static bool
give_up(const char *file, side *s, side *want)
{
    emulate_late = 1;
    air_status status = run_side(s);
    emulate_late = 0;
    if (status != AIR_OK)
        return fail(file, "a run that gives up", air_last_error()->message);
    if (run_side(s) != AIR_ERROR_DRIVER ||
        !strstr(air_last_error()->message, "persistent kernel"))
        return fail(file, "the run after it", "no error");
    if (!renew_both(file, s, want))
        return false;
    for (int i = 0; i < 2; i++)
        if (run_side(s) != AIR_OK)
            return fail(file, "the one after", air_last_error()->message);
        else if (!compare(file, s, want))
            return false;
    return true;
}

static bool
run_once(const char *file, side *s)
{
    const long together = gpu->together, launches = gpu->launches;
    if (run_side(s) != AIR_OK)
        return fail(file, "running", air_last_error()->message);
    if (gpu->launches == launches)
        return fail(file, "running", "nothing was launched");
    return !persistent ||
           (gpu->together == together + 1 && gpu->launches == launches + 1) ||
           fail(file, "running", "it is no single persistent kernel");
}

/* "# what: N" in the text; `otherwise` where there is none. */
static long
said(const char *text, const char *what, long otherwise)
{
    const char *at = strstr(text, what);
    return at ? strtol(at + strlen(what), NULL, 10) : otherwise;
}

static bool
counts_launches(const char *file, const char *text, long launches)
{
    if (persistent || said(text, "# launches: ", launches) == launches)
        return true;
    fprintf(stderr, "%s: %ld launches\n", file, launches);
    return fail(file, "the first run", "another number of launches");
}

static void
add_one(side *s)
{
    for (size_t i = 0; i < s->inputs.count; i++)
        if (s->inputs.values[i].is_int)
            s->inputs.values[i].i++;
}

/* The same tensors, and as results lie where they did, the same pointers. */
static bool
counts_on(const char *file, side *got, side *want)
{
    add_one(got);
    add_one(want);
    if (run_side(want) != AIR_OK)
        return fail(file, "other integers", air_last_error()->message);
    return run_once(file, got) && compare(file, got, want);
}

/* Other tensors and integers are no other specialisation, nor in a capture. */
static bool
replays(const char *file, side *got, side *want)
{
    air_program_stats stats;
    if (air_capture_create(got->program, NULL, &got->capture) != AIR_OK)
        return fail(file, "capturing", air_last_error()->message);
    for (int i = 0; i < RUNS; i++)
        if (!renew_both(file, got, want) || !run_once(file, got) ||
            !compare(file, got, want) || !counts_on(file, got, want))
            return false;
    air_program_get_stats(got->program, &stats);
    return stats.specialisations == 1 ||
           fail(file, "running", "there are several specialisations");
}

static void
run_text(const char *file, const char *text)
{
    side want, got;
    const long products = emulate_products();
    gpu->processors = (int)said(text, "# processors: ", 0);
    bool good = open_side(&want, text, false) == AIR_OK &&
                run_side(&want) == AIR_OK && open_side(&got, text, true) == 0;
    if (!good) {
        fail(file, "opening", air_last_error()->message);
        return;
    }
    const long before = gpu->launches;
    for (int i = 0; good && i < RUNS; i++)
        good = (i != RUNS - 1 || renew_both(file, &got, &want)) &&
               run_once(file, &got) && compare(file, &got, &want) &&
               (i > 0 || counts_launches(file, text, gpu->launches - before));
    good = good && (persistent ? give_up(file, &got, &want)
                               : replays(file, &got, &want));
    if (good && blas && emulate_products() == products)
        good = fail(file, "running", "cuBLASLt was asked for no product");
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

int
main(int argc, char **argv)
{
    persistent = argc > 1 && strcmp(argv[1], "--persistent") == 0;
    blas = argc > 1 && strcmp(argv[1], "--blas") == 0;
    const int at = 1 + persistent + blas;
    if (argc < at + 2)
        return 2;
    if (!emulate_possible())
        printf("kernels do not run: there is no g++\n");
    else
        gpu = emulate_start(argv[at]);
    for (int i = at + 1; gpu && i < argc; i++)
        run_file(argv[i]);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed > 0;
}
