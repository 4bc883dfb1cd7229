// scan.cuh: running folds along an axis, and where its greatest or least lies.
//
// A fold has a state S, `none` of no elements, `one` of an element and its place,
// and `join` of two, the first of which lies before the second. R: what it
// computes in.
FN s64
least(s64 a, s64 b)
{
    return a < b ? a : b;
}

template <class T>
FN T
number(T x)
{
    return x;
}

FN float
number(bf16 x)
{
    return get(x);
}

FN float
number(f16 x)
{
    return get(x);
}

template <class T, class R>
FN void
store(T *p, R x)
{
    *p = (T)x;
}

FN void
store(bf16 *p, float x)
{
    put(p, x);
}

FN void
store(f16 *p, float x)
{
    put(p, x);
}

template <class R>
struct Sum {
    typedef R S;
    FN static S none() { return 0; }
    template <class T>
    FN static S one(T x, s64) { return (R)number(x); }
    FN static S join(S a, S b) { return a + b; }
};

template <class R>
struct Product : Sum<R> {
    FN static R none() { return 1; }
    FN static R join(R a, R b) { return a * b; }
};

// log(e^a + e^b)
template <class R>
struct LogSum : Sum<R> {
    FN static R none() { return -infinity(); }
    FN static R join(R a, R b)
    {
        const R high = a > b || a != a ? a : b;
        const R low = a > b || a != a ? b : a;
        return high == low && high - low != 0 ? high
                                              : high + log1p(exp(low - high));
    }
};

template <class R>
struct Place {
    R value;
    s64 at; // -1: of no elements
};

// The greatest, or the least; NaN before all. Of equals the last one, or the
// first.
template <class R, bool MOST, bool LAST>
struct Best {
    typedef Place<R> S;
    FN static S none() { return S{0, -1}; }
    template <class T>
    FN static S one(T x, s64 at) { return S{(R)number(x), at}; }
    FN static S join(S a, S b)
    {
        const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
        const bool same = (nan_a && nan_b) || a.value == b.value;
        const bool more = MOST ? b.value > a.value : b.value < a.value;
        const bool later = LAST ? b.at > a.at : b.at < a.at;
        const bool take = same ? later : !nan_a && (nan_b || more);
        return a.at < 0 || (b.at >= 0 && take) ? b : a;
    }
};

// What a fold has found so far: a number, or an element and its place.
template <class T, class R>
struct Results {
    T *y;
    s64 step;
    FN void give(s64 i, R state) const { store(y + i * step, state); }
};

template <class W>
struct Places {
    W *y;
    s64 *at;
    const W *x;
    s64 y_step, at_step, x_step;
    template <class R>
    FN void give(s64 i, Place<R> state) const
    {
        y[i * y_step] = x[state.at * x_step];
        at[i * at_step] = state.at;
    }
};

// A thread has the axis.
template <class F, class T, class O>
FN void
scan_alone(const O &out, const T *x, s64 count, s64 step)
{
    typename F::S all = F::none();
    for (s64 i = 0; i < count; i++) {
        all = F::join(all, F::one(x[i * step], i));
        out.give(i, all);
    }
}

// What a lane of the warp has.
template <class S>
FN S
from_lane(S mine, int lane)
{
    return __shfl_sync(~0u, mine, lane & 31);
}

template <class R>
FN Place<R>
from_lane(Place<R> mine, int lane)
{
    return Place<R>{from_lane(mine.value, lane), from_lane(mine.at, lane)};
}

// EACH neighbours from `first` on, each with those before it; all of them.
template <class F, int EACH, class T>
FN typename F::S
take_each(typename F::S (&mine)[EACH], const T *x, s64 first, s64 count, s64 step)
{
    typename F::S all = F::none();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (first + i < count)
            all = F::join(all, F::one(x[(first + i) * step], first + i));
        mine[i] = all;
    }
    return all;
}

