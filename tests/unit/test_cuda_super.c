/* Runs of steps as one persistent kernel: what becomes a phase, which phases
 * wait, what is launched, and what happens where there is no room for it. */
#include "../cuda/nvrtc.h"
#include "cuda_case.h"
#include "driver/cuda/fuse.h"
#include "driver/cuda/kern_call.h"
#include "driver/cuda/super.h"
#include "exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row normalised, two products of it that a third step joins, a product of
 * that and the row before: the second half of a layer, twice. */
static const char layers[] =
    "graph g(%x: bf16[1, 64], %n: bf16[64], %g: bf16[96, 64] param, "
    "%u: bf16[96, 64] param, %d: bf16[64, 96] param) {\n"
    "  %a: f32[1, 64] = _to_copy(%x, dtype=f32)\n"
    "  %b: f32[1, 64] = pow.Tensor_Scalar(%a, b=2)\n"
    "  %c: f32[1, 1] = mean.dim(%b, dim=[-1], keepdim=true)\n"
    "  %e: f32[1, 1] = rsqrt(%c)\n"
    "  %f: f32[1, 64] = mul.Tensor(%a, %e)\n"
    "  %h: bf16[1, 64] = _to_copy(%f, dtype=bf16)\n"
    "  %y: bf16[1, 64] = mul.Tensor(%h, %n)\n"
    "  %gt: bf16[64, 96] = t(%g)\n"
    "  %ut: bf16[64, 96] = t(%u)\n"
    "  %dt: bf16[96, 64] = t(%d)\n"
    "  %p: bf16[1, 96] = mm(%y, %gt)\n"
    "  %q: bf16[1, 96] = mm(%y, %ut)\n"
    "  %s: bf16[1, 96] = silu(%p)\n"
    "  %m: bf16[1, 96] = mul.Tensor(%s, %q)\n"
    "  %o: bf16[1, 64] = mm(%m, %dt)\n"
    "  %z: bf16[1, 64] = add.Tensor(%x, %o)\n"
    "  %k: bf16[1, 96] = mm(%z, %gt)\n"
    "  return %k\n"
    "}\n";

typedef struct {
    fake_state *cuda, *nvrtc;
    air_gpu gpu;
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_value inputs[8], out;
    size_t ninputs;
    int64_t dims[8][2];
    char data[8][96 * 64 * 2];
} fixture;

static void
find_inputs(fixture *f)
{
    air_input in;
    for (; air_graph_get_input(f->graph, f->ninputs, &in); f->ninputs++) {
        const size_t i = f->ninputs;
        for (int k = 0; k < in.type.rank; k++)
            CHECK_OK(air_dim_hint(f->graph, in.type.dims[k], &f->dims[i][k]));
        f->inputs[i] = air_value_tensor(f->data[i], in.type.dtype, in.type.rank,
                                        f->dims[i]);
    }
}

static bool
prepare_exact(fixture *f, const char *text, int major, air_persistent which,
              bool exact, int threads)
{
    const air_compile_options how = {.exact = exact};

    *f = (fixture){.cuda = cuda_case_state(FAKE_CUDA "/libcuda.so.1"),
                   .nvrtc = cuda_case_state(FAKE_CUDA "/libnvrtc.so.13"),
                   .gpu = {.libraries = FAKE_CUDA,
                           .persistent = which,
                           .persistent_ms = 1500}};
    const air_options options = {
        .driver = "cuda", .threads = threads, .gpu = &f->gpu};
    if (!CHECK(f->cuda && f->nvrtc))
        return false;
    *f->cuda = *f->nvrtc =
        (fake_state){.gpus = 1, .major = major, .error = 999};
    CHECK_OK(air_context_create(&options, &f->ctx));
    CHECK_OK(air_graph_parse(f->ctx, text, strlen(text), &f->graph));
    CHECK_OK(air_program_create(f->ctx, f->graph, &how, &f->program));
    find_inputs(f);
    return f->program != NULL;
}

