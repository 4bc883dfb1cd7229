#include "driver/ref/fused.h"

/* Positions in the schema of air::fused_attention. */
enum {
    QUERY = FUSED_QUERY,
    KEY = FUSED_KEYS,
    VALUE = FUSED_VALUES,
    QUERY_ROPE = FUSED_QUERY_ROPE,
    KEY_ROPE = FUSED_KEY_ROPE,
    PSE,
    MASK,
    QUERY_LENS,
    KEY_LENS,
    PREFIX_LENS,
    BLOCK_TABLE,
    QUERY_SCALE,
    KEY_SCALE,
    KEY_OFFSET,
    VALUE_SCALE,
    VALUE_OFFSET,
    WEIGHT_SCALE,
    KEY_PREFIX = FUSED_KEY_PREFIX,
    VALUE_PREFIX = FUSED_VALUE_PREFIX,
    QUERY_PADDING,
    KEY_PADDING,
    SINK,
    QUERY_LIST,
    KEY_LIST,
    PREFIX_LIST,
    ORDER,
    SCALE,
    SPARSE_MODE,
    PRE_TOKENS,
    NEXT_TOKENS,
    PACKED,
    PAGED_SCALES
};

static int64_t
min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
clamp64(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* ---- reading the call ---------------------------------------------------- */

/* Elements of a row of a cache. */
static int64_t
row_width(const int64_t *dims, int rank, int dtype)
{
    return dims[3] * (rank == 5 ? dims[4] : dtype == AIR_I32 ? 8 : 1);
}

static fused_cache
read_cache(const air_call *call, const air_task *task, int rows, int prefix,
           int scale, int offset)
{
    fused_cache c = {.rows = ref_arg(call, rows, task)};
    const ref_tensor *t = &c.rows;
    if (prefix >= 0)
        c.prefix = ref_arg(call, prefix, task);
    if (scale >= 0)
        c.scale = ref_arg(call, scale, task);
    if (offset >= 0)
        c.offset = ref_arg(call, offset, task);
    if (t->dtype != AIR_DTYPE_NONE) /* of no tokens it has no address */
        c.width = row_width(t->dims, t->rank, t->dtype);
    return c;
}

/* The results with the axes of the query: out's own are a permutation. */
static void
open_results(fused *f, const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), sums = ref_out(call, 1, task);
    f->out = out, f->sums = sums;
    for (int i = 0; i < 4; i++) {
        int64_t axis = ref_ints(call, ORDER, i, i);
        f->out.dims[axis] = out.dims[i];
        f->out.strides[axis] = out.strides[i];
    }
    for (int i = 1; i < 3 && f->packed; i++) {
        f->sums.dims[i] = sums.dims[3 - i];
        f->sums.strides[i] = sums.strides[3 - i];
    }
}

/* Number i of lengths given as a tensor or as a list; -1: not given. One
 * stands for all. */
static int64_t
length(const fused *f, const ref_tensor *t, int list, int64_t i)
{
    if (t->data == NULL)
        return ref_ints(f->call, list, (int)i, -1);
    int64_t n = t->dims[0];
    if (n == 0)
        return -1;
    return ref_get_int(t->dtype, t->data + min64(i, n - 1) * t->strides[0]);
}

static int64_t
count(const fused *f, const ref_tensor *t, int list)
{
    return t->data != NULL ? t->dims[0] : ref_count(f->call, list);
}

static void
read_sizes(fused *f)
{
    const ref_tensor *q = &f->query, *k = &f->parts[FUSED_KEY].rows;
    f->heads = q->dims[1], f->kv_heads = k->dims[1];
    f->share = f->kv_heads > 0 ? f->heads / f->kv_heads : 0;
    f->rows = q->dims[2], f->depth = q->dims[3];
    f->rope = f->query_rope.data != NULL ? f->query_rope.dims[3] : 0;
    f->width = f->parts[FUSED_VALUE].width;
    f->page = f->table.data != NULL ? k->dims[2] : 0;
    f->keys = f->page > 0 ? f->table.dims[1] * f->page : k->dims[2];
    if (k->dims[0] == 0)
        f->keys = 0; /* no block that a number could name */
    f->batches = f->packed ? count(f, &f->query_lens, QUERY_LIST) : q->dims[0];
    if (f->page > 0)
        f->batches = min64(f->batches, f->table.dims[0]);
}

