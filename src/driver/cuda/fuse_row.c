/* fuse_row.c: the vector of a group: a region that each block computes for
 * itself, 8 neighbours a thread. What is read of a row is kept in registers for
 * all phases; what no step before it in the list writes, the weight of a norm,
 * is asked for before the kernel waits. */
#include "base/prims.h"
#include "driver/cuda/fuse_text.h"
#include "driver/cuda/touch.h"

enum {
    PIECE = 8 * FUSE_THREADS,                     /* of a row, at once */
    MOST_KEPT = 4,                                /* pieces in registers */
    MOST_EARLY = 2,                               /* while the kernel waits */
    MOST_ROWS = CUDA_MAX_EARLY - 2 * FUSE_WEIGHTS /* rows that come then */
};

static int64_t
pieces(const fuse_group *g)
{
    return (g->k + PIECE - 1) / PIECE;
}

/* ---- what is kept -------------------------------------------------------- */

static bool
is_read_along(const air_region *rg, int buf)
{
    for (int i = 0; i < rg->nphases; i++)
        for (int n = rg->phases[i].begin; n < rg->phases[i].end; n++)
            if (rg->phases[i].kind == AIR_PHASE_ROW &&
                rg->nodes[n].op == AIR_RG_LOAD && rg->nodes[n].buf == buf)
                return true;
    return false;
}

static bool
is_kept(const fuse_group *g, const air_region *rg, int buf)
{
    return pieces(g) <= MOST_KEPT && rg->bufs[buf].strides[rg->rank - 1] == 1 &&
           is_read_along(rg, buf);
}

static cuda_span
span_of_row(const fuse_group *g, const air_rg_buf *b)
{
    return (cuda_span){
        b->slot, b->offset,
        b->offset + g->k * (int64_t)air_dtype_bytes((air_dtype)b->dtype)};
}

static bool
may_be_early(const fuse_printer *p, const air_region *rg, int buf)
{
    const fuse_group *g = p->g;
    const cuda_span span = span_of_row(g, &rg->bufs[buf]);
    return pieces(g) <= MOST_EARLY && is_kept(g, rg, buf) &&
           !cuda_is_written(g->steps - g->older, g->older, &span);
}

/* The first ones: a launch lists so many spans, those of weights with them. */
static bool
is_early(const fuse_printer *p, const air_region *rg, int buf)
{
    int before = 0;
    for (int i = 0; i < buf; i++)
        before += may_be_early(p, rg, i);
    return before < MOST_ROWS && may_be_early(p, rg, buf);
}

static void
put_kept(fuse_printer *p, const air_region *rg, bool early)
{
    for (int i = 0; i < rg->nbufs; i++)
        if (is_kept(p->g, rg, i) && is_early(p, rg, i) == early)
            base_text_add(&p->body, "    eight<air_%s> r%d[%" PRId64 "];\n",
                          fuse_dtype(rg->bufs[i].dtype), i, pieces(p->g));
}

static void
put_takes(fuse_printer *p, const air_region *rg, bool early)
{
    const char *separator = "";
    base_text_add(&p->body,
                  "        take_rows<%" PRId64 ", decltype(fast)::value>(",
                  p->g->k);
    for (int i = 0; i < rg->nbufs; i++) {
        if (!is_kept(p->g, rg, i) || is_early(p, rg, i) != early)
            continue;
        base_text_add(&p->body, "%sr%d, p%d", separator, i, p->first[0] + i);
        separator = ", ";
    }
    base_text_add(&p->body, ");\n");
}

static void
note_early(fuse_printer *p, const air_region *rg)
{
    for (int i = 0; i < rg->nbufs; i++)
        if (is_early(p, rg, i))
            cuda_add_early_span(p->launch, span_of_row(p->g, &rg->bufs[i]));
}

/* ---- nodes --------------------------------------------------------------- */

bool
fuse_is_vector(const fuse_group *g, const air_rg_buf *b)
{
    const air_tensor *x = fuse_product(g, 0)->args[0].t;
    return b->slot == x->slot && b->offset == x->offset;
}

