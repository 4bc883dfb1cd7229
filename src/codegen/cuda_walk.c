/* cuda_walk.c: kernels around the phases of a region, one or more for each
 * way that an iteration space is walked. */
#include "codegen/cuda_write.h"

static const char *const types[] = {"float", "double", "air_i64", "bool"};
static const cuda_access plain = {.suffix = "", .offset = 'o'};

/* ---- what all kernels begin with ---- */

static bool
has_buffer(const cuda_writer *w, int buf)
{
    return !w->rg->bufs[buf].scratch;
}

/* Buffers of which all rows begin where V elements may move at once. */
static int64_t
fast_mask(const cuda_writer *w)
{
    int64_t mask = 0;
    for (int b = 0; b < w->rg->nbufs; b++) {
        int64_t piece =
            w->V * w->bufs[b].bytes < 16 ? w->V : 16 / w->bufs[b].bytes;
        const bool turned = w->bufs[b].home == CUDA_TURNED;
        const int dense = turned ? w->turn : w->vector;
        bool fast = turned || w->bufs[b].moved;
        for (int i = 0; i < w->rg->rank; i++)
            fast = fast && (i == dense || w->rg->dims[i] == 1 ||
                            w->rg->bufs[b].strides[i] % piece == 0);
        mask |= (int64_t)fast << b;
    }
    return mask;
}

void
cuda_launch(cuda_writer *w, int64_t grid, int block, size_t shared)
{
    if (w->nlaunches == AIR_CODE_LAUNCHES || grid > INT32_MAX) {
        w->reason = "too many blocks";
        return;
    }
    w->launches[w->nlaunches++] = (air_launch){.grid = {(uint32_t)grid, 1, 1},
                                               .block = {(uint32_t)block, 1, 1},
                                               .shared = (uint32_t)shared};
}

void
cuda_begin_kernel(cuda_writer *w, int block)
{
    base_text_add(&w->text,
                  "extern \"C\" __global__ void __launch_bounds__(%d)", block);
    if (w->C > 1)
        base_text_add(&w->text, " __cluster_dims__(%d, 1, 1)", w->C);
    base_text_add(&w->text, "\nENTRY(%d)(", w->nlaunches);
    for (int b = 0; b < w->rg->nbufs; b++)
        if (has_buffer(w, b))
            base_text_add(&w->text, "air_%s *p%d, ",
                          cuda_dtype(w->rg->bufs[b].dtype), b);
    base_text_add(
        &w->text, "%sconst A a)\n{\n    using I = %s;\n    air_begin();\n",
        w->workspace > 0 ? "char *ws, " : "", w->wide ? "air_i64" : "int");
    int mask = cuda_value(w, fast_mask(w));
    for (int b = 0; b < w->rg->nbufs; b++)
        if (has_buffer(w, b) &&
            (w->bufs[b].moved || w->bufs[b].home == CUDA_TURNED))
            base_text_add(&w->text,
                          "    const bool q%d = air_is_fast<%d>(p%d, a.v[%d], "
                          "%d);\n",
                          b, w->V, b, mask, b);
}

void
cuda_put_size(cuda_writer *w, const char *name, int64_t value)
{
    base_text_add(&w->text, "    const I %s = ", name);
    cuda_put_value(w, value);
    base_text_add(&w->text, ";\n");
}

/* "air_div(name, d, m, s)": name / d for name < 2^31: with s the least such
 * that 2^s >= d, m = floor(2^32 (2^s - d) / d) + 1 (Granlund, Montgomery 1994,
 * figure 4.1). */
void
cuda_put_quotient(cuda_writer *w, const char *name, int64_t d)
{
    int s = 0;
    while (s < 31 && (int64_t)1 << s < d)
        s++;
    uint64_t m =
        w->wide || d == 0
            ? 0
            : (((uint64_t)1 << 32) * (((uint64_t)1 << s) - (uint64_t)d)) /
                      (uint64_t)d +
                  1;
    int at = cuda_value(w, d);
    cuda_value(w, (int64_t)m);
    cuda_value(w, s);
    base_text_add(&w->text, "air_div(%s, a.v[%d], a.v[%d], a.v[%d])", name, at,
                  at + 1, at + 2);
}

