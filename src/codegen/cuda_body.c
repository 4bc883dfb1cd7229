/* cuda_body.c: the nodes of a phase as expressions. Node 7 becomes n7; the
 * elements of buffer 3 are v3, what is stored into it w3, its offset o3, its
 * pointer p3, what is kept of it between phases h3; scalar 2 is s2, and t2 what
 * a thread has folded of it. */
#include <math.h>
#include <string.h>

#include "base/prims.h"
#include "codegen/cuda_write.h"

const char *
cuda_dtype(int dtype)
{
    static const char *const names[] = {
        "",
#define DTYPE(id, ...) #id,
#include "air_dtypes.def"
#undef DTYPE
    };
    return names[dtype];
}

static const char *
lane_name(int lane)
{
    static const char *const names[] = {"f32", "f64", "i64", "b"};
    return names[lane];
}

const char *
cuda_lane_type(int lane)
{
    static const char *const names[] = {"float", "double", "air_i64", "bool"};
    return names[lane];
}

const char *
cuda_reduction(const cuda_writer *w, int phase, int scalar)
{
    const air_rg_phase *p = &w->rg->phases[phase];
    for (int i = p->begin; i < p->end; i++) {
        const air_rg_node *n = &w->rg->nodes[i];
        if (n->op == AIR_RG_REDUCE && n->buf == scalar)
            return base_reduction_name(n->reduce);
    }
    return NULL;
}

const char *
cuda_fold_type(const cuda_writer *w, int scalar)
{
    return w->moment[scalar] ? "air_moment" : cuda_lane_type(w->lane[scalar]);
}

/* The lane that a dtype is stored from. */
static const char *
store_lane(int dtype)
{
    static const char *const names[] = {
        "",
#define LANE_FLOAT(id)                   AIR_##id == AIR_F64 ? "f64" : "f32",
#define LANE_INT(id)                     "i64",
#define LANE_BOOL(id)                    "b",
#define DTYPE(id, text, size, kind, ...) LANE_##kind(id)
#include "air_dtypes.def"
#undef DTYPE
    };
    return names[dtype];
}

bool
cuda_has(const cuda_writer *w, int phase, unsigned op, int buf)
{
    const air_rg_phase *p = &w->rg->phases[phase];
    for (int i = p->begin; i < p->end; i++)
        if (w->rg->nodes[i].op == op && (buf < 0 || w->rg->nodes[i].buf == buf))
            return true;
    return false;
}

/* ---- arguments ---- */

int
cuda_value(cuda_writer *w, int64_t value)
{
    if (w->nvalues == CUDA_MAX_VALUES) {
        w->reason = "too many sizes and strides";
        return 0;
    }
    w->values[w->nvalues] = value;
    return w->nvalues++;
}

void
cuda_put_value(cuda_writer *w, int64_t value)
{
    base_text_add(&w->text, "(I)a.v[%d]", cuda_value(w, value));
}

/* ---- expressions ---- */

static void
put_float(cuda_writer *w, double k)
{
    float f = (float)k;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isfinite(f))
        base_text_add(&w->text, "%af", (double)f);
    else
        base_text_add(&w->text, "__uint_as_float(0x%08xu)", bits);
}

static void
put_double(cuda_writer *w, double k)
{
    uint64_t bits;
    memcpy(&bits, &k, sizeof bits);
    if (isfinite(k))
        base_text_add(&w->text, "%a", k);
    else
        base_text_add(&w->text, "__longlong_as_double(0x%016llxll)",
                      (unsigned long long)bits);
}

static void
put_const(cuda_writer *w, const air_rg_node *n)
{
    switch (n->lane) {
    case AIR_LANE_F32: put_float(w, n->k); break;
    case AIR_LANE_F64: put_double(w, n->k); break;
    case AIR_LANE_B:
        base_text_add(&w->text, n->i != 0 ? "true" : "false");
        break;
    default:
        base_text_add(&w->text, "(air_i64)0x%llxull", (unsigned long long)n->i);
    }
}

static bool
is_kept_axis(const cuda_writer *w, int axis)
{
    for (int i = 0; i < w->naxes; i++)
        if (w->axes[i] == axis)
            return true;
    return false;
}

