/* fuse_print.c: the text of a group of steps: text/skinny.cuh with a stage that
 * is a region, and results that regions and copies take. */
#include <stdio.h>
#include <string.h>

#include "driver/cuda/fuse_text.h"
#include "driver/cuda/touch.h"

/* Of the first weight. */
static int64_t
rows_of(const fuse_group *g)
{
    return fuse_product(g, 0)->outs[0].dims[1];
}

static bool
has_rows(const fuse_group *g)
{
    return g->m > 1;
}

/* ---- parameters ---------------------------------------------------------- */

static int
pointer(fuse_printer *p, const char *type, int32_t slot, int64_t offset)
{
    const int i = p->launch->nparams;
    base_text_add(&p->head, "%s%s *p%d", i > 0 ? ", " : "", type, i);
    p->launch->params[p->launch->nparams++] =
        (cuda_param){CUDA_PARAM_POINTER, slot, offset};
    return i;
}

/* The cache in the words of who writes it, and the index. */
static void
add_copy_pointers(fuse_printer *p, const fuse_copy *copy)
{
    const air_call *c = fuse_call(p->g, copy->step);
    const air_tensor *y = &c->outs[0], *index = c->args[2].t;
    char name[16];
    (void)snprintf(name, sizeof name, "air_%s", fuse_dtype(y->dtype));
    const int cache =
        pointer(p, fuse_region(p->g, copy->from) ? name : kern_type(y->dtype),
                y->slot, y->offset);
    if (index->dims[0] == 1 && kern_bytes(y->dtype) == 2)
        p->launch->rows |= 1U << cache;
    (void)pointer(p, kern_type(index->dtype), index->slot, index->offset);
}

static void
add_scale(fuse_printer *p, int step)
{
    const air_tensor *t = fuse_is_words(p->g)
                              ? kern_words_read(fuse_call(p->g, step)).scale
                              : NULL;
    p->scale[step] = -1;
    if (!t)
        return;
    p->scale[step] = pointer(p, kern_type(t->dtype), t->slot, t->offset);
    cuda_add_early(p->launch, t);
}

/* What vectors and results are read and written through can be words. */
static void
note_words(fuse_printer *p, int dtype, bool idle, int param)
{
    if (kern_bytes(dtype) == 2 && kern_is_float(dtype))
        p->launch->crossing |= 1U << param;
    if (idle)
        p->launch->idle |= 1U << param;
}

static void
add_pointers(fuse_printer *p)
{
    const fuse_group *g = p->g;
    const char *type = kern_type(g->dtype);
    char name[16];
    for (int s = 0; s < g->count; s++) {
        const air_region *rg = fuse_region(g, s);
        const air_call *c = fuse_call(g, s);
        p->first[s] = p->launch->nparams;
        for (int i = 0; rg && i < rg->nbufs; i++) {
            const air_rg_buf *b = &rg->bufs[i];
            (void)snprintf(name, sizeof name, "air_%s", fuse_dtype(b->dtype));
            note_words(p, b->dtype,
                       cuda_region_stores(rg, i) &&
                           !fuse_is_written(g, s, b->slot, b->offset),
                       pointer(p, name, b->slot, b->offset));
        }
        if (rg)
            continue;
        if (fuse_copy_of(g, s)) {
            add_copy_pointers(p, fuse_copy_of(g, s));
            continue;
        }
        (void)pointer(p, fuse_is_words(g) ? "u8" : type, c->args[1].t->slot,
                      c->args[1].t->offset);
        cuda_add_early(p->launch, c->args[1].t);
        note_words(p, g->dtype,
                   !fuse_is_written(g, s, c->outs[0].slot, c->outs[0].offset),
                   pointer(p, type, c->outs[0].slot, c->outs[0].offset));
        if (s == 0) {
            const int x =
                pointer(p, type, c->args[0].t->slot, c->args[0].t->offset);
            p->launch->parts = 1U << x;
            if (fuse_x_row(g) % 8 == 0)
                note_words(p, g->dtype, false, x);
        }
        add_scale(p, s);
    }
    if (g->ncopies > 0) {
        base_text_add(&p->head, ", call::fault *bad");
        p->launch->params[p->launch->nparams++] =
            (cuda_param){.kind = CUDA_PARAM_FAULT};
    }
}

