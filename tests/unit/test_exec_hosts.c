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
