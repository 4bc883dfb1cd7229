// emulate_ptx.hpp: the functions of CUDA that the texts call, and their PTX: the
// statement asm("a.b.c ..." : outputs : inputs) calls ptx_a_b_c(outputs, inputs).
// What has no function here does not compile.

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- barriers, and what lanes of a warp tell each other

static inline void __syncthreads() { emu_wait(&emu->all, (int)emu->count); }
static inline void emu_warp() { emu_wait(&emu->warps[emu->self / 32], 32); }
static inline void __syncwarp() { emu_warp(); }
static inline void ptx_bar_sync(int threads) { emu_wait(&emu->some, threads); }
static inline void ptx_bar_sync(int id, int threads) { emu_wait(&emu->numbered[id], threads); }

// Those of the mask only.
static inline void emu_lanes(unsigned mask)
{
    emu_wait(&emu->lanes[emu->self / 32][__builtin_ctz(mask)], __builtin_popcount(mask));
}

template <class T> static T __shfl_sync(unsigned mask, T v, int lane)
{
    static_assert(sizeof v <= 8, "as CUDA's");
    T other;
    memcpy(emu->words[emu->self], &v, sizeof v);
    emu_lanes(mask);
    memcpy(&other, emu->words[emu->self / 32 * 32 + (unsigned)lane % 32], sizeof other);
    emu_lanes(mask);
    return other;
}
template <class T> static T __shfl_xor_sync(unsigned mask, T v, int w)
{
    return __shfl_sync(mask, v, (int)(emu->self % 32) ^ w);
}
static inline unsigned __ballot_sync(unsigned mask, int v)
{
    unsigned seen = v ? 1u << emu->self % 32 : 0;
    for (int w = 16; w > 0; w /= 2)
        seen |= __shfl_xor_sync(mask, seen, w);
    return seen;
}
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v)
{
    for (int w = 16; w > 0; w /= 2) {
        const unsigned other = __shfl_xor_sync(mask, v, w);
        v = other > v ? other : v;
    }
    return v;
}
static inline int __any_sync(unsigned mask, int v) { return __ballot_sync(mask, v) != 0; }

// ---- memory

