/* Machine code of regions against the tile loops: same bits. */
#include <string.h>

#include "codegen/codegen.h"
#include "region_case.h"
#include "test.h"

/* ---- random regions ---- */

typedef struct {
    region_case *c;
    int f[80], nf; /* F32 nodes of the current phase */
    int b[80], nb; /* B nodes */
    int i[80], ni; /* I64 nodes */
} gen;

static int
pick(gen *g, const int *from, int n)
{
    return from[case_random(g->c) % (uint32_t)n];
}

static void
add_f(gen *g, int node)
{
    if (g->nf < 80)
        g->f[g->nf++] = node;
}

static void
add_b(gen *g, int node)
{
    if (g->nb < 80)
        g->b[g->nb++] = node;
}

static void
add_i(gen *g, int node)
{
    if (g->ni < 80)
        g->i[g->ni++] = node;
}

static void
gen_f32(gen *g)
{
    static const uint16_t ops[] = {
        AIR_RG_ADD,     AIR_RG_SUB,   AIR_RG_MUL,   AIR_RG_DIV,   AIR_RG_FMA,
        AIR_RG_NEG,     AIR_RG_ABS,   AIR_RG_MAX,   AIR_RG_MIN,   AIR_RG_SQRT,
        AIR_RG_RINT,    AIR_RG_FLOOR, AIR_RG_CEIL,  AIR_RG_TRUNC, AIR_RG_LOGB,
        AIR_RG_MANT,    AIR_RG_BF16,  AIR_RG_F16,   AIR_RG_EXP,   AIR_RG_TANH,
        AIR_RG_SIGMOID, AIR_RG_ERF,   AIR_RG_NDTR,  AIR_RG_EXP2,  AIR_RG_NDTRH,
        AIR_RG_EXPM1,   AIR_RG_LOG,   AIR_RG_LOG1P, AIR_RG_ADD,   AIR_RG_MUL,
        AIR_RG_FMA,     AIR_RG_FMA,
    };
    air_rg_op op = ops[case_random(g->c) % (sizeof ops / sizeof *ops)];
    int a = pick(g, g->f, g->nf), b = pick(g, g->f, g->nf);
    int z = pick(g, g->f, g->nf);
    add_f(g, case_op(g->c, op, AIR_LANE_F32, a, b, z));
}

/* What is defined for nothing above zero. */
static void
gen_below_zero(gen *g)
{
    int a = pick(g, g->f, g->nf);
    a = case_op(g->c, AIR_RG_ABS, AIR_LANE_F32, a, -1, -1);
    a = case_op(g->c, AIR_RG_NEG, AIR_LANE_F32, a, -1, -1);
    add_f(g, case_op(g->c, AIR_RG_EXPNEG, AIR_LANE_F32, a, -1, -1));
}

static void
gen_truth(gen *g)
{
    static const uint16_t ops[] = {AIR_RG_LT,  AIR_RG_LE,  AIR_RG_EQ,
                                   AIR_RG_NE,  AIR_RG_AND, AIR_RG_OR,
                                   AIR_RG_XOR, AIR_RG_NOT, AIR_RG_CVT};
    uint32_t k = case_random(g->c) % 9;
    bool of_b = g->nb > 0 && (k >= 4 || case_random(g->c) % 4 == 0) && k < 8;
    if (k >= 4 && k < 8 && g->nb == 0)
        k = 0;
    int a = of_b ? pick(g, g->b, g->nb) : pick(g, g->f, g->nf);
    int b = of_b ? pick(g, g->b, g->nb) : pick(g, g->f, g->nf);
    add_b(g, case_op(g->c, ops[k], AIR_LANE_B, a, b, -1));
}

static void
gen_select(gen *g)
{
    int m = pick(g, g->b, g->nb);
    if (case_random(g->c) % 4 == 0)
        add_f(g, case_op(g->c, AIR_RG_CVT, AIR_LANE_F32, m, -1, -1));
    else if (case_random(g->c) % 4 == 0)
        add_b(g, case_op(g->c, AIR_RG_SEL, AIR_LANE_B, m, pick(g, g->b, g->nb),
                         pick(g, g->b, g->nb)));
    else
        add_f(g, case_op(g->c, AIR_RG_SEL, AIR_LANE_F32, m,
                         pick(g, g->f, g->nf), pick(g, g->f, g->nf)));
}

