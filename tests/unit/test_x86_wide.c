/* Machine code in lanes of 64 bits against the tile loops: same bits. */
#include <math.h>
#include <string.h>

#include "codegen/codegen.h"
#include "region_case.h"
#include "test.h"

typedef struct {
    region_case *c;
    int f[64], nf, d[64], nd, i[64], ni, b[64], nb; /* by lane */
} gen;

static int
pick(gen *g, const int *from, int n)
{
    return from[case_random(g->c) % (uint32_t)n];
}

static void
add(gen *g, air_lane lane, int node)
{
    int *const lists[] = {g->f, g->d, g->i, g->b};
    int *const counts[] = {&g->nf, &g->nd, &g->ni, &g->nb};
    if (*counts[lane] < 64)
        lists[lane][(*counts[lane])++] = node;
}

static void
gen_loads(gen *g, bool special)
{
    static const struct {
        uint8_t dtype, lane;
    } kinds[] = {{AIR_F64, AIR_LANE_F64}, {AIR_I64, AIR_LANE_I64},
                 {AIR_F32, AIR_LANE_F32}, {AIR_BOOL, AIR_LANE_B},
                 {AIR_I32, AIR_LANE_I64}, {AIR_I16, AIR_LANE_I64},
                 {AIR_I8, AIR_LANE_I64},  {AIR_U8, AIR_LANE_I64},
                 {AIR_F64, AIR_LANE_F64}, {AIR_I64, AIR_LANE_I64}};
    for (int k = 0; k < 5; k++) {
        uint32_t kind = k < 3 ? (uint32_t)k : case_random(g->c) % 10;
        unsigned broadcast = case_random(g->c) % 3 ? 0 : case_random(g->c) % 8;
        broadcast &= (1u << g->c->rg.rank) - 1;
        int buf = case_dense(g->c, (air_dtype)kinds[kind].dtype,
                             k == 0 ? 0 : broadcast, special);
        air_lane lane = (air_lane)kinds[kind].lane;
        add(g, lane, case_load(g->c, lane, buf));
    }
    add(g, AIR_LANE_F64, case_const(g->c, AIR_LANE_F64, 0.7));
    add(g, AIR_LANE_F32, case_const(g->c, AIR_LANE_F32, 0.7f));
    add(g, AIR_LANE_I64, case_const(g->c, AIR_LANE_I64, -3));
}

static void
gen_double(gen *g)
{
    static const uint16_t ops[] = {
        AIR_RG_ADD,  AIR_RG_SUB,   AIR_RG_MUL,  AIR_RG_DIV,   AIR_RG_FMA,
        AIR_RG_NEG,  AIR_RG_ABS,   AIR_RG_MAX,  AIR_RG_MIN,   AIR_RG_SQRT,
        AIR_RG_RINT, AIR_RG_FLOOR, AIR_RG_CEIL, AIR_RG_TRUNC, AIR_RG_SIGN};
    add(g, AIR_LANE_F64,
        case_op(g->c, ops[case_random(g->c) % 15], AIR_LANE_F64,
                pick(g, g->d, g->nd), pick(g, g->d, g->nd),
                pick(g, g->d, g->nd)));
}

/* Beside wider lanes: no multiply-add. */
static void
gen_single(gen *g)
{
    static const uint16_t ops[] = {
        AIR_RG_ADD,  AIR_RG_SUB, AIR_RG_MUL,  AIR_RG_DIV,   AIR_RG_SQRT,
        AIR_RG_NEG,  AIR_RG_ABS, AIR_RG_MAX,  AIR_RG_MIN,   AIR_RG_RINT,
        AIR_RG_CEIL, AIR_RG_ADD, AIR_RG_SIGN, AIR_RG_FLOOR, AIR_RG_TRUNC};
    add(g, AIR_LANE_F32,
        case_op(g->c, ops[case_random(g->c) % 15], AIR_LANE_F32,
                pick(g, g->f, g->nf), pick(g, g->f, g->nf), -1));
}