template <class T> static T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
static inline int atomicCAS(int *p, int from, int to)
{
    __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return from;
}
static inline void __threadfence() { emu_settle(); __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __threadfence(); }
static inline void ptx_griddepcontrol_wait() {}
static inline void ptx_griddepcontrol_launch_dependents() {}
static inline void ptx_prefetch_global_L2(const void *) {}
static inline void ptx_ld_global_L1__no_allocate_v4_u32(unsigned &x, unsigned &y, unsigned &z, unsigned &w,
                                                        const void *p)
{
    if ((uintptr_t)p % 16)
        emu_stop("16 bytes are read at an odd address");
    const uint4 v = *(const uint4 *)p;
    x = v.x, y = v.y, z = v.z, w = v.w;
}
static inline void ptx_red_release_gpu_global_add_u32(unsigned *p)
{
    emu_settle();
    __atomic_fetch_add(p, 1, __ATOMIC_RELEASE);
}
static inline void ptx_red_relaxed_gpu_global_add_u32(unsigned *p) { __atomic_fetch_add(p, 1, __ATOMIC_RELAXED); }
static inline void ptx_ld_acquire_gpu_global_u32(unsigned &v, const unsigned *p)
{
    emu_yield();
    v = __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
// A look at memory: another thread's turn now and then, while stores of this block may arrive.
static inline void emu_look()
{
    if (emu_luck(4) == 0)
        emu_settle((int)emu_luck((unsigned)emu->nlate + 1));
    if (emu_luck(2) == 0)
        emu_yield();
}
static inline void ptx_ld_relaxed_gpu_global_u32(unsigned &v, const unsigned *p)
{
    emu_look();
    v = __atomic_load_n(p, __ATOMIC_RELAXED);
}
static inline void ptx_ld_relaxed_gpu_global_u16(unsigned short &v, const unsigned short *p)
{
    emu_look();
    v = __atomic_load_n(p, __ATOMIC_RELAXED);
}
static inline void ptx_ld_relaxed_gpu_global_u64(unsigned long long &v, const unsigned long long *p)
{
    emu_look();
    v = __atomic_load_n(p, __ATOMIC_RELAXED);
}
static inline void ptx_ld_relaxed_gpu_global_v4_u32(unsigned &x, unsigned &y, unsigned &z, unsigned &w,
                                                    const void *p)
{
    if ((uintptr_t)p % 16)
        emu_stop("16 bytes are read at an odd address");
    emu_look();
    unsigned *to[] = {&w, &z, &y, &x};
    for (int i = 0; i < 4; i++)
        *to[i] = __atomic_load_n((const unsigned *)p + 3 - i, __ATOMIC_RELAXED);
}
static inline void ptx_st_relaxed_gpu_global_u16(unsigned short *p, unsigned short v) { emu_store_late(p, v, 2); }
static inline void ptx_st_relaxed_gpu_global_u32(unsigned *p, unsigned v) { emu_store_late(p, v, 4); }
static inline void ptx_st_relaxed_gpu_global_u64(unsigned long long *p, unsigned long long v)
{
    emu_store_late(p, v, 8);
}
static inline void ptx_mov_u64_globaltimer(unsigned long long &out)
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    out = ((unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec) * emu->group->haste;
}

static inline bool __isGlobal(const void *) { return true; }
#define __builtin_assume(x) (void)(x)

// ---- shared memory: places of 32 bits, in two windows

enum : unsigned { EMU_DYNAMIC = 1u << 30 };
static inline void *emu_dynamic() { return emu->dynamic; }
static inline bool emu_is_dynamic(const void *p)
{
    return (const char *)p >= emu->dynamic && (const char *)p < emu->dynamic + emu->dynamic_size;
}
static inline unsigned __cvta_generic_to_shared(const void *p)
{
    return emu_is_dynamic(p) ? (unsigned)((const char *)p - emu->dynamic) + EMU_DYNAMIC
                             : (unsigned)((const char *)p - (const char *)&emu);
}
static inline char *emu_place(unsigned at, unsigned rank)
{
    const unsigned offset = at - EMU_DYNAMIC;
    return offset < EMU_DYNAMIC ? emu->group->dynamic[rank] + offset : (char *)emu->group->memory[rank] + (int)at;
}

// ---- clusters

static inline void ptx_mov_u32_cluster_ctarank(unsigned &rank) { rank = emu->rank; }
static inline void ptx_rsqrt_approx_f32(float &y, float x) { y = 1 / sqrtf(x); }
static inline void ptx_barrier_cluster_arrive_aligned()
{
    emu->fibers[emu->self].cluster_round = emu_arrive(&emu->group->all, emu->group->members);
}
static inline void ptx_barrier_cluster_arrive_relaxed_aligned() { ptx_barrier_cluster_arrive_aligned(); }
static inline void ptx_barrier_cluster_wait_aligned()
{
    const int seen = emu->fibers[emu->self].cluster_round;
    if (__atomic_load_n(&emu->group->all.round, __ATOMIC_ACQUIRE) == seen)
        emu_wait_round(&emu->group->all.round, seen);
}
// A barrier of shared memory: phases that are over, with the arrivals that each needs above them, and what is
// missing of this one, where an arrival counts as EMU_ARRIVAL bytes.
struct emu_box { unsigned round; int missing; };
enum { EMU_ARRIVAL = 1 << 22, EMU_COUNT = 1 << 24 };
static inline void emu_take(emu_box *b, int bytes)
{
    if (__atomic_sub_fetch(&b->missing, bytes, __ATOMIC_ACQ_REL) != 0)
        return;
    __atomic_add_fetch(&b->missing, (int)(b->round / EMU_COUNT) * EMU_ARRIVAL, __ATOMIC_ACQ_REL);
    __atomic_add_fetch(&b->round, 1, __ATOMIC_ACQ_REL);
}
static inline void ptx_mbarrier_init_shared__cta_b64(unsigned at, int count)
{
    *(emu_box *)emu_place(at, emu->rank) = {(unsigned)count * EMU_COUNT, count * EMU_ARRIVAL};
}
static inline void ptx_fence_mbarrier_init_release_cluster() {}
static inline void ptx_mov_u32_tid(unsigned &i) { i = threadIdx.x; }
static inline void ptx_st_shared_u64(unsigned at, unsigned long long v) { memcpy(emu_place(at, emu->rank), &v, 8); }
static inline void ptx_ld_shared_u64(unsigned long long &v, unsigned at) { memcpy(&v, emu_place(at, emu->rank), 8); }
static inline void ptx_fence_proxy_async_shared__cta() {}
static inline void ptx_mbarrier_arrive_expect_tx_shared__cta_b64(unsigned at, unsigned bytes)
{
    emu_take((emu_box *)emu_place(at, emu->rank), EMU_ARRIVAL - (int)bytes);
}
static inline void ptx_mbarrier_arrive_shared__cta_b64(unsigned at)
{
    emu_take((emu_box *)emu_place(at, emu->rank), EMU_ARRIVAL);
}
static inline void ptx_mbarrier_try_wait_parity_shared__cta_b64(unsigned &done, unsigned at, unsigned parity)
{
    const emu_box *b = (emu_box *)emu_place(at, emu->rank);
    done = (__atomic_load_n(&b->round, __ATOMIC_ACQUIRE) & 1) != parity;
    if (!done)
        emu_yield();
}
static inline void
ptx_cp_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes_L2__cache_hint(
    unsigned at, const void *from, int bytes, unsigned box, unsigned long long)
{
    char *to = emu_place(at, emu->rank);
    if (((uintptr_t)to | (uintptr_t)from | (uintptr_t)bytes) % 16)
        emu_stop("a bulk copy of no whole 16 bytes");
    memcpy(to, from, (size_t)bytes);
    emu_take((emu_box *)emu_place(box, emu->rank), bytes);
}
static inline void ptx_createpolicy_fractional_L2__evict_first_b64(unsigned long long &policy) { policy = 0; }
static inline void ptx_mapa_shared__cluster_u32(unsigned at, unsigned box, unsigned rank, unsigned v)
{
    *(unsigned *)emu_place(at, rank) = v;
    emu_take((emu_box *)emu_place(box, rank), 4);
}
template <class T> static void ptx_mapa_u64(T *&out, T *p, int rank)
{
    out = (T *)emu_place(__cvta_generic_to_shared(p), (unsigned)rank);
}

// ---- numbers

#define __expf expf
#define __fdividef(a, b) ((a) / (b))
#define __logf logf
#define __sinf sinf
#define __cosf cosf
static inline void sincospi(double x, double *s, double *c)
{
    *s = sin(x * M_PI);
    *c = cos(x * M_PI);
}
#define __fmaf_rn fmaf
#define __fma_rn fma
template <class To, class From> static To emu_bits(From from)
{
    To to;
    static_assert(sizeof to == sizeof from, "the same bits");
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned u) { return emu_bits<float>(u); }
static inline unsigned __float_as_uint(float f) { return emu_bits<unsigned>(f); }
static inline double __longlong_as_double(long long i) { return emu_bits<double>(i); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
static inline void ptx_lop3_b32(unsigned &r, unsigned a, unsigned b, unsigned c) { r = (a & b) | c; }
static inline void ptx_max_NaN_f32(float &r, float a, float b) { r = a != a || b != b ? NAN : fmaxf(a, b); }
static inline void ptx_min_NaN_f32(float &r, float a, float b) { r = a != a || b != b ? NAN : fminf(a, b); }

typedef unsigned short emu_half;
static inline void ptx_cvt_f32_f16(float &out, emu_half in) { out = (float)emu_bits<_Float16>(in); }
static inline void ptx_cvt_rn_f16_f32(emu_half &out, float in)
{
    out = in != in ? (emu_half)0x7fff : emu_bits<emu_half>((_Float16)in);
}
static inline void ptx_cvt_rn_bf16_f32(emu_half &out, float in)
{
    const unsigned u = __float_as_uint(in);
    out = (emu_half)(in != in ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}
// It errs by as much as it may, 2^-22 of the result; ftz: denormal results are 0.
static inline void ptx_ex2_approx_ftz_f32(float &out, float in)
{
    const float y = (float)(exp2((double)in) * (1 + 0x1p-22));
    out = y < 0x1p-126f ? 0 : y;
}
// It errs by 1 ulp at most.
static inline void ptx_rcp_approx_ftz_f32(float &out, float in)
{
    out = nextafterf(1.0f / in, 0.0f);
}
// The first operand is the upper half.
static inline void ptx_cvt_rn_f16x2_f32(unsigned &out, float high, float low)
{
    emu_half h, l;
    ptx_cvt_rn_f16_f32(h, high);
    ptx_cvt_rn_f16_f32(l, low);
    out = (unsigned)h << 16 | l;
}
static inline void ptx_cvt_rn_bf16x2_f32(unsigned &out, float high, float low)
{
    emu_half h, l;
    ptx_cvt_rn_bf16_f32(h, high);
    ptx_cvt_rn_bf16_f32(l, low);
    out = (unsigned)h << 16 | l;
}
// mov.b32 {x, y}, w and a conversion of both.
static inline void ptx_mov_b32(float &a, float &b, unsigned w)
{
    ptx_cvt_f32_f16(a, (emu_half)w);
    ptx_cvt_f32_f16(b, (emu_half)(w >> 16));
}

// ---- matrix units: lane 4 g + t holds rows g and g + 8, columns 2 t and 2 t + 1

static inline float emu_get_bf16(unsigned half) { return __uint_as_float(half << 16); }
static inline float emu_get_f16(unsigned half)
{
    float x;
    ptx_cvt_f32_f16(x, (emu_half)half);
    return x;
}

// d = a * b + c of both halves, rounded once: the products of halves are exact in float, of which sums are, too,
// where they have few bits, as here.
static inline void ptx_fma_rn_bf16x2(unsigned &d, unsigned a, unsigned b, unsigned c)
{
    ptx_cvt_rn_bf16x2_f32(d, fmaf(emu_get_bf16(a >> 16), emu_get_bf16(b >> 16), emu_get_bf16(c >> 16)),
                          fmaf(emu_get_bf16(a & 0xffff), emu_get_bf16(b & 0xffff), emu_get_bf16(c & 0xffff)));
}
static inline void ptx_fma_rn_f16x2(unsigned &d, unsigned a, unsigned b, unsigned c)
{
    ptx_cvt_rn_f16x2_f32(d, fmaf(emu_get_f16(a >> 16), emu_get_f16(b >> 16), emu_get_f16(c >> 16)),
                         fmaf(emu_get_f16(a & 0xffff), emu_get_f16(b & 0xffff), emu_get_f16(c & 0xffff)));
}

template <float (*GET)(unsigned)>
static void emu_multiply(float (&c)[4], const unsigned (&mine)[6])
{
    const unsigned lane = emu->self % 32, g = lane / 4, t = lane % 4, warp = emu->self / 32 * 32;
    memcpy(emu->words[emu->self], mine, sizeof mine);
    emu_warp();
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = g + i / 2 * 8, col = t * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            unsigned a[6], b[6];
            memcpy(a, emu->words[warp + row % 8 * 4 + k % 8 / 2], sizeof a);
            memcpy(b, emu->words[warp + col * 4 + k % 8 / 2], sizeof b);
            c[i] += GET(a[row / 8 + k / 8 * 2] >> k % 2 * 16 & 0xffff) * GET(b[4 + k / 8] >> k % 2 * 16 & 0xffff);
        }
    }
    emu_warp();
}
#define EMU_MULTIPLY(name, get)                                                                              \
    static inline void name(float &c0, float &c1, float &c2, float &c3, unsigned a0, unsigned a1,            \
                            unsigned a2, unsigned a3, unsigned b0, unsigned b1)                              \
    {                                                                                                        \
        float c[4] = {c0, c1, c2, c3};                                                                       \
        emu_multiply<get>(c, {a0, a1, a2, a3, b0, b1});                                                      \
        c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];                                                          \
    }