static bool
prepare_on(fixture *f, const char *text, int major, air_persistent which)
{
    return prepare_exact(f, text, major, which, false, 1);
}

/* Parts are compiled where there is more than one thread for them. */
static bool
prepare_parts(fixture *f, const char *text)
{
    return prepare_exact(f, text, 9, AIR_PERSISTENT_ALL, false, 2);
}

static bool
prepare(fixture *f, const char *text)
{
    return prepare_on(f, text, 9, AIR_PERSISTENT_ALL);
}

static air_status
run(fixture *f)
{
    return air_program_run(f->program, NULL, f->ninputs, f->inputs, 1, &f->out);
}

static void
close_all(fixture *f)
{
    air_value_release(&f->out);
    air_program_destroy(f->program);
    air_graph_destroy(f->graph);
    air_context_destroy(f->ctx);
}

static void
drop(fixture *f)
{
    close_all(f);
    CHECK_INT(f->cuda->live, 0);
    CHECK_INT(f->nvrtc->live, 0);
}

TEST(cuda_super_is_one_launch_of_all_processors)
{
    fixture f;
    REQUIRE(prepare(&f, layers));
    CHECK_OK(run(&f));
    CHECK_INT(f.cuda->launches, 1);
    CHECK_INT(f.cuda->together, 1);
    CHECK_INT(f.nvrtc->compiled, 1);
    CHECK_INT(f.cuda->launch[0].grid[0], 132);
    CHECK_INT(f.cuda->launch[0].block[0], SUPER_THREADS + SUPER_ASKING);
    drop(&f);
}

/* The kernel, and its three products. */
enum { PARTS = 4 };

TEST(cuda_super_is_linked_of_parts)
{
    fixture f;
    REQUIRE(prepare_parts(&f, layers));
    CHECK_OK(run(&f));
    CHECK_INT(f.nvrtc->compiled, PARTS);
    CHECK_INT(f.cuda->parts, PARTS);
    CHECK(strstr(f.nvrtc->options, "--relocatable-device-code=true") &&
          strstr(f.nvrtc->options, "--maxrregcount=168") &&
          strstr(f.nvrtc->options, "--define-macro=SUPER_PART="));
    drop(&f);
}

/* Does the program say that of its list, or, where it should not, does it? */
static bool
says_or_not(const fixture *f, const char *what, bool wanted)
{
    char *text = NULL;
    CHECK_OK(air_program_print(f->program, AIR_TEXT_EXPLAIN, &text));
    const bool found = text && strstr(text, what);
    if (found != wanted)
        fprintf(stderr, "%s\n", text ? text : "");
    air_program_text_free(f->program, text);
    return found;
}

static bool
says(const fixture *f, const char *what)
{
    return says_or_not(f, what, true);
}

TEST(cuda_super_that_is_not_linked_is_compiled_as_a_whole)
{
    fixture f;
    REQUIRE(prepare_parts(&f, layers));
    f.cuda->unlinked = true;
    CHECK_OK(run(&f));
    CHECK_INT(f.nvrtc->compiled, PARTS + 1);
    CHECK_INT(f.cuda->together, 1);
    CHECK(says(&f, "compiled as a whole: parts of a kernel do not fit"));
    CHECK(!strstr(f.nvrtc->options, "SUPER_PART"));
    drop(&f);
}

/* Four products of ROWS rows, of weights of 8 MB or of a part of them. */
static const char four[] =
    "graph g(%x: bf16[ROWS, SIZE], %w: bf16[SIZE, SIZE] param) {\n"
    "  %t: bf16[SIZE, SIZE] = t(%w)\n"
    "  %a: bf16[ROWS, SIZE] = mm(%x, %t)JOINED\n"
    "  %b: bf16[ROWS, SIZE] = mm(%a, %t)JOINED\n"
    "  %c: bf16[ROWS, SIZE] = mm(%b, %t)\n"
    "  %d: bf16[ROWS, SIZE] = mm(%c, %t)\n"
    "  return %d\n"
    "}\n";

