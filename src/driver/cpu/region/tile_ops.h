/* tile_ops.h: prebuilt loops over tiles of up to TILE_MAX elements, one per
 * primitive and lane, compiled once per ISA. They run any region and define
 * what machine code of a region must compute, bit for bit.
 *
 * Tiles are arrays of the lane's C type: F32 float, F64 double, I64 int64_t,
 * B uint8_t holding 0 or 1. A destination never overlaps an operand. */
#ifndef CPU_TILE_OPS_H
#define CPU_TILE_OPS_H

#include "air_kernel.h"

#define TILE_LANES   4
#define TILE_REDUCES 6
#define TILE_MAX     512  /* elements of a tile */
#define TILE_PARTS   64   /* partial results of a row reduction */
#define TILE_CHUNK   4096 /* elements between two foldings of the parts */

typedef void (*tile_op_fn)(void *d, const void *a, const void *b, const void *c,
                           int64_t n);
typedef void (*tile_cvt_fn)(void *d, const void *a, int64_t n);
/* Memory of a dtype <-> a tile; the stride is in elements. */
typedef void (*tile_load_fn)(void *d, const void *src, int64_t stride,
                             int64_t n);
typedef void (*tile_store_fn)(void *dst, int64_t stride, const void *a,
                              int64_t n);
typedef void (*tile_fill_fn)(void *d, const air_scalar *value, int64_t n);
/* acc[i % 64] op= a[i] (fold), acc[i] op= a[i] (each). */
typedef void (*tile_reduce_fn)(void *acc, const void *a, int64_t n);
/* What each of `rows` rows of n elements of the lane's type, `stride` elements
 * apart, folds to. NULL: there is no such loop. */
typedef void (*tile_rows_fn)(const void *x, int64_t stride, int64_t rows,
                             int64_t n, void *folded);
/* The same from memory of an integer dtype into I64, TILE_CHUNK elements at
 * most; a fold puts all into acc[0]. */
typedef struct {
    tile_reduce_fn fold, each;
    tile_rows_fn rows;
    tile_rows_fn columns; /* folded[i]: those of column i, of 1 or more rows */
} tile_narrow;
/* Folds TILE_PARTS partial results into `value` and sets them to `start`, the
 * reduction's identity, for the next row; all of the lane's type. */
typedef void (*tile_tree_fn)(void *acc, const void *start, void *value);

/* n elements of 1, 2, 4 or 8 bytes; steps are in elements. */
typedef void (*tile_move_fn)(void *to, int64_t to_step, const void *from,
                             int64_t from_step, int64_t n);
typedef tile_move_fn tile_move_table[9];
/* n pairs of 1, 2, 4 or 8 bytes each, from or to their first and second
 * elements. */
typedef void (*tile_pairs_fn)(void *pairs, void *first, void *second,
                              int64_t n);
typedef struct {
    tile_pairs_fn part, join;
} tile_pairs;
typedef tile_pairs tile_pairs_table[9];

typedef tile_rows_fn tile_rows_table[TILE_REDUCES][TILE_LANES];
enum { TILE_FEW_VECTORS = 4 }; /* of columns, at most */
/* Rows that are added up without a tree, and what the tree of 256 keeps. */
enum { TILE_SUM_ROWS = 32, TILE_LEVELS = 4 };

/* Compares are found by the lane of their operands, all others by their own
 * lane. An entry is NULL where the lane has no such operation. */
typedef tile_op_fn tile_op_table[AIR_RG_OP_COUNT][TILE_LANES];
typedef tile_cvt_fn tile_cvt_table[TILE_LANES][TILE_LANES]; /* [to][from] */
typedef tile_load_fn tile_load_table[TILE_LANES][AIR_DTYPE_COUNT];
typedef tile_store_fn tile_store_table[TILE_LANES][AIR_DTYPE_COUNT];
typedef tile_fill_fn tile_fill_table[TILE_LANES];
typedef tile_reduce_fn tile_reduce_table[TILE_REDUCES][TILE_LANES];
typedef tile_narrow tile_narrow_table[TILE_REDUCES][AIR_DTYPE_COUNT];
typedef tile_tree_fn tile_tree_table[TILE_REDUCES][TILE_LANES];

typedef struct {
    const char *isa;
    int vector; /* bytes of one, TILE_VECTOR there */
    const tile_op_table *ops;
    const tile_cvt_table *cvts;
    const tile_load_table *loads;
    const tile_store_table *stores;
    const tile_fill_table *fills;
    const tile_reduce_table *folds, *eachs;
    const tile_narrow_table *narrow; /* NULL functions: as I64 only */
    const tile_tree_table *trees;
    const tile_rows_table *rows;
    const tile_rows_table *columns; /* folded[i]: those of column i, of 1 to
                                       256 rows by the tree of OUTER; a few
                                       vectors at most, at least one */
    const tile_move_table *moves;
    const tile_pairs_table *pairs;
} tile_set;

/* The best set that is not above `isa` and that this CPU can run. */
const tile_set *tile_set_find(const char *isa);
bool tile_is_compare(unsigned op);
size_t tile_lane_size(unsigned lane);

/* What each compilation of tile_math.c, tile_memory.c, tile_reduce.c,
 * tile_moves.c, tile_rows.c gives. */
#define TILE_DECLARE(isa)                             \
    extern const tile_op_table tile_ops_##isa;        \
    extern const tile_cvt_table tile_cvts_##isa;      \
    extern const tile_load_table tile_loads_##isa;    \
    extern const tile_store_table tile_stores_##isa;  \
    extern const tile_fill_table tile_fills_##isa;    \
    extern const tile_reduce_table tile_folds_##isa;  \
    extern const tile_reduce_table tile_eachs_##isa;  \
    extern const tile_narrow_table tile_narrow_##isa; \
    extern const tile_tree_table tile_trees_##isa;    \
    extern const tile_rows_table tile_rows_##isa;     \
    extern const tile_rows_table tile_columns_##isa;  \
    extern const tile_move_table tile_moves_##isa;    \
    extern const tile_pairs_table tile_pairs_##isa;
TILE_DECLARE(scalar)
TILE_DECLARE(avx2)
TILE_DECLARE(avx512)

/* Bytes of a vector register: what is longer the compiler takes apart by way of
 * memory. */
#if defined __AVX512F__
#define TILE_VECTOR 64
#elif defined __AVX2__
#define TILE_VECTOR 32
#else
#define TILE_VECTOR 16
#endif

#define TILE_PASTE_(name, isa) name##_##isa
#define TILE_PASTE(name, isa)  TILE_PASTE_(name, isa)
/* TILE_ISA is given on the command line. */
#define TILE_NAME(name) TILE_PASTE(name, TILE_ISA)

#endif
