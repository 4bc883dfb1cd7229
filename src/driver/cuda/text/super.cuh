// super.cuh: one kernel that stays on the GPU for a whole run of steps.
//
// Its blocks, all of them on the GPU at once, run one phase after another; a
// phase is the text of a launch. What a launch waits for in `await` is here
// every block's arrival, counted in memory: phases between two waits depend on
// nothing that was written since the first. A phase may read what no phase of
// the kernel writes before it awaits, so that weights are on their way while
// the last blocks arrive.
//
// A phase of little work is block 0's alone: those that follow each other wait
// for nothing but its threads.
//
// What a phase wrote is visible to one that waits for all memory. Where all that it
// needs of others are words that show by themselves that they are new (cross.cuh),
// it waits for the count only: nobody then waits until stores have arrived.
//
// A block that waits longer than `patience` gives up, and with it the kernel:
// each block leaves, the last one leaves the counters at 0, and the fault says where.
struct super_state { // in memory of the GPU; 0 at first
    u32 arrived, left; // 0 between launches
    u32 launches;      // that are over
};

struct super_phase {
    u32 kind, first; // case, parameters
    u32 waits;       // SUPER_...
    u32 alone;       // 1: of block 0
    u32 asks;        // 1: its weights come through the ring
};

// With the phase before it; for all memory; for the count only.
enum { SUPER_GOES, SUPER_MEMORY, SUPER_COUNT };

static const int SUPER_PARAMETERS = 32; // of a phase, at most: a warp
static const int SUPER_HEAD = 3; // before those of phases
static const int SUPER_THREADS = 256;

// A parameter becomes what the phase declares.
struct super_value {
    u64 bits;
    template <class T>
    FN
    operator T *() const
    {
        T *p = (T *)bits;
        __builtin_assume(__isGlobal(p));
        return p;
    }
    FN operator s64() const { return (s64)bits; }
};

static __shared__ struct {
    super_state *state;
    fault *bad;
    u64 patience; // ns, 0: endless
    // Of the phase that is computed, and of the one whose weights are asked for.
    u64 parameters[2][SUPER_PARAMETERS];
    u64 after[SUPER_PARAMETERS]; // of the next phase
    super_phase next, now;
    u32 counted; // arrivals of all phases so far
    u32 goal;    // arrivals; 0: nothing to wait for
    u32 phase;
    u32 launch; // from 1 on
    // By warp, of text/split.cuh: a mask, and what it hides.
    const void *hinted[8];
    u32 hints[8];
    bool stuck;
    struct {
        u32 x; // blocks of the phase: its `gridDim`
    } grid;
} super_block;

// The threads that compute. A warp behind them asks for weights.
FN void
super_sync_all()
{
    asm volatile("bar.sync %0, %1;" ::"n"(2), "n"(SUPER_THREADS) : "memory");
}

FN bool
super_asks()
{
    return threadIdx.x >= SUPER_THREADS;
}

// Registers that warps which ask do not need go to those that compute. All of
// the four warps that share them have to say so.
FN void
super_give_registers()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
#endif
}

FN void
super_take_registers()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
#endif
}

// Seldom: not in each loop that waits.
static __device__ __noinline__ void
super_give_up(u64 size)
{
    super_block.stuck = true;
    if (atomicCAS(&super_block.bad->raised, 0, 2) != 0)
        return;
    super_block.bad->index = super_block.phase;
    super_block.bad->size = size;
    __threadfence_system();
    *(volatile int *)&super_block.bad->raised = 3;
}

// Looks at what others write.
struct super_turns {
    u64 since;
    u32 count;

    FN super_turns() : since(0), count(0) {}

    FN bool
    is_late()
    {
        if (++count % 256 != 0 || super_block.patience == 0)
            return false;
        const u64 now = nanoseconds();
        if (since == 0)
            since = now;
        return now - since > super_block.patience;
    }

    // Is another look due? good: what was seen is new.
    FN bool
    again(bool good)
    {
        if (good)
            return false;
        if (!is_late())
            return true;
        super_give_up(0);
        return false;
    }
};

// Of this launch, in the low half of a word.
FN u32
super_tag()
{
    return super_block.launch & 0xffff;
}

// Of this phase of this launch.
FN u32
super_mark()
{
    return super_block.launch << 12 | (super_block.phase & 0xfff);
}

