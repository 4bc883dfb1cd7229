/* conv_weight_amx.c: the gradient of a convolution's weights in bf16, by AMX:
 * tiles load rows of the planes at any shift. */
#include "driver/cpu/conv/conv_backward.h"
#include "driver/cpu/conv/conv_planes.h"
#include "driver/cpu/product/amx_isa.h"

#include <string.h>

static void
copy(const gemm_ops *ops, void *dst, const void *p, int64_t stride, int dtype,
     int64_t n)
{
    (void)ops, (void)dtype;
    const uint16_t *from = p;
    uint16_t *to = dst;
    if (stride == 1)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (int64_t i = 0; i < n; i += AMX_DEPTH)
            amx_copies(to + i, 0, from + i * stride, 0, stride,
                       min64(AMX_DEPTH, n - i), 1);
}

static void
pack(const gemm_ops *ops, void *panel, const gemm_view *rows, int64_t n,
     int64_t k)
{
    (void)ops;
    amx_pack(panel, rows, 0, n, k);
}

static void
multiply(const gemm_ops *ops, float *acc, int64_t n, const void *rows,
         int64_t ld, const void *panel, int64_t k)
{
    (void)ops;
    amx_rows from = {rows, ld, AMX_DEPTH};
    amx_block(acc, true, n > 16 ? 32 : 16, &from, panel,
              round_up(k, AMX_DEPTH));
}

static const planes_unit unit = {.size = 2,
                                 .unit = AMX_DEPTH,
                                 .depth = AMX_DEPTH,
                                 .rows = 16,
                                 .dtype = AIR_BF16,
                                 .begin = amx_begin,
                                 .end = amx_end,
                                 .copy = copy,
                                 .pack = pack,
                                 .multiply = multiply};

static conv_geometry
geometry(const air_call *call)
{
    return cpu_conv_geometry(call->args[0].t, call->args[1].t, &call->outs[0],
                             &call->args[3], call->args[6].i);
}

void
cpu_convolution_weight_amx(const air_call *call, const air_task *task)
{
    conv_geometry g = geometry(call);
    cpu_planes_run(call, &g, task, &cpu_gemm_avx512, &unit);
}

bool
cpu_convolution_weight_on_amx(const air_call *call, const char *isa)
{
    if (strcmp(isa, "amx") != 0 || call->args[0].t->dtype != AIR_BF16 ||
        !cpu_convolution_weight_on_avx512(call, "avx512"))
        return false;
    conv_geometry g = geometry(call);
    return cpu_planes_take(&g);
}

size_t
cpu_convolution_weight_amx_workspace(const air_call *call, int threads)
{
    conv_geometry g = geometry(call);
    return cpu_planes_workspace(&g, AIR_BF16, threads, &unit);
}
