/* cuda_plan.c: how the threads of a GPU share a region: elements of a thread,
 * threads of a row, blocks of a row, what is kept where. */
#include <stdlib.h>
#include <string.h>

#include "codegen/cuda_write.h"

#define ROW_BLOCK 128 /* threads of a block of short rows */
#define LAUNCH_BYTES \
    ((int64_t)128 * 1024) /* one block moves in a launch's time */
#define KEPT_BYTES 128    /* of a thread, in registers */
#define MAX_ITER   8
/* Blocks per multiprocessor: all that there are where each has several loads
 * under way, else as many as go round a few times. */
#define WAVES       4096
#define BUSY        512 /* threads of a processor that wait for memory at once */
#define SHORT_WAVES 16
/* Sums over rows: what a processor reads at once, and what a block's take. */
#define SUM_READ  ((int64_t)64 * 1024)
#define SUM_BYTES ((int64_t)48 * 1024)

int64_t
cuda_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t
div_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int64_t
at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

static int64_t
at_least(int64_t n, int64_t least)
{
    return n > least ? n : least;
}

static int
power_of_two(int64_t n, int most)
{
    int p = 1;
    while (p < most && p < n)
        p *= 2;
    return p;
}

static size_t
take(size_t *total, int64_t bytes)
{
    size_t at = *total;
    *total += (size_t)cuda_round_up(bytes, 16);
    return at;
}

/* ---- axes ---- */

static void
plan_axes(cuda_writer *w)
{
    const air_region *rg = w->rg;
    int kept = rg->walk == AIR_WALK_OUTER ? rg->rank - 2 : rg->rank - 1;
    w->vector = air_region_axis(rg);
    if (rg->walk == AIR_WALK_MAP)
        kept = w->vector;
    w->cols = rg->dims[w->vector];
    w->folded = rg->walk == AIR_WALK_OUTER ? rg->dims[rg->rank - 2] : 1;
    w->rows = 1;
    w->turn = -1;
    for (int i = 0; i < kept; i++) {
        w->rows *= rg->dims[i];
        if (rg->dims[i] != 1)
            w->axes[w->naxes++] = i;
    }
}

/* ---- MAP, some buffers dense along another axis ---- */

static bool
is_turned_to(const cuda_writer *w, int buf, int axis)
{
    const air_rg_buf *from = &w->rg->bufs[buf];
    return !from->scratch && w->bufs[buf].inner != 0 && !w->bufs[buf].moved &&
           from->strides[axis] == 1;
}

/* The axis along which the most bytes lie dense that are not along the vector
 * axis; both have to be long enough for squares. */
static int
find_turn(const cuda_writer *w)
{
    int axis = -1, most = 0;
    for (int i = 0; i < w->rg->rank && w->cols >= CUDA_TILE / 4; i++) {
        int bytes = 0;
        for (int b = 0; b < w->rg->nbufs; b++)
            bytes += is_turned_to(w, b, i) ? w->bufs[b].bytes : 0;
        if (bytes > most && w->rg->dims[i] >= CUDA_TILE / 4) {
            most = bytes;
            axis = i;
        }
    }
    return axis;
}

static void
drop_axis(cuda_writer *w, int axis)
{
    int n = 0;
    for (int k = 0; k < w->naxes; k++)
        if (w->axes[k] != axis)
            w->axes[n++] = w->axes[k];
    w->naxes = n;
    w->rows /= w->rg->dims[axis];
}

/* Squares of turned buffers are read dense, and written so, by way of shared
 * memory. */
static void
plan_turn(cuda_writer *w)
{
    const int axis = w->rg->walk == AIR_WALK_MAP ? find_turn(w) : -1;
    size_t bytes = 0;
    for (int b = 0; b < w->rg->nbufs && axis >= 0; b++)
        if (is_turned_to(w, b, axis))
            bytes += (size_t)(CUDA_TILE * CUDA_TILE_PITCH * w->bufs[b].bytes);
    if (axis < 0 || (int64_t)bytes > w->most_shared / 2)
        return;
    w->turn = axis;
    drop_axis(w, axis);
    for (int b = 0; b < w->rg->nbufs; b++)
        if (is_turned_to(w, b, axis)) {
            w->bufs[b].home = CUDA_TURNED;
            w->bufs[b].at =
                take(&w->shared,
                     (int64_t)CUDA_TILE * CUDA_TILE_PITCH * w->bufs[b].bytes);
        }
}

