/* check.h: what functions of the API check of their arguments. */
#ifndef API_CHECK_H
#define API_CHECK_H

#include "exec/exec.h"

#define REQUIRE_PTR(p) \
    AIR_REQUIRE((p), AIR_ERROR_ARGUMENT, #p " must not be NULL")

/* Gives the caller a copy whose size strlen tells, and ends the text; `status`
 * is of what wrote it. */
air_status api_take_text(base_text *text, air_status status, char **out_text);
/* Sizes of input i of a run, and that it has memory. */
air_status api_check_input(const air_program *p, size_t i, const air_value *v);

#endif
