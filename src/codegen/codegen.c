/* codegen.c: machine code of a region, phase by phase. */
#include "codegen/codegen.h"

#include <string.h>

#include "codegen/cuda.h"
#include "codegen/x86_emit.h"

typedef struct {
    x86_asm s;
    x86_list list;
    x86_schedule schedule;
    x86_emit emit;
} codegen_work;

/* 32 bytes of ones, 32 of zeros: a load that ends between them masks a tail.*/
static void
put_masks(x86_asm *s)
{
    for (int i = 0; i < 16; i++)
        asm_word(s, i < 8 ? UINT32_MAX : 0);
}

static bool
emit_phases(codegen_work *w, const air_region *rg, air_code *out,
            const char **reason)
{
    bool any = false;
    if (!w->s.evex)
        put_masks(&w->s);
    for (int p = 0; p < rg->nphases; p++) {
        out->offset[p] = -1;
        if (!x86_list_make(&w->list, rg, p, w->s.evex)) {
            *reason = w->list.reason;
            continue;
        }
        asm_align(&w->s, 64);
        out->offset[p] = (int32_t)asm_here(&w->s);
        w->emit.s = &w->s;
        emit_phase(&w->emit, &w->list,
                   x86_schedule_nodes(&w->list, &w->schedule), 0);
        out->pairs |= w->list.pairs | w->list.words;
        out->rows |= (uint32_t)w->emit.rows << p;
        any = true;
    }
    return any;
}

/* Rows of INNER, all phases at once, where each has code; those of MAP, which
 * has several where a buffer is broadcast or padded. */
static bool
has_rows(const air_region *rg)
{
    return rg->walk == AIR_WALK_INNER
               ? !rg->across
               : rg->walk == AIR_WALK_MAP && rg->rank > 1 && !rg->spread;
}

static void
emit_rows(codegen_work *w, const air_region *rg, air_code *out)
{
    int count = rg->nphases;
    if (rg->phases[count - 1].kind == AIR_PHASE_COLUMN)
        count--;
    bool good = has_rows(rg);
    for (int p = 0; p < count; p++)
        good = good && out->offset[p] >= 0;
    if (!good)
        return;
    size_t start = asm_here(&w->s);
    asm_align(&w->s, 64);
    size_t at = asm_here(&w->s), top = emit_rows_begin(&w->emit, rg);
    for (int p = 0; p < count && good; p++)
        good = x86_list_make(&w->list, rg, p, w->s.evex) &&
               emit_rows_phase(&w->emit, &w->list,
                               x86_schedule_nodes(&w->list, &w->schedule), 0);
    emit_rows_end(&w->emit, rg, top);
    if (good)
        out->all = (int32_t)at;
    else
        asm_rewind(&w->s, start);
}

/* The caller's block is exactly as large as the code. */
static air_status
take_code(const air_alloc *alloc, const x86_asm *s, air_code *out)
{
    void *bytes;
    AIR_TRY(base_new(alloc, s->code.count, &bytes));
    memcpy(bytes, s->code.data, s->code.count);
    out->bytes = bytes;
    out->size = s->code.count;
    return AIR_OK;
}

air_status
codegen_region(const air_alloc *alloc, const air_region *region,
               const char *isa, air_code *out, const char **out_reason)
{
    bool avx512 = strcmp(isa, "avx512") == 0;
    *out = (air_code){0};
    *out_reason = NULL;
    if (strncmp(isa, "sm_", 3) == 0)
        return cuda_region(alloc, region, isa, out, out_reason);
    if (!avx512 && strcmp(isa, "avx2") != 0) {
        *out_reason = "no emitter for this instruction set";
        return AIR_ERROR_UNSUPPORTED;
    }
    codegen_work *w;
    AIR_TRY(base_new(alloc, sizeof *w, (void **)&w));
    asm_init(&w->s, alloc, avx512);
    bool any = emit_phases(w, region, out, out_reason);
    emit_rows(w, region, out);
    air_status status = w->s.status;
    if (status == AIR_OK)
        status = any ? take_code(alloc, &w->s, out) : AIR_ERROR_UNSUPPORTED;
    asm_deinit(&w->s);
    base_free(alloc, w, sizeof *w);
    return status;
}

static bool
same_node(const air_rg_node *a, const air_rg_node *b)
{
    return a->op == b->op && a->lane == b->lane && a->reduce == b->reduce &&
           a->buf == b->buf && a->a == b->a && a->b == b->b && a->c == b->c &&
           a->i == b->i;
}

static bool
same_place(const air_rg_buf *a, const air_rg_buf *b)
{
    return a->slot == b->slot && a->offset == b->offset;
}

/* Which buffers are one place decides the order of loads and stores, where they
 * lie whether stores go straight to memory. */
static bool
same_buffer(const air_region *a, const air_region *b, int i)
{
    const air_rg_buf *x = &a->bufs[i], *y = &b->bufs[i];
    if (x->dtype != y->dtype || x->scratch != y->scratch ||
        x86_is_broadcast(a, i) != x86_is_broadcast(b, i) ||
        (a->stream && x86_is_dense(a, i) != x86_is_dense(b, i)))
        return false;
    for (int k = 0; k < i; k++)
        if (same_place(x, &a->bufs[k]) != same_place(y, &b->bufs[k]))
            return false;
    return true;
}

/* Pairs are stored together. */
static bool
same_pairs(const air_region *a, const air_region *b)
{
    const uint32_t pairs = x86_pairs(a) | x86_words(a);
    bool same = pairs == (x86_pairs(b) | x86_words(b));
    for (uint32_t left = pairs; same && left; left &= left - 1) {
        const int i = __builtin_ctz(left);
        same = x86_pair_mate(a, i) == x86_pair_mate(b, i);
    }
    return same;
}

bool
codegen_same(const air_region *a, const air_region *b)
{
    if (a->walk != b->walk || a->stream != b->stream ||
        a->across != b->across || a->spread != b->spread ||
        a->nnodes != b->nnodes || a->nbufs != b->nbufs ||
        a->nphases != b->nphases)
        return false;
    for (int i = 0; i < a->nphases; i++)
        if (a->phases[i].kind != b->phases[i].kind ||
            a->phases[i].begin != b->phases[i].begin ||
            a->phases[i].end != b->phases[i].end)
            return false;
    for (int i = 0; i < a->nnodes; i++)
        if (!same_node(&a->nodes[i], &b->nodes[i]))
            return false;
    for (int i = 0; i < a->nbufs; i++)
        if (!same_buffer(a, b, i))
            return false;
    return same_pairs(a, b);
}

void
codegen_free(const air_alloc *alloc, air_code *code)
{
    void *bytes;
    memcpy(&bytes, &code->bytes, sizeof bytes);
    base_free(alloc, bytes, code->size);
    *code = (air_code){0};
}
