/* bench_region.c: nanoseconds an element of six fused regions of real models,
 * by tile loops and by machine code, on one thread. Built by
 * `ninja tests/unit/bench_region`, not by default.
 *
 *     bench_region [isa]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "codegen/codegen.h"
#include "region_case.h"
#include "test.h"

#define N AIR_LANE_F32

/* region_case.c is linked without the tests' own main. */
void
test_skip(const char *why)
{
    printf("skipped: %s\n", why);
}

static int
two(region_case *c, air_rg_op op, int a, int b)
{
    return case_op(c, op, N, a, b, -1);
}

static int
one(region_case *c, air_rg_op op, int a)
{
    return case_op(c, op, N, a, -1, -1);
}

static int
load(region_case *c, int buf)
{
    return case_load(c, N, buf);
}

static int
k(region_case *c, double value)
{
    return case_const(c, N, value);
}

static int
scaled(region_case *c, int a, double by)
{
    return two(c, AIR_RG_MUL, a, k(c, by));
}

/* gelu_tanh(1.1 x + 0.2) * sigmoid(x) + x */
static void
gate_gelu(region_case *c, air_dtype t)
{
    int in = case_dense(c, t, 0, false), out = case_dense(c, t, 0, false);
    case_phase(c, AIR_PHASE_ROW);
    int x = load(c, in);
    int u = two(c, AIR_RG_ADD, scaled(c, x, 1.1), k(c, 0.2));
    int cube = two(c, AIR_RG_MUL, two(c, AIR_RG_MUL, u, u), u);
    int i = scaled(c, two(c, AIR_RG_ADD, u, scaled(c, cube, 0.044715)),
                   0.797884561);
    int t1 = two(c, AIR_RG_ADD, one(c, AIR_RG_TANH, i), k(c, 1));
    int ge = two(c, AIR_RG_MUL, scaled(c, u, 0.5), t1);
    int gated = two(c, AIR_RG_MUL, ge, one(c, AIR_RG_SIGMOID, x));
    case_store(c, out, two(c, AIR_RG_ADD, gated, x));
}

static void
swiglu(region_case *c, air_dtype t)
{
    int g = case_dense(c, t, 0, false), u = case_dense(c, t, 0, false);
    int out = case_dense(c, t, 0, false);
    case_phase(c, AIR_PHASE_ROW);
    int x = load(c, g);
    int silu = two(c, AIR_RG_MUL, x, one(c, AIR_RG_SIGMOID, x));
    case_store(c, out, two(c, AIR_RG_MUL, silu, load(c, u)));
}

static void
add_rms_norm(region_case *c, air_dtype t)
{
    int a = case_dense(c, t, 0, false), b = case_dense(c, t, 0, false);
    int w = case_dense(c, t, 1, false), out = case_dense(c, t, 0, false);
    int kept = case_scratch(c, AIR_F32);
    case_phase(c, AIR_PHASE_ROW);
    int h = two(c, AIR_RG_ADD, load(c, a), load(c, b));
    case_store(c, kept, h);
    int sum = case_reduce(c, AIR_REDUCE_SUM, two(c, AIR_RG_MUL, h, h));
    case_phase(c, AIR_PHASE_SCALAR);
    int mean = scaled(c, case_scalar(c, N, sum), 1.0 / 2048);
    int root = one(c, AIR_RG_SQRT, two(c, AIR_RG_ADD, mean, k(c, 1e-5)));
    int r = case_set(c, two(c, AIR_RG_DIV, k(c, 1), root));
    case_phase(c, AIR_PHASE_ROW);
    int y = two(c, AIR_RG_MUL, load(c, kept), case_scalar(c, N, r));
    case_store(c, out, two(c, AIR_RG_MUL, y, load(c, w)));
}

static void
softmax(region_case *c, air_dtype t)
{
    int in = case_dense(c, t, 0, false), out = case_dense(c, t, 0, false);
    int kept = case_scratch(c, AIR_F32);
    case_phase(c, AIR_PHASE_ROW);
    int max = case_reduce(c, AIR_REDUCE_MAX, load(c, in));
    case_phase(c, AIR_PHASE_ROW);
    int d = two(c, AIR_RG_SUB, load(c, in), case_scalar(c, N, max));
    int e = one(c, AIR_RG_EXP, d);
    case_store(c, kept, e);
    int sum = case_reduce(c, AIR_REDUCE_SUM, e);
    case_phase(c, AIR_PHASE_SCALAR);
    int s = case_scalar(c, N, sum);
    int r = case_set(c, two(c, AIR_RG_DIV, k(c, 1), s));
    case_phase(c, AIR_PHASE_ROW);
    case_store(c, out, two(c, AIR_RG_MUL, load(c, kept), case_scalar(c, N, r)));
}