/* Indices i0, i1 .. along the kept axes, from `row`, which is used up. */
void
cuda_put_indices(cuda_writer *w, const char *suffix)
{
    bool one = suffix[0] == '\0';
    for (int k = w->naxes - 1; k >= 0; k--) {
        int axis = w->axes[k];
        if (k == 0) {
            base_text_add(&w->text, "        %si%d%s = row;\n",
                          one ? "const I " : "", axis, suffix);
            break;
        }
        base_text_add(&w->text, "        const I d%d = ", axis);
        cuda_put_quotient(w, "row", w->rg->dims[axis]);
        base_text_add(&w->text, ";\n        %si%d%s = row - d%d * ",
                      one ? "const I " : "", axis, suffix, axis);
        cuda_put_value(w, w->rg->dims[axis]);
        base_text_add(&w->text, ";\n        row = d%d;\n", axis);
    }
}

void
cuda_put_offsets(cuda_writer *w, const char *suffix)
{
    bool one = suffix[0] == '\0';
    for (int b = 0; b < w->rg->nbufs; b++) {
        if (!has_buffer(w, b))
            continue;
        base_text_add(&w->text, "        %so%d%s = 0", one ? "const I " : "", b,
                      suffix);
        for (int k = 0; k < w->naxes; k++) {
            int axis = w->axes[k];
            if (!(w->bufs[b].outer >> axis & 1))
                continue;
            base_text_add(&w->text, " + i%d%s * ", axis, suffix);
            cuda_put_value(w, w->rg->bufs[b].strides[axis]);
        }
        base_text_add(&w->text, ";\n");
    }
}

/* ---- MAP ---- */

static void
put_map_arrays(cuda_writer *w)
{
    base_text_add(&w->text, "        I c[%d];\n        int n[%d];\n", w->U,
                  w->U);
    for (int k = 0; k < w->naxes; k++)
        base_text_add(&w->text, "        I i%d[%d];\n", w->axes[k], w->U);
    for (int b = 0; b < w->rg->nbufs; b++) {
        base_text_add(&w->text, "        I o%d[%d];\n", b, w->U);
        if (!cuda_has(w, 0, AIR_RG_LOAD, b))
            continue;
        base_text_add(&w->text, "        air_%s v%d[%d]",
                      cuda_dtype(w->rg->bufs[b].dtype), b, w->U);
        if (w->bufs[b].inner != 0)
            base_text_add(&w->text, "[%d]", w->V);
        base_text_add(&w->text, ";\n");
    }
}

static void
put_map_place(cuda_writer *w, const char *suffix)
{
    bool one = suffix[0] == '\0';
    base_text_add(&w->text,
                  "        %s row = ", w->naxes > 0 ? "I" : "const I");
    if (w->naxes > 0)
        cuda_put_quotient(w, "t", (w->cols + w->V - 1) / w->V);
    else
        base_text_add(&w->text, "0");
    base_text_add(&w->text,
                  ";\n        %sc%s = (t - row * vectors) * %d;\n"
                  "        %sn%s = ",
                  one ? "const I " : "", suffix, w->V, one ? "const int " : "",
                  suffix);
    if (w->exact)
        base_text_add(&w->text, "%d;\n", w->V);
    else
        base_text_add(&w->text,
                      "t >= total ? 0 : cols - c%s < %d ? (int)(cols - c%s) : "
                      "%d;\n",
                      suffix, w->V, suffix, w->V);
    cuda_put_indices(w, suffix);
    cuda_put_offsets(w, suffix);
}