static void
replace(char *text, size_t room, const char *what, const char *by)
{
    for (char *at; (at = strstr(text, what)) != NULL;) {
        const size_t rest = strlen(at + strlen(what)) + 1;
        REQUIRE((size_t)(at - text) + strlen(by) + rest <= room);
        memmove(at + strlen(by), at + strlen(what), rest);
        memcpy(at, by, strlen(by));
    }
}

TEST(cuda_super_is_where_it_pays)
{
    static const struct {
        air_persistent which;
        const char *rows, *size, *joined;
        int major;
        bool exact;
        int launches, together;
        const char *said; /* "-": nothing of persistent kernels */
    } cases[] = {
        {AIR_PERSISTENT_PAYS, "1", "2048", "", 9, false, 1, 1,
         "list: 1 persistent kernel of 4 phases"},
        {AIR_PERSISTENT_PAYS, "1", "2048", " joined", 9, true, 3, 1,
         "list: 1 persistent kernel of 2 phases"},
        {AIR_PERSISTENT_PAYS, "1", "2048", "", 9, true, 4, 0, "-"},
        {AIR_PERSISTENT_PAYS, "1", "2048", "", 10, false, 4, 0, "-"},
        {AIR_PERSISTENT_PAYS, "1", "2048", " joined", 10, true, 3, 1,
         "list: 1 persistent kernel of 2 phases"},
        {AIR_PERSISTENT_PAYS, "1", "1024", "", 9, false, 4, 0, "-"},
        {AIR_PERSISTENT_PAYS, "1", "1024", " joined", 9, false, 4, 0,
         "list: no persistent kernel: weights so small that launches are "
         "faster, from the first of mm"},
        {AIR_PERSISTENT_PAYS, "2", "2048", "", 9, false, 4, 0, "-"},
        {AIR_PERSISTENT_PAYS, "2", "2048", " joined", 9, false, 4, 0,
         "list: no persistent kernel: products of several rows, of which "
         "launches are faster, of mm"},
        {AIR_PERSISTENT_NONE, "1", "2048", " joined", 9, false, 4, 0, "-"},
        {AIR_PERSISTENT_ALL, "1", "64", "", 9, true, 1, 1,
         "list: 1 persistent kernel of 4 phases"},
        {AIR_PERSISTENT_ALL, "8", "64", "", 9, false, 1, 1,
         "list: 1 persistent kernel of 4 phases"},
        {AIR_PERSISTENT_ALL, "9", "64", "", 9, false, 4, 0,
         "list: no persistent kernel: products of more than 8 rows of mm"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        char text[1024];
        memcpy(text, four, sizeof four);
        replace(text, sizeof text, "ROWS", cases[i].rows);
        replace(text, sizeof text, "SIZE", cases[i].size);
        replace(text, sizeof text, "JOINED", cases[i].joined);
        REQUIRE(prepare_exact(&f, text, cases[i].major, cases[i].which,
                              cases[i].exact, 1));
        CHECK_OK(run(&f));
        CHECK_INT(f.cuda->launches, cases[i].launches);
        CHECK_INT(f.cuda->together, cases[i].together);
        if (*cases[i].said == '-')
            CHECK(!says_or_not(&f, "persistent", false));
        else
            CHECK(says(&f, cases[i].said));
        drop(&f);
    }
}

/* Its words and counters: nothing orders the first run of a list and its graph
 * where two threads give them. */
TEST(cuda_super_has_memory_of_its_own_in_a_graph)
{
    fixture f;
    REQUIRE(prepare(&f, layers));
    for (int i = 0; i < 3; i++) {
        air_value_release(&f.out);
        f.out = (air_value){.data = NULL};
        CHECK_OK(run(&f));
    }
    CHECK_INT(f.cuda->instantiated, 1);
    const uint64_t first = f.cuda->launch[0].params[0];
    CHECK(first != 0 && f.cuda->launch[1].params[0] != 0);
    CHECK(f.cuda->launch[1].params[0] != first);
    CHECK(f.cuda->launch[2].params[0] == f.cuda->launch[1].params[0]);
    drop(&f);
}

TEST(cuda_super_without_room_is_launch_after_launch)
{
    fixture f;
    REQUIRE(prepare(&f, layers));
    f.cuda->crowded = true;
    CHECK_OK(run(&f));
    CHECK(f.cuda->launches > 1);
    CHECK_INT(f.cuda->together, 0);
    CHECK(says(&f, "list: no persistent kernel: a persistent kernel needs 132 "
                   "blocks at once"));
    drop(&f);
}

TEST(cuda_super_is_explained)
{
    fixture f;
    REQUIRE(prepare(&f, layers));
    CHECK_OK(run(&f));
    CHECK(says(&f, "list: 1 persistent kernel of "));
    drop(&f);
}

TEST(cuda_super_needs_a_capability)
{
    fixture f;
    REQUIRE(prepare_on(&f, layers, 8, AIR_PERSISTENT_ALL));
    CHECK_OK(run(&f));
    CHECK_INT(f.cuda->together, 0);
    CHECK(says(&f, "compute capability 9.0 is needed"));
    drop(&f);
}

TEST(cuda_super_that_gives_up_is_an_error_of_the_next_run)
{
    fixture f;
    REQUIRE(prepare(&f, layers));
    CHECK_OK(run(&f));
    air_value_release(&f.out);
    *f.ctx->device->fault = (cuda_fault){5, 131, CUDA_FAULT_STUCK};
    CHECK(run(&f) == AIR_ERROR_DRIVER);
    const char *message = air_last_error()->message;
    CHECK(strstr(message, "phase 5") && strstr(message, "1500 ms") &&
          strstr(message, "131") &&
          strstr(message, "TORCHAIR_CUDA_PERSISTENT"));
    CHECK_OK(run(&f));
    drop(&f);
}

/* ---- what is printed ----------------------------------------------------- */

/* The sources of a program's steps, joined. */
typedef struct {
    const air_step *steps;
    size_t count;
    cuda_source sources[64];
    super_report report;
} printed;

static void
print(fixture *f, printed *p)
{
    exec_spec *spec;
    size_t next;
    f->ctx->device->gpu.persistent = AIR_PERSISTENT_NONE;
    REQUIRE_OK(air_program_prepare(f->program, f->ninputs, f->inputs));
    f->ctx->device->gpu.persistent = AIR_PERSISTENT_ALL;
    spec = exec_specs_newest(f->program);
    *p = (printed){.steps = spec->list_steps, .count = spec->steps.count};
    REQUIRE(p->count <= 64);
    for (size_t i = 0; i < p->count; i++)
        base_text_init(&p->sources[i].text, &base_libc_alloc);
    for (size_t i = 0; i < p->count; i = next) {
        fuse_group g;
        cuda_fuse_find(p->steps, p->count, i, &g);
        next = i + (g.count > 1 ? (size_t)g.count : 1);
        if (g.count > 1)
            CHECK_OK(
                cuda_fuse_print(&g, &f->ctx->device->props, &p->sources[i]));
        else
            CHECK_OK(cuda_kernel_print(f->ctx->device, p->steps[i].kernel,
                                       &p->steps[i].call, &p->sources[i]));
    }
    CHECK_OK(cuda_super_join(f->ctx->device, p->steps, p->count, p->sources,
                             &p->report));
    CHECK_OK(cuda_bundle_join(f->ctx->device, p->steps, p->count, p->sources));
    exec_spec_release(f->program, spec); /* the program keeps it */
}

static void
drop_printed(printed *p)
{
    for (size_t i = 0; i < p->count; i++) {
        base_text_deinit(&p->sources[i].text);
        base_free(&base_libc_alloc, p->sources[i].many,
                  p->sources[i].rmany * sizeof(cuda_param));
    }
}

static size_t
launches(const printed *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->count; i++)
        n += (size_t)p->sources[i].nlaunches;
    return n;
}