EMU_MULTIPLY(ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, emu_get_bf16)
EMU_MULTIPLY(ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, emu_get_f16)

// wgmma: c[64, N] of four warps, a in registers as above, b from shared memory: rows of 128 bytes, of whose pieces
// of 16 bytes piece i of row n lies at place i ^ n % 8. It computes at once; the descriptor says where and in which form.
template <float (*GET)(unsigned)>
static void emu_multiply_group(float **c, unsigned columns, const unsigned (&mine)[4], unsigned long long b, int keep)
{
    const unsigned lane = emu->self % 32, g = lane / 4, t = lane % 4, warp = emu->self / 32 * 32;
    const unsigned at = (unsigned)(b & 0x3fff) << 4;
    if (b >> 16 != (1ull << 46 | 64ull << 16 | 1) || at % 1024 > 96)
        emu_stop("a tile of another form than what this knows");
    memcpy(emu->words[emu->self], mine, sizeof mine);
    emu_warp();
    for (unsigned i = 0; i < columns / 2; i++) {
        const unsigned row = g + i / 2 % 2 * 8, col = i / 4 * 8 + t * 2 + i % 2;
        float sum = keep ? *c[i] : 0;
        for (unsigned k = 0; k < 16; k++) {
            unsigned a[4];
            emu_half x;
            const unsigned piece = (at % 128 / 16 + k / 8) ^ col % 8;
            memcpy(a, emu->words[warp + row % 8 * 4 + k % 8 / 2], sizeof a);
            memcpy(&x, emu_place(EMU_DYNAMIC + at / 128 * 128 + col * 128 + piece * 16 + k % 8 * 2, emu->rank), 2);
            sum += GET(a[row / 8 + k / 8 * 2] >> k % 2 * 16 & 0xffff) * GET(x);
        }
        *c[i] = sum;
    }
    emu_warp();
}
#define EMU_GROUP(n, type)                                                                                   \
    template <class... R> static void ptx_wgmma_mma_async_sync_aligned_m64n##n##k16_f32_##type##_##type(     \
        float &c0, float &c1, float &c2, float &c3, float &c4, float &c5, float &c6, float &c7, R &&...rest) \
    {                                                                                                        \
        float *c[n / 2] = {&c0, &c1, &c2, &c3, &c4, &c5, &c6, &c7};                                          \
        unsigned a[4];                                                                                       \
        unsigned long long b = 0;                                                                            \
        int i = 8, keep = 0;                                                                                 \
        const auto take = [&](auto &&v) {                                                                    \
            if constexpr (std::is_same_v<std::decay_t<decltype(v)>, float>)                                  \
                c[i] = &v;                                                                                   \
            else if (i < n / 2 + 4)                                                                          \
                a[i - n / 2] = (unsigned)v;                                                                  \
            else if (i == n / 2 + 4)                                                                         \
                b = (unsigned long long)v;                                                                   \
            else                                                                                             \
                keep = (int)v;                                                                               \
            i++;                                                                                             \
        };                                                                                                   \
        (take(rest), ...);                                                                                   \
        emu_multiply_group<emu_get_##type>(c, n, a, b, keep);                                                \
    }