static void
gen_integer(gen *g)
{
    static const uint16_t ops[] = {
        AIR_RG_ADD,  AIR_RG_SUB,  AIR_RG_MUL,  AIR_RG_NEG,
        AIR_RG_ABS,  AIR_RG_MAX,  AIR_RG_MIN,  AIR_RG_IAND,
        AIR_RG_IOR,  AIR_RG_IXOR, AIR_RG_ISHL, AIR_RG_ISHR,
        AIR_RG_IDIV, AIR_RG_IMOD, AIR_RG_IDIV, AIR_RG_WRAP};
    static const uint8_t dtypes[] = {AIR_U8,  AIR_I8,  AIR_I16,
                                     AIR_I32, AIR_I64, AIR_BOOL};
    uint16_t op = ops[case_random(g->c) % 16];
    int a = pick(g, g->i, g->ni), b = pick(g, g->i, g->ni);
    if (op == AIR_RG_WRAP)
        b = case_const(g->c, AIR_LANE_I64, dtypes[case_random(g->c) % 6]);
    if ((op == AIR_RG_ISHL || op == AIR_RG_ISHR) && case_random(g->c) % 2)
        b = case_const(g->c, AIR_LANE_I64, case_random(g->c) % 66);
    add(g, AIR_LANE_I64, case_op(g->c, op, AIR_LANE_I64, a, b, -1));
}

/* From any lane to any other. */
static void
gen_conversion(gen *g)
{
    const int *const lists[] = {g->f, g->d, g->i, g->b};
    const int counts[] = {g->nf, g->nd, g->ni, g->nb};
    uint32_t from = case_random(g->c) % 4, to = case_random(g->c) % 4;
    if (counts[from] > 0 && from != to)
        add(g, (air_lane)to,
            case_op(g->c, AIR_RG_CVT, (air_lane)to,
                    pick(g, lists[from], counts[from]), -1, -1));
}

static void
gen_truth(gen *g)
{
    static const uint16_t ops[] = {AIR_RG_LT, AIR_RG_LE, AIR_RG_EQ, AIR_RG_NE};
    const int *const lists[] = {g->f, g->d, g->i};
    const int counts[] = {g->nf, g->nd, g->ni};
    uint32_t k = case_random(g->c) % 3;
    add(g, AIR_LANE_B,
        case_op(g->c, ops[case_random(g->c) % 4], AIR_LANE_B,
                pick(g, lists[k], counts[k]), pick(g, lists[k], counts[k]),
                -1));
}

static void
gen_choice(gen *g)
{
    const int *const lists[] = {g->f, g->d, g->i, g->b};
    const int counts[] = {g->nf, g->nd, g->ni, g->nb};
    uint32_t k = case_random(g->c) % 4;
    add(g, (air_lane)k,
        case_op(g->c, AIR_RG_SEL, (air_lane)k, pick(g, g->b, g->nb),
                pick(g, lists[k], counts[k]), pick(g, lists[k], counts[k])));
}

static void
gen_nodes(gen *g, int count)
{
    void (*const make[])(gen *) = {gen_double,  gen_double, gen_single,
                                   gen_integer, gen_truth,  gen_conversion,
                                   gen_integer};
    for (int k = 0; k < count; k++)
        if (g->nb > 0 && case_random(g->c) % 6 == 0)
            gen_choice(g);
        else
            make[case_random(g->c) % 7](g);
}

static void
gen_stores(gen *g, unsigned broadcast)
{
    static const uint8_t narrow[] = {AIR_I64, AIR_I32, AIR_I16, AIR_U8};
    case_store(g->c, case_dense(g->c, AIR_F64, broadcast, false),
               g->d[g->nd - 1]);
    case_store(g->c,
               case_dense(g->c, (air_dtype)narrow[case_random(g->c) % 4],
                          broadcast, false),
               g->i[g->ni - 1]);
    if (g->nf > 0)
        case_store(g->c, case_dense(g->c, AIR_F32, broadcast, false),
                   g->f[g->nf - 1]);
    if (g->nb > 0)
        case_store(g->c, case_dense(g->c, AIR_BOOL, broadcast, false),
                   g->b[g->nb - 1]);
}

/* One of doubles and one of integers. */
static int
gen_reduces(gen *g, int *scalars)
{
    for (int k = 0; k < 2; k++)
        scalars[k] = case_reduce(g->c, (air_reduce)(case_random(g->c) % 4),
                                 k == 0 ? g->d[g->nd - 1] : g->i[g->ni - 1]);
    return 2;
}