/* Is it written behind the vector, 8 neighbours at once? Nobody waits for that
 * as products wait for the vector. */
static bool
is_late(const fuse_group *g, const air_region *rg, int buf)
{
    const air_rg_buf *b = &rg->bufs[buf];
    return pieces(g) <= MOST_KEPT && kern_bytes(b->dtype) == 2 &&
           b->strides[rg->rank - 1] == 1 && cuda_region_stores(rg, buf) &&
           fuse_is_written(g, 0, b->slot, b->offset);
}

static void
put_late(fuse_printer *p, const air_region *rg)
{
    for (int i = 0; i < rg->nbufs; i++) {
        if (!is_late(p->g, rg, i))
            continue;
        base_text_add(&p->body,
                      "        if (stores_shared())\n"
                      "#pragma unroll\n"
                      "            for (int j = 0; j < %" PRId64 "; j++) {\n"
                      "                const int k = (j * %d + threadIdx.x) * "
                      "8;\n"
                      "                if (k < %" PRId64 ")\n"
                      "                    put8(p%d + (0",
                      pieces(p->g), FUSE_THREADS, p->g->k, p->first[0] + i);
        fuse_put_offset(p, rg, i, true);
        base_text_add(&p->body, "), z%d[j]);\n            }\n", i);
    }
}

static void
put_row_store(fuse_printer *p, const air_region *rg, const air_rg_node *n,
              bool row)
{
    const air_rg_buf *b = &rg->bufs[n->buf];
    if (row && fuse_is_vector(p->g, b)) {
        base_text_add(&p->body, "            x[e] = ");
        fuse_put_value(p, rg, n);
    }
    if (row && is_late(p->g, rg, n->buf)) {
        base_text_add(&p->body, "            z%d[j][e] = ", n->buf);
        fuse_put_value(p, rg, n);
        return;
    }
    if (!fuse_is_written(p->g, 0, b->slot, b->offset))
        return;
    base_text_add(&p->body, row ? "            if (stores_shared())\n"
                                  "                "
                                : "            if (blockIdx.x == 0 && "
                                  "threadIdx.x == 0)\n                ");
    fuse_put_element(p, rg, n->buf, row);
    base_text_add(&p->body, " = ");
    fuse_put_value(p, rg, n);
}

static void
put_row_load(fuse_printer *p, const air_region *rg, const air_rg_node *n,
             bool row)
{
    base_text_add(&p->body, "%s::of(air_of_%s(", fuse_lane(n),
                  fuse_dtype(rg->bufs[n->buf].dtype));
    if (row && is_kept(p->g, rg, n->buf))
        base_text_add(&p->body, "r%d[j][e]", n->buf);
    else
        fuse_put_element(p, rg, n->buf, row);
    base_text_add(&p->body, "))");
}

/* Where it is of `scale`, 1 / sqrt(x) may be two ulps off, as others' are:
 * warps wait for it. */
static bool
is_inverse_root(const fuse_printer *p, const air_region *rg,
                const air_rg_node *n)
{
    return p->behind && n->op == AIR_RG_DIV &&
           rg->nodes[n->a].op == AIR_RG_CONST && rg->nodes[n->a].k == 1 &&
           rg->nodes[n->b].op == AIR_RG_SQRT;
}

static void
put_value(fuse_printer *p, const air_region *rg, int i, bool row)
{
    const air_rg_node *n = &rg->nodes[i];
    base_text_add(&p->body, "            const %s n%d = ", fuse_type(n), i);
    if (n->op == AIR_RG_SCALAR)
        base_text_add(&p->body,
                      i == fuse_factor(p->g) ? "G::LATE ? 1.f : s%d" : "s%d",
                      n->buf);
    else if (n->op == AIR_RG_LOAD)
        put_row_load(p, rg, n, row);
    else if (is_inverse_root(p, rg, n))
        base_text_add(&p->body, "inverse_root(n%d)", rg->nodes[n->b].a);
    else
        fuse_put_call(p, rg, n);
    base_text_add(&p->body, ";\n");
}

