/* fuse_print.c: the text of a group of steps: text/skinny.cuh with a stage that
 * is a region, and results that regions take. Nodes of regions become calls of
 * the functions in the prelude that the codegen layer gives with each region;
 * node 7 is n7, scalar 2 is s2, what a thread folded of it t2. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/prims.h"
#include "driver/cuda/fuse.h"
#include "driver/cuda/kern_call.h"

static const char *const dtype_names[AIR_DTYPE_COUNT] = {
#define DTYPE(id, ...) [AIR_##id] = #id,
#include "air_dtypes.def"
#undef DTYPE
};

enum { WARPS = 8, LANES_OF_ROW = 2 /* S of the text */ };

typedef struct {
    const fuse_group *g;
    base_text head, body; /* parameters; the rest */
    cuda_launch *launch;
    int tile;              /* rows of one */
    int step;              /* being printed */
    int first[FUSE_STEPS]; /* pointer of its first buffer or tensor */
} printer;

/* ---- parameters ---------------------------------------------------------- */

static int
pointer(printer *p, const char *type, int32_t slot, int64_t offset)
{
    const int i = p->launch->nparams;
    base_text_add(&p->head, "%s%s *p%d", i > 0 ? ", " : "", type, i);
    p->launch->params[p->launch->nparams++] =
        (cuda_param){CUDA_PARAM_POINTER, slot, offset};
    return i;
}

static void
add_pointers(printer *p)
{
    const fuse_group *g = p->g;
    const char *type = kern_type(g->dtype);
    char name[16];
    for (int s = 0; s < g->count; s++) {
        const air_region *rg = fuse_region(g, s);
        const air_call *c = fuse_call(g, s);
        p->first[s] = p->launch->nparams;
        for (int i = 0; rg && i < rg->nbufs; i++) {
            (void)snprintf(name, sizeof name, "air_%s",
                           dtype_names[rg->bufs[i].dtype]);
            (void)pointer(p, name, rg->bufs[i].slot, rg->bufs[i].offset);
        }
        if (rg)
            continue;
        (void)pointer(p, type, c->args[1].t->slot, c->args[1].t->offset);
        (void)pointer(p, type, c->outs[0].slot, c->outs[0].offset);
        if (s == 0)
            (void)pointer(p, type, c->args[0].t->slot, c->args[0].t->offset);
    }
}

/* ---- nodes --------------------------------------------------------------- */

static const char *
lane_of(const air_rg_node *n)
{
    return n->lane == AIR_LANE_B ? "b" : "f32";
}

static const char *
type_of(const air_rg_node *n)
{
    return n->lane == AIR_LANE_B ? "bool" : "float";
}

static void
put_operand(printer *p, const air_region *rg, int node)
{
    const air_rg_node *n = &rg->nodes[node];
    if (n->op != AIR_RG_CONST)
        base_text_add(&p->body, "n%d", node);
    else if (n->lane == AIR_LANE_B)
        base_text_add(&p->body, n->i != 0 ? "true" : "false");
    else if (isfinite(n->k))
        base_text_add(&p->body, "%af", (double)(float)n->k);
    else
        base_text_add(&p->body, "__uint_as_float(0x%xu)",
                      isnan(n->k) ? 0x7fc00000U
                      : n->k > 0  ? 0x7f800000U
                                  : 0xff800000U);
}

static bool
is_compare(unsigned op)
{
    return op == AIR_RG_LT || op == AIR_RG_LE || op == AIR_RG_EQ ||
           op == AIR_RG_NE;
}

static void
put_call(printer *p, const air_region *rg, const air_rg_node *n)
{
    const int16_t operands[3] = {n->a, n->b, n->c};
    const air_rg_node *lane = is_compare(n->op) ? &rg->nodes[n->a] : n;
    base_text_add(&p->body, "%s::%s(", lane_of(lane),
                  n->op == AIR_RG_CVT ? "of" : base_prim_name(n->op));
    for (int i = 0; i < base_prim_arity(n->op); i++) {
        base_text_add(&p->body, i > 0 ? ", " : "");
        put_operand(p, rg, operands[i]);
    }
    base_text_add(&p->body, ")");
}

/* ` + index * stride`, the index k or c of an axis. */
static void
put_step(printer *p, int axis, int64_t stride)
{
    if (axis < 0)
        base_text_add(&p->body, " + k * %" PRId64, stride);
    else
        base_text_add(&p->body, " + c%d * %" PRId64, axis, stride);
}