void
cuda_put_map(cuda_writer *w)
{
    const int64_t vectors = (w->cols + w->V - 1) / w->V;
    const cuda_access at = {.suffix = w->U > 1 ? "[u]" : "", .offset = 'o'};
    cuda_begin_kernel(w, w->T);
    cuda_put_size(w, "cols", w->cols);
    cuda_put_size(w, "vectors", vectors);
    cuda_put_size(w, "total", w->rows * vectors);
    base_text_add(&w->text,
                  "    for (I t0 = (I)blockIdx.x * %d + (I)threadIdx.x; t0 < "
                  "total; t0 += (I)gridDim.x * %d) {\n",
                  w->T * w->U, w->T * w->U);
    if (w->U > 1) {
        put_map_arrays(w);
        base_text_add(&w->text,
                      "        #pragma unroll\n"
                      "        for (int u = 0; u < %d; u++) {\n"
                      "        const I t = t0 + u * %d;\n",
                      w->U, w->T);
    } else {
        base_text_add(&w->text, "        const I t = t0;\n");
    }
    put_map_place(w, at.suffix);
    cuda_put_loads(w, 0, false, &at);
    if (w->U > 1)
        base_text_add(&w->text,
                      "        }\n"
                      "        #pragma unroll\n"
                      "        for (int u = 0; u < %d; u++) {\n",
                      w->U);
    cuda_put_elements(w, 0, &at);
    base_text_add(&w->text, "%s    }\n}\n", w->U > 1 ? "        }\n" : "");
    cuda_launch(w, w->grid, w->T, 0);
}

/* ---- INNER ---- */

static void
put_home(cuda_writer *w, int buf)
{
    const cuda_buf *b = &w->bufs[buf];
    const char *dtype = cuda_dtype(w->rg->bufs[buf].dtype);
    if (b->home == CUDA_REGISTERS && !w->loop)
        base_text_add(&w->text, "        air_%s h%d[%d][%d];\n", dtype, buf,
                      w->iter, w->V);
    if (b->home == CUDA_SHARED)
        base_text_add(&w->text,
                      "        air_%s *const h%d = (air_%s *)(air_shared + "
                      "a.v[%d]);\n",
                      dtype, buf, dtype, cuda_value(w, (int64_t)b->at));
    if (b->home == CUDA_WORKSPACE) {
        base_text_add(&w->text,
                      "        air_%s *const h%d = (air_%s *)(ws + a.v[%d] + "
                      "(air_i64)%s * a.v[%d]);\n",
                      dtype, buf, dtype, cuda_value(w, (int64_t)b->at),
                      w->parts > 1 ? "at" : "blockIdx.x",
                      cuda_value(w, cuda_round_up(w->cols, 16) * b->bytes));
    }
}

static void
put_scalars(cuda_writer *w, int before)
{
    for (int s = 0; s < w->rg->nscalars; s++) {
        if (w->made[s] < 0)
            continue;
        base_text_add(&w->text, "        %s s%d", types[w->lane[s]], s);
        if (w->made[s] < before)
            base_text_add(
                &w->text, " = *(%s *)(ws + a.v[%d] + (air_i64)at * 8)",
                types[w->lane[s]], cuda_value(w, (int64_t)w->scalar_at[s]));
        base_text_add(&w->text, ";\n");
    }
}

static void
put_sums(cuda_writer *w, int phase)
{
    for (int s = 0; s < w->rg->nscalars; s++) {
        const char *how = cuda_reduction(w, phase, s);
        const char *type = types[w->lane[s]];
        if (how != NULL)
            base_text_add(&w->text,
                          "        %s t%d[%d];\n"
                          "        for (int k = 0; k < %d; k++) t%d[k] = "
                          "air_%s::start<%s>();\n",
                          type, s, w->V, w->V, s, how, type);
    }
}

/* Of a thread, then of all threads of the row. */
static void
put_fold(cuda_writer *w, int scalar, const char *how)
{
    base_text_add(&w->text,
                  "        for (int k = 1; k < %d; k++) t%d[0] = "
                  "air_%s::op(t%d[0], t%d[k]);\n",
                  w->V, scalar, how, scalar, scalar);
    if (w->C > 1)
        base_text_add(&w->text,
                      "        s%d = air_fold_cluster<air_%s, %d, %d>(t%d[0]);"
                      "\n",
                      scalar, how, w->T, w->C, scalar);
    else
        base_text_add(&w->text, "        s%d = air_fold<air_%s, %d>(t%d[0]);\n",
                      scalar, how, w->G, scalar);
}

static void
put_folds(cuda_writer *w, int phase)
{
    for (int s = 0; s < w->rg->nscalars; s++) {
        const char *how = cuda_reduction(w, phase, s);
        if (how != NULL)
            put_fold(w, s, how);
    }
}

static bool
loads_early(const cuda_writer *w, int phase)
{
    for (int b = 0; b < w->rg->nbufs; b++)
        if (w->bufs[b].home == CUDA_REGISTERS &&
            cuda_has(w, phase, AIR_RG_LOAD, b))
            return true;
    return false;
}