static void
compile(const cuda_source *s)
{
    static char log[20000];
    if (!nvrtc_possible())
        return;
    char *unit = nvrtc_unit(s->prelude ? s->prelude : "", s->text.data);
    bool good = nvrtc_compile(unit, log, sizeof log);
    for (uint32_t i = 0; s->parts > 0 && i <= s->parts && good; i++)
        good = nvrtc_compile_part(unit, i, log, sizeof log);
    if (!good) {
        fprintf(stderr, "%s\n%s\n", s->text.data, log);
        test_fail(__FILE__, __LINE__, "%s", "it does not compile");
    }
    free(unit);
}

TEST(cuda_super_has_one_function_for_equal_phases)
{
    fixture f;
    printed p;
    REQUIRE(prepare(&f, layers));
    print(&f, &p);
    CHECK_INT(launches(&p), 1);
    const char *text = p.sources[0].text.data;
    CHECK(strstr(text, "namespace phase_0 {") &&
          !strstr(text, "extern \"C\" __global__ __launch_bounds__(256) void\n"
                        "ENTRY(1)"));
    /* Whatever else the texts declare: copies to other places are slower. */
    CHECK(strstr(text, "extern __shared__ __align__(1024) char shared[];\n"
                       "    ring_begin("));
    CHECK(p.sources[0].together && p.sources[0].scratch >= SUPER_STATE);
    CHECK_INT(p.sources[0].many[2].value, 1500000000);
    compile(&p.sources[0]);
    drop_printed(&p);
    drop(&f);
}

