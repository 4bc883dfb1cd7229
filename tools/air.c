/* air.c: the engine from the command line. `air help` says what it can do. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "air_device.h"
#include "air_inputs.h"
#include "air_options.h"
#include "air_steps.h"

static const char usage[] =
    "usage: air COMMAND [FILE] [OPTION ...]\n"
    "\n"
    "  run FILE       run a text graph, print the results\n"
    "  dump FILE      print the graph after the passes\n"
    "  bench FILE     time it\n"
    "  passes         list the passes\n"
    "  ops [NAME]     list the operators, or describe one\n"
    "  version        of the engine\n"
    "  help           this text\n"
    "\n"
    "FILE is a text graph (docs/text-form.md), - for standard input, or a\n"
    "program of torchair.dynamo_export.\n"
    "\n"
    "  --set S=N      size of symbol S (default: its hint, or 4)\n"
    "  --input X=F    input X from NumPy's file F (default: made up)\n"
    "  --weights-anywhere  of FILE may lie in files outside its folder\n"
    "  --seed N       of the made-up inputs and of random operators (default "
    "0)\n"
    "  --output DIR   run: results to DIR/result0.npy, ...\n"
    "  --driver NAME  cpu (default), cuda, ref, null\n"
    "  --gpu N        driver cuda: which one (default 0); NVIDIA's libraries\n"
    "                 are looked for in TORCHAIR_CUDA_PATH first\n"
    "  --isa NAME     avx512, avx2, scalar (default: the best here)\n"
    "  --threads N    default: one per CPU\n"
    "  --exact        round where PyTorch's eager mode rounds\n"
    "  --no-emitter   regions by tile loops, no machine code\n"
    "  --verify       check the graph after each pass\n"
    "  --passes N     the first N passes only\n"
    "  --without NAME what is left out: `air passes` lists the names\n"
    "  --order NAME   of steps: written (default), bfs, dfs, rdfs\n"
    "  --compare      run: compare with driver ref, fail when they differ\n"
    "  --after PASS   dump: the graph after this pass\n"
    "  --steps        dump: the command list of the program\n"
    "  --cuda         dump: the regions of the program as CUDA C\n"
    "  --explain      dump: regions, copies, memory\n"
    "  --ge FORM      dump: the graph as Ascend IR: txt, pbtxt, py, onnx\n"
    "  --as-read      dump --ge: before the passes\n"
    "  --stat         dump: of each pass the rewrites found and made, nodes\n"
    "                 before and after, milliseconds\n"
    "  --seconds X    bench: for how long (default 1)\n"
    "  --verbose      what the engine logs, on standard error\n";

typedef struct {
    file_text text;
    air_context *context;
    air_graph *graph;
    air_program *program;
    air_values inputs;
    air_device_inputs device; /* of their data */
    input_array arrays[MAX_INPUTS];
    size_sources sizes;   /* which option has said them */
    input_array *weights; /* of an exported program */
    size_t nweights;
    air_value *outs, *shown; /* shown: in memory of the host */
    size_t nouts;
} session;

/* The status of an engine call as an exit code. */
static int
check(air_status status, const char *what)
{
    if (status == AIR_OK)
        return 0;
    const air_error *error = air_last_error();
    bool recorded = error->code == status;
    fprintf(stderr, "air: %s: %s error: %s\n", what, air_status_text(status),
            recorded ? error->message : values_problem());
    return EXIT_FAILURE;
}

/* ---- the graph ---- */

static int
read_file(const options *o, file_text *out)
{
    if (!o->file)
        return complain_usage(o->command, "a file is needed");
    return file_read(o->file, out) ? 0 : complain(o->file, strerror(errno));
}

