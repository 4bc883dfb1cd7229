// super.cuh: one kernel that stays on the GPU for a whole run of steps.
//
// Its blocks, all of them on the GPU at once, run one phase after another; a
// phase is the text of a launch. What a launch waits for in `await` is here
// every block's arrival, counted in memory: phases between two waits depend on
// nothing that was written since the first. A phase may read what no phase of
// the kernel writes before it awaits, so that weights are on their way while
// the last blocks arrive.
//
// A phase of little work is one block's alone, that of the phases which it needs:
// it waits for nothing but its threads.
//
// What a phase wrote is visible to one that waits for all memory. Where all that it
// needs of others are words that show by themselves that they are there (cross.cuh),
// it waits for the count of most blocks only: nobody then waits until stores have
// arrived.
//
// A block that waits longer than `patience` gives up, and with it the kernel:
// each block leaves, the last one leaves the counters at 0, and the fault says where.
//
// The text is compiled as a whole, or in parts that are linked: SUPER_PART is 0 for the
// kernel, and says else which phases (super_print.c). What lies in shared memory is one for all parts, and
// the same bytes in each kernel: where the launch's own begin is a multiple of 1024.
// A phase of another part preserves only four registers, as the kernel holds little over
// the call: with as many as functions preserve otherwise (28) it would have to write them
// to memory. Registers are not handed on between warps then, which ptxas does only where
// it sees all: the kernel's 168 have to do.
#ifdef SUPER_PART
#define SUPER_IS(part) (SUPER_PART == (part))
#if SUPER_PART == 0
#define SUPER_SHARED __shared__
#else
#define SUPER_SHARED __shared__ extern
#endif
#define SUPER_FUNCTION _Pragma("nv_abi preserve_n_data(4) preserve_n_control(10)") extern "C" __device__
// Of folds of regions, which begin with a barrier: 8 warps' parts.
SUPER_SHARED uint4 super_folds[16];
#define AIR_PARTS(T, name, count)                                         \
    static_assert(sizeof(T) * (count) <= sizeof call::super_folds, ""); \
    T *const name = (T *)call::super_folds
#else
#define SUPER_IS(part) 1
#define SUPER_SHARED static __shared__
#define SUPER_FUNCTION static __device__ __forceinline__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SUPER_TRADES
#endif
#endif

struct super_state { // in memory of the GPU; 0 at first
    u32 arrived, left, cleared, failed; // 0 between launches
    u32 launches; // that are over
    u32 ready;    // words of the next launch are absent
};

struct super_phase {
    u32 kind, first; // case, parameters
    u32 waits;       // SUPER_...
    u32 alone;       // one more than the block whose it is; 0: all have it
    u32 asks;        // 1: its weights come through the ring
    u32 calm;        // 1: weights that have time come one after the other
};

// With the phase before it; for all memory; for the count only.
enum { SUPER_GOES, SUPER_MEMORY, SUPER_COUNT };

static const int SUPER_PARAMETERS = 32; // of a phase, at most: a warp
static const int SUPER_HEAD = 5; // before those of phases
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

// All that a phase is told. It is made while the phase before it runs, so that
// between them it is only copied, a word by a thread.
struct super_step {
    u64 parameters[SUPER_PARAMETERS];
    super_phase of;
    u32 number;
    u32 goal; // arrivals; 0: nothing to wait for
    struct {
        u32 x; // blocks of the phase: its `gridDim`
    } grid;
    struct {
        u32 x; // among them: its `blockIdx`
    } block;
};

static const int SUPER_WORDS = sizeof(super_step) / 8;

struct super_block_state {
    super_state *state;
    fault *bad;
    u64 patience; // ns, 0: endless
    super_step now, after;
    u64 asked[SUPER_PARAMETERS]; // of the phase whose weights are asked for
    u32 counted; // arrivals of all phases so far, `after` with them
    u32 launch; // from 1 on
    u64 words;  // of this launch: how far behind those of even ones
    bool ready; // they are absent
    u32 calm;   // weights of this phase and later ones have time; 0: none have
    u32 asking; // the phase whose weights are asked for
    // By warp, of text/split.cuh: a mask, and what it hides.
    const void *hinted[8];
    u32 hints[8];
    u32 told; // of text/split.cuh: a row has seen nothing
    bool stuck;  // it gives up
    u32 arrived; // what it saw then
};

SUPER_SHARED super_block_state super_block;

// Little may stay in registers from one phase to the next: what ptxas then keeps it spills,
// and each phase would wait for local memory. So threadIdx.x and where things are in shared
// memory are looked for again.
FN u32
super_thread()
{
    u32 i;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
    return i;
}

