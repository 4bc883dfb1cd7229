/* kern_attend.c: attention of few queries over many keys, text/decode.cuh, and
 * of any number of queries over few keys, text/attend.cuh. */
#include "driver/cuda/kern_call.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    CLUSTER = 8,
    WARPS = 8,
    QUERIES = 8, /* of a cluster; half of it where rows are wide */
    MOST_QUERIES = 16,
    WIDE = 128,
    SHORT = 2048 /* keys: what the warps of a cluster see in few turns */
};

/* sdpa(query, key, value, attn_mask, dropout_p, is_causal, *, scale, ...), or
 * air::attention, which gives the logarithms of the sums too. */
typedef struct {
    const air_tensor *q, *k, *v, *mask, *y, *sums; /* [batch,] heads, rows, e */
    int rank;
    int64_t batch, heads, kv, rows, keys, width;
    int queries; /* of a cluster */
    bool causal;
    double scale;
} attention;

static attention
read_attention(const air_call *call)
{
    attention a = {.q = kern_arg(call, 0),
                   .k = kern_arg(call, 1),
                   .v = kern_arg(call, 2),
                   .mask = kern_arg(call, 3),
                   .y = &call->outs[0],
                   .sums = call->nouts > 1 ? &call->outs[1] : NULL,
                   .causal = kern_int(call, 5, 0) != 0};
    a.rank = a.q->rank;
    if (a.rank < 3)
        return a;
    a.batch = a.rank > 3 ? a.q->dims[0] : 1;
    a.heads = a.q->dims[a.rank - 3], a.kv = a.k->dims[a.rank - 3];
    a.rows = a.q->dims[a.rank - 2], a.keys = a.k->dims[a.rank - 2];
    a.width = a.q->dims[a.rank - 1];
    a.scale = kern_float(call, 6, 1 / __builtin_sqrt((double)a.width));
    const int64_t shared = a.kv > 0 ? a.heads / a.kv * a.rows : 0;
    const int most = a.width > WIDE ? QUERIES / 2 : QUERIES;
    a.queries = shared < most ? (int)shared : most;
    return a;
}

static bool
is_dense_row(const air_tensor *t, int dtype)
{
    return t->dtype == dtype && t->strides[t->rank - 1] == 1;
}

bool
kern_decode_on(const air_call *call, const cuda_props *props)
{
    const attention a = read_attention(call);
    const int dtype = a.q->dtype;
    if (props->capability < 90 || a.rank < 3 || a.rank > 4 ||
        kern_float(call, 4, 0) != 0 || a.kv < 1 || a.heads % a.kv != 0)
        return false;
    const int64_t shared = a.heads / a.kv * a.rows;
    return (dtype == AIR_BF16 || dtype == AIR_F16) && shared >= 1 &&
           shared <= MOST_QUERIES && a.keys >= 1 && a.batch >= 1 &&
           a.batch * a.kv <= KERN_MOST_X / CLUSTER &&
           (a.width == 32 || a.width == 64 || a.width == 128 ||
            a.width == 256) &&
           a.v->dims[a.rank - 1] == a.width && is_dense_row(a.q, dtype) &&
           is_dense_row(a.k, dtype) && is_dense_row(a.v, dtype) &&
           is_dense_row(a.y, dtype) &&
           (!a.mask || a.mask->dtype == AIR_BOOL ||
            kern_is_float(a.mask->dtype));
}

/* ---- printing ------------------------------------------------------------ */

/* An accessor: `name(int n)` of query n. */
static void
print_of_query(kern *k, const attention *a, const char *type, const char *name,
               const char *base, const air_tensor *t)
{
    const int r = a->rank;
    base_text_add(k->text,
                  "    FN %s %s(int n) const { return %s + batch * %" PRId64
                  " + head(n) * %" PRId64 " + row(n) * %" PRId64 "; }\n",
                  type, name, base, r > 3 ? kern_stride(t, 0) : 0,
                  kern_stride(t, r - 3), kern_stride(t, r - 2));
}

static void
print_of_key(kern *k, const attention *a, const char *name, const char *base,
             const air_tensor *t)
{
    const int r = a->rank;
    base_text_add(k->text,
                  "    FN const T *%s(s64 j) const { return %s + batch * "
                  "%" PRId64 " + kv * %" PRId64 " + j * %" PRId64 "; }\n",
                  name, base, r > 3 ? kern_stride(t, 0) : 0,
                  kern_stride(t, r - 3), kern_stride(t, r - 2));
}

