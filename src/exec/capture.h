/* capture.h: captures: a program bound to keys, and replayed.
 *
 *   capture.c         the rules: which capture a call takes, and whether it is
 *                     made, made again or refused
 *   capture_key.c     what calls are told apart by: bindings and keys
 *   capture_record.c  one capture: places of a specialisation, pointers
 *   replay.c          one call of it
 *   replay_graph.c    its graphs of the device, with HOST nodes in them
 *
 * The mutex of a capture guards its lists; a record that runs is kept by a
 * reference, so that it can be replaced or dropped meanwhile. */
#ifndef EXEC_CAPTURE_H
#define EXEC_CAPTURE_H

#include "exec/graph_pool.h"

/* Static inputs: a tuple of addresses, sizes and strides. */
struct air_binding {
    air_binding *next;
    size_t users; /* records, and who has bound it */
    base_arena arena;
    air_value *values; /* by input; others are empty */
};

/* Memory of results that are overwritten by the next call; what captures of
 * one program have of it lies on each other. */
typedef struct {
    exec_block *block;
    int users; /* records, and the capture */
} capture_area;

typedef enum {
    INPUT_PATCHED, /* its pointer goes into the slot */
    INPUT_COPIED,  /* into room behind the arena, or of its own */
    INPUT_FIRST    /* into the first call's tensor */
} capture_how;

typedef struct {
    uint32_t input;
    int32_t slot;
    capture_how how;
    bool written;
    bool pinned; /* PATCHED, and a graph reads it where it was: it is
                    copied from the first call on that finds it moved */
    void *data;  /* FIRST, written, pinned: what the capture saw */
    size_t bytes;
    size_t offset;     /* COPIED: in the arena; */
    exec_block *block; /* or all of this */
} capture_input;

/* A HOST node that may be in a graph, by segment. */
typedef struct {
    bool in_graph;
    uint8_t moves;          /* times that an operand lay elsewhere */
    char why[AIR_HOST_WHY]; /* it is in none; "": it may be */
} capture_host;

typedef struct {
    int32_t slot;
    size_t bytes, offset; /* offset: in the area; of a HOST result that is none
                             of the program: in the arena */
    const capture_host *left_by; /* HOST node that may be in a graph, or NULL */
    void *data;                  /* where a graph leaves it; NULL: in neither */
    void *last;                  /* where the last call had it; or NULL */
    exec_block *block;           /* that a result is part of then */
    uint8_t held; /* times that a call found the last result held */
    bool copied;  /* results are copies of what is at data */
} capture_block;

/* Where an operand of a recorded HOST node has to lie. */
typedef struct {
    size_t segment;
    int32_t slot;
    void *data;
} capture_pin;

/* What one run needs; kept for the next one. */
typedef struct capture_frame {
    struct capture_frame *next;
    exec_run run;
    exec_block *arena; /* while it runs, as run.area is held then */
} capture_frame;

typedef struct capture_record {
    struct capture_record *next;
    atomic_int refs;
    uint64_t graph, hash, used; /* used: tick of its last call */
    const air_binding *binding;
    int64_t *key;
    uint32_t warmups; /* so far */
    int32_t cube_cores, vector_cores;
    exec_spec *spec; /* NULL: warming up */
    base_arena arena;
    void **slots; /* static inputs are in place */
    capture_input *inputs;
    size_t ninputs;
    capture_block *blocks, *hosts; /* of results; of other HOST results */
    size_t nblocks, nhosts;
    size_t arena_bytes, area_bytes, need_bytes;
    exec_block *own_arena; /* keep_apart */
    capture_area *area;
    capture_frame *frames;
    /* runs take turns: static memory, or graphs of the device */
    bool serial;
    atomic_bool plain; /* the device cannot capture it */
    pthread_mutex_t mutex;
    air_device_graph **graphs; /* by segment */
    void **launched;           /* by segment: the slots its graph knows */
    bool captured;             /* graphs are there */
    bool ran;                  /* HOST nodes did, once, by themselves */
    capture_host *joins;       /* NULL: no HOST node may be in a graph */
    bool *joined;              /* by segment: in the graph of one before it */
    capture_pin *pins;
    size_t npins;
    uint32_t still; /* calls in a row in which all pins were there */
    bool *stays;    /* by slot: one of the pins is there */
    void *memory;   /* of recorded HOST nodes */
    void (*done)(void *user, void *token);
} capture_record;