static void
gen_nodes(gen *g, int count)
{
    add_f(g, case_const(g->c, AIR_LANE_F32, 0.7));
    for (int i = 0; i < count; i++) {
        uint32_t r = case_random(g->c) % 10;
        if (r < 2)
            gen_truth(g);
        else if (r < 4 && g->nb > 0)
            gen_select(g);
        else if (r == 4)
            gen_below_zero(g);
        else
            gen_f32(g);
    }
}

static void
gen_loads(gen *g, int nbufs)
{
    for (int b = 0; b < nbufs; b++) {
        int dtype = g->c->bufs[b].dtype;
        if (dtype == AIR_BOOL) {
            add_b(g, case_load(g->c, AIR_LANE_B, b));
        } else if (dtype == AIR_I32 || dtype == AIR_U8) {
            int i = case_load(g->c, AIR_LANE_I64, b);
            add_f(g, case_op(g->c, AIR_RG_CVT, AIR_LANE_F32, i, -1, -1));
            add_b(g, case_op(g->c, AIR_RG_CVT, AIR_LANE_B, i, -1, -1));
        } else {
            int x = case_load(g->c, AIR_LANE_F32, b);
            add_f(g, x);
            add_f(g, case_op(g->c, AIR_RG_SIGN, AIR_LANE_F32, g->f[0], x, -1));
        }
    }
}

static int
gen_inputs(region_case *c, bool special)
{
    static const uint8_t dtypes[] = {AIR_F32,  AIR_F32, AIR_BF16, AIR_F16,
                                     AIR_BOOL, AIR_I32, AIR_U8};
    int n = 1 + (int)(case_random(c) % 5);
    case_dense(c, AIR_F32, 0, special);
    for (int i = 0; i < n; i++) {
        unsigned broadcast = case_random(c) % 3 ? 0 : case_random(c) % 8;
        case_dense(c, dtypes[case_random(c) % 7],
                   broadcast & ((1u << c->rg.rank) - 1), special);
    }
    return c->rg.nbufs;
}

static void
gen_stores(gen *g, unsigned broadcast)
{
    static const uint8_t dtypes[] = {AIR_F32, AIR_BF16, AIR_F16};
    for (int i = 0; i < 2; i++) {
        int to =
            case_dense(g->c, dtypes[case_random(g->c) % 3], broadcast, false);
        case_store(g->c, to, g->f[g->nf - 1 - i]);
    }
    if (g->nb > 0) {
        int to = case_dense(g->c, AIR_BOOL, broadcast, false);
        case_store(g->c, to, g->b[g->nb - 1]);
    }
}

static void
gen_map(region_case *c, bool special)
{
    gen g = {.c = c};
    int inputs = gen_inputs(c, special);
    case_phase(c, AIR_PHASE_ROW);
    gen_loads(&g, inputs);
    gen_nodes(&g, 5 + (int)(case_random(c) % 30));
    gen_stores(&g, 0);
}

/* ---- integers: lanes as wide as the widest dtype ---- */

static const uint8_t integers[] = {AIR_U8, AIR_I8, AIR_I16, AIR_I32};

/* Of the dtypes that `level` admits: bytes, one of them, words, all. */
static int
pick_integer(gen *g, int level)
{
    static const uint8_t first[] = {0, 1, 0, 0, 0}, count[] = {1, 1, 2, 3, 4};
    return integers[first[level] + case_random(g->c) % count[level]];
}

/* As lowering does it: a value between two operators is one of a dtype. */
static void
add_wrapped(gen *g, int level, int node)
{
    bool truth = case_random(g->c) % 16 == 0;
    int dtype = case_const(g->c, AIR_LANE_I64,
                           truth ? AIR_BOOL : pick_integer(g, level));
    /* truth takes the value itself, which may need more bits than the lane */
    if (truth)
        node = g->i[g->ni - 1];
    add_i(g, case_op(g->c, AIR_RG_WRAP, AIR_LANE_I64, node, dtype, -1));
}