/* Where the mask of (n, j) lies. */
static void
print_mask(kern *k, const attention *a)
{
    const air_tensor *m = a->mask;
    if (!m) {
        base_text_add(k->text,
                      "    FN float mask(int, s64) const { return 0.f; }\n"
                      "    FN bool hint(s64) const { return true; }\n"
                      "    FN const void *hinted() const { return k + 0; }\n");
        return;
    }
    const bool is_bool = m->dtype == AIR_BOOL;
    const int r = m->rank;
    base_text_add(k->text,
                  "    FN const void *hinted() const { return cell(0, 0); }\n");
    base_text_add(
        k->text,
        "    FN const M *cell(int n, s64 j) const { return m + batch * "
        "%" PRId64 " + head(n) * %" PRId64 " + row(n) * %" PRId64
        " + j * %" PRId64 "; }\n",
        r > 3 ? kern_stride(m, r - 4) : 0, kern_stride(m, r - 3),
        kern_stride(m, r - 2), kern_stride(m, r - 1));
    base_text_add(k->text,
                  is_bool ? "    FN float mask(int n, s64 j) const { return "
                            "*cell(n, j) ? 0.f : -infinity(); }\n"
                            "    FN bool hint(s64 j) const { return "
                            "peek(cell(0, j)) != 0; }\n"
                          : "    FN float mask(int n, s64 j) const { return "
                            "get(*cell(n, j)); }\n"
                            "    FN bool hint(s64 j) const { return "
                            "is_seen(cell(0, j)); }\n");
}

static bool
is_wide(const air_tensor *t)
{
    bool wide = true;
    for (int i = 0; i + 1 < t->rank; i++)
        wide = wide && (t->dims[i] <= 1 || t->strides[i] % 8 == 0);
    return wide;
}

static void
print_site(kern *k, const attention *a, const char *type)
{
    const int64_t group = a->heads / a->kv;
    const int64_t all = group * a->rows;
    base_text_add(k->text,
                  "typedef %s T;\ntypedef %s M;\n"
                  "template <class Q, class Y, class K, class V>\n"
                  "struct site {\n"
                  "    Q q;\n    K k;\n    V v;\n    Y y;\n    const M *m;\n"
                  "    float *l;\n    s64 batch, kv;\n    int first;\n",
                  type, a->mask ? kern_type(a->mask->dtype) : "u8");
    base_text_add(
        k->text,
        "    FN int at(int n) const { return first + n < %" PRId64
        " ? first + n : %" PRId64 "; }\n"
        "    FN s64 head(int n) const { return kv * %" PRId64
        " + at(n) / %" PRId64 "; }\n"
        "    FN s64 row(int n) const { return at(n) %% %" PRId64 "; }\n"
        "    FN s64 plane() const { return batch * %" PRId64 " + kv; }\n"
        "    FN float scale() const { return %.9ef; }\n"
        "    FN bool causal() const { return %s; }\n"
        "    FN s64 keys() const { return %" PRId64 "; }\n"
        "    FN bool query_fast() const { return %s && aligned(q); }\n"
        "    FN bool key_fast() const { return %s && aligned(k) && "
        "aligned(v); }\n",
        all, all - 1, group, a->rows, a->rows, a->kv, a->scale,
        a->causal ? "true" : "false", a->keys, is_wide(a->q) ? "true" : "false",
        is_wide(a->k) && is_wide(a->v) ? "true" : "false");
    print_of_query(k, a, "Q", "query", "q", a->q);
    print_of_query(k, a, "Y", "out", "y", a->y);
    if (a->sums)
        print_of_query(k, a, "float *", "sum", "l", a->sums);
    else
        base_text_add(k->text,
                      "    FN float *sum(int) const { return nullptr; }\n");
    print_of_key(k, a, "key", "k", a->k);
    print_of_key(k, a, "value", "v", a->v);
    print_mask(k, a);
    base_text_add(k->text, "};\n");
}

/* How a family is entered. */
typedef struct {
    const char *prelude, *attribute;
    const char *open;          /* begins the body */
    const char *place, *first; /* key head of all batches; first query of it */
    bool parts;                /* takes `cells`; q and y may be words */
} entry;

enum { QUERY, KEY, VALUE, RESULT }; /* parameters */

/* Of heads one behind the other, in rows of theirs: a row of it can be words.
 */
