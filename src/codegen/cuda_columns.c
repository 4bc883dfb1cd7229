/* cuda_columns.c: kernels of OUTER: a thread folds some rows of its columns, a
 * block all of its rows; where several blocks share a column, another launch
 * folds what they leave. */
#include "codegen/cuda_write.h"

/* Threads that fold partial results of a column, where there are few, many. */
enum { COLUMN_LANES = 8, MANY_LANES = 32, MANY_PARTS = 64 };

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
    cuda_put_sums(w, 0);
    base_text_add(&w->text,
                  "        for (I from = begin + y; from < end; from "
                  "+= %d) {\n",
                  w->T / w->G * w->iter);
    cuda_put_pass_arrays(w, 0);
    if (cuda_loads_early(w, 0)) {
        put_column_iteration(w);
        cuda_put_loads(w, 0, true, &at);
        base_text_add(&w->text, "        }\n");
    }
    put_column_iteration(w);
    cuda_put_loads(w, 0, false, &at);
    cuda_put_elements(w, 0, &at);
    base_text_add(&w->text, "        }\n        }\n");
    cuda_put_closed(w, 0);
    for (int s = 0; s < w->rg->nscalars; s++)
        if (w->made[s] == 0)
            base_text_add(&w->text,
                          "        air_fold_rows<air_%s, %d, %d, %d>(t%d);\n",
                          cuda_reduction(w, 0, s), w->T / w->G, w->G, w->V, s);
}

static void
put_result(cuda_writer *w, int scalar)
{
    if (w->moment[scalar])
        base_text_add(&w->text,
                      "        float s%d[%d];\n"
                      "        for (int k = 0; k < %d; k++) s%d[k] = t%d[k];\n",
                      scalar, w->V, w->V, scalar, scalar);
    else
        base_text_add(&w->text, "        const %s *const s%d = t%d;\n",
                      cuda_lane_type(w->lane[scalar]), scalar, scalar);
}

static void
put_column_results(cuda_writer *w)
{
    const cuda_access at = {.suffix = "", .offset = 'o', .each = true};
    const int last = w->rg->nphases - 1;
    base_text_add(&w->text, "        if (y == 0 && count > 0) {\n"
                            "        const int n = count;\n");
    for (int s = 0; s < w->rg->nscalars; s++)
        if (w->rg->walk == AIR_WALK_OUTER && w->made[s] == 0)
            put_result(w, s);
    cuda_put_loads(w, last, false, &at);
    cuda_put_elements(w, last, &at);
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
                w->V, cuda_fold_type(w, s),
                cuda_value(w, (int64_t)w->part_at[s]), s);
}

/* Partial results of a column are far away: `lanes` threads ask for them at
 * once. The sum is t3[0] or v3[0]. */
static void
put_fold_partials(cuda_writer *w, int lanes, char name, int at, const char *how,
                  const char *type, size_t from)
{
    base_text_add(&w->text,
                  "        %s %c%d[1] = {air_%s::start<%s>()};\n"
                  "        #pragma unroll 8\n"
                  "        for (I part = y; part < end; part += %d) %c%d[0] = "
                  "air_%s::op(%c%d[0], ((%s *)(ws + a.v[%d]))[(at * parts "
                  "+ part) * pitch + c]);\n"
                  "        air_fold_rows<air_%s, %d, %d, 1>(%c%d);\n",
                  type, name, at, how, type, lanes, name, at, how, name, at,
                  type, cuda_value(w, (int64_t)from), how, lanes,
                  CUDA_FOLD_BLOCK / lanes, name, at);
}

static void
put_all_partials(cuda_writer *w, int lanes)
{
    for (int s = 0; s < w->rg->nscalars; s++)
        if (w->rg->walk == AIR_WALK_OUTER && w->made[s] == 0)
            put_fold_partials(w, lanes, 't', s, cuda_reduction(w, 0, s),
                              cuda_fold_type(w, s), w->part_at[s]);
    for (int b = 0; b < w->rg->nbufs; b++)
        if (cuda_is_sum(w, b))
            put_fold_partials(w, lanes, 'v', b, "SUM",
                              w->bufs[b].bytes == 8 ? "double" : "float",
                              w->bufs[b].sums_at);
}

/* Folds the partial results of `rows` by columns, `parts` each, which lie
 * `pitch` elements apart, and runs the last phase. */
static void
put_column_kernel(cuda_writer *w, int64_t rows, int64_t parts, int64_t pitch)
{
    const int lanes = parts > MANY_PARTS ? MANY_LANES : COLUMN_LANES;
    const int G = CUDA_FOLD_BLOCK / lanes;
    const int64_t blocks = (w->cols + G - 1) / G;
    w->V = 1;
    cuda_begin_kernel(w, CUDA_FOLD_BLOCK);
    cuda_put_size(w, "cols", w->cols);
    cuda_put_size(w, "pitch", pitch);
    cuda_put_size(w, "parts", parts);
    cuda_put_size(w, "blocks", blocks);
    base_text_add(&w->text,
                  "    {\n"
                  "        const I at = (I)blockIdx.x / blocks;\n"
                  "        const I c = ((I)blockIdx.x - at * blocks) * %d + "
                  "(I)threadIdx.x %% %d, y = (I)threadIdx.x / %d;\n"
                  "        const int count = c < cols ? 1 : 0;\n"
                  "        const I end = count > 0 ? parts : (I)0;\n"
                  "        %s row = at;\n",
                  G, G, G, w->naxes > 1 ? "I" : "const I");
    cuda_put_indices(w, "");
    cuda_put_offsets(w, "");
    put_all_partials(w, lanes);
    put_column_results(w);
    base_text_add(&w->text, "    }\n}\n");
    cuda_launch(w, rows * blocks, CUDA_FOLD_BLOCK, 0);
}

void
cuda_put_column_phase(cuda_writer *w)
{
    put_column_kernel(w, 1, w->grid, cuda_round_up(w->cols, 16));
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
        put_column_kernel(w, w->rows, w->parts, w->cols);
}