/* Offsets and counts that 32 bits hold, with room to step past the end. */
static bool
is_wide(const air_region *rg)
{
    const int64_t most = (int64_t)1 << 30;
    int64_t points = 1;
    for (int i = 0; i < rg->rank; i++)
        points = rg->dims[i] > most / (points > 0 ? points : 1)
                     ? most
                     : points * rg->dims[i];
    bool wide = points >= most;
    for (int b = 0; b < rg->nbufs && !wide; b++) {
        int64_t reach = 0;
        for (int i = 0; i < rg->rank; i++)
            if (rg->dims[i] > 1)
                reach += llabs(rg->bufs[b].strides[i]) * (rg->dims[i] - 1);
        wide = reach >= most;
    }
    return wide;
}

static void
plan_buffers(cuda_writer *w)
{
    const air_region *rg = w->rg;
    for (int b = 0; b < rg->nbufs; b++) {
        const air_rg_buf *from = &rg->bufs[b];
        cuda_buf *buf = &w->bufs[b];
        buf->bytes = (uint8_t)air_dtype_bytes((air_dtype)from->dtype);
        buf->inner = from->scratch ? 1 : from->strides[w->vector];
        buf->moved = buf->inner == 1;
        for (int i = 0; i < rg->rank && !from->scratch; i++)
            if (from->strides[i] != 0 && i != w->vector)
                buf->outer |= (uint16_t)(1u << i);
    }
}

/* Has it an element for each point, not one for several rows? */
static bool
is_whole(const cuda_writer *w, int buf)
{
    bool whole = !w->rg->bufs[buf].scratch;
    for (int i = 0; i < w->rg->rank; i++)
        whole =
            whole && (w->rg->dims[i] == 1 || w->rg->bufs[buf].strides[i] != 0);
    return whole;
}

/* Elements of 16 bytes of the widest whole buffer that is walked as it lies: a
 * warp's store of more would touch half of each sector at a time. Fewer where
 * rows are shorter. */
static void
plan_vector(cuda_writer *w)
{
    int whole = 0, most = 0;
    for (int b = 0; b < w->rg->nbufs; b++) {
        const cuda_buf *buf = &w->bufs[b];
        if ((!buf->moved && buf->home != CUDA_TURNED) || w->rg->bufs[b].scratch)
            continue;
        most = buf->bytes > most ? buf->bytes : most;
        if (is_whole(w, b) && buf->bytes > whole)
            whole = buf->bytes;
    }
    whole = whole == 0 ? most : whole;
    w->V = most == 0 ? 1 : 16 / whole;
    while (w->V > 8 || w->V * most > 32)
        w->V /= 2;
    w->V = power_of_two(w->cols, w->V);
    if (w->turn >= 0)
        w->V = power_of_two(w->rg->dims[w->turn], w->V);
}

/* ---- scalars ---- */

static bool
plan_scalars(cuda_writer *w)
{
    const air_region *rg = w->rg;
    for (int s = 0; s < rg->nscalars; s++)
        w->made[s] = -1;
    for (int p = 0; p < rg->nphases; p++)
        for (int i = rg->phases[p].begin; i < rg->phases[p].end; i++) {
            const air_rg_node *n = &rg->nodes[i];
            const int16_t operands[3] = {n->a, n->b, n->c};
            for (int k = 0; k < 3; k++)
                if (operands[k] >= 0 && operands[k] < rg->phases[p].begin &&
                    rg->nodes[operands[k]].op != AIR_RG_CONST)
                    w->reason = "a phase reads a node of another";
            if (n->op != AIR_RG_REDUCE && n->op != AIR_RG_SET)
                continue;
            w->made[n->buf] = (int8_t)p;
            w->lane[n->buf] = n->lane;
            w->moment[n->buf] =
                n->op == AIR_RG_REDUCE && n->reduce == AIR_REDUCE_MOMENT;
        }
    return w->reason == NULL;
}