/* ---- tiles --------------------------------------------------------------- */

/* Iterations of a tile of the part. */
static int
share(const fuse_printer *p, const fuse_part *part)
{
    return p->tile / part->loads;
}

static int64_t
tiles_of(const fuse_printer *p, const fuse_part *part)
{
    return (part->count + share(p, part) - 1) / share(p, part);
}

static int64_t
all_tiles(const fuse_printer *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->g->nparts; i++)
        n += tiles_of(p, &p->g->parts[i]);
    return n;
}

/* it: the iteration of row i, at most the last; c0, c1, ...: its index, for row
 * m of x or, of what is not of a row of x, the first one. */
static void
put_iteration(fuse_printer *p, const fuse_part *part, bool of_row)
{
    base_text_add(&p->body,
                  "            const int at = t * %d + i %% %d;\n"
                  "            const int it = at < %" PRId64 " ? at : %" PRId64
                  ";\n",
                  share(p, part), share(p, part), part->count, part->count - 1);
    if (part->region < 0)
        return;
    const air_region *rg = fuse_region(p->g, part->region);
    base_text_add(&p->body, "            int rest = it");
    if (of_row && has_rows(p->g))
        base_text_add(&p->body, " + m * %" PRId64, part->count);
    base_text_add(&p->body, ";\n");
    for (int a = rg->rank - 1; a >= 0; a--)
        base_text_add(&p->body,
                      "            const int c%d = rest %% %" PRId64
                      "; rest /= %" PRId64 ";\n",
                      a, rg->dims[a], rg->dims[a]);
}

/* The result that load `k` of the part takes. */
static void
put_column(fuse_printer *p, const fuse_part *part, int k)
{
    if (part->region < 0) {
        base_text_add(&p->body, "it");
        return;
    }
    const air_region *rg = fuse_region(p->g, part->region);
    const air_rg_buf *b = &rg->bufs[part->buf[k]];
    const air_tensor *y = &fuse_product(p->g, part->of[k])->outs[0];
    base_text_add(&p->body, "(%" PRId64,
                  (b->offset - y->offset) / (int64_t)kern_bytes(y->dtype));
    for (int a = 0; a < rg->rank; a++)
        if (rg->dims[a] > 1 && b->strides[a] != 0)
            base_text_add(&p->body, " + c%d * %" PRId64, a, b->strides[a]);
    base_text_add(&p->body, ")");
}

/* The same among results of all rows of x. */
static void
put_place_of_result(fuse_printer *p, const fuse_part *part, int k)
{
    put_column(p, part, k);
    if (part->region < 0 && has_rows(p->g))
        base_text_add(&p->body, " + m * %" PRId64, part->count);
}

static int
weight_of(const fuse_part *part, int k)
{
    return part->region < 0 ? part->weight : part->of[k];
}

/* Behind a pointer; -1: there is none. */
static void
put_row_at(fuse_printer *p, const fuse_part *part, int k, int at,
           int64_t stride)
{
    if (at < 0) {
        base_text_add(&p->body, "0");
        return;
    }
    base_text_add(&p->body, "p%d + (s64)", at);
    put_column(p, part, k);
    base_text_add(&p->body, " * %" PRId64, stride);
}

static void
put_row_of_weight(fuse_printer *p, const fuse_part *part, int k)
{
    const air_call *call = fuse_product(p->g, weight_of(part, k));
    const int step = p->g->before + weight_of(part, k);
    if (!fuse_is_words(p->g)) {
        put_row_at(p, part, k, p->first[step], call->args[1].t->strides[1]);
        return;
    }
    const kern_words_call c = kern_words_read(call);
    base_text_add(&p->body, "G::pointer{");
    put_row_at(p, part, k, p->first[step], c.w->dims[1]);
    base_text_add(&p->body, ", ");
    put_row_at(p, part, k, p->scale[step], c.groups);
    base_text_add(&p->body, ", 0}");
}

