/* attention.h: what the files of pass attention tell each other. */
#ifndef PASS_ATTENTION_H
#define PASS_ATTENTION_H

#include "pass/build.h"

enum { ATTENTION_MASKS = 4 };

typedef enum {
    MASK_ADDED,
    MASK_KEEP, /* bool mask: true stays */
    MASK_DROP  /* bool mask: true goes */
} mask_how;

typedef struct {
    air_ref by;
    mask_how how;
    double fill; /* of MASK_KEEP, MASK_DROP: in the place of what goes */
} mask_step;

/* What was read of one softmax(q k^T) v. */
typedef struct {
    pass_context *ctx;
    ir_graph *g;
    const uint32_t *uses; /* by value, of the first nuses */
    size_t nuses;
    air_ref q, kt, v;                 /* what the two bmm read */
    mask_step masks[ATTENTION_MASKS]; /* the last one applied comes first */
    int nmasks;
    bool safe;      /* a row that sees nothing gives 0, not NaN */
    air_ref scores; /* operand of softmax: tells [B, H, L, S] */
    double scale;
    bool grouped;   /* k and v have fewer heads than q */
    air_dtype half; /* q, k and v are taken as, not as f32; NONE: as they are */
} attention;

/* ---- attention_strip.c: what changes no element, or only by a number ----- */

const ir_node *attention_made_by(const ir_graph *g, air_ref r,
                                 const char *const *names);
/* A number, or a tensor of it, which torch.where and torch.full make. */
bool attention_number(const ir_graph *g, const air_attr *attr, double *out);
bool attention_used_once(const attention *m, air_ref r);
air_ref attention_strip(const attention *m, air_ref r);
air_ref attention_strip_casts(const attention *m, air_ref r);
air_ref attention_strip_scale(attention *m, air_ref r);
air_dtype attention_dtype(const attention *m, air_ref r);

/* ---- attention_mask.c -----------------------------------------------------
 */

/* Takes masks off r, which m keeps: the scores without them. */
air_ref attention_strip_masks(attention *m, air_ref r);
bool attention_sum_pays(const attention *m);
/* The one mask that the kernel takes; AIR_NO_REF: none. */
air_ref attention_mask(const attention *m, pass_build *b);

/* ---- attention_half.c -----------------------------------------------------
 */

bool attention_match_half(attention *m, air_ref out);
air_ref attention_narrow(attention *m, pass_build *b, air_ref r);
const ir_node *attention_rounding(const attention *m, air_ref r, air_dtype half,
                                  pass_build *b, air_ref *y);

/* ---- attention_heads.c ----------------------------------------------------
 */

air_ref attention_four(const attention *m, pass_build *b, air_ref r);
air_ref attention_operand(attention *m, pass_build *b, air_ref r, bool swapped);
bool attention_find_groups(attention *m, pass_build *b, air_ref *out_k,
                           air_ref *out_v);

#endif