template <class F, int EACH, class O>
FN void
give_each(const O &out, typename F::S left, const typename F::S (&mine)[EACH],
          s64 first, s64 count)
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (first + i < count)
            out.give(first + i, F::join(left, mine[i]));
}

// A warp has the axis, a thread EACH neighbours at once.
template <class F, class T, class O>
FN void
scan_in_warp(const O &out, const T *x, s64 count, s64 step)
{
    typedef typename F::S S;
    enum { LANES = 32, EACH = 4 };
    const int me = threadIdx.x % LANES;
    S before = F::none();
    for (s64 begin = 0; begin < count; begin += LANES * EACH) {
        const s64 first = begin + me * EACH;
        S mine[EACH], all = take_each<F>(mine, x, first, count, step);
        for (int d = 1; d < LANES; d *= 2) {
            const S left = from_lane(all, me - d);
            all = me >= d ? F::join(left, all) : all;
        }
        const S last = from_lane(all, me - 1);
        const S left = me > 0 ? F::join(before, last) : before;
        before = F::join(before, from_lane(all, LANES - 1));
        give_each<F>(out, left, mine, first, count);
    }
}

// A block has the axis, a thread EACH neighbours at once.
template <class F, class T, class O>
FN void
scan_together(const O &out, const T *x, s64 count, s64 step)
{
    typedef typename F::S S;
    enum { THREADS = 256, EACH = 4 };
    __shared__ S sums[THREADS];
    const int me = threadIdx.x;
    S before = F::none();
    for (s64 begin = 0; begin < count; begin += THREADS * EACH) {
        const s64 first = begin + me * EACH;
        S mine[EACH];
        sums[me] = take_each<F>(mine, x, first, count, step);
        __syncthreads();
        for (int d = 1; d < THREADS; d *= 2) {
            const S left = me >= d ? sums[me - d] : F::none();
            __syncthreads();
            sums[me] = F::join(left, sums[me]);
            __syncthreads();
        }
        const S left = me > 0 ? F::join(before, sums[me - 1]) : before;
        before = F::join(before, sums[THREADS - 1]);
        __syncthreads();
        give_each<F>(out, left, mine, first, count);
    }
}

// Where the best of an axis lies: by a thread, by a warp, all lanes of which know
// it, by a block, whose thread 0 knows it.
template <class F, int BY = 1, class T>
FN typename F::S
find_alone(const T *x, s64 begin, s64 end, s64 step)
{
    typename F::S all = F::none();
#pragma unroll 8
    for (s64 i = begin; i < end; i += BY)
        all = F::join(all, F::one(x[i * step], i));
    return all;
}

template <class F, class T>
FN typename F::S
find_in_warp(const T *x, s64 begin, s64 end, s64 step)
{
    const int me = threadIdx.x % 32;
    typename F::S all = find_alone<F, 32>(x, begin + me, end, step);
    for (int d = 16; d > 0; d /= 2)
        all = F::join(all, from_lane(all, me ^ d));
    return all;
}

template <class F>
FN typename F::S
join_block(typename F::S mine)
{
    typedef typename F::S S;
    __shared__ S found[256];
    const int me = threadIdx.x;
    __syncthreads();
    found[me] = mine;
    for (int d = 128; d > 0; d /= 2) {
        __syncthreads();
        if (me < d)
            found[me] = F::join(found[me], found[me + d]);
    }
    return found[0];
}

template <class F, class T>
FN typename F::S
find_together(const T *x, s64 begin, s64 end, s64 step)
{
    return join_block<F>(
        find_alone<F, 256>(x, begin + threadIdx.x, end, step));
}

template <class F>
FN typename F::S
find_in_parts(const typename F::S *parts, s64 count)
{
    typename F::S all = F::none();
    for (s64 i = threadIdx.x; i < count; i += 256)
        all = F::join(all, parts[i]);
    return join_block<F>(all);
}
