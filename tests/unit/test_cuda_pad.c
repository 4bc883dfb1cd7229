/* Products whose rows are no multiples of 16 bytes: copies of their matrices
 * have the product of the matrices themselves. */
#include "cuda_case.h"
#include "driver/cuda/blas_pad.h"

#include <string.h>

enum { M = 5, N = 11, K = 13, ROOM = 4096, POISON = 0xdead };

typedef struct {
    uint16_t w[ROOM], x[ROOM], y[ROOM], row[ROOM], area[4 * ROOM];
    cuda_matrix mw, mx, my;
} padded;

static cuda_matrix
matrix_of(bool transposed, int64_t outer, int64_t inner, int64_t more)
{
    const int64_t rows = transposed ? outer : inner;
    return (cuda_matrix){.rows = rows,
                         .columns = transposed ? inner : outer,
                         .ld = rows + more,
                         .transposed = transposed};
}

/* Element (outer, inner) of a matrix as PyTorch sees it. */
static uint16_t *
at(uint16_t *data, const cuda_matrix *m, int64_t outer, int64_t inner)
{
    return m->transposed ? &data[inner * m->ld + outer]
                         : &data[outer * m->ld + inner];
}

static int64_t
outer_of(const cuda_matrix *m)
{
    return m->transposed ? m->rows : m->columns;
}

static int64_t
inner_of(const cuda_matrix *m)
{
    return m->transposed ? m->columns : m->rows;
}

/* y = x w + row as the matrices say: with all that is behind them. */
static void
multiply(const uint64_t *p, const cuda_matrix *mw, const cuda_matrix *mx,
         const cuda_matrix *my)
{
    uint16_t *w = (void *)(uintptr_t)p[0], *x = (void *)(uintptr_t)p[1];
    uint16_t *y = (void *)(uintptr_t)p[2], *row = (void *)(uintptr_t)p[3];
    for (int64_t m = 0; m < outer_of(my); m++)
        for (int64_t n = 0; n < inner_of(my); n++) {
            unsigned sum = row[n];
            for (int64_t k = 0; k < outer_of(mw); k++)
                sum += (unsigned)*at(x, mx, m, k) * *at(w, mw, k, n);
            *at(y, my, m, n) = (uint16_t)sum;
        }
}

static void
begin(padded *p, bool w_turned, bool x_turned)
{
    for (int i = 0; i < 4 * ROOM; i++)
        p->area[i] = POISON;
    for (int i = 0; i < ROOM; i++) {
        p->w[i] = (uint16_t)(i % 7), p->x[i] = (uint16_t)(i % 5 + 1);
        p->row[i] = (uint16_t)(i % 3), p->y[i] = POISON;
    }
    p->mw = matrix_of(w_turned, K, N, 2);
    p->mx = matrix_of(x_turned, M, K, 0);
    p->my = matrix_of(false, M, N, 0);
}

static bool
has_whole_rows(const cuda_matrix *m)
{
    return m->ld % 8 == 0 && m->rows <= m->ld;
}

static void
check_form(cuda_case *f, bool w_turned, bool x_turned, int64_t rows)
{
    static padded p, q;
    cuda_pads pads;
    begin(&p, w_turned, x_turned);
    begin(&q, w_turned, x_turned);
    const uint64_t plain[] = {(uintptr_t)q.w, (uintptr_t)q.x, (uintptr_t)q.y,
                              (uintptr_t)q.row};
    multiply(plain, &q.mw, &q.mx, &q.my);

    uint64_t shared[] = {(uintptr_t)p.w, (uintptr_t)p.x, (uintptr_t)p.y,
                         (uintptr_t)p.row};
    const uint64_t area = (uintptr_t)p.area;
    cuda_pads_plan(&p.mw, &p.mx, &p.my, true, &pads);
    REQUIRE_OK(cuda_pads_share(f->dev, &pads, area, shared, NULL));
    for (int64_t i = 0; i < M; i += rows) {
        cuda_matrix mx = p.mx, my = p.my;
        uint64_t values[4];
        memcpy(values, shared, sizeof values);
        cuda_pads_cut(&mx, &my, M - i < rows ? M - i : rows);
        cuda_pads_plan(&p.mw, &mx, &my, true, &pads);
        CHECK(pads.bytes > 0 && pads.bytes <= sizeof p.area);
        CHECK(has_whole_rows(&pads.w.to) && has_whole_rows(&pads.x.to) &&
              has_whole_rows(&pads.y.to));
        cuda_pads_move(&pads, i, values);
        const uint64_t y = values[2];
        REQUIRE_OK(cuda_pads_fill(f->dev, &pads, area, values, NULL));
        multiply(values, &pads.w.to, &pads.x.to, &pads.y.to);
        REQUIRE_OK(cuda_pads_empty(f->dev, &pads, area, y, NULL));
    }
    CHECK(memcmp(p.y, q.y, sizeof p.y) == 0); /* and nothing behind it */
    CHECK(memcmp(p.w, q.w, sizeof p.w) == 0);
    CHECK(memcmp(p.x, q.x, sizeof p.x) == 0);
}

TEST(cuda_pads_do_not_change_a_product)
{
    cuda_case f;
    cuda_entered was;
    REQUIRE(cuda_case_prepare(&f));
    REQUIRE_OK(cuda_case_open(&f, &base_libc_alloc));
    REQUIRE_OK(cuda_enter(f.dev, &was));
    for (int form = 0; form < 4; form++)
        for (int64_t rows = 1; rows <= M; rows++)
            check_form(&f, form % 2 != 0, form / 2 != 0, rows);
    cuda_leave(f.dev, &was);
    cuda_case_drop(&f);
}

/* Copies have to pay; what lies well stays where it is. */
TEST(cuda_pads_are_for_large_products)
{
    const struct {
        int64_t m, n, k;
        bool w_turned, x_turned, w, x, y;
        int64_t rows;
    } cases[] = {
        {8192, 50257, 768, true, false, true, false, true, 1024}, /* logits */
        {8192, 768, 50257, false, false, true, true, false,
         1024}, /* gradient */
        {50257, 768, 8192, false, true, false, true, false,
         8192}, /* weight's */
        {600, 50257, 768, true, false, true, false, true, 600},
        {8192, 50264, 768, true, false, false, false, false, 0}, /* padded */
        {50257, 768, 8192, true, false, false, false, false, 0},
        {64, 50257, 768, true, false, false, false, false, 0}, /* few rows */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cuda_matrix w = matrix_of(cases[i].w_turned, cases[i].k, cases[i].n, 0);
        cuda_matrix x = matrix_of(cases[i].x_turned, cases[i].m, cases[i].k, 0);
        cuda_matrix y = matrix_of(false, cases[i].m, cases[i].n, 0);
        cuda_pads pads;
        const int64_t rows = cuda_pads_rows(&w, &x, &y, false);
        CHECK_INT(rows, cases[i].rows);
        if (rows == 0)
            continue;
        cuda_pads_cut(&x, &y, rows);
        cuda_pads_plan(&w, &x, &y, false, &pads);
        CHECK((pads.w.at >= 0) == cases[i].w);
        CHECK((pads.x.at >= 0) == cases[i].x);
        CHECK((pads.y.at >= 0) == cases[i].y);
        CHECK((pads.y.to.ld != y.ld) == cases[i].y);
        CHECK(pads.bytes <= (size_t)220 << 20);
    }
}
