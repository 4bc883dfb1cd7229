/* kern.h: how the rows of kernels.def print: a text that names a family of
 * text/ with the constants of the call, and what it is launched with. */
#ifndef CUDA_KERN_H
#define CUDA_KERN_H

#include "driver/cuda/cuda.h"

/* Families: text/<name>.cuh with what it needs before it. */
extern const char kern_text_common[];
extern const char kern_text_skinny[];
extern const char kern_text_words[];
extern const char kern_text_wide[];
extern const char kern_text_unpack[];
extern const char kern_text_decode[];
extern const char kern_text_draw[];
extern const char kern_text_pool[];
extern const char kern_text_scan[];
extern const char kern_text_split[];
extern const char kern_text_super[];
extern const char kern_text_cross[];
extern const char kern_text_parts[];
extern const char kern_text_ring[];
extern const char kern_text_gemm[];
extern const char kern_text_attend[];
extern const char kern_text_flash[];

/* The type of an element in the text; NULL: no kernel takes it. */
const char *kern_type(int dtype);
/* The type that moves an element: "u16" of 2 bytes. */
const char *kern_word(int dtype);
size_t kern_bytes(int dtype);
bool kern_is_float(int dtype);
/* Families convert and multiply elements of 2 bytes by instructions of
 * compute capability 8.0. */
enum { KERN_HALF_CAPABILITY = 80 };
bool kern_has_dtype(int dtype, const cuda_props *props);
/* CUDA's limits: blocks along x; along y and z. */
enum { KERN_MOST_X = INT32_MAX, KERN_MOST_Y = 65535 };
int64_t kern_numel(const air_tensor *t);

/* Arguments of a call by their position; absent ones are `otherwise`. */
const air_tensor *kern_arg(const air_call *call, int i); /* NULL: absent */
int64_t kern_int(const air_call *call, int i, int64_t otherwise);
double kern_float(const air_call *call, int i, double otherwise);
/* Where a product has its first factor: mm(a, b), addmm(c, a, b, ...). */
int kern_first_factor(const air_call *call);
int kern_axis(int64_t axis, int rank); /* negative: from the end */
bool kern_same_place(const air_tensor *a, const air_tensor *b);

/* Attention as a phase of a persistent kernel. */
air_status kern_split(const air_call *call, const cuda_props *props,
                      cuda_source *out);

enum { KERN_THREADS = 256 }; /* of a block */

/* ---- printing one entry -------------------------------------------------- */

typedef struct {
    base_text *text;
    cuda_launch *launch;
    bool some; /* parameters */
} kern;

/* The head of the next entry, of blocks of 256 threads; parameters follow, then
 * kern_body. */
kern kern_begin(cuda_source *out, const char *prelude, const char *attribute);
/* The same of a kernel whose registers let so many blocks, 1 or 2, be on an SM
 * side by side. */
kern kern_begin_side(cuda_source *out, const char *prelude,
                     const char *attribute, int side);
void kern_tensor(kern *k, const char *type, const char *name,
                 const air_tensor *t);
/* Memory of the persistent kernel: cuda_source.scratch. */
void kern_scratch(kern *k, const char *type, const char *name, int64_t offset);
void kern_fault(kern *k); /* cuda_fault *fault, for kern_wrap */
/* `u64 seed, u64 offset` of the generator, from which each thread takes so many
 * numbers. */
void kern_draws(kern *k, int64_t count);
/* Opens the body. */
void kern_body(kern *k);
/* Other kernels may begin, those before are waited for; then a loop over the
 * elements of these sizes, c0, c1, ... their index. */
void kern_loop(kern *k, const int64_t *dims, int rank);
/* The same with so many threads, that are neighbours, for each element. */
void kern_groups(kern *k, const int64_t *dims, int rank, int threads);
/* ` + c0 * stride + ...` of the axes of t; axes[i]: the c of axis i. */
void kern_at(kern *k, const air_tensor *t, const int *axes);
/* The same with axes counted from the right, and sizes of 1 broadcast. */
void kern_at_broadcast(kern *k, const air_tensor *t, int rank);
/* A variable of this type with the value of the argument, a number. */
void kern_number(kern *k, const char *name, int dtype, const air_arg *a);
/* Closes loop and body, the launch covers `total` elements. */
void kern_end(kern *k, int64_t total, const cuda_props *props);
/* Of text/skinny.cuh for one row of x: blocks of an SM, and rows of a tile. A
 * token of Llama-1B on an H200 took 0.733 ms; with tiles of up to 24 rows 0.749
 * to 0.778, 4 blocks 0.768. */
