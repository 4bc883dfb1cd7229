/* test_capture_hosts.c: HOST nodes in graphs of the device: what is recorded,
 * what runs by itself, and whose memory it is. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "capture_case.h"
#include "driver/wrap/wrap.h"
#include "hosts_case.h"

TEST(capture_hosts_are_in_one_graph)
{
    life l;
    if (hosts_open(&l, (application){0})) {
        hosts_check_call(&l, 4, 0); /* by themselves, once */
        hosts_check_call(&l, 0, 4);
        CHECK_INT(capture_double.foreign, 4);
        for (int i = 0; i < 5; i++)
            hosts_check_call(&l, 0, 0);
        CHECK_INT(capture_double.ends, 1);
        CHECK_INT(capture_double.launches, 6);
        CHECK_INT(hosts_app.live,
                  1); /* the graph's memory; results are let go */
        hosts_check_text(&l, "my::triple: in the graph\n"
                             "my::triple: in the graph\n"
                             "my::triple: in the graph\n"
                             "my::triple: in the graph\n");
    }
    hosts_close(&l);
}

TEST(capture_hosts_that_are_not_recorded_cut_the_graph)
{
    life l;
    if (hosts_open(&l, (application){.unrecorded = 1u << 2})) {
        hosts_check_call(&l, 4, 0);
        hosts_check_call(&l, 1, 3);
        hosts_check_call(&l, 1, 0);
        CHECK_INT(capture_double.ends, 2);
        hosts_check_text(&l, "my::triple: in the graph\n"
                             "my::triple: it draws\n"
                             "my::triple: in the graph\n"
                             "my::triple: in the graph\n");
    }
    hosts_close(&l);
    if (hosts_open(&l, (application){.refused = 1u << 1 | 1u << 4})) {
        hosts_check_call(&l, 4, 0);
        hosts_check_call(&l, 2, 2);
        hosts_check_call(&l, 2, 0);
        hosts_check_text(&l, "my::triple: not this one\n"
                             "my::triple: in the graph\n"
                             "my::triple: in the graph\n"
                             "my::triple: not this one\n");
    }
    hosts_close(&l);
}

/* Node 3 is recorded, and reads what node 1 leaves, elsewhere at each call. */
TEST(capture_hosts_read_what_others_left)
{
    life l;
    if (hosts_open(&l, (application){.unrecorded = 1u << 1, .own = 1u << 1})) {
        token *held[4];
        hosts_check_call(&l, 4, 0);
        hosts_check_call(&l, 1, 3);
        for (int i = 0; i < 4; i++) {
            held[i] = hosts_token_new(NULL); /* its address comes no more */
            hosts_check_call(&l, 1, 0);
        }
        for (int i = 0; i < 4; i++)
            hosts_done(NULL, held[i]);
    }
    hosts_close(&l);
}

/* Node 4 reads an input that is not dense, so that none has a copy of it. */
TEST(capture_hosts_whose_operands_move_are_recorded_again_thrice)
{
    life l;
    if (hosts_open(&l, (application){.strided = true})) {
        hosts_check_call(&l, 4, 0);
        for (int i = 0; i < 3; i++)
            hosts_check_call(&l, 0, 4);
        hosts_check_call(&l, 1, 3); /* without it */
        for (int i = 0; i < 3; i++)
            hosts_check_call(&l, 1, 0);
        hosts_check_text(
            &l, "my::triple: in the graph\n"
                "my::triple: in the graph\n"
                "my::triple: in the graph\n"
                "my::triple: an operand lies elsewhere at each call\n");
    }
    hosts_close(&l);
}

