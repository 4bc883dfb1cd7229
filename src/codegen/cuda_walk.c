/* cuda_walk.c: what the kernels of all walks begin with and share, and those of
 * MAP. */
#include "codegen/cuda_write.h"

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

static void
put_parameter(cuda_writer *w, int b)
{
    if (w->rg->bufs[b].number)
        base_text_add(&w->text, "air_i64 b%d, ", b);
    else if (has_buffer(w, b))
        base_text_add(&w->text, "air_%s *p%d, ",
                      cuda_dtype(w->rg->bufs[b].dtype), b);
}

/* What is given by value is read as if it were in memory. */
static void
put_number(cuda_writer *w, int b)
{
    const char *dtype = cuda_dtype(w->rg->bufs[b].dtype);
    if (w->rg->bufs[b].number)
        base_text_add(
            &w->text,
            "    const air_%s m%d = air_number<air_%s>(b%d), *p%d = &m%d;\n",
            dtype, b, dtype, b, b, b);
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
        put_parameter(w, b);
    base_text_add(
        &w->text, "%sconst A a)\n{\n    using I = %s;\n    air_begin();\n",
        w->workspace > 0 ? "char *ws, " : "", w->wide ? "air_i64" : "int");
    for (int b = 0; b < w->rg->nbufs; b++)
        put_number(w, b);
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

/* ---- phases that fold ---- */

void
cuda_put_sums(cuda_writer *w, int phase)
{
    for (int s = 0; s < w->rg->nscalars; s++) {
        const char *how = cuda_reduction(w, phase, s);
        const char *type = cuda_fold_type(w, s);
        if (how != NULL)
            base_text_add(&w->text,
                          "        %s t%d[%d];\n"
                          "        for (int k = 0; k < %d; k++) t%d[k] = "
                          "air_%s::start<%s>();\n",
                          type, s, w->V, w->V, s, how, type);
    }
}

void
cuda_put_closed(cuda_writer *w, int phase)
{
    for (int s = 0; s < w->rg->nscalars; s++) {
        if (!w->moment[s] || w->made[s] != phase)
            continue;
        base_text_add(&w->text,
                      "        for (int k = 0; k < %d; k++) t%d[k].close(",
                      w->V, s);
        if (w->rg->walk == AIR_WALK_OUTER)
            base_text_add(&w->text,
                          "begin + y < end ? (end - begin - y + %d) / %d : 0",
                          w->T / w->G - 1, w->T / w->G);
        else
            base_text_add(&w->text, "t%d[k].n", s);
        base_text_add(&w->text, ");\n");
    }
}

bool
cuda_loads_early(const cuda_writer *w, int phase)
{
    for (int b = 0; b < w->rg->nbufs; b++)
        if (w->bufs[b].home == CUDA_REGISTERS &&
            cuda_has(w, phase, AIR_RG_LOAD, b))
            return true;
    return false;
}

void
cuda_put_pass_arrays(cuda_writer *w, int phase)
{
    for (int b = 0; b < w->rg->nbufs && w->loop; b++)
        if (w->bufs[b].home == CUDA_REGISTERS &&
            cuda_has(w, phase, AIR_RG_LOAD, b))
            base_text_add(&w->text, "        air_%s h%d[%d][%d];\n",
                          cuda_dtype(w->rg->bufs[b].dtype), b, w->iter, w->V);
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
