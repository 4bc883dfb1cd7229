/* fused.h: one call of air::fused_attention, resolved: which rows of which
 * batch see which rows of the cache, where these lie, and what they are worth.
 * Kernels of any driver read the call through it; positions of the call's
 * arguments appear in fused.c and here only.
 *
 * Lengths, block numbers and paddings are data: they are cut to what memory
 * holds, never trusted. */
#ifndef REF_FUSED_H
#define REF_FUSED_H

#include "driver/ref/args.h"

#define FUSED_FAR (INT64_MAX / 4) /* a band that reaches everything */

typedef enum { FUSED_KEY, FUSED_VALUE, FUSED_ROPE } fused_part;

/* Positions in the schema that a kernel looks at before it takes a call. */
enum {
    FUSED_QUERY,
    FUSED_KEYS,
    FUSED_VALUES,
    FUSED_QUERY_ROPE,
    FUSED_KEY_ROPE,
    FUSED_KEY_PREFIX = 17,
    FUSED_VALUE_PREFIX = 18
};

/* Rows of a cache [batch | block, head, token, width] and what turns its
 * integers into numbers, [batch | block or 1, head or 1, token or 1, width or
 * 1] each: (x + offset) * scale. */
typedef struct {
    ref_tensor rows, prefix; /* prefix: [1, head, token, width] or absent */
    ref_tensor scale, offset;
    int64_t width; /* elements of a row; 8 to an AIR_I32 */
} fused_cache;

typedef struct {
    ref_tensor query, query_rope, pse, mask, table;
    ref_tensor query_scale, weight_scale, sink;
    ref_tensor query_lens, key_lens, prefix_lens, query_padding, key_padding;
    fused_cache parts[3];
    ref_tensor out;  /* in the order of the query's axes */
    ref_tensor sums; /* [batch, head, row, 1], whatever lies in memory */
    const air_call *call;
    int64_t batches, heads, kv_heads, share;
    int64_t rows, keys;         /* of a batch at most */
    int64_t depth, rope, width; /* of a query, of its rope part, of a result */
    int64_t page;               /* tokens of a block, 0: no blocks */
    int64_t pre, next;
    int sparse;
    bool packed, paged_scales;
    double scale;
} fused;

/* Batch b of it. Query i of it, i < rows, is row first + i of the tensors;
 * key j < prefix is row j of the prefix, a later one token j - prefix +
 * key_first. Query i sees key j where -pre <= j - i <= next. */
typedef struct {
    int64_t b, at;                   /* at: index of the query's batch axis */
    int64_t first, rows, begin, end; /* rows [begin, end) belong to it */
    int64_t key_first, keys, prefix;
    int64_t pre, next, squares; /* squares: of the rows of earlier batches */
} fused_batch;

fused fused_read(const air_call *call, const air_task *task);
/* Of a call whose tensors have no address yet: queries that share a key head,
 * of a batch at most, elements of a query with its rope part, of a value. */
void fused_sizes(const air_call *call, int64_t *rows, int64_t *depth,
                 int64_t *width);
/* Keys of a batch at most, prefix and all. */
int64_t fused_most_keys(const air_call *call);
fused_batch fused_batch_at(const fused *f, int64_t b);
/* The row of a part; *run (may be NULL): how many keys from j on lie in one
 * piece, a stride apart. */
char *fused_row(const fused *f, const fused_batch *b, fused_part part,
                int64_t head, int64_t j, int64_t *run);
/* The tensor that it is in: the prefix lies as it likes. */
const ref_tensor *fused_piece(const fused *f, const fused_batch *b,
                              fused_part part, int64_t j);
/* Element e of the row of t at p, as it is stored. */
double fused_stored(const ref_tensor *t, const char *p, int64_t e);
/* Element e of a scale or an offset for key j. */
double fused_factor(const fused *f, const fused_batch *b, const ref_tensor *t,
                    int64_t head, int64_t j, int64_t e);
char *fused_query(const ref_tensor *t, const fused_batch *b, int64_t head,
                  int64_t i);
/* What the numbers of a query row are multiplied by. */
double fused_query_factor(const fused *f, const fused_batch *b, int64_t head,
                          int64_t i);
/* Keys [*first, *end) that the band lets query i see. */
void fused_range(const fused_batch *b, int64_t i, int64_t *first, int64_t *end);
/* Row i of a mask or of what is added to scores, *stride bytes from column to
 * column, of which it has *count; NULL: it has no such row. */
const char *fused_bias_row(const ref_tensor *t, const fused_batch *b,
                           int64_t head, int64_t i, int64_t *stride,
                           int64_t *count);
/* Does the mask hide key j from query i? */
bool fused_hidden(const fused *f, const fused_batch *b, int64_t head, int64_t i,
                  int64_t j);
/* Added to the score. */
double fused_bias(const fused *f, const fused_batch *b, int64_t head, int64_t i,
                  int64_t j);

#endif
