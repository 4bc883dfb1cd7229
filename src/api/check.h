/* check.h: what functions of the API check of their arguments. */
#ifndef API_CHECK_H
#define API_CHECK_H

#include "exec/exec.h"

#define REQUIRE_PTR(p) \
    AIR_REQUIRE((p), AIR_ERROR_ARGUMENT, #p " must not be NULL")

/* Sizes of input i of a run, and that it has memory. */
air_status api_check_input(const air_program *p, size_t i, const air_value *v);

#endif