/* One call of `large`: x is the first or the second one, all of it `number`. */
static void
call_large(life *l, float *xs, int which, float number, air_value outs[3])
{
    float *x = xs + (size_t)which * LARGE, *y = xs + (size_t)2 * LARGE;
    for (int i = 0; i < LARGE; i++) {
        x[i] = number;
        y[i] = (float)(i % 3);
    }
    const air_value in[] = {TENSOR(x, LARGE), TENSOR(y, LARGE)};
    hosts_app.calls = hosts_app.records = 0;
    const size_t nout = hosts_app.text == hosts_large ? 2 : 3;
    outs[2] = (air_value){.alias = -1};
    if (!CHECK_OK(air_capture_run(l->capture, &l->call, &hosts_host, 2, in,
                                  nout, outs)))
        return;
    for (int i = LARGE - 3; i < LARGE; i++) {
        const double first = 3 * (double)number + i % 3;
        CHECK_NEAR(((float *)outs[0].data)[i], first, 0);
        CHECK_NEAR(((float *)outs[1].data)[i], 3 * first * (i % 3), 0);
        if (nout > 2)
            CHECK_NEAR(((float *)outs[2].data)[i], 3 * (double)number, 0);
    }
}

static void
check_large(life *l, float *xs, int which, long calls, long records)
{
    air_value outs[3];
    call_large(l, xs, which, (float)(++l->turn % 5), outs);
    CHECK_INT(hosts_app.calls, calls);
    CHECK_INT(hosts_app.records, records);
    for (int i = 0; i < 3; i++)
        air_value_release(&outs[i]);
}

/* By themselves, then recorded, then out of the graph. */
static void
check_first_large(life *l, float *xs)
{
    check_large(l, xs, 0, 2, 0);
    check_large(l, xs, 0, 0, 2);
    for (int i = 0; i < 3; i++)
        check_large(l, xs, 0, 0, 0);
}

static uint64_t
bytes_copied(const life *l)
{
    air_capture_stats stats;
    air_capture_get_stats(l->capture, &stats);
    return stats.copied_bytes;
}

/* Until it is seen to move; then it is copied, and nothing is recorded. */
TEST(capture_hosts_read_a_large_input_where_it_is)
{
    float *xs = calloc((size_t)3 * LARGE, sizeof *xs);
    life l;
    if (hosts_open(&l, (application){.text = hosts_large})) {
        check_first_large(&l, xs);
        CHECK_INT(bytes_copied(&l), 0);
        check_large(&l, xs, 1, 0, 2);
        for (int i = 0; i < 6; i++)
            check_large(&l, xs, i % 2, 0, 0);
        CHECK_INT(bytes_copied(&l), 7 * LARGE * sizeof *xs);
    }
    hosts_close(&l);
    free(xs);
}

/* Where results of others lie does not hang on who leaves a result. */
TEST(capture_hosts_leave_others_where_they_were)
{
    float *xs = calloc((size_t)3 * LARGE, sizeof *xs);
    life l;
    if (hosts_open(&l, (application){.text = hosts_large_given}))
        check_first_large(&l, xs);
    hosts_close(&l);
    free(xs);
}

/* A step that repeats finds results where they were. */
TEST(capture_hosts_read_results_of_the_program)
{
    float *xs = calloc((size_t)3 * LARGE, sizeof *xs);
    air_value held[3][3];
    life l;
    if (hosts_open(&l, (application){.text = hosts_large})) {
        check_first_large(&l, xs);
        for (int i = 0; i < 3; i++) /* the first one is where it was */
            call_large(&l, xs, 0, 1, held[i]);
        CHECK_INT(hosts_app.records, 2);
        check_large(&l, xs, 0, 1, 1); /* moved for the third time */
        for (int i = 0; i < 3; i++) {
            air_value_release(&held[i][0]);
            air_value_release(&held[i][1]);
        }
        check_large(&l, xs, 0, 1, 0);
        hosts_check_text(
            &l, "my::triple: in the graph\n"
                "my::triple: an operand lies elsewhere at each call\n");
    }
    hosts_close(&l);
    free(xs);
}

/* One that was held moves once: it stays there when the other place is free
 * again, and what was long ago does not count. */