/* Rows of the table `{kind, first, waits, alone, asks, calm}` that wait so. */
static int
waits_of(const char *text, super_wait how)
{
    int kind, first, waits, alone, asks, calm, n = 0, used = 0;
    const char *at = strstr(text, "super_program[] = {");
    at += strlen("super_program[] = {");
    while (sscanf(at, "{%d,%d,%d,%d,%d,%d},%n", &kind, &first, &waits, &alone,
                  &asks, &calm, &used) == 6) {
        n += waits == (int)how;
        at += used;
    }
    return n;
}

TEST(cuda_super_waits_where_a_phase_depends_on_another)
{
    /* Two products of the inputs, which wait for nothing, and one of both. What
     * they hand on are words, but for a result of the program. */
    static const char text[] =
        "graph g(%x: bf16[1, 64], %w: bf16[64, 64] param, %v: bf16[64, 64] "
        "param, %z: bf16[1, 64]) {\n"
        "  %wt: bf16[64, 64] = t(%w)\n"
        "  %vt: bf16[64, 64] = t(%v)\n"
        "  %a: bf16[1, 64] = mm(%x, %wt)\n"
        "  %b: bf16[1, 64] = mm(%z, %vt)\n"
        "  %c: bf16[1, 64] = mm(%a, %vt)\n"
        "  %d: bf16[1, 64] = mm(%b, %wt)\n"
        "  %e: bf16[1, 64] = add.Tensor(%c, %d)\n";
    char whole[sizeof text + 40];
    fixture f;
    printed p;
    (void)snprintf(whole, sizeof whole, "%s  return %%e\n}\n", text);
    REQUIRE(prepare(&f, whole));
    print(&f, &p);
    CHECK_INT(launches(&p), 1);
    CHECK_INT(waits_of(p.sources[0].text.data, SUPER_COUNT), 2);
    CHECK_INT(waits_of(p.sources[0].text.data, SUPER_MEMORY), 0);
    drop_printed(&p);
    drop(&f);
    REQUIRE(prepare(&f, whole));
    f.ctx->device->checks = true;
    print(&f, &p);
    CHECK_INT(waits_of(p.sources[0].text.data, SUPER_MEMORY), 3);
    drop_printed(&p);
    drop(&f);
    (void)snprintf(whole, sizeof whole, "%s  return %%e, %%a\n}\n", text);
    REQUIRE(prepare(&f, whole));
    print(&f, &p);
    CHECK_INT(waits_of(p.sources[0].text.data, SUPER_MEMORY), 1);
    drop_printed(&p);
    drop(&f);
}