static void
put_iteration(cuda_writer *w)
{
    base_text_add(&w->text,
                  "        #pragma unroll\n"
                  "        for (int j = 0; j < %d; j++) {\n"
                  "        const I c = %s(lane + j * %d) * %d;\n",
                  w->iter, w->loop ? "from + " : "", w->G, w->V);
    if (w->exact)
        base_text_add(&w->text, "        const int n = %d;\n", w->V);
    else
        base_text_add(&w->text,
                      "        const int n = cols - c < %d ? (int)(cols - c) : "
                      "%d;\n",
                      w->V, w->V);
}

/* Arrays of what a phase loads early, when they live for one pass. */
static void
put_pass_arrays(cuda_writer *w, int phase)
{
    for (int b = 0; b < w->rg->nbufs && w->loop; b++)
        if (w->bufs[b].home == CUDA_REGISTERS &&
            cuda_has(w, phase, AIR_RG_LOAD, b))
            base_text_add(&w->text, "        air_%s h%d[%d][%d];\n",
                          cuda_dtype(w->rg->bufs[b].dtype), b, w->iter, w->V);
}

static void
put_row_phase(cuda_writer *w, int phase)
{
    base_text_add(&w->text, "        {\n");
    put_sums(w, phase);
    if (w->loop)
        base_text_add(&w->text,
                      "        for (I from = begin; from < cols; from += %d) "
                      "{\n",
                      w->G * w->V * w->iter);
    put_pass_arrays(w, phase);
    if (loads_early(w, phase)) {
        put_iteration(w);
        cuda_put_loads(w, phase, true, &plain);
        base_text_add(&w->text, "        }\n");
    }
    put_iteration(w);
    cuda_put_loads(w, phase, false, &plain);
    cuda_put_elements(w, phase, &plain);
    base_text_add(&w->text, "        }\n%s", w->loop ? "        }\n" : "");
    put_folds(w, phase);
    base_text_add(&w->text, "        }\n");
}

/* Where rows and squares in shared memory begin. */
void
cuda_put_shared(cuda_writer *w)
{
    if (w->shared > 0)
        base_text_add(
            &w->text,
            "    extern __shared__ air_piece<16> air_shared_rows[];\n"
            "    char *const air_shared = (char *)air_shared_rows;\n");
}

static void
put_row_loop(cuda_writer *w)
{
    if (w->C > 1)
        base_text_add(&w->text,
                      "    air_meet();\n"
                      "    const int lane = (int)(blockIdx.x %% %d * %d + "
                      "threadIdx.x);\n"
                      "    for (I row0 = (I)(blockIdx.x / %d); row0 < rows; "
                      "row0 += (I)(gridDim.x / %d)) {\n",
                      w->C, w->T, w->C, w->C);
    else
        base_text_add(&w->text,
                      "    const int lane = (int)threadIdx.x %% %d;\n"
                      "    for (I row0 = (I)blockIdx.x * %d; row0 < rows; "
                      "row0 += (I)gridDim.x * %d) {\n",
                      w->G, w->T / w->G, w->T / w->G);
}

static void
put_row_begin(cuda_writer *w)
{
    bool block = w->T <= w->G;
    cuda_put_size(w, "rows", w->rows);
    cuda_put_shared(w);
    put_row_loop(w);
    if (block)
        base_text_add(&w->text, "        const I at = row0;\n"
                                "        const bool on = true;\n");
    else
        base_text_add(&w->text,
                      "        const I at = row0 + (I)threadIdx.x / %d;\n"
                      "        const bool on = %s;\n",
                      w->G, w->exact ? "true" : "at < rows");
    base_text_add(&w->text,
                  "        const bool first = on && lane == 0;\n"
                  "        %s row = on ? at : rows - 1;\n"
                  "        const I begin = 0, cols = on ? ",
                  w->naxes > 1 ? "I" : "const I");
    cuda_put_value(w, w->cols);
    base_text_add(&w->text, " : 0;\n");
}