static void
gen_integer(gen *g, int level)
{
    static const uint16_t ops[] = {
        AIR_RG_ADD, AIR_RG_SUB,  AIR_RG_MUL,  AIR_RG_NEG,
        AIR_RG_ABS, AIR_RG_MAX,  AIR_RG_MIN,  AIR_RG_IAND,
        AIR_RG_IOR, AIR_RG_IXOR, AIR_RG_ISHL, AIR_RG_ISHR,
        AIR_RG_MUL, AIR_RG_ADD,  AIR_RG_IDIV, AIR_RG_IMOD,
    };
    size_t count = sizeof ops / sizeof *ops - (level == 4 ? 2 : 0);
    uint16_t op = ops[case_random(g->c) % count];
    int a = pick(g, g->i, g->ni), b = pick(g, g->i, g->ni);
    if ((op == AIR_RG_ISHL || op == AIR_RG_ISHR) && case_random(g->c) % 4 < 3)
        b = case_const(g->c, AIR_LANE_I64, case_random(g->c) % 12 * 6);
    if (op == AIR_RG_NEG || op == AIR_RG_ABS)
        b = -1;
    int v = case_op(g->c, op, AIR_LANE_I64, a, b, -1);
    if (op == AIR_RG_MUL && case_random(g->c) % 2 == 0)
        v = case_op(g->c, AIR_RG_ADD, AIR_LANE_I64, v, a, -1);
    add_wrapped(g, level, v);
}

static void
gen_integer_truth(gen *g)
{
    static const uint16_t ops[] = {AIR_RG_LT, AIR_RG_LE, AIR_RG_EQ, AIR_RG_NE,
                                   AIR_RG_CVT};
    uint32_t k = case_random(g->c) % 5;
    int a = pick(g, g->i, g->ni), b = pick(g, g->i, g->ni);
    add_b(g, case_op(g->c, ops[k], AIR_LANE_B, a, k < 4 ? b : -1, -1));
}

static void
gen_integer_choice(gen *g)
{
    int m = pick(g, g->b, g->nb), a = pick(g, g->i, g->ni);
    if (case_random(g->c) % 3 == 0)
        add_b(g, case_op(g->c, AIR_RG_NOT, AIR_LANE_B, m, -1, -1));
    else if (case_random(g->c) % 4 == 0)
        add_i(g, case_op(g->c, AIR_RG_CVT, AIR_LANE_I64, m, -1, -1));
    else
        add_i(g, case_op(g->c, AIR_RG_SEL, AIR_LANE_I64, m, a,
                         pick(g, g->i, g->ni)));
}

/* Floats beside 32-bit integers: there and back. */
static void
gen_integer_of_float(gen *g, int level)
{
    if (case_random(g->c) % 2 == 0) {
        int a = pick(g, g->i, g->ni);
        add_f(g, case_op(g->c, AIR_RG_CVT, AIR_LANE_F32, a, -1, -1));
    } else {
        int a = pick(g, g->f, g->nf);
        add_wrapped(g, level,
                    case_op(g->c, AIR_RG_CVT, AIR_LANE_I64, a, -1, -1));
    }
}

static void
gen_integer_loads(gen *g, int level)
{
    int count = 1 + (int)(case_random(g->c) % 4);
    for (int k = 0; k < count; k++) {
        unsigned broadcast = case_random(g->c) % 3 ? 0 : case_random(g->c) % 4;
        bool truth = case_random(g->c) % 4 == 0;
        int dtype = truth ? AIR_BOOL : pick_integer(g, level);
        int buf = case_dense(g->c, (air_dtype)dtype, broadcast, false);
        int v = case_load(g->c, truth ? AIR_LANE_B : AIR_LANE_I64, buf);
        if (truth)
            add_b(g, v);
        else
            add_i(g, v);
    }
}

