/* case.h: one call of one op: a one-node graph and its inputs. */
#ifndef CONFORM_CASE_H
#define CONFORM_CASE_H

#include "ir/ir.h"

#define CASE_INPUTS 12
#define CASE_ATTRS  36

/* How the memory of the inputs is laid out. */
typedef enum { DENSE, REVERSED, SPACED, BROADCAST, LAYOUTS } case_layout;
extern const char *const case_layout_text[LAYOUTS];

typedef struct {
    air_dtype dtype;
    int rank;
    int64_t dims[AIR_MAX_RANK];
    int64_t below; /* > 0: integers of [-below, below) */
    bool positive; /* of [0, below) */
    bool distinct; /* each once */
    bool unit;     /* between 0 and 1 */
    bool divides;  /* integers are not 0, which raises */
    bool pairs;    /* i64 are complex numbers */
} case_input;

/* Arguments of an op, before there is a graph. */
typedef struct {
    const ir_op_info *info;
    air_dtype dtype; /* under test */
    int ninputs;
    case_input inputs[CASE_INPUTS];
    size_t nattrs;
    air_attr attrs[CASE_ATTRS]; /* VALUE and VALUES: indices of inputs */
    air_ref refs[CASE_ATTRS][8];
    int64_t ints[CASE_ATTRS][8]; /* of INT and INTS */
    bool bools[CASE_ATTRS][8];
    char strs[CASE_ATTRS][16];
} case_call;

/* From the text of a sample; false: it cannot be read. */
bool case_parse(case_call *c, const ir_op_info *info, air_dtype dtype,
                const char *text);
/* From the schema alone, over tensors of these sizes; `spread`: the second
 * tensor is broadcast. False: the schema does not say enough. */
bool case_guess(case_call *c, const ir_op_info *info, air_dtype dtype, int rank,
                const int64_t *dims, bool spread);
/* The one-node graph of the call; a status of inference where the op does not
 * take such arguments. */
air_status case_graph(const case_call *c, air_context *ctx, air_graph **out);

/* Are i64 of the op pairs of f32? */
bool case_is_complex(const ir_op_info *info);

/* Memory of input i: *out_value owns out_value->block (free). Equal seeds
 * give equal contents, whatever the layout. */
bool case_fill(const case_input *input, case_layout layout, unsigned seed,
               air_value *out_value);

#endif