static void
put_index(cuda_writer *w, int axis, const cuda_access *at)
{
    if (axis == w->vector && at != NULL)
        base_text_add(&w->text, "(air_i64)(c%s + k)", at->suffix);
    else if (at != NULL && at->offset == 'm' &&
             (axis == w->turn ||
              (w->rg->walk == AIR_WALK_OUTER && axis == w->rg->rank - 2)))
        base_text_add(&w->text, "(air_i64)r");
    else if (is_kept_axis(w, axis))
        base_text_add(&w->text, "(air_i64)i%d%s", axis,
                      at == NULL ? "" : at->suffix);
    else
        base_text_add(&w->text, "(air_i64)0");
}

static void
put_operand(cuda_writer *w, int node)
{
    const air_rg_node *n = &w->rg->nodes[node];
    if (n->op == AIR_RG_CONST)
        put_const(w, n);
    else
        base_text_add(&w->text, "n%d", node);
}

/* The element of a buffer; at: NULL in scalar phases. */
static void
put_element(cuda_writer *w, int buf, const cuda_access *at)
{
    const cuda_buf *b = &w->bufs[buf];
    if (at == NULL)
        base_text_add(&w->text, "p%d[o%d]", buf, buf);
    else if (b->home == CUDA_REGISTERS)
        base_text_add(&w->text, "h%d[j][k]", buf);
    else if (!w->rg->bufs[buf].scratch && b->inner == 0)
        base_text_add(&w->text, "v%d%s", buf, at->suffix);
    else
        base_text_add(&w->text, "v%d%s[k]", buf, at->suffix);
}

static bool
is_compare(unsigned op)
{
    return op == AIR_RG_LT || op == AIR_RG_LE || op == AIR_RG_EQ ||
           op == AIR_RG_NE;
}

/* Is all that the region leaves rounded to 16 bits? Then functions may be
 * shorter. */
static bool
is_rounded(const air_region *rg)
{
    for (int i = 0; i < rg->nnodes; i++) {
        const air_rg_node *n = &rg->nodes[i];
        const int dtype = n->op == AIR_RG_STORE ? rg->bufs[n->buf].dtype : 0;
        if (n->op == AIR_RG_REDUCE ||
            (dtype != 0 && dtype != AIR_BF16 && dtype != AIR_F16))
            return false;
    }
    return true;
}

/* Names in cuda_prelude.c of functions of float32 that have others than their
 * rows': of any region, of one that leaves 16 bits. */
static void
put_name(cuda_writer *w, const air_rg_node *n, int lane)
{
    static const struct {
        uint16_t op;
        const char *name, *rounded;
    } others[] = {
        {AIR_RG_EXP, "small::EXP", "halves::EXP"},
        {AIR_RG_EXPNEG, "small::EXP", "halves::EXP"},
        {AIR_RG_SIGMOID, "SIGMOID", "halves::SIGMOID"},
        {AIR_RG_NDTR, "NDTR", "halves::NDTR"},
        {AIR_RG_NDTRH, "NDTR", "halves::NDTR"},
    };
    const char *name = n->op == AIR_RG_CVT ? "of" : base_prim_name(n->op);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (lane == AIR_LANE_F32 && others[i].op == n->op)
            name = is_rounded(w->rg) ? others[i].rounded : others[i].name;
    base_text_add(&w->text, "%s::%s(", lane_name(lane), name);
}

static void
put_call(cuda_writer *w, const air_rg_node *n)
{
    const int16_t operands[3] = {n->a, n->b, n->c};
    put_name(w, n, is_compare(n->op) ? w->rg->nodes[n->a].lane : n->lane);
    for (int i = 0; i < base_prim_arity(n->op); i++) {
        base_text_add(&w->text, i > 0 ? ", " : "");
        put_operand(w, operands[i]);
    }
    base_text_add(&w->text, ")");
}

