/* test_share.c: rows that threads take as they get to them, and what threads
 * that wait fetch. */
#include "driver/cpu/ahead.h"
#include "driver/cpu/share.h"

#include "test.h"

enum { MOST = 70000, THREADS = 5 };

static uint8_t done[MOST]; /* times that a row was taken */

/* Threads come in an order of chance; thread `slow` never after its first part.
 * Gives how many rows thread 0 did. */
static int64_t
take_all(int64_t n, int64_t row_bytes, int count, bool shared, int slow)
{
    cpu_share threads[THREADS];
    int64_t taken = 0, mine = 0, b, e;
    uint32_t chance = 7;
    int left = count;
    bool over[THREADS] = {false};
    memset(done, 0, sizeof done);
    for (int i = 0; i < count; i++)
        threads[i] =
            cpu_share_make(n, row_bytes, i, count, shared ? &taken : NULL);
    while (left > 0) {
        chance = chance * 1664525 + 1013904223;
        int id = (int)(chance >> 16) % count;
        if (id == slow && left > 1 && threads[id].began)
            continue;
        if (over[id])
            continue;
        over[id] = !cpu_share_next(&threads[id], &b, &e);
        left -= over[id];
        for (int64_t r = b; !over[id] && r < e; r++)
            done[r]++;
        mine += id == 0 && !over[id] ? e - b : 0;
    }
    return mine;
}

static bool
each_once(int64_t n)
{
    for (int64_t r = 0; r < MOST; r++)
        if (done[r] != (r < n))
            return false;
    return true;
}

TEST(share_every_row_once)
{
    static const int64_t sizes[] = {0,   1,    3,    7,     96,    288,  289,
                                    767, 1000, 4099, 32000, 65537, 69999};
    static const int64_t bytes[] = {0, 1, 100, 1152, 8192, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++)
            for (int count = 1; count <= THREADS; count++)
                for (int shared = 0; shared < 2; shared++) {
                    (void)take_all(sizes[i], bytes[k], count, shared, -1);
                    CHECK(each_once(sizes[i]));
                }
}

TEST(share_others_do_what_a_slow_thread_leaves)
{
    CHECK_INT(take_all(32000, 1152, 2, true, 0), 8000);
    CHECK(each_once(32000));
    CHECK_INT(take_all(32000, 1152, 2, false, 0), 16000);
    CHECK(each_once(32000));
}

/* ---- what is fetched ---- */

static void
nothing(const air_call *call, const air_task *task)
{
    (void)call, (void)task;
}

static air_tensor
matrix(int32_t slot, int64_t rows, int64_t cols)
{
    return (air_tensor){.dtype = AIR_F32,
                        .rank = 2,
                        .dims = {rows, cols},
                        .strides = {cols, 1},
                        .offset = 256,
                        .slot = slot};
}

static bool
fetches(const cpu_fetch *f, const char *p, int64_t bytes)
{
    return f->p == p && f->end - f->p == bytes;
}

TEST(share_fetches_the_part_of_the_next_large_operand)
{
    static char x[4096], w[1 << 20];
    void *slots[] = {x, w};
    air_tensor a = matrix(0, 1, 512), b = matrix(1, 512, 256), gaps = b;
    air_arg args[] = {{.kind = AIR_ARG_TENSOR, .t = &a},
                      {.kind = AIR_ARG_TENSOR, .t = &b}};
    air_kernel kernel = {.name = "mm", .run = nothing};
    air_step step = {.kernel = &kernel, .call = {.nargs = 2, .args = args}};
    cpu_ahead steps[3] = {{0}};
    cpu_fetch f = {0};

    steps[1] = cpu_ahead_of(&step);
    CHECK_INT(steps[1].slot, 1);
    CHECK_INT(steps[1].bytes, 512 * 256 * 4);
    cpu_fetch_set(&f, steps, 0, 3, slots, 1, 2);
    CHECK(fetches(&f, w + 256 + (256 << 10), 128 << 10));
    while (cpu_fetch_some(&f))
        ;
    CHECK(f.p == f.end);
    cpu_fetch_set(&f, steps, 1, 3, slots, 1, 2); /* not again */
    CHECK(f.p == f.end);

    f = (cpu_fetch){0};
    cpu_fetch_set(&f, steps, 2, 3, slots, 0, 2); /* it is behind */
    CHECK(!cpu_fetch_some(&f));
    gaps.strides[0] = 300;
    args[1].t = &gaps;
    CHECK_INT(cpu_ahead_of(&step).slot, 0);
}