TEST(cuda_super_ends_where_a_weight_is_computed)
{
    static const char text[] =
        "graph g(%x: bf16[1, 64], %w: bf16[64, 64] param, %v: bf16[1, 64]) {\n"
        "  %wt: bf16[64, 64] = t(%w)\n"
        "  %a: bf16[1, 64] = mm(%x, %wt)\n"
        "  %b: bf16[1, 64] = mm(%a, %wt)\n"
        "  %s: bf16[64, 64] = mul.Tensor(%w, %v)\n"
        "  %st: bf16[64, 64] = t(%s)\n"
        "  %c: bf16[1, 64] = mm(%b, %st)\n"
        "  %d: bf16[1, 64] = mm(%c, %wt)\n"
        "  return %d\n"
        "}\n";
    fixture f;
    printed p;
    REQUIRE(prepare(&f, text));
    print(&f, &p);
    CHECK_INT(launches(&p), 2);
    drop_printed(&p);
    drop(&f);
}

TEST(cuda_super_of_small_steps_is_a_bundle)
{
    static const char text[] =
        "graph g(%x: f32[1, 70], %y: bf16[1, 90], %z: f32[1, 70]) {\n"
        "  %a: f32[1, 70] = exp(%x)\n"
        "  %b: f32[1, 90] = _to_copy(%y, dtype=f32)\n"
        "  %c: f32[1, 160] = cat([%a, %b], 1)\n"
        "  return %c\n"
        "}\n";
    fixture f;
    printed p;
    REQUIRE(prepare(&f, text));
    print(&f, &p);
    CHECK_INT(launches(&p), 1);
    const cuda_source *s = &p.sources[0];
    CHECK(!s->together && s->many && s->scratch == 0);
    CHECK_INT(s->launches[0].shape.grid[0], 2);
    compile(s);
    drop_printed(&p);
    drop(&f);
}

TEST(cuda_super_is_for_products_of_few_rows)
{
    static const char text[] =
        "graph g(%x: bf16[64, 64], %w: bf16[64, 64] param) {\n"
        "  %wt: bf16[64, 64] = t(%w)\n"
        "  %a: bf16[64, 64] = mm(%x, %wt)\n"
        "  %b: bf16[64, 64] = mm(%a, %wt)\n"
        "  return %b\n"
        "}\n";
    fixture f;
    REQUIRE(prepare(&f, text));
    CHECK_OK(run(&f));
    CHECK_INT(f.cuda->together, 0);
    CHECK(says(&f, "no persistent kernel: a product of cuBLASLt of ") ||
          says(&f, "no persistent kernel: no template of "));
    drop(&f);
}