FN u32
super_place(const void *shared)
{
    u32 at = (u32)__cvta_generic_to_shared(shared);
    asm volatile("" : "+r"(at));
    return at;
}

// A phase that is a part by itself begins with it: that all threads of a warp are there
// ptxas knows from an instruction that needs it. Of it nothing else is left.
FN void
super_together()
{
#ifdef SUPER_PART
    u32 i = super_thread();
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(i));
#endif
}

FN void
super_put(u32 to, u64 v)
{
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(to), "l"(v) : "memory");
}

FN u64
super_take(u32 from)
{
    u64 v;
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(v) : "r"(from) : "memory");
    return v;
}

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
#ifdef SUPER_TRADES
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
#endif
}

FN void
super_take_registers()
{
#ifdef SUPER_TRADES
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
#endif
}

// At the end, not in the loops that wait: a call there spills registers.
FN void
super_tell()
{
    if (atomicCAS(&super_block.bad->raised, 0, 2) != 0)
        return;
    super_block.bad->index = super_block.now.number;
    super_block.bad->size = super_block.arrived;
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
        super_block.stuck = true;
        return false;
    }

    // The same of all lanes of the warp, that stay together: what follows is then
    // known to have them all.
    FN bool
    all_again(bool good)
    {
        return __any_sync(~0u, again(good));
    }
};

// Of this phase of this launch.
FN u32
super_mark()
{
    return super_block.launch << 12 | (super_block.now.number & 0xfff);
}

FN void
super_poll(const u32 *p, u32 goal, bool memory)
{
    super_turns turns;
    for (;;) {
        const u32 arrived = memory ? counted(p) : look(p);
        if ((int)(arrived - goal) >= 0)
            return;
        if (turns.is_late()) {
            super_block.arrived = arrived;
            super_block.stuck = true;
            return;
        }
    }
}

// Blocks that a phase does not wait for whose words show by themselves that they
// are there: the last ones are then waited for word by word.
FN u32
super_slack()
{
    return SUPER_BLOCKS / 4;
}

// All phases since the last wait are complete, and what they wrote is visible, if
// the phase waits for that.
FN void
await()
{
    const u32 goal = super_block.now.goal;
    if (goal == 0)
        return;
    if (threadIdx.x == 0) {
        const bool memory = super_block.now.of.waits == SUPER_MEMORY;
        super_poll(&super_block.state->arrived,
                   memory ? goal : goal - super_slack(), memory);
    }
    super_sync_all();
}

// A phase that looks at each word that it needs waits for nothing else.
FN void
await_memory()
{
    if (super_block.now.of.waits == SUPER_MEMORY)
        await();
}

// By all threads: does a phase begin behind which weights have time?
FN void
super_calm(bool calm)
{
    if (threadIdx.x == 0)
        super_block.calm = calm ? super_block.now.number + 1 : 0;
}

// By all blocks, as others wait for each of them.
FN bool
stores_shared()
{
    const u32 blocks = super_block.now.grid.x, i = threadIdx.x - blockIdx.x;
    if (2 * blocks >= SUPER_THREADS) // no division, that who waits would wait for
        return i == 0 || i == blocks;
    return threadIdx.x % blocks == blockIdx.x;
}

FN void
release()
{
}

// By a warp: what phase i will be told. It comes from memory that is seldom read,
// while others wait.
FN void
super_look(u32 i, const super_phase &next, const u64 *v)
{
    const u32 lane = super_thread() % SUPER_PARAMETERS;
    super_step *to = &super_block.after;
    super_put(super_place(to->parameters) + lane * 8, v[next.first + lane]);
    if (lane != 0)
        return;
    super_block.counted += next.waits ? SUPER_BLOCKS : 0;
    to->of = next;
    to->number = i;
    to->goal = next.waits ? super_block.counted : 0;
    to->grid.x = next.alone ? 1 : SUPER_BLOCKS;
    to->block.x = next.alone ? 0 : blockIdx.x;
}

// Before a barrier of the block.
FN void
super_begin(const super_phase &first, const u64 *v)
{
    if (threadIdx.x == 0) {
        super_block.state = (super_state *)v[0];
        super_block.bad = (fault *)v[1];
        super_block.patience = v[2];
        super_block.counted = super_block.arrived = 0;
        super_block.launch = peek(&super_block.state->launches) + 1;
        super_block.words = super_block.launch & 1 ? v[4] : 0;
        super_block.ready = v[4] == 0 || peek(&super_block.state->ready);
        super_block.stuck = false;
        super_block.calm = 0;
    }
    __syncwarp();
    if (threadIdx.x < SUPER_PARAMETERS)
        super_look(0, first, v + SUPER_HEAD);
    if (threadIdx.x < 8)
        super_block.hinted[threadIdx.x] = nullptr;
}

