/* random_calls.h: the kernels of random.h by the arguments of their operators,
 * for inclusion: RANDOM_KERNEL(name) is the name that the includer gives. */
/* (size) */
void
RANDOM_KERNEL(rand)(const air_call *call, const air_task *task)
{
    random_uniform(call, -1, 0, 1, task);
}

/* (size, from, to, dtype, seed) */
void
RANDOM_KERNEL(uniform)(const air_call *call, const air_task *task)
{
    random_uniform(call, 4, ref_float(call, 1, 0), ref_float(call, 2, 1), task);
}

/* (size) */
void
RANDOM_KERNEL(randn)(const air_call *call, const air_task *task)
{
    random_normal(call, -1, 0, 1, false, task);
}

/* (mean, std, size) */
void
RANDOM_KERNEL(normal_of)(const air_call *call, const air_task *task)
{
    random_normal(call, -1, ref_float(call, 0, 0), ref_float(call, 1, 1), false,
                  task);
}

/* (size, mean, std, dtype, one_by_one, seed) */
void
RANDOM_KERNEL(normal)(const air_call *call, const air_task *task)
{
    random_normal(call, 5, ref_float(call, 1, 0), ref_float(call, 2, 1),
                  ref_int(call, 4, 0) != 0, task);
}

/* (size, p, dtype, seed) */
void
RANDOM_KERNEL(bernoulli_p)(const air_call *call, const air_task *task)
{
    random_bernoulli(call, 3, ref_float(call, 1, 0.5), task);
}

/* (p): p's own dtype says how many bits are compared. */
void
RANDOM_KERNEL(bernoulli)(const air_call *call, const air_task *task)
{
    random_source s;
    ref_tensor p = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    int64_t n = ref_numel(&out);
    if (!random_open(call, -1, 2 * n, task, &s))
        return;
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[2];
        double u, limit = ref_get(p.dtype, p.data + ref_offset(&p, i));
        random_words(&s, w, p.dtype == AIR_F64 ? 2 : 1);
        u = p.dtype == AIR_F64 ? random_double(w) : (double)random_float(w[0]);
        if (!(limit >= 0 && limit <= 1))
            air_raise_value(task, "a probability outside [0, 1]", limit);
        ref_put_int(out.dtype, out.data + ref_offset(&out, i), u < limit);
    }
}

/* (high, size) */
void
RANDOM_KERNEL(randint)(const air_call *call, const air_task *task)
{
    random_integers(call, -1, 0, ref_int(call, 0, 1), task);
}

/* (low, high, size) */
void
RANDOM_KERNEL(randint_low)(const air_call *call, const air_task *task)
{
    random_integers(call, -1, ref_int(call, 0, 0), ref_int(call, 1, 1), task);
}

/* (size, low, high, dtype, seed) */
void
RANDOM_KERNEL(random_integers)(const air_call *call, const air_task *task)
{
    random_integers(call, 4, ref_int(call, 1, 0), ref_int(call, 2, 1), task);
}

/* Each place in turn changes with one behind it or itself. */
void
RANDOM_KERNEL(randperm)(const air_call *call, const air_task *task)
{
    random_source s;
    uint64_t v[CHUNK];
    ref_tensor out = ref_out(call, 0, task);
    int64_t n = ref_numel(&out), bytes = (int64_t)ref_bytes(out.dtype);
    if (!random_open(call, -1, 2 * n, task, &s))
        return;
    for (int64_t i = 0; i < n; i++)
        ref_put_int(out.dtype, out.data + i * bytes, i);
    for (int64_t at = 0; at < n - 1; at += CHUNK) {
        int64_t here = n - 1 - at < CHUNK ? n - 1 - at : CHUNK;
        char *p = out.data + at * bytes;
        random_below(&s, (uint64_t)(n - at), true, n >= WIDE_COUNT, v, here);
        for (int64_t i = 0; i < here; i++, p += bytes)
            random_swap(p, p + (int64_t)v[i] * bytes, (size_t)bytes);
    }
}

#undef RANDOM_KERNEL