/* "--set s0=3" on the graph; the other symbols get a size of their own. */
static int
set_symbols(const options *o, air_graph *graph, size_sources *sources)
{
    air_symbol symbol;
    for (size_t i = 0; air_graph_get_symbol(graph, i, &symbol); i++) {
        int64_t size = symbol.hint ? symbol.hint : DEFAULT_SIZE;
        size = size < symbol.min ? symbol.min : size;
        size = size > symbol.max ? symbol.max : size;
        int bad = check(air_graph_set_hint(graph, symbol.name, size), o->file);
        if (bad)
            return bad;
    }
    for (int i = 0; i < o->nsets; i++) {
        char name[64];
        long long size;
        const char *equals = strchr(o->sets[i], '=');
        size_t len = equals ? (size_t)(equals - o->sets[i]) : 0;
        if (len == 0 || len >= sizeof name || !parse_int(equals + 1, &size))
            return complain_usage("--set", "write it as s0=3");
        memcpy(name, o->sets[i], len);
        name[len] = '\0';
        int bad = check(air_graph_set_hint(graph, name, size), "--set");
        if (bad)
            return bad;
        if (!sources_add(sources, graph, name, "--set", o->sets[i]))
            return complain("--set", strerror(errno));
    }
    return 0;
}

static int
open_arrays(const options *o, session *s)
{
    for (int i = 0; i < o->narrays; i++) {
        const char *wrong =
            input_open(o->arrays[i], s->graph, &s->sizes, &s->arrays[i]);
        if (wrong) {
            fprintf(stderr, "air: --input %s: %s\n", o->arrays[i], wrong);
            return EXIT_FAILURE;
        }
    }
    return 0;
}

/* The graph's text in what was read, and its weights where it has some. */
static int
find_text(const options *o, const file_text *read, air_file *out)
{
    *out = (air_file){
        .lines = read->data, .text = read->data, .text_len = read->len};
    if (!air_file_is(read->data, read->len))
        return 0;
    const char *wrong = air_file_parse(read->data, read->len, out);
    return wrong ? complain(o->file, wrong) : 0;
}

static int
open_weights(const options *o, const air_file *file, session *s)
{
    air_file_weight w;
    size_t count = 0;
    for (size_t at = 0; air_file_next(file, &at, &w);)
        count++;
    s->weights = calloc(count + 1, sizeof *s->weights);
    if (!s->weights)
        return complain("out of memory", NULL);
    for (size_t at = 0; air_file_next(file, &at, &w);) {
        input_array *weight = &s->weights[s->nweights++];
        const char *wrong =
            weight_open(file, &w, o->file, o->anywhere, s->graph, weight);
        if (wrong) {
            fprintf(stderr, "air: %s: weight %s: %s\n", o->file, w.name, wrong);
            return EXIT_FAILURE;
        }
    }
    return 0;
}

/* The graph of a text on the engine that the options ask for. */
static int
open_graph(const options *o, const file_text *text, session *s)
{
    air_file file;
    int bad = find_text(o, text, &file);
    if (!bad)
        bad = check(air_context_create(&o->engine, &s->context), "engine");
    if (!bad)
        bad = check(
            air_graph_parse(s->context, file.text, file.text_len, &s->graph),
            o->file);
    if (!bad)
        bad = open_weights(o, &file, s);
    if (!bad)
        bad = set_symbols(o, s->graph, &s->sizes);
    return bad ? bad : open_arrays(o, s);
}

static int
open_session(const options *o, session *s)
{
    int bad = read_file(o, &s->text);
    return bad ? bad : open_graph(o, &s->text, s);
}

static int
compile(const options *o, session *s)
{
    int bad = check(
        air_program_create(s->context, s->graph, &o->compile, &s->program),
        o->file);
    if (!bad)
        bad = check(values_make(s->graph, o->engine.seed, &s->inputs), o->file);
    for (size_t i = 0; !bad && i < s->nweights; i++)
        bad = check(input_apply(&s->weights[i], &s->inputs), o->file);
    for (int i = 0; !bad && i < o->narrays; i++)
        bad = check(input_apply(&s->arrays[i], &s->inputs), o->arrays[i]);
    s->nouts = air_graph_count_results(s->graph);
    s->outs = calloc(s->nouts + 1, sizeof *s->outs);
    s->shown = calloc(s->nouts + 1, sizeof *s->shown);
    if (!bad && (!s->outs || !s->shown))
        bad = complain("out of memory", NULL);
    return bad ? bad
               : check(device_take(s->context, &s->inputs, &s->device),
                       o->file);
}

