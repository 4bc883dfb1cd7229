/* region_join.c: the region behind a product or a convolution runs on each line
 * of the result while that is in the cache: memory sees the region's results
 * only. Element e of the iteration space is element e of the result. */
#include "driver/cpu/region/region_join.h"
#include "driver/cpu/product/gemm.h"

/* ---- running ------------------------------------------------------------- */

static void
go_to(cpu_join_run *j, int64_t row)
{
    const int axes = j->run.r->rank - 1;
    if (j->row >= 0 && row == j->row + 1)
        region_run_next(&j->run, axes);
    else if (row != j->row || axes == 0)
        region_run_seek(&j->run, axes, row);
    j->row = row;
}

/* gemm_lines.run: n elements of the result from element `at` on. */
static void
run_line(void *arg, const void *line, int64_t at, int64_t n)
{
    cpu_join_run *j = arg;
    const cpu_region *r = j->run.r;
    const int64_t bytes = (int64_t)r->bytes[j->buf];
    union {
        const void *from;
        char *to; /* a region writes to no buffer that it only loads */
    } cast = {line};
    while (n > 0) {
        int64_t col = at % r->cols;
        int64_t count = min64(n, r->cols - col);
        go_to(j, at / r->cols);
        j->run.base[j->buf] = cast.to - col * bytes;
        region_run_span(&j->run, 0, col, count);
        cast.to += count * bytes;
        at += count;
        n -= count;
    }
}

/* Have rows of the result that lie on the region's last axis but one a call of
 * machine code each? */
static bool
runs_by_rows(const cpu_region *r, int64_t col, int64_t n, int64_t at_row,
             int64_t rows, int64_t row)
{
    const region_phase *phase = &r->phases[0];
    return r->rank > 1 && row == r->cols && col + n <= r->cols &&
           at_row % r->dims[r->rank - 2] + rows <= r->dims[r->rank - 2] &&
           phase->fn != NULL && (phase->staged_in | phase->staged_out) == 0;
}

/* gemm_lines.run_rows */
static void
run_rows(void *arg, const void *lines, int64_t step, int64_t at, int64_t n,
         int64_t rows, int64_t row)
{
    cpu_join_run *j = arg;
    const cpu_region *r = j->run.r;
    const int64_t col = at % r->cols;
    void *ptrs[AIR_RG_MAX_BUFS];
    if (!runs_by_rows(r, col, n, at / r->cols, rows, row)) {
        for (int64_t i = 0; i < rows; i++)
            run_line(arg, (const char *)lines + i * step, at + i * row, n);
        return;
    }
    go_to(j, at / r->cols);
    for (int b = 0; b < r->rg->nbufs; b++)
        ptrs[b] = j->run.base[b] + col * j->run.inner[b] * (int64_t)r->bytes[b];
    for (int64_t i = 0; i < rows; i++) {
        union {
            const char *from;
            void *to; /* as in run_line */
        } cast = {(const char *)lines + i * step};
        ptrs[j->buf] = cast.to;
        region_run_code(&j->run, r->phases[0].fn, ptrs, n, j->run.acc, 1);
        for (int b = 0; b < r->rg->nbufs; b++)
            ptrs[b] = (char *)ptrs[b] + j->run.steps[b];
    }
}

static size_t
thread_bytes(const cpu_region *r)
{
    return (r->thread_bytes + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN;
}

size_t
cpu_join_workspace(const void *extra, size_t first, int threads)
{
    const cpu_join *join = extra;
    if (join == NULL)
        return first;
    return (first + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN +
           thread_bytes(join->region) * (size_t)threads;
}

/* Has buffer b element e of the iteration space at place e? */
static bool
is_in_order(const cpu_region *r, int b)
{
    return !r->rg->bufs[b].scratch && region_is_run(r, b, 0);
}

static void
find_beside(cpu_join_run *j)
{
    const cpu_region *r = j->run.r;
    gemm_lines *l = &j->lines;
    for (int b = 0; b < r->rg->nbufs && l->nbeside < GEMM_BESIDE_MAX; b++) {
        const air_rg_buf *buf = &r->rg->bufs[b];
        if (b == j->buf || !is_in_order(r, b))
            continue;
        l->beside[l->nbeside++] =
            (gemm_beside){(const char *)j->task.slots[buf->slot] + buf->offset,
                          (int64_t)r->bytes[b]};
    }
}

/* The thread's scratch is the kernel's: the region's lies in the workspace. */
const gemm_lines *
cpu_join_begin(cpu_join_run *j, const air_call *call, const air_task *task,
               size_t first)
{
    const cpu_join *join = call->extra;
    if (join == NULL)
        return NULL;
    const size_t each = thread_bytes(join->region);
    char *mem = (char *)task->workspace + cpu_join_workspace(join, first, 0);
    j->task = *task;
    j->task.scratch = mem + each * (size_t)task->id;
    j->task.workspace = j->task.scratch; /* where it is larger than scratch */
    j->task.id = 0;
    j->task.count = 1;
    region_run_init(&j->run, join->region, &j->task);
    j->row = -1;
    j->buf = join->buf;
    j->lines = (gemm_lines){
        .run = run_line, .run_rows = run_rows, .arg = j, .keep = join->keep};
    find_beside(j);
    return &j->lines;
}

/* ---- making -------------------------------------------------------------- */

/* Is buffer b read, element after element, and not written? */
static bool
reads_in_order(const cpu_region *r, int b)
{
    const region_phase *phase = &r->phases[0];
    return is_in_order(r, b) && (phase->loads >> b & 1) &&
           !(phase->stores >> b & 1) && !(phase->staged_in >> b & 1);
}

static bool
can_join(const cpu_region *r, const air_call *call, int buf)
{
    const air_tensor *y = &call->outs[0];
    int64_t count = 1;
    for (int i = 0; i < y->rank; i++)
        count *= y->dims[i];
    return r->rg->walk == AIR_WALK_MAP && r->rg->nphases == 1 && !r->blocked &&
           !r->spread && !r->copies && r->rows * r->cols == count &&
           count > 0 && r->rg->bufs[buf].dtype == y->dtype && cpu_is_dense(y) &&
           reads_in_order(r, buf);
}

typedef struct {
    air_kernel kernel;
    cpu_join join;
} joined;

air_status
cpu_join_make(air_device *dev, const air_kernel *first, const air_call *call,
              const air_region *region, const air_code *code, int buf,
              bool keep, const air_kernel **out)
{
    void *ptr;
    cpu_region *r;
    *out = NULL;
    if (first->joins == NULL || !first->joins(call) || call->extra != NULL)
        return AIR_OK;
    AIR_TRY(cpu_region_make_joined(&dev->alloc, region, code,
                                   cpu_isa_base(dev->isa), &r));
    if (!can_join(r, call, buf)) {
        cpu_region_free(r);
        return AIR_OK;
    }
    air_status status = base_new(&dev->alloc, sizeof(joined), &ptr);
    if (status != AIR_OK) {
        cpu_region_free(r);
        return status;
    }
    joined *made = ptr;
    made->kernel = *first;
    made->kernel.region = r;
    made->kernel.join = &made->join;
    made->join = (cpu_join){r, buf, keep};
    *out = &made->kernel;
    return AIR_OK;
}

void
cpu_join_free(air_device *dev, air_kernel *kernel)
{
    base_free(&dev->alloc, kernel, sizeof(joined));
}
