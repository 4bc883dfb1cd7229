/* conform.c: every op of the table, over dtypes, shapes and layouts, on driver
 * cpu against driver ref. `conform [substring]...` runs the ops whose name has
 * one of them; `conform -v` prints each case that differs; `--driver=cuda`
 * takes another driver, `--cuda=FOLDER` driver cuda with its kernels on this
 * machine (tests/cuda), after `--blas` with cuBLASLt's products; `--part=2/16`
 * every 16th op from the third on,
 * `--dtype=f32` one dtype, `--isa=avx2` an instruction set below the best. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cuda/emulate.h"
#include "../cuda/fence.h"
#include "case.h"
#include "device.h"
#include "driver/ref/element.h"

#define RESULTS 64

static const struct {
    const char *op, *text;
} samples[] = {
#define SAMPLE(op, text) {op, text},
#include "samples.def"
#undef SAMPLE
};

static struct {
    const char *op, *dtype, *why;
    bool skip, met;
} expects[] = {
#define XFAIL(op, dtype, why) {op, dtype, why, false, false},
#define SKIP(op, why)         {op, "*", why, true, false},
#include "expect.def"
#undef XFAIL
#undef SKIP
};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static air_context *cpu, *ref;
static long ran, refused, failed, expected, missing;
static bool verbose;
static const char *only; /* dtype; NULL: all */

/* ---- comparing ----------------------------------------------------------- */

/* What a result may differ by: the lanes compute in f32 where ref is exact,
 * and sums of some hundred terms lie in between. */
static double
tolerance(air_dtype dtype)
{
    return dtype == AIR_F64    ? 1e-9
           : dtype == AIR_F32  ? 2e-4
           : dtype == AIR_F16  ? 1e-2
           : dtype == AIR_BF16 ? 4e-2
                               : 0;
}

static bool
near(air_dtype dtype, const char *a, const char *b)
{
    if (!ref_is_float((int)dtype))
        return ref_get_int((int)dtype, a) == ref_get_int((int)dtype, b);
    double x = ref_get((int)dtype, a), y = ref_get((int)dtype, b);
    if (isnan(x) || isnan(y) || isinf(x) || isinf(y))
        return (isnan(x) && isnan(y)) || x == y;
    return fabs(x - y) <= tolerance(dtype) * (1 + fabs(y));
}

static const char *
element(const air_value *v, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int k = v->rank - 1; k >= 0; k--) {
        at += i % v->dims[k] * (v->strides != NULL ? v->strides[k] : step);
        step *= v->dims[k];
        i /= v->dims[k];
    }
    return (const char *)v->data + at * (int64_t)ref_bytes((int)v->dtype);
}

/* pairs: i64 are complex numbers. */
static bool
same(const air_value *a, const air_value *b, bool pairs, char *why, size_t room)
{
    int64_t n = 1;
    pairs = pairs && a->dtype == AIR_I64;
    if (a->dtype != b->dtype || a->rank != b->rank) {
        (void)snprintf(why, room, "dtype or rank");
        return false;
    }
    for (int k = 0; k < a->rank; k++) {
        if (a->dims[k] != b->dims[k]) {
            (void)snprintf(why, room, "size of axis %d", k);
            return false;
        }
        n *= a->dims[k];
    }
    for (int64_t i = 0; i < n; i++) {
        const char *x = element(a, i), *y = element(b, i);
        if (pairs ? near(AIR_F32, x, y) && near(AIR_F32, x + 4, y + 4)
                  : near(a->dtype, x, y))
            continue;
        (void)snprintf(why, room, "element %lld: %g, ref has %g", (long long)i,
                       ref_get((int)a->dtype, x), ref_get((int)a->dtype, y));
        return false;
    }
    return true;
}

/* ---- one case ------------------------------------------------------------ */

typedef struct {
    air_value inputs[CASE_INPUTS], outs[RESULTS];
    air_value shown[RESULTS]; /* outs where the host can read them */
    int64_t strides[RESULTS][AIR_MAX_RANK];
    air_graph *graph;
    air_program *program;
    air_status status;
} side;