void
cuda_put_inner(cuda_writer *w)
{
    cuda_begin_kernel(w, w->T);
    put_row_begin(w);
    cuda_put_indices(w, "");
    cuda_put_offsets(w, "");
    put_scalars(w, 0);
    for (int b = 0; b < w->rg->nbufs; b++)
        put_home(w, b);
    for (int p = 0; p < w->rg->nphases; p++)
        if (w->rg->phases[p].kind == AIR_PHASE_SCALAR)
            cuda_put_scalar_phase(w, p);
        else
            put_row_phase(w, p);
    base_text_add(&w->text, "    }\n%s}\n", w->C > 1 ? "    air_met();\n" : "");
    cuda_launch(w, w->grid, w->T, w->shared);
}

/* ---- INNER, several blocks a row ----
 * A ROW phase is a launch of rows x parts blocks that leave partial results in
 * the workspace; after it a block a row folds them and runs the SCALAR phase.
 * Scalars go from launch to launch in the workspace. */

static void
put_part_begin(cuda_writer *w, bool parts)
{
    int64_t per = cuda_round_up((w->cols + w->parts - 1) / w->parts, w->V);
    base_text_add(&w->text,
                  "    {\n        const int lane = (int)threadIdx.x;\n"
                  "        const I at = (I)blockIdx.x");
    if (parts) {
        base_text_add(&w->text, " / ");
        cuda_put_value(w, w->parts);
        base_text_add(&w->text, ", part = (I)blockIdx.x - at * ");
        cuda_put_value(w, w->parts);
        base_text_add(&w->text, ", size = ");
        cuda_put_value(w, w->cols);
        base_text_add(&w->text, ", begin = part * ");
        cuda_put_value(w, per);
        base_text_add(&w->text, ", end = begin + ");
        cuda_put_value(w, per);
        base_text_add(&w->text, ", cols = end < size ? end : size");
    }
    base_text_add(&w->text,
                  ";\n        const bool first = lane == 0;\n"
                  "        %s row = at;\n",
                  w->naxes > 1 ? "I" : "const I");
    cuda_put_indices(w, "");
    cuda_put_offsets(w, "");
}

static void
put_partial_stores(cuda_writer *w, int phase)
{
    for (int s = 0; s < w->rg->nscalars; s++)
        if (cuda_reduction(w, phase, s) != NULL)
            base_text_add(&w->text,
                          "        if (first) *(%s *)(ws + a.v[%d] + "
                          "(air_i64)blockIdx.x * 8) = s%d;\n",
                          types[w->lane[s]],
                          cuda_value(w, (int64_t)w->part_at[s]), s);
}

static void
put_part_kernel(cuda_writer *w, int phase)
{
    cuda_begin_kernel(w, w->T);
    put_part_begin(w, true);
    put_scalars(w, phase);
    for (int b = 0; b < w->rg->nbufs; b++)
        put_home(w, b);
    put_row_phase(w, phase);
    put_partial_stores(w, phase);
    base_text_add(&w->text, "    }\n}\n");
    cuda_launch(w, w->grid, w->T, 0);
}

static void
put_partial_folds(cuda_writer *w, int phase)
{
    for (int s = 0; s < w->rg->nscalars; s++) {
        const char *how = cuda_reduction(w, phase, s);
        const char *type = types[w->lane[s]];
        if (how == NULL)
            continue;
        base_text_add(&w->text,
                      "        s%d = air_%s::start<%s>();\n"
                      "        for (I part = lane; part < ",
                      s, how, type);
        cuda_put_value(w, w->parts);
        base_text_add(&w->text,
                      "; part += %d)\n            s%d = air_%s::op(s%d, "
                      "*(%s *)(ws + a.v[%d] + ((air_i64)at * ",
                      CUDA_FOLD_BLOCK, s, how, s, type,
                      cuda_value(w, (int64_t)w->part_at[s]));
        cuda_put_value(w, w->parts);
        base_text_add(&w->text,
                      " + part) * 8));\n"
                      "        s%d = air_fold<air_%s, %d>(s%d);\n",
                      s, how, CUDA_FOLD_BLOCK, s);
    }
}

/* Partial results of phase `row` become scalars, then phase `scalar` runs;
 * either may be -1. */
