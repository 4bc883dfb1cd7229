/* Copies outside of steps: every element is where its strides say. */
#include "exec/exec.h"
#include "test.h"

enum { ROOM = 1 << 17 };

static uint32_t
draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

/* Strides of the axes in some order, a gap behind some of them, some 0. */
static void
make_strides(uint32_t *state, int rank, const int64_t *dims, bool gaps,
             int64_t *out)
{
    bool placed[AIR_MAX_RANK] = {false};
    int64_t step = 1;
    for (int left = rank; left > 0; left--) {
        int axis = (int)draw(state, (uint32_t)rank);
        while (placed[axis])
            axis = (axis + 1) % rank;
        placed[axis] = true;
        out[axis] = step;
        step *= dims[axis] ? dims[axis] : 1;
        if (gaps && draw(state, 4) == 0)
            step += 3;
        if (gaps && draw(state, 8) == 0)
            out[axis] = 0;
    }
}

static int64_t
place(const exec_copy *c, const int64_t *strides, int64_t element)
{
    int64_t at = 0;
    for (int i = c->rank - 1; i >= 0; i--) {
        at += element % c->dims[i] * strides[i];
        element /= c->dims[i];
    }
    return at * c->size;
}

static void
copy_once(uint32_t seed)
{
    static uint8_t from[ROOM], to[ROOM];
    static const int64_t sizes[] = {1, 2, 4, 8, 16};
    const air_driver none = {.name = "none"};
    const air_context ctx = {.driver = &none};
    int64_t dims[AIR_MAX_RANK], a[AIR_MAX_RANK], b[AIR_MAX_RANK], count = 1;
    uint32_t state = seed;
    const int rank = (int)draw(&state, 5);
    for (int i = 0; i < rank; i++) {
        dims[i] = draw(&state, rank < 3 ? 70 : 9);
        count *= dims[i];
    }
    make_strides(&state, rank, dims, false, a);
    make_strides(&state, rank, dims, true, b);
    const exec_copy c = {&ctx, rank, dims, a, b, sizes[seed % 5]};
    for (int i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(draw(&state, 256) | 1);
    memset(to, 0, sizeof to);
    CHECK_OK(exec_copy_strided(&c, to, from));
    int64_t wrong = 0, written = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += memcmp(to + place(&c, a, i), from + place(&c, b, i),
                        (size_t)c.size) != 0;
    for (int i = 0; i < ROOM; i++)
        written += to[i] != 0;
    if (!CHECK_INT(wrong, 0) || !CHECK_INT(written, count * c.size))
        test_fail(__FILE__, __LINE__, "seed %u", seed);
}

TEST(copy_any_strides)
{
    for (uint32_t seed = 0; seed < 600; seed++)
        copy_once(seed);
}

/* Blocks, and what is left of them. */
TEST(copy_transposed)
{
    enum { ROWS = 67, COLS = 97 };
    static float from[ROWS * COLS], to[ROWS * COLS];
    const air_driver none = {.name = "none"};
    const air_context ctx = {.driver = &none};
    const int64_t dims[] = {ROWS, COLS}, dense[] = {COLS, 1},
                  turned[] = {1, ROWS};
    for (int i = 0; i < ROWS * COLS; i++)
        from[i] = (float)i;
    CHECK_OK(exec_copy_strided(&(exec_copy){&ctx, 2, dims, dense, turned, 4},
                               to, from));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            CHECK(to[r * COLS + c] == from[c * ROWS + r]);
}