static air_status
run_program(side *s, air_context *ctx, const case_call *c)
{
    air_value inputs[CASE_INPUTS];
    device_loan loans[CASE_INPUTS] = {{0}};
    air_status status = AIR_OK;
    for (int i = 0; i < c->ninputs && status == AIR_OK; i++)
        status = device_lend(ctx, &s->inputs[i], &loans[i], &inputs[i]);
    if (status == AIR_OK)
        status = air_program_run(s->program, NULL, (size_t)c->ninputs, inputs,
                                 c->info->nrets, s->outs);
    for (size_t i = 0; i < c->info->nrets && status == AIR_OK; i++)
        status = device_read(ctx, &s->outs[i], &s->shown[i], s->strides[i]);
    for (int i = 0; i < c->ninputs; i++) {
        air_status last = device_return(ctx, &loans[i]);
        status = status == AIR_OK ? last : status;
    }
    return status;
}

static void
side_run(side *s, air_context *ctx, const case_call *c, case_layout layout)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < c->ninputs; i++) {
        case_input input = c->inputs[i];
        input.pairs = input.dtype == AIR_I64 && case_is_complex(c->info);
        if (!case_fill(&input, layout, (unsigned)(7 + i), &s->inputs[i]))
            exit(2);
    }
    s->status = case_graph(c, ctx, &s->graph);
    if (s->status == AIR_OK)
        s->status = air_program_create(ctx, s->graph, NULL, &s->program);
    if (s->status == AIR_OK)
        s->status = run_program(s, ctx, c);
}

static void
side_free(side *s, const case_call *c)
{
    for (size_t i = 0; s->status == AIR_OK && i < c->info->nrets; i++)
        air_value_release(&s->outs[i]), free(s->shown[i].block);
    air_program_destroy(s->program);
    air_graph_destroy(s->graph);
    for (int i = 0; i < c->ninputs; i++) {
        free(s->inputs[i].data);
        free(s->inputs[i].block);
    }
}

/* Both sides refuse with the same status, or both give the same. */
static bool
agree(const side *a, const side *b, const case_call *c, char *why, size_t room)
{
    (void)snprintf(why, room, "cpu: %s, ref: %s", air_status_text(a->status),
                   air_status_text(b->status));
    const bool pairs = case_is_complex(c->info);
    if (a->status != b->status)
        return false;
    for (size_t i = 0; a->status == AIR_OK && i < c->info->nrets; i++)
        if (!same(&a->shown[i], &b->shown[i], pairs, why, room))
            return false;
    for (int i = 0; i < c->ninputs; i++)
        if (!same(&a->inputs[i], &b->inputs[i], pairs, why, room))
            return false;
    return true;
}

static bool
is_expected(const char *op, const char *dtype)
{
    for (size_t i = 0; i < COUNT(expects); i++)
        if (strcmp(expects[i].op, op) == 0 &&
            (strcmp(expects[i].dtype, "*") == 0 ||
             strcmp(expects[i].dtype, dtype) == 0)) {
            expects[i].met = true;
            return true;
        }
    return false;
}

/* Of the op under test, over dtypes and layouts. */
static long op_ran, op_failed;

