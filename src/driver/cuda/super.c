/* super.c: which steps become phases of one persistent kernel. */
#include "driver/cuda/super.h"

#include <string.h>

#include "driver/cuda/kern_call.h"
#include "driver/cuda/touch.h"

enum {
    LEAST_PRODUCTS = 2, /* of a run: what a persistent kernel is for */
    MOST_ROWS = 8,      /* of x: those that text/ring.cuh multiplies */
    MOST_WAVES = 8,     /* blocks of a launch, by processors */
    LITTLE = 2048       /* threads */
};

/* Bytes of weights that a phase reads in the mean. One of less waits longer for
 * all blocks than a launch takes that began early: 16 phases of 1.5 MB took 40
 * us, launches 30; of 6 MB 48 and 49; 8 of 25 MB 53 and 56. */
static const size_t least_weights = 8 << 20;

/* ---- what can be a phase ------------------------------------------------- */

static const char *
refusal_of_region(const cuda_source *s, const air_region *rg)
{
    if (s->nlaunches != 1)
        return "several launches";
    if (rg->walk == AIR_WALK_OUTER)
        return "sums over rows";
    for (int32_t i = 0; i < s->launches[0].nparams; i++)
        if (s->launches[0].params[i].kind == CUDA_PARAM_WORKSPACE)
            return "partial results in memory";
    return NULL;
}

static const char *
refusal_of_shape(const air_launch *shape, const cuda_props *props)
{
    if (shape->grid[1] > 1 || shape->grid[2] > 1)
        return "blocks along several axes";
    if (shape->block[0] > SUPER_THREADS)
        return "blocks of more than 256 threads";
    if (shape->grid[0] > MOST_WAVES * (uint32_t)props->processors)
        return "more work than one block of a processor should do";
    return NULL;
}

static bool
has_template(const cuda_source *s, const air_step *step)
{
    return s->prelude == kern_text_skinny || s->prelude == kern_text_common ||
           s->prelude == kern_text_split || step->kernel->region != NULL;
}

/* Why the source cannot be a phase; NULL: it can. */
static const char *
refusal_of(const cuda_source *s, const air_step *step, const cuda_props *props)
{
    const air_region *rg = step->kernel->region;
    const bool alone = rg != NULL && s->shapes != NULL;
    const char *why = alone ? refusal_of_region(s, rg) : NULL;
    if (s->product)
        return "a product of cuBLASLt";
    if (!why && !has_template(s, step))
        why = "no template";
    if (!why && s->text.data && strstr(s->text.data, "__cluster_dims__"))
        why = "clusters of blocks";
    for (int32_t i = 0; !why && i < s->nlaunches; i++) {
        const air_launch *shape =
            s->shapes ? &s->shapes[i] : &s->launches[i].shape;
        why = refusal_of_shape(shape, props);
    }
    return why;
}

/* ---- what pays ----------------------------------------------------------- */

typedef struct {
    int64_t rows; /* of x, the most */
    size_t bytes; /* of weights */
} weighed;

/* Products of steps [first, end). */
static weighed
weigh(const air_step *steps, size_t first, size_t end)
{
    weighed all = {.rows = 1};
    for (size_t i = first; i < end; i++) {
        const cuda_provider *of = steps[i].kernel->provider;
        const air_call *c = &steps[i].call;
        if (!of || of->print != kern_skinny)
            continue;
        const int at = kern_first_factor(c);
        const air_tensor *x = c->args[at].t, *w = c->args[at + 1].t;
        const int64_t rows = x->dims[x->rank - 2];
        all.rows = rows > all.rows ? rows : all.rows;
        all.bytes += (size_t)kern_numel(w) * kern_bytes(w->dtype);
    }
    return all;
}

/* Each block looks at all rows of x, word by word. */
static const char *
refusal_of_rows(const air_device *dev, int64_t rows)
{
    if (rows > MOST_ROWS)
        return "products of more than 8 rows";
    return rows > 1 && dev->gpu.persistent != AIR_PERSISTENT_ALL
               ? "products of several rows, of which launches are faster,"
               : NULL;
}