fused
fused_read(const air_call *call, const air_task *task)
{
    fused f = {.call = call,
               .query = ref_arg(call, QUERY, task),
               .query_rope = ref_arg(call, QUERY_ROPE, task),
               .pse = ref_arg(call, PSE, task),
               .mask = ref_arg(call, MASK, task),
               .table = ref_arg(call, BLOCK_TABLE, task),
               .query_scale = ref_arg(call, QUERY_SCALE, task),
               .weight_scale = ref_arg(call, WEIGHT_SCALE, task),
               .sink = ref_arg(call, SINK, task),
               .query_lens = ref_arg(call, QUERY_LENS, task),
               .key_lens = ref_arg(call, KEY_LENS, task),
               .prefix_lens = ref_arg(call, PREFIX_LENS, task),
               .query_padding = ref_arg(call, QUERY_PADDING, task),
               .key_padding = ref_arg(call, KEY_PADDING, task),
               .parts = {read_cache(call, task, KEY, KEY_PREFIX, KEY_SCALE,
                                    KEY_OFFSET),
                         read_cache(call, task, VALUE, VALUE_PREFIX,
                                    VALUE_SCALE, VALUE_OFFSET),
                         read_cache(call, task, KEY_ROPE, -1, -1, -1)},
               .sparse = (int)ref_int(call, SPARSE_MODE, 0),
               .pre = clamp64(ref_int(call, PRE_TOKENS, FUSED_FAR), -FUSED_FAR,
                              FUSED_FAR),
               .next = clamp64(ref_int(call, NEXT_TOKENS, FUSED_FAR),
                               -FUSED_FAR, FUSED_FAR),
               .packed = ref_int(call, PACKED, 0) != 0,
               .paged_scales = ref_int(call, PAGED_SCALES, 0) != 0,
               .scale = ref_float(call, SCALE, 1)};
    open_results(&f, call, task);
    read_sizes(&f);
    return f;
}

void
fused_sizes(const air_call *call, int64_t *rows, int64_t *depth, int64_t *width)
{
    const air_tensor *q = call->args[QUERY].t, *k = call->args[KEY].t;
    const air_arg *rope = &call->args[QUERY_ROPE];
    int64_t heads = k->dims[1] > 0 ? k->dims[1] : 1;
    *rows = (q->dims[1] + heads - 1) / heads * q->dims[2];
    *depth = q->dims[3];
    if (rope->kind == AIR_ARG_TENSOR)
        *depth += rope->t->dims[3];
    *width = row_width(call->args[VALUE].t->dims, call->args[VALUE].t->rank,
                       call->args[VALUE].t->dtype);
}

int64_t
fused_most_keys(const air_call *call)
{
    const air_arg *table = &call->args[BLOCK_TABLE];
    const air_arg *prefix = &call->args[KEY_PREFIX];
    int64_t keys = call->args[KEY].t->dims[2];
    if (table->kind == AIR_ARG_TENSOR)
        keys *= table->t->dims[1];
    if (prefix->kind == AIR_ARG_TENSOR)
        keys += prefix->t->dims[2];
    return keys;
}

/* ---- batches ------------------------------------------------------------- */

/* [*first, *first + *rows): part b of rows that follow each other. */
static void
packed_part(const fused *f, const ref_tensor *t, int list, int64_t b,
            int64_t all, int64_t *first, int64_t *rows)
{
    int64_t from = b == 0 ? 0 : clamp64(length(f, t, list, b - 1), 0, all);
    int64_t to = clamp64(length(f, t, list, b), from, all);
    *first = from, *rows = to - from;
}

/* The last `*rows` of `all`, without `pad` rows behind them; none where they
 * would begin before the first. */
static void
left_padded(const ref_tensor *t, int64_t all, int64_t *first, int64_t *rows)
{
    if (t->data == NULL)
        return;
    int64_t pad = ref_get_int(t->dtype, t->data);
    *first = all - (pad < 0 ? 0 : pad) - *rows;
    if (*first < 0)
        *first = 0, *rows = 0;
}