static void
put_fold_kernel(cuda_writer *w, int row, int scalar)
{
    int last = scalar >= 0 ? scalar : row;
    cuda_begin_kernel(w, CUDA_FOLD_BLOCK);
    put_part_begin(w, false);
    put_scalars(w, row >= 0 ? row : scalar);
    if (row >= 0)
        put_partial_folds(w, row);
    if (scalar >= 0)
        cuda_put_scalar_phase(w, scalar);
    for (int s = 0; s < w->rg->nscalars; s++)
        if (w->made[s] == last || (row >= 0 && w->made[s] == row))
            base_text_add(&w->text,
                          "        if (first) *(%s *)(ws + a.v[%d] + "
                          "(air_i64)at * 8) = s%d;\n",
                          types[w->lane[s]],
                          cuda_value(w, (int64_t)w->scalar_at[s]), s);
    base_text_add(&w->text, "    }\n}\n");
    cuda_launch(w, w->rows, CUDA_FOLD_BLOCK, 0);
}

void
cuda_put_inner_parts(cuda_writer *w)
{
    int pending = -1;
    for (int p = 0; p < w->rg->nphases; p++) {
        bool scalar = w->rg->phases[p].kind == AIR_PHASE_SCALAR;
        if (scalar || pending >= 0)
            put_fold_kernel(w, pending, scalar ? p : -1);
        pending = -1;
        if (scalar)
            continue;
        put_part_kernel(w, p);
        if (cuda_has(w, p, AIR_RG_REDUCE, -1))
            pending = p;
    }
    if (pending >= 0)
        put_fold_kernel(w, pending, -1);
}

/* ---- OUTER ---- */

static void
put_columns_begin(cuda_writer *w, int64_t blocks)
{
    int64_t per = (w->folded + w->parts - 1) / w->parts;
    cuda_put_size(w, "parts", w->parts);
    cuda_put_size(w, "blocks", blocks);
    cuda_put_size(w, "cols", w->cols);
    cuda_put_size(w, "folded", w->folded);
    cuda_put_size(w, "per", per);
    base_text_add(&w->text,
                  "    {\n"
                  "        const I job = (I)blockIdx.x / parts, part = "
                  "(I)blockIdx.x - job * parts, at = job / blocks;\n"
                  "        %s row = at;\n"
                  "        const I c = ((job - at * blocks) * %d + "
                  "(I)threadIdx.x %% %d) * %d;\n"
                  "        const int count = cols - c < %d ? (int)(cols - c) : "
                  "%d;\n"
                  "        const I y = (I)threadIdx.x / %d, begin = part * per,"
                  " end = begin + per < folded ? begin + per : folded;\n",
                  w->naxes > 1 ? "I" : "const I", w->G, w->G, w->V, w->V, w->V,
                  w->G);
    cuda_put_indices(w, "");
    cuda_put_offsets(w, "");
}

static void
put_fold_rows(cuda_writer *w)
{
    for (int b = 0; b < w->rg->nbufs; b++) {
        if (!cuda_has(w, 0, AIR_RG_LOAD, b) && !cuda_has(w, 0, AIR_RG_STORE, b))
            continue;
        base_text_add(&w->text, "        const I m%d = o%d", b, b);
        if (w->bufs[b].outer >> (w->rg->rank - 2) & 1) {
            base_text_add(&w->text, " + r * ");
            cuda_put_value(w, w->rg->bufs[b].strides[w->rg->rank - 2]);
        }
        base_text_add(&w->text, ";\n");
    }
}

static void
put_column_iteration(cuda_writer *w)
{
    base_text_add(&w->text,
                  "        #pragma unroll\n"
                  "        for (int j = 0; j < %d; j++) {\n"
                  "        const I r = from + j * %d;\n"
                  "        const int n = r < end ? count : 0;\n",
                  w->iter, w->T / w->G);
    put_fold_rows(w);
}