static void
put_expression(cuda_writer *w, const air_rg_node *n, const cuda_access *at)
{
    switch (n->op) {
    case AIR_RG_LOAD:
        base_text_add(&w->text, "%s::of(air_of_%s(", lane_name(n->lane),
                      cuda_dtype(w->rg->bufs[n->buf].dtype));
        put_element(w, n->buf, at);
        base_text_add(&w->text, "))");
        break;
    case AIR_RG_SCALAR:
        base_text_add(&w->text, "s%d%s", n->buf,
                      at != NULL && at->each ? "[k]" : "");
        break;
    case AIR_RG_INDEX: put_index(w, n->buf, at); break;
    default: put_call(w, n);
    }
}

/* What is stored: as it was read where nothing happens in between. */
static void
put_stored(cuda_writer *w, const air_rg_node *n, const cuda_access *at)
{
    int dtype = w->rg->bufs[n->buf].dtype;
    const air_rg_node *from = &w->rg->nodes[n->a];
    if (from->op == AIR_RG_LOAD && w->rg->bufs[from->buf].dtype == dtype &&
        dtype != AIR_BOOL && from->lane == n->lane &&
        w->bufs[from->buf].home != CUDA_REGISTERS) {
        put_element(w, from->buf, at);
        return;
    }
    base_text_add(&w->text, "air_to_%s(%s::of(", cuda_dtype(dtype),
                  store_lane(dtype));
    put_operand(w, n->a);
    base_text_add(&w->text, "))");
}

/* ---- ROW phases ---- */

static void
put_pointer(cuda_writer *w, int buf, const cuda_access *at)
{
    if (w->rg->bufs[buf].scratch) {
        base_text_add(&w->text, "h%d + c%s", buf, at->suffix);
        return;
    }
    base_text_add(&w->text, "p%d + %c%d%s + c%s", buf, at->offset, buf,
                  at->suffix, at->suffix);
    if (!w->bufs[buf].moved) {
        base_text_add(&w->text, " * ");
        cuda_put_value(w, w->bufs[buf].inner);
    }
}

/* Between a thread's elements and its place in a square. */
static void
put_square(cuda_writer *w, bool store, int buf)
{
    base_text_add(&w->text,
                  store ? "        for (int k = 0; k < %d; k++) h%d[place + k]"
                          " = w%d[k];\n"
                        : "        for (int k = 0; k < %d; k++) v%d[k] = "
                          "h%d[place + k];\n",
                  w->V, buf, buf);
}

static void
put_move(cuda_writer *w, bool store, int buf, const cuda_access *at)
{
    const cuda_buf *b = &w->bufs[buf];
    if (b->home == CUDA_TURNED) {
        put_square(w, store, buf);
        return;
    }
    bool scratch = w->rg->bufs[buf].scratch != 0;
    bool moved = scratch || b->moved;
    base_text_add(&w->text, "        air_%s<%d>(",
                  store   ? moved ? "store" : "scatter"
                  : moved ? "load"
                          : "gather",
                  w->V);
    if (store) {
        put_pointer(w, buf, at);
        base_text_add(&w->text, ", w%d, ", buf);
    } else {
        if (b->home == CUDA_REGISTERS)
            base_text_add(&w->text, "h%d[j], ", buf);
        else
            base_text_add(&w->text, "v%d%s, ", buf, at->suffix);
        put_pointer(w, buf, at);
        base_text_add(&w->text, ", ");
    }
    if (!moved) {
        cuda_put_value(w, b->inner);
        base_text_add(&w->text, ", ");
    }
    base_text_add(&w->text, "n%s", at->suffix);
    if (moved && scratch)
        base_text_add(&w->text, ", true");
    else if (moved)
        base_text_add(&w->text, ", q%d", buf);
    base_text_add(&w->text, ");\n");
}

static void
put_load(cuda_writer *w, int buf, const cuda_access *at)
{
    const cuda_buf *b = &w->bufs[buf];
    const air_rg_buf *from = &w->rg->bufs[buf];
    bool one = at->suffix[0] == '\0';
    if (!from->scratch && b->inner == 0) {
        base_text_add(&w->text,
                      "        %s%s%sv%d%s = n%s > 0 ? p%d[%c%d%s] : 0;\n",
                      one ? "const air_" : "",
                      one ? cuda_dtype(from->dtype) : "", one ? " " : "", buf,
                      at->suffix, at->suffix, buf, at->offset, buf, at->suffix);
        return;
    }
    if (b->home != CUDA_REGISTERS && one)
        base_text_add(&w->text, "        air_%s v%d[%d];\n",
                      cuda_dtype(from->dtype), buf, w->V);
    put_move(w, false, buf, at);
}

