/* shape_image.c: shapes of operators that move pixels and diagonals about, of
 * weight norm and of distances. */
#include <string.h>

#include "ir/shape.h"

/* ---- pixels and channels ------------------------------------------------- */

/* [.., C, H, W]: *d = *d op k, and the division has no remainder. */
static air_status
exact_division(const ir_infer *in, air_dim *d, int64_t k)
{
    int64_t v;

    AIR_REQUIRE(!ir_dim_is_const(in->g, *d, &v) || v % k == 0, AIR_ERROR_SHAPE,
                "%s: size %lld is no multiple of %lld", in->info->name,
                (long long)v, (long long)k);
    return shape_math(in, IR_DIM_DIV, *d, k, d);
}

static air_status
pixel_factor(const ir_infer *in, const char *name, air_dim *dims, int64_t *out)
{
    const ir_value *v = shape_tensor(in, "a");

    AIR_TRY(shape_int(in, name, out));
    AIR_REQUIRE(v->rank >= 3 && *out > 0 && *out < INT32_MAX, AIR_ERROR_SHAPE,
                "%s: needs [.., channels, height, width] and a factor",
                in->info->name);
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    return AIR_OK;
}

air_status
shape_pixel_shuffle(ir_infer *in)
{
    air_dim dims[AIR_MAX_RANK];
    int64_t r;
    int rank = shape_tensor(in, "a")->rank;

    AIR_TRY(pixel_factor(in, "upscale_factor", dims, &r));
    AIR_TRY(exact_division(in, &dims[rank - 3], r * r));
    for (int i = rank - 2; i < rank; i++)
        AIR_TRY(shape_math(in, IR_DIM_MUL, dims[i], r, &dims[i]));
    return shape_set(in, 0, rank, dims);
}

air_status
shape_pixel_unshuffle(ir_infer *in)
{
    air_dim dims[AIR_MAX_RANK];
    int64_t r;
    int rank = shape_tensor(in, "a")->rank;

    AIR_TRY(pixel_factor(in, "downscale_factor", dims, &r));
    AIR_TRY(shape_math(in, IR_DIM_MUL, dims[rank - 3], r * r, &dims[rank - 3]));
    for (int i = rank - 2; i < rank; i++)
        AIR_TRY(exact_division(in, &dims[i], r));
    return shape_set(in, 0, rank, dims);
}

air_status
shape_rot90(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *list = shape_arg(in, "dims");
    air_dim dims[AIR_MAX_RANK];
    int axes[2];
    int64_t k;

    AIR_REQUIRE(list->count == 2, AIR_ERROR_ARGUMENT, "rot90: two dims");
    for (int i = 0; i < 2; i++) {
        air_attr a = {.kind = AIR_ATTR_INT, .dim = list->dims[i]};
        AIR_TRY(ir_axis(in->g, &a, v->rank, "dims", &axes[i]));
    }
    AIR_REQUIRE(axes[0] != axes[1], AIR_ERROR_ARGUMENT,
                "rot90: needs two different dims");
    AIR_TRY(shape_int(in, "k", &k));
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    dims[axes[0]] = v->dims[axes[k % 2 != 0]];
    dims[axes[1]] = v->dims[axes[k % 2 == 0]];
    return shape_set(in, 0, v->rank, dims);
}

/* [N, C, H, W], or without N, to [N, C * taps, windows] */
air_status
shape_im2col(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const bool batched = v->rank == 4;
    int64_t kernel[2], dilation[2], pad[2], stride[2], taps = 1;
    air_dim dims[3], windows[2];

    AIR_REQUIRE(v->rank == 3 || batched, AIR_ERROR_SHAPE,
                "%s: needs 3 or 4 dims", in->info->name);
    AIR_TRY(shape_ints(in, "kernel_size", 2, kernel));
    AIR_TRY(shape_ints(in, "dilation", 2, dilation));
    AIR_TRY(shape_ints(in, "padding", 2, pad));
    AIR_TRY(shape_ints(in, "stride", 2, stride));
    for (int i = 0; i < 2; i++) {
        AIR_REQUIRE(kernel[i] > 0 && kernel[i] < INT16_MAX && stride[i] > 0 &&
                        dilation[i] > 0 && dilation[i] < INT16_MAX &&
                        pad[i] >= 0 && pad[i] < INT32_MAX,
                    AIR_ERROR_ARGUMENT, "%s: kernel, stride or padding",
                    in->info->name);
        air_dim d = v->dims[v->rank - 2 + i];
        int64_t reach = 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1;
        AIR_TRY(shape_math(in, IR_DIM_ADD, d, reach, &d));
        AIR_TRY(shape_math(in, IR_DIM_DIV, d, stride[i], &d));
        AIR_TRY(shape_math(in, IR_DIM_ADD, d, 1, &windows[i]));
        taps *= kernel[i];
    }
    dims[0] = v->dims[0];
    AIR_TRY(
        shape_math(in, IR_DIM_MUL, v->dims[v->rank - 3], taps, &dims[batched]));
    AIR_TRY(ir_dim_make(in->g, IR_DIM_MUL, windows[0], windows[1],
                        &dims[batched + 1]));
    return shape_set(in, 0, 2 + batched, dims);
}