EMU_GROUP(16, bf16)
EMU_GROUP(32, bf16)
EMU_GROUP(64, bf16)
EMU_GROUP(128, bf16)
EMU_GROUP(256, bf16)
EMU_GROUP(16, f16)
EMU_GROUP(32, f16)
EMU_GROUP(64, f16)
EMU_GROUP(128, f16)
EMU_GROUP(256, f16)
static inline void ptx_wgmma_fence_sync_aligned() {}
static inline void ptx_wgmma_commit_group_sync_aligned() {}
static inline void ptx_wgmma_wait_group_sync_aligned(int) {}
static inline void ptx_(float &) {}
static inline void ptx_(unsigned &) {}

// Four matrices of 8 x 8 halves: lane i shows row i % 8 of matrix i / 8.
static void emu_load_matrices(unsigned *(&r)[4], unsigned at, bool turned)
{
    const unsigned lane = emu->self % 32, g = lane / 4, t = lane % 4, warp = emu->self / 32 * 32;
    const char *mine = emu_place(at, emu->rank);
    if ((uintptr_t)mine % 16)
        emu_stop("a row of a matrix lies at an odd address");
    memcpy(emu->words[emu->self], &mine, sizeof mine);
    emu_warp();
    for (unsigned i = 0; i < 4; i++) {
        unsigned word = 0;
        for (unsigned h = 0; h < 2; h++) {
            const unsigned row = turned ? 2 * t + h : g, col = turned ? g : 2 * t + h;
            const emu_half *from;
            memcpy(&from, emu->words[warp + i * 8 + row], sizeof from);
            word |= (unsigned)from[col] << 16 * h;
        }
        *r[i] = word;
    }
    emu_warp();
}
static inline void ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned &a, unsigned &b, unsigned &c,
                                                                unsigned &d, unsigned at)
{
    unsigned *r[4] = {&a, &b, &c, &d};
    emu_load_matrices(r, at, false);
}
static inline void ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned &a, unsigned &b, unsigned &c,
                                                                      unsigned &d, unsigned at)
{
    unsigned *r[4] = {&a, &b, &c, &d};
    emu_load_matrices(r, at, true);
}

