/* Gradients of attention: each instruction set against the plain kernel, which
 * tests/python/test_attention.py compares with eager. */
#include "kernel_case.h"

#include "driver/cpu/attention/attention_backward.h"
#include "driver/ref/kernels.h"

#include <math.h>

typedef struct {
    const char *isa;
    air_kernel_fn run;
} kernel_set;

static const kernel_set sets[] = {
#if defined(__x86_64__)
    {"avx512", cpu_sdpa_backward_avx512},
    {"avx2", cpu_sdpa_backward_avx2},
#endif
    {"scalar", cpu_sdpa_backward_scalar},
};
#define EACH_SET(s) KCASE_EACH(kernel_set, s, sets)

enum { GRAD, Q, K, V, OUT, SUMS, MASK, DQ, DK, DV, PLAIN_DQ };

typedef struct {
    int64_t batch, heads, kv_heads, rows, keys, depth, width;
    int dtype, mask; /* mask: dtype, AIR_DTYPE_NONE for none */
    bool causal, projected;
    int threads;
} shape;

/* Stacks whose memory is [batch, rows, heads, width] where p->projected. */
static void
add(kernel_case *c, const shape *p, int64_t heads, int64_t rows, int64_t width)
{
    kcase_tensor(c, p->dtype, 4, (int64_t[]){p->batch, heads, rows, width},
                 p->projected ? (int[]){0, 2, 1, 3} : NULL, 0, 0);
}

static void
make_case(kernel_case *c, const shape *p)
{
    kcase_begin(c, (uint64_t)(p->rows * 3 + p->keys));
    add(c, p, p->heads, p->rows, p->width);    /* GRAD */
    add(c, p, p->heads, p->rows, p->depth);    /* Q */
    add(c, p, p->kv_heads, p->keys, p->depth); /* K */
    add(c, p, p->kv_heads, p->keys, p->width); /* V */
    add(c, p, p->heads, p->rows, p->width);    /* OUT */
    kcase_tensor(c, AIR_F32, 3, (int64_t[]){p->batch, p->heads, p->rows}, NULL,
                 0, 0);
    kcase_tensor(c, p->mask == AIR_DTYPE_NONE ? AIR_BOOL : p->mask, 4,
                 (int64_t[]){1, 1, p->rows, p->keys}, NULL, 0, 0);
    for (int i = 0; i < 2; i++) {
        add(c, p, p->heads, p->rows, p->depth);
        add(c, p, p->kv_heads, p->keys, p->depth);
        add(c, p, p->kv_heads, p->keys, p->width);
    }
}

static void
run_case(kernel_case *c, const shape *p, air_kernel_fn run,
         air_workspace_fn workspace, int first_out)
{
    air_arg none = {.kind = AIR_ARG_NONE};
    air_arg args[] = {kcase_arg(c, GRAD),
                      kcase_arg(c, Q),
                      kcase_arg(c, K),
                      kcase_arg(c, V),
                      kcase_arg(c, OUT),
                      kcase_arg(c, SUMS),
                      kcase_float(0),
                      kcase_int(p->causal),
                      p->mask == AIR_DTYPE_NONE ? none : kcase_arg(c, MASK),
                      none};
    air_call call = {10, 3, args, &c->t[first_out], NULL};
    kcase_run(c, run, workspace, &call, p->threads);
}

static double
difference(const kernel_case *c, int out)
{
    const air_tensor *t = &c->t[out];
    int64_t n = 1;
    double worst = 0, size = 1;
    for (int i = 0; i < 4; i++)
        n *= t->dims[i];
    for (int64_t i = 0; i < n; i++) {
        double got = kcase_get(c, out, i), want = kcase_get(c, out + 3, i);
        double err = fabs(got - want);
        worst = kcase_worse(worst, err);
        size = fmax(size, fabs(want));
    }
    return worst / size;
}

static void
check(const kernel_set *set, const shape *p)
{
    kernel_case c;
    make_case(&c, p);
    run_case(&c, p, set->run, cpu_sdpa_backward_workspace, DQ);
    run_case(&c, p, ref_sdpa_backward, ref_sdpa_backward_size, PLAIN_DQ);
    double limit = p->dtype == AIR_F32   ? 3e-6
                   : p->dtype == AIR_F16 ? 1e-3
                                         : 8e-3;
    for (int out = DQ; out <= DV; out++)
        if (!CHECK(difference(&c, out) <= limit))
            printf("  %s result %d, rows %d keys %d dtype %d mask %d: %g\n",
                   set->isa, out - DQ, (int)p->rows, (int)p->keys, p->dtype,
                   p->mask, difference(&c, out));
    kcase_end(&c);
}

static void
check_all(const kernel_set *set, shape p)
{
    static const int masks[] = {AIR_DTYPE_NONE, AIR_BOOL, AIR_F32};
    for (int mask = 0; mask < 3; mask++)
        for (int dtype = AIR_F32; dtype <= AIR_F16; dtype++) {
            if (dtype == AIR_F64)
                continue;
            p.mask = masks[mask];
            p.dtype = dtype;
            p.projected = (mask + dtype) % 2 == 0;
            p.causal = mask != 1 && dtype != AIR_BF16;
            p.threads = 1 + (mask + dtype) % 3;
            check(set, &p);
        }
}

TEST(sdpa_backward_sizes)
{
    EACH_SET(s)
    {
        check_all(s, (shape){2, 4, 4, 40, 40, 16, 16, .dtype = 0});
        check_all(s, (shape){1, 4, 2, 13, 150, 8, 24, .dtype = 0});
        check_all(s, (shape){1, 3, 1, 33, 17, 33, 17, .dtype = 0});
        check_all(s, (shape){1, 1, 1, 1, 1, 1, 1, .dtype = 0});
        check_all(s, (shape){3, 1, 1, 1, 300, 20, 5, .dtype = 0});
    }
}

/* The query of a row that sees nothing has gradient 0, whatever comes in. */
TEST(sdpa_backward_masked_row)
{
    EACH_SET(s)
    {
        shape p = {1, 1, 1, 5, 9, 8, 8, AIR_F32, AIR_BOOL, false, false, 1};
        kernel_case c;
        make_case(&c, &p);
        for (int64_t i = 0; i < 5 * 9; i++)
            kcase_put(&c, MASK, i, i >= 9);
        for (int64_t i = 0; i < 8; i++)
            kcase_put(&c, GRAD, i, (double)INFINITY);
        kcase_put(&c, SUMS, 0, 0);
        run_case(&c, &p, s->run, cpu_sdpa_backward_workspace, DQ);
        for (int64_t i = 0; i < 5 * 8; i++)
            CHECK(i < 8 ? kcase_get(&c, DQ, i) == 0
                        : isfinite(kcase_get(&c, DQ, i)));
        kcase_end(&c);
    }
}

TEST(sdpa_backward_refuses)
{
    kernel_case c;
    shape p = {1, 3, 2, 5, 9, 8, 8, AIR_F32, AIR_BOOL, false, false, 1};
    make_case(&c, &p); /* three query heads for two of keys */
    air_arg args[10];
    for (int i = 0; i < 10; i++)
        args[i] = kcase_arg(&c, i < 6 ? i : MASK);
    air_call call = {10, 3, args, &c.t[DQ], NULL};
    CHECK(!cpu_sdpa_backward_on_scalar(&call, "scalar"));
    kcase_end(&c);
}
