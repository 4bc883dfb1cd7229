#include "air_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
complain(const char *what, const char *detail)
{
    fprintf(stderr, "air: %s%s%s\n", what, detail ? ": " : "",
            detail ? detail : "");
    return EXIT_FAILURE;
}

int
complain_usage(const char *what, const char *detail)
{
    complain(what, detail);
    fprintf(stderr, "`air help` shows what can be given\n");
    return EXIT_USAGE;
}

static void
log_line(void *user, air_log_level level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    (void)user;
    fprintf(stderr, "%s: %s\n", names[level], line);
}

bool
parse_int(const char *text, long long *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 0);
    return errno == 0 && *text && !*end;
}

typedef struct {
    const char *name;
    size_t at; /* in options: a bool */
} switch_row;

static const switch_row switches[] = {
    {"--exact", offsetof(options, compile.exact)},
    {"--no-emitter", offsetof(options, engine.no_emitter)},
    {"--verify", offsetof(options, engine.verify)},
    {"--compare", offsetof(options, compare)},
    {"--steps", offsetof(options, steps)},
    {"--cuda", offsetof(options, cuda)},
    {"--explain", offsetof(options, explain)},
    {"--as-read", offsetof(options, as_read)},
    {"--stat", offsetof(options, stat)},
    {"--weights-anywhere", offsetof(options, anywhere)},
    {"--help", offsetof(options, help)},
    {"-h", offsetof(options, help)},
    {"--version", offsetof(options, version)},
};

/* Options without a value. */
static bool
set_switch(options *o, const char *name)
{
    if (strcmp(name, "--verbose") == 0) {
        o->engine.log = log_line;
        return true;
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (strcmp(name, switches[i].name) == 0) {
            *(bool *)((char *)o + switches[i].at) = true;
            return true;
        }
    return false;
}

/* A number of 0 or more, or the exit code. */
static int
take_number(const char *name, const char *text, int *out)
{
    long long n;
    if (!parse_int(text, &n) || n < 0 || n > INT32_MAX)
        return complain_usage(name, "a number of 0 or more is needed");
    *out = (int)n;
    return 0;
}

static int
set_threads(options *o, const char *text)
{
    return take_number("--threads", text, &o->engine.threads);
}

static int
set_passes(options *o, const char *text)
{
    return take_number("--passes", text, &o->compile.pass_limit);
}

static int
set_seed(options *o, const char *text)
{
    int seed = 0;
    int bad = take_number("--seed", text, &seed);
    o->engine.seed = (uint64_t)seed;
    return bad;
}

static int
set_seconds(options *o, const char *text)
{
    char *end;
    o->seconds = strtod(text, &end);
    if (end == text || *end || !(o->seconds > 0 && o->seconds < 3600))
        return complain_usage("--seconds", "a time above 0 is needed");
    return 0;
}

static int
add_set(options *o, const char *text)
{
    if (o->nsets == MAX_SETS)
        return complain_usage("--set", "too many");
    o->sets[o->nsets++] = text;
    return 0;
}

static int
add_array(options *o, const char *text)
{
    if (o->narrays == MAX_INPUTS)
        return complain_usage("--input", "too many");
    o->arrays[o->narrays++] = text;
    return 0;
}

static int
set_ge(options *o, const char *text)
{
    static const char *const forms[] = {"txt", "pbtxt", "py", "onnx"};
    for (int i = 0; i < (int)(sizeof forms / sizeof *forms); i++)
        if (strcmp(forms[i], text) == 0) {
            o->ge = i;
            return 0;
        }
    return complain_usage("--ge", "txt, pbtxt, py or onnx is needed");
}

static int
set_order(options *o, const char *text)
{
    static const char *const names[] = {"written", "bfs", "dfs", "rdfs"};
    for (int i = 0; i < AIR_ORDER_COUNT; i++)
        if (strcmp(names[i], text) == 0) {
            o->compile.order = (air_order)i;
            return 0;
        }
    return complain_usage("--order", "written, bfs, dfs or rdfs");
}

static int
add_without(options *o, const char *text)
{
    const char *name;
    for (size_t i = 0; (name = air_without_name(i, NULL)) != NULL; i++)
        if (strcmp(name, text) == 0) {
            o->compile.without |= 1u << i;
            return 0;
        }
    return complain_usage("--without", "`air passes` lists the names");
}

static int
set_gpu(options *o, const char *text)
{
    return take_number("--gpu", text, &o->gpu.index);
}

/* Where the package torchair keeps kernels, if that folder is given. */
static void
read_environment(options *o)
{
    const char *cache = getenv("TORCHAIR_CACHE_DIR");
    o->gpu.libraries = getenv("TORCHAIR_CUDA_PATH");
    if (!cache || !*cache)
        return;
    const int n = snprintf(o->kernels, sizeof o->kernels, "%s/cuda", cache);
    if (n > 0 && (size_t)n < sizeof o->kernels)
        o->gpu.cache = o->kernels;
}

typedef struct {
    const char *name;
    int (*set)(options *, const char *value);
    size_t at; /* without `set`: a text of options */
} value_row;

static const value_row values[] = {
    {"--set", add_set, 0},
    {"--input", add_array, 0},
    {"--threads", set_threads, 0},
    {"--passes", set_passes, 0},
    {"--seed", set_seed, 0},
    {"--seconds", set_seconds, 0},
    {"--ge", set_ge, 0},
    {"--gpu", set_gpu, 0},
    {"--without", add_without, 0},
    {"--order", set_order, 0},
    {"--driver", NULL, offsetof(options, engine.driver)},
    {"--isa", NULL, offsetof(options, engine.isa)},
    {"--output", NULL, offsetof(options, output)},
    {"--after", NULL, offsetof(options, after)},
};

/* Options with a value. */
static int
set_value(options *o, const char *name, const char *value)
{
    const value_row *row = NULL;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(name, values[i].name) == 0)
            row = &values[i];
    if (!row)
        return complain_usage("unknown option", name);
    if (!value)
        return complain_usage(name, "a value is needed");
    if (row->set)
        return row->set(o, value);
    *(const char **)((char *)o + row->at) = value;
    return 0;
}

int
parse_options(int argc, char **argv, options *o)
{
    *o = (options){.seconds = 1, .ge = -1};
    o->engine.gpu = &o->gpu;
    read_environment(o);
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        bool option = arg[0] == '-' && arg[1];
        if (!option && !o->command) {
            o->command = arg;
        } else if (!option && !o->file) {
            o->file = arg;
        } else if (!option) {
            return complain_usage("one file at a time", arg);
        } else if (!set_switch(o, arg)) {
            int bad = set_value(o, arg, argv[i + 1]);
            if (bad)
                return bad;
            i++;
        }
    }
    return 0;
}
