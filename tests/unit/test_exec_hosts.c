/* What HOST nodes leave: told from other memory, and given back when nobody
 * needs it. */
#include <stdlib.h>

#include "air.h"
#include "test.h"

enum { N = 64, NODES = 5 };

typedef struct {
    int alive, most; /* results */
    void *token[NODES];
    bool known[NODES]; /* the input of node i came as the token before */
} leaver;

/* By id: the input + 1, in memory that is gone with `done`. */
static air_status
leave(void *user, uint32_t id, size_t nin, const air_value *in, size_t nout,
      air_value *outs)
{
    leaver *l = user;
    const float *x = in[0].data;
    float *y = malloc(N * sizeof *y);

    CHECK(nin == 1 && nout == 1 && id < NODES);
    if (!y)
        return AIR_ERROR_MEMORY;
    for (int i = 0; i < N; i++)
        y[i] = x[i] + 1;
    l->known[id] = id > 0 && in[0].block && in[0].block == l->token[id - 1];
    CHECK(!in[0].block || l->known[id]);
    l->token[id] = outs[0].block = outs[0].data = y;
    l->alive++;
    l->most = l->alive > l->most ? l->alive : l->most;
    return AIR_OK;
}

static void
let_go(void *user, void *token)
{
    leaver *l = user;

    l->alive--;
    free(token);
}

static const char text[] = "graph f(%x: f32[64]) {\n"
                           "  %1: f32[64] = host \"l\" 0 \"\" (%x)\n"
                           "  %2: f32[64] = host \"l\" 1 \"\" (%1)\n"
                           "  %3: f32[64] = mul.Tensor(%2, 2.0)\n"
                           "  %4: f32[64] = host \"l\" 2 \"\" (%3)\n"
                           "  %5: f32[64] = host \"l\" 3 \"\" (%4)\n"
                           "  %6: f32[64] = host \"l\" 4 \"\" (%5)\n"
                           "  %7: f32[64] = add.Tensor(%6, %4)\n"
                           "  return %7\n"
                           "}\n";

static void
run_once(air_program *p, leaver *l, const air_value *in)
{
    const air_host host = {.user = l, .call = leave, .done = let_go};
    air_value out;

    if (!CHECK_OK(air_program_run(p, &host, 1, in, 1, &out)))
        return;
    for (int i = 0; i < N; i++)
        CHECK_NEAR(((const float *)out.data)[i], (2.0 * (i + 2) + 1) * 2 + 2,
                   0);
    air_value_release(&out);
}

TEST(exec_hosts_give_back_what_nobody_reads)
{
    float x[N];
    const int64_t dims[] = {N};
    const air_value in = air_value_tensor(x, AIR_F32, 1, dims);
    air_context *ctx = NULL;
    air_graph *graph = NULL;
    air_program *program = NULL;
    leaver l = {.alive = 0};

    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    if (CHECK_OK(air_context_create(&(air_options){.threads = 1}, &ctx)) &&
        CHECK_OK(air_graph_parse(ctx, text, strlen(text), &graph)) &&
        CHECK_OK(air_program_create(ctx, graph, NULL, &program)))
        for (int run = 0; run < 2; run++) {
            run_once(program, &l, &in);
            CHECK_INT(l.alive, 0);
        }
    CHECK_INT(l.most, 3); /* of nodes 2, 3 and 4: all are read again */
    CHECK(l.known[1] && l.known[3] && l.known[4] && !l.known[2]);
    air_program_destroy(program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
}

/* ---- the order in which they read ---- */

typedef struct {
    const char *op, *other; /* what %5, a number, is of */
    bool dense;
    double want; /* %5 */
} reading;

typedef struct {
    int64_t strides[3];
    float found[24]; /* in the order of what the node reads */
} reader;

/* Gives 1; of node 0 how it reads is noted. */
static air_status
read_in_order(void *user, uint32_t id, size_t nin, const air_value *in,
              size_t nout, air_value *outs)
{
    reader *r = user;
    const int64_t *s = in[0].strides;
    float *y = outs[0].data = malloc(sizeof *y);

    (void)nout;
    if (!CHECK(nin > 0 && in[0].rank == 3 && s && y))
        return AIR_ERROR_MEMORY;
    outs[0].block = y;
    *y = 1;
    if (id > 0)
        return AIR_OK;
    memcpy(r->strides, s, sizeof r->strides);
    for (int i = 0; i < 24; i++)
        r->found[i] =
            ((const float *)in[0]
                 .data)[i / 12 * s[0] + i / 3 % 4 * s[1] + i % 3 * s[2]];
    return AIR_OK;
}

static void
drop_result(void *user, void *token)
{
    (void)user;
    free(token);
}

static void
read_once(air_program *p, const reading *e)
{
    float x[24];
    const int64_t dims[] = {2, 3, 4};
    const air_value in = air_value_tensor(x, AIR_F32, 3, dims);
    reader r;
    const air_host host = {
        .user = &r, .call = read_in_order, .done = drop_result};
    air_value out;

    for (int i = 0; i < 24; i++)
        x[i] = (float)i;
    if (!CHECK_OK(air_program_run(p, &host, 1, &in, 1, &out)))
        return;
    CHECK_INT(r.strides[0], 12);
    CHECK_INT(r.strides[1], e->dense ? 3 : 1);
    CHECK_INT(r.strides[2], e->dense ? 1 : 4);
    for (int i = 0; i < 24; i++)
        CHECK_NEAR(r.found[i], -(i / 12 * 12 + i % 3 * 4 + i / 3 % 4 + 1), 0);
    CHECK_NEAR(*(const float *)out.data, 1 + e->want, 0);
    air_value_release(&out);
}

/* What a region makes lies as torch's operators read it, if nobody else does.
 */
TEST(exec_regions_write_in_the_order_of_hosts)
{
    static const reading cases[] = {
        {"convolution", "neg(%3)", true, -1},
        {"convolution", "sum.dim_IntList(%1, [0, 1, 2])", true, -300},
        {"my::op", "neg(%3)", false, -1},
        {"convolution", "host \"sort\" 1 \"\" (%1)", false, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char graph_text[512];
        air_context *ctx = NULL;
        air_graph *graph = NULL;
        air_program *program = NULL;
        (void)snprintf(graph_text, sizeof graph_text,
                       "graph f(%%x: f32[2, 3, 4]) {\n"
                       "  %%0: f32[2, 3, 4] = add.Tensor(%%x, 1)\n"
                       "  %%1: f32[2, 3, 4] = neg(%%0)\n"
                       "  %%2: f32[2, 4, 3] = permute(%%1, [0, 2, 1])\n"
                       "  %%3: f32[] = host \"%s\" 0 \"\" (%%2)\n"
                       "  %%5: f32[] = %s\n"
                       "  %%6: f32[] = add.Tensor(%%3, %%5)\n"
                       "  return %%6\n"
                       "}\n",
                       cases[i].op, cases[i].other);
        if (CHECK_OK(air_context_create(&(air_options){.threads = 1}, &ctx)) &&
            CHECK_OK(
                air_graph_parse(ctx, graph_text, strlen(graph_text), &graph)) &&
            CHECK_OK(air_program_create(ctx, graph, NULL, &program)))
            read_once(program, &cases[i]);
        air_program_destroy(program);
        air_graph_destroy(graph);
        air_context_destroy(ctx);
    }
}
