/* Kernels that move elements are compiled once per instruction set: the same
 * bits as the plain ones, also where vectors end. */
#include <string.h>

#include "air.h"
#include "driver/cpu/cpu.h"
#include "driver/ref/kernels.h"
#include "kernel_case.h"
#include "test.h"

enum { ROWS = 5, COLS = 203 };

static const char *const isas[] = {"scalar", "avx2", "avx512"};

/* The result of `name` by each instruction set is the one of `plain`. */
static void
check_isas(kernel_case *c, const char *name, ref_kernel *plain,
           const air_call *call)
{
    const air_tensor *out = &call->outs[0];
    const size_t bytes = ROWS * COLS * air_dtype_bytes(out->dtype);
    char *got = (char *)c->slots[out->slot] + out->offset;
    ref_kernel *before = plain;
    char *want = kcase_new(bytes);
    kcase_run(c, plain, NULL, call, 1);
    memcpy(want, got, bytes);
    for (int i = 0; i < 3; i++) {
        if (!kcase_has_isa(isas[i]))
            continue;
        const air_kernel *k = cpu_kernel_find(name, call, isas[i], CPU_OWN);
        CHECK(k->run != before);
        before = k->run;
        memset(got, 0x55, bytes);
        kcase_run(c, k->run, NULL, call, 2);
        CHECK(memcmp(got, want, bytes) == 0);
    }
    kcase_free(want, bytes);
}

TEST(moving_flips)
{
    static const uint8_t dtypes[] = {AIR_U8, AIR_BF16, AIR_F32, AIR_I64};
    static const int64_t dims[] = {ROWS, COLS}, axes[] = {1};
    for (size_t i = 0; i < sizeof dtypes; i++) {
        kernel_case c;
        kcase_begin(&c, 7 + i);
        const int self = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 3, 1);
        const int out = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 0, 0);
        air_arg args[] = {
            kcase_arg(&c, self),
            {.kind = AIR_ARG_INTS, .count = 1, .ints = axes},
        };
        air_call call = {2, 1, args, &c.t[out], NULL};
        check_isas(&c, "flip", ref_flip, &call);
        kcase_end(&c);
    }
}

TEST(moving_adds_rows)
{
    static const uint8_t dtypes[] = {AIR_BF16, AIR_F32, AIR_F64, AIR_I64};
    static const int64_t dims[] = {ROWS, COLS}, rows[] = {ROWS};
    for (size_t i = 0; i < sizeof dtypes; i++) {
        kernel_case c;
        kcase_begin(&c, 17 + i);
        const int self = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 0, 0);
        const int index = kcase_tensor(&c, AIR_I64, 1, rows, NULL, 0, 0);
        const int src = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 0, 0);
        const int out = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 0, 0);
        for (int64_t k = 0; k < ROWS; k++)
            kcase_put(&c, index, k, (double)(k * 3 % 4)); /* some twice */
        air_arg args[] = {kcase_arg(&c, self), kcase_int(0),
                          kcase_arg(&c, index), kcase_arg(&c, src),
                          kcase_int(1)};
        air_call call = {5, 1, args, &c.t[out], NULL};
        check_isas(&c, "index_add", ref_index_add, &call);
        kcase_end(&c);
    }
}

static void
check_gather(kernel_case *c, int self, int index, int out, int axis)
{
    air_arg args[] = {kcase_arg(c, self), kcase_int(axis), kcase_arg(c, index)};
    air_call call = {3, 1, args, &c->t[out], NULL};
    check_isas(c, "gather", ref_gather, &call);
}

/* Rows longer than a block of indices, of every size of element. */
TEST(moving_gathers_rows)
{
    static const uint8_t dtypes[] = {AIR_I8, AIR_BF16, AIR_F32, AIR_F64};
    static const int64_t dims[] = {ROWS, COLS};
    for (size_t i = 0; i < sizeof dtypes; i++) {
        kernel_case c;
        kcase_begin(&c, 27 + i);
        const int self = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 0, 0);
        const int index = kcase_tensor(&c, AIR_I64, 2, dims, NULL, 0, 0);
        const int out = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 0, 0);
        for (int64_t k = 0; k < ROWS * COLS; k++)
            kcase_put(&c, index, k, (double)(k * 7919 % COLS));
        check_gather(&c, self, index, out, 1);
        for (int64_t k = 0; k < ROWS * COLS; k++) {
            const int64_t from = k / COLS * COLS + k * 7919 % COLS;
            CHECK(kcase_get(&c, out, k) == kcase_get(&c, self, from));
        }
        kcase_end(&c);
    }
}

/* An index of a row's length that is broadcast along it: whole rows. */
TEST(moving_gathers_whole_rows)
{
    static const uint8_t dtypes[] = {AIR_I8, AIR_BF16, AIR_F32, AIR_F64};
    static const int64_t dims[] = {ROWS, COLS}, some[] = {ROWS, 1};
    for (size_t i = 0; i < sizeof dtypes; i++) {
        kernel_case c;
        kcase_begin(&c, 37 + i);
        const int self = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 0, 0);
        const int index = kcase_tensor(&c, AIR_I64, 2, some, NULL, 0, 0);
        const int out = kcase_tensor(&c, dtypes[i], 2, dims, NULL, 0, 0);
        for (int64_t k = 0; k < ROWS; k++)
            kcase_put(&c, index, k, (double)(k * 5 % ROWS));
        kcase_expand(&c, index, 1, COLS);
        check_gather(&c, self, index, out, 0);
        for (int64_t k = 0; k < ROWS * COLS; k++) {
            const int64_t from = k / COLS * 5 % ROWS * COLS + k % COLS;
            CHECK(kcase_get(&c, out, k) == kcase_get(&c, self, from));
        }
        kcase_end(&c);
    }
}