static void
gen_integers(region_case *c, bool special)
{
    gen g = {.c = c};
    int level = (int)(case_random(c) % 5), nodes = (int)(case_random(c) % 25);
    case_phase(c, AIR_PHASE_ROW);
    add_i(&g, case_const(c, AIR_LANE_I64, level == 1 ? -3 : 5));
    gen_integer_loads(&g, level);
    if (special && level == 4)
        add_f(&g,
              case_load(c, AIR_LANE_F32, case_dense(c, AIR_F32, 0, special)));
    for (int k = 0; k < nodes; k++) {
        uint32_t r = case_random(c) % 8;
        if (r == 0 && g.nf > 0)
            gen_integer_of_float(&g, level);
        else if (r < 3)
            gen_integer_truth(&g);
        else if (r == 3 && g.nb > 0)
            gen_integer_choice(&g);
        else
            gen_integer(&g, level);
    }
    case_store(c, case_dense(c, (air_dtype)pick_integer(&g, level), 0, false),
               g.i[g.ni - 1]);
    if (g.nb > 0)
        case_store(c, case_dense(c, AIR_BOOL, 0, false), g.b[g.nb - 1]);
    if (g.nf > 0)
        case_store(c, case_dense(c, AIR_F32, 0, false), g.f[g.nf - 1]);
}

static int
gen_reduces(gen *g, int *scalars)
{
    int n = 1 + (int)(case_random(g->c) % 3);
    for (int i = 0; i < n; i++)
        scalars[i] = case_reduce(g->c, (air_reduce)(case_random(g->c) % 4),
                                 g->f[g->nf - 1 - i]);
    return n;
}

static void
gen_inner(region_case *c, bool special)
{
    gen g = {.c = c};
    int scalars[4], inputs = gen_inputs(c, special);
    int kept = case_scratch(c, case_random(c) % 2 ? AIR_F32 : AIR_BF16);
    case_phase(c, AIR_PHASE_ROW);
    gen_loads(&g, inputs);
    gen_nodes(&g, (int)(case_random(c) % 12));
    case_store(c, kept, g.f[g.nf - 1]);
    int n = gen_reduces(&g, scalars);
    case_phase(c, AIR_PHASE_SCALAR);
    g.nf = g.nb = 0;
    for (int i = 0; i < n; i++)
        add_f(&g, case_scalar(c, AIR_LANE_F32, scalars[i]));
    gen_nodes(&g, 6);
    scalars[n] = case_set(c, g.f[g.nf - 1]);
    gen_stores(&g, 1u << (c->rg.rank - 1));
    case_phase(c, AIR_PHASE_ROW);
    g.nf = g.nb = 0;
    add_f(&g, case_load(c, AIR_LANE_F32, kept));
    add_f(&g, case_scalar(c, AIR_LANE_F32, scalars[n]));
    add_f(&g, case_load(c, AIR_LANE_F32, 0));
    gen_nodes(&g, (int)(case_random(c) % 12));
    gen_stores(&g, 0);
}

/* Inner, and some values added up down the columns. */
static void
gen_columns(region_case *c, bool special)
{
    int sums[2];
    gen_inner(c, special);
    case_phase(c, AIR_PHASE_ROW);
    for (int i = 0; i < 2; i++) {
        sums[i] = case_sums(c, AIR_F32);
        int old = case_load(c, AIR_LANE_F32, sums[i]);
        int x = case_load(c, AIR_LANE_F32, 0);
        if (i == 1)
            x = case_op(c, AIR_RG_MUL, AIR_LANE_F32, x, x, -1);
        case_store(c, sums[i],
                   case_op(c, AIR_RG_ADD, AIR_LANE_F32, old, x, -1));
    }
    case_phase(c, AIR_PHASE_COLUMN);
    for (int i = 0; i < 2; i++) {
        int to = case_dense(c, i ? AIR_BF16 : AIR_F32, 1, false);
        case_store(c, to, case_load(c, AIR_LANE_F32, sums[i]));
    }
}