static bool
has_planes(const attention *a, const air_tensor *t)
{
    const int r = a->rank;
    return a->width <= WIDE && t->strides[r - 1] == 1 &&
           t->strides[r - 2] == a->width &&
           t->strides[r - 3] == a->keys * a->width &&
           (a->batch == 1 || t->strides[0] == a->kv * a->keys * a->width);
}

/* The entry with its parameters, and `s`, whose queries begin at `first`. */
static kern
begin(cuda_source *out, const attention *a, const entry *e)
{
    const char *type = kern_type(a->q->dtype);
    kern k = {&out->text, NULL, false};
    base_text_add(&out->text, "using namespace call;\n");
    print_site(&k, a, type);
    k = kern_begin(out, e->prelude, e->attribute);
    kern_tensor(&k, type, "q", a->q); /* QUERY */
    kern_tensor(&k, type, "k", a->k);
    kern_tensor(&k, type, "v", a->v);
    kern_tensor(&k, type, "y", a->y); /* RESULT */
    if (a->mask)
        kern_tensor(&k, kern_type(a->mask->dtype), "m", a->mask);
    if (a->sums)
        kern_tensor(&k, "float", "l", a->sums);
    if (e->parts)
        kern_scratch(&k, "u64", "cells", 0);
    if (e->parts)
        k.launch->crossing = (unsigned)is_wide(a->q) << QUERY | 1U << RESULT;
    if (e->parts && has_planes(a, a->k) && has_planes(a, a->v))
        k.launch->rows = 1U << KEY | 1U << VALUE;
    kern_body(&k);
    base_text_add(k.text,
                  "%s"
                  "    const u32 z = %s;\n"
                  "    const site<decltype(q), decltype(y), decltype(k), "
                  "decltype(v)> s = {q, k, v, y, %s, %s, z / %" PRId64
                  ", z %% %" PRId64 ", %s};\n",
                  e->open, e->place, a->mask ? "m" : "nullptr",
                  a->sums ? "l" : "nullptr", a->kv, a->kv, e->first);
    return k;
}

air_status
kern_decode(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const attention a = read_attention(call);
    const int64_t all = a.heads / a.kv * a.rows;
    char first[40];
    (void)props;
    (void)snprintf(first, sizeof first, "(int)blockIdx.y * %d", a.queries);
    const entry e = {.prelude = kern_text_decode,
                     .attribute = "__cluster_dims__(8, 1, 1) ",
                     .open = "",
                     .place = "blockIdx.x / 8",
                     .first = first};
    kern k = begin(out, &a, &e);
    base_text_add(k.text, "    decode<T, %" PRId64 ", %d, %d>::run(s);\n}\n",
                  a.width, a.queries,
                  a.keys > SHORT && a.width <= WIDE ? 4 : 2);
    kern_grid(&k, CLUSTER * a.batch * a.kv, (all + a.queries - 1) / a.queries,
              0);
    return AIR_OK;
}

/* ---- few queries, without clusters --------------------------------------- */

enum {
    MOST_SPLITS = 16,
    SPLIT_KEYS = 128,  /* of a part, at least */
    MOST_APART = 8,    /* parts that a product puts together: 2, 4 or 8; */
    MOST_TAKEN = 65536 /* and bytes of them, which each of its blocks reads */
};

/* Blocks have a part of the keys each, for some queries of a key head. */
typedef struct {
    int queries;
    int64_t groups, heads, parts; /* of a key head; of all; of each of these */
} split;

static split
split_by(const attention *a, int queries)
{
    const int64_t all = a->heads / a->kv * a->rows;
    const int64_t groups = (all + queries - 1) / queries;
    return (split){queries, groups, a->batch * a->kv * groups, 1};
}

/* Parts of the keys: about one for each block. */
static split
split_together(const attention *a, const cuda_props *props)
{
    split s = split_by(a, a->queries);
    const int64_t keys = (a->keys + SPLIT_KEYS - 1) / SPLIT_KEYS;
    int64_t n = props->processors / s.heads;
    n = n < keys ? n : keys;
    s.parts = n < 1 ? 1 : n < MOST_SPLITS ? n : MOST_SPLITS;
    return s;
}

/* Do rows of the result lie behind each other? */
static bool
has_rows(const attention *a)
{
    for (int i = 0; i + 1 < a->rank; i++)
        if (a->y->dims[i] > 1 && a->y->strides[i] % a->width != 0)
            return false;
    return !a->sums;
}

/* Few parts, as each block of the product that takes them reads all of them,
 * and few queries a block, as each reads its keys. One part: there is no way.
 */
