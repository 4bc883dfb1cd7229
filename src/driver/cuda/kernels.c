/* kernels.c: CALL kernels by name (kernels.def), and the parameters of their
 * launches. */
#include <assert.h>
#include <string.h>

#include "driver/cuda/kern_call.h"

#define KERNEL(name, accept, print, workspace) {name, accept, print, workspace},
static const cuda_provider rows[] = {
#include "driver/cuda/kernels.def"
    {NULL, NULL, NULL, NULL},
};
#undef KERNEL

const cuda_provider *
cuda_provider_find(const char *name, const air_call *call,
                   const cuda_props *props)
{
    for (const cuda_provider *row = rows; row->name; row++)
        if (strcmp(row->name, name) == 0 && row->accept(call, props))
            return row;
    return NULL;
}

static void
add(cuda_launch *launch, cuda_param param)
{
    assert(launch->nparams < CUDA_MAX_PARAMS);
    launch->params[launch->nparams++] = param;
}

void
cuda_add_tensor(cuda_launch *launch, const air_tensor *t)
{
    add(launch, (cuda_param){CUDA_PARAM_POINTER, t->slot, t->offset});
}

void
cuda_add_int(cuda_launch *launch, int64_t value)
{
    add(launch, (cuda_param){CUDA_PARAM_INT, 0, value});
}

void
cuda_add_early(cuda_launch *launch, const air_tensor *t)
{
    cuda_add_early_span(launch, cuda_span_of(t));
}

void
cuda_add_early_span(cuda_launch *launch, cuda_span span)
{
    assert(launch->nearly < CUDA_MAX_EARLY);
    launch->early[launch->nearly++] = span;
}

void
cuda_add_workspace(cuda_launch *launch, int64_t offset)
{
    add(launch, (cuda_param){CUDA_PARAM_WORKSPACE, 0, offset});
}
