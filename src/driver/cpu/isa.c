#include "driver/cpu/cpu.h"

#include <string.h>

static const char *const isas[] = {"scalar", "avx2", "avx512"};

static int
isa_here(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") &&
                __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    bool avx512 = __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512dq");
    return !avx2 ? 0 : avx512 ? 2 : 1;
#else
    return 0;
#endif
}

air_status
cpu_isa_find(const char *want, const char **out)
{
    int best = isa_here();
    int level = best;
    *out = NULL;
    if (want != NULL) {
        for (level = 2; level >= 0; level--)
            if (strcmp(want, isas[level]) == 0)
                break;
        AIR_REQUIRE(level >= 0, AIR_ERROR_ARGUMENT,
                    "isa \"%s\" is none of avx512, avx2, scalar", want);
    }
    *out = isas[level < best ? level : best];
    return AIR_OK;
}
