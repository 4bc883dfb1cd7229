#include "driver/fault.h"

#include "base/status.h"

air_status
driver_fail(const air_fault *fault, const char *label)
{
    const char *where = label != NULL ? label : "a kernel";
    AIR_REQUIRE(fault->wrong == NULL, AIR_ERROR_ARGUMENT, "%s, %g, in %s",
                fault->wrong, fault->value, where);
    AIR_FAIL(AIR_ERROR_INDEX,
             "index %lld is out of range for a dimension of size %lld in %s",
             (long long)fault->index, (long long)fault->size, where);
}