FN void
super_poll(u32 goal)
{
    const u32 *p = &super_block.state->arrived;
    const bool memory = super_block.now.waits == SUPER_MEMORY;
    super_turns turns;
    for (;;) {
        const u32 arrived = memory ? counted(p) : look(p);
        if ((int)(arrived - goal) >= 0)
            return;
        if (turns.is_late())
            return super_give_up(arrived);
    }
}

// All phases since the last wait are complete, and what they wrote is visible, if
// the phase waits for that.
FN void
await()
{
    const u32 goal = super_block.goal;
    if (goal == 0)
        return;
    if (threadIdx.x == 0)
        super_poll(goal);
    super_sync_all();
}

// By all blocks, as others wait for each of them.
FN bool
stores_shared()
{
    return threadIdx.x % super_block.grid.x == blockIdx.x;
}

FN void
release()
{
}

// By a warp: parameters of the next phase. They come from memory that is seldom
// read, while others wait.
FN void
super_look(const super_phase &next, const u64 *v)
{
    const int lane = threadIdx.x % SUPER_PARAMETERS;
    super_block.after[lane] = v[next.first + lane];
    if (lane == 0)
        super_block.next = next;
}

// Before a barrier of the block.
FN void
super_begin(const super_phase &first, const u64 *v)
{
    if (threadIdx.x < SUPER_PARAMETERS)
        super_look(first, v + SUPER_HEAD);
    if (threadIdx.x == 0) {
        super_block.state = (super_state *)v[0];
        super_block.bad = (fault *)v[1];
        super_block.patience = v[2];
        super_block.counted = 0;
        super_block.launch = peek(&super_block.state->launches) + 1;
        super_block.stuck = false;
    }
    if (threadIdx.x < 8)
        super_block.hinted[threadIdx.x] = nullptr;
}

// Between phases: shared memory is free again, and parameters are those of
// phase i. Little of it is in registers, which phases need. False: the kernel
// gives up. next: phase i + 1.
FN bool
super_next(u32 i, const super_phase &next, const u64 *v)
{
    super_sync_all();
    if (super_block.stuck)
        return false;
    // At once, as others wait for it; not by the warp that polls: it takes its
    // time.
    if (super_block.next.waits && threadIdx.x == 32) {
        u32 *p = &super_block.state->arrived;
        if (super_block.next.waits == SUPER_MEMORY)
            count_up(p);
        else
            count_up_only(p);
    }
    if (threadIdx.x < SUPER_PARAMETERS)
        super_block.parameters[0][threadIdx.x] = super_block.after[threadIdx.x];
    if (threadIdx.x == 0) {
        const super_phase e = super_block.next;
        super_block.now = e;
        super_block.counted += e.waits ? gridDim.x : 0;
        super_block.goal = e.waits ? super_block.counted : 0;
        super_block.phase = i;
        super_block.grid.x = e.alone ? 1 : gridDim.x;
    }
    super_sync_all();
    if (threadIdx.x / 32 == 2)
        super_look(next, v + SUPER_HEAD);
    return true;
}

FN bool
super_is_mine()
{
    return !super_block.now.alone || blockIdx.x == 0;
}

FN super_value
super_get(int i)
{
    return super_value{super_block.parameters[super_asks()][i]};
}

// For the warp that asks: this lane's parameter of the next phase is there.
FN void
super_ask(u64 parameter)
{
    __syncwarp();
    super_block.parameters[1][threadIdx.x % SUPER_PARAMETERS] = parameter;
    __syncwarp();
}

FN void
super_end()
{
    super_state *s = super_block.state;
    super_sync_all();
    if (threadIdx.x != 0)
        return;
    __threadfence();
    if (atomicAdd(&s->left, 1u) != gridDim.x - 1)
        return;
    __threadfence();
    s->arrived = s->left = 0;
    s->launches = super_block.launch;
}

// A bundle: phases that need nothing of each other, a block each. What a phase
// takes for its grid is that one block.
struct super_first {
    u32 x, y, z;
};

FN super_first
super_only()
{
    return super_first{0, 0, 0};
}

FN void
super_apart(u64 parameter)
{
    if (threadIdx.x < SUPER_PARAMETERS)
        super_block.parameters[0][threadIdx.x] = parameter;
    if (threadIdx.x == 0)
        super_block.grid.x = 1;
    super_sync_all();
}

// Folds of regions: of a block of 256 threads a phase may use the first ones.
template <int THREADS>
FN void
super_sync()
{
    sync_some<THREADS>();
}