air_status
shape_col2im(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *size = shape_arg(in, "output_size");
    int64_t kernel[2];
    air_dim dims[4];

    AIR_REQUIRE((v->rank == 2 || v->rank == 3) && size->count == 2,
                AIR_ERROR_SHAPE, "%s: needs 2 or 3 dims and 2 sizes",
                in->info->name);
    AIR_TRY(shape_ints(in, "kernel_size", 2, kernel));
    AIR_REQUIRE(kernel[0] > 0 && kernel[0] < INT16_MAX && kernel[1] > 0 &&
                    kernel[1] < INT16_MAX,
                AIR_ERROR_ARGUMENT, "%s: kernel", in->info->name);
    dims[0] = v->dims[0];
    dims[v->rank - 2] = v->dims[v->rank - 2];
    AIR_TRY(exact_division(in, &dims[v->rank - 2], kernel[0] * kernel[1]));
    memcpy(dims + v->rank - 1, size->dims, 2 * sizeof *dims);
    return shape_set(in, 0, v->rank + 1, dims);
}

/* Every float; bytes where they are only moved. */
static air_status
check_pixels(const ir_infer *in, const ir_value *v)
{
    const bool moves = ir_param_find(in->info, "align_corners") < 0;

    AIR_REQUIRE(v->dtype == AIR_F32 || v->dtype == AIR_F64 ||
                    v->dtype == AIR_BF16 || v->dtype == AIR_F16 ||
                    (moves && v->dtype == AIR_U8),
                AIR_ERROR_UNSUPPORTED, "%s: of this dtype", in->info->name);
    return AIR_OK;
}

/* [N, C, sizes ...] */
air_status
shape_upsample(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *size = shape_arg(in, "output_size");
    air_dim dims[AIR_MAX_RANK];

    AIR_REQUIRE(v->rank == size->count + 2 && v->rank <= 5, AIR_ERROR_SHAPE,
                "%s: needs a batch, channels and %d sizes", in->info->name,
                v->rank - 2);
    AIR_TRY(check_pixels(in, v));
    memcpy(dims, v->dims, 2 * sizeof *dims);
    memcpy(dims + 2, size->dims, (size_t)size->count * sizeof *dims);
    return shape_set(in, 0, v->rank, dims);
}

air_status
shape_upsample_backward(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "grad");
    const air_attr *size = shape_arg(in, "input_size");
    const air_attr *resized = shape_arg(in, "output_size");

    AIR_REQUIRE(v->rank == size->count && v->rank == resized->count + 2 &&
                    v->rank <= 5,
                AIR_ERROR_SHAPE, "%s: needs %d sizes", in->info->name, v->rank);
    AIR_TRY(check_pixels(in, v));
    for (int i = 0; i < v->rank; i++)
        AIR_TRY(shape_same(in, v->dims[i],
                           i < 2 ? size->dims[i] : resized->dims[i - 2]));
    return shape_set(in, 0, v->rank, size->dims);
}

/* Planes to sample, and a grid [N, places ..., coordinates] for them. */
static air_status
check_grid(const ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a"), *grid = shape_tensor(in, "grid");
    const int axes = v->rank - 2;
    air_dim coordinates;
    int64_t mode, padding;

    AIR_TRY(shape_int(in, "interpolation_mode", &mode));
    AIR_TRY(shape_int(in, "padding_mode", &padding));
    AIR_REQUIRE((axes == 2 || axes == 3) && grid->rank == v->rank,
                AIR_ERROR_SHAPE, "%s: needs input and grid of 4 or 5 dims each",
                in->info->name);
    AIR_REQUIRE(mode >= 0 && mode <= (axes == 2 ? 2 : 1) && padding >= 0 &&
                    padding <= 2,
                AIR_ERROR_ARGUMENT, "%s: interpolation or padding mode",
                in->info->name);
    AIR_REQUIRE(v->dtype == grid->dtype &&
                    (v->dtype == AIR_F32 || v->dtype == AIR_F64),
                AIR_ERROR_UNSUPPORTED, "%s: of these dtypes", in->info->name);
    for (int i = 2; i < v->rank; i++)
        AIR_REQUIRE(in->g->dims.data[v->dims[i].id].max > 0, AIR_ERROR_SHAPE,
                    "%s: an image without an element", in->info->name);
    AIR_TRY(ir_dim_const(in->g, axes, &coordinates));
    AIR_TRY(shape_same(in, grid->dims[axes + 1], coordinates));
    return shape_same(in, v->dims[0], grid->dims[0]);
}