/* ---- MAP ---- */

static int
loaded_bytes(const cuda_writer *w)
{
    int bytes = 0;
    for (int b = 0; b < w->rg->nbufs; b++)
        if (cuda_has(w, 0, AIR_RG_LOAD, b) && w->bufs[b].inner != 0)
            bytes += w->bufs[b].bytes * w->V;
    return bytes;
}

static void
plan_map(cuda_writer *w)
{
    int64_t vectors = w->rows * div_up(w->cols, w->V);
    int bytes = loaded_bytes(w);
    w->T = CUDA_TILE_BLOCK;
    if (w->turn >= 0) {
        w->U = 1;
        w->grid = w->rows * div_up(w->cols, CUDA_TILE) *
                  div_up(w->rg->dims[w->turn], CUDA_TILE);
        return;
    }
    w->U = bytes >= 64 ? 1 : bytes >= 32 ? 2 : 4;
    while (w->U > 1 && vectors < (int64_t)w->sms * 8 * w->T * w->U)
        w->U /= 2;
    while (w->T > 64 && vectors < (int64_t)w->sms * w->T)
        w->T /= 2;
    w->grid =
        at_most(div_up(vectors, (int64_t)w->T * w->U), (int64_t)w->sms * WAVES);
}

/* ---- INNER ---- */

static bool
is_row_phase(const cuda_writer *w, int phase)
{
    return w->rg->phases[phase].kind == AIR_PHASE_ROW;
}

bool
cuda_is_sum(const cuda_writer *w, int buf)
{
    return w->rg->bufs[buf].scratch == AIR_RG_SUMS;
}

bool
cuda_has_sums(const cuda_writer *w)
{
    for (int b = 0; b < w->rg->nbufs; b++)
        if (cuda_is_sum(w, b))
            return true;
    return false;
}

/* Buffers that live from phase to phase: scratch, and what is read again. */
static bool
is_kept(const cuda_writer *w, int buf)
{
    int uses = 0;
    if (cuda_is_sum(w, buf))
        return false;
    for (int p = 0; p < w->rg->nphases; p++) {
        bool loads = cuda_has(w, p, AIR_RG_LOAD, buf);
        bool stores = cuda_has(w, p, AIR_RG_STORE, buf);
        if ((loads || stores) && !is_row_phase(w, p))
            return false;
        uses += loads || (stores && uses == 0);
    }
    return w->rg->bufs[buf].scratch || (uses > 1 && w->bufs[buf].inner != 0);
}

/* Is it read element by element at all? */
static bool
is_streamed(const cuda_writer *w, int buf)
{
    bool loads = false;
    for (int p = 0; p < w->rg->nphases; p++) {
        if (cuda_has(w, p, AIR_RG_LOAD, buf) && !is_row_phase(w, p))
            return false;
        loads |= cuda_has(w, p, AIR_RG_LOAD, buf);
    }
    return loads && is_whole(w, buf) && w->bufs[buf].inner != 0;
}

static bool
is_scratch(const cuda_writer *w, int buf)
{
    return w->rg->bufs[buf].scratch == AIR_RG_ROW;
}

static bool
is_either(const cuda_writer *w, int buf)
{
    return is_kept(w, buf) || is_streamed(w, buf);
}

static int
bytes_of(const cuda_writer *w, bool (*which)(const cuda_writer *, int))
{
    int bytes = 0;
    for (int b = 0; b < w->rg->nbufs; b++)
        if (which(w, b))
            bytes += w->bufs[b].bytes * w->V;
    return bytes;
}

static void
keep_in_registers(cuda_writer *w, bool (*which)(const cuda_writer *, int))
{
    for (int b = 0; b < w->rg->nbufs; b++)
        if (which(w, b))
            w->bufs[b].home = CUDA_REGISTERS;
}

static int64_t
row_bytes(const cuda_writer *w, int buf)
{
    return cuda_round_up(w->cols, 16) * w->bufs[buf].bytes;
}

