/* codegen.h: kernel code of a region for one target. */
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H

#include "air_driver.h"
#include "base/memory.h"

/* Machine code for every phase that has a form in this instruction set;
 * UNSUPPORTED (no message recorded, *out_reason says why) when no phase has.
 * With OK, *out_reason is why some phase has none, NULL: all have.
 * isa: "avx512", "avx2"; others have no emitter. Thread-safe. */
air_status codegen_region(const air_alloc *alloc, const air_region *region,
                          const char *isa, air_code *out,
                          const char **out_reason);
/* Would both regions get the same bytes? Slots, offsets and sizes may differ:
 * the layers of a model share their code. */
bool codegen_same(const air_region *a, const air_region *b);
void codegen_free(const air_alloc *alloc, air_code *code);

#endif