static void
put_rows(fuse_printer *p)
{
    base_text_add(&p->body,
                  "    auto row = [&](int t, int i) -> G::pointer {\n");
    for (int n = 0; n < p->g->nparts; n++) {
        const fuse_part *part = &p->g->parts[n];
        base_text_add(&p->body, "        if (t < %" PRId64 ") {\n",
                      tiles_of(p, part));
        put_iteration(p, part, false);
        base_text_add(&p->body, "            return ");
        if (part->loads == 2) {
            base_text_add(&p->body, "i < %d ? ", share(p, part));
            put_row_of_weight(p, part, 0);
            base_text_add(&p->body, " : ");
            put_row_of_weight(p, part, 1);
        } else {
            put_row_of_weight(p, part, 0);
        }
        base_text_add(&p->body, ";\n        }\n        t -= %" PRId64 ";\n",
                      tiles_of(p, part));
    }
    /* No tile is behind the last one: any row will do. */
    base_text_add(&p->body, "        return ");
    if (fuse_is_words(p->g))
        base_text_add(&p->body, "{}");
    else
        base_text_add(&p->body, "p%d", p->first[p->g->before]);
    base_text_add(&p->body, ";\n    };\n");
}

/* ---- copies ---------------------------------------------------------------
 */

/* ` + e / 64 % 8 * stride` for each axis of the tensor that is copied but one.
 */
static void
put_place(fuse_printer *p, const air_tensor *src, const air_tensor *to,
          int axis)
{
    int64_t below = 1;
    for (int i = src->rank - 1; i >= 0; i--) {
        if (i != axis && src->dims[i] > 1)
            base_text_add(&p->body,
                          " + (s64)(e / %" PRId64 " %% %" PRId64 ") * %" PRId64,
                          below, src->dims[i], to->strides[i]);
        below *= src->dims[i];
    }
}