/* ---- runs ---------------------------------------------------------------- */

typedef struct {
    const air_device *dev;
    const air_step *steps;
    size_t count;
    cuda_source *sources;
    cuda_source *others; /* by step: attention without clusters */
    super_phase *phases;
    super_run run;
    size_t begin, params, products, weights;
    super_report *report;
} joiner;

static bool
is_printed(const cuda_source *s)
{
    return s->text.len > 0 || s->product;
}

static size_t
end_of(const joiner *j, size_t step)
{
    size_t end = step + 1;
    while (end < j->count && !is_printed(&j->sources[end]))
        end++;
    return end;
}

static bool
is_product(const cuda_source *s)
{
    return s->prelude == kern_text_skinny;
}

static bool
meets(const joiner *j, size_t first, size_t end, const cuda_touch *a)
{
    cuda_touch b;
    for (size_t s = first; s < end; s++)
        for (int i = 0; cuda_touch_at(&j->steps[s], i, &b); i++)
            if ((a->write || b.write) && cuda_overlap(&a->span, &b.span))
                return true;
    return false;
}

static bool
depends(const joiner *j, size_t first, size_t end, const super_phase *on)
{
    cuda_touch a;
    for (size_t s = first; s < end; s++)
        for (int i = 0; cuda_touch_at(&j->steps[s], i, &a); i++)
            if (meets(j, on->step, on->end, &a))
                return true;
    return false;
}

/* Must one of them come after the other? */
static bool
is_behind(const joiner *j, const super_phase *p, const super_phase *on)
{
    return on->step == p->step ||
           (on->source->scratch > 0 && p->source->scratch > 0) ||
           depends(j, p->step, p->end, on);
}

/* Phases of one block that need nothing of those of all blocks come first: side
 * by side, and those that need them have then waited for them. */
static void
put_little_first(joiner *j)
{
    size_t first = 0;
    for (size_t i = 0; i < j->run.count; i++) {
        const super_phase p = j->phases[i];
        bool free = p.alone != 0;
        for (size_t k = first; k < i && free; k++)
            free = !is_behind(j, &p, &j->phases[k]);
        if (!free)
            continue;
        memmove(&j->phases[first + 1], &j->phases[first],
                (i - first) * sizeof p);
        j->phases[first++] = p;
    }
}

/* Must the phase wait for one since the last wait, `stage`? One of one block
 * does not wait for others of its kind: the same block then does them in order.
 */
static bool
must_wait(const joiner *j, size_t i, size_t stage)
{
    const super_phase *p = &j->phases[i];
    for (size_t k = stage; k < i; k++) {
        const super_phase *on = &j->phases[k];
        if (j->dev->checks || (!(p->alone && on->alone) && is_behind(j, p, on)))
            return true;
    }
    return false;
}

/* The block of phase i: that of those of one block that it comes after. Of
 * those since the last wait all get the same; before it, any that spares a
 * wait. */
static void
join_blocks(joiner *j, size_t i, size_t stage, uint32_t fresh)
{
    super_phase *p = &j->phases[i];
    uint32_t block = 0;
    for (size_t k = i; k-- > 0;) {
        const uint32_t was = j->phases[k].alone;
        if (was == 0 || was == block || (block != 0 && k < stage) ||
            !is_behind(j, p, &j->phases[k]))
            continue;
        block = block == 0 ? was : block;
        for (size_t n = 0; n < i; n++)
            if (j->phases[n].alone == was)
                j->phases[n].alone = block;
    }
    p->alone = block == 0 ? fresh : block;
}

static void
place_phases(joiner *j)
{
    const uint32_t blocks = (uint32_t)j->dev->props.processors;
    size_t stage = 0;
    uint32_t used = 0;
    for (size_t i = 0; i < j->run.count; i++) {
        super_phase *p = &j->phases[i];
        p->waits = must_wait(j, i, stage) ? SUPER_MEMORY : SUPER_GOES;
        stage = p->waits ? i : stage;
        if (p->alone)
            join_blocks(j, i, stage, ++used);
    }
    for (size_t i = 0; i < j->run.count; i++)
        if (j->phases[i].alone)
            j->phases[i].alone = (j->phases[i].alone - 1) % blocks + 1;
}