static void
adam(region_case *c, air_dtype t)
{
    int b[8];
    for (int i = 0; i < 8; i++)
        b[i] = case_dense(c, t, 0, false);
    case_phase(c, AIR_PHASE_ROW);
    int p = load(c, b[0]), g = load(c, b[1]);
    int m =
        two(c, AIR_RG_ADD, scaled(c, load(c, b[2]), 0.9), scaled(c, g, 0.1));
    int gg = scaled(c, two(c, AIR_RG_MUL, g, g), 0.001);
    int v = two(c, AIR_RG_ADD, scaled(c, load(c, b[3]), 0.999), gg);
    int den = two(c, AIR_RG_ADD, one(c, AIR_RG_SQRT, v), k(c, 1e-8));
    int step = two(c, AIR_RG_DIV, scaled(c, m, 1e-3), den);
    int next = two(c, AIR_RG_ADD, load(c, b[4]), scaled(c, p, 0.01));
    case_store(c, b[5], two(c, AIR_RG_SUB, next, step));
    case_store(c, b[6], m);
    case_store(c, b[7], v);
}

static void
bias_gelu(region_case *c, air_dtype t)
{
    int in = case_dense(c, t, 0, false), bias = case_dense(c, t, 1, false);
    int out = case_dense(c, t, 0, false);
    case_phase(c, AIR_PHASE_ROW);
    int x = two(c, AIR_RG_ADD, load(c, in), load(c, bias));
    int e = one(c, AIR_RG_ERF, scaled(c, x, 0.707106781));
    int y =
        two(c, AIR_RG_MUL, scaled(c, x, 0.5), two(c, AIR_RG_ADD, e, k(c, 1)));
    case_store(c, out, y);
}

static const struct {
    const char *name;
    void (*make)(region_case *, air_dtype);
    int64_t width; /* 0: a flat vector */
    air_walk walk;
} works[] = {
    {"w1 gelu*sigmoid", gate_gelu, 0, AIR_WALK_MAP},
    {"w2 swiglu", swiglu, 0, AIR_WALK_MAP},
    {"w3 add+rmsnorm", add_rms_norm, 2048, AIR_WALK_INNER},
    {"w4 softmax", softmax, 1024, AIR_WALK_INNER},
    {"w5 adam", adam, 0, AIR_WALK_MAP},
    {"w6 bias+gelu", bias_gelu, 3072, AIR_WALK_MAP},
};

/* Seconds of one run, the best of several. */
static double
measure(region_case *c, const air_code *code, const char *isa)
{
    cpu_region *r;
    static _Alignas(64) char scratch[AIR_SCRATCH];
    if (cpu_region_make(&base_libc_alloc, &c->rg, code, isa, &r) != AIR_OK)
        return 0;
    air_call call = {.extra = r};
    air_task task = {.count = 1, .slots = c->data, .scratch = scratch};
    double best = 1e9, spent = 0;
    for (int i = 0; spent < 0.05 || i < 3; i++) {
        double from = base_work_now();
        long times = spent == 0 ? 1 : (long)(0.005 / best) + 1;
        for (long j = 0; j < times; j++)
            cpu_region_run(&call, &task);
        double s = base_work_now() - from;
        spent += s;
        if (s / (double)times < best)
            best = s / (double)times;
    }
    cpu_region_free(r);
    return best;
}

static void
bench(size_t w, int64_t elements, air_dtype dtype, const char *isa)
{
    region_case c;
    int64_t width = works[w].width ? works[w].width : elements;
    int64_t rows = elements / width ? elements / width : 1;
    case_init(&c, works[w].walk, 2, (int64_t[]){rows, width}, 1);
    works[w].make(&c, dtype);
    c.rg.stream = (uint64_t)elements * 12 > (32u << 20);
    air_code code;
    const char *reason;
    double from = base_work_now();
    if (codegen_region(&base_libc_alloc, &c.rg, isa, &code, &reason) != AIR_OK)
        code = (air_code){0};
    double compile = base_work_now() - from;
    double n = (double)(rows * width) / 1e9;
    double tiles = measure(&c, NULL, isa) / n;
    double native = code.bytes ? measure(&c, &code, isa) / n : 0;
    printf("%-16s %-4s %9lld  tiles %7.3f  code %7.3f ns  (%zu bytes, %.0f "
           "us)\n",
           works[w].name, dtype == AIR_F32 ? "f32" : "bf16",
           (long long)elements, tiles, native, code.size, compile * 1e6);
    fflush(stdout);
    codegen_free(&base_libc_alloc, &code);
    case_free(&c);
}

int
main(int argc, char **argv)
{
    static const int64_t sizes[] = {4096, 65536, 1 << 20, 1 << 24};
    const char *isa = argc > 1 ? argv[1] : "avx2";
    for (size_t w = 0; w < sizeof works / sizeof *works; w++)
        for (int d = 0; d < 2; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                bench(w, sizes[s], d ? AIR_BF16 : AIR_F32, isa);
    return 0;
}

bool
test_fail(const char *file, int line, const char *fmt, ...)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, fmt);
    return false;
}

bool
test_int(const char *file, int line, const char *text, long long got,
         long long want)
{
    return got == want || test_fail(file, line, "%s", text);
}
