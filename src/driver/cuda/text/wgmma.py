"""wgmma.py: CUDA C of products by four warps, whose assembly names each register.

    multiply_group<D>(c, a, b, T()): c[64, COLS] += a[64, 16] x[COLS, 16]

of f16 or bf16 by `wgmma` of compute capability 9.0; c: COLS / 8 times four
floats, a: four words, b: the descriptor of x. D: 0: c is not read.
"""

COLUMNS = (16, 32, 64, 128, 256)
DTYPES = ("bf16", "f16")


def registers(first, count):
    return ",".join(f"%{i}" for i in range(first, first + count))


def product(columns, dtype):
    tiles = columns // 8
    sums, rest = 4 * tiles, 4 * tiles + 4
    outs = [f'"+f"(c[{i}][{j}])' for i in range(tiles) for j in range(4)]
    ins = [f'"r"(a[{i}])' for i in range(4)] + ['"l"(b)', '"n"(D)']
    return f"""template <int D>
FN void
multiply_group(float (&c)[{tiles}][4], const u32 (&a)[4], u64 b, {dtype})
{{
    asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype} "
                 "{{{registers(0, sums)}}}, "
                 "{{{registers(sums, 4)}}}, %{rest}, %{rest + 1}, 1, 1, 0;"
                 : {", ".join(outs)}
                 : {", ".join(ins)});
}}
"""


def text():
    return "\n".join(product(c, t) for c in COLUMNS for t in DTYPES)