/* ` p3[0 + ...]` of the buffer at the index c0, c1, ...; a row: at k. */
static void
put_element(printer *p, const air_region *rg, int buf, bool row)
{
    const air_rg_buf *b = &rg->bufs[buf];
    const int last = rg->rank - 1;
    base_text_add(&p->body, "p%d[0", p->first[p->step] + buf);
    for (int a = 0; a < rg->rank; a++)
        if (rg->dims[a] > 1 && b->strides[a] != 0 && (!row || a == last))
            put_step(p, row ? -1 : a, b->strides[a]);
    base_text_add(&p->body, "]");
}

/* A store, given how the element is written and when. */
static void
put_value(printer *p, const air_region *rg, const air_rg_node *n)
{
    const int dtype = rg->bufs[n->buf].dtype;
    base_text_add(&p->body, "air_to_%s(%s::of(", dtype_names[dtype],
                  dtype == AIR_BOOL ? "b" : "f32");
    put_operand(p, rg, n->a);
    base_text_add(&p->body, "));\n");
}

/* ---- the region before --------------------------------------------------- */

static bool
is_vector(const fuse_group *g, const air_rg_buf *b)
{
    const air_tensor *x = fuse_product(g, 0)->args[0].t;
    return b->slot == x->slot && b->offset == x->offset;
}

static void
put_row_store(printer *p, const air_region *rg, const air_rg_node *n, bool row)
{
    const air_rg_buf *b = &rg->bufs[n->buf];
    if (row && is_vector(p->g, b)) {
        base_text_add(&p->body, "            to[k].bits = ");
        put_value(p, rg, n);
    }
    if (!fuse_is_written(p->g, 0, b->slot, b->offset))
        return;
    base_text_add(&p->body, row ? "            if (blockIdx.x == 0)\n"
                                  "                "
                                : "            if (blockIdx.x == 0 && "
                                  "threadIdx.x == 0)\n                ");
    put_element(p, rg, n->buf, row);
    base_text_add(&p->body, " = ");
    put_value(p, rg, n);
}

static void
put_row_node(printer *p, const air_region *rg, int i, bool row)
{
    const air_rg_node *n = &rg->nodes[i];
    switch (n->op) {
    case AIR_RG_CONST: return;
    case AIR_RG_STORE: put_row_store(p, rg, n, row); return;
    case AIR_RG_REDUCE:
        base_text_add(&p->body, "            t%d = air_%s::op(t%d, ", n->buf,
                      base_reduction_name(n->reduce), n->buf);
        put_operand(p, rg, n->a);
        base_text_add(&p->body, ");\n");
        return;
    case AIR_RG_SET:
        base_text_add(&p->body, "            s%d = ", n->buf);
        put_operand(p, rg, n->a);
        base_text_add(&p->body, ";\n");
        return;
    default: break;
    }
    base_text_add(&p->body, "            const %s n%d = ", type_of(n), i);
    if (n->op == AIR_RG_SCALAR) {
        base_text_add(&p->body, "s%d", n->buf);
    } else if (n->op == AIR_RG_LOAD) {
        base_text_add(&p->body, "%s::of(air_of_%s(", lane_of(n),
                      dtype_names[rg->bufs[n->buf].dtype]);
        put_element(p, rg, n->buf, row);
        base_text_add(&p->body, "))");
    } else {
        put_call(p, rg, n);
    }
    base_text_add(&p->body, ";\n");
}

/* Declares what reductions of the phase fold into, or takes their results. */
static void
put_folds(printer *p, const air_region *rg, const air_rg_phase *phase,
          bool begin)
{
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *n = &rg->nodes[i];
        if (n->op != AIR_RG_REDUCE)
            continue;
        if (begin)
            base_text_add(&p->body, "        %s t%d = air_%s::start<%s>();\n",
                          type_of(n), n->buf, base_reduction_name(n->reduce),
                          type_of(n));
        else
            base_text_add(&p->body,
                          "        s%d = air_fold<air_%s, 256>(t%d);\n", n->buf,
                          base_reduction_name(n->reduce), n->buf);
    }
}

static void
put_phase(printer *p, const air_region *rg, const air_rg_phase *phase)
{
    const bool row = phase->kind == AIR_PHASE_ROW;
    put_folds(p, rg, phase, true);
    if (row)
        base_text_add(&p->body,
                      "#pragma unroll\n"
                      "        for (int j = 0; j < %" PRId64 "; j++) {\n"
                      "            const int k = j * 256 + threadIdx.x;\n"
                      "            if (k >= %" PRId64 ")\n"
                      "                break;\n",
                      (p->g->k + 255) / 256, p->g->k);
    else
        base_text_add(&p->body, "        {\n");
    for (int i = phase->begin; i < phase->end; i++)
        put_row_node(p, rg, i, row);
    base_text_add(&p->body, "        }\n");
    put_folds(p, rg, phase, false);
}

