#include "driver/cuda/cuda.h"
#include "test.h"

TEST(cuda_no_provider_of_an_unknown_name)
{
    const air_call call = {0};
    const cuda_props props = {.capability = 90, .isa = "sm_90a"};
    CHECK(!cuda_provider_find("no_such_kernel", &call, &props));
}

TEST(cuda_parameters_of_a_launch)
{
    cuda_launch launch = {0};
    const air_tensor t = {.slot = 3, .offset = 128};
    cuda_add_tensor(&launch, &t);
    cuda_add_int(&launch, -7);
    cuda_add_workspace(&launch, 64);
    CHECK(launch.nparams == 3);
    CHECK(launch.params[0].kind == CUDA_PARAM_POINTER);
    CHECK(launch.params[0].slot == 3 && launch.params[0].value == 128);
    CHECK(launch.params[1].kind == CUDA_PARAM_INT);
    CHECK(launch.params[1].value == -7);
    CHECK(launch.params[2].kind == CUDA_PARAM_WORKSPACE);
    CHECK(launch.params[2].value == 64);
}