/* Rows of scratch: of the block in shared memory, else of each of `count`
 * blocks (or rows) in the workspace. */
static void
keep_rows(cuda_writer *w, int64_t count, bool shared)
{
    for (int b = 0; b < w->rg->nbufs; b++) {
        cuda_buf *buf = &w->bufs[b];
        if (!is_scratch(w, b))
            continue;
        int64_t bytes = row_bytes(w, b);
        buf->home = CUDA_WORKSPACE;
        if (shared && (int64_t)w->shared + bytes <= w->most_shared) {
            buf->home = CUDA_SHARED;
            buf->at = take(&w->shared, bytes);
        } else {
            buf->at = take(&w->workspace, count * bytes);
        }
    }
}

static int64_t
read_bytes(const cuda_writer *w)
{
    int64_t bytes = 0;
    for (int b = 0; b < w->rg->nbufs; b++)
        if (!w->rg->bufs[b].scratch && w->bufs[b].inner != 0)
            bytes += w->cols * w->bufs[b].bytes;
    return bytes;
}

static int
row_phases(const cuda_writer *w)
{
    int count = 0;
    for (int p = 0; p < w->rg->nphases; p++)
        count += w->rg->phases[p].kind == AIR_PHASE_ROW;
    return count;
}

static bool
has_moments(const cuda_writer *w)
{
    for (int s = 0; s < w->rg->nscalars; s++)
        if (w->moment[s])
            return true;
    return false;
}

/* Few rows so long that one block each would take longer than the launches
 * that several need. */
static bool
plan_parts(cuda_writer *w, int64_t vectors)
{
    const int T = CUDA_FOLD_BLOCK;
    if (has_moments(w) || w->rows * 2 > w->sms ||
        read_bytes(w) < LAUNCH_BYTES * 2 * row_phases(w))
        return false;
    w->parts = at_most(div_up((int64_t)w->sms * 4, w->rows),
                       div_up(vectors, (int64_t)T * 4));
    if (w->parts < 2)
        return false;
    w->T = w->G = T;
    w->grid = w->rows * w->parts;
    for (int s = 0; s < w->rg->nscalars; s++) {
        w->scalar_at[s] = take(&w->workspace, w->rows * 8);
        w->part_at[s] = take(&w->workspace, w->rows * w->parts * 8);
    }
    keep_rows(w, w->rows, false);
    return true;
}

/* Is the row axis the one that lies dense, and the folded one not? */
static bool
is_turned(const cuda_writer *w)
{
    bool turned = false;
    for (int b = 0; b < w->rg->nbufs; b++) {
        const air_rg_buf *buf = &w->rg->bufs[b];
        if (buf->scratch || w->bufs[b].inner == 0)
            continue;
        if (w->rg->rank < 2 || buf->strides[w->rg->rank - 2] != 1)
            return false;
        turned = true;
    }
    return turned && w->cols > 1 && bytes_of(w, is_kept) == 0;
}

/* As many vectors at once as KEPT_BYTES hold of what is streamed. */
static void
plan_loop(cuda_writer *w)
{
    int bytes = bytes_of(w, is_streamed);
    w->loop = true;
    w->iter = 4;
    while (w->iter > 1 && bytes * w->iter > KEPT_BYTES / 2)
        w->iter /= 2;
    keep_in_registers(w, is_streamed);
}

/* Is it in registers while a thread goes from a phase to the next one? */
static bool
is_live(const cuda_writer *w, int buf, int phase)
{
    bool before = false, after = false;
    for (int p = 0; p < w->rg->nphases; p++) {
        bool used = cuda_has(w, p, AIR_RG_LOAD, buf) ||
                    cuda_has(w, p, AIR_RG_STORE, buf);
        before |= used && p <= phase;
        after |= p > phase && cuda_has(w, p, AIR_RG_LOAD, buf);
    }
    return before && after;
}

/* Most bytes that are live at once: what a phase reads last leaves room for
 * what it writes. */