/* Has a phase before this one left the buffer in registers? */
static bool
is_held_already(const cuda_writer *w, int phase, int buf)
{
    if (w->bufs[buf].home != CUDA_REGISTERS || w->loop)
        return false;
    if (w->rg->bufs[buf].scratch)
        return true;
    for (int p = 0; p < phase; p++)
        if (w->rg->phases[p].kind == AIR_PHASE_ROW &&
            (cuda_has(w, p, AIR_RG_LOAD, buf) ||
             cuda_has(w, p, AIR_RG_STORE, buf)))
            return true;
    return false;
}

static bool
is_first_load(const cuda_writer *w, int begin, int at)
{
    for (int i = begin; i < at; i++)
        if (w->rg->nodes[i].op == AIR_RG_LOAD &&
            w->rg->nodes[i].buf == w->rg->nodes[at].buf)
            return false;
    return true;
}

void
cuda_put_loads(cuda_writer *w, int phase, bool early, const cuda_access *at)
{
    const air_rg_phase *p = &w->rg->phases[phase];
    for (int i = p->begin; i < p->end; i++) {
        const air_rg_node *n = &w->rg->nodes[i];
        if (n->op == AIR_RG_LOAD && is_first_load(w, p->begin, i) &&
            (p->kind != AIR_PHASE_COLUMN || !cuda_is_sum(w, n->buf)) &&
            (w->bufs[n->buf].home == CUDA_REGISTERS) == early &&
            !is_held_already(w, phase, n->buf))
            put_load(w, n->buf, at);
    }
}

/* Does a phase after this one read what it leaves in registers? */
static bool
is_read_later(const cuda_writer *w, int phase, int buf)
{
    for (int p = phase + 1; p < w->rg->nphases; p++)
        if (cuda_has(w, p, AIR_RG_LOAD, buf))
            return true;
    return false;
}

/* What columns beyond the last one fold to is not read, so that a thread asks
 * once for each of its rows. */
static void
put_reduce(cuda_writer *w, int phase, const air_rg_node *n)
{
    const bool columns = w->rg->walk == AIR_WALK_OUTER;
    const bool near = columns && w->moment[n->buf];
    const char *where = columns ? "if (r < end) " : "if (k < n) ";
    base_text_add(&w->text, "            %st%d[k] = air_%s::%s(t%d[k], ",
                  near ? "" : where, n->buf, cuda_reduction(w, phase, n->buf),
                  near ? "near" : "op", n->buf);
    put_operand(w, n->a);
    base_text_add(&w->text,
                  near ? ", j == 0 && r == begin + y, r < end);\n" : ");\n");
}

static void
put_effect(cuda_writer *w, int phase, const air_rg_node *n,
           const cuda_access *at)
{
    if (n->op == AIR_RG_REDUCE) {
        put_reduce(w, phase, n);
        return;
    }
    bool held = w->bufs[n->buf].home == CUDA_REGISTERS;
    if (!held || !w->rg->bufs[n->buf].scratch) {
        base_text_add(&w->text, "            w%d[k] = ", n->buf);
        put_stored(w, n, at);
        base_text_add(&w->text, ";\n");
    }
    if (held && !w->loop && is_read_later(w, phase, n->buf)) {
        base_text_add(&w->text, "            h%d[j][k] = ", n->buf);
        put_stored(w, n, at);
        base_text_add(&w->text, ";\n");
    }
}

static void
put_node(cuda_writer *w, int phase, int i, const cuda_access *at)
{
    const air_rg_node *n = &w->rg->nodes[i];
    if (n->op == AIR_RG_CONST)
        return;
    if (n->op == AIR_RG_STORE || n->op == AIR_RG_REDUCE) {
        put_effect(w, phase, n, at);
        return;
    }
    base_text_add(&w->text,
                  "            const %s n%d = ", cuda_lane_type(n->lane), i);
    put_expression(w, n, at);
    base_text_add(&w->text, ";\n");
}

