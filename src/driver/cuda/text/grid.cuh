// grid.cuh: what blocks of one launch tell each other.

// Counted by others once all that was written before it is visible.
FN void
count_up(u32 *p)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
}

FN u32
counted(const u32 *p)
{
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

FN u64
nanoseconds()
{
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// The first THREADS threads of a block.
template <int THREADS>
FN void
sync_some()
{
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
