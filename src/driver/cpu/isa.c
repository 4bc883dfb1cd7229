#include "driver/cpu/cpu.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512_bf16",
                                   "amx"};

enum { SCALAR, AVX2, AVX512, PAIRS, AMX, COUNT };

#if defined(__x86_64__)
static bool
has_bf16(void)
{
    enum { AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512_BF16) != 0;
}

static bool
has_amx(void)
{
    enum { TILE = 1 << 24, BF16 = 1 << 22 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILE) != 0 &&
           (d & BF16) != 0;
}

/* The kernel saves tiles only for processes that asked for them, once. */
static bool
may_use_tiles(void)
{
#if defined(__linux__)
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return false;
#endif
}
#endif

/* The highest that this CPU has. */
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
    if (!avx2 || !avx512)
        return avx2 ? AVX2 : SCALAR;
    if (!has_bf16())
        return AVX512;
    return has_amx() && may_use_tiles() ? AMX : PAIRS;
#else
    return SCALAR;
#endif
}

static int default_here;

/* Intel's CPUs take two cycles for VDPBF16PS: without AMX, as virtual machines
 * may have it, products of halves as floats are twice as fast. */
static void
find_default(void)
{
    default_here = isa_here();
    if (default_here == PAIRS && !cpu_limits_pairs_pay())
        default_here = AVX512;
}

static int
isa_by_default(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_default);
    return default_here;
}

air_status
cpu_isa_find(const char *want, const char **out)
{
    int best = isa_here();
    int level = COUNT;
    *out = NULL;
    if (want == NULL) {
        level = isa_by_default();
    } else {
        for (level = COUNT - 1; level >= 0; level--)
            if (strcmp(want, isas[level]) == 0)
                break;
        AIR_REQUIRE(level >= 0, AIR_ERROR_ARGUMENT,
                    "isa \"%s\" is none of amx, avx512_bf16, "
                    "avx512, avx2, scalar",
                    want);
    }
    *out = isas[level < best ? level : best];
    return AIR_OK;
}

bool
cpu_isa_has_pairs(const char *isa)
{
    return strcmp(isa, "amx") == 0 || strcmp(isa, "avx512_bf16") == 0;
}

const char *
cpu_isa_base(const char *isa)
{
    return cpu_isa_has_pairs(isa) ? "avx512" : isa;
}

bool
cpu_isa_has_fast_pairs(const char *isa)
{
    return strcmp(isa, "avx512_bf16") == 0;
}

bool
cpu_isa_has_bytes(const char *isa)
{
#if defined(__x86_64__)
    return strcmp(isa, "amx") == 0 ||
           (strcmp(isa, "avx512") == 0 && __builtin_cpu_supports("avx512vnni"));
#else
    (void)isa;
    return false;
#endif
}

bool
cpu_isa_is_intel(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

#if defined(__x86_64__)
/* Of leaf 4, or AMD's of the same form: what the CPUs share that are neighbours
 * of this one. 0: it does not say. */
static int64_t
third_cache(unsigned leaf, int *out_sharing)
{
    unsigned a = 1, b, c, d;
    for (unsigned i = 0; (a & 31) != 0; i++) {
        if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d))
            return 0;
        if ((a & 31) == 0 || (a >> 5 & 7) != 3)
            continue;
        *out_sharing = (int)(a >> 14 & 0xfff) + 1;
        return (int64_t)((b >> 22) + 1) * ((b >> 12 & 0x3ff) + 1) *
               ((b & 0xfff) + 1) * ((int64_t)c + 1);
    }
    return 0;
}
#endif

/* The C library's figure is that of a whole AMD package, of which a core
 * reaches a twelfth. */
int64_t
cpu_isa_cache(int threads)
{
    int64_t size = 0;
#if defined(__x86_64__)
    int sharing = 1;
    size = third_cache(4, &sharing);
    if (size == 0)
        size = third_cache(0x8000001d, &sharing);
    size *= (threads + sharing - 1) / sharing;
#else
    (void)threads;
#endif
    if (size == 0)
        size = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return size > 0 ? size : (int64_t)8 << 20;
}

void
cpu_isa_brand(char out[49])
{
    memcpy(out, "CPU", 4);
#if defined(__x86_64__)
    enum { PARTS = 3 };
    const unsigned first = 0x80000002;
    unsigned r[4 * PARTS];
    for (unsigned i = 0; i < PARTS; i++)
        if (!__get_cpuid(first + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2],
                         &r[4 * i + 3]))
            return;
    memcpy(out, r, sizeof r);
    out[sizeof r] = '\0';
#endif
}
