#include "region_case.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cpu/region/tile_float.h"
#include "test.h"

static size_t
dtype_size(int dtype)
{
    static const size_t size[AIR_DTYPE_COUNT] = {
        0,
#define DTYPE(id, text, bytes, ...) bytes,
#include "air_dtypes.def"
#undef DTYPE
    };
    return size[dtype];
}

uint32_t
case_random(region_case *c)
{
    c->seed = c->seed * 1664525u + 1013904223u;
    return c->seed >> 8;
}

void
case_init(region_case *c, air_walk walk, int rank, const int64_t *dims,
          uint32_t seed)
{
    memset(c, 0, sizeof *c);
    c->rg.walk = (uint8_t)walk;
    c->rg.rank = (uint8_t)rank;
    memcpy(c->rg.dims, dims, (size_t)rank * sizeof *dims);
    c->rg.nodes = c->nodes;
    c->rg.bufs = c->bufs;
    c->rg.phases = c->phases;
    c->seed = seed * 2654435761u + 12345;
}

void
case_free(region_case *c)
{
    for (int b = 0; b < c->rg.nbufs; b++) {
        free(c->data[b]);
        free(c->work[b]);
    }
}

static float
random_float(region_case *c, bool special)
{
    static const uint32_t odd[] = {
        0x7fc00000, 0x7f800000, 0xff800000, 0x00000000, 0x80000000, 0x00000001,
        0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000,
        0x42b17218, 0xc2b17218, 0xc2cff1b5, 0x477ff000, 0x33000001, 0x38800000,
    };
    uint32_t r = case_random(c);
    if (special && r % 5 == 0)
        return tile_from_bits(odd[case_random(c) % (sizeof odd / 4)]);
    float f = ((float)case_random(c) / 0x1p24f - 0.5f) * 8.0f;
    return special && r % 5 == 1 ? ldexpf(f, (int)(r / 8 % 280) - 150) : f;
}

static void
put(void *data, int dtype, int64_t i, region_case *c, bool special)
{
    float f = random_float(c, special);
    int64_t n = (int64_t)case_random(c) - (1 << 23);
    switch (dtype) {
    case AIR_F32: ((float *)data)[i] = f; break;
    case AIR_F64: ((double *)data)[i] = (double)f; break;
    case AIR_BF16: ((uint16_t *)data)[i] = tile_to_bf16(f); break;
    case AIR_F16: ((uint16_t *)data)[i] = tile_to_f16(f); break;
    case AIR_I8: ((int8_t *)data)[i] = (int8_t)n; break;
    case AIR_U8: ((uint8_t *)data)[i] = (uint8_t)n; break;
    case AIR_I16: ((int16_t *)data)[i] = (int16_t)n; break;
    case AIR_I32: ((int32_t *)data)[i] = (int32_t)(n * 256); break;
    case AIR_I64: ((int64_t *)data)[i] = n * (special ? 1 << 30 : 1); break;
    default: ((uint8_t *)data)[i] = (uint8_t)(n & 1); break;
    }
}

int
case_buf(region_case *c, air_dtype dtype, const int64_t *strides, bool special)
{
    int b = c->rg.nbufs++;
    int64_t low = 0, high = 0;
    for (int a = 0; a < c->rg.rank; a++) {
        int64_t reach = strides[a] * (c->rg.dims[a] - 1);
        if (c->rg.dims[a] > 0)
            *(reach < 0 ? &low : &high) += reach;
        c->bufs[b].strides[a] = strides[a];
    }
    size_t size = dtype_size(dtype);
    c->bufs[b].dtype = (uint8_t)dtype;
    c->bufs[b].slot = b;
    c->first[b] = -low;
    c->bufs[b].offset = -low * (int64_t)size;
    c->count[b] = high - low + 1;
    c->data[b] = malloc((size_t)c->count[b] * size);
    c->work[b] = NULL; /* a line of a cache, as results lie */
    if (posix_memalign(&c->work[b], 64, (size_t)c->count[b] * size) != 0)
        abort();
    for (int64_t i = 0; i < c->count[b]; i++)
        put(c->data[b], dtype, i, c, special);
    return b;
}