TEST(capture_hosts_read_results_that_seldom_move)
{
    float *xs = calloc((size_t)3 * LARGE, sizeof *xs);
    air_value held[3];
    life l;
    if (hosts_open(&l, (application){.text = hosts_large})) {
        check_first_large(&l, xs);
        for (int i = 0; i < 5; i++) {
            call_large(&l, xs, 0, 1, held);
            check_large(&l, xs, 0, 0, 2);
            air_value_release(&held[0]);
            air_value_release(&held[1]);
            for (int k = 0; k < 20; k++)
                check_large(&l, xs, 0, 0, 0);
        }
        hosts_check_text(&l, "my::triple: in the graph\n"
                             "my::triple: in the graph\n");
    }
    hosts_close(&l);
    free(xs);
}

static const float *
first_left(const life *l)
{
    return l->outs[1].data;
}

/* Results lie in what was recorded, and stay there while nobody holds one. */
TEST(capture_hosts_give_what_was_recorded)
{
    life l;
    if (hosts_open(&l, (application){.text = hosts_given,
                                     .right = hosts_right_started})) {
        hosts_check_call(&l, 2, 0);
        hosts_app.holds = true;
        hosts_check_call(&l, 0, 2);
        const float *first = first_left(&l);
        hosts_give_back(&l);
        for (int i = 0; i < 5; i++) {
            hosts_check_call(&l, 0, 0);
            CHECK(first_left(&l) == first);
            hosts_give_back(&l);
        }
        CHECK_INT(hosts_app.live, 3); /* the graph's memory, both results */
    }
    hosts_close(&l);
}

/* Held by the next call: what is recorded goes elsewhere twice, then results
 * are copies of it. Others stay as they are. */
TEST(capture_hosts_leave_results_that_are_held)
{
    life l;
    if (hosts_open(&l, (application){.text = hosts_given,
                                     .right = hosts_right_started,
                                     .holds = true})) {
        float kept[N];
        hosts_check_call(&l, 2, 0);
        hosts_check_call(&l, 0, 2);
        for (int i = 0; i < 3; i++)
            hosts_check_call(&l, 0, 2);
        hosts_check_call(&l, 0, 0);
        air_value held = l.outs[1];
        memcpy(kept, held.data, sizeof kept);
        l.outs[1] = (air_value){.alias = -1};
        for (int i = 0; i < 3; i++)
            hosts_check_call(&l, 0, 0);
        CHECK(memcmp(kept, held.data, sizeof kept) == 0);
        hosts_end(&l); /* results outlive all */
        air_value_release(&held);
    }
    hosts_give_back(&l);
    CHECK_INT(hosts_app.live, 0);
    wrap_around(NULL);
}

/* A result that node 1 leaves anew at each call, which the graph reads. */
TEST(capture_hosts_read_results_that_others_left)
{
    life l;
    if (hosts_open(&l, (application){.text = hosts_given,
                                     .right = hosts_right_started,
                                     .unrecorded = 1u << 3,
                                     .own = 1u << 3,
                                     .holds = true})) {
        hosts_check_call(&l, 2, 0);
        hosts_check_call(&l, 1, 1);
        for (int i = 0; i < 6; i++) {
            hosts_check_call(&l, 1, i < 3);
            CHECK(hosts_app.live <= 5);
        }
        hosts_check_text(&l, "my::triple: it draws\n"
                             "my::triple: in the graph\n");
    }
    hosts_close(&l);
    /* Known too late to have a place for it. */
    if (hosts_open(&l, (application){.text = hosts_given,
                                     .right = hosts_right_started,
                                     .refused = 1u << 3,
                                     .own = 1u << 3,
                                     .holds = true})) {
        for (int i = 0; i < 5; i++)
            hosts_check_call(&l, 2, 0);
        hosts_check_text(&l, "my::triple: not this one\n"
                             "my::triple: it reads what another one leaves "
                             "anew\n");
    }
    hosts_close(&l);
}

