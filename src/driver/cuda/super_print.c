/* super_print.c: the text of a persistent kernel. Phases come in as they are
 * printed for launches of their own: their head becomes that of a function, and
 * what waits for the launch before becomes what waits for all blocks. */
#include <inttypes.h>
#include <string.h>

#include "driver/cuda/kern_call.h"
#include "driver/cuda/super.h"

typedef struct {
    const super_run *run;
    base_text *text;
    cuda_source *out;
    const char *prelude; /* of regions */
    uint32_t *kinds;     /* by phase */
    uint32_t *first;     /* of its parameters */
    uint32_t *parts;     /* by kind: that of the text */
    uint32_t nkinds, nparts;
    uint32_t stages; /* of the ring; 0: none */
    uint32_t shared; /* bytes of phases, before those of the ring */
} printer;

/* ---- phases of one kind -------------------------------------------------- */

static const cuda_launch *
launch_of(const super_phase *p)
{
    return &p->source->launches[p->source->shapes ? 0 : p->launch];
}

static const air_launch *
shape_of(const super_phase *p)
{
    return p->source->shapes ? &p->source->shapes[p->launch]
                             : &launch_of(p)->shape;
}

static int32_t
entry_of(const super_phase *p)
{
    return p->source->shapes ? p->launch : launch_of(p)->entry;
}

static bool
is_same_text(const super_phase *a, const super_phase *b)
{
    return a->source->prelude == b->source->prelude &&
           a->source->text.len == b->source->text.len &&
           memcmp(a->source->text.data, b->source->text.data,
                  a->source->text.len) == 0;
}

/* Are the same parameters words? */
static bool
has_same_words(const super_phase *a, const super_phase *b)
{
    for (int k = 0; k < CUDA_MAX_PARAMS; k++)
        if ((a->words[k] != 0) != (b->words[k] != 0) ||
            (a->rows[k] != 0) != (b->rows[k] != 0))
            return false;
    return a->parted == b->parted && a->parts.count == b->parts.count &&
           a->parts.numbers == b->parts.numbers &&
           a->parts.width == b->parts.width;
}

/* Sizes and strides of regions are constants here. */
static bool
is_same(const super_phase *a, const super_phase *b)
{
    const cuda_source *s = a->source, *t = b->source;
    return entry_of(a) == entry_of(b) &&
           shape_of(a)->block[0] == shape_of(b)->block[0] &&
           s->nvalues == t->nvalues &&
           (s->nvalues == 0 ||
            memcmp(s->values, t->values, s->nvalues * 8) == 0) &&
           has_same_words(a, b) && is_same_text(a, b);
}

static void
number_kinds(printer *p)
{
    for (size_t i = 0; i < p->run->count; i++) {
        size_t k = 0;
        while (k < i && !is_same(&p->run->phases[k], &p->run->phases[i]))
            k++;
        p->kinds[i] = k < i ? p->kinds[k] : p->nkinds++;
    }
}

/* Is the phase the first of its kind? */
static bool
is_first(const printer *p, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (p->kinds[k] == p->kinds[i])
            return false;
    return true;
}

/* ---- parts: NVRTC's front end takes one text at a time, what is behind it all
 * of them at once. So what takes longest comes first, and short ones are one
 * part. ---- */

enum { PART_LONG, PART_PRODUCT, PART_SHORT, PART_RANKS, SHORT_ONES = 4 };

static int
rank_of(const super_phase *p)
{
    return p->source->prelude == kern_text_split    ? PART_LONG
           : p->source->prelude == kern_text_skinny ? PART_PRODUCT
                                                    : PART_SHORT;
}

static void
number_parts(printer *p)
{
    int shorts = 0;
    for (int rank = 0; rank < PART_RANKS; rank++)
        for (size_t i = 0; i < p->run->count; i++) {
            if (!is_first(p, i) || rank_of(&p->run->phases[i]) != rank)
                continue;
            if (rank < PART_SHORT || shorts++ % SHORT_ONES == 0)
                p->nparts++;
            p->parts[p->kinds[i]] = p->nparts;
        }
}