static air_status
run_once(session *s)
{
    return air_program_run(s->program, NULL, s->inputs.count, s->inputs.values,
                           s->nouts, s->outs);
}

/* Once, and the results where they can be read. */
static int
run_and_fetch(session *s, const char *what)
{
    int bad = check(run_once(s), what);
    for (size_t i = 0; !bad && i < s->nouts; i++)
        bad = check(device_fetch(s->context, &s->outs[i], &s->shown[i]), what);
    return bad;
}

static void
release_results(session *s)
{
    for (size_t i = 0; s->outs && i < s->nouts; i++)
        air_value_release(&s->outs[i]);
}

static void
close_session(session *s)
{
    release_results(s);
    for (size_t i = 0; s->shown && i < s->nouts; i++)
        free(s->shown[i].data);
    free(s->outs);
    free(s->shown);
    device_drop(s->context, &s->inputs, &s->device);
    values_free(&s->inputs);
    for (int i = 0; i < MAX_INPUTS; i++)
        input_close(&s->arrays[i]);
    for (size_t i = 0; i < s->nweights; i++)
        input_close(&s->weights[i]);
    free(s->weights);
    sources_free(&s->sizes);
    air_program_destroy(s->program);
    air_graph_destroy(s->graph);
    air_context_destroy(s->context);
    free(s->text.data);
    *s = (session){0};
}

/* ---- commands ---- */

static const char *
result_name(size_t i, char *name, size_t size)
{
    snprintf(name, size, "result %zu", i);
    return name;
}

/* Results of `s` against those of the same graph on driver ref, whose program
 * is made with as few passes as possible: what both do wrong is not seen. */
static int
compare(const options *o, const session *s)
{
    options plain = *o;
    session want = {0};
    plain.engine = (air_options){.driver = "ref", .seed = o->engine.seed};
    plain.compile.pass_limit = 1;
    int bad = open_graph(&plain, &s->text, &want);
    if (!bad)
        bad = compile(&plain, &want);
    if (!bad)
        bad = run_and_fetch(&want, "driver ref");
    for (size_t i = 0; !bad && i < s->nouts; i++) {
        value_difference d = value_compare(&s->shown[i], &want.shown[i]);
        printf("result %zu: largest difference from ref %.3g\n", i, d.largest);
        if (d.at < 0)
            continue;
        fprintf(stderr, "air: result %zu, element %lld: %.9g, ref %.9g\n", i,
                (long long)d.at, d.got, d.want);
        bad = EXIT_FAILURE;
    }
    close_session(&want);
    return bad;
}

/* FOLDER/result0.npy ... */
static int
write_results(const options *o, const session *s)
{
    char path[4096];
    if (mkdir(o->output, 0777) != 0 && errno != EEXIST)
        return complain(o->output, strerror(errno));
    for (size_t i = 0; i < s->nouts; i++) {
        int n = snprintf(path, sizeof path, "%s/result%zu.npy", o->output, i);
        if (n < 0 || (size_t)n >= sizeof path)
            return complain(o->output, "too long a path");
        FILE *out = fopen(path, "wb");
        bool good = out && npy_write(out, &s->shown[i]);
        int why = errno;
        if (out && fclose(out) != 0 && good) {
            good = false;
            why = errno;
        }
        if (!good)
            return complain(path, strerror(why));
    }
    return 0;
}

static int
command_run(const options *o)
{
    session s = {0};
    char name[32];
    int bad = open_session(o, &s);
    if (!bad)
        bad = compile(o, &s);
    if (!bad)
        bad = run_and_fetch(&s, o->file);
    for (size_t i = 0; !bad && i < s.nouts; i++)
        value_print(stdout, result_name(i, name, sizeof name), &s.shown[i]);
    if (!bad && o->output)
        bad = write_results(o, &s);
    if (!bad && o->compare)
        bad = compare(o, &s);
    close_session(&s);
    return bad;
}

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int
compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times runs into times[], of a GPU until it is done; gives their number, 0
 * after a failure. */