static int
live_bytes(const cuda_writer *w)
{
    int most = 0;
    for (int p = 0; p < w->rg->nphases; p++) {
        int bytes = 0;
        for (int b = 0; b < w->rg->nbufs; b++)
            if (is_kept(w, b) && is_live(w, b, p))
                bytes += w->bufs[b].bytes * w->V;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* More for each thread leaves a processor too few of them (4096 rows of 8192,
 * norm of a sum, H200: 70 us with twice as much, 68 so; layer norm 52 and 50;
 * 1024 rows 6.1 and 5.3); where a block leaves sums over its rows, fewer rows
 * of it are more to be read again. */
static bool
fits_registers(const cuda_writer *w, int bytes)
{
    const int times = cuda_has_sums(w) && w->T <= 512 ? 2 : 1;
    return w->iter <= MAX_ITER && bytes * w->iter <= times * KEPT_BYTES;
}

/* Threads of a row, up to a warp, or more where rows are too few for all
 * processors: each is to have BUSY. Two warps of a short row are no gain (1024
 * rows of 768, H200: 3.2 us for 2.8). */
static int
row_threads(const cuda_writer *w, int64_t vectors)
{
    int most = 32;
    if (cuda_has_sums(w)) /* each block leaves rows of its own */
        return power_of_two(vectors, w->rows < w->sms ? 256 : 32);
    while (most < 256 && w->rows * most * 2 <= (int64_t)w->sms * BUSY)
        most *= 2;
    if (most == 64 && vectors < 256)
        most = 32;
    return power_of_two(vectors, most);
}

/* The fewest threads that hold a row between phases: part of a warp, a warp,
 * a block. */
static bool
plan_held(cuda_writer *w, int64_t vectors, int bytes)
{
    int least = row_threads(w, vectors);
    for (int G = least; G <= CUDA_MAX_BLOCK; G *= 2) {
        w->G = G;
        w->T = G <= 32 ? ROW_BLOCK : G;
        w->iter = (int)at_most(div_up(vectors, G), MAX_ITER + 1);
        w->iter = w->iter < 1 ? 1 : w->iter;
        if (fits_registers(w, bytes))
            return true;
    }
    return false;
}

/* Rows too long for a block: several share one, whose folds meet across the
 * blocks. Blocks of few threads, so that several are resident: one loads while
 * the others store. */
static bool
plan_cluster(cuda_writer *w, int64_t vectors, int bytes)
{
    const int T = CUDA_FOLD_BLOCK;
    for (int C = 2; w->clusters && C <= CUDA_MAX_CLUSTER; C *= 2) {
        const int64_t iter = div_up(vectors, (int64_t)T * C);
        if (iter > 2 * MAX_ITER || bytes * iter > 2 * KEPT_BYTES)
            continue;
        w->T = T;
        w->C = C;
        w->G = T * C;
        w->iter = (int)iter;
        return true;
    }
    return false;
}

static void
plan_rows(cuda_writer *w, int64_t vectors)
{
    int kept = live_bytes(w), all = bytes_of(w, is_streamed);
    all = all > kept ? all : kept;
    bool everything = plan_held(w, vectors, all);
    if (everything || plan_held(w, vectors, kept)) {
        keep_in_registers(w, everything ? is_either : is_kept);
        w->exact = w->cols > 0 &&
                   w->cols % ((int64_t)w->V * w->G * w->iter) == 0 &&
                   w->rows % (w->T / w->G) == 0;
        return;
    }
    if (kept > 0 && !cuda_has_sums(w) && plan_cluster(w, vectors, all)) {
        keep_in_registers(w, is_either);
        w->exact = w->cols % ((int64_t)w->V * w->G * w->iter) == 0;
        return;
    }
    w->T = w->G = power_of_two(vectors, 512);
    plan_loop(w);
}

/* Each group of threads that walk a row adds to rows of its own, in shared
 * memory where they fit; a block leaves one of each. */
static void
keep_sums(cuda_writer *w)
{
    int64_t all = 0;
    for (int b = 0; b < w->rg->nbufs; b++)
        all += cuda_is_sum(w, b) ? row_bytes(w, b) : 0;
    if (all * (w->T / w->G) > SUM_BYTES && w->T > w->G)
        w->T = w->G < 32 ? 32 : w->G;
    for (int b = 0; b < w->rg->nbufs; b++) {
        const int64_t own = (w->T / w->G) * row_bytes(w, b);
        cuda_buf *buf = &w->bufs[b];
        if (!cuda_is_sum(w, b))
            continue;
        buf->home = CUDA_WORKSPACE;
        if (w->T > w->G || (int64_t)w->shared + own <= SUM_BYTES) {
            buf->home = CUDA_SHARED;
            buf->at = take(&w->shared, own);
        }
    }
}

/* Blocks that stay: what each leaves is read again. */
static void
plan_sums(cuda_writer *w)
{
    const int64_t rows = w->T / w->G, once = rows * (read_bytes(w) + 1);
    const int64_t least = at_least(512 / w->T, 1);
    const int64_t blocks = at_most(at_least(div_up(SUM_READ, once), least),
                                   at_least(1536 / w->T, 1));
    w->grid = at_most(div_up(w->rows, rows), (int64_t)w->sms * blocks);
    for (int b = 0; b < w->rg->nbufs; b++)
        if (cuda_is_sum(w, b))
            w->bufs[b].sums_at = take(&w->workspace, w->grid * row_bytes(w, b));
}

static void
plan_inner(cuda_writer *w)
{
    const bool sums = cuda_has_sums(w);
    int64_t vectors = div_up(w->cols, w->V);
    w->parts = w->C = 1;
    if (!sums && is_turned(w)) {
        w->G = 1;
        w->T = ROW_BLOCK;
        plan_loop(w);
    } else if (!sums && plan_parts(w, vectors)) {
        plan_loop(w);
        return;
    } else {
        plan_rows(w, vectors);
    }
    int64_t waves = w->loop || w->iter > 1 ? WAVES : SHORT_WAVES;
    w->grid = w->C > 1 ? at_most(w->rows, w->sms * waves) * w->C
                       : at_most(div_up(w->rows, w->T / w->G), w->sms * waves);
    if (sums) {
        keep_sums(w);
        plan_sums(w);
    }
    if (w->loop && bytes_of(w, is_scratch) > 0) {
        if (!sums)
            w->grid = at_most(w->grid, (int64_t)w->sms * SHORT_WAVES);
        keep_rows(w, w->grid, true);
    }
}

/* ---- OUTER ---- */

static void
plan_outer(cuda_writer *w)
{
    int64_t vectors = div_up(w->cols, w->V);
    w->T = 256;
    w->G = power_of_two(vectors, 32);
    int64_t blocks = w->rows * div_up(vectors, w->G);
    int Y = w->T / w->G;
    /* On a processor side by side: a moment takes four registers a column. */
    const int64_t side = has_moments(w) ? 3 : 4;
    w->parts = 1;
    if (blocks > 0 && blocks < w->sms)
        w->parts = at_most(div_up(w->sms * side, blocks),
                           div_up(w->folded, (int64_t)Y * 8));
    w->parts = w->parts < 1 ? 1 : w->parts;
    plan_loop(w);
    for (int b = 0; b < w->rg->nbufs; b++)
        if (cuda_has(w, 1, AIR_RG_LOAD, b))
            w->bufs[b].home = CUDA_MEMORY;
    w->grid = blocks * w->parts;
    for (int s = 0; s < w->rg->nscalars && w->parts > 1; s++)
        w->part_at[s] = take(&w->workspace, w->rows * w->parts * w->cols *
                                                (w->moment[s] ? 16 : 8));
}

bool
cuda_plan(cuda_writer *w)
{
    plan_axes(w);
    if (!plan_scalars(w))
        return false;
    w->wide = is_wide(w->rg);
    plan_buffers(w);
    plan_turn(w);
    plan_vector(w);
    switch (w->rg->walk) {
    case AIR_WALK_MAP: plan_map(w); break;
    case AIR_WALK_INNER: plan_inner(w); break;
    default: plan_outer(w);
    }
    for (int b = 0; b < w->rg->nbufs; b++)
        if (w->rg->walk != AIR_WALK_INNER && w->rg->bufs[b].scratch)
            w->reason = "rows of scratch outside of rows";
    return w->reason == NULL;
}