struct air_capture {
    air_program *p;
    air_capture_options options;
    air_graph_pool *pool;
    pthread_mutex_t mutex;
    pthread_mutex_t telling; /* capture_host: runs write it, people read it */
    base_arena arena;
    bool *is_static;   /* by input */
    uint32_t *dynamic; /* the other inputs */
    size_t ndynamic, key_len, layout_len;
    air_binding *bindings;
    capture_record *records; /* latest first */
    size_t nrecords;
    uint64_t graphs, ticks; /* captured so far; calls that had a record */
    uint64_t dropped;       /* records that made room */
    capture_area *area;
    atomic_uint_fast64_t calls[AIR_CALL_COUNT], copied;
};

air_status exec_capture_create(air_program *p,
                               const air_capture_options *options,
                               air_capture **out);
void exec_capture_destroy(air_capture *c);
void exec_capture_reset(air_capture *c);
air_status exec_capture_bind(air_capture *c, const air_value *inputs,
                             const air_binding **out);
void exec_capture_unbind(air_capture *c, const air_binding *binding);
air_status exec_capture_run(air_capture *c, air_capture_call *call,
                            const air_host *host, size_t nin,
                            const air_value *inputs, size_t nout,
                            air_value *outs);
void exec_capture_stats(air_capture *c, air_capture_stats *out);

/* ---- capture_key.c ---- */

/* Numbers of inputs that are static and not. */
air_status capture_sort_inputs(air_capture *c);
air_status capture_write_key(const air_capture *c, const air_value *inputs,
                             int64_t *key, uint64_t *out_hash);
/* With the mutex held. */
void capture_binding_keep(air_capture *c, const air_binding *binding);
void capture_binding_drop(air_capture *c, const air_binding *binding);
void capture_free_bindings(air_capture *c);

/* ---- capture_record.c: with the capture's mutex held ---- */

/* A record that is not bound yet: it warms up. */
air_status capture_record_make(air_capture *c, const air_binding *binding,
                               const int64_t *key, uint64_t hash,
                               capture_record **out);
/* Binds it to these inputs: it can be replayed. A record that could not be
 * bound can only be freed. */
air_status capture_record_bind(air_capture *c, capture_record *r,
                               const air_capture_call *call,
                               const air_host *host, const air_value *inputs);
void capture_record_free(air_capture *c, capture_record *r);
void capture_area_drop(air_capture *c, capture_area *area);
/* A frame; its area is the one that somebody still holds, or the shared one. */
air_status capture_frame_take(air_capture *c, capture_record *r,
                              capture_frame **out);

/* ---- replay.c ---- */

air_status capture_replay(air_capture *c, capture_record *r,
                          capture_frame *frame, const air_host *host,
                          const air_value *inputs, air_value *outs);
/* Slots of what becomes results, again where they were filled before. */
air_status capture_fill_block(air_capture *c, exec_run *run,
                              const capture_block *b);
air_status capture_fill_blocks(air_capture *c, const capture_record *r,
                               exec_run *run);

/* ---- replay_graph.c ---- */

/* Rooms for the graphs of a record that has its specialisation, and which of
 * its HOST nodes may be in them. */
air_status capture_graphs_prepare(air_capture *c, capture_record *r,
                                  const air_host *host);
/* Recorded results that somebody still holds: all is recorded again, into other
 * memory; after a few times they are copied. Before slots are filled. */
air_status capture_graphs_leave(air_capture *c, capture_record *r,
                                exec_run *run);
/* Captures what is not, and again what has moved. */
air_status capture_graphs_make(air_capture *c, capture_record *r,
                               exec_run *run);
/* Forgets them: the run does without, or makes them again. */
air_status capture_graphs_again(air_capture *c, capture_record *r,
                                exec_run *run);
void capture_graphs_free(air_capture *c, capture_record *r);
void capture_graphs_print(air_capture *c, base_text *out);

/* Every input, static ones from the binding; in scratch. */
air_status capture_all_inputs(const air_capture *c, const air_binding *binding,
                              const air_value *inputs, base_arena *scratch,
                              air_value **out);

#endif
