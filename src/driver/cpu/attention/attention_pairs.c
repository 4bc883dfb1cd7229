/* attention_pairs.c: scaled_dot_product_attention of bf16 with VDPBF16PS, of
 * more rows than the dot kernels take. */
#include "driver/cpu/attention/attention.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"

void
cpu_sdpa_pairs(const air_call *call, const air_task *task)
{
    sdpa_run(call, task, &cpu_gemm_avx512, &cpu_attend_pairs);
}

bool
cpu_sdpa_on_pairs(const air_call *call, const char *isa)
{
    return cpu_isa_has_fast_pairs(isa) && cpu_sdpa_on_avx512(call, "avx512") &&
           sdpa_is_of_halves(call) && sdpa_dim(call->args[0].t, 1) % 2 == 0;
}