static void
put_row_node(fuse_printer *p, const air_region *rg, int i, bool row)
{
    const air_rg_node *n = &rg->nodes[i];
    switch (n->op) {
    case AIR_RG_CONST: return;
    case AIR_RG_STORE: put_row_store(p, rg, n, row); return;
    case AIR_RG_REDUCE:
        base_text_add(&p->body, "            t%d = air_%s::op(t%d, ", n->buf,
                      base_reduction_name(n->reduce), n->buf);
        fuse_put_operand(p, rg, n->a);
        base_text_add(&p->body, ");\n");
        return;
    case AIR_RG_SET:
        base_text_add(&p->body, "            s%d = ", n->buf);
        fuse_put_operand(p, rg, n->a);
        base_text_add(&p->body, ";\n");
        return;
    default: put_value(p, rg, i, row);
    }
}

/* ---- phases -------------------------------------------------------------- */

/* Declares what reductions of the phase fold into, or takes their results. */
static void
put_folds(fuse_printer *p, const air_region *rg, const air_rg_phase *phase,
          bool begin)
{
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *n = &rg->nodes[i];
        if (n->op != AIR_RG_REDUCE)
            continue;
        if (begin)
            base_text_add(&p->body, "        %s t%d = air_%s::start<%s>();\n",
                          fuse_type(n), n->buf, base_reduction_name(n->reduce),
                          fuse_type(n));
        else
            base_text_add(
                &p->body,
                "        s%d = t%d;\n        %s"
                "s%d = air_fold<air_%s, %d>(t%d);\n",
                n->buf, n->buf,
                fuse_factor(p->g) >= 0 ? "if constexpr (!G::LATE) " : "",
                n->buf, base_reduction_name(n->reduce), FUSE_THREADS, n->buf);
    }
}

static bool
makes_vector(const fuse_printer *p, const air_region *rg,
             const air_rg_phase *phase)
{
    for (int i = phase->begin; i < phase->end; i++)
        if (rg->nodes[i].op == AIR_RG_STORE &&
            fuse_is_vector(p->g, &rg->bufs[rg->nodes[i].buf]))
            return true;
    return false;
}

static void
put_along(fuse_printer *p, const air_region *rg, const air_rg_phase *phase)
{
    const bool makes = makes_vector(p, rg, phase);
    base_text_add(&p->body,
                  "#pragma unroll\n"
                  "        for (int j = 0; j < %" PRId64 "; j++) {\n"
                  "            const int k0 = (j * %d + threadIdx.x) * 8;\n",
                  pieces(p->g), FUSE_THREADS);
    if (p->g->k % PIECE != 0)
        base_text_add(&p->body,
                      "            if (k0 >= %" PRId64
                      ")\n                break;\n",
                      p->g->k);
    if (makes)
        base_text_add(&p->body, "            u16 x[8];\n");
    base_text_add(&p->body, "#pragma unroll\n"
                            "            for (int e = 0; e < 8; e++) {\n"
                            "            const int k = k0 + e;\n");
    for (int i = phase->begin; i < phase->end; i++)
        put_row_node(p, rg, i, true);
    base_text_add(&p->body, "            }\n%s        }\n",
                  makes ? "            give8<G>(to, k0, x);\n" : "");
}

static void
put_scalar_phase(fuse_printer *p, const air_region *rg,
                 const air_rg_phase *phase)
{
    base_text_add(&p->body, "        {\n");
    for (int i = phase->begin; i < phase->end; i++)
        put_row_node(p, rg, i, false);
    base_text_add(&p->body, "        }\n");
}

static void
put_phase(fuse_printer *p, const air_region *rg, const air_rg_phase *phase)
{
    put_folds(p, rg, phase, true);
    if (phase->kind == AIR_PHASE_ROW)
        put_along(p, rg, phase);
    else
        put_scalar_phase(p, rg, phase);
    put_folds(p, rg, phase, false);
}