enum { KERN_ROW_BLOCKS = 3, KERN_ROW_TILE = 8 };
/* Pairs of loads in flight, and blocks that share the registers of an SM, for a
 * weight of n rows of k: what a row of x has spills where k is large. The same
 * token, later: 0.697 with 6 and 3 throughout, 0.682 with 8 and 2 where k is
 * the larger one (8192), 0.714 with 4; of Llama-8B (k of 4096 and 14336) 4.07,
 * with 4 pairs 3.74, with 2 blocks 3.86. */
int kern_row_depth(int64_t k, int64_t n);
int kern_row_bound(int64_t k, int64_t n);
/* Do 32 bits count a weight of n rows, shared by all blocks (tiles_of)? */
bool kern_is_shared(int64_t n, const cuda_props *props);
/* Rows of a tile of it; of several rows of x so many that the busiest block, of
 * a grid of `blocks`, has the fewest. `m`: rows of x. */
int kern_tile(int64_t rows, int64_t m, int64_t blocks);
/* How text/skinny.cuh multiplies m rows of x by n rows of k of a weight. */
typedef struct {
    int tile;     /* R: rows of w */
    int parts;    /* S */
    int depth;    /* D */
    int side;     /* blocks of an SM that its registers are for; of one row 1 */
    int64_t most; /* blocks, at most: as many as an SM has room for, of all */
    size_t bytes; /* of shared memory */
} kern_skinny_shape;
/* pairs: two rows of w may be looked at side by side, R divides a warp. */
kern_skinny_shape kern_skinny_of(int64_t m, int64_t n, int64_t k, bool pairs,
                                 const cuda_props *props);
/* Parameters of text/skinny.cuh behind that of the rows of a weight [n, k], up
 * to a function of a sum `v` of y[m, n]: how x is staged, whose `m` rows are
 * x_row apart. The function's end writes it, axes `axis` and the next of y. */
void kern_stage(kern *k, const air_tensor *x, int64_t m, int64_t depth,
                int64_t x_row, int tile, int64_t n);
void kern_put_sum(kern *k, const air_tensor *y, int axis);

/* ---- weights of 8 and 4 bits: kern_words.c ---- */

enum { KERN_WORDS_ARGS = 7 };
/* air::quantised_mm. */
typedef struct {
    const air_tensor *x, *w, *scale, *zero, *bias, *y; /* NULL: absent */
    int64_t m, n, k, groups, group;
    int bits;
    bool rounded; /* w may be rounded to the dtype of x */
} kern_words_call;
kern_words_call kern_words_read(const air_call *call);
/* Numbers that a lane of text/skinny.cuh loads at once; 8 of a weight of
 * floats. */
int kern_words_each(const kern_words_call *c);
/* Of text/words.cuh: `words<...>`. */
void kern_words_type(base_text *text, const kern_words_call *c);
/* Rows of a tile for one row of x, of a weight of `rows` in all. */
int kern_words_tile(const kern_words_call *c, int64_t rows, int64_t blocks);
enum { KERN_WORDS_DEPTH = 4 }; /* pairs of loads in flight */
/* The launch that makes the weight, in a dtype of floats, in the workspace. */
void kern_unpack(const kern_words_call *c, int dtype, int64_t at,
                 const cuda_props *props, cuda_source *out);
void kern_words_early(cuda_launch *launch, const kern_words_call *c);
/* Of few rows that text/skinny.cuh takes too: text/wide.cuh is faster. */
bool kern_wide_beats(const air_call *call, const cuda_props *props);
/* y, x, w and what else there is; opens the body. */
void kern_words_parameters(kern *k, const kern_words_call *c);
/* The end of a function that gives row `n` of w, or the last one. */
void kern_words_row(kern *k, const kern_words_call *c);
/* The end of a function that takes a sum `v` of y[m, n]. */
void kern_words_sum(kern *k, const kern_words_call *c);
/* 0 for an axis of size 1, and for none. */
int64_t kern_stride(const air_tensor *t, int axis);
void kern_grid(kern *k, int64_t x, int64_t y, uint32_t shared);

#endif