static int64_t
elements_behind(const air_tensor *t, int axis)
{
    int64_t n = 1;
    for (int i = axis + 1; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

/* Element e of what is copied is `value`. */
static void
put_copy(fuse_printer *p, const fuse_copy *copy, const char *value)
{
    const air_call *c = fuse_call(p->g, copy->step);
    const air_tensor *to = &c->outs[0], *index = c->args[2].t;
    const air_tensor *src = fuse_copied(p->g, copy);
    const int axis = kern_axis(kern_int(c, 1, 0), to->rank);
    const int first = p->first[copy->step];
    if (index->dims[0] > 1)
        base_text_add(&p->body,
                      "                s64 j = p%d[e / %" PRId64 " %% %" PRId64
                      " * %" PRId64 "];\n",
                      first + 1, elements_behind(src, axis), src->dims[axis],
                      index->strides[0]);
    else
        base_text_add(&p->body, "                s64 j = h.j%d;\n", copy->step);
    base_text_add(&p->body,
                  "                const bool ok = inside(j, %" PRId64
                  ", bad);\n"
                  "                put_row(p%d, ok, 0",
                  to->dims[axis], first);
    put_place(p, src, to, axis);
    base_text_add(&p->body, ", j, %" PRId64 ", %s);\n", to->strides[axis],
                  value);
}

static bool
is_copy_wanted(const fuse_group *g, const fuse_copy *c)
{
    const air_tensor *to = &fuse_call(g, c->step)->outs[0];
    return fuse_is_written(g, c->step, to->slot, to->offset);
}

/* ---- results ------------------------------------------------------------- */

static bool
is_result_written(const fuse_group *g, int w)
{
    const air_tensor *y = &fuse_product(g, w)->outs[0];
    return fuse_is_written(g, g->before + w, y->slot, y->offset);
}

/* Result r of load k goes where the product's results are copied to. */
static void
put_result_copies(fuse_printer *p, const fuse_part *part, int k)
{
    const fuse_group *g = p->g;
    for (int i = 0; i < g->ncopies; i++) {
        const fuse_copy *c = &g->copies[i];
        if (c->from != g->before + weight_of(part, k) || !is_copy_wanted(g, c))
            continue;
        base_text_add(&p->body,
                      "            if (at == it && i / %d == %d) {\n"
                      "                const int e = ",
                      share(p, part), k);
        put_place_of_result(p, part, k);
        base_text_add(&p->body, ";\n");
        put_copy(p, c, "r");
        base_text_add(&p->body, "            }\n");
    }
}

static void
put_result(fuse_printer *p, const fuse_part *part, int k)
{
    const int w = weight_of(part, k);
    put_result_copies(p, part, k);
    if (!is_result_written(p->g, w))
        return;
    base_text_add(&p->body,
                  "            if (at == it && i / %d == %d)\n"
                  "                p%d[",
                  share(p, part), k, p->first[p->g->before + w] + 1);
    put_place_of_result(p, part, k);
    base_text_add(&p->body, "] = r;\n");
}

/* What the region reads beside results. */
static bool
is_wanted(const fuse_part *part, const air_rg_node *n)
{
    return n->op == AIR_RG_LOAD && n->buf != part->buf[0] &&
           (part->loads == 1 || n->buf != part->buf[1]);
}

/* The value of a store goes where the region's results are copied to. */
static void
put_store_copies(fuse_printer *p, const air_region *rg, const fuse_part *part,
                 int buf)
{
    const fuse_group *g = p->g;
    const air_rg_buf *b = &rg->bufs[buf];
    for (int i = 0; i < g->ncopies; i++) {
        const fuse_copy *c = &g->copies[i];
        const air_tensor *src = fuse_copied(g, c);
        if (c->from != part->region || !fuse_is_copied(b, src) ||
            !is_copy_wanted(g, c))
            continue;
        base_text_add(
            &p->body, "            {\n                const int e = %" PRId64,
            (b->offset - src->offset) / (int64_t)kern_bytes(src->dtype));
        fuse_put_offset(p, rg, buf, false);
        base_text_add(&p->body, ";\n");
        put_copy(p, c, "v");
        base_text_add(&p->body, "            }\n");
    }
}

static void
put_store(fuse_printer *p, const air_region *rg, const fuse_part *part,
          const air_rg_node *n)
{
    const air_rg_buf *b = &rg->bufs[n->buf];
    base_text_add(&p->body, "            {\n            const auto v = ");
    fuse_put_value(p, rg, n);
    if (fuse_is_written(p->g, part->region, b->slot, b->offset)) {
        base_text_add(&p->body, "            ");
        fuse_put_element(p, rg, n->buf, false);
        base_text_add(&p->body, " = v;\n");
    }
    put_store_copies(p, rg, part, n->buf);
    base_text_add(&p->body, "            }\n");
}

static void
put_result_node(fuse_printer *p, const air_region *rg, const fuse_part *part,
                int i)
{
    const air_rg_node *n = &rg->nodes[i];
    if (n->op == AIR_RG_CONST)
        return;
    if (n->op == AIR_RG_STORE) {
        put_store(p, rg, part, n);
        return;
    }
    base_text_add(&p->body, "            const %s n%d = ", fuse_type(n), i);
    if (n->op != AIR_RG_LOAD)
        fuse_put_call(p, rg, n);
    else if (is_wanted(part, n))
        base_text_add(&p->body, "%s::of(air_of_%s(h.n%d_%d))", fuse_lane(n),
                      fuse_dtype(rg->bufs[n->buf].dtype), part->region, i);
    else
        base_text_add(&p->body, n->buf == part->buf[0] ? "mine" : "other");
    base_text_add(&p->body, ";\n");
}

/* Results are what the product would have stored. */
static void
put_part(fuse_printer *p, const fuse_part *part)
{
    put_iteration(p, part, true);
    for (int k = 0; k < part->loads; k++)
        put_result(p, part, k);
    if (part->region < 0)
        return;
    const air_region *rg = fuse_region(p->g, part->region);
    p->step = part->region;
    base_text_add(&p->body, "            const float mine = get(r);\n");
    if (part->loads == 2)
        base_text_add(&p->body,
                      "            const float other = __shfl_xor_sync("
                      "0x%xu << (threadIdx.x & %d), mine, %d);\n",
                      (1U << p->tile) - 1, 32 - p->tile, share(p, part));
    base_text_add(&p->body,
                  "            if (at != it || i >= %d)\n"
                  "                return;\n",
                  share(p, part));
    for (int i = rg->phases[0].begin; i < rg->phases[0].end; i++)
        put_result_node(p, rg, part, i);
}

static void
put_results(fuse_printer *p)
{
    base_text_add(&p->body,
                  "    auto out = [&](int t, int i, int m, float v, "
                  "const held &h) {\n"
                  "        %s r;\n        put(&r, v);\n",
                  kern_type(p->g->dtype));
    for (int n = 0; n < p->g->nparts; n++) {
        base_text_add(&p->body, "        if (t < %" PRId64 ") {\n",
                      tiles_of(p, &p->g->parts[n]));
        put_part(p, &p->g->parts[n]);
        base_text_add(&p->body,
                      "            return;\n        }\n        t -= %" PRId64
                      ";\n",
                      tiles_of(p, &p->g->parts[n]));
    }
    base_text_add(&p->body, "    };\n");
}

/* ---- what results need, asked for before they are there -------------------
 */

static void
put_wanted_nodes(fuse_printer *p, const fuse_part *part, bool declare)
{
    const air_region *rg =
        part->region < 0 ? NULL : fuse_region(p->g, part->region);
    for (int i = 0; rg && i < rg->nnodes; i++) {
        const air_rg_node *n = &rg->nodes[i];
        if (!is_wanted(part, n))
            continue;
        if (declare) {
            base_text_add(&p->body, "        air_%s n%d_%d;\n",
                          fuse_dtype(rg->bufs[n->buf].dtype), part->region, i);
            continue;
        }
        base_text_add(&p->body, "            h.n%d_%d = ", part->region, i);
        fuse_put_element(p, rg, n->buf, false);
        base_text_add(&p->body, ";\n");
    }
}

static void
put_wanted_indices(fuse_printer *p, bool declare)
{
    for (int i = 0; i < p->g->ncopies; i++) {
        const fuse_copy *c = &p->g->copies[i];
        const air_tensor *index = fuse_call(p->g, c->step)->args[2].t;
        if (index->dims[0] > 1)
            continue;
        if (declare)
            base_text_add(&p->body, "        s64 j%d;\n", c->step);
        else
            base_text_add(&p->body, "        h.j%d = p%d[0];\n", c->step,
                          p->first[c->step] + 1);
    }
}

static void
put_wants(fuse_printer *p)
{
    base_text_add(&p->body, "    struct held {\n");
    put_wanted_indices(p, true);
    for (int n = 0; n < p->g->nparts; n++)
        put_wanted_nodes(p, &p->g->parts[n], true);
    base_text_add(&p->body, "    };\n"
                            "    auto want = [&](int t, int i, int m) {\n"
                            "        held h;\n");
    put_wanted_indices(p, false);
    for (int n = 0; n < p->g->nparts; n++) {
        const fuse_part *part = &p->g->parts[n];
        base_text_add(&p->body, "        if (t < %" PRId64 ") {\n",
                      tiles_of(p, part));
        put_iteration(p, part, true);
        p->step = part->region;
        put_wanted_nodes(p, part, false);
        base_text_add(&p->body,
                      "            return h;\n        }\n        t -= %" PRId64
                      ";\n",
                      tiles_of(p, part));
    }
    base_text_add(&p->body, "        return h;\n    };\n");
}

/* ---- the launch ---------------------------------------------------------- */

static void
put_run(fuse_printer *p)
{
    const fuse_group *g = p->g;
    base_text_add(&p->body, "    const bool fast = true");
    for (int w = 0; w < g->nweights; w++)
        base_text_add(&p->body, " && %s && aligned(p%d)",
                      fuse_is_words(g) ||
                              fuse_product(g, w)->args[1].t->strides[1] % 8 == 0
                          ? "true"
                          : "false",
                      p->first[g->before + w]);
    fuse_put_aligned(p);
    base_text_add(&p->body,
                  ";\n    G::run(%" PRId64
                  ", fast, row, ahead, stage, want, out",
                  all_tiles(p));
    fuse_put_scale(p);
    base_text_add(&p->body, ");\n}\n");
}

static int64_t
all_rows(const fuse_group *g)
{
    int64_t rows = 0;
    for (int w = 0; w < g->nweights; w++)
        rows += fuse_product(g, w)->outs[0].dims[1];
    return rows;
}

/* Of weights of integers. */
static kern_skinny_shape
words_shape(const fuse_group *g, const cuda_props *props)
{
    enum { WARPS = 8, PARTS = 2 };
    const kern_words_call c = kern_words_read(fuse_product(g, 0));
    const int64_t most = KERN_ROW_BLOCKS * (int64_t)props->processors;
    const int64_t unit = (int64_t)4 * PARTS * kern_words_each(&c);
    const int64_t row = (g->k + unit - 1) / unit * unit;
    const int tile = kern_words_tile(&c, all_rows(g), most);
    return (kern_skinny_shape){
        .parts = PARTS,
        .tile = tile,
        .depth = KERN_WORDS_DEPTH,
        .most = most,
        .bytes = (size_t)(2 * row + 8 * WARPS * PARTS * tile)};
}

/* How much of a row of weights is in flight is measured by the first one's. */
static kern_skinny_shape
shape_of(const fuse_group *g, const cuda_props *props)
{
    if (fuse_is_words(g))
        return words_shape(g, props);
    return kern_skinny_of(g->m, has_rows(g) ? all_rows(g) : rows_of(g), g->k,
                          true, props);
}

static void
put_family(fuse_printer *p, const kern_skinny_shape *s)
{
    const fuse_group *g = p->g;
    base_text_add(&p->body,
                  ")\n{\n    typedef skinny<%s, %" PRId64 ", %" PRId64
                  ", %d, %d, %d",
                  kern_type(g->dtype), g->m, g->k, s->tile, s->parts, s->depth);
    if (fuse_is_words(g)) {
        const kern_words_call c = kern_words_read(fuse_product(g, 0));
        base_text_add(&p->body, ", ");
        kern_words_type(&p->body, &c);
    }
    base_text_add(&p->body, "> G;\n");
}

static void
print(fuse_printer *p, const kern_skinny_shape *s)
{
    p->tile = s->tile;
    add_pointers(p);
    put_family(p, s);
    put_rows(p);
    fuse_put_stage(p);
    put_wants(p);
    put_results(p);
    put_run(p);
    const int64_t tiles = all_tiles(p);
    p->launch->shape.grid[0] = (uint32_t)(tiles < s->most ? tiles : s->most);
    p->launch->shape.shared = (uint32_t)s->bytes;
}

/* What regions of the group call; the same text for all of them. */
static const char *
prelude_of(const fuse_group *g)
{
    for (int s = 0; s < g->count; s++)
        if (fuse_region(g, s))
            return g->steps[s].kernel->code.prelude;
    return NULL;
}

air_status
cuda_fuse_print(const fuse_group *g, const cuda_props *props, cuda_source *out)
{
    const char *prelude = prelude_of(g);
    const kern_skinny_shape s = shape_of(g, props);
    fuse_printer p = {.g = g, .launch = &out->launches[0]};
    base_text_init(&p.head, out->text.alloc);
    base_text_init(&p.body, out->text.alloc);
    *p.launch = (cuda_launch){.shape = {{1, 1, 1}, {256, 1, 1}, 0}};
    print(&p, &s);
    out->prelude = fuse_is_words(g) ? kern_text_words : kern_text_skinny;
    out->nlaunches = 1;
    if (prelude)
        base_text_put(&out->text, prelude, strlen(prelude));
    base_text_add(&out->text,
                  "using namespace call;\nextern \"C\" __global__ "
                  "__launch_bounds__(256, %d) void\nENTRY(0)(",
                  has_rows(g)        ? s.side
                  : fuse_is_words(g) ? KERN_ROW_BLOCKS
                                     : kern_row_bound(g->k, rows_of(g)));
    if (p.head.status == AIR_OK && p.body.status == AIR_OK) {
        base_text_put(&out->text, p.head.data, p.head.len);
        base_text_put(&out->text, p.body.data, p.body.len);
    }
    const air_status status =
        p.head.status != AIR_OK ? p.head.status : p.body.status;
    base_text_deinit(&p.head);
    base_text_deinit(&p.body);
    return status != AIR_OK ? status : out->text.status;
}