/* Scalars have the lane of what makes them. */
static void
put_scalars(fuse_printer *p, const air_region *rg)
{
    for (int i = 0; i < rg->nnodes; i++) {
        const air_rg_node *n = &rg->nodes[i];
        if (n->op == AIR_RG_REDUCE || n->op == AIR_RG_SET)
            base_text_add(&p->body, "        %s s%d;\n", fuse_type(n), n->buf);
    }
}

/* The scalar that is the sum of the first phase. */
static int
sum_of(const air_region *rg)
{
    int found = 0;
    for (int i = rg->phases[0].begin; i < rg->phases[0].end; i++)
        if (rg->nodes[i].op == AIR_RG_REDUCE)
            found = rg->nodes[i].buf;
    return found;
}

/* `scale`: the factor that `stage` leaves, of the sum of what it returns. */
static void
put_scale(fuse_printer *p, const air_region *rg)
{
    p->behind = true;
    base_text_add(&p->body, "    auto scale = [&](float sum) {\n");
    put_scalars(p, rg);
    base_text_add(&p->body, "        s%d = sum;\n", sum_of(rg));
    put_scalar_phase(p, rg, &rg->phases[1]);
    base_text_add(&p->body, "        return s%d;\n    };\n",
                  rg->nodes[fuse_factor(p->g)].buf);
    p->behind = false;
}

void
fuse_put_scale(fuse_printer *p)
{
    if (fuse_factor(p->g) >= 0)
        base_text_add(&p->body, ", scale");
}

static void
put_region(fuse_printer *p, const air_region *rg)
{
    const fuse_group *g = p->g;
    p->step = 0;
    note_early(p, rg);
    put_kept(p, rg, true);
    base_text_add(&p->body, "    auto ahead = [&](auto fast) {\n");
    put_takes(p, rg, true);
    base_text_add(&p->body,
                  "    };\n    auto stage = [&](auto fast, %s *to) {\n",
                  kern_type(g->dtype));
    put_kept(p, rg, false);
    for (int i = 0; i < rg->nbufs; i++)
        if (is_late(g, rg, i))
            base_text_add(&p->body, "        air_%s z%d[%" PRId64 "][8];\n",
                          fuse_dtype(rg->bufs[i].dtype), i, pieces(g));
    put_takes(p, rg, false);
    put_scalars(p, rg);
    for (int i = 0; i < rg->nphases; i++)
        put_phase(p, rg, &rg->phases[i]);
    base_text_add(&p->body,
                  "        for (int k = %" PRId64 " + threadIdx.x; k < G::ROW; "
                  "k += %d)\n            to[%s].bits = 0;\n",
                  g->k, FUSE_THREADS, fuse_is_words(g) ? "G::place(k)" : "k");
    put_late(p, rg);
    if (fuse_factor(g) < 0) {
        base_text_add(&p->body, "    };\n");
        return;
    }
    base_text_add(&p->body, "        return t%d;\n    };\n", sum_of(rg));
    put_scale(p, rg);
}

void
fuse_put_aligned(fuse_printer *p)
{
    const air_region *rg = p->g->before > 0 ? fuse_region(p->g, 0) : NULL;
    if (!rg)
        base_text_add(&p->body, " && %s && aligned(p2)",
                      fuse_x_row(p->g) % 8 == 0 ? "true" : "false");
    for (int i = 0; rg && i < rg->nbufs; i++)
        if (is_kept(p->g, rg, i))
            base_text_add(&p->body, " && aligned(p%d)", p->first[0] + i);
}

void
fuse_put_stage(fuse_printer *p)
{
    const fuse_group *g = p->g;
    const char *type = kern_type(g->dtype);
    if (g->before > 0) {
        put_region(p, fuse_region(g, 0));
        return;
    }
    base_text_add(&p->body,
                  "    auto ahead = [](auto) {};\n"
                  "    auto stage = [&](auto fast, %s *to) {\n"
                  "        stage_rows<G, decltype(fast)::value, %s, %" PRId64
                  ", %" PRId64 ", %" PRId64 ">(to, p2);\n    };\n",
                  type, type, g->m, g->k, fuse_x_row(g));
}