/* What is on its way is read where it arrives, and not before. */
TEST(capture_hosts_read_what_was_waited_for)
{
    const application kind[] = {
        {.text = hosts_started, .right = hosts_right_started},
        {.text = hosts_awaited, .right = hosts_right_awaited}};
    for (int k = 0; k < 2; k++) {
        life l;
        if (hosts_open(&l, kind[k]))
            for (int i = 0; i < 6; i++)
                CHECK_OK(hosts_call(&l));
        hosts_close(&l);
    }
}

typedef struct {
    life *of;
    atomic_bool *over;
} reader;

static void *
read_hosts(void *user)
{
    const reader *r = user;
    char *got = NULL;
    while (!atomic_load(r->over)) {
        if (CHECK_OK(air_capture_print_hosts(r->of->capture, &got)))
            air_program_text_free(r->of->program, got);
    }
    return NULL;
}

/* calls: of the HOST node, run by run. */
static void
run_numbered(const char *reads, const int *calls)
{
    static const int ns[] = {2, 2, 2, -3, -3, 2};
    char text[256];
    life l;
    float x[N] = {1};
    (void)snprintf(text, sizeof text,
                   "sym n = [-9, 9]\n"
                   "graph f(n: int, %%x: f32[16]) {\n"
                   "  %%1: f32[16] = host \"my::triple\" 1 \"no row\" (%%x)%s\n"
                   "  %%2: f32[16] = mul.Tensor(%%1, n)\n"
                   "  return %%2\n"
                   "}\n",
                   reads);
    if (!hosts_open(&l, (application){.text = text}))
        return;
    for (int i = 0; i < 6; i++) {
        const air_value in[] = {{.is_int = true, .i = ns[i], .alias = -1},
                                TENSOR(x, N)};
        hosts_app.calls = 0;
        if (!CHECK_OK(air_capture_run(l.capture, &l.call, &hosts_host, 2, in, 1,
                                      l.outs)))
            break;
        CHECK_INT(hosts_app.calls, calls[i]);
        CHECK_NEAR(((float *)l.outs[0].data)[0], 3.0 * ns[i], 0);
        hosts_give_back(&l);
    }
    hosts_close(&l);
}

/* What a HOST node does with an integer of the call is recorded, too. */
TEST(capture_hosts_know_the_integers_they_are_told)
{
    run_numbered(" reads [n * 2]", (int[]){1, 0, 0, 1, 0, 0});
    run_numbered(" reads [n]", (int[]){1, 0, 0, 1, 0, 0});
}

TEST(capture_hosts_stay_where_others_read_an_integer)
{
    run_numbered("", (int[]){1, 0, 0, 0, 0, 0});
}

/* For TSan: people read while runs write. */
TEST(capture_hosts_are_shown_while_they_run)
{
    life l;
    if (hosts_open(&l, (application){.strided = true})) {
        atomic_bool over = false;
        pthread_t thread;
        reader r = {&l, &over};
        REQUIRE(pthread_create(&thread, NULL, read_hosts, &r) == 0);
        for (int i = 0; i < 50; i++)
            CHECK_OK(hosts_call(&l));
        atomic_store(&over, true);
        pthread_join(thread, NULL);
    }
    hosts_close(&l);
}

/* A device that captures no second graph: results of what was recorded in the
 * first one are read where they are then. */
TEST(capture_hosts_run_by_themselves_where_a_later_graph_fails)
{
    life l;
    if (hosts_open(&l, (application){.unrecorded = 1u << 2, .unable = 1})) {
        hosts_check_call(&l, 4, 0);
        hosts_check_call(&l, 4, 1);
        hosts_check_call(&l, 4, 0);
        CHECK_INT(hosts_app.live, 0);
    }
    hosts_close(&l);
}