/* ---- what is before them ------------------------------------------------- */

static void
put(printer *p, const char *text)
{
    base_text_put(p->text, text, strlen(text));
}

static void
put_families(printer *p)
{
    const char *seen[8] = {kern_text_common};
    size_t n = 1;
    for (size_t i = 0; i < p->run->count; i++) {
        const char *family = p->run->phases[i].source->prelude;
        bool known = family == p->prelude;
        for (size_t k = 0; k < n; k++)
            known = known || seen[k] == family;
        if (known || n == sizeof seen / sizeof *seen)
            continue;
        seen[n++] = family;
        put(p, family);
    }
}

static bool
has_parts(const super_run *run)
{
    for (size_t i = 0; i < run->count; i++)
        if (run->phases[i].parted != 0)
            return true;
    return false;
}

static void
put_preludes(printer *p)
{
    for (size_t i = 0; i < p->run->count && !p->prelude; i++)
        p->prelude = p->run->phases[i].prelude;
    put(p, "#define LOOKS_ALIGNED\n"
           "#define await alone_await\n#define release alone_release\n"
           "#define stores_shared alone_stores_shared\n");
    put(p, kern_text_common);
    put(p, "#undef await\n#undef release\n#undef stores_shared\n");
    base_text_add(p->text, "#define SUPER_BLOCKS %uu\n",
                  p->out->launches[0].shape.grid[0]);
    put(p, kern_text_super);
    if (p->prelude) {
        put(p, "#define air_begin alone_begin\n"
               "#define __syncthreads() call::super_sync<G>()\n");
        put(p, p->prelude);
        put(p, "#undef air_begin\n#undef __syncthreads\n"
               "static __device__ __forceinline__ void air_begin() {}\n");
    }
    put(p, "#define __syncthreads() call::super_sync_all()\n");
    put_families(p);
    if (!p->run->apart)
        put(p, kern_text_cross);
    if (has_parts(p->run))
        put(p, kern_text_parts);
    if (p->stages == 0)
        return;
    base_text_add(p->text,
                  "#define RING_STAGES %uu\n#define RING_AT %u\n"
                  "#define SUPER_STATIC %d\n",
                  p->stages, p->shared, SUPER_STATIC);
    put(p, kern_text_ring);
}

/* What stands for a pointer to the type in the parameters of a phase. */
static void
put_pointer(printer *p, const super_phase *phase, int k, const char *type,
            int length)
{
    const super_parts *parts = &phase->parts;
    const bool fresh = phase->rows[k] != 0, parted = phase->parted >> k & 1;
    base_text_add(p->text, "call::%s<%.*s",
                  fresh    ? "fresh"
                  : parted ? "parts"
                           : "cross",
                  length, type);
    if (fresh)
        base_text_add(p->text, ", %" PRId64 ", %" PRId64, phase->plane,
                      phase->width);
    else if (parted)
        base_text_add(p->text, ", %" PRId64 ", %" PRId64 ", %" PRId64,
                      parts->numbers, parts->width, parts->count);
    put(p, "> ");
}

/* From "(" to ")": "bf16 *x" becomes "call::cross<bf16> x" where it is words,
 * "call::parts<bf16, ...> x" where it is parts, and "call::fresh<bf16, ...> x"
 * where a row of it is words. */
static const char *
put_parameters(printer *p, const char *at, const super_phase *phase)
{
    for (int k = 0; *at != ')'; k++) {
        const char *end = at + strcspn(at, ",)"), *star = strstr(at, " *");
        const bool crosses = phase->words[k] != 0, fresh = phase->rows[k] != 0;
        const char *type = at + strspn(at, "(, ");
        base_text_put(p->text, at, (size_t)(type - at));
        if ((crosses || fresh) && star && star < end) {
            put_pointer(p, phase, k, type, (int)(star - type));
            base_text_put(p->text, star + 2, (size_t)(end - star - 2));
        } else {
            base_text_put(p->text, type, (size_t)(end - type));
        }
        at = *end == ',' ? end + 1 : end;
        put(p, *end == ',' ? "," : "");
    }
    return at;
}

