#include "fake_step.h"

#include <stdlib.h>
#include <string.h>

enum { NO_BINARY = 209 };

/* What is linked is the text of the first part, which all have. */
typedef struct {
    char *text;
} linked;
FAKE(cuLinkCreate_v2, unsigned n, int *options, void **values, void **out)
{
    (void)n, (void)options, (void)values;
    return fake_new(out, sizeof(linked));
}
FAKE(cuLinkAddData_v2, linked *l, int type, const char *data, size_t size,
     const char *name, unsigned n, int *options, void **values)
{
    (void)type, (void)name, (void)n, (void)options, (void)values;
    FAKE_TRY;
    fake_cuda_state()->parts++;
    if (l->text)
        return 0;
    l->text = malloc(size);
    memcpy(l->text, data, size);
    return 0;
}
FAKE(cuLinkComplete, linked *l, void **out, size_t *size)
{
    FAKE_TRY;
    if (fake_cuda_state()->unlinked)
        return NO_BINARY;
    *out = l->text;
    *size = strlen(l->text) + 1;
    return 0;
}
FAKE(cuLinkDestroy, linked *l)
{
    free(l->text);
    return fake_drop(l);
}
