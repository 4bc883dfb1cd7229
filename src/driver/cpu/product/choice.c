/* choice.c: measured choices, in memory and in a file. */
#include "driver/cpu/product/choice.h"
#include "base/file.h"
#include "base/text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEAD    "torchair choices 2\n"
#define MOST    ((size_t)1 << 20) /* bytes of a file */
#define SECONDS 1.5               /* of measuring, in a process */
#define SLOWEST ((int64_t)60 * 1000 * 1000 * 1000)
#define RUNS    2    /* processes that measure a class */
#define CLEAR   1.08 /* so much faster, to be taken against the rule */

typedef BASE_VEC(cpu_choice) choices_vec;

struct cpu_choices {
    air_alloc alloc;
    pthread_mutex_t mutex;
    choices_vec known; /* of this machine */
    double spent;
    char path[BASE_MAX_PATH], machine[CPU_CHOICE_MACHINE];
};

/* ---- a line ---- */

typedef struct {
    const char *at;
    size_t len;
} word;

/* The word up to `end`, which is skipped. */
static bool
next_word(const char **at, const char *stop, char end, word *out)
{
    const char *e = memchr(*at, end, (size_t)(stop - *at));
    if (e == NULL)
        return false;
    *out = (word){*at, (size_t)(e - *at)};
    *at = e + 1;
    return true;
}

static bool
read_time(word w, int64_t *out)
{
    int64_t t = 0;
    if (w.len == 0 || w.len > 12)
        return false;
    for (size_t i = 0; i < w.len; i++) {
        if (w.at[i] < '0' || w.at[i] > '9')
            return false;
        t = t * 10 + (w.at[i] - '0');
    }
    *out = t;
    return t > 0 && t < SLOWEST;
}

static bool
is_word(word w, size_t most)
{
    for (size_t i = 0; i < w.len; i++)
        if ((unsigned char)w.at[i] < ' ')
            return false;
    return w.len > 0 && w.len < most;
}

/* [at, stop) without the line's end. */
static bool
read_line(const char *at, const char *stop, word *machine, cpu_choice *out)
{
    word key, own, library;
    if (!next_word(&at, stop, '\t', machine) ||
        !next_word(&at, stop, '\t', &key) ||
        !next_word(&at, stop, '\t', &own) ||
        !next_word(&at, stop, '\t', &library))
        return false;
    if (!is_word(*machine, CPU_CHOICE_MACHINE) ||
        !is_word(key, CPU_CHOICE_KEY) || !read_time(own, &out->own) ||
        !read_time(library, &out->library) || stop - at != 1 || *at < '1' ||
        *at > '9')
        return false;
    memcpy(out->key, key.at, key.len);
    out->key[key.len] = '\0';
    out->runs = *at - '0';
    out->here = false;
    return true;
}

/* ---- a file ---- */

/* The file's text, NULL where there is none that is ours. */
static air_status
read_file(const cpu_choices *c, char **out, size_t *out_size, size_t *out_len)
{
    void *data = NULL;
    air_status status = AIR_OK;
    *out = NULL;
    const int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return AIR_OK;
    const int64_t size = base_file_size(fd);
    if (size > 0 && (uint64_t)size <= MOST)
        status = base_new(&c->alloc, (size_t)size, &data);
    if (data != NULL) {
        *out_size = (size_t)size;
        *out_len = base_file_read(fd, data, *out_size);
        if (*out_len >= strlen(HEAD) && memcmp(data, HEAD, strlen(HEAD)) == 0)
            *out = data;
        else
            base_free(&c->alloc, data, *out_size);
    }
    close(fd);
    return status;
}

/* seen(arg, line, its length, machine, choice) for each line that is one; a
 * last line without its end was cut. */
typedef air_status (*line_fn)(void *arg, word line, word machine,
                              const cpu_choice *choice);

static air_status
each_line(const cpu_choices *c, line_fn seen, void *arg)
{
    char *data;
    size_t size, len;
    AIR_TRY(read_file(c, &data, &size, &len));
    if (data == NULL)
        return AIR_OK;
    const char *at = data + strlen(HEAD), *stop = data + len;
    air_status status = AIR_OK;
    word line, machine;
    while (status == AIR_OK && next_word(&at, stop, '\n', &line)) {
        cpu_choice choice;
        if (read_line(line.at, line.at + line.len, &machine, &choice))
            status = seen(arg, line, machine, &choice);
    }
    base_free(&c->alloc, data, size);
    return status;
}

static cpu_choice *
find(const cpu_choices *c, const char *key)
{
    for (size_t i = 0; i < c->known.count; i++)
        if (strcmp(c->known.data[i].key, key) == 0)
            return &c->known.data[i];
    return NULL;
}

static bool
is_here(const cpu_choices *c, word machine)
{
    return machine.len == strlen(c->machine) &&
           memcmp(machine.at, c->machine, machine.len) == 0;
}