static split
split_apart(const attention *a, const cuda_props *props)
{
    const int64_t bytes = a->batch * a->heads * a->rows * a->width * 2;
    for (int n = MOST_APART; n > 1 && has_rows(a); n /= 2) {
        if (n * bytes > MOST_TAKEN || n * SPLIT_KEYS > a->keys ||
            n * 8 > a->width) /* lanes of the product for a row */
            continue;
        for (int q = 1; q < 2 * a->queries; q *= 2) {
            split s = split_by(a, q < a->queries ? q : a->queries);
            s.parts = n;
            if (s.heads * n <= props->processors)
                return s;
        }
    }
    return split_by(a, a->queries);
}

static size_t
bytes_of_cells(const attention *a, const split *s)
{
    return (size_t)(s->queries * (a->width + 2)) * 4;
}

/* Which of the two ways it goes, its result says. */
static void
print_ways(char *open, size_t size, const split *s, const split *apart,
           const cuda_props *props)
{
    (void)snprintf(
        open, size,
        "    constexpr bool APART = in_parts<decltype(y)>::value;\n"
        "    constexpr int QUERIES = APART ? %d : %d, SPLITS = APART ? %d : "
        "%d,\n"
        "        GROUPS = APART ? %d : %d, BLOCKS = APART ? %d : %d;\n"
        "    if (blockIdx.x >= BLOCKS)\n        await_memory();\n"
        "    for (u32 n = blockIdx.x; n < BLOCKS; n += gridDim.x) {\n"
        "    const u32 head = n / SPLITS;\n%s",
        apart->queries, s->queries, (int)apart->parts, (int)s->parts,
        (int)apart->groups, (int)s->groups, (int)(apart->heads * apart->parts),
        (int)(s->heads * s->parts),
        s->heads > props->processors ? "    __syncthreads();\n" : "");
}

air_status
kern_split(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const attention a = read_attention(call);
    const split s = split_together(&a, props), apart = split_apart(&a, props);
    const size_t cells = bytes_of_cells(&a, &s);
    const int64_t blocks = s.heads * s.parts;
    const int64_t others = apart.heads * apart.parts;
    char open[600];
    print_ways(open, sizeof open, &s, &apart, props);
    const entry e = {.prelude = kern_text_split,
                     .attribute = "",
                     .open = open,
                     .place = "head / GROUPS",
                     .first = "(int)(head % GROUPS) * QUERIES",
                     .parts = true};
    kern k = begin(out, &a, &e);
    base_text_add(k.text,
                  "    split<T, %" PRId64 ", QUERIES, SPLITS>::run(s, n %% "
                  "SPLITS, cells + head * %zu);\n"
                  "    }\n}\n",
                  a.width, (size_t)s.parts * cells / 4);
    if (apart.parts > 1) {
        k.launch->parts = 1U << RESULT;
        k.launch->nparts = (int32_t)apart.parts;
        k.launch->width = a.width;
    }
    const size_t most = bytes_of_cells(&a, &apart);
    kern_grid(&k, blocks > others ? blocks : others, 1,
              (uint32_t)(WARPS * (cells > most ? cells : most)));
    out->scratch = (size_t)blocks * cells * 2;
    return AIR_OK;
}

/* ---- any number of queries, on the matrix units -------------------------- */

enum { WARP_QUERIES = 16, FLASH_KEYS = 64, MOST_WARPS = 4 };

/* Of a group: two stages of keys and values. */
static uint32_t
flash_shared(const attention *a)
{
    return (uint32_t)(2 * 2 * FLASH_KEYS * (a->width + 8) * 2);
}

/* Warps of a block: as many as leave a block for each multiprocessor. */
static int
flash_warps(const attention *a, const cuda_props *props)
{
    const int64_t all = a->heads / a->kv * a->rows, heads = a->batch * a->kv;
    int warps = MOST_WARPS;
    while (warps > 1 &&
           heads * ((all + warps * WARP_QUERIES - 1) / (warps * WARP_QUERIES)) <
               props->processors)
        warps /= 2;
    return warps;
}

/* Groups that share a block's queries: where these are few, so that a block has
 * warps to hide what it waits for. */
static int
flash_splits(const attention *a, int warps, const cuda_props *props)
{
    const int64_t tiles = (a->keys + FLASH_KEYS - 1) / FLASH_KEYS;
    int splits = 1;
    while (2 * splits * warps <= MOST_WARPS && 2 * splits <= tiles &&
           2 * (size_t)splits * flash_shared(a) <= props->shared_bytes)
        splits *= 2;
    return splits;
}