/* The text without a prelude of its own, its entries as functions: the line of
 * ENTRY(0) and the one before it are their heads. */
static void
put_phase_text(printer *p, const super_phase *phase, bool asks)
{
    static const char head[] = "extern \"C\" __global__", name[] = "\nENTRY(";
    const char *at = phase->source->text.data;
    const size_t skip = p->prelude ? strlen(p->prelude) : 0;
    if (skip > 0 && strncmp(at, p->prelude, skip) == 0)
        at += skip;
    for (const char *next; (next = strstr(at, head)) != NULL;) {
        const char *entry = strstr(next, name);
        if (!entry)
            break;
        base_text_put(p->text, at, (size_t)(next - at));
        /* Phases are called: the compiler takes them one by one then. Not what
         * the warp that asks runs, which has few registers. */
        base_text_add(p->text, "static %s void\nrun_",
                      asks ? "__device__ __forceinline__" : "CALLED");
        entry += sizeof name - 1;
        at = strchr(entry, ')');
        base_text_put(p->text, entry, (size_t)(at++ - entry));
        at = put_parameters(p, at, phase);
    }
    put(p, at);
}

/* Does the ring have its weights? */
static bool
is_asked(const printer *p, const super_phase *phase)
{
    return p->stages > 0 && phase->source->prelude == kern_text_skinny;
}

/* The name of a phase: as it computes, and as it asks for weights. */
static const char *
name_of(bool asks)
{
    return asks ? "ask" : "phase";
}

static void
put_values(printer *p, const super_phase *phase)
{
    const int64_t *values = phase->source->values;
    put(p, "{{");
    for (size_t v = 0; v < phase->source->nvalues; v++)
        base_text_add(p->text, "%s%" PRId64, v > 0 ? "," : "", values[v]);
    put(p, "}}");
}

static int32_t
plain_params(const cuda_launch *l)
{
    int32_t n = 0;
    for (int32_t k = 0; k < l->nparams; k++)
        n += l->params[k].kind != CUDA_PARAM_VALUES;
    return n;
}

/* Of the phase, or of its weights by the warp that asks. */
static void
put_call(printer *p, size_t i, bool asks)
{
    const super_phase *phase = &p->run->phases[i];
    const cuda_launch *l = launch_of(phase);
    if (phase->source->prelude == p->prelude && !p->run->apart)
        put(p, "    await();\n");
    if (shape_of(phase)->block[0] < SUPER_THREADS)
        base_text_add(p->text, "    if (threadIdx.x < %u)\n    ",
                      shape_of(phase)->block[0]);
    base_text_add(p->text, "    %s_%u::run_%d(", name_of(asks), p->kinds[i],
                  entry_of(phase));
    for (int32_t k = 0, n = 0, more = plain_params(l); k < l->nparams; k++) {
        put(p, k > 0 ? ", " : "");
        if (phase->rows[k] != 0) {
            base_text_add(p->text, "{super_get(%d), super_get(%d)}", n++,
                          more++);
            continue;
        }
        if (l->params[k].kind != CUDA_PARAM_VALUES) {
            base_text_add(p->text, "super_get(%d)", n++);
            continue;
        }
        base_text_add(p->text, "phase_%u::A", p->kinds[i]);
        put_values(p, phase);
    }
    put(p, ");\n");
}

/* Of its part: the kernel knows what it is called only. */
static void
put_text(printer *p, size_t i)
{
    const uint32_t kind = p->kinds[i];
    base_text_add(p->text, "#if SUPER_IS(%u)\nnamespace phase_%u {\n",
                  p->parts[kind], kind);
    put_phase_text(p, &p->run->phases[i], false);
    base_text_add(p->text,
                  "}\nSUPER_FUNCTION void\nsuper_phase_%u()\n{\n"
                  "    using namespace call;\n    super_together();\n",
                  kind);
    put_call(p, i, false);
    base_text_add(p->text,
                  "}\n#elif SUPER_IS(0)\n"
                  "SUPER_FUNCTION void super_phase_%u();\n#endif\n",
                  kind);
}

