/* agree.c: which arguments of a node must be of one dtype. ATen promotes the
 * operands of element-wise operators; elsewhere it refuses other dtypes, and
 * kernels count on it: they would read past the end of a smaller operand. */
#include <string.h>

#include "ir/ir.h"

typedef enum {
    DATA,      /* the dtype of the first tensor */
    STATISTIC, /* or f32 where that is a half */
    PARAMETER, /* of a norm: as a statistic; of a contraction: data */
    LABEL,     /* i64 or u8 */
    INDEX,     /* i64 or i32 */
    FREE       /* the kernel reads it as what it is */
} agreement;

/* Parameters that are not DATA. */
static const struct {
    const char *name;
    agreement rule;
} rules[] = {
    {"index", INDEX},
    {"indices", FREE},
    {"mask", FREE},
    {"attn_mask", FREE},
    {"mean", STATISTIC},
    {"rstd", STATISTIC},
    {"g", STATISTIC},
    {"running_mean", STATISTIC},
    {"norms", STATISTIC},
    {"running_var", STATISTIC},
    {"weight", PARAMETER},
    {"save_mean", STATISTIC},
    {"bias", PARAMETER},
    {"save_invstd", STATISTIC},
    {"logsumexp", STATISTIC},
    {"labels", LABEL},
    {"sorter", FREE},
    {"offsets", INDEX},
    {"offs", INDEX},
    {"offset2bag", INDEX},
    {"qscale", FREE},
    {"qzero", FREE},
    {"enabled", FREE},
    {"bag_size", INDEX},
    {"maximum_indices", INDEX},
};

static agreement
rule_of(const ir_op_info *info, const char *name)
{
    agreement rule = DATA;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].name, name) == 0)
            rule = rules[i].rule;
    if (rule == PARAMETER)
        return info->flags & IR_CONTRACT ? DATA : STATISTIC;
    return rule;
}

static bool
must_agree(const ir_op_info *info)
{
    bool kernel = info->cls == IR_CLASS_CALL || info->cls == IR_CLASS_COMPOSITE;
    bool plain = info->dtype == IR_DT_SAME || info->dtype == IR_DT_ATTR;
    return (kernel && plain) || info->flags & IR_AGREE;
}

static bool
agrees(agreement rule, air_dtype dtype, air_dtype first)
{
    bool half = first == AIR_BF16 || first == AIR_F16;
    switch (rule) {
    case DATA: return dtype == first;
    case PARAMETER:
    case STATISTIC: return dtype == first || (half && dtype == AIR_F32);
    case LABEL: return dtype == AIR_I64 || dtype == AIR_U8;
    case INDEX: return dtype == AIR_I64 || dtype == AIR_I32;
    case FREE: break;
    }
    return true;
}

air_status
ir_check_agreement(const ir_graph *g, const ir_op_info *info,
                   const air_attr *attrs)
{
    air_dtype first = AIR_DTYPE_NONE;

    if (!must_agree(info))
        return AIR_OK;
    for (int i = 0; i < info->nparams; i++) {
        if (attrs[i].kind != AIR_ATTR_VALUE)
            continue;
        air_dtype dtype = (air_dtype)ir_val(g, attrs[i].value)->dtype;
        if (first == AIR_DTYPE_NONE)
            first = dtype;
        AIR_REQUIRE(agrees(rule_of(info, info->params[i].name), dtype, first),
                    AIR_ERROR_DTYPE, "%s: %s is %s, %s is %s", info->name,
                    info->params[0].name, air_dtype_text(first),
                    info->params[i].name, air_dtype_text(dtype));
    }
    return AIR_OK;
}
