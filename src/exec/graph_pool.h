/* graph_pool.h: memory that captures share.
 *
 * Segments of device memory, cut into chunks; neighbours that are free become
 * one again. A run takes its arena and its results and gives the arena back at
 * its end, so graphs that do not run at the same time lie on each other, and a
 * result keeps just its own bytes. Segments without a live chunk make room for
 * larger ones, or go back when nothing has needed them for long, as long as the
 * rest holds the largest capture beside what is live. */
#ifndef EXEC_GRAPH_POOL_H
#define EXEC_GRAPH_POOL_H

#include "exec/exec.h"

air_status exec_graph_pool_create(exec_pool *base, const int64_t *id,
                                  air_graph_pool **out);
air_status exec_graph_pool_find(exec_pool *base, const int64_t *id,
                                air_graph_pool **out);
void exec_graph_pool_retain(air_graph_pool *pool);
void exec_graph_pool_release(air_graph_pool *pool);
/* A block with one reference; scratch: until the end of a run. */
air_status exec_graph_pool_get(air_graph_pool *pool, size_t size, bool scratch,
                               exec_block **out);
/* The same of the memory at `data`; *out NULL where it is not free. */
void exec_graph_pool_get_at(air_graph_pool *pool, size_t size, const void *data,
                            exec_block **out);
/* A capture of this many bytes begins (+1) or ends (-1) to be. */
void exec_graph_pool_expect(air_graph_pool *pool, size_t bytes, int captures);
void exec_graph_pool_mark_step(air_graph_pool *pool);
void exec_graph_pool_trim(air_graph_pool *pool);
void exec_graph_pool_stats(air_graph_pool *pool, air_graph_pool_stats *out);
/* Adds what all graph pools of the base hold. */
void exec_graph_pools_add(exec_pool *base, air_pool_stats *out);
void exec_graph_pools_trim(exec_pool *base);

#endif