static void
put_texts(printer *p)
{
    for (size_t i = 0; i < p->run->count; i++)
        if (is_first(p, i))
            put_text(p, i);
}

static bool
is_first_asked(const printer *p, size_t i)
{
    return is_first(p, i) && is_asked(p, &p->run->phases[i]);
}

static void
put_asked(printer *p)
{
    put(p, "#undef skinny\n#define skinny asked\n");
    for (size_t i = 0; i < p->run->count; i++) {
        if (!is_first_asked(p, i))
            continue;
        base_text_add(p->text, "namespace ask_%u {\n", p->kinds[i]);
        put_phase_text(p, &p->run->phases[i], true);
        put(p, "}\n");
    }
    put(p, "#undef skinny\n");
}

static void
put_phases(printer *p)
{
    put(p, "#define gridDim call::super_block.now.grid\n");
    put(p, "#define blockIdx call::super_block.now.block\n");
    if (p->stages > 0)
        put(p, "#define skinny ringed\n");
    put_texts(p);
    put(p, "#if SUPER_IS(0)\n");
    if (p->stages > 0)
        put_asked(p);
    put(p, "#undef gridDim\n#undef blockIdx\n#undef __syncthreads\n");
}

/* ---- tables -------------------------------------------------------------- */

/* A row for each block of a bundle. */
static void
put_bundled(printer *p)
{
    put(p, "__constant__ call::super_job super_program[] = {");
    for (size_t i = 0; i < p->run->count; i++) {
        const uint32_t blocks = shape_of(&p->run->phases[i])->grid[0];
        for (uint32_t b = 0; b < blocks; b++)
            base_text_add(p->text, "{%u,%u,%u,%u},", p->kinds[i], p->first[i],
                          b, blocks);
    }
    put(p, "};\n");
}

static void
put_program(printer *p)
{
    put(p, "__constant__ call::super_phase super_program[] = {");
    for (size_t i = 0; i < p->run->count; i++)
        base_text_add(p->text, "{%u,%u,%d,%u,%d,%d},", p->kinds[i], p->first[i],
                      p->run->phases[i].waits, p->run->phases[i].alone,
                      is_asked(p, &p->run->phases[i]), p->run->phases[i].calm);
    put(p, "{},{}};\n");
}

/* ---- the kernel ---------------------------------------------------------- */

static void
put_cases(printer *p)
{
    for (size_t i = 0; i < p->run->count; i++)
        if (is_first(p, i))
            base_text_add(p->text,
                          "        case %u:\n            super_phase_%u();\n"
                          "            break;\n",
                          p->kinds[i], p->kinds[i]);
}

static void
put_asking_cases(printer *p)
{
    for (size_t i = 0; i < p->run->count; i++) {
        if (!is_first_asked(p, i))
            continue;
        base_text_add(p->text, "        case %u:\n        ", p->kinds[i]);
        put_call(p, i, true);
        put(p, "            break;\n");
    }
}

static void
put_bundle(printer *p)
{
    base_text_add(p->text,
                  "extern \"C\" __global__ __launch_bounds__(%d) void\n"
                  "ENTRY(0)(const __grid_constant__ super_arguments a)\n{\n"
                  "    using namespace call;\n"
                  "    const super_job e = super_program[blockIdx.x];\n"
                  "    super_apart(e, a.v + SUPER_HEAD);\n"
                  "    alone_begin();\n"
                  "    switch (e.kind) {\n",
                  SUPER_THREADS);
    put_cases(p);
    put(p, "    }\n}\n");
}

/* The warp that asks for weights goes through the products by itself; those
 * beside it have given their registers away. */