static void
run_case(const case_call *c, case_layout layout, const char *what)
{
    char why[200];
    const char *dtype = air_dtype_text(c->dtype);
    side a, b;
    if (cpu->target.apart && layout == BROADCAST &&
        strncmp(c->info->name, "as_strided", 10) == 0)
        return; /* it reads what lies between the elements */
    side_run(&a, cpu, c, layout);
    if (a.status == AIR_ERROR_DTYPE || a.status == AIR_ERROR_SHAPE ||
        a.status == AIR_ERROR_ARGUMENT || a.status == AIR_ERROR_INDEX) {
        refused++;
        if (verbose)
            printf("refused %s %s %s: %s\n", c->info->name, dtype, what,
                   air_last_error()->message);
        side_free(&a, c);
        return;
    }
    if (a.status == AIR_ERROR_UNSUPPORTED && cpu->target.apart) {
        missing++; /* the application's operators do it */
        side_free(&a, c);
        return;
    }
    if (a.status != AIR_OK && verbose)
        printf("cpu: %s\n", air_last_error()->message);
    side_run(&b, ref, c, layout);
    ran++;
    op_ran++;
    if (!agree(&a, &b, c, why, sizeof why)) {
        bool known = is_expected(c->info->name, dtype);
        expected += known;
        failed += !known;
        op_failed += !known;
        if (verbose || (!known && op_failed <= 2))
            printf("%s %s %s %s, %s: %s\n", known ? "xfail" : "FAIL",
                   c->info->name, dtype, what, case_layout_text[layout], why);
    }
    side_free(&a, c);
    side_free(&b, c);
}

/* The last tensor of a division, unless that is by a number. */
static void
mark_divisor(case_call *c)
{
    static const char *const names[] = {"floor_divide", "remainder", "fmod",
                                        "div."};
    bool divides = false;
    for (size_t i = 0; i < COUNT(names); i++)
        divides |= strncmp(c->info->name, names[i], strlen(names[i])) == 0;
    if (divides && (c->ninputs > 1 || strstr(c->info->name, ".Scalar_Tensor")))
        c->inputs[c->ninputs - 1].divides = true;
}

static void
run_layouts(case_call *c, const char *what)
{
    mark_divisor(c);
    for (int layout = 0; layout < LAYOUTS; layout++)
        run_case(c, (case_layout)layout, what);
}

/* ---- all of them --------------------------------------------------------- */

static bool
run_samples(const ir_op_info *info, air_dtype dtype)
{
    bool any = false;
    for (size_t i = 0; i < COUNT(samples); i++) {
        case_call c;
        if (strcmp(samples[i].op, info->name) != 0)
            continue;
        any = true;
        if (case_parse(&c, info, dtype, samples[i].text)) {
            run_layouts(&c, samples[i].text);
            continue;
        }
        printf("FAIL %s: sample %s cannot be read\n", info->name,
               samples[i].text);
        failed++;
    }
    return any;
}

static bool
run_guesses(const ir_op_info *info, air_dtype dtype)
{
    static const struct {
        int rank;
        int64_t dims[3];
        bool spread;
        const char *text;
    } shapes[] = {
        {2, {3, 5}, false, "[3,5]"},  {3, {2, 3, 67}, false, "[2,3,67]"},
        {1, {1030}, false, "[1030]"}, {0, {0}, false, "[]"},
        {2, {0, 4}, false, "[0,4]"},  {2, {6, 19}, true, "[6,19] [1,19]"},
    };
    bool any = false;
    for (size_t i = 0; i < COUNT(shapes); i++) {
        case_call c;
        if (!case_guess(&c, info, dtype, shapes[i].rank, shapes[i].dims,
                        shapes[i].spread))
            continue;
        any = true;
        run_layouts(&c, shapes[i].text);
    }
    return any;
}

static bool
is_skipped(const ir_op_info *info)
{
    for (size_t i = 0; i < COUNT(expects); i++)
        if (expects[i].skip && strcmp(expects[i].op, info->name) == 0)
            return true;
    return (info->flags & IR_DATA_SHAPE) != 0;
}

static void
run_op(const ir_op_info *info)
{
    op_ran = op_failed = 0;
    for (int dtype = AIR_DTYPE_NONE + 1; dtype < AIR_DTYPE_COUNT; dtype++)
        if (only && strcmp(only, air_dtype_text((air_dtype)dtype)) != 0)
            continue;
        else if (!run_samples(info, (air_dtype)dtype) &&
                 !run_guesses(info, (air_dtype)dtype)) {
            printf("FAIL %s: its schema needs a row in samples.def\n",
                   info->name);
            failed++;
            return;
        }
    if (op_ran > 0 || missing > 0 || only)
        return;
    printf("FAIL %s: refused for every dtype\n", info->name);
    failed++;
}