int
case_dense(region_case *c, air_dtype dtype, unsigned broadcast, bool special)
{
    int64_t strides[AIR_MAX_RANK], step = 1;
    for (int a = c->rg.rank - 1; a >= 0; a--) {
        strides[a] = broadcast >> a & 1 ? 0 : step;
        if (!(broadcast >> a & 1))
            step *= c->rg.dims[a];
    }
    return case_buf(c, dtype, strides, special);
}

int
case_scratch(region_case *c, air_dtype dtype)
{
    int b = c->rg.nbufs++;
    c->bufs[b].dtype = (uint8_t)dtype;
    c->bufs[b].slot = -1;
    c->bufs[b].scratch = AIR_RG_ROW;
    c->bufs[b].strides[c->rg.rank - 1] = 1;
    return b;
}

int
case_sums(region_case *c, air_dtype dtype)
{
    int b = case_scratch(c, dtype);
    c->bufs[b].scratch = AIR_RG_SUMS;
    return b;
}

void
case_phase(region_case *c, air_phase_kind kind)
{
    c->phases[c->rg.nphases++] =
        (air_rg_phase){(uint8_t)kind, c->rg.nnodes, c->rg.nnodes};
}

static int
push(region_case *c, air_rg_node n)
{
    c->nodes[c->rg.nnodes] = n;
    c->phases[c->rg.nphases - 1].end = (int16_t)(c->rg.nnodes + 1);
    return c->rg.nnodes++;
}

static air_rg_node
node(air_rg_op op, air_lane lane, int buf, int a, int b, int z)
{
    return (air_rg_node){.op = (uint16_t)op,
                         .lane = (uint8_t)lane,
                         .buf = (int16_t)buf,
                         .a = (int16_t)a,
                         .b = (int16_t)b,
                         .c = (int16_t)z};
}

int
case_const(region_case *c, air_lane lane, double value)
{
    air_rg_node n = node(AIR_RG_CONST, lane, -1, -1, -1, -1);
    n.k = lane == AIR_LANE_F32 ? (double)(float)value : value;
    if (lane >= AIR_LANE_I64)
        n.i = (int64_t)value;
    return push(c, n);
}

int
case_load(region_case *c, air_lane lane, int buf)
{
    return push(c, node(AIR_RG_LOAD, lane, buf, -1, -1, -1));
}

int
case_op(region_case *c, air_rg_op op, air_lane lane, int a, int b, int z)
{
    return push(c, node(op, lane, -1, a, b, z));
}

void
case_store(region_case *c, int buf, int a)
{
    push(c, node(AIR_RG_STORE, c->nodes[a].lane, buf, a, -1, -1));
}

int
case_reduce(region_case *c, air_reduce how, int a)
{
    air_rg_node n =
        node(AIR_RG_REDUCE, c->nodes[a].lane, c->rg.nscalars, a, -1, -1);
    n.reduce = (uint8_t)how;
    push(c, n);
    return c->rg.nscalars++;
}

int
case_set(region_case *c, int a)
{
    push(c, node(AIR_RG_SET, c->nodes[a].lane, c->rg.nscalars, a, -1, -1));
    return c->rg.nscalars++;
}

int
case_scalar(region_case *c, air_lane lane, int scalar)
{
    return push(c, node(AIR_RG_SCALAR, lane, scalar, -1, -1, -1));
}

/* ---- running ---- */

typedef struct {
    const air_call *call;
    air_task task;
    air_fault fault;
} thread_arg;

static void
barrier(const air_task *task)
{
    pthread_barrier_wait(task->pool);
}

static void *
thread_main(void *arg)
{
    thread_arg *t = arg;
    t->task.scratch = aligned_alloc(64, AIR_SCRATCH);
    t->task.fault = &t->fault;
    cpu_region_run(t->call, &t->task);
    free(t->task.scratch);
    return NULL;
}