static void
put_asking(printer *p)
{
    base_text_add(p->text,
                  "    if (super_asks()) {\n"
                  "        super_give_registers();\n"
                  "        for (u32 i = 0; threadIdx.x < %d && i < %zu; i++) "
                  "{\n"
                  "            const super_phase e = super_program[i];\n"
                  "            if (!e.asks)\n"
                  "                continue;\n"
                  "            super_ask(i, a.v[SUPER_HEAD + e.first + "
                  "threadIdx.x %% 32]);\n"
                  "            ring_next.first = 0;\n"
                  "            __syncwarp();\n"
                  "            do {\n"
                  "            switch (e.kind) {\n",
                  SUPER_THREADS + 32, p->run->count);
    put_asking_cases(p);
    put(p, "            }\n            } while (ring_ask());\n"
           "        }\n        return;\n    }\n"
           "    super_take_registers();\n");
}

static void
put_begin(printer *p)
{
    base_text_add(p->text,
                  "extern \"C\" __global__ __launch_bounds__(%u, 1) void\n"
                  "ENTRY(0)(const __grid_constant__ super_arguments a)\n{\n"
                  "    using namespace call;\n"
                  "    super_begin(super_program[0], a.v);\n",
                  p->out->launches[0].shape.block[0]);
    if (p->stages > 0)
        put(p, "    extern __shared__ __align__(1024) char shared[];\n"
               "    ring_begin(shared + RING_AT);\n    ring_align();\n");
    put(p, "    __syncthreads();\n");
    if (p->stages > 0)
        put_asking(p);
}

static void
put_persistent(printer *p)
{
    put_begin(p);
    base_text_add(p->text,
                  "    super_ready(a.v);\n"
                  "    while (super_next(%zu, super_program, a.v)) {\n"
                  "        if (super_is_mine())\n"
                  "        switch (super_block.now.of.kind) {\n",
                  p->run->count);
    put_cases(p);
    put(p, "        }\n        else\n            await();\n    }\n"
           "    super_end();\n}\n");
}

static void
put_kernel(printer *p)
{
    base_text_add(p->text,
                  "struct super_arguments {\n    call::u64 v[%zu];\n};\n",
                  p->out->nmany);
    if (p->run->apart)
        put_bundle(p);
    else
        put_persistent(p);
    put(p, "#endif\n");
}

/* ---- parameters ---------------------------------------------------------- */

static size_t
count_params(const super_run *run)
{
    size_t n = SUPER_HEAD + CUDA_MAX_PARAMS;
    for (size_t i = 0; i < run->count; i++)
        n += (size_t)launch_of(&run->phases[i])->nparams + SUPER_ROWS;
    return n;
}

/* Workspaces are the step's. */
static cuda_param
place(cuda_param p, const air_step *step, const super_phase *phase,
      int64_t words)
{
    if (words != 0)
        return (cuda_param){.kind = CUDA_PARAM_SCRATCH, .value = words};
    if (p.kind == CUDA_PARAM_WORKSPACE)
        return (cuda_param){CUDA_PARAM_POINTER, step->workspace_slot,
                            step->workspace_offset + p.value};
    if (p.kind == CUDA_PARAM_SCRATCH)
        p.value += (int64_t)phase->scratch;
    return p;
}

