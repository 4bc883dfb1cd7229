#include "cuda_case.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

fake_state *
cuda_case_state(const char *file)
{
    void *lib = dlopen(file, RTLD_NOW);
    void *found = lib ? dlsym(lib, "fake_cuda_state") : NULL;
    fake_cuda_state_fn fn;
    memcpy(&fn, &found, sizeof fn);
    return found ? fn() : NULL;
}

/* Both libraries begin anew; nothing of an earlier test is alive. */
bool
cuda_case_prepare(cuda_case *f)
{
    *f = (cuda_case){.cuda = cuda_case_state(FAKE_CUDA "/libcuda.so.1"),
                     .nvrtc = cuda_case_state(FAKE_CUDA "/libnvrtc.so.13"),
                     .gpu = {.libraries = FAKE_CUDA},
                     .options = {.threads = 1}};
    if (!CHECK(f->cuda && f->nvrtc))
        return false;
    *f->cuda = *f->nvrtc = (fake_state){.gpus = 1, .major = 9, .error = 999};
    return true;
}

air_status
cuda_case_open(cuda_case *f, const air_alloc *alloc)
{
    f->options.gpu = &f->gpu;
    return cuda->open(&f->options, alloc, &f->dev);
}

air_status
cuda_case_step(cuda_case *f, size_t i, const char *note)
{
    snprintf(f->text[i], TEXT, "// params 3 %s\n", note);
    const size_t size = (strlen(f->text[i]) + 8) / 8 * 8;
    const uint64_t values[2] = {77, 78};
    memcpy(f->text[i] + size, values, sizeof values);
    const air_code code = {
        .bytes = (const uint8_t *)f->text[i],
        .size = size + sizeof values,
        .prelude = "// prelude\n",
        .nlaunches = 2,
        .launches = {{.grid = {7, 1, 1}, .block = {256, 1, 1}, .shared = 50000},
                     {.grid = {0, 1, 1}}},
        .values = f->text[i] + size,
        .value_bytes = sizeof values};
    f->bufs[0] = (air_rg_buf){.slot = 0, .offset = 16};
    f->bufs[1] = (air_rg_buf){.slot = 1, .offset = 32};
    f->region = (air_region){.nbufs = 2, .bufs = f->bufs};
    AIR_TRY(cuda->kernel_make(f->dev, &f->region, &code, &f->kernels[i]));
    f->steps[i] = (air_step){.kernel = f->kernels[i], .label = "step"};
    return AIR_OK;
}

air_status
cuda_case_list(cuda_case *f)
{
    AIR_TRY(cuda_case_step(f, 0, "a"));
    AIR_TRY(cuda_case_step(f, 1, "b"));
    AIR_TRY(cuda_case_step(f, 2, "a"));
    return cuda->list_make(f->dev, f->steps, STEPS, &f->list);
}

void
cuda_case_drop(cuda_case *f)
{
    cuda->list_free(f->dev, f->list);
    for (int i = 0; i < STEPS; i++)
        if (f->dev)
            cuda->kernel_free(f->dev, f->kernels[i]);
    if (f->dev)
        cuda->close(f->dev);
    CHECK_INT(f->cuda->live, 0);
    CHECK_INT(f->nvrtc->live, 0);
}