/* [N, C, places ...] */
air_status
shape_grid_sampler(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a"), *grid = shape_tensor(in, "grid");
    air_dim dims[AIR_MAX_RANK];

    AIR_TRY(check_grid(in));
    memcpy(dims, v->dims, 2 * sizeof *dims);
    memcpy(dims + 2, grid->dims + 1, (size_t)(v->rank - 2) * sizeof *dims);
    return shape_set(in, 0, v->rank, dims);
}

air_status
shape_grid_sampler_backward(ir_infer *in)
{
    const ir_value *grad = shape_tensor(in, "grad"), *v = shape_tensor(in, "a");
    const ir_value *grid = shape_tensor(in, "grid");

    AIR_TRY(check_grid(in));
    AIR_REQUIRE(grad->rank == v->rank && grad->dtype == v->dtype,
                AIR_ERROR_SHAPE, "%s: the gradient must be as the result",
                in->info->name);
    for (int i = 0; i < v->rank; i++)
        AIR_TRY(shape_same(in, grad->dims[i],
                           i < 2 ? v->dims[i] : grid->dims[i - 1]));
    AIR_TRY(shape_set_like(in, 0, "a"));
    return shape_set_like(in, 1, "grid");
}

/* ---- diagonals ----------------------------------------------------------- */

air_status
shape_diag_embed(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const int rank = v->rank + 1;
    air_dim dims[AIR_MAX_RANK], side;
    int64_t offset;
    int i, k, from = 0;

    AIR_REQUIRE(v->rank >= 1 && rank <= AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "diag_embed: needs 1 to %d dims", AIR_MAX_RANK - 1);
    AIR_TRY(shape_axis(in, "dim1", rank, &i));
    AIR_TRY(shape_axis(in, "dim2", rank, &k));
    AIR_REQUIRE(i != k, AIR_ERROR_ARGUMENT,
                "diag_embed: needs two different dims");
    AIR_TRY(shape_int(in, "offset", &offset));
    AIR_REQUIRE(offset > INT32_MIN && offset < INT32_MAX, AIR_ERROR_ARGUMENT,
                "diag_embed: offset");
    AIR_TRY(shape_math(in, IR_DIM_ADD, v->dims[v->rank - 1],
                       offset < 0 ? -offset : offset, &side));
    for (int d = 0; d < rank; d++)
        dims[d] = d == i || d == k ? side : v->dims[from++];
    return shape_set(in, 0, rank, dims);
}

air_status
shape_trace(ir_infer *in)
{
    AIR_TRY(shape_rank(in, "a", 2));
    return shape_scalar_out(in, 0);
}

/* ---- others -------------------------------------------------------------- */

/* Result 0 as `a`, result 1 as `g`. */
air_status
shape_weight_norm_backward(ir_infer *in)
{
    const air_attr *g = shape_arg(in, "g");

    AIR_TRY(shape_set_like(in, 0, "a"));
    in->outs[1].dtype = (air_dtype)ir_val(in->g, g->value)->dtype;
    return shape_set_like(in, 1, "g");
}

/* Lengths of bf16 rows are f32. */
air_status
shape_weight_norm(ir_infer *in)
{
    AIR_TRY(shape_weight_norm_backward(in));
    if (in->outs[1].dtype == AIR_BF16)
        in->outs[1].dtype = AIR_F32;
    return AIR_OK;
}

/* [.., P, M] and [.., R, M] to [.., P, R] */
air_status
shape_cdist(ir_infer *in)
{
    const ir_value *x = shape_tensor(in, "a"), *y = shape_tensor(in, "b");
    air_dim dims[AIR_MAX_RANK];
    int rank;

    AIR_REQUIRE(x->rank >= 2 && y->rank >= 2, AIR_ERROR_SHAPE,
                "%s: needs two dims", in->info->name);
    AIR_TRY(shape_same(in, x->dims[x->rank - 1], y->dims[y->rank - 1]));
    AIR_TRY(ir_broadcast(in->g, x->rank - 2, x->dims, y->rank - 2, y->dims,
                         &rank, dims));
    dims[rank] = x->dims[x->rank - 2];
    dims[rank + 1] = y->dims[y->rank - 2];
    return shape_set(in, 0, rank + 2, dims);
}
