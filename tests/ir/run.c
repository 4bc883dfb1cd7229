/* run.c: tests of passes as text files: `run [-u] FILE...`.
 *
 *     # case: what it shows
 *     # pass: canonicalise, cse      rows of passes.def; `all`: the pipeline
 *     # mode: exact                  (default: fast)
 *     # without: inplace             bits of air_without.def
 *     # device: fine weights         air_target.fine_weights; bundles:
 *                                  .bundles; moments: .moments; avx512: .isa
 *     graph f(...) { ... }
 *     # expect:                    the graph it becomes; value names are free
 *     graph f(...) { ... }
 *     # fails: SHAPE               instead of expect: the status
 *
 * Without a pass, the graph must print as it was written. -u prints the file
 * with what came out in the place of what was expected. Each case runs again
 * with allocation 1, 2, 3 ... failing: nothing may leak. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

/* ---- an allocator that counts and fails ---------------------------------- */

typedef struct {
    air_alloc alloc;
    long calls, live, fail_at;
} counting;

static void *
counting_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    counting *c = user;

    if (new_size == 0) {
        c->live -= ptr != NULL;
        return base_libc_alloc.resize(base_libc_alloc.user, ptr, old_size, 0);
    }
    if (++c->calls == c->fail_at)
        return NULL;
    void *fresh =
        base_libc_alloc.resize(base_libc_alloc.user, ptr, old_size, new_size);
    c->live += !ptr && fresh;
    return fresh;
}

/* ---- cases --------------------------------------------------------------- */

typedef struct {
    const char *file, *title;
    char title_text[128], passes[128], fails[32], without[64];
    bool exact, fine_weights, bundles, moments, avx512;
    const char *graph, *expect; /* in the file's text */
    size_t graph_len, expect_len;
} test_case;

/* The rest of a line that starts with "# key:". */
static bool
line_key(const char *line, const char *key, char *out, size_t size)
{
    size_t len = strlen(key);

    if (strncmp(line, "# ", 2) != 0 || strncmp(line + 2, key, len) != 0 ||
        line[2 + len] != ':')
        return false;
    line += 3 + len;
    line += strspn(line, " ");
    size_t n = strcspn(line, "\n");
    if (n >= size)
        n = size - 1;
    memcpy(out, line, n);
    out[n] = '\0';
    return true;
}

static const char *
next_line(const char *p)
{
    p += strcspn(p, "\n");
    return *p ? p + 1 : p;
}

/* Reads one case; gives where the next one starts. */
static const char *
read_case(const char *p, test_case *c)
{
    char word[128];
    bool after = false;

    line_key(p, "case", c->title_text, sizeof c->title_text);
    c->title = c->title_text;
    for (p = next_line(p); *p; p = next_line(p)) {
        if (line_key(p, "case", word, sizeof word))
            break;
        if (line_key(p, "pass", c->passes, sizeof c->passes) ||
            line_key(p, "without", c->without, sizeof c->without) ||
            line_key(p, "fails", c->fails, sizeof c->fails))
            continue;
        if (line_key(p, "mode", word, sizeof word)) {
            c->exact = strcmp(word, "exact") == 0;
        } else if (line_key(p, "device", word, sizeof word)) {
            c->fine_weights = strcmp(word, "fine weights") == 0;
            c->bundles = strcmp(word, "bundles") == 0;
            c->moments = strcmp(word, "moments") == 0;
            c->avx512 = strcmp(word, "avx512") == 0;
        } else if (line_key(p, "expect", word, sizeof word)) {
            after = true;
            c->expect = next_line(p);
        } else if (!c->graph) {
            c->graph = p;
        }
        if (after)
            c->expect_len = (size_t)(next_line(p) - c->expect);
        else if (c->graph)
            c->graph_len = (size_t)(next_line(p) - c->graph);
    }
    if (c->expect)
        c->expect_len = (size_t)(p - c->expect);
    return p;
}

/* ---- running one --------------------------------------------------------- */

/* Results of nodes are named by their place: %0, %1 ... */
static air_status
rename_values(ir_graph *g)
{
    char name[16];
    int n = 0;

    IR_FOR_EACH(g, id)
    for (int i = 0; i < ir_node_at(g, id)->nouts; i++) {
        ir_value *v = ir_val(g, ir_node_at(g, id)->outs[i]);
        int len = snprintf(name, sizeof name, "%d", n++);
        AIR_TRY(base_arena_str(&g->arena, name, (size_t)len, &v->name));
    }
    return AIR_OK;
}

static unsigned
without_bits(const char *names)
{
    unsigned bits = 0;
    const char *name;

    for (size_t i = 0; (name = air_without_name(i, NULL)) != NULL; i++)
        if (strcmp(names, name) == 0)
            bits |= 1u << i;
    return bits;
}

static air_status
run_passes(ir_graph *g, const air_alloc *alloc, const test_case *c)
{
    air_compile_options options = {.exact = c->exact,
                                   .without = without_bits(c->without)};
    const air_target target = {.fine_weights = c->fine_weights,
                               .bundles = c->bundles,
                               .moments = c->moments,
                               .isa = c->avx512 ? "avx512" : NULL};
    char list[128];

    strcpy(list, c->passes);
    if (strcmp(list, "all") == 0)
        return pass_run_all(g, alloc, &options, &target, true, NULL, NULL);
    for (char *at = list, *name; (name = strtok_r(at, ", ", &at)) != NULL;)
        AIR_TRY(pass_run_one(g, alloc, &options, &target, name));
    return AIR_OK;
}