static air_status
learn(void *arg, word line, word machine, const cpu_choice *choice)
{
    cpu_choices *c = arg;
    (void)line;
    if (!is_here(c, machine) || find(c, choice->key) != NULL)
        return AIR_OK;
    return BASE_PUSH(&c->alloc, &c->known, *choice);
}

/* ---- writing ---- */

typedef struct {
    cpu_choices *c;
    base_text text;
} writer;

/* What other machines know, and other processes of this one, stays. */
static air_status
keep_line(void *arg, word line, word machine, const cpu_choice *choice)
{
    writer *w = arg;
    if (is_here(w->c, machine) && find(w->c, choice->key) != NULL)
        return AIR_OK;
    if (w->text.len + line.len < MOST / 2) {
        base_text_put(&w->text, line.at, line.len);
        base_text_put(&w->text, "\n", 1);
    }
    return w->text.status;
}

static air_status
save(cpu_choices *c)
{
    writer w = {.c = c};
    base_text_init(&w.text, &c->alloc);
    base_text_add(&w.text, "%s", HEAD);
    air_status status = each_line(c, keep_line, &w);
    for (size_t i = 0; i < c->known.count; i++) {
        const cpu_choice *k = &c->known.data[i];
        base_text_add(&w.text, "%s\t%s\t%" PRId64 "\t%" PRId64 "\t%d\n",
                      c->machine, k->key, k->own, k->library, k->runs);
    }
    if (status == AIR_OK)
        status = w.text.status;
    if (status == AIR_OK)
        (void)base_file_replace(c->path, w.text.data, w.text.len, NULL, 0);
    base_text_deinit(&w.text);
    return status;
}

/* ---- choices ---- */

air_status
cpu_choices_create(const air_alloc *alloc, const char *path,
                   const char *machine, cpu_choices **out)
{
    void *ptr;
    *out = NULL;
    AIR_REQUIRE(strlen(path) > 0 && strlen(path) < BASE_MAX_PATH,
                AIR_ERROR_ARGUMENT,
                "options.choices: a path of %zu bytes; give one of 1 .. %d",
                strlen(path), BASE_MAX_PATH - 1);
    AIR_TRY(base_new(alloc, sizeof(cpu_choices), &ptr));
    cpu_choices *c = ptr;
    c->alloc = *alloc;
    (void)snprintf(c->path, sizeof c->path, "%s", path);
    (void)snprintf(c->machine, sizeof c->machine, "%s", machine);
    for (char *at = c->machine; *at != '\0'; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
    pthread_mutex_init(&c->mutex, NULL);
    air_status status = each_line(c, learn, c);
    if (status != AIR_OK) {
        cpu_choices_destroy(c);
        return status;
    }
    *out = c;
    return AIR_OK;
}

void
cpu_choices_destroy(cpu_choices *choices)
{
    if (choices == NULL)
        return;
    air_alloc alloc = choices->alloc;
    pthread_mutex_destroy(&choices->mutex);
    BASE_VEC_FREE(&alloc, &choices->known);
    base_free(&alloc, choices, sizeof *choices);
}

static bool
is_sane(int64_t ns)
{
    return ns > 0 && ns < SLOWEST;
}

/* known: what another process has measured; NULL: nothing. */
static void
measure_now(cpu_choices *c, cpu_choice *known, const char *key,
            cpu_measure_fn measure, void *arg)
{
    cpu_choice made = {.runs = 1, .here = true};
    const double start = base_now();
    air_status status = AIR_OK;
    (void)snprintf(made.key, sizeof made.key, "%s", key);
    const bool good =
        measure(arg, &made) && is_sane(made.own) && is_sane(made.library);
    c->spent += base_now() - start;
    if (known != NULL)
        known->here = true;
    if (!good)
        return;
    if (known == NULL) {
        status = BASE_PUSH(&c->alloc, &c->known, made);
    } else {
        known->own = min64(known->own, made.own);
        known->library = min64(known->library, made.library);
        known->runs++;
    }
    if (status == AIR_OK)
        status = save(c);
    if (status != AIR_OK)
        base_clear_error(); /* the rule holds, or this process knows it */
}

bool
cpu_choices_find(cpu_choices *choices, const char *key, cpu_measure_fn measure,
                 void *arg, cpu_choice *out)
{
    pthread_mutex_lock(&choices->mutex);
    cpu_choice *found = find(choices, key);
    const bool known = found != NULL && (found->here || found->runs >= RUNS);
    if (measure != NULL && !known && choices->spent < SECONDS) {
        measure_now(choices, found, key, measure, arg);
        found = find(choices, key);
    }
    if (found != NULL)
        *out = *found;
    pthread_mutex_unlock(&choices->mutex);
    return found != NULL;
}

bool
cpu_choice_takes_library(const cpu_choice *choice, bool by_rule)
{
    const double own = (double)choice->own, library = (double)choice->library;
    return by_rule ? library < own * CLEAR : library * CLEAR < own;
}
