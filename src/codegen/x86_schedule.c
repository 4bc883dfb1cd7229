/* x86_schedule.c: the order of nodes. Those on the longest way to the end go
 * first, as soon as their operands are there, so that independent chains
 * interleave and their latencies overlap. */
#include <string.h>

#include "codegen/x86_nodes.h"

enum { WIDTH = 2 }; /* nodes begun in a cycle, of each copy */

static int
latency(const x86_node *n)
{
    switch (n->op) {
    case X86_LOAD:
    case X86_ACC: return 6;
    case X86_ADD:
    case X86_SUB:
    case X86_MUL:
    case X86_ROUND:
    case X86_TOINT:
    case X86_TOFLOAT: return 3;
    case X86_FMA:
    case X86_MULI:
    case X86_SCALEF:
    case X86_TOF16:
    case X86_OFF16: return 4;
    case X86_DIV: return 11;
    case X86_SQRT: return 14;
    default: return 1;
    }
}

static void
find_heights(x86_schedule *s)
{
    memset(s->height, 0, sizeof s->height);
    for (int i = s->l->count - 1; i >= 0; i--) {
        const x86_node *n = &s->l->nodes[i];
        const int16_t operands[3] = {n->a, n->b, n->c};
        for (int k = 0; k < 3; k++)
            if (operands[k] >= 0) {
                const x86_node *o = &s->l->nodes[operands[k]];
                int h = s->height[i] + latency(o);
                if (h > s->height[operands[k]])
                    s->height[operands[k]] = (int16_t)h;
            }
    }
}

/* May both be of one place? A pair is two. */
static bool
may_meet(const x86_schedule *s, const x86_node *a, const x86_node *b)
{
    const air_rg_buf *x = &s->l->rg->bufs[a->k], *y = &s->l->rg->bufs[b->k];
    const uint32_t both = s->l->pairs | s->l->words;
    const bool pairs = (both >> a->k | both >> b->k) & 1;
    return x->slot == y->slot && (pairs || x->offset == y->offset);
}

/* What touches the place that a store writes keeps its order. */
static bool
must_wait(const x86_schedule *s, int i)
{
    const x86_node *n = &s->l->nodes[i];
    if (n->op != X86_STORE && n->op != X86_LOAD)
        return false;
    for (int j = 0; j < i; j++) {
        const x86_node *o = &s->l->nodes[j];
        if (s->place[j] < 0 && (o->op == X86_STORE || o->op == X86_LOAD) &&
            (o->op == X86_STORE || n->op == X86_STORE) && may_meet(s, o, n))
            return true;
    }
    return false;
}

static bool
is_ready(const x86_schedule *s, int i, int cycle)
{
    const x86_node *n = &s->l->nodes[i];
    const int16_t operands[3] = {n->a, n->b, n->c};
    for (int k = 0; k < 3; k++)
        if (operands[k] >= 0 &&
            (s->place[operands[k]] < 0 || s->ready[operands[k]] > cycle))
            return false;
    return !must_wait(s, i);
}

static int
best_ready(const x86_schedule *s, int cycle)
{
    int best = -1;
    for (int i = 0; i < s->l->count; i++)
        if (s->place[i] < 0 && (best < 0 || s->height[i] > s->height[best]) &&
            is_ready(s, i, cycle))
            best = i;
    return best;
}

static int16_t
moved(const x86_schedule *s, int16_t old)
{
    return old < 0 ? old : s->place[old];
}

const x86_node *
x86_schedule_nodes(const x86_list *l, x86_schedule *s)
{
    int done = 0;
    if (l->count > X86_SCHEDULED)
        return NULL;
    s->l = l;
    find_heights(s);
    memset(s->place, -1, sizeof s->place);
    for (int i = 0; i < l->count; i++)
        if (l->nodes[i].op <= X86_BCAST) {
            s->ready[i] = 0;
            s->place[i] = (int16_t)done++;
        }
    for (int cycle = 0; done < l->count; cycle++)
        for (int w = 0; w < WIDTH; w++) {
            int i = best_ready(s, cycle);
            if (i < 0)
                break;
            s->ready[i] = (int16_t)(cycle + latency(&l->nodes[i]));
            s->place[i] = (int16_t)done++;
        }
    for (int i = 0; i < l->count; i++) {
        x86_node n = l->nodes[i];
        n.a = moved(s, n.a);
        n.b = moved(s, n.b);
        n.c = moved(s, n.c);
        s->sorted[s->place[i]] = n;
    }
    return s->sorted;
}