static size_t
time_runs(session *s, double seconds, double *times, size_t limit)
{
    size_t n = 0;
    for (double end = now() + seconds; n < limit && (n == 0 || now() < end);) {
        double start = now();
        if (run_once(s) != AIR_OK ||
            (s->nouts > 0 && device_wait(s->context, s->outs) != AIR_OK))
            return 0;
        times[n++] = now() - start;
        release_results(s);
    }
    qsort(times, n, sizeof *times, compare_doubles);
    return n;
}

/* The best of a few runs, step by step. */
static int
bench_steps(session *s, const options *o)
{
    enum { RUNS = 5, SHOWN = 20 };
    steps_table table = {0};
    const air_host host = {.user = &table, .see = steps_see};
    air_limits limits;
    bool known = air_context_get_limits(s->context, &limits) == AIR_OK;
    int bad = 0;
    for (int i = 0; !bad && i < RUNS; i++) {
        bad = check(air_program_run(s->program, &host, s->inputs.count,
                                    s->inputs.values, s->nouts, s->outs),
                    o->file);
        release_results(s);
    }
    if (!bad)
        steps_print(stdout, &table, SHOWN, known ? &limits : NULL);
    steps_free(&table);
    return bad;
}

static int
print_times(session *s, const options *o, const double *times, size_t n)
{
    const char *driver = o->engine.driver;
    air_program_stats stats;
    air_program_get_stats(s->program, &stats);
    printf("median %.4f ms, best %.4f ms, %zu runs\n", 1e3 * times[n / 2],
           1e3 * times[0], n);
    printf("compile %.3f ms, specialise %.3f ms\n", 1e3 * stats.compile_s,
           1e3 * stats.specialise_s);
    printf("%u nodes, %u regions, %u calls, %u copies, %u host\n", stats.nodes,
           stats.regions, stats.calls, stats.copies, stats.hosts);
    /* a GPU is not waited for after each step */
    return driver && strstr(driver, "cuda") ? 0 : bench_steps(s, o);
}

static int
command_bench(const options *o)
{
    enum { LIMIT = 1000000 };
    session s = {0};
    double *times = malloc(LIMIT * sizeof *times);
    int bad = times ? open_session(o, &s) : complain("out of memory", NULL);
    if (!bad)
        bad = compile(o, &s);
    if (!bad)
        bad = check(run_once(&s), o->file); /* specialises */
    if (!bad) {
        release_results(&s);
        size_t n = time_runs(&s, o->seconds, times, LIMIT);
        if (n == 0)
            bad = complain(o->file, air_last_error()->message);
        else
            bad = print_times(&s, o, times, n);
    }
    free(times);
    close_session(&s);
    return bad;
}

static int
find_pass(const char *name)
{
    const char *have;
    for (int i = 0; (have = air_pass_name((size_t)i, NULL)) != NULL; i++)
        if (strcmp(have, name) == 0)
            return i;
    return -1;
}

static int
copy_file(const char *path, FILE *out)
{
    FILE *in = fopen(path, "rb");
    if (!in)
        return complain("that pass does not run in this mode", NULL);
    for (int c; (c = getc(in)) != EOF;)
        putc(c, out);
    fclose(in);
    return 0;
}

/* Compiles with dumps into a directory of its own and prints one of them. */
static int
dump_after(const options *o, session *s)
{
    char folder[] = "/tmp/air-XXXXXX", path[256];
    options dumping = *o;
    int pass = find_pass(o->after);
    if (pass < 0)
        return complain("--after: there is no pass", o->after);
    if (!mkdtemp(folder))
        return complain(folder, strerror(errno));
    dumping.compile.dump_dir = folder;
    int bad = check(
        air_program_create(s->context, s->graph, &dumping.compile, &s->program),
        o->file);
    const char *name;
    for (int i = 0; (name = air_pass_name((size_t)i, NULL)) != NULL; i++) {
        snprintf(path, sizeof path, "%s/%02d-%s.txt", folder, i + 1, name);
        if (i == pass && !bad)
            bad = copy_file(path, stdout);
        unlink(path);
    }
    rmdir(folder);
    return bad;
}