static void
find_queries(const fused *f, fused_batch *b)
{
    if (f->packed) {
        packed_part(f, &f->query_lens, QUERY_LIST, b->b, f->rows, &b->first,
                    &b->rows);
        b->begin = b->b == 0 ? 0 : b->first;
        b->end = b->b == f->batches - 1 ? f->rows : b->first + b->rows;
        return;
    }
    int64_t n = length(f, &f->query_lens, QUERY_LIST, b->b);
    b->at = b->b, b->end = f->rows;
    b->rows = n < 0 || f->rows == 1 ? f->rows : min64(n, f->rows);
    if (f->rows > 1)
        left_padded(&f->query_padding, f->rows, &b->first, &b->rows);
}

static void
find_keys(const fused *f, fused_batch *b)
{
    const ref_tensor *prefix = &f->parts[FUSED_KEY].prefix;
    if (f->packed && f->page == 0) {
        packed_part(f, &f->key_lens, KEY_LIST, b->b, f->keys, &b->key_first,
                    &b->keys);
    } else {
        int64_t n = length(f, &f->key_lens, KEY_LIST, b->b);
        b->keys = n < 0 ? f->keys : min64(n, f->keys);
        left_padded(&f->key_padding, f->keys, &b->key_first, &b->keys);
    }
    if (prefix->data == NULL)
        return;
    int64_t n = length(f, &f->prefix_lens, PREFIX_LIST, 0);
    b->prefix = n < 0 ? prefix->dims[2] : min64(n, prefix->dims[2]);
    b->keys += b->prefix;
}

/* Neither masks of rows nor bands mean anything for a single query. */
static void
find_band(const fused *f, fused_batch *b)
{
    int64_t more = b->keys - b->rows;
    bool padded = f->query_padding.data != NULL || f->key_padding.data != NULL;
    b->pre = b->next = FUSED_FAR;
    if (!f->packed && f->rows == 1 && f->rope == 0)
        return;
    switch (f->sparse) {
    case 0:
        if (f->mask.data != NULL && !padded)
            b->pre = f->pre, b->next = f->next;
        break;
    case 2: b->next = 0; break;
    case 3: b->next = more; break;
    case 4: b->pre = f->pre - more, b->next = f->next + more; break;
    default: break;
    }
}

fused_batch
fused_batch_at(const fused *f, int64_t b)
{
    fused_batch found = {.b = b};
    for (int64_t i = 0; f->sparse == 9 && f->mask.rank == 1 && i < b; i++) {
        fused_batch other = {.b = i};
        find_queries(f, &other);
        found.squares += other.rows * other.rows;
    }
    find_queries(f, &found);
    find_keys(f, &found);
    find_band(f, &found);
    return found;
}

void
fused_range(const fused_batch *b, int64_t i, int64_t *first, int64_t *end)
{
    *first = clamp64(i - b->pre, 0, b->keys);
    *end = clamp64(i + b->next + 1, *first, b->keys);
}

/* ---- addresses ----------------------------------------------------------- */

static char *
cell(const ref_tensor *t, int64_t a, int64_t b, int64_t c)
{
    return t->data + a * t->strides[0] + b * t->strides[1] + c * t->strides[2];
}

char *
fused_query(const ref_tensor *t, const fused_batch *b, int64_t head, int64_t i)
{
    return cell(t, b->at, head, b->first + i);
}

const ref_tensor *
fused_piece(const fused *f, const fused_batch *b, fused_part part, int64_t j)
{
    const fused_cache *c = &f->parts[part];
    return j < b->prefix ? &c->prefix : &c->rows;
}

/* The block of token t. */
static int64_t
block_of(const fused *f, const fused_batch *b, int64_t t)
{
    const ref_tensor *m = &f->table, *k = &f->parts[FUSED_KEY].rows;
    const char *p =
        m->data + b->b * m->strides[0] + t / f->page * m->strides[1];
    return clamp64(ref_get_int(m->dtype, p), 0, k->dims[0] - 1);
}

