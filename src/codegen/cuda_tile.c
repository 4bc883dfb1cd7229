/* cuda_tile.c: MAP where some buffers lie dense along another axis than the
 * one that threads walk: a block does squares of both axes. Turned buffers are
 * read and written along theirs, V elements a thread, and change direction in
 * shared memory; everything else is as in cuda_put_map. */
#include "codegen/cuda_write.h"

enum { POINTS = CUDA_TILE * CUDA_TILE };

static bool
is_turned(const cuda_writer *w, int buf, unsigned op)
{
    return w->bufs[buf].home == CUDA_TURNED && cuda_has(w, 0, op, buf);
}

static bool
has_turned(const cuda_writer *w, unsigned op)
{
    for (int b = 0; b < w->rg->nbufs; b++)
        if (is_turned(w, b, op))
            return true;
    return false;
}

/* Indices of a square's first point, c0 and r0, and of the other axes. */
static void
put_begin(cuda_writer *w)
{
    const int64_t deep = w->rg->dims[w->turn];
    const int64_t across = (w->cols + CUDA_TILE - 1) / CUDA_TILE;
    const int64_t down = (deep + CUDA_TILE - 1) / CUDA_TILE;
    cuda_put_size(w, "cols", w->cols);
    cuda_put_size(w, "deep", deep);
    cuda_put_size(w, "across", across);
    cuda_put_size(w, "down", down);
    cuda_put_size(w, "total", w->rows * across * down);
    base_text_add(&w->text,
                  "    for (I tile = (I)blockIdx.x; tile < total; tile += "
                  "(I)gridDim.x) {\n"
                  "        const I strip = ");
    cuda_put_quotient(w, "tile", across);
    base_text_add(&w->text,
                  ";\n        %s row = ", w->naxes > 1 ? "I" : "const I");
    cuda_put_quotient(w, "strip", down);
    base_text_add(&w->text,
                  ";\n        const I c0 = (tile - strip * across) * %d;\n"
                  "        const I r0 = (strip - row * down) * %d;\n",
                  CUDA_TILE, CUDA_TILE);
    cuda_put_indices(w, "");
    cuda_put_offsets(w, "");
}

/* A thread's vectors of a square, the first axis being the one that they lie
 * along. */
static void
put_vectors(cuda_writer *w, const char *along, const char *other)
{
    base_text_add(&w->text,
                  "        #pragma unroll\n"
                  "        for (int j = 0; j < %d; j++) {\n"
                  "        const int e = (int)threadIdx.x + j * %d;\n"
                  "        const int x = e %% %d * %d, y = e / %d;\n"
                  "        const I %s = %s0 + x, %s = %s0 + y;\n",
                  POINTS / (CUDA_TILE_BLOCK * w->V), CUDA_TILE_BLOCK,
                  CUDA_TILE / w->V, w->V, CUDA_TILE / w->V, along, along, other,
                  other);
}

static void
put_count(cuda_writer *w, const char *along, const char *size,
          const char *other, const char *other_size)
{
    base_text_add(&w->text,
                  "        const int n = %s >= %s || %s >= %s ? 0 : %s - %s < "
                  "%d ? (int)(%s - %s) : %d;\n",
                  other, other_size, along, size, size, along, w->V, size,
                  along, w->V);
}

/* p3 + o3 + .. of an element of a turned buffer at (r, c). */
static void
put_place(cuda_writer *w, int buf)
{
    base_text_add(&w->text, "p%d + o%d + r + c * ", buf, buf);
    cuda_put_value(w, w->bufs[buf].inner);
}

static void
put_squares(cuda_writer *w)
{
    for (int b = 0; b < w->rg->nbufs; b++)
        if (w->bufs[b].home == CUDA_TURNED)
            base_text_add(&w->text,
                          "    air_%s *const h%d = (air_%s *)(air_shared + "
                          "a.v[%d]);\n",
                          cuda_dtype(w->rg->bufs[b].dtype), b,
                          cuda_dtype(w->rg->bufs[b].dtype),
                          cuda_value(w, (int64_t)w->bufs[b].at));
}