static bool
is_attention_of(const attention *a, const air_call *call, int dtype)
{
    return a->rank >= 3 && a->rank <= 4 && kern_float(call, 4, 0) == 0 &&
           a->kv >= 1 && a->heads % a->kv == 0 && a->keys >= 1 &&
           a->v->dims[a->rank - 1] == a->width && is_dense_row(a->q, dtype) &&
           is_dense_row(a->k, dtype) && is_dense_row(a->v, dtype) &&
           is_dense_row(a->y, dtype) &&
           (!a->mask || a->mask->dtype == AIR_BOOL ||
            kern_is_float(a->mask->dtype));
}

bool
kern_flash_on(const air_call *call, const cuda_props *props)
{
    const attention a = read_attention(call);
    const int dtype = a.q->dtype;
    if ((dtype != AIR_BF16 && dtype != AIR_F16) ||
        !kern_has_dtype(dtype, props) || !is_attention_of(&a, call, dtype))
        return false;
    const int64_t all = a.heads / a.kv * a.rows;
    return a.width % WARP_QUERIES == 0 && a.width <= WIDE && all >= 1 &&
           a.batch >= 1 && a.batch * a.kv <= KERN_MOST_X &&
           (all + WARP_QUERIES - 1) / WARP_QUERIES <= KERN_MOST_Y &&
           flash_shared(&a) <= props->shared_bytes;
}

air_status
kern_flash(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const attention a = read_attention(call);
    const int64_t all = a.heads / a.kv * a.rows;
    const int warps = flash_warps(&a, props), block = warps * WARP_QUERIES;
    const int splits = flash_splits(&a, warps, props);
    char first[40];
    (void)snprintf(first, sizeof first, "(int)blockIdx.y * %d", block);
    const entry e = {.prelude = kern_text_flash,
                     .attribute = "",
                     .open = "",
                     .place = "blockIdx.x",
                     .first = first};
    kern k = begin(out, &a, &e);
    base_text_add(k.text,
                  "    const int left = %" PRId64 " - s.first;\n"
                  "    flash<T, %" PRId64
                  ", %d, %d>::run(s, left < %d ? left : %d);\n}\n",
                  all, a.width, warps, splits, block, block);
    k.launch->shape.block[0] = (uint32_t)(32 * warps * splits);
    kern_grid(&k, a.batch * a.kv, (all + block - 1) / block,
              (uint32_t)splits * flash_shared(&a));
    return AIR_OK;
}

/* ---- any number of queries ----------------------------------------------- */

enum { BLOCK = 32, FEW_KEYS = 512 /* beyond: flash attention is faster */ };

static uint32_t
attend_shared(const attention *a)
{
    return (uint32_t)((BLOCK * a->width + 2 * BLOCK * (a->width + 1)) * 4);
}

/* What a launch of text/attend.cuh can cover. */
static bool
is_launched(const attention *a, const cuda_props *props)
{
    const int64_t all = a->heads / a->kv * a->rows;
    return (all + BLOCK - 1) / BLOCK <= KERN_MOST_Y &&
           a->batch * a->kv <= KERN_MOST_X &&
           attend_shared(a) <= props->shared_bytes;
}

bool
kern_attend_on(const air_call *call, const cuda_props *props)
{
    const attention a = read_attention(call);
    const int dtype = a.q->dtype;
    return is_attention_of(&a, call, dtype) &&
           (dtype == AIR_F32 ||
            ((dtype == AIR_BF16 || dtype == AIR_F16) && a.keys <= FEW_KEYS)) &&
           kern_has_dtype(dtype, props) && a.width >= 1 && a.width <= 256 &&
           is_launched(&a, props);
}

air_status
kern_attend(const air_call *call, const cuda_props *props, cuda_source *out)
{
    const attention a = read_attention(call);
    const int64_t all = a.heads / a.kv * a.rows;
    (void)props;
    const entry e = {.prelude = kern_text_attend,
                     .attribute = "",
                     .open = "",
                     .place = "blockIdx.x",
                     .first = "(int)blockIdx.y * 32"};
    kern k = begin(out, &a, &e);
    base_text_add(k.text,
                  "    const int left = %" PRId64 " - s.first;\n"
                  "    attend<T, %" PRId64
                  ">::run(s, left < 32 ? left : 32);\n}\n",
                  all, a.width);
    kern_grid(&k, a.batch * a.kv, (all + BLOCK - 1) / BLOCK, attend_shared(&a));
    return AIR_OK;
}
