/* hosts_case.h: a capture of a graph with HOST nodes, and the application that
 * computes and records them, for tests. */
#ifndef HOSTS_CASE_H
#define HOSTS_CASE_H

#include "air.h"
#include "test.h"

enum { N = 16, LARGE = 1 << 18, ROOMS = 8, IDS = 5, START = 1, WAIT = 2 };

/* Graphs; what the first two give. */
extern const char hosts_started[], hosts_awaited[];
extern const char hosts_large[], hosts_given[], hosts_large_given[];
double hosts_right_started(double x, double y);
double hosts_right_awaited(double x, double y);

/* Memory of recorded results: a room is the next one's when it is done. */
typedef struct {
    float rooms[ROOMS][LARGE];
    bool taken[ROOMS];
    int users; /* the graph, and tokens of rooms */
} memory;

typedef struct {
    memory *of; /* NULL: the room itself is the token's */
    int room;
    float own[N], operand[N];
} token;

typedef struct {
    unsigned unrecorded, refused; /* by bit of id */
    unsigned own; /* leave memory of their own, never the same */
    bool strided; /* x is every other number of a block */
    long unable;  /* after so many records the device captures no more */
    long calls, records, at, fail_at; /* at: of both; fail_at: that one fails */
    bool holds;                       /* results until the next call is over */
    bool on_device;                   /* memory is the fake GPU's */
    const char *text;                 /* NULL: the first one */
    double (*right)(double x, double y);
    token *begun; /* what START has left, without its numbers */
    long live;    /* tokens */
} application;

extern application hosts_app;
extern const air_host hosts_host;
token *hosts_token_new(memory *of);
void hosts_done(void *user, void *token);

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_capture *capture;
    air_capture_call call;
    air_value outs[3];          /* of a call, given back by the next one */
    float x[2][2 * N], y[2][N]; /* a call takes the other ones */
    int turn;
} life;

/* With a device that captures; without anything left alive. */
bool hosts_open(life *l, application how);
void hosts_close(life *l);
air_status hosts_begin(life *l, const air_options *options);
void hosts_end(life *l); /* all tokens are done */
void hosts_give_back(life *l);
/* A call with other numbers, elsewhere; right where the device computes. */
air_status hosts_call(life *l);
/* Calls and records of the application by the next call. */
void hosts_check_call(life *l, long calls, long records);
void hosts_check_text(life *l, const char *want);

#endif
