/* expand.c: pass expand: each composite node becomes nodes that the lowering
 * knows. */
#include "pass/expand.h"

static const pass_rule rules[] = {
#define EXPAND(op, fn) {op, fn},
#include "pass/expand.def"
#undef EXPAND
};

static air_status
expand_node(pass_context *ctx, uint32_t node, void *arg)
{
    pass_rule_fn *const *index = arg;
    pass_rule_fn fn = (*index)[ir_node_at(ctx->g, node)->op];

    return fn ? fn(ctx, node) : AIR_OK;
}

air_status
pass_expand(pass_context *ctx)
{
    pass_rule_fn *index;

    AIR_TRY(
        pass_rules_index(ctx, sizeof rules / sizeof rules[0], rules, &index));
    AIR_TRY(pass_count_uses(ctx, &ctx->uses));
    AIR_TRY(pass_walk(ctx, expand_node, &index));
    return pass_sweep(ctx);
}