static void
gen_outer(region_case *c, bool special)
{
    gen g = {.c = c};
    int scalars[3], inputs = gen_inputs(c, special);
    case_phase(c, AIR_PHASE_ROW);
    gen_loads(&g, inputs);
    gen_nodes(&g, (int)(case_random(c) % 8));
    int n = gen_reduces(&g, scalars);
    case_phase(c, AIR_PHASE_ROW);
    g.nf = g.nb = 0;
    for (int i = 0; i < n; i++)
        add_f(&g, case_scalar(c, AIR_LANE_F32, scalars[i]));
    gen_nodes(&g, 6);
    gen_stores(&g, 1u << (c->rg.rank - 2));
}

/* ---- comparing ---- */

static bool
has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static bool
compare(region_case *c, const char *isa, void *const *tiles, bool raised)
{
    air_code code;
    const char *reason;
    if (!CHECK_OK(
            codegen_region(&base_libc_alloc, &c->rg, isa, &code, &reason)))
        return test_fail(__FILE__, __LINE__, "%s", reason);
    bool same = CHECK(reason == NULL);
    for (int threads = 1; threads <= 3 && same; threads += 2)
        same = case_run(c, &code, isa, threads) && case_equal(c, tiles) &&
               CHECK_INT(c->raised, raised);
    codegen_free(&base_libc_alloc, &code);
    return same;
}

static bool
compare_all(region_case *c)
{
    void *tiles[AIR_RG_MAX_BUFS];
    const uint8_t across = c->rg.across, spread = c->rg.spread;
    c->rg.across = c->rg.spread = 0; /* change no bit */
    if (!case_run(c, NULL, "scalar", 1))
        return false;
    case_save(c, tiles);
    const bool raised = c->raised;
    c->rg.across = across;
    c->rg.spread = spread;
    bool same = compare(c, "avx2", tiles, raised);
    if (same && has_avx512())
        same = compare(c, "avx512", tiles, raised);
    case_drop(c, tiles);
    return same;
}

static void
random_regions(air_walk walk, void (*make)(region_case *, bool), int rank,
               const int64_t *dims, uint32_t seed)
{
    region_case c;
    case_init(&c, walk, rank, dims, seed);
    make(&c, seed % 3 == 0);
    c.rg.stream = seed % 4 == 0;
    if (!compare_all(&c))
        test_fail(__FILE__, __LINE__, "walk %d seed %u, dims %d %d", walk, seed,
                  (int)dims[0], (int)dims[rank - 1]);
    case_free(&c);
}

TEST(x86_map)
{
    if (!case_has_code())
        return;
    for (uint32_t seed = 0; seed < 300; seed++)
        random_regions(AIR_WALK_MAP, gen_map, 2, (int64_t[]){3, 1 + seed % 130},
                       seed);
}

/* Short rows as one: dense, broadcast along each of the axes, and lying
 * apart. */
static void
gen_spread(region_case *c, bool special)
{
    gen_map(c, special);
    c->rg.spread = 1;
    for (int i = 0; i < c->rg.nnodes; i++)
        if (c->nodes[i].op == AIR_RG_INDEX)
            c->rg.spread = 0; /* counts along one axis */
}

TEST(x86_short_rows_are_one)
{
    if (!case_has_code())
        return;
    for (uint32_t seed = 0; seed < 300; seed++)
        random_regions(
            AIR_WALK_MAP, gen_spread, 3,
            (int64_t[]){1 + seed % 3, 2 + seed * 37 % 120, 1 + seed % 16},
            seed);
}

TEST(x86_integers)
{
    if (!case_has_code())
        return;
    for (uint32_t seed = 0; seed < 600; seed++)
        random_regions(AIR_WALK_MAP, gen_integers, 2,
                       (int64_t[]){3, 1 + seed * 7 % 300}, seed);
}

TEST(x86_inner)
{
    if (!case_has_code())
        return;
    for (uint32_t seed = 0; seed < 300; seed++)
        random_regions(AIR_WALK_INNER, gen_inner, 2,
                       (int64_t[]){3, 1 + seed % 130}, seed);
    for (uint32_t seed = 300; seed < 330; seed++)
        random_regions(AIR_WALK_INNER, gen_inner, 2,
                       (int64_t[]){2, 4000 + 37 * (seed - 300)}, seed);
}