static void
read_scalars(gen *g, const int *scalars)
{
    g->nf = g->nd = g->ni = g->nb = 0;
    add(g, AIR_LANE_F64, case_scalar(g->c, AIR_LANE_F64, scalars[0]));
    add(g, AIR_LANE_I64, case_scalar(g->c, AIR_LANE_I64, scalars[1]));
    add(g, AIR_LANE_F32, case_const(g->c, AIR_LANE_F32, 1.5));
}

static void
gen_map(region_case *c, bool special)
{
    gen g = {.c = c};
    case_phase(c, AIR_PHASE_ROW);
    gen_loads(&g, special);
    gen_nodes(&g, (int)(case_random(c) % 20));
    gen_stores(&g, 0);
}

static void
gen_inner(region_case *c, bool special)
{
    gen g = {.c = c};
    int scalars[3];
    case_phase(c, AIR_PHASE_ROW);
    gen_loads(&g, special);
    gen_nodes(&g, (int)(case_random(c) % 8));
    gen_reduces(&g, scalars);
    case_phase(c, AIR_PHASE_SCALAR);
    read_scalars(&g, scalars);
    gen_nodes(&g, 4);
    scalars[2] = case_set(c, g.d[g.nd - 1]);
    gen_stores(&g, 1u << (c->rg.rank - 1));
    case_phase(c, AIR_PHASE_ROW);
    read_scalars(&g, (int[]){scalars[2], scalars[1]});
    add(&g, AIR_LANE_F64, case_load(c, AIR_LANE_F64, 0));
    gen_nodes(&g, 4);
    gen_stores(&g, 0);
}

static void
gen_outer(region_case *c, bool special)
{
    gen g = {.c = c};
    int scalars[2];
    case_phase(c, AIR_PHASE_ROW);
    gen_loads(&g, special);
    gen_nodes(&g, (int)(case_random(c) % 8));
    gen_reduces(&g, scalars);
    case_phase(c, AIR_PHASE_ROW);
    read_scalars(&g, scalars);
    gen_nodes(&g, 4);
    gen_stores(&g, 1u << (c->rg.rank - 2));
}

static const char *const isas[] = {"avx2", "avx512"};
enum { ISAS = sizeof isas / sizeof *isas };