/* What a phase reads before it waits, no phase of its kernel may write. */
static bool
reads_early(const joiner *j, const cuda_source *s, size_t step)
{
    for (int32_t k = 0; !s->shapes && k < s->nlaunches; k++)
        for (int32_t i = 0; i < s->launches[k].nearly; i++)
            if (cuda_is_written(j->steps + j->begin, step - j->begin,
                                &s->launches[k].early[i]))
                return true;
    return false;
}

static size_t
params_of(const cuda_source *s)
{
    size_t n = 0;
    for (int32_t k = 0; k < s->nlaunches; k++)
        n += (size_t)s->launches[s->shapes ? 0 : k].nparams + SUPER_ROWS;
    return n;
}

static const void *
region_prelude(const joiner *j, size_t first, size_t end)
{
    for (size_t s = first; s < end; s++)
        if (j->steps[s].kernel->region)
            return j->steps[s].kernel->code.prelude;
    return NULL;
}

/* Little enough for one block: as much as it does in the time of a wait. */
static bool
is_alone(const cuda_source *s, int32_t launch)
{
    const air_launch *shape =
        s->shapes ? &s->shapes[launch] : &s->launches[launch].shape;
    return s->prelude != kern_text_skinny && s->prelude != kern_text_split &&
           shape->grid[0] * shape->block[0] <= LITTLE;
}

static void
add_phases(joiner *j, const cuda_source *s, size_t step, size_t end)
{
    for (int32_t k = 0; k < s->nlaunches; k++) {
        super_phase p = {.source = s,
                         .step = step,
                         .end = end,
                         .launch = k,
                         .alone = is_alone(s, k),
                         .prelude = region_prelude(j, step, end)};
        j->phases[j->run.count++] = p;
    }
    j->params += params_of(s);
    j->products += is_product(s);
}

static size_t
end_of_run(const joiner *j)
{
    size_t end = 0;
    for (size_t i = 0; i < j->run.count; i++)
        end = j->phases[i].end > end ? j->phases[i].end : end;
    return end;
}

static void
note_refusal(joiner *j, size_t step, const char *why)
{
    if (j->report->why)
        return;
    j->report->why = why;
    j->report->label = j->steps[step].label;
}

static bool
pays(joiner *j)
{
    if (j->products < LEAST_PRODUCTS)
        return false;
    if (j->dev->gpu.persistent == AIR_PERSISTENT_ALL ||
        j->weights >= j->run.count * least_weights)
        return true;
    note_refusal(j, j->begin,
                 "weights so small that launches are faster, from the first");
    return false;
}

/* The run becomes the source of its first step. */
static air_status
close_run(joiner *j)
{
    cuda_source joined = {.nlaunches = 0};
    air_status status = AIR_OK;
    if (pays(j)) {
        base_text_init(&joined.text, &j->dev->alloc);
        put_little_first(j);
        place_phases(j);
        cuda_super_cross(j->dev, &j->run, j->steps, j->count);
        status = cuda_super_print(j->dev, &j->run, j->steps, &joined);
        const size_t end = end_of_run(j);
        for (size_t i = j->begin; i < end; i++) {
            base_text_deinit(&j->sources[i].text);
            j->sources[i] = (cuda_source){.nlaunches = 0};
            base_text_init(&j->sources[i].text, &j->dev->alloc);
        }
        j->sources[j->begin] = joined;
        j->report->kernels++;
        j->report->phases += j->run.count;
        j->run.scratch = j->run.end;
    }
    j->run.count = j->products = j->weights = 0;
    return status;
}

static void
open_run(joiner *j, size_t step)
{
    j->begin = step;
    j->params = SUPER_HEAD;
}

