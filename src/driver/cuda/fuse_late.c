/* fuse_late.c: a factor that all numbers of a vector have and that is made of a
 * sum over them, as that of a norm: results of the products can be multiplied
 * with it instead, so that nobody waits for the sum before them. */
#include "base/prims.h"
#include "driver/cuda/fuse_text.h"

/* The only node that takes the value, once; -1: there is another number. */
static int
user_of(const air_region *rg, int node)
{
    int user = -1;
    for (int i = 0; i < rg->nnodes; i++) {
        const air_rg_node *n = &rg->nodes[i];
        const bool takes_a = n->op == AIR_RG_STORE || n->op == AIR_RG_REDUCE ||
                             n->op == AIR_RG_SET;
        const int operands[3] = {n->a, n->b, n->c};
        const int count = takes_a ? 1 : base_prim_arity(n->op);
        for (int k = 0; k < count; k++) {
            if (operands[k] != node)
                continue;
            if (user >= 0)
                return -1;
            user = i;
        }
    }
    return user;
}

/* Is it a factor of what is stored as the vector, and of nothing else? */
static bool
is_factor(const fuse_group *g, const air_region *rg, int node)
{
    for (int at = node;;) {
        const int user = user_of(rg, at);
        if (user < 0)
            return false;
        const air_rg_node *n = &rg->nodes[user];
        if (n->op == AIR_RG_STORE)
            return fuse_is_vector(g, &rg->bufs[n->buf]);
        if (n->op != AIR_RG_MUL || n->lane != AIR_LANE_F32)
            return false;
        at = user;
    }
}

/* How many nodes of the phase do that? *last: the last one of them. */
static int
count(const air_region *rg, const air_rg_phase *phase, int op, int *last)
{
    int n = 0;
    for (int i = phase->begin; i < phase->end; i++)
        if (rg->nodes[i].op == op) {
            *last = i;
            n++;
        }
    return n;
}

/* bfloat16 has the range of float32: without the factor no number is out of it.
 */
int
fuse_factor(const fuse_group *g)
{
    const air_region *rg = g->before > 0 ? fuse_region(g, 0) : NULL;
    const air_rg_phase *phase = rg ? rg->phases : NULL;
    int at = -1, scalar = -1;
    if (!rg || rg->nphases != 3 || g->dtype != AIR_BF16 || fuse_is_words(g) ||
        phase[0].kind != AIR_PHASE_ROW || phase[1].kind != AIR_PHASE_SCALAR ||
        phase[2].kind != AIR_PHASE_ROW ||
        count(rg, &phase[0], AIR_RG_REDUCE, &at) != 1 ||
        rg->nodes[at].reduce != AIR_REDUCE_SUM ||
        rg->nodes[at].lane != AIR_LANE_F32 ||
        count(rg, &phase[1], AIR_RG_STORE, &at) != 0 ||
        count(rg, &phase[2], AIR_RG_SCALAR, &scalar) != 1)
        return -1;
    return rg->nodes[scalar].lane == AIR_LANE_F32 && is_factor(g, rg, scalar)
               ? scalar
               : -1;
}