/* Stores of a phase, for which elements are gathered in w3 first. */
static bool
is_gathered(const cuda_writer *w, const air_rg_node *n)
{
    return n->op == AIR_RG_STORE && (w->bufs[n->buf].home != CUDA_REGISTERS ||
                                     !w->rg->bufs[n->buf].scratch);
}

void
cuda_put_elements(cuda_writer *w, int phase, const cuda_access *at)
{
    const air_rg_phase *p = &w->rg->phases[phase];
    const air_rg_node *nodes = w->rg->nodes;
    for (int i = p->begin; i < p->end; i++)
        if (is_gathered(w, &nodes[i]))
            base_text_add(&w->text, "        air_%s w%d[%d];\n",
                          cuda_dtype(w->rg->bufs[nodes[i].buf].dtype),
                          nodes[i].buf, w->V);
    base_text_add(&w->text,
                  "        #pragma unroll\n"
                  "        for (int k = 0; k < %d; k++) {\n",
                  w->V);
    for (int i = p->begin; i < p->end; i++)
        put_node(w, phase, i, at);
    base_text_add(&w->text, "        }\n");
    for (int i = p->begin; i < p->end; i++)
        if (is_gathered(w, &nodes[i]))
            put_move(w, true, nodes[i].buf, at);
}

/* ---- SCALAR phases ---- */

static bool
same_place(const air_region *rg, int a, int b)
{
    return rg->bufs[a].slot == rg->bufs[b].slot &&
           rg->bufs[a].offset == rg->bufs[b].offset;
}

/* Do nodes [begin, end) read what the phase stores? */
static bool
reads_stored(const cuda_writer *w, int phase, int begin, int end)
{
    const air_rg_phase *p = &w->rg->phases[phase];
    const air_rg_node *nodes = w->rg->nodes;
    for (int i = p->begin; i < p->end; i++)
        for (int k = begin; k < end && nodes[i].op == AIR_RG_STORE; k++)
            if (nodes[k].op == AIR_RG_LOAD &&
                same_place(w->rg, nodes[i].buf, nodes[k].buf))
                return true;
    return false;
}

static void
put_sync(cuda_writer *w)
{
    if (w->C > 1)
        base_text_add(&w->text, "        air_met(); air_meet(); air_met(); "
                                "air_meet();\n");
    else
        base_text_add(&w->text, "        air_sync<%d>();\n", w->G);
}

/* All threads of a row compute the same; one of them stores, after all have
 * read what it replaces. */
void
cuda_put_scalar_phase(cuda_writer *w, int phase)
{
    const air_rg_phase *p = &w->rg->phases[phase];
    const air_region *rg = w->rg;
    base_text_add(&w->text, "        {\n");
    for (int i = p->begin; i < p->end; i++) {
        const air_rg_node *n = &rg->nodes[i];
        if (n->op == AIR_RG_CONST || n->op == AIR_RG_STORE)
            continue;
        if (n->op == AIR_RG_SET) {
            base_text_add(&w->text, "        s%d = ", n->buf);
            put_operand(w, n->a);
        } else {
            base_text_add(&w->text,
                          "        const %s n%d = ", cuda_lane_type(n->lane),
                          i);
            put_expression(w, n, NULL);
        }
        base_text_add(&w->text, ";\n");
    }
    if (reads_stored(w, phase, p->begin, p->end))
        put_sync(w);
    for (int i = p->begin; i < p->end; i++) {
        const air_rg_node *n = &rg->nodes[i];
        if (n->op != AIR_RG_STORE)
            continue;
        base_text_add(&w->text, "        if (first) p%d[o%d] = ", n->buf,
                      n->buf);
        base_text_add(&w->text, "air_to_%s(%s::of(",
                      cuda_dtype(rg->bufs[n->buf].dtype),
                      store_lane(rg->bufs[n->buf].dtype));
        put_operand(w, n->a);
        base_text_add(&w->text, "));\n");
    }
    if (reads_stored(w, phase, p->end, rg->nnodes))
        put_sync(w);
    base_text_add(&w->text, "        }\n");
}