// ---- copies that arrive by and by: some at once, some when they are waited for

static inline void emu_start_copy(unsigned at, const void *from, unsigned bytes)
{
    emu_fiber *f = &emu->fibers[emu->self];
    char *to = emu_place(at, emu->rank);
    if (((uintptr_t)to | (uintptr_t)from) % bytes)
        emu_stop("bytes are copied at an odd address");
    if (emu_luck(2) == 0)
        memcpy(to, from, bytes);
    else if (f->ncopies < EMU_COPIES)
        f->copies[f->ncopies++] = {to, from, f->groups, bytes};
    else
        emu_stop("more copies than the emulator keeps");
}
static inline void ptx_cp_async_cg_shared_global(unsigned at, const void *from) { emu_start_copy(at, from, 16); }
static inline void ptx_cp_async_ca_shared_global(unsigned at, const void *from) { emu_start_copy(at, from, 4); }
static inline void ptx_cp_async_cg_shared_global_L2__256B(unsigned at, const void *from)
{
    ptx_cp_async_cg_shared_global(at, from);
}
static inline void ptx_cp_async_commit_group() { emu->fibers[emu->self].groups++; }
static inline void ptx_cp_async_wait_group(int later)
{
    emu_fiber *f = &emu->fibers[emu->self];
    int left = 0;
    for (int i = 0; i < f->ncopies; i++)
        if (f->copies[i].group < f->groups - later)
            memcpy(f->copies[i].to, f->copies[i].from, f->copies[i].bytes);
        else
            f->copies[left++] = f->copies[i];
    f->ncopies = left;
}