static void
add_params(printer *p, int64_t patience, const air_step *steps)
{
    cuda_source *out = p->out;
    out->many[0] = (cuda_param){.kind = CUDA_PARAM_SCRATCH};
    out->many[1] = (cuda_param){.kind = CUDA_PARAM_FAULT};
    out->many[2] = (cuda_param){.kind = CUDA_PARAM_INT, .value = patience};
    out->many[3] = (cuda_param){.kind = CUDA_PARAM_SCRATCH,
                                .value = (int64_t)p->run->words};
    out->many[4] =
        (cuda_param){.kind = CUDA_PARAM_INT, .value = (int64_t)p->run->bytes};
    out->nmany = SUPER_HEAD;
    for (size_t i = 0; i < p->run->count; i++) {
        const super_phase *phase = &p->run->phases[i];
        const cuda_launch *l = launch_of(phase);
        p->first[i] = (uint32_t)out->nmany - SUPER_HEAD;
        for (int32_t k = 0; k < l->nparams; k++)
            if (l->params[k].kind != CUDA_PARAM_VALUES)
                out->many[out->nmany++] = place(
                    l->params[k], &steps[phase->step], phase, phase->words[k]);
        for (int32_t k = 0; k < l->nparams; k++)
            if (phase->rows[k] != 0)
                out->many[out->nmany++] = (cuda_param){
                    .kind = CUDA_PARAM_SCRATCH, .value = phase->rows[k]};
    }
    /* Each lane of a warp reads one, wherever a phase's begin. */
    for (int i = 0; i < CUDA_MAX_PARAMS; i++)
        out->many[out->nmany++] = (cuda_param){.kind = CUDA_PARAM_INT};
}

static void
add_launch(printer *p, const cuda_props *props)
{
    const super_run *run = p->run;
    cuda_source *out = p->out;
    cuda_launch *l = &out->launches[0];
    *l = (cuda_launch){.shape = {{(uint32_t)props->processors, 1, 1},
                                 {SUPER_THREADS, 1, 1},
                                 0}};
    out->nlaunches = 1;
    out->together = !run->apart;
    out->scratch = run->apart ? 0 : run->end;
    if (run->apart)
        l->shape.grid[0] = 0;
    for (size_t i = 0; i < run->count; i++) {
        const air_launch *shape = shape_of(&run->phases[i]);
        p->shared = shape->shared > p->shared ? shape->shared : p->shared;
        l->shape.grid[0] += run->apart ? shape->grid[0] : 0;
    }
    p->shared = (p->shared + 127) / 128 * 128;
    l->shape.shared = p->shared;
}

/* As many stages as there is room for; phases have what is left. */
static void
add_ring(printer *p, const cuda_props *props)
{
    enum { UNIT = 1024 };
    air_launch *shape = &p->out->launches[0].shape;
    const size_t all = props->shared_bytes / UNIT * UNIT;
    const size_t used = (p->shared + UNIT - 1) / UNIT * UNIT + SUPER_STATIC;
    size_t stages = all > used ? (all - used) / SUPER_RING_BYTES : 0;
    stages = stages < SUPER_RING_MOST ? stages : SUPER_RING_MOST;
    if (p->run->apart || stages < SUPER_RING_LEAST)
        return;
    p->stages = (uint32_t)stages;
    p->shared = (uint32_t)(all - SUPER_STATIC - stages * SUPER_RING_BYTES);
    shape->block[0] = SUPER_THREADS + SUPER_ASKING;
    shape->shared = p->shared + p->stages * SUPER_RING_BYTES;
}

air_status
cuda_super_print(const air_device *dev, const super_run *run,
                 const air_step *steps, cuda_source *out)
{
    const size_t bytes = run->count * 3 * sizeof(uint32_t);
    printer p = {.run = run, .text = &out->text, .out = out};
    void *room;
    AIR_TRY(base_new(&dev->alloc, count_params(run) * sizeof(cuda_param),
                     (void **)&out->many));
    out->rmany = count_params(run);
    AIR_TRY(base_new(&dev->alloc, bytes, &room));
    p.kinds = room;
    p.first = p.kinds + run->count;
    p.parts = p.first + run->count;
    number_kinds(&p);
    number_parts(&p);
    add_params(&p, dev->patience, steps);
    add_launch(&p, &dev->props);
    add_ring(&p, &dev->props);
    put_preludes(&p);
    put_phases(&p);
    if (run->apart)
        put_bundled(&p);
    else
        put_program(&p);
    put_kernel(&p);
    out->parts = p.stages > 0 ? p.nparts : 0;
    base_free(&dev->alloc, room, bytes);
    return out->text.status;
}