static void
put_column_sums(cuda_writer *w)
{
    const cuda_access at = {.suffix = "", .offset = 'm'};
    put_sums(w, 0);
    base_text_add(&w->text,
                  "        for (I from = begin + y; from < end; from "
                  "+= %d) {\n",
                  w->T / w->G * w->iter);
    put_pass_arrays(w, 0);
    if (loads_early(w, 0)) {
        put_column_iteration(w);
        cuda_put_loads(w, 0, true, &at);
        base_text_add(&w->text, "        }\n");
    }
    put_column_iteration(w);
    cuda_put_loads(w, 0, false, &at);
    cuda_put_elements(w, 0, &at);
    base_text_add(&w->text, "        }\n        }\n");
    for (int s = 0; s < w->rg->nscalars; s++)
        if (w->made[s] == 0)
            base_text_add(&w->text,
                          "        air_fold_rows<air_%s, %d, %d, %d>(t%d);\n",
                          cuda_reduction(w, 0, s), w->T / w->G, w->G, w->V, s);
}

static void
put_column_results(cuda_writer *w)
{
    const cuda_access at = {.suffix = "", .offset = 'o', .each = true};
    base_text_add(&w->text, "        if (y == 0 && count > 0) {\n"
                            "        const int n = count;\n");
    for (int s = 0; s < w->rg->nscalars; s++)
        if (w->made[s] == 0)
            base_text_add(&w->text, "        const %s *const s%d = t%d;\n",
                          types[w->lane[s]], s, s);
    cuda_put_loads(w, 1, false, &at);
    cuda_put_elements(w, 1, &at);
    base_text_add(&w->text, "        }\n");
}

static void
put_column_partials(cuda_writer *w)
{
    for (int s = 0; s < w->rg->nscalars; s++)
        if (w->made[s] == 0)
            base_text_add(
                &w->text,
                "        for (int k = 0; k < %d; k++) if (y == 0 && k < "
                "count)\n"
                "            ((%s *)(ws + a.v[%d]))[(at * parts + part) * "
                "cols + c + k] = t%d[k];\n",
                w->V, types[w->lane[s]], cuda_value(w, (int64_t)w->part_at[s]),
                s);
}

/* A thread a column folds the partial results and runs phase 1. */
static void
put_column_kernel(cuda_writer *w)
{
    const cuda_access at = {.suffix = "", .offset = 'o', .each = true};
    const int64_t threads = w->rows * w->cols;
    w->V = 1;
    cuda_begin_kernel(w, CUDA_FOLD_BLOCK);
    cuda_put_size(w, "cols", w->cols);
    cuda_put_size(w, "parts", w->parts);
    cuda_put_size(w, "total", threads);
    base_text_add(&w->text,
                  "    const I t = (I)blockIdx.x * %d + (I)threadIdx.x;\n"
                  "    if (t < total) {\n"
                  "        const I at = t / cols, c = t - at * cols;\n"
                  "        %s row = at;\n"
                  "        const int n = 1;\n",
                  CUDA_FOLD_BLOCK, w->naxes > 1 ? "I" : "const I");
    cuda_put_indices(w, "");
    cuda_put_offsets(w, "");
    for (int s = 0; s < w->rg->nscalars; s++) {
        if (w->made[s] != 0)
            continue;
        const char *how = cuda_reduction(w, 0, s), *type = types[w->lane[s]];
        base_text_add(&w->text,
                      "        %s s%d[1] = {air_%s::start<%s>()};\n"
                      "        for (I part = 0; part < parts; part++) s%d[0] = "
                      "air_%s::op(s%d[0], ((%s *)(ws + a.v[%d]))[(at * parts "
                      "+ part) * cols + c]);\n",
                      type, s, how, type, s, how, s, type,
                      cuda_value(w, (int64_t)w->part_at[s]));
    }
    cuda_put_loads(w, 1, false, &at);
    cuda_put_elements(w, 1, &at);
    base_text_add(&w->text, "    }\n}\n");
    cuda_launch(w, (threads + CUDA_FOLD_BLOCK - 1) / CUDA_FOLD_BLOCK,
                CUDA_FOLD_BLOCK, 0);
}

void
cuda_put_outer(cuda_writer *w)
{
    int64_t vectors = (w->cols + w->V - 1) / w->V;
    cuda_begin_kernel(w, w->T);
    put_columns_begin(w, (vectors + w->G - 1) / w->G);
    put_column_sums(w);
    if (w->parts == 1)
        put_column_results(w);
    else
        put_column_partials(w);
    base_text_add(&w->text, "    }\n}\n");
    cuda_launch(w, w->grid, w->T, 0);
    if (w->parts > 1)
        put_column_kernel(w);
}