/* Scalars have the lane of what makes them. */
static void
put_scalars(printer *p, const air_region *rg)
{
    for (int i = 0; i < rg->nnodes; i++) {
        const air_rg_node *n = &rg->nodes[i];
        if (n->op == AIR_RG_REDUCE || n->op == AIR_RG_SET)
            base_text_add(&p->body, "        %s s%d;\n", type_of(n), n->buf);
    }
}

static void
put_stage(printer *p)
{
    const fuse_group *g = p->g;
    const air_region *rg = fuse_region(g, 0);
    const char *type = kern_type(g->dtype);
    base_text_add(&p->body, "    auto stage = [&](%s *to) {\n", type);
    p->step = 0;
    if (!rg) {
        base_text_add(&p->body,
                      "        stage_rows<G, %s, 1, %" PRId64 ", 0>(to, p2);\n"
                      "    };\n",
                      type, g->k);
        return;
    }
    put_scalars(p, rg);
    for (int i = 0; i < rg->nphases; i++)
        put_phase(p, rg, &rg->phases[i]);
    base_text_add(&p->body,
                  "        for (int k = %" PRId64 " + threadIdx.x; k < G::ROW; "
                  "k += 256)\n            to[k].bits = 0;\n    };\n",
                  g->k);
}

/* ---- tiles --------------------------------------------------------------- */

/* Iterations of a tile of the part. */
static int
share(const printer *p, const fuse_part *part)
{
    return p->tile / part->loads;
}

static int64_t
tiles_of(const printer *p, const fuse_part *part)
{
    return (part->count + share(p, part) - 1) / share(p, part);
}

static int64_t
all_tiles(const printer *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->g->nparts; i++)
        n += tiles_of(p, &p->g->parts[i]);
    return n;
}

/* it: the iteration of row i, at most the last; c0, c1, ...: its index. */
static void
put_iteration(printer *p, const fuse_part *part)
{
    base_text_add(&p->body,
                  "            const int at = t * %d + i %% %d;\n"
                  "            const int it = at < %" PRId64 " ? at : %" PRId64
                  ";\n",
                  share(p, part), share(p, part), part->count, part->count - 1);
    if (part->region < 0)
        return;
    const air_region *rg = fuse_region(p->g, part->region);
    base_text_add(&p->body, "            int rest = it;\n");
    for (int a = rg->rank - 1; a >= 0; a--)
        base_text_add(&p->body,
                      "            const int c%d = rest %% %" PRId64
                      "; rest /= %" PRId64 ";\n",
                      a, rg->dims[a], rg->dims[a]);
}

/* The result that load `k` of the part takes. */
static void
put_column(printer *p, const fuse_part *part, int k)
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

static int
weight_of(const fuse_part *part, int k)
{
    return part->region < 0 ? part->weight : part->of[k];
}

static void
put_row_of_weight(printer *p, const fuse_part *part, int k)
{
    const int w = weight_of(part, k);
    base_text_add(&p->body, "p%d + (s64)", p->first[p->g->before + w]);
    put_column(p, part, k);
    base_text_add(&p->body, " * %" PRId64,
                  fuse_product(p->g, w)->args[1].t->strides[1]);
}

