/* print.c: text of a region, for dumps and tests. */
#include "base/prims.h"
#include "lower/lower.h"

static const char *const lane_names[] = {"f32", "f64", "i64", "b"};
static const char *const walk_names[] = {"map", "inner", "outer"};
static const char *const phase_names[] = {"elements", "per row", "per column"};
static const char *const fold_names[] = {"sum", "prod", "max",   "min",
                                         "any", "all",  "moment"};

static void
print_list(const int64_t *v, int n, base_text *out)
{
    base_text_add(out, "[");
    for (int i = 0; i < n; i++)
        base_text_add(out, "%s%lld", i ? ", " : "", (long long)v[i]);
    base_text_add(out, "]");
}

static void
print_node(const air_region *r, int i, base_text *out)
{
    const air_rg_node *n = &r->nodes[i];

    base_text_add(out, "    %d: %s %s", i, lane_names[n->lane],
                  base_prim_name(n->op));
    if (n->op == AIR_RG_CONST)
        (void)(n->lane == AIR_LANE_I64 || n->lane == AIR_LANE_B
                   ? (base_text_add(out, " %lld", (long long)n->i), 0)
                   : (base_text_add(out, " %.9g", n->k), 0));
    if (n->op == AIR_RG_REDUCE)
        base_text_add(out, " %s", fold_names[n->reduce]);
    if (n->op >= AIR_RG_LOAD && n->op <= AIR_RG_INDEX)
        base_text_add(out, " #%d", n->buf);
    for (int k = 0; k < 3; k++) {
        int operand = k == 0 ? n->a : k == 1 ? n->b : n->c;
        if (operand >= 0)
            base_text_add(out, " %d", operand);
    }
    base_text_add(out, "\n");
}

void
lower_print(const air_region *r, base_text *out)
{
    base_text_add(out, "  %s %s", walk_names[r->walk],
                  r->across   ? "across "
                  : r->spread ? "spread "
                              : "");
    print_list(r->dims, r->rank, out);
    base_text_add(out, "\n");
    for (int i = 0; i < r->nbufs; i++) {
        const air_rg_buf *b = &r->bufs[i];
        base_text_add(out, "    #%d %s ", i,
                      air_dtype_text((air_dtype)b->dtype));
        if (b->scratch)
            base_text_add(out,
                          b->scratch == AIR_RG_SUMS ? "sums " : "scratch ");
        else
            base_text_add(out, "slot %d + %lld ", b->slot,
                          (long long)b->offset);
        print_list(b->strides, r->rank, out);
        base_text_add(out, "\n");
    }
    for (int p = 0; p < r->nphases; p++) {
        const air_rg_phase *phase = &r->phases[p];
        base_text_add(out, "   %s\n", phase_names[phase->kind]);
        for (int i = phase->begin; i < phase->end; i++)
            print_node(r, i, out);
    }
}
