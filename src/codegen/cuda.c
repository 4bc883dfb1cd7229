/* cuda.c: CUDA C of a region: a plan, kernels, and the block that holds text
 * and arguments. */
#include "codegen/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cuda_write.h"

enum {
    DEFAULT_SMS = 132,
    DEFAULT_SHARED = 227 * 1024,
    LEFT = 27 * 1024, /* of shared memory: to the prelude's folds, and to L1 */
    VALUE_ALIGN = 16
};

/* Number `i` behind the name in "sm_90a:132:232448", which are processors and
 * bytes of shared memory of a block. */
static int
number(const char *isa, int i, int otherwise)
{
    for (; isa != NULL && i >= 0; i--) {
        isa = strchr(isa, ':');
        isa = isa != NULL ? isa + 1 : NULL;
    }
    int n = isa != NULL ? atoi(isa) : 0;
    return n > 0 ? n : otherwise;
}

/* 90 of "sm_90a:.." */
static int
capability(const char *isa)
{
    const char *at = strchr(isa, '_');
    return at != NULL ? atoi(at + 1) : 0;
}

static bool
is_empty(const cuda_writer *w)
{
    return w->grid == 0;
}

static void
put_kernels(cuda_writer *w)
{
    if (is_empty(w))
        return;
    switch (w->rg->walk) {
    case AIR_WALK_MAP:
        if (w->turn >= 0)
            cuda_put_tiles(w);
        else
            cuda_put_map(w);
        break;
    case AIR_WALK_OUTER: cuda_put_outer(w); break;
    default:
        if (w->parts > 1)
            cuda_put_inner_parts(w);
        else
            cuda_put_inner(w);
    }
}

/* One block: the text, its NUL, the arguments. */
static air_status
take_text(const air_alloc *alloc, const cuda_writer *w, air_code *out)
{
    char type[64];
    int len =
        snprintf(type, sizeof type, "typedef air_values<%d> A;\n", w->nvalues);
    size_t text = (size_t)len + w->text.len + 1;
    size_t at = (text + VALUE_ALIGN - 1) / VALUE_ALIGN * VALUE_ALIGN;
    size_t bytes = (size_t)w->nvalues * sizeof *w->values;
    char *block;
    AIR_TRY(base_new(alloc, at + bytes, (void **)&block));
    memcpy(block, type, (size_t)len);
    if (w->text.len > 0)
        memcpy(block + len, w->text.data, w->text.len);
    memcpy(block + at, w->values, bytes);
    out->bytes = (const uint8_t *)block;
    out->size = at + bytes;
    out->prelude = cuda_prelude;
    out->values = block + at;
    out->value_bytes = bytes;
    out->nlaunches = w->nlaunches;
    memcpy(out->launches, w->launches, sizeof out->launches);
    out->workspace = w->workspace;
    return AIR_OK;
}

air_status
cuda_region(const air_alloc *alloc, const air_region *region, const char *isa,
            air_code *out, const char **out_reason)
{
    cuda_writer *w;
    *out = (air_code){0};
    *out_reason = NULL;
    AIR_TRY(base_new(alloc, sizeof *w, (void **)&w));
    w->rg = region;
    w->sms = number(isa, 0, DEFAULT_SMS);
    w->clusters = isa != NULL && capability(isa) >= 90;
    w->most_shared = number(isa, 1, DEFAULT_SHARED) - LEFT;
    base_text_init(&w->text, alloc);
    if (cuda_plan(w))
        put_kernels(w);
    air_status status = w->text.status;
    if (status == AIR_OK)
        status = w->reason != NULL ? AIR_ERROR_UNSUPPORTED
                                   : take_text(alloc, w, out);
    *out_reason = w->reason;
    base_text_deinit(&w->text);
    base_free(alloc, w, sizeof *w);
    return status;
}
