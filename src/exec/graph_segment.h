/* graph_segment.h: the segments of a graph pool and the chunks they are cut
 * into. All with the pool's mutex held; sizes are bytes, multiples of
 * EXEC_ALIGN. */
#ifndef EXEC_GRAPH_SEGMENT_H
#define EXEC_GRAPH_SEGMENT_H

#include "exec/graph_pool.h"

/* Free lists: a power of two each. */
#define GRAPH_BINS 64

typedef struct graph_segment {
    struct graph_segment *next;
    struct graph_chunk *first;
    char *data;
    size_t size;
    uint64_t tick; /* when it was last used */
    bool small;
} graph_segment;

typedef struct graph_chunk {
    exec_block block; /* first: a block is its chunk */
    graph_segment *segment;
    struct graph_chunk *left, *right; /* neighbours in the segment */
    struct graph_chunk *next, *prev; /* in the free list; next: spare headers */
    uint64_t generation;
    bool free, scratch;
} graph_chunk;

struct air_graph_pool {
    exec_pool *base;
    air_graph_pool *next; /* of the base's list */
    int64_t id[2];
    long refs; /* the list's mutex */
    pthread_mutex_t mutex;
    bool closed; /* refs is 0; goes with the last live block */
    graph_segment *segments;
    struct {
        graph_chunk *bins[GRAPH_BINS];
        uint64_t used; /* bit: the bin has one */
    } free[2];         /* large, small */
    graph_chunk *spare;
    uint64_t live_blocks, live_bytes, scratch_bytes, mapped_bytes;
    uint64_t largest_bytes, captures, generation, tick;
};

/* A chunk of `size` bytes that is in no list, from a new segment where no free
 * one is large enough; larger where there was no memory to cut it. */
air_status graph_chunk_take(air_graph_pool *pool, size_t size,
                            graph_chunk **out);
/* The same where the bytes at `data` lie free; NULL: they do not. */
graph_chunk *graph_chunk_take_at(air_graph_pool *pool, const char *data,
                                 size_t size);
/* Gives it back: it and its free neighbours become one. */
void graph_chunk_put(air_graph_pool *pool, graph_chunk *c);
/* Bytes that may be mapped: the largest capture beside what is held. */
uint64_t graph_segments_bound(const air_graph_pool *pool);
/* Frees unused segments, the oldest first, while more than `most` is mapped;
 * only those not used since `before`. */
void graph_segments_trim(air_graph_pool *pool, uint64_t most, uint64_t before);
/* Frees the headers of chunks, all of which are free, and leaves the segments
 * to graph_segments_unmap, which the pool need not outlive: it may close the
 * device. */
graph_segment *graph_segments_forget(air_graph_pool *pool);
void graph_segments_unmap(exec_pool *base, graph_segment *segments);

#endif