static air_status
work(const air_alloc *alloc, const test_case *c, ir_graph **g, base_text *out)
{
    AIR_TRY(ir_parse(alloc, c->graph, c->graph_len, g));
    AIR_TRY(run_passes(*g, alloc, c));
    if (c->passes[0])
        AIR_TRY(rename_values(*g));
    AIR_TRY(ir_print(*g, out));
    return out->status;
}

static air_status
run_case(const air_alloc *alloc, const test_case *c, base_text *out)
{
    ir_graph *g = NULL;

    base_text_init(out, alloc);
    air_status status = work(alloc, c, &g, out);
    if (g)
        ir_graph_free(g);
    return status;
}

static air_status
normal_form(const test_case *c, base_text *out)
{
    test_case plain = {.graph = c->expect, .graph_len = c->expect_len};
    ir_graph *g = NULL;

    base_text_init(out, &base_libc_alloc);
    air_status status =
        ir_parse(&base_libc_alloc, plain.graph, plain.graph_len, &g);
    if (status == AIR_OK)
        status = rename_values(g);
    if (status == AIR_OK)
        status = ir_print(g, out);
    if (g)
        ir_graph_free(g);
    return status;
}

static int
fail(const test_case *c, const char *what, const char *got, const char *want)
{
    printf("FAIL %s: %s: %s\n", c->file, c->title, what);
    if (got)
        printf("--- got\n%s", got);
    if (want)
        printf("--- want\n%s", want);
    return 1;
}

static const char *const status_names[] = {
#define STATUS(id, text, doc) #id,
#include "air_status.def"
#undef STATUS
};

static int
check_result(const test_case *c, air_status status, const base_text *got)
{
    base_text want;
    int bad = 0;

    if (c->fails[0])
        return strcmp(status_names[status], c->fails) == 0
                   ? 0
                   : fail(c, "another status", status_names[status], NULL);
    if (status != AIR_OK)
        return fail(c, air_last_error()->message, NULL, NULL);
    if (!c->expect)
        return strlen(got->data) == c->graph_len &&
                       memcmp(got->data, c->graph, c->graph_len) == 0
                   ? 0
                   : fail(c, "prints in another way", got->data, NULL);
    if (normal_form(c, &want) != AIR_OK)
        bad = fail(c, air_last_error()->message, got->data, NULL);
    else if (strcmp(got->data, want.data) != 0)
        bad = fail(c, "another graph", got->data, want.data);
    base_text_deinit(&want);
    return bad;
}

static int
check_memory(const test_case *c, air_status expected)
{
    counting mem = {.alloc = {counting_resize, NULL}};
    base_text out;
    air_status status;

    mem.alloc.user = &mem;
    do {
        mem.calls = 0;
        mem.fail_at++;
        status = run_case(&mem.alloc, c, &out);
        base_text_deinit(&out);
        if (mem.live != 0)
            return fail(c, "memory leaked after a failed allocation", NULL,
                        NULL);
        if (status != AIR_ERROR_MEMORY && status != expected)
            return fail(c, "out of memory gave another status",
                        status_names[status], NULL);
    } while (mem.calls >= mem.fail_at);
    return 0;
}

static int
test_one(const test_case *c)
{
    base_text got;
    air_status status = run_case(&base_libc_alloc, c, &got);
    int bad = check_result(c, status, &got);

    base_text_deinit(&got);
    return bad ? bad : check_memory(c, status);
}

/* ---- files --------------------------------------------------------------- */

static char *
read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size;

    if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        rewind(file);
        text = base_libc_alloc.resize(NULL, NULL, 0, (size_t)size + 1);
        if (text)
            text[fread(text, 1, (size_t)size, file)] = '\0';
    }
    if (file)
        fclose(file);
    return text;
}

static void
update(const test_case *c, const char *from, const char *to)
{
    base_text got;

    if (c->expect && run_case(&base_libc_alloc, c, &got) == AIR_OK) {
        printf("%.*s%s\n", (int)(c->expect - from), from, got.data);
        base_text_deinit(&got);
    } else {
        printf("%.*s", (int)(to - from), from);
    }
}

static int
run_file(const char *path, bool rewrite, int *cases)
{
    char *text = read_file(path);
    char word[8];
    int bad = 0;

    if (!text) {
        printf("FAIL %s: cannot be read\n", path);
        return 1;
    }
    const char *p = text;
    while (*p && !line_key(p, "case", word, sizeof word))
        p = next_line(p);
    if (rewrite)
        printf("%.*s", (int)(p - text), text);
    while (*p) {
        test_case c = {.file = path};
        const char *from = p;
        p = read_case(p, &c);
        if (rewrite)
            update(&c, from, p);
        else
            bad += test_one(&c);
        (*cases)++;
    }
    base_libc_alloc.resize(NULL, text, strlen(text) + 1, 0);
    return bad;
}

int
main(int argc, char **argv)
{
    bool rewrite = argc > 1 && strcmp(argv[1], "-u") == 0;
    int bad = 0, cases = 0;

    if (ir_ops_init() != AIR_OK)
        return 1;
    for (int i = rewrite ? 2 : 1; i < argc; i++)
        bad += run_file(argv[i], rewrite, &cases);
    if (!rewrite)
        printf("%d passed, %d failed\n", cases - bad, bad);
    return bad != 0 || cases == 0;
}