static bool
can_run(const char *isa)
{
    if (strcmp(isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

/* `whole`: all phases have code. */
static bool
compare_code(region_case *c, const char *isa, bool whole, void *const *tiles,
             bool raised)
{
    air_code code;
    const char *reason;
    if (!CHECK_OK(
            codegen_region(&base_libc_alloc, &c->rg, isa, &code, &reason)))
        return false;
    bool same = CHECK((reason == NULL) == whole);
    for (int threads = 1; threads <= 3 && same; threads += 2)
        same = case_run(c, &code, isa, threads) && case_equal(c, tiles) &&
               CHECK_INT(c->raised, raised);
    codegen_free(&base_libc_alloc, &code);
    return same || test_fail(__FILE__, __LINE__, "isa %s", isa);
}

static bool
compare(region_case *c, bool whole, int from)
{
    void *tiles[AIR_RG_MAX_BUFS];
    const uint8_t across = c->rg.across;
    bool same = true;
    c->rg.across = 0; /* changes no bit */
    if (!case_run(c, NULL, "scalar", 1))
        return false;
    case_save(c, tiles);
    const bool raised = c->raised;
    c->rg.across = across;
    for (int i = from; i < ISAS && same; i++)
        same =
            !can_run(isas[i]) || compare_code(c, isas[i], whole, tiles, raised);
    case_drop(c, tiles);
    return same;
}

static void
compare_case(air_walk walk, void (*make)(region_case *, bool), int rank,
             const int64_t *dims, uint32_t seed, bool across)
{
    region_case c;
    case_init(&c, walk, rank, dims, seed);
    make(&c, seed % 3 == 0);
    c.rg.stream = seed % 4 == 0;
    c.rg.across = across;
    if (!compare(&c, true, 0))
        test_fail(__FILE__, __LINE__, "walk %d seed %u, dims %d %d", walk, seed,
                  (int)dims[0], (int)dims[rank - 1]);
    case_free(&c);
}

TEST(x86_wide_map)
{
    if (!can_run(isas[0]))
        return;
    for (uint32_t seed = 0; seed < 400; seed++)
        compare_case(AIR_WALK_MAP, gen_map, 2,
                     (int64_t[]){3, 1 + seed * 7 % 130}, seed, false);
}

TEST(x86_wide_inner)
{
    if (!can_run(isas[0]))
        return;
    for (uint32_t seed = 0; seed < 200; seed++)
        compare_case(AIR_WALK_INNER, gen_inner, 2,
                     (int64_t[]){3, 1 + seed % 200}, seed, false);
    for (uint32_t seed = 200; seed < 220; seed++)
        compare_case(AIR_WALK_INNER, gen_inner, 2,
                     (int64_t[]){2, 4000 + 37 * (seed - 200)}, seed, false);
}

TEST(x86_wide_across)
{
    if (!can_run(isas[0]))
        return;
    for (uint32_t seed = 0; seed < 150; seed++)
        compare_case(
            AIR_WALK_INNER, gen_inner, 3,
            (int64_t[]){1 + seed % 2, 2 + seed * 37 % 300, 1 + seed * 5 % 70},
            seed, true);
}

TEST(x86_wide_outer)
{
    if (!can_run(isas[0]))
        return;
    for (uint32_t seed = 0; seed < 150; seed++)
        compare_case(AIR_WALK_OUTER, gen_outer, 3,
                     (int64_t[]){2, 1 + seed * 7 % 300, 1 + seed % 130}, seed,
                     false);
}

/* Bytes; what becomes of the result is left to tile loops. */
TEST(x86_truth_reductions)
{
    if (!can_run(isas[0]))
        return;
    for (uint32_t seed = 0; seed < 60; seed++) {
        region_case c;
        bool truth = seed % 2, inner = seed % 3 != 0;
        int64_t n = seed % 7 == 0 ? 4000 + 37 * seed : 1 + seed * 11 % 300;
        case_init(&c, inner ? AIR_WALK_INNER : AIR_WALK_OUTER, 2,
                  (int64_t[]){3, n}, seed);
        int x = case_dense(&c, truth ? AIR_BOOL : AIR_U8, 0, false);
        size_t bytes = (size_t)c.count[x];
        if (seed % 4 < 2) /* few that differ */
            memset(c.data[x], seed % 4, bytes);
        ((uint8_t *)c.data[x])[case_random(&c) % bytes] ^= 1;
        int y = case_dense(&c, AIR_BOOL, inner ? 2 : 1, false);
        case_phase(&c, AIR_PHASE_ROW);
        int v = case_load(&c, truth ? AIR_LANE_B : AIR_LANE_I64, x);
        if (!truth)
            v = case_op(&c, AIR_RG_CVT, AIR_LANE_B, v, -1, -1);
        int s =
            case_reduce(&c, seed % 4 % 2 ? AIR_REDUCE_ALL : AIR_REDUCE_ANY, v);
        case_phase(&c, inner ? AIR_PHASE_SCALAR : AIR_PHASE_ROW);
        case_store(&c, y, case_scalar(&c, AIR_LANE_B, s));
        CHECK(compare(&c, false, 0));
        case_free(&c);
    }
}

/* Numbers that are hard to convert, as they are, negative, and their
 * neighbours. */
static void
fill_hard(region_case *c, int doubles, int integers, int count)
{
    for (int k = 0; k < count; k++) {
        const int bit = k / 6 % 64;
        const uint64_t any = case_random(c), low = k % 4 == 3 ? any : 0;
        const int64_t sign = k % 2 ? -1 : 1;
        const uint64_t near = (UINT64_C(1) << bit) + (uint64_t)(k / 2 % 3 - 1);
        const uint64_t half = bit > 24 ? UINT64_C(1) << (bit - 24) : 0;
        const uint64_t n = (near + (k % 5 < 2 ? half : 0)) * (uint64_t)sign;
        ((int64_t *)c->data[integers])[k] = (int64_t)(n + low);
        ((double *)c->data[doubles])[k] =
            ldexp((double)sign * (1 + (k / 2 % 3 - 1) * 0x1p-52),
                  k / 6 % 96 - 16) +
            0.5 * (k % 5 == 4);
    }
    const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 0x1p63, -0x1p63};
    memcpy(c->data[doubles], odd, sizeof odd);
}

TEST(x86_wide_conversions)
{
    enum { COUNT = 1203 };
    static const uint8_t dtypes[] = {AIR_I64, AIR_I32, AIR_I16, AIR_I8, AIR_U8};
    region_case c;
    if (!can_run(isas[0]))
        return;
    case_init(&c, AIR_WALK_MAP, 1, (int64_t[]){COUNT}, 5);
    int x = case_dense(&c, AIR_F64, 0, false);
    int y = case_dense(&c, AIR_I64, 0, false);
    fill_hard(&c, x, y, COUNT);
    case_phase(&c, AIR_PHASE_ROW);
    int d = case_load(&c, AIR_LANE_F64, x), i = case_load(&c, AIR_LANE_I64, y);
    int cut = case_op(&c, AIR_RG_CVT, AIR_LANE_I64, d, -1, -1);
    for (size_t k = 0; k < sizeof dtypes; k++) {
        int to = case_const(&c, AIR_LANE_I64, dtypes[k]);
        int v = case_op(&c, AIR_RG_WRAP, AIR_LANE_I64, cut, to, -1);
        case_store(&c, case_dense(&c, (air_dtype)dtypes[k], 0, false), v);
    }
    for (int lane = AIR_LANE_F32; lane <= AIR_LANE_F64; lane++) {
        int v = case_op(&c, AIR_RG_CVT, (air_lane)lane, i, -1, -1);
        bool single = lane == AIR_LANE_F32;
        int to = case_dense(&c, single ? AIR_F32 : AIR_F64, 0, false);
        case_store(&c, to, v);
        if (single) /* beside the store that rounds itself */
            case_store(&c, case_dense(&c, AIR_F64, 0, false),
                       case_op(&c, AIR_RG_CVT, AIR_LANE_F64, v, -1, -1));
    }
    int single = case_op(&c, AIR_RG_CVT, AIR_LANE_F32, d, -1, -1);
    case_store(&c, case_dense(&c, AIR_F16, 0, false), single);
    CHECK(compare(&c, true, 0));
    case_free(&c);
}

/* What is known to fit half a lane takes shorter ways. */
TEST(x86_wide_halves)
{
    static const uint16_t ops[] = {AIR_RG_MUL, AIR_RG_IDIV, AIR_RG_IMOD};
    if (!can_run(isas[0]))
        return;
    for (uint32_t k = 0; k < 6; k++) {
        region_case c;
        case_init(&c, AIR_WALK_MAP, 1, (int64_t[]){301}, k);
        int x = case_dense(&c, AIR_I32, 0, false);
        int y = case_dense(&c, k < 3 ? AIR_I32 : AIR_I16, 0, false);
        ((int32_t *)c.data[x])[7] = INT32_MIN;
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_I64, x);
        int b = case_load(&c, AIR_LANE_I64, y);
        int v = case_op(&c, ops[k % 3], AIR_LANE_I64, a, b, -1);
        case_store(&c, case_dense(&c, AIR_I64, 0, false), v);
        CHECK(compare(&c, true, 0));
        case_free(&c);
    }
}

/* Each of the numbers that are hard to divide by each of them. */
TEST(x86_wide_division)
{
    static const int64_t hard[] = {
        0,  1,  2,  3,         7,           INT64_MAX,      INT64_MAX - 1,
        -1, -2, -3, INT64_MIN, 1L << 53,    (1L << 53) + 1, (1L << 62) + 1,
        10, 99, -7, 1L << 31,  -(1L << 40), 1L << 62,       INT64_MIN + 1};
    enum { COUNT = sizeof hard / sizeof *hard };
    if (!can_run(isas[0]))
        return;
    for (int op = AIR_RG_IDIV; op <= AIR_RG_IMOD; op++) {
        region_case c;
        case_init(&c, AIR_WALK_MAP, 2, (int64_t[]){COUNT, COUNT}, 5);
        int x = case_dense(&c, AIR_I64, 2, false);
        int y = case_dense(&c, AIR_I64, 0, false);
        int z = case_dense(&c, AIR_I64, 0, false);
        memcpy(c.data[x], hard, sizeof hard);
        for (int k = 0; k < COUNT; k++)
            memcpy((int64_t *)c.data[y] + (ptrdiff_t)k * COUNT, hard,
                   sizeof hard);
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_I64, x);
        int b = case_load(&c, AIR_LANE_I64, y);
        case_store(&c, z, case_op(&c, (air_rg_op)op, AIR_LANE_I64, a, b, -1));
        CHECK(compare(&c, true, 0));
        case_free(&c);
    }
}