/* All loads first, then what they gave into shared memory. */
static void
put_reads(cuda_writer *w)
{
    const int count = POINTS / (CUDA_TILE_BLOCK * w->V);
    for (int b = 0; b < w->rg->nbufs; b++) {
        if (!is_turned(w, b, AIR_RG_LOAD))
            continue;
        base_text_add(&w->text, "        air_%s v%d[%d][%d];\n",
                      cuda_dtype(w->rg->bufs[b].dtype), b, count, w->V);
        put_vectors(w, "r", "c");
        put_count(w, "r", "deep", "c", "cols");
        base_text_add(&w->text, "        air_load<%d>(v%d[j], ", w->V, b);
        put_place(w, b);
        base_text_add(&w->text, ", n, q%d);\n        }\n", b);
    }
    for (int b = 0; b < w->rg->nbufs; b++) {
        if (!is_turned(w, b, AIR_RG_LOAD))
            continue;
        put_vectors(w, "r", "c");
        base_text_add(&w->text,
                      "        for (int k = 0; k < %d; k++) h%d[(x + k) * %d + "
                      "y] = v%d[j][k];\n        }\n",
                      w->V, b, CUDA_TILE_PITCH, b);
    }
}

static void
put_row_offsets(cuda_writer *w)
{
    for (int b = 0; b < w->rg->nbufs; b++) {
        if (w->bufs[b].home == CUDA_TURNED)
            continue;
        base_text_add(&w->text, "        const I m%d = o%d", b, b);
        if (w->bufs[b].outer >> w->turn & 1) {
            base_text_add(&w->text, " + r * ");
            cuda_put_value(w, w->rg->bufs[b].strides[w->turn]);
        }
        base_text_add(&w->text, ";\n");
    }
}

static void
put_points(cuda_writer *w)
{
    const cuda_access at = {.suffix = "", .offset = 'm'};
    put_vectors(w, "c", "r");
    put_count(w, "c", "cols", "r", "deep");
    base_text_add(&w->text, "        const int place = y * %d + x;\n",
                  CUDA_TILE_PITCH);
    put_row_offsets(w);
    cuda_put_loads(w, 0, false, &at);
    cuda_put_elements(w, 0, &at);
    base_text_add(&w->text, "        }\n");
}

static void
put_writes(cuda_writer *w)
{
    for (int b = 0; b < w->rg->nbufs; b++) {
        if (!is_turned(w, b, AIR_RG_STORE))
            continue;
        put_vectors(w, "r", "c");
        put_count(w, "r", "deep", "c", "cols");
        base_text_add(&w->text,
                      "        air_%s v[%d];\n"
                      "        for (int k = 0; k < %d; k++) v[k] = h%d[(x + k) "
                      "* %d + y];\n        air_store<%d>(",
                      cuda_dtype(w->rg->bufs[b].dtype), w->V, w->V, b,
                      CUDA_TILE_PITCH, w->V);
        put_place(w, b);
        base_text_add(&w->text, ", v, n, q%d);\n        }\n", b);
    }
}

static void
put_sync(cuda_writer *w)
{
    base_text_add(&w->text, "        air_sync<%d>();\n", CUDA_TILE_BLOCK);
}

void
cuda_put_tiles(cuda_writer *w)
{
    const bool writes = has_turned(w, AIR_RG_STORE);
    cuda_begin_kernel(w, CUDA_TILE_BLOCK);
    cuda_put_shared(w);
    put_squares(w);
    put_begin(w);
    if (has_turned(w, AIR_RG_LOAD)) {
        put_reads(w);
        put_sync(w);
    }
    put_points(w);
    put_sync(w);
    if (writes) {
        put_writes(w);
        put_sync(w);
    }
    base_text_add(&w->text, "    }\n}\n");
    cuda_launch(w, w->grid, CUDA_TILE_BLOCK, w->shared);
}