static void
put_rows(printer *p)
{
    base_text_add(&p->body,
                  "    auto row = [&](int t, int i) -> const %s * {\n",
                  kern_type(p->g->dtype));
    for (int n = 0; n < p->g->nparts; n++) {
        const fuse_part *part = &p->g->parts[n];
        base_text_add(&p->body, "        if (t < %" PRId64 ") {\n",
                      tiles_of(p, part));
        put_iteration(p, part);
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
    base_text_add(&p->body, "        return p%d;\n    };\n",
                  p->first[p->g->before]);
}

/* ---- results ------------------------------------------------------------- */

static bool
is_result_written(const fuse_group *g, int w)
{
    const air_tensor *y = &fuse_product(g, w)->outs[0];
    return fuse_is_written(g, g->before + w, y->slot, y->offset);
}

static void
put_result(printer *p, const fuse_part *part, int k)
{
    const int w = weight_of(part, k);
    if (!is_result_written(p->g, w))
        return;
    base_text_add(&p->body,
                  "            if (at == it && i / %d == %d)\n"
                  "                p%d[",
                  share(p, part), k, p->first[p->g->before + w] + 1);
    put_column(p, part, k);
    base_text_add(&p->body, "] = r;\n");
}

static void
put_result_node(printer *p, const air_region *rg, const fuse_part *part, int i)
{
    const air_rg_node *n = &rg->nodes[i];
    if (n->op == AIR_RG_CONST)
        return;
    if (n->op == AIR_RG_STORE) {
        const air_rg_buf *b = &rg->bufs[n->buf];
        if (!fuse_is_written(p->g, part->region, b->slot, b->offset))
            return;
        base_text_add(&p->body, "            ");
        put_element(p, rg, n->buf, false);
        base_text_add(&p->body, " = ");
        put_value(p, rg, n);
        return;
    }
    base_text_add(&p->body, "            const %s n%d = ", type_of(n), i);
    if (n->op != AIR_RG_LOAD) {
        put_call(p, rg, n);
    } else if (n->buf == part->buf[0]) {
        base_text_add(&p->body, "mine");
    } else if (part->loads == 2 && n->buf == part->buf[1]) {
        base_text_add(&p->body, "other");
    } else {
        base_text_add(&p->body, "%s::of(air_of_%s(", lane_of(n),
                      dtype_names[rg->bufs[n->buf].dtype]);
        put_element(p, rg, n->buf, false);
        base_text_add(&p->body, "))");
    }
    base_text_add(&p->body, ";\n");
}

/* Results are what the product would have stored. */
static void
put_part(printer *p, const fuse_part *part)
{
    put_iteration(p, part);
    for (int k = 0; k < part->loads; k++)
        put_result(p, part, k);
    if (part->region < 0)
        return;
    const air_region *rg = fuse_region(p->g, part->region);
    p->step = part->region;
    base_text_add(&p->body, "            const float mine = get(r);\n");
    if (part->loads == 2)
        base_text_add(&p->body,
                      "            const float other = "
                      "__shfl_xor_sync(0x%xu, mine, %d);\n",
                      (1U << p->tile) - 1, share(p, part));
    base_text_add(&p->body,
                  "            if (at != it || i >= %d)\n"
                  "                return;\n",
                  share(p, part));
    for (int i = rg->phases[0].begin; i < rg->phases[0].end; i++)
        put_result_node(p, rg, part, i);
}

static void
put_results(printer *p)
{
    base_text_add(&p->body,
                  "    auto out = [&](int t, int i, int, float v) {\n"
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

/* ---- the launch ---------------------------------------------------------- */

static void
put_run(printer *p)
{
    const fuse_group *g = p->g;
    base_text_add(&p->body, "    const bool fast = true");
    for (int w = 0; w < g->nweights; w++)
        base_text_add(&p->body, " && %s && aligned(p%d)",
                      fuse_product(g, w)->args[1].t->strides[1] % 8 == 0
                          ? "true"
                          : "false",
                      p->first[g->before + w]);
    base_text_add(&p->body,
                  ";\n    G::run(%" PRId64 ", fast, row, stage, out);\n}\n",
                  all_tiles(p));
}

static void
shape(printer *p, const cuda_props *props)
{
    const int64_t unit = 32 * LANES_OF_ROW;
    const int64_t row = (p->g->k + unit - 1) / unit * unit;
    const int64_t most = 2 * (int64_t)props->processors;
    const int64_t tiles = all_tiles(p);
    p->launch->shape.grid[0] = (uint32_t)(tiles < most ? tiles : most);
    p->launch->shape.shared =
        (uint32_t)(2 * row + 8 * WARPS * LANES_OF_ROW * p->tile);
}

static void
print(printer *p, const cuda_props *props)
{
    int64_t results = 0;
    for (int w = 0; w < p->g->nweights; w++)
        results += fuse_product(p->g, w)->outs[0].dims[1];
    p->tile = (results + 15) / 16 <= props->processors ? 8 : 16;
    add_pointers(p);
    base_text_add(&p->body,
                  ")\n{\n    typedef skinny<%s, 1, %" PRId64 ", %d, %d> G;\n",
                  kern_type(p->g->dtype), p->g->k, p->tile, LANES_OF_ROW);
    put_rows(p);
    put_stage(p);
    put_results(p);
    put_run(p);
    shape(p, props);
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
    printer p = {.g = g, .launch = &out->launches[0]};
    base_text_init(&p.head, out->text.alloc);
    base_text_init(&p.body, out->text.alloc);
    *p.launch = (cuda_launch){.shape = {{1, 1, 1}, {256, 1, 1}, 0}};
    print(&p, props);
    out->prelude = kern_text_skinny;
    out->nlaunches = 1;
    if (prelude)
        base_text_put(&out->text, prelude, strlen(prelude));
    base_text_add(&out->text, "using namespace call;\n"
                              "extern \"C\" __global__ "
                              "__launch_bounds__(256) void\nENTRY(0)(");
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