/* One zero among the divisors, at each place, or none. */
static void
divide_by_zero(air_dtype dtype, int64_t n, int64_t zero, int op)
{
    region_case c;
    case_init(&c, AIR_WALK_MAP, 1, &n, 3);
    int x = case_dense(&c, dtype, 0, false);
    int y = case_dense(&c, dtype, 0, false);
    int z = case_dense(&c, dtype, 0, false);
    for (int64_t i = 0; i < n; i++) {
        const int64_t value = i == zero ? 0 : i % 3 + 1;
        memcpy((char *)c.data[y] + i * (int64_t)air_dtype_bytes(dtype), &value,
               air_dtype_bytes(dtype));
    }
    case_phase(&c, AIR_PHASE_ROW);
    int a = case_load(&c, AIR_LANE_I64, x);
    int b = case_load(&c, AIR_LANE_I64, y);
    case_store(&c, z, case_op(&c, (air_rg_op)op, AIR_LANE_I64, a, b, -1));
    if (!compare(&c, true, 0) || !CHECK_INT(c.raised, zero >= 0))
        test_fail(__FILE__, __LINE__, "%s, %d of %d", air_dtype_text(dtype),
                  (int)zero, (int)n);
    case_free(&c);
}

TEST(x86_wide_division_by_zero)
{
    static const air_dtype dtypes[] = {AIR_I64, AIR_I32, AIR_I16, AIR_U8};
    if (!can_run(isas[0]))
        return;
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
        for (int64_t n = 1; n < 80; n += 13)
            for (int64_t zero = -1; zero<n; zero += n> 20 ? 7 : 1)
                divide_by_zero(dtypes[k], n, zero,
                               n % 2 ? AIR_RG_IDIV : AIR_RG_IMOD);
}

