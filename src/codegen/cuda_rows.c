/* cuda_rows.c: kernels of INNER: all phases in one, or, of a row for several
 * blocks, a launch or two for each. */
#include "codegen/cuda_write.h"

static const cuda_access plain = {.suffix = "", .offset = 'o'};

static void
put_home(cuda_writer *w, int buf)
{
    const cuda_buf *b = &w->bufs[buf];
    const char *dtype = cuda_dtype(w->rg->bufs[buf].dtype);
    if (cuda_is_sum(w, buf))
        return;
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
        base_text_add(&w->text, "        %s s%d", cuda_lane_type(w->lane[s]),
                      s);
        if (w->made[s] < before)
            base_text_add(&w->text,
                          " = *(%s *)(ws + a.v[%d] + (air_i64)at * 8)",
                          cuda_lane_type(w->lane[s]),
                          cuda_value(w, (int64_t)w->scalar_at[s]));
        base_text_add(&w->text, ";\n");
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
    cuda_put_closed(w, phase);
    for (int s = 0; s < w->rg->nscalars; s++) {
        const char *how = cuda_reduction(w, phase, s);
        if (how != NULL)
            put_fold(w, s, how);
    }
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

static void
put_row_phase(cuda_writer *w, int phase)
{
    base_text_add(&w->text, "        {\n");
    cuda_put_sums(w, phase);
    if (w->loop)
        base_text_add(&w->text,
                      "        for (I from = begin; from < cols; from += %d) "
                      "{\n",
                      w->G * w->V * w->iter);
    cuda_put_pass_arrays(w, phase);
    if (cuda_loads_early(w, phase)) {
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

/* ---- sums over rows ----
 * A thread adds to its own elements of the rows of its group; the groups of a
 * block are added up when all rows are done. */

static void
put_sum_home(cuda_writer *w, int buf)
{
    const cuda_buf *b = &w->bufs[buf];
    const char *dtype = cuda_dtype(w->rg->bufs[buf].dtype);
    const int64_t bytes = cuda_round_up(w->cols, 16) * b->bytes;
    if (b->home == CUDA_SHARED)
        base_text_add(&w->text,
                      "    air_%s *const h%d = (air_%s *)(air_shared + a.v[%d] "
                      "+ threadIdx.x / %d * a.v[%d]);\n",
                      dtype, buf, dtype, cuda_value(w, (int64_t)b->at), w->G,
                      cuda_value(w, bytes));
    else
        base_text_add(&w->text,
                      "    air_%s *const h%d = (air_%s *)(ws + a.v[%d] + "
                      "(air_i64)blockIdx.x * a.v[%d]);\n",
                      dtype, buf, dtype, cuda_value(w, (int64_t)b->sums_at),
                      cuda_value(w, bytes));
    base_text_add(&w->text,
                  "    for (I c = lane * %d; c < width; c += %d)\n"
                  "        for (int k = 0; k < %d; k++) h%d[c + k] = 0;\n",
                  w->V, w->G * w->V, w->V, buf);
}

static void
put_sums_begin(cuda_writer *w)
{
    cuda_put_size(w, "width", w->cols);
    for (int b = 0; b < w->rg->nbufs; b++)
        if (cuda_is_sum(w, b))
            put_sum_home(w, b);
}

static void
put_sum_of_groups(cuda_writer *w, int buf)
{
    const cuda_buf *b = &w->bufs[buf];
    const char *dtype = cuda_dtype(w->rg->bufs[buf].dtype);
    const int64_t pitch = cuda_round_up(w->cols, 16);
    const int at = cuda_value(w, (int64_t)b->at);
    const int step = cuda_value(w, pitch);
    base_text_add(&w->text,
                  "    {\n"
                  "        const air_%s *const s = (const air_%s *)"
                  "(air_shared + a.v[%d]);\n"
                  "        air_%s *const all = (air_%s *)(ws + a.v[%d]) + "
                  "(air_i64)blockIdx.x * a.v[%d];\n"
                  "        for (I c = (I)threadIdx.x; c < width; c += %d) {\n"
                  "        air_%s v = s[c];\n"
                  "        for (int g = 1; g < %d; g++) v = air_SUM::op(v, "
                  "s[g * a.v[%d] + c]);\n"
                  "        all[c] = v;\n"
                  "        }\n"
                  "    }\n",
                  dtype, dtype, at, dtype, dtype,
                  cuda_value(w, (int64_t)b->sums_at), step, w->T, dtype,
                  w->T / w->G, step);
}

static void
put_sums_end(cuda_writer *w)
{
    base_text_add(&w->text, "    __syncthreads();\n");
    for (int b = 0; b < w->rg->nbufs; b++)
        if (cuda_is_sum(w, b) && w->bufs[b].home == CUDA_SHARED)
            put_sum_of_groups(w, b);
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
                      "    const int lane = (int)threadIdx.x %% %d;\n", w->G);
    if (cuda_has_sums(w))
        put_sums_begin(w);
    if (w->C == 1)
        base_text_add(&w->text,
                      "    for (I row0 = (I)blockIdx.x * %d; row0 < rows; "
                      "row0 += (I)gridDim.x * %d) {\n",
                      w->T / w->G, w->T / w->G);
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
        else if (w->rg->phases[p].kind == AIR_PHASE_ROW)
            put_row_phase(w, p);
    base_text_add(&w->text, "    }\n%s", w->C > 1 ? "    air_met();\n" : "");
    if (cuda_has_sums(w))
        put_sums_end(w);
    base_text_add(&w->text, "}\n");
    cuda_launch(w, w->grid, w->T, w->shared);
    if (cuda_has_sums(w))
        cuda_put_column_phase(w);
}

/* ---- several blocks a row ----
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
                          cuda_lane_type(w->lane[s]),
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
        const char *type = cuda_lane_type(w->lane[s]);
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
                          cuda_lane_type(w->lane[s]),
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
