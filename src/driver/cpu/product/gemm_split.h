/* gemm_split.h: which thread of a team computes what of a matrix product. */
#ifndef CPU_GEMM_SPLIT_H
#define CPU_GEMM_SPLIT_H

#include "driver/cpu/product/gemm_core.h"

/* Of panels one behind the other, each with all rows of w. */
typedef struct {
    int64_t panel, row;
} gemm_place;

/* Lanes cut into panels. */
typedef struct {
    int64_t lanes, rest; /* rest: of them, the last ones, next to no work */
    int64_t rows;        /* of w */
    int width, tile;     /* lanes of a panel; rows of a tile */
} gemm_sheet;

/* Threads share the panels and split the rows of w, else each makes panels of
 * its own (gemm_place_of). */
bool gemm_splits_rows(const gemm_job *job, int threads);
/* Where part i of equal parts begins, at a whole tile; part `parts` is the end
 * of all panels. */
gemm_place gemm_place_of(const gemm_sheet *s, int64_t i, int64_t parts);
/* Lanes that a team has room for: of panels between two threads, twice. */
int64_t gemm_panel_lanes(int64_t lanes, int threads);

#endif