/* Threads begin in the middle of an axis; what has code has it for all rows. */
static void
regions_of_rows(air_walk walk, void (*make)(region_case *, bool))
{
    for (uint32_t seed = 0; seed < 200; seed++) {
        const int64_t dims[] = {1 + seed % 3, 1 + seed % 11, 1 + seed % 150};
        region_case c;
        air_code code;
        const char *reason;
        case_init(&c, walk, 3, dims, seed);
        make(&c, seed % 3 == 0);
        if (CHECK_OK(codegen_region(&base_libc_alloc, &c.rg, "avx2", &code,
                                    &reason))) {
            CHECK(code.all > 0 || reason != NULL);
            codegen_free(&base_libc_alloc, &code);
        }
        if (!compare_all(&c))
            test_fail(__FILE__, __LINE__, "walk %d seed %u", walk, seed);
        case_free(&c);
    }
}

TEST(x86_rows)
{
    if (!case_has_code())
        return;
    regions_of_rows(AIR_WALK_INNER, gen_inner);
    regions_of_rows(AIR_WALK_MAP, gen_map);
}

TEST(x86_columns)
{
    if (!case_has_code())
        return;
    for (uint32_t seed = 0; seed < 100; seed++)
        random_regions(AIR_WALK_INNER, gen_columns, 2,
                       (int64_t[]){1 + seed * 7 % 90, 1 + seed * 11 % 300},
                       seed);
}

static void
gen_across(region_case *c, bool special)
{
    gen_inner(c, special);
    c->rg.across = 1;
}

TEST(x86_across)
{
    if (!case_has_code())
        return;
    for (uint32_t i = 0; i < 300; i++) {
        const int64_t cols = 1 + i * 5 % (i % 9 == 0 ? 300 : 70), a = i % 9;
        const int64_t few[] = {2 + i * 29 % 60, 1 + a, 1 + i * 7 % 20, a + 2};
        random_regions(AIR_WALK_INNER, gen_across, 3,
                       (int64_t[]){1 + i % 2, 2 + i * 37 % 300, cols}, i);
        random_regions(AIR_WALK_INNER, gen_across, 4, few, i);
    }
}

TEST(x86_outer)
{
    if (!case_has_code())
        return;
    for (uint32_t seed = 0; seed < 200; seed++)
        random_regions(AIR_WALK_OUTER, gen_outer, 3,
                       (int64_t[]){2, 1 + seed * 7 % 300, 1 + seed % 130},
                       seed);
}

/* Strides that machine code does not walk. */
TEST(x86_strided)
{
    if (!case_has_code())
        return;
    for (int64_t n = 1; n < 1300; n += 111) {
        region_case c;
        case_init(&c, AIR_WALK_MAP, 2, (int64_t[]){3, n}, 9);
        c.rg.stream = n % 2 == 0;
        int x = case_buf(&c, AIR_F32, (int64_t[]){1, 3}, false);
        int y = case_buf(&c, AIR_BF16, (int64_t[]){n, -1}, false);
        int z = case_buf(&c, AIR_F32, (int64_t[]){2 * n, 2}, false);
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_F32, x);
        int b = case_load(&c, AIR_LANE_F32, y);
        case_store(&c, z, case_op(&c, AIR_RG_ADD, AIR_LANE_F32, a, b, -1));
        CHECK(compare_all(&c));
        case_free(&c);
    }
}

/* Both ways through the blocks of a transposing copy. */
TEST(x86_transposed)
{
    static const int64_t sizes[][3] = {
        {1, 64, 64}, {2, 33, 65}, {3, 1, 200}, {1, 200, 7}, {2, 129, 190}};
    if (!case_has_code())
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t *d = sizes[i];
        region_case c;
        case_init(&c, AIR_WALK_MAP, 3, d, 9);
        int64_t flipped[] = {d[1] * d[2], 1, d[1]};
        int x = case_buf(&c, AIR_BF16, flipped, false);
        int y = case_dense(&c, AIR_F32, 1, false);
        int z = case_buf(&c, AIR_F32, flipped, false);
        int w = case_dense(&c, AIR_F16, 0, false);
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_F32, x);
        int b = case_load(&c, AIR_LANE_F32, y);
        int sum = case_op(&c, AIR_RG_ADD, AIR_LANE_F32, a, b, -1);
        case_store(&c, z, sum);
        case_store(&c, w, sum);
        CHECK(compare_all(&c));
        case_free(&c);
    }
}

