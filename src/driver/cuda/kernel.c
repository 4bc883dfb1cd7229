/* kernel.c: kernels of steps: text of a region, or a row of kernels.def. */
#include <string.h>

#include "driver/cuda/device.h"

static air_status
new_kernel(air_device *dev, air_kernel **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, sizeof **out, &ptr));
    *out = ptr;
    return AIR_OK;
}

air_status
cuda_kernel_find(air_device *dev, const char *name, const air_call *call,
                 const air_kernel **out)
{
    const cuda_provider *row = cuda_provider_find(name, call, &dev->props);
    air_kernel *kernel;
    *out = NULL;
    if (!row)
        return AIR_OK;
    AIR_TRY(new_kernel(dev, &kernel));
    kernel->provider = row;
    *out = kernel;
    return AIR_OK;
}

bool
cuda_is_plain(const air_device *dev, const char *name, const air_call *call)
{
    return !cuda_provider_find(name, call, &dev->props);
}

air_status
cuda_kernel_make(air_device *dev, const air_region *region,
                 const air_code *code, const air_kernel **out)
{
    air_kernel *kernel;
    void *bytes;
    *out = NULL;
    AIR_REQUIRE(code && code->size > 0, AIR_ERROR_UNSUPPORTED,
                "driver cuda makes kernels of source text only");
    AIR_TRY(new_kernel(dev, &kernel));
    const air_status status = base_new(&dev->alloc, code->size, &bytes);
    if (status != AIR_OK) {
        base_free(&dev->alloc, kernel, sizeof *kernel);
        return status;
    }
    memcpy(bytes, code->bytes, code->size);
    kernel->region = region;
    kernel->code = *code;
    kernel->code.bytes = bytes;
    if (code->value_bytes > 0)
        kernel->code.values = (char *)bytes + ((const char *)code->values -
                                               (const char *)code->bytes);
    *out = kernel;
    return AIR_OK;
}

void
cuda_kernel_free(air_device *dev, const air_kernel *kernel)
{
    union {
        const air_kernel *from;
        void *to;
    } cast = {kernel};
    void *text;
    if (!kernel)
        return;
    memcpy(&text, &kernel->code.bytes, sizeof text);
    base_free(&dev->alloc, text, kernel->code.size);
    base_free(&dev->alloc, cast.to, sizeof *kernel);
}

size_t
cuda_kernel_workspace(air_device *dev, const air_kernel *kernel,
                      const air_call *call)
{
    const cuda_provider *row = kernel->provider;
    if (!row)
        return kernel->code.workspace;
    return row->workspace ? row->workspace(call, &dev->props) : 0;
}

/* The order that air_code asks for. */
static void
add_params(cuda_launch *launch, const air_kernel *kernel)
{
    const air_region *region = kernel->region;
    for (int i = 0; i < region->nbufs; i++) {
        const air_rg_buf *b = &region->bufs[i];
        const cuda_param_kind kind =
            b->number ? CUDA_PARAM_NUMBER : CUDA_PARAM_POINTER;
        if (!b->scratch)
            launch->params[launch->nparams++] =
                (cuda_param){kind, b->slot, b->offset};
    }
    if (kernel->code.workspace > 0)
        cuda_add_workspace(launch, 0);
    if (kernel->code.value_bytes > 0)
        launch->params[launch->nparams++] =
            (cuda_param){.kind = CUDA_PARAM_VALUES};
}

air_status
cuda_kernel_print(const air_device *dev, const air_kernel *kernel,
                  const air_call *call, cuda_source *out)
{
    const air_code *code = &kernel->code;
    if (kernel->provider) {
        AIR_TRY(kernel->provider->print(call, &dev->props, out));
        return out->text.status;
    }
    base_text_put(&out->text, (const char *)code->bytes,
                  strlen((const char *)code->bytes));
    AIR_TRY(out->text.status);
    out->prelude = code->prelude;
    out->nlaunches = code->nlaunches;
    out->shapes = code->launches;
    out->values = code->values;
    out->nvalues = code->value_bytes / 8;
    add_params(&out->launches[0], kernel);
    return AIR_OK;
}