/* Attention is a phase in a text of its own. */
static air_status
other_text(joiner *j, size_t step, const cuda_source **out)
{
    const air_kernel *kernel = j->steps[step].kernel;
    const air_call *call = &j->steps[step].call;
    *out = &j->sources[step];
    if (!kernel->provider || kernel->provider->print != kern_decode)
        return AIR_OK;
    *out = &j->others[step];
    return kern_split(call, &j->dev->props, &j->others[step]);
}

bool
cuda_super_is_asked(const air_device *dev, const air_step *step)
{
    return dev->gpu.persistent == AIR_PERSISTENT_ALL ||
           (dev->gpu.persistent == AIR_PERSISTENT_PAYS && step->joined);
}

/* What pays was measured there. */
static bool
is_known(const cuda_props *props)
{
    return props->capability / 10 == 9;
}

bool
cuda_super_wants(const air_device *dev, const air_step *step)
{
    return cuda_super_is_asked(dev, step) ||
           (dev->gpu.persistent == AIR_PERSISTENT_PAYS && !step->exact &&
            is_known(&dev->props));
}

static air_status
add_step(joiner *j, size_t step, size_t end)
{
    const cuda_source *s;
    if (!cuda_super_wants(j->dev, &j->steps[step]))
        return close_run(j);
    j->report->asked |= cuda_super_is_asked(j->dev, &j->steps[step]);
    AIR_TRY(other_text(j, step, &s));
    const weighed products = weigh(j->steps, step, end);
    const char *why = refusal_of(s, &j->steps[step], &j->dev->props);
    if (!why)
        why = refusal_of_rows(j->dev, products.rows);
    if (why) {
        note_refusal(j, step, why);
        return close_run(j);
    }
    if (j->run.count > 0 &&
        (reads_early(j, s, step) || j->params + params_of(s) > SUPER_PARAMS))
        AIR_TRY(close_run(j));
    if (j->run.count == 0)
        open_run(j, step);
    add_phases(j, s, step, end);
    j->weights += products.bytes;
    return AIR_OK;
}

static air_status
join(joiner *j)
{
    size_t end;
    for (size_t i = 0; i < j->count; i++)
        base_text_init(&j->others[i].text, &j->dev->alloc);
    for (size_t i = 0; i < j->count; i = end) {
        end = end_of(j, i);
        AIR_TRY(add_step(j, i, end));
    }
    return close_run(j);
}

air_status
cuda_super_join(const air_device *dev, const air_step *steps, size_t count,
                cuda_source *sources, super_report *out)
{
    *out = (super_report){.kernels = 0};
    joiner j = {.dev = dev,
                .steps = steps,
                .count = count,
                .sources = sources,
                .run = {.scratch = SUPER_STATE},
                .report = out};
    const size_t most = count * CUDA_MAX_LAUNCHES;
    const size_t bytes =
        count * sizeof(cuda_source) + most * sizeof(super_phase);
    void *room;
    AIR_TRY(base_new(&dev->alloc, bytes, &room));
    if (count == 0)
        return AIR_OK;
    j.others = room;
    j.phases = (void *)(j.others + count);
    j.run.phases = j.phases;
    const air_status status = join(&j);
    for (size_t i = 0; i < count && j.others[i].text.alloc; i++)
        base_text_deinit(&j.others[i].text);
    base_free(&dev->alloc, room, bytes);
    return status;
}

air_status
cuda_super_fits(const air_device *dev, const air_launch *shape,
                cu_function function)
{
    int blocks = 0;
    CUDA_TRY(dev, "the blocks of a processor cannot be counted",
             dev->cu.function_blocks(&blocks, function, (int)shape->block[0],
                                     shape->shared));
    AIR_REQUIRE((int64_t)blocks * dev->props.processors >= shape->grid[0],
                AIR_ERROR_UNSUPPORTED,
                "a persistent kernel needs %u blocks at once: there is room "
                "for %d on each of %d processors",
                shape->grid[0], blocks, dev->props.processors);
    return AIR_OK;
}
