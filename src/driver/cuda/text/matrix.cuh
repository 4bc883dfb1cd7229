// matrix.cuh: tiles in shared memory as the matrix units want them.

// Four 8 x 8 matrices of 2-byte elements; lane i has the address of row i % 8
// of matrix i / 8.
FN void
load_matrices(u32 (&r)[4], const void *row)
{
    const u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// The same, each matrix transposed.
FN void
load_turned(u32 (&r)[4], const void *row)
{
    const u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// 4 bytes.
FN void
copy_async_word(void *to, const void *from)
{
    const u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"(at), "l"(from)
                 : "memory");
}

// 16 bytes as above; L2 gets the 256 bytes that they are of.
FN void
copy_async_line(void *to, const void *from)
{
    const u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;"
                 :
                 : "r"(at), "l"(from)
                 : "memory");
}