/* Softmax over long rows is clusters of blocks on this GPU. */
TEST(cuda_super_leaves_clusters_alone)
{
    static const char text[] =
        "graph g(%x: bf16[1, 64], %w: bf16[64, 64] param, "
        "%s: f32[5, 40001]) {\n"
        "  %wt: bf16[64, 64] = t(%w)\n"
        "  %a: bf16[1, 64] = mm(%x, %wt)\n"
        "  %b: bf16[1, 64] = mm(%a, %wt)\n"
        "  %p: f32[5, 40001] = _softmax(%s, dim=-1, half_to_float=false)\n"
        "  %o: f32[1, 40001] = slice.Tensor(%p, dim=0, start=0, end=1)\n"
        "  %q: f32[1, 64] = slice.Tensor(%o, dim=1, start=0, end=64)\n"
        "  %r: bf16[1, 64] = _to_copy(%q, dtype=bf16)\n"
        "  %c: bf16[1, 64] = mm(%r, %wt)\n"
        "  %d: bf16[1, 64] = mul.Tensor(%c, %b)\n"
        "  return %d\n"
        "}\n";
    fixture f;
    printed p;
    REQUIRE(prepare(&f, text));
    print(&f, &p);
    CHECK(p.report.why && strcmp(p.report.why, "clusters of blocks") == 0);
    for (size_t i = 0; i < p.count; i++)
        CHECK(!p.sources[i].together ||
              !strstr(p.sources[i].text.data, "__cluster_dims__"));
    drop_printed(&p);
    drop(&f);
}

/* ---- what fails ---------------------------------------------------------- */

/* Three runs: launched, made a graph, the graph again. */
static air_status
run_thrice(fixture *f, const air_alloc *alloc)
{
    const air_options options = {
        .driver = "cuda", .threads = 1, .gpu = &f->gpu, .alloc = alloc};
    AIR_TRY(air_context_create(&options, &f->ctx));
    AIR_TRY(air_graph_parse(f->ctx, layers, strlen(layers), &f->graph));
    AIR_TRY(air_program_create(f->ctx, f->graph, NULL, &f->program));
    find_inputs(f);
    for (int i = 0; i < 3; i++) {
        air_value_release(&f->out);
        f->out = (air_value){.data = NULL};
        AIR_TRY(run(f));
    }
    return AIR_OK;
}

static fixture
failing(long call)
{
    fixture f = {
        .cuda = cuda_case_state(FAKE_CUDA "/libcuda.so.1"),
        .nvrtc = cuda_case_state(FAKE_CUDA "/libnvrtc.so.13"),
        .gpu = {.libraries = FAKE_CUDA, .persistent = AIR_PERSISTENT_ALL}};
    *f.cuda = *f.nvrtc =
        (fake_state){.gpus = 1, .major = 9, .error = 999, .fail_at = call};
    return f;
}

TEST(cuda_super_every_call_may_fail)
{
    bool done = false;
    for (long call = 1; !done && call < 200; call++) {
        fixture f = failing(call);
        const air_status status = run_thrice(&f, &base_libc_alloc);
        CHECK(status == AIR_OK || status == AIR_ERROR_DRIVER ||
              status == AIR_ERROR_UNSUPPORTED);
        done =
            status == AIR_OK && f.cuda->calls < call && f.nvrtc->calls < call;
        close_all(&f);
        CHECK_INT(f.cuda->live, 0);
        CHECK_INT(f.nvrtc->live, 0);
    }
    CHECK(done);
}

static air_status
run_failing(const air_alloc *alloc, void *user)
{
    fixture *f = user;
    *f = failing(0);
    const air_status status = run_thrice(f, alloc);
    close_all(f);
    CHECK_INT(f->cuda->live, 0);
    return status;
}

TEST(cuda_super_every_allocation_may_fail)
{
    static fixture f;
    TEST_OOM(run_failing, &f);
}

/* An operator that is the application's on a GPU, and no application. */
TEST(cuda_names_what_it_has_no_kernel_for)
{
    const char *text =
        "graph f(%x: f32[4, 6], %t: f32[6], %u: f32[6]) {\n"
        "  %1, %2 = fake_quantize_per_channel_affine_cachemask(%x, %t, %u, 1, "
        "0, 255)\n"
        "  return %1\n}\n";
    fixture f;
    REQUIRE(prepare(&f, text));
    CHECK_FAILS(run(&f), UNSUPPORTED);
    CHECK(strstr(air_last_error()->message,
                 "driver cuda has no kernel for "
                 "fake_quantize_per_channel_affine_cachemask"));
    drop(&f);
}