static int
dump_ge(const options *o, session *s)
{
    char *text;
    air_text_kind kind = (air_text_kind)(AIR_TEXT_GE_TXT + o->ge);
    int bad;

    if (o->as_read) {
        bad = check(air_graph_print_ge(s->graph, (air_ge_form)o->ge, &text),
                    o->file);
        if (!bad)
            fputs(text, stdout);
        air_text_free(s->graph, text);
        return bad;
    }
    bad = compile(o, s) ||
          check(air_program_print(s->program, kind, &text), o->file);
    if (!bad) {
        fputs(text, stdout);
        air_program_text_free(s->program, text);
    }
    return bad;
}

/* The command list is known once sizes are: it takes one run. */
static int
dump_program(const options *o, session *s)
{
    char *text = NULL;
    air_text_kind kind = o->explain ? AIR_TEXT_EXPLAIN
                         : o->steps ? AIR_TEXT_STEPS
                         : o->cuda  ? AIR_TEXT_CUDA
                         : o->stat  ? AIR_TEXT_PASSES
                                    : AIR_TEXT_GRAPH;
    int bad = compile(o, s);
    if (!bad && (o->steps || o->cuda || o->explain))
        bad = check(run_once(s), o->file);
    if (!bad)
        bad = check(air_program_print(s->program, kind, &text), o->file);
    if (!bad)
        fputs(text, stdout);
    if (text)
        air_program_text_free(s->program, text);
    return bad;
}

static int
command_dump(const options *o)
{
    session s = {0};
    int bad = open_session(o, &s);
    if (!bad)
        bad = o->after     ? dump_after(o, &s)
              : o->ge >= 0 ? dump_ge(o, &s)
                           : dump_program(o, &s);
    close_session(&s);
    return bad;
}

static int
command_passes(const options *o)
{
    const char *name, *help;
    (void)o;
    for (size_t i = 0; (name = air_pass_name(i, &help)) != NULL; i++)
        printf("%2zu  %-14s %s\n", i + 1, name, help);
    printf("\nleft out by --without:\n");
    for (size_t i = 0; (name = air_without_name(i, &help)) != NULL; i++)
        printf("    %-14s %s\n", name, help);
    return 0;
}

static int
print_op(const char *name)
{
    const char *schema, *class, *ge;
    int bad = check(air_op_describe(name, &schema, &class, &ge), name);
    if (!bad)
        printf("%-10s %-20s %s\n", class, ge && *ge ? ge : "-", schema);
    return bad;
}

static int
command_ops(const options *o)
{
    const char *name;
    int bad = 0;
    if (o->file)
        return print_op(o->file);
    for (size_t i = 0; !bad && (name = air_op_name(i)) != NULL; i++)
        bad = print_op(name);
    return bad;
}

static int
command_help(const options *o)
{
    (void)o;
    fputs(usage, stdout);
    return 0;
}

static int
command_version(const options *o)
{
    (void)o;
    puts("air " AIR_VERSION);
    return 0;
}

/* What was printed may still lie in a buffer, and a full disk takes none. */
static int
flushed(int bad)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return bad;
    return complain("standard output", strerror(errno ? errno : EIO));
}

static int
run_command(const options *o)
{
    static const struct {
        const char *name;
        int (*run)(const options *o);
    } commands[] = {
        {"run", command_run},         {"dump", command_dump},
        {"bench", command_bench},     {"passes", command_passes},
        {"ops", command_ops},         {"help", command_help},
        {"version", command_version},
    };
    if (o->help || o->version)
        return o->help ? command_help(o) : command_version(o);
    if (!o->command)
        return complain_usage("a command is needed", NULL);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(o->command, commands[i].name) == 0)
            return commands[i].run(o);
    return complain_usage("unknown command", o->command);
}

int
main(int argc, char **argv)
{
    options o;
    int bad = parse_options(argc, argv, &o);
    return bad ? bad : flushed(run_command(&o));
}