// Words: 2 * v[4] bytes from v[3] on, of even launches and of odd ones.
static const u32 SUPER_ABSENT = 0xffffffffu;

// By threads `first` to `first` + count of all: those of one half are absent.
FN void
super_clear(u64 at, u64 bytes, u64 first, u64 count)
{
    for (u64 i = first * 16; i < bytes; i += count * 16)
        *(uint4 *)(at + i) =
            make_uint4(SUPER_ABSENT, SUPER_ABSENT, SUPER_ABSENT, SUPER_ABSENT);
}

// Before the first phase: words of this launch are absent. Mostly the launch before
// has seen to that, but not where it gave up.
FN void
super_ready(const u64 *v)
{
    super_state *s = super_block.state;
    if (super_block.ready)
        return;
    super_clear(v[3] + super_block.words, v[4],
                blockIdx.x * SUPER_THREADS + threadIdx.x,
                (u64)SUPER_BLOCKS * SUPER_THREADS);
    super_sync_all();
    if (threadIdx.x == 0) {
        count_up(&s->cleared);
        super_poll(&s->cleared, SUPER_BLOCKS, true);
    }
    super_sync_all();
}

// Between phases: shared memory is free again, and what a phase is told is that of the
// next one of `count`. False: there is no other phase, or the kernel gives up.
FN bool
super_next(u32 count, const super_phase *program, const u64 *v)
{
    super_sync_all();
    const u32 i = super_block.after.number;
    const bool over = super_block.stuck || i == count;
    const u32 thread = super_thread();
    if (thread < SUPER_WORDS)
        super_put(super_place(&super_block.now) + thread * 8,
                  super_take(super_place(&super_block.after) + thread * 8));
    // At once, as others wait for it; not by the warp that polls: it takes its
    // time.
    if (thread == SUPER_THREADS - 1 && !over) {
        u32 *arrived = &((super_state *)v[0])->arrived;
        const u32 waits = super_block.after.of.waits;
        if (waits == SUPER_MEMORY)
            count_up(arrived);
        else if (waits == SUPER_COUNT)
            count_up_only(arrived);
    }
    super_sync_all();
    if (over)
        return false;
    if (thread / 32 == 2)
        super_look(i + 1, program[i + 1], v + SUPER_HEAD);
    // Words of the next launch, little by little.
    if (thread / 32 == 3)
        super_clear(v[3] + v[4] - super_block.words, v[4],
                    (i * SUPER_BLOCKS + blockIdx.x) * 32 + thread % 32,
                    (u64)count * SUPER_BLOCKS * 32);
    return true;
}

FN bool
super_is_mine()
{
    const u32 alone = super_block.now.of.alone;
    return alone == 0 || blockIdx.x == alone - 1;
}

FN super_value
super_get(int i)
{
    return super_value{(super_asks() ? super_block.asked : super_block.now.parameters)[i]};
}

// For the warp that asks: this lane's parameter of phase i is there.
FN void
super_ask(u32 i, u64 parameter)
{
    __syncwarp();
    super_block.asking = i;
    super_block.asked[threadIdx.x % SUPER_PARAMETERS] = parameter;
    __syncwarp();
}

FN void
super_end()
{
    super_state *s = super_block.state;
    super_sync_all();
    if (threadIdx.x != 0)
        return;
    if (super_block.stuck) {
        super_tell();
        atomicAdd(&s->failed, 1u);
    }
    __threadfence();
    if (atomicAdd(&s->left, 1u) != SUPER_BLOCKS - 1)
        return;
    __threadfence();
    s->ready = peek(&s->failed) == 0;
    s->arrived = s->left = s->cleared = s->failed = 0;
    s->launches = super_block.launch;
}

// A bundle: phases that need nothing of each other, side by side. What a block does.
struct super_job {
    u32 kind, first;   // as of a phase
    u32 block, blocks; // of the phase: which one, of how many
};

FN void
super_apart(const super_job &e, const u64 *v)
{
    if (threadIdx.x < SUPER_PARAMETERS)
        super_block.now.parameters[threadIdx.x] = v[e.first + threadIdx.x];
    if (threadIdx.x == 0) {
        super_block.now.grid.x = e.blocks;
        super_block.now.block.x = e.block;
    }
    super_sync_all();
}

// Folds of regions: of a block of 256 threads a phase may use the first ones.
template <int THREADS>
FN void
super_sync()
{
    sync_some<THREADS>();
}
