/* region_pairs.c: buffers whose elements lie in turns, as the parts of complex
 * numbers: both are taken apart, or put together, in one go. */
#include "driver/cpu/region/region_plan.h"

static bool
is_part(const cpu_region *r, int b)
{
    return !r->rg->bufs[b].scratch && r->rank > 0 &&
           r->strides[b][r->rank - 1] == 2;
}

/* Are both moved at the same times? */
static bool
move_together(const cpu_region *r, int b, int c)
{
    bool same = true;
    for (int p = 0; p < r->rg->nphases; p++) {
        const region_phase *phase = &r->phases[p];
        same = same && (phase->loads >> b & 1) == (phase->loads >> c & 1) &&
               (phase->stores >> b & 1) == (phase->stores >> c & 1);
    }
    return same;
}

/* Is each element of c the one behind an element of b? */
static bool
follows(const cpu_region *r, int b, int c)
{
    const air_rg_buf *first = &r->rg->bufs[b], *second = &r->rg->bufs[c];
    bool same = first->slot == second->slot && r->bytes[b] == r->bytes[c] &&
                first->offset + (int64_t)r->bytes[b] == second->offset &&
                is_part(r, c);
    for (int a = 0; a < r->rank; a++)
        same = same && r->strides[b][a] == r->strides[c][a];
    return same && move_together(r, b, c);
}

void
region_plan_pairs(cpu_region *r)
{
    uint32_t taken = 0;
    for (int b = 0; b < r->rg->nbufs; b++)
        for (int c = 0; is_part(r, b) && c < r->rg->nbufs; c++) {
            if ((taken >> b | taken >> c) & 1 || !follows(r, b, c))
                continue;
            r->pairs |= UINT32_C(1) << b;
            r->mate[b] = (int8_t)c;
            taken |= UINT32_C(1) << b | UINT32_C(1) << c;
        }
}

void
region_move_pairs(const tile_set *set, char *pairs, int64_t pairs_row,
                  char *parts[2], int64_t parts_row, size_t bytes, int64_t rows,
                  int64_t cols, bool out)
{
    const tile_pairs *pair = &(*set->pairs)[bytes];
    const tile_pairs_fn move = out ? pair->join : pair->part;
    const int64_t size = (int64_t)bytes;
    if (pairs_row == 2 * cols && parts_row == cols) {
        cols *= rows;
        rows = 1;
    }
    for (int64_t i = 0; i < rows; i++)
        move(pairs + i * pairs_row * size, parts[0] + i * parts_row * size,
             parts[1] + i * parts_row * size, cols);
}