/* Results in the place of operands, two of them exchanged. */
TEST(x86_in_place)
{
    if (!case_has_code())
        return;
    for (int64_t n = 1; n < 300; n += 23) {
        region_case c;
        case_init(&c, AIR_WALK_MAP, 2, (int64_t[]){1, n}, 11);
        int x = case_dense(&c, AIR_F32, 0, false);
        int y = case_dense(&c, AIR_BF16, 0, false);
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_F32, x);
        int b = case_load(&c, AIR_LANE_F32, y);
        int e = case_op(&c, AIR_RG_EXP, AIR_LANE_F32, b, -1, -1);
        case_store(&c, x, case_op(&c, AIR_RG_ADD, AIR_LANE_F32, b, b, -1));
        case_store(&c, y, case_op(&c, AIR_RG_MUL, AIR_LANE_F32, a, e, -1));
        CHECK(compare_all(&c));
        case_free(&c);
    }
}

/* More values alive than registers, more buffers than pointers. */
TEST(x86_spills)
{
    enum { COUNT = 20 };
    if (!case_has_code())
        return;
    for (int64_t n = 1; n < 100; n += 7) {
        region_case c;
        int v[COUNT], sum = -1;
        case_init(&c, AIR_WALK_MAP, 1, (int64_t[]){n}, 13);
        for (int i = 0; i < COUNT; i++)
            case_dense(&c, i % 3 ? AIR_F32 : AIR_BF16, 0, false);
        int to = case_dense(&c, AIR_F16, 0, false);
        case_phase(&c, AIR_PHASE_ROW);
        for (int i = 0; i < COUNT; i++)
            v[i] = case_load(&c, AIR_LANE_F32, i);
        sum = v[0];
        for (int step = 1; step < COUNT; step += 3)
            for (int i = 0; i < COUNT; i++)
                sum = case_op(&c, i % 2 ? AIR_RG_FMA : AIR_RG_MAX, AIR_LANE_F32,
                              v[i], i % 2 ? v[(i * step) % COUNT] : sum, sum);
        case_store(&c, to, sum);
        for (int i = 0; i < COUNT; i += 5)
            case_store(&c, i, v[COUNT - 1 - i]);
        CHECK(compare_all(&c));
        case_free(&c);
    }
}

/* A kept row that does not fit a thread's scratch. */
TEST(x86_long_rows)
{
    if (!case_has_code())
        return;
    for (uint32_t seed = 0; seed < 4; seed++)
        random_regions(AIR_WALK_INNER, gen_inner, 2, (int64_t[]){2, 140001},
                       seed);
}

/* Stores past the caches: aligned rows and others, in one region. */
TEST(x86_stream)
{
    if (!case_has_code())
        return;
    for (int64_t n = 60; n < 200; n += 4) {
        region_case c;
        case_init(&c, AIR_WALK_MAP, 2, (int64_t[]){5, n}, 12);
        c.rg.stream = 1;
        int x = case_buf(&c, AIR_F32, (int64_t[]){n + 4, 1}, false);
        int y = case_buf(&c, AIR_F32, (int64_t[]){n + 4, 1}, false);
        int z = case_buf(&c, AIR_BF16, (int64_t[]){n + 4, 1}, false);
        case_phase(&c, AIR_PHASE_ROW);
        int a = case_load(&c, AIR_LANE_F32, x);
        int b = case_op(&c, AIR_RG_ADD, AIR_LANE_F32, a, a, -1);
        case_store(&c, y, b);
        case_store(&c, z, b);
        CHECK(compare_all(&c));
        case_free(&c);
    }
}

