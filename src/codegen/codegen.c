/* codegen.c: which emitter serves a target. */
#include "codegen/codegen.h"

air_status
codegen_region(const air_alloc *alloc, const air_region *region,
               const char *isa, air_code *out, const char **out_reason)
{
    (void)alloc;
    (void)region;
    (void)isa;
    *out = (air_code){0};
    *out_reason = "no emitter for this instruction set";
    return AIR_ERROR_UNSUPPORTED;
}

void
codegen_free(const air_alloc *alloc, air_code *code)
{
    void *bytes = (void *)(uintptr_t)code->bytes;

    base_free(alloc, bytes, code->size);
    *code = (air_code){0};
}