/* No filters: any name will do. */
static bool
is_asked(const char *name, int count, char **filters)
{
    for (int i = 0; i < count; i++)
        if (strstr(name, filters[i]) != NULL)
            return true;
    return count == 0;
}

static void
check_expects(int count, char **filters)
{
    for (size_t i = 0; i < COUNT(expects); i++) {
        if (expects[i].skip || expects[i].met ||
            !is_asked(expects[i].op, count, filters))
            continue;
        printf("FAIL %s %s passes: take it out of expect.def (%s)\n",
               expects[i].op, expects[i].dtype, expects[i].why);
        failed++;
    }
}

/* What the command line says. */
typedef struct {
    const char *driver, *isa;
    const char *cuda; /* where its kernels are kept, or NULL */
    bool blas;
    size_t part, parts;
    int count; /* names of operators: at the start of argv */
} settings;

static settings
read_arguments(int argc, char **argv)
{
    settings s = {.driver = "check:cpu", .parts = 1};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-v") == 0)
            verbose = true;
        else if (strcmp(argv[i], "--blas") == 0)
            s.blas = true;
        else if (strncmp(argv[i], "--cuda=", 7) == 0)
            s.cuda = argv[i] + 7;
        else if (strncmp(argv[i], "--driver=", 9) == 0)
            s.driver = argv[i] + 9;
        else if (strncmp(argv[i], "--isa=", 6) == 0)
            s.isa = argv[i] + 6;
        else if (sscanf(argv[i], "--part=%zu/%zu", &s.part, &s.parts) == 2)
            continue;
        else if (strncmp(argv[i], "--dtype=", 8) == 0)
            only = argv[i] + 8;
        else
            argv[s.count++] = argv[i];
    return s;
}

static bool
open_contexts(const settings *s)
{
    air_gpu gpu = {.libraries = s->cuda ? emulate_libraries(s->blas) : NULL};
    const air_options options = {.driver = s->cuda ? "cuda" : s->driver,
                                 .isa = s->isa,
                                 .threads = 2,
                                 .gpu = s->cuda ? &gpu : NULL};
    if (s->cuda)
        fence_lend(&gpu);
    if (ir_ops_init() == AIR_OK &&
        air_context_create(&options, &cpu) == AIR_OK &&
        air_context_create(&(air_options){.driver = "ref"}, &ref) == AIR_OK)
        return true;
    printf("%s\n", air_last_error()->message);
    return false;
}

static void
run_all(const settings *s, char **argv)
{
    for (size_t i = 0; air_op_name(i) != NULL; i++) {
        const char *name = air_op_name(i);
        const ir_op_info *info = ir_op_get(ir_op_find(name, strlen(name)));
        if (!is_skipped(info) && i % s->parts == s->part &&
            is_asked(name, s->count, argv))
            run_op(info);
    }
    if (s->parts == 1 && !only)
        check_expects(s->count, argv);
}

int
main(int argc, char **argv)
{
    const settings s = read_arguments(argc, argv);
    if (s.cuda != NULL && !emulate_possible()) {
        printf("kernels do not run here: there is no g++\n");
        return 77; /* skipped */
    }
    if (s.cuda != NULL && emulate_start(s.cuda) == NULL) {
        printf("%s: kernels cannot be kept there\n", s.cuda);
        return 1;
    }
    if (!open_contexts(&s))
        return 1;
    run_all(&s, argv);
    if (s.blas && emulate_products() == 0) {
        printf("FAIL cuBLASLt was asked for no product\n");
        failed++;
    }
    air_context_destroy(cpu);
    air_context_destroy(ref);
    printf("conform: %ld cases, %ld refused by type rules, %ld differ as "
           "expected, %ld without a kernel\n",
           ran, refused, expected, missing);
    printf("%ld passed, %ld failed\n", ran - failed, failed);
    return failed > 0;
}