TEST(x86_refuses_with_a_reason)
{
    region_case c;
    air_code code;
    const char *reason;
    case_init(&c, AIR_WALK_MAP, 1, (int64_t[]){8}, 7);
    int x = case_dense(&c, AIR_F64, 0, false);
    case_phase(&c, AIR_PHASE_ROW);
    int a = case_load(&c, AIR_LANE_F64, x);
    case_store(&c, x, case_op(&c, AIR_RG_EXP, AIR_LANE_F64, a, -1, -1));
    CHECK(codegen_region(&base_libc_alloc, &c.rg, "avx2", &code, &reason) ==
          AIR_ERROR_UNSUPPORTED);
    CHECK(reason != NULL && code.bytes == NULL);
    CHECK(codegen_region(&base_libc_alloc, &c.rg, "scalar", &code, &reason) ==
          AIR_ERROR_UNSUPPORTED);
    case_free(&c);
}

static air_status
generate(const air_alloc *alloc, void *user)
{
    const region_case *c = user;
    air_code code;
    const char *reason;
    AIR_TRY(codegen_region(alloc, &c->rg, "avx2", &code, &reason));
    codegen_free(alloc, &code);
    return AIR_OK;
}

TEST(x86_out_of_memory)
{
    region_case c;
    case_init(&c, AIR_WALK_INNER, 2, (int64_t[]){3, 100}, 5);
    gen_inner(&c, false);
    TEST_OOM(generate, &c);
    case_free(&c);
}

static bool
same_code(const region_case *c, const region_case *d)
{
    air_code x, y;
    const char *reason;
    bool same =
        CHECK_OK(
            codegen_region(&base_libc_alloc, &c->rg, "avx2", &x, &reason)) &&
        CHECK_OK(codegen_region(&base_libc_alloc, &d->rg, "avx2", &y, &reason));
    same = same && x.size == y.size && memcmp(x.bytes, y.bytes, x.size) == 0;
    codegen_free(&base_libc_alloc, &x);
    codegen_free(&base_libc_alloc, &y);
    return same;
}

/* Regions that count as the same have the same code; what tells them apart. */
TEST(x86_same)
{
    region_case c, d;
    case_init(&c, AIR_WALK_INNER, 2, (int64_t[]){3, 100}, 5);
    case_init(&d, AIR_WALK_INNER, 2, (int64_t[]){3, 100}, 5);
    gen_inner(&c, false);
    gen_inner(&d, false);
    d.rg.dims[1] = 64;
    for (int b = 0; b < d.rg.nbufs; b++)
        d.bufs[b].slot += 7;
    CHECK(codegen_same(&c.rg, &d.rg));
    CHECK(same_code(&c, &d));
    air_rg_node *last = &d.nodes[d.rg.nnodes - 1];
    REQUIRE(last->op == AIR_RG_STORE && d.rg.nbufs > 1);
    const air_rg_buf buf = d.bufs[last->buf];
    d.bufs[last->buf].dtype = buf.dtype == AIR_F32 ? AIR_F16 : AIR_F32;
    CHECK(!codegen_same(&c.rg, &d.rg));
    d.bufs[last->buf] = buf;
    d.bufs[last->buf].strides[1] = buf.strides[1] == 0;
    CHECK(!codegen_same(&c.rg, &d.rg));
    d.bufs[last->buf] = buf;
    const int other = last->buf == 0;
    d.bufs[last->buf].slot = d.bufs[other].slot;
    d.bufs[last->buf].offset = d.bufs[other].offset;
    CHECK(!codegen_same(&c.rg, &d.rg));
    d.bufs[last->buf] = buf;
    d.rg.stream = 1;
    CHECK(!codegen_same(&c.rg, &d.rg));
    d.rg.stream = 0;
    last->a--;
    CHECK(!codegen_same(&c.rg, &d.rg));
    last->a++;
    d.phases[0].end--;
    CHECK(!codegen_same(&c.rg, &d.rg));
    d.phases[0].end++;
    CHECK(codegen_same(&c.rg, &d.rg));
    case_free(&c);
    case_free(&d);
}