static void
run_threads(region_case *c, const cpu_region *r, int threads)
{
    air_call call = {.extra = r};
    size_t bytes = cpu_region_workspace(&call, threads);
    void *workspace =
        bytes > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    pthread_barrier_t wait;
    pthread_t ids[16];
    thread_arg args[16];
    pthread_barrier_init(&wait, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        args[i] = (thread_arg){&call,
                               {.id = i,
                                .count = threads,
                                .slots = c->work,
                                .workspace = workspace,
                                .barrier = barrier,
                                .pool = &wait},
                               {.raised = false}};
        if (i > 0)
            pthread_create(&ids[i], NULL, thread_main, &args[i]);
    }
    thread_main(&args[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    c->raised = false;
    for (int i = 0; i < threads; i++)
        c->raised |= args[i].fault.raised;
    pthread_barrier_destroy(&wait);
    free(workspace);
}

bool
case_run(region_case *c, const air_code *code, const char *isa, int threads)
{
    cpu_region *r;
    for (int b = 0; b < c->rg.nbufs; b++)
        if (!c->bufs[b].scratch)
            memcpy(c->work[b], c->data[b],
                   (size_t)c->count[b] * dtype_size(c->bufs[b].dtype));
    if (cpu_region_make(&base_libc_alloc, &c->rg, code, isa, &r) != AIR_OK)
        return test_fail(__FILE__, __LINE__, "%s", air_last_error()->message);
    int native = 0;
    for (int p = 0; code != NULL && p < c->rg.nphases; p++)
        native += code->offset[p] >= 0;
    run_threads(c, r, threads);
    bool used = CHECK_INT(cpu_region_native(r), native);
    cpu_region_free(r);
    return used;
}

/* ---- looking at results ---- */

static double
get(const void *data, int dtype, int64_t i)
{
    switch (dtype) {
    case AIR_F32: return (double)((const float *)data)[i];
    case AIR_F64: return ((const double *)data)[i];
    case AIR_BF16: return (double)tile_of_bf16(((const uint16_t *)data)[i]);
    case AIR_F16: return (double)tile_of_f16(((const uint16_t *)data)[i]);
    case AIR_I8: return ((const int8_t *)data)[i];
    case AIR_U8: return ((const uint8_t *)data)[i];
    case AIR_I16: return ((const int16_t *)data)[i];
    case AIR_I32: return ((const int32_t *)data)[i];
    case AIR_I64: return (double)((const int64_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

double
case_get(const region_case *c, int buf, int64_t i)
{
    return get(c->work[buf], c->bufs[buf].dtype, c->first[buf] + i);
}

bool
case_equal(const region_case *c, void *const *other)
{
    for (int b = 0; b < c->rg.nbufs; b++) {
        size_t size = dtype_size(c->bufs[b].dtype);
        for (int64_t i = 0; i < c->count[b]; i++) {
            size_t at = (size_t)i * size;
            if (memcmp((char *)c->work[b] + at, (char *)other[b] + at, size) ==
                0)
                continue;
            double x = get(c->work[b], c->bufs[b].dtype, i);
            double y = get(other[b], c->bufs[b].dtype, i);
            if (isnan(x) && isnan(y))
                continue;
            return test_fail(__FILE__, __LINE__,
                             "buffer %d element %lld: %.9g, expected %.9g", b,
                             (long long)i, x, y);
        }
    }
    return true;
}

void
case_save(const region_case *c, void **out)
{
    for (int b = 0; b < c->rg.nbufs; b++) {
        size_t bytes = (size_t)c->count[b] * dtype_size(c->bufs[b].dtype);
        out[b] = bytes > 0 ? malloc(bytes) : NULL;
        if (bytes > 0)
            memcpy(out[b], c->work[b], bytes);
    }
}

void
case_drop(const region_case *c, void **saved)
{
    for (int b = 0; b < c->rg.nbufs; b++)
        free(saved[b]);
}

bool
case_has_code(void)
{
#ifdef __SANITIZE_THREAD__
    test_skip("one thread, in code that TSan does not see");
    return false;
#endif
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
        return true;
#endif
    test_skip("no AVX2");
    return false;
}
