/* kern.c: what the printers of CALL kernels share. */
#include "driver/cuda/kern.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    uint8_t bytes;
    bool is_float;
    const char *type;
} dtypes[AIR_DTYPE_COUNT] = {
    [AIR_F32] = {4, true, "float"},  [AIR_F64] = {8, true, "double"},
    [AIR_BF16] = {2, true, "bf16"},  [AIR_F16] = {2, true, "f16"},
    [AIR_I8] = {1, false, "s8"},     [AIR_U8] = {1, false, "u8"},
    [AIR_I16] = {2, false, "short"}, [AIR_I32] = {4, false, "int"},
    [AIR_I64] = {8, false, "s64"},   [AIR_BOOL] = {1, false, "u8"},
};

const char *
kern_type(int dtype)
{
    return dtypes[dtype].type;
}

size_t
kern_bytes(int dtype)
{
    return dtypes[dtype].bytes;
}

bool
kern_is_float(int dtype)
{
    return dtypes[dtype].is_float;
}

bool
kern_has_dtype(int dtype, const cuda_props *props)
{
    return kern_type(dtype) && (kern_bytes(dtype) != 2 ||
                                props->capability >= KERN_HALF_CAPABILITY);
}

const char *
kern_word(int dtype)
{
    switch (kern_bytes(dtype)) {
    case 1: return "u8";
    case 2: return "u16";
    case 4: return "u32";
    default: return "u64";
    }
}

int64_t
kern_numel(const air_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

const air_tensor *
kern_arg(const air_call *call, int i)
{
    if (i >= call->nargs || call->args[i].kind != AIR_ARG_TENSOR ||
        call->args[i].t->dtype == AIR_DTYPE_NONE)
        return NULL;
    return call->args[i].t;
}

int64_t
kern_int(const air_call *call, int i, int64_t otherwise)
{
    if (i >= call->nargs || call->args[i].kind == AIR_ARG_NONE)
        return otherwise;
    return call->args[i].kind == AIR_ARG_FLOAT ? (int64_t)call->args[i].f
                                               : call->args[i].i;
}

double
kern_float(const air_call *call, int i, double otherwise)
{
    if (i >= call->nargs || call->args[i].kind == AIR_ARG_NONE)
        return otherwise;
    return call->args[i].kind == AIR_ARG_FLOAT ? call->args[i].f
                                               : (double)call->args[i].i;
}

int
kern_first_factor(const air_call *call)
{
    return call->nargs == 2 ? 0 : 1;
}

int
kern_axis(int64_t axis, int rank)
{
    return (int)(axis < 0 ? axis + rank : axis);
}

bool
kern_same_place(const air_tensor *a, const air_tensor *b)
{
    return a->slot == b->slot && a->offset == b->offset;
}

/* ---- printing one entry -------------------------------------------------- */

kern
kern_begin(cuda_source *out, const char *prelude, const char *attribute)
{
    return kern_begin_side(out, prelude, attribute, 1);
}

kern
kern_begin_side(cuda_source *out, const char *prelude, const char *attribute,
                int side)
{
    static const char *const bounds[] = {"", ", 2"};
    assert(out->nlaunches < CUDA_MAX_LAUNCHES);
    cuda_launch *launch = &out->launches[out->nlaunches];
    memset(launch, 0, sizeof *launch);
    launch->entry = out->nlaunches++;
    launch->shape = (air_launch){{1, 1, 1}, {256, 1, 1}, 0};
    out->prelude = prelude;
    if (launch->entry == 0)
        base_text_add(&out->text, "using namespace call;\n");
    base_text_add(&out->text,
                  "extern \"C\" __global__ %s__launch_bounds__(256%s) void\n"
                  "ENTRY(%d)(",
                  attribute, bounds[side == 2], launch->entry);
    return (kern){&out->text, launch, false};
}

void
kern_tensor(kern *k, const char *type, const char *name, const air_tensor *t)
{
    base_text_add(k->text, "%s%s *%s", k->some ? ", " : "", type, name);
    k->some = true;
    cuda_add_tensor(k->launch, t);
}

void
kern_scratch(kern *k, const char *type, const char *name, int64_t offset)
{
    base_text_add(k->text, "%s%s *%s", k->some ? ", " : "", type, name);
    k->some = true;
    assert(k->launch->nparams < CUDA_MAX_PARAMS);
    k->launch->params[k->launch->nparams++] =
        (cuda_param){.kind = CUDA_PARAM_SCRATCH, .value = offset};
}

void
kern_fault(kern *k)
{
    base_text_add(k->text, "%scall::fault *bad", k->some ? ", " : "");
    k->some = true;
    assert(k->launch->nparams < CUDA_MAX_PARAMS);
    k->launch->params[k->launch->nparams++] =
        (cuda_param){.kind = CUDA_PARAM_FAULT};
}

void
kern_draws(kern *k, int64_t count)
{
    base_text_add(k->text, "%su64 seed, u64 offset", k->some ? ", " : "");
    k->some = true;
    assert(k->launch->nparams + 2 <= CUDA_MAX_PARAMS);
    k->launch->params[k->launch->nparams++] =
        (cuda_param){.kind = CUDA_PARAM_SEED};
    k->launch->params[k->launch->nparams++] =
        (cuda_param){.kind = CUDA_PARAM_OFFSET};
    k->launch->draws = count;
}

void
kern_body(kern *k)
{
    base_text_add(k->text, ")\n{\n");
}

void
kern_groups(kern *k, const int64_t *dims, int rank, int threads)
{
    const int groups = KERN_THREADS / threads;
    int64_t total = 1;
    for (int i = 0; i < rank; i++)
        total *= dims[i];
    base_text_add(k->text,
                  "    release();\n    await();\n"
                  "    for (s64 n = blockIdx.x * %dll + threadIdx.x / %d; "
                  "n < %" PRId64 "; n += gridDim.x * %dll) {\n"
                  "        %s rest = n;\n",
                  groups, threads, total, groups,
                  total <= INT32_MAX ? "u32" : "u64");
    for (int i = rank - 1; i >= 0; i--)
        base_text_add(k->text,
                      i > 0 ? "        const s64 c%d = rest %% %" PRId64
                              "; rest /= %" PRId64 ";\n"
                            : "        const s64 c%d = rest;\n",
                      i, dims[i] > 0 ? dims[i] : 1, dims[i] > 0 ? dims[i] : 1);
}

void
kern_loop(kern *k, const int64_t *dims, int rank)
{
    kern_groups(k, dims, rank, 1);
}

void
kern_at(kern *k, const air_tensor *t, const int *axes)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] > 1 && t->strides[i] != 0)
            base_text_add(k->text, " + c%d * %" PRId64, axes ? axes[i] : i,
                          t->strides[i]);
}