char *
fused_row(const fused *f, const fused_batch *b, fused_part part, int64_t head,
          int64_t j, int64_t *run)
{
    const fused_cache *c = &f->parts[part];
    int64_t left = b->keys - j, t = j - b->prefix + b->key_first;
    char *p;
    if (j < b->prefix) {
        left = b->prefix - j;
        p = cell(&c->prefix, 0, head, j);
    } else if (f->page > 0) {
        left = min64(left, f->page - t % f->page);
        p = cell(&c->rows, block_of(f, b, t), head, t % f->page);
    } else {
        p = cell(&c->rows, b->at, head, t);
    }
    if (run != NULL)
        *run = left;
    return p;
}

/* ---- numbers ------------------------------------------------------------- */

/* Four bits, the lowest first. */
static int64_t
nibble(const char *p, int64_t e)
{
    unsigned bits = (unsigned)ref_get_int(AIR_I32, p) >> (e % 8 * 4) & 15;
    return (int64_t)(bits ^ 8) - 8;
}

double
fused_stored(const ref_tensor *t, const char *p, int64_t e)
{
    if (t->rank == 5)
        return ref_get(t->dtype, p + e / t->dims[4] * t->strides[3] +
                                     e % t->dims[4] * t->strides[4]);
    if (t->dtype == AIR_I32)
        return (double)nibble(p + e / 8 * t->strides[3], e);
    return ref_get(t->dtype, p + e * t->strides[3]);
}

/* Axes of size 1 stand for all. */
static char *
shared_cell(const ref_tensor *t, const int64_t at[4])
{
    char *p = t->data;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] > 1)
            p += clamp64(at[i], 0, t->dims[i] - 1) * t->strides[i];
    return p;
}

double
fused_factor(const fused *f, const fused_batch *b, const ref_tensor *t,
             int64_t head, int64_t j, int64_t e)
{
    int64_t token = j - b->prefix + b->key_first;
    int64_t at[] = {b->b, head, token < 0 ? 0 : token, e};
    if (f->paged_scales) {
        at[0] = block_of(f, b, token);
        at[2] = token % f->page;
    }
    return ref_get(t->dtype, shared_cell(t, at));
}

double
fused_query_factor(const fused *f, const fused_batch *b, int64_t head,
                   int64_t i)
{
    int64_t at[] = {b->at, head, b->first + i, 0};
    if (f->query_scale.data == NULL)
        return 1;
    return ref_get(f->query_scale.dtype, shared_cell(&f->query_scale, at));
}

const char *
fused_bias_row(const ref_tensor *t, const fused_batch *b, int64_t head,
               int64_t i, int64_t *stride, int64_t *count)
{
    int64_t at[] = {b->b, head, i, 0};
    *count = t->dims[3], *stride = t->strides[3];
    return i < t->dims[2] ? shared_cell(t, at) : NULL;
}

/* Element [batch, head, i, j]; NULL where the tensor has none. */
static const char *
inside(const ref_tensor *t, const fused_batch *b, int64_t head, int64_t i,
       int64_t j)
{
    int64_t stride, n;
    const char *p = fused_bias_row(t, b, head, i, &stride, &n);
    return p != NULL && j < n ? p + j * stride : NULL;
}

bool
fused_hidden(const fused *f, const fused_batch *b, int64_t head, int64_t i,
             int64_t j)
{
    const char *p;
    if (f->mask.data == NULL)
        return false;
    if (f->sparse == 9 && (j -= b->keys - b->rows) < 0)
        return false; /* a mask of the last keys only */
    if (f->mask.rank == 1) {
        int64_t at = b->squares + i * b->rows + j;
        p = at < f->mask.dims[0] ? f->mask.data + at * f->mask.strides[0]
                                 : NULL;
    } else {
        p = inside(&f->mask, b, head, i, j);
    }
    return p == NULL || *p != 0; /* what it has not is hidden */
}

double
fused_bias(const fused *f, const fused_batch *b, int64_t head, int64_t i,
           int64_t j)
{
    const char *p = f->pse.data != NULL ? inside(&f->pse, b, head, i, j) : NULL;
    return p != NULL ? ref_get(f->pse.dtype, p) : 0;
}