/* A region of pairs that are stored: parts `first` and the other one. */
static void
gen_pairs(region_case *c, int first)
{
    case_init(c, AIR_WALK_MAP, 1, (int64_t[]){100}, 5);
    int x = case_dense(c, AIR_F32, 0, false), parts[2];
    for (int i = 0; i < 2; i++)
        parts[i] = case_buf(c, AIR_F32, (int64_t[]){2}, false);
    c->bufs[parts[1]].slot = c->bufs[parts[0]].slot;
    c->bufs[parts[!first]].offset = c->bufs[parts[first]].offset + 4;
    case_phase(c, AIR_PHASE_ROW);
    int a = case_load(c, AIR_LANE_F32, x);
    case_store(c, parts[0], a);
    case_store(c, parts[1], case_op(c, AIR_RG_NEG, AIR_LANE_F32, a, -1, -1));
}

TEST(x86_same_pairs)
{
    region_case c, d;
    gen_pairs(&c, 0);
    gen_pairs(&d, 0);
    for (int b = 0; b < d.rg.nbufs; b++)
        d.bufs[b].slot += 7;
    CHECK(codegen_same(&c.rg, &d.rg));
    case_free(&d);
    gen_pairs(&d, 1);
    CHECK(!codegen_same(&c.rg, &d.rg));
    case_free(&c);
    case_free(&d);
}

/* Stores past the caches of pairs, whose second parts are never aligned. */
TEST(x86_stream_pairs)
{
    if (!case_has_code())
        return;
    for (int64_t n = 60; n < 200; n += 4) {
        region_case c;
        case_init(&c, AIR_WALK_MAP, 2, (int64_t[]){5, n + 1}, 12);
        c.rg.stream = 1;
        int z = case_buf(&c, AIR_F32, (int64_t[]){2 * n + 8, 2}, false);
        c.rg.dims[1] = n;
        int w = case_buf(&c, AIR_F32, (int64_t[]){2 * n + 8, 2}, false);
        int x = case_dense(&c, AIR_F32, 0, false);
        int y = case_dense(&c, AIR_F32, 0, false);
        c.bufs[w].slot = c.bufs[z].slot;
        c.bufs[w].offset = c.bufs[z].offset + (int64_t)sizeof(float);
        case_phase(&c, AIR_PHASE_ROW);
        case_store(&c, z, case_load(&c, AIR_LANE_F32, x));
        case_store(&c, w, case_load(&c, AIR_LANE_F32, y));
        CHECK(compare(&c, true, 0));
        case_free(&c);
    }
}