void
kern_at_broadcast(kern *k, const air_tensor *t, int rank)
{
    int axes[AIR_MAX_RANK];
    for (int i = 0; i < t->rank; i++)
        axes[i] = rank - t->rank + i;
    kern_at(k, t, axes);
}

void
kern_number(kern *k, const char *name, int dtype, const air_arg *a)
{
    const char *type = kern_type(dtype);
    const bool is_float = a->kind == AIR_ARG_FLOAT;
    const double exact = is_float ? a->f : (double)a->i;
    const double value = dtype == AIR_F64 ? exact : (double)(float)exact;
    if (!kern_is_float(dtype))
        base_text_add(k->text, "        const %s %s = (%s)%" PRIu64 "ull;\n",
                      type, name, type,
                      (uint64_t)(is_float ? (int64_t)a->f : a->i));
    else if (isfinite(value))
        base_text_add(k->text, "        %s %s;\n        put(&%s, %a%s);\n",
                      type, name, name, value, dtype == AIR_F64 ? "" : "f");
    else
        base_text_add(k->text,
                      "        %s %s;\n        put(&%s, %sinfinity()%s);\n",
                      type, name, name, value < 0 ? "-" : "",
                      isnan(value) ? " - infinity()" : "");
}

void
kern_end(kern *k, int64_t total, const cuda_props *props)
{
    const int64_t blocks = (total + 255) / 256;
    const int64_t most = (int64_t)props->processors * 8;
    base_text_add(k->text, "    }\n}\n");
    kern_grid(k, blocks < most ? blocks : most, 1, 0);
}

int64_t
kern_stride(const air_tensor *t, int axis)
{
    return axis >= 0 && axis < t->rank && t->dims[axis] > 1 ? t->strides[axis]
                                                            : 0;
}

void
kern_stage(kern *k, const air_tensor *x, int64_t m, int64_t depth,
           int64_t x_row, int tile, int64_t n)
{
    const char *type = kern_type(x->dtype);
    base_text_add(
        k->text,
        "        [](auto) {},\n"
        "        [&](auto fast, %s *to) { stage_rows<G, decltype(fast)::value, "
        "%s, %" PRId64 ", %" PRId64 ", %" PRId64 ">(to, x); },\n"
        "        [](int, int, int) { return 0; },\n"
        "        [&](int tile, int i, int m, float v, int) {\n"
        "            const s64 n = tile * %d + i;\n"
        "            if (n >= %" PRId64 ")\n                return;\n",
        type, type, m, depth, x_row, tile, n);
}

void
kern_put_sum(kern *k, const air_tensor *y, int axis)
{
    base_text_add(k->text,
                  "            put(y + m * %" PRId64 " + n * %" PRId64
                  ", v);\n        });\n}\n",
                  kern_stride(y, axis), kern_stride(y, axis + 1));
}

void
kern_grid(kern *k, int64_t x, int64_t y, uint32_t shared)
{
    k->launch->shape.grid[0] = (uint32_t)x;
    k->launch->shape.grid[1] = (uint32_t)y;
    k->launch->shape.shared = shared;
}

bool
kern_is_shared(int64_t n, const cuda_props *props)
{
    const int64_t blocks = KERN_ROW_BLOCKS * (int64_t)props->processors;
    return n / KERN_ROW_TILE < UINT32_MAX / blocks;
}

int
kern_tile(int64_t rows, int64_t m, int64_t blocks)
{
    static const int tiles[] = {16, 24, 8};
    int best = 8;
    int64_t least = INT64_MAX;
    if (m == 1)
        return KERN_ROW_TILE;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const int tile = tiles[i];
        const int64_t all = (rows + tile - 1) / tile;
        const int64_t most = (all + blocks - 1) / blocks * tile;
        if (tile * m > KERN_THREADS || most >= least)
            continue;
        least = most;
        best = tile;
    }
    return best;
}

/* Deeper than wide, and of a length whose part of x fits the registers. */
static bool
is_deep(int64_t k, int64_t n)
{
    return k > n && k >= 4096 && k <= 8192;
}

int
kern_row_depth(int64_t k, int64_t n)
{
    return is_deep(k, n) ? 8 : k >= 4096 ? 4 : 6;
}

int
kern_row_bound(int64_t k, int64_t n)
{
    return is_deep(k, n) ? 2 : KERN_ROW_BLOCKS;
}
