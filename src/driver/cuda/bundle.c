/* bundle.c: small steps that stand side by side and need nothing of each other
 * as one launch with the blocks of all of them: scales of norms, conversions of
 * weights, rotations of queries and keys. A launch of its own takes a GPU
 * longer than such a step. */
#include "driver/cuda/super.h"
#include "driver/cuda/touch.h"

enum {
    LEAST = 2, /* steps of a bundle */
    MOST = 512,
    MOST_BLOCKS = 1024, /* of which the text has a table */
    LITTLE = 2048       /* threads of a step */
};

/* A map without partial results. */
static bool
is_small(const cuda_source *s, const air_step *step)
{
    const air_region *rg = step->kernel->region;

    if (!rg || !s->shapes || s->many || s->nlaunches != 1 || s->scratch > 0 ||
        rg->walk != AIR_WALK_MAP)
        return false;
    const air_launch *shape = &s->shapes[0];
    for (int32_t i = 0; i < s->launches[0].nparams; i++)
        if (s->launches[0].params[i].kind == CUDA_PARAM_WORKSPACE)
            return false;
    return shape->grid[0] > 0 && shape->grid[1] == 1 && shape->grid[2] == 1 &&
           shape->block[0] <= SUPER_THREADS &&
           shape->grid[0] * shape->block[0] <= LITTLE;
}

static bool
meets(const air_step *a, const air_step *b)
{
    cuda_touch x, y;

    for (int i = 0; cuda_touch_at(a, i, &x); i++)
        for (int k = 0; cuda_touch_at(b, k, &y); k++)
            if ((x.write || y.write) && cuda_overlap(&x.span, &y.span))
                return true;
    return false;
}

static bool
may_follow(const super_run *run, const air_step *steps, size_t step)
{
    for (size_t i = 0; i < run->count; i++)
        if (meets(&steps[run->phases[i].step], &steps[step]))
            return false;
    return true;
}

/* Steps from `first` on that are one bundle. */
static void
find(const air_step *steps, size_t count, const cuda_source *sources,
     size_t first, super_run *run)
{
    size_t params = SUPER_HEAD, blocks = 0;

    run->count = 0;
    for (size_t i = first; i < count && run->count < MOST; i++) {
        if (!is_small(&sources[i], &steps[i]))
            return;
        params += (size_t)sources[i].launches[0].nparams;
        blocks += sources[i].shapes[0].grid[0];
        if (params > SUPER_PARAMS || blocks > MOST_BLOCKS ||
            !may_follow(run, steps, i))
            return;
        run->phases[run->count++] =
            (super_phase){.source = &sources[i],
                          .step = i,
                          .end = i + 1,
                          .alone = 1,
                          .prelude = steps[i].kernel->code.prelude};
    }
}

/* The bundle becomes the source of its first step. */
static air_status
close(const air_device *dev, const air_step *steps, const super_run *run,
      cuda_source *sources)
{
    cuda_source joined = {.nlaunches = 0};

    base_text_init(&joined.text, &dev->alloc);
    const air_status status = cuda_super_print(dev, run, steps, &joined);
    for (size_t i = 0; i < run->count; i++) {
        cuda_source *s = &sources[run->phases[i].step];
        base_text_deinit(&s->text);
        *s = (cuda_source){.nlaunches = 0};
        base_text_init(&s->text, &dev->alloc);
    }
    sources[run->phases[0].step] = joined;
    return status;
}

air_status
cuda_bundle_join(const air_device *dev, const air_step *steps, size_t count,
                 cuda_source *sources)
{
    super_run run = {.apart = true};
    air_status status = AIR_OK;
    void *room;

    AIR_TRY(base_new(&dev->alloc, (MOST + 1) * sizeof *run.phases, &room));
    run.phases = room;
    for (size_t i = 0; i < count && status == AIR_OK;) {
        find(steps, count, sources, i, &run);
        if (run.count >= LEAST)
            status = close(dev, steps, &run, sources);
        i += run.count > 0 ? run.count : 1;
    }
    base_free(&dev->alloc, room, (MOST + 1) * sizeof *run.phases);
    return status;
}
