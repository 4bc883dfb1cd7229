/* fuzz_main.c: replays a corpus, then mutates it at random. Needs no clang;
 * the seed makes a failure repeatable. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

enum { MAX_FILES = 1000, MAX_SIZE = 1 << 16, MAX_EDITS = 6 };

typedef struct {
    uint8_t *data;
    size_t size;
} input;

static input corpus[MAX_FILES];
static size_t corpus_count;
static uint8_t current[MAX_SIZE];
static size_t current_size;
static uint64_t state;

static uint32_t
pick(uint32_t below)
{
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z >> 32) * below >> 32);
}

/* Only async-signal-safe calls: a crash handler runs it. */
static void
save_current(void)
{
    int out = open("fuzz-crash.bin", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (out < 0 || write(out, current, current_size) < 0)
        return;
    close(out);
}

static void
on_crash(int number)
{
    save_current();
    signal(number, SIG_DFL);
    raise(number);
}

void
fuzz_wrong(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: %s is false; input: fuzz-crash.bin\n", file, line,
            text);
    save_current();
    _exit(1);
}

/* What ASan calls before it ends the program. */
void __asan_on_error(void);
void
__asan_on_error(void)
{
    save_current();
}

/* ---- corpus ---- */

static void
load(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = fopen(path, "rb");
    if (!in || corpus_count == MAX_FILES)
        exit(2);
    input *item = &corpus[corpus_count++];
    item->data = malloc(MAX_SIZE);
    if (!item->data)
        exit(2);
    item->size = fread(item->data, 1, MAX_SIZE, in);
    fclose(in);
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of names, so that a seed means the same everywhere. */
static void
load_folder(const char *folder)
{
    struct dirent **names;
    int count = scandir(folder, &names, NULL, by_name);
    if (count < 0) {
        perror(folder);
        exit(2);
    }
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.')
            load(folder, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

/* ---- mutations ---- */

/* Replaces `cut` bytes at `at` by others. */
static void
replace(size_t at, size_t cut, const void *data, size_t size)
{
    if (current_size - cut + size > MAX_SIZE)
        return;
    memmove(current + at + size, current + at + cut, current_size - at - cut);
    if (size > 0)
        memcpy(current + at, data, size);
    current_size += size - cut;
}

static size_t
span(size_t at)
{
    size_t left = current_size - at, most = pick(4) ? 8 : 64;
    return pick((uint32_t)(left < most ? left : most) + 1);
}

static void
splice_word(size_t at)
{
    size_t count = 0;
    while (fuzz_words[count])
        count++;
    if (count == 0)
        return;
    const char *word = fuzz_words[pick((uint32_t)count)];
    replace(at, pick(2) ? span(at) : 0, word, strlen(word));
}

static void
splice_other(size_t at)
{
    const input *other = &corpus[pick((uint32_t)corpus_count)];
    if (other->size == 0)
        return;
    size_t from = pick((uint32_t)other->size);
    size_t size = pick(200);
    if (size > other->size - from)
        size = other->size - from;
    replace(at, span(at), other->data + from, size);
}

static void
edit(void)
{
    size_t at = pick((uint32_t)current_size + 1);
    uint8_t byte = (uint8_t)pick(256);
    uint8_t copy[64];
    size_t size = span(at);
    switch (pick(8)) {
    case 0: replace(at, size, NULL, 0); break;
    case 1: replace(at, 0, &byte, 1); break;
    case 2:
        if (at < current_size)
            current[at] = (uint8_t)(current[at] ^ 1 << pick(8));
        break;
    case 3:
        memcpy(copy, current + at, size);
        replace(pick((uint32_t)current_size + 1), 0, copy, size);
        break;
    case 4: splice_other(at); break;
    case 5: current_size = at; break;
    default: splice_word(at); break;
    }
}

static void
mutate(void)
{
    const input *from = &corpus[pick((uint32_t)corpus_count)];
    memcpy(current, from->data, from->size);
    current_size = from->size;
    for (uint32_t n = 1 + pick(MAX_EDITS); n > 0; n--)
        edit();
}

/* The copy has the exact size, so that a sanitizer sees one byte too far. */
static void
run_current(void)
{
    uint8_t *exact = malloc(current_size ? current_size : 1);
    if (!exact)
        exit(2);
    memcpy(exact, current, current_size);
    fuzz_one(exact, current_size);
    free(exact);
}

int
main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS_DIR [MUTATIONS [SEED]]\n", argv[0]);
        return 2;
    }
    unsigned long mutations = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    state = argc > 3 ? strtoul(argv[3], NULL, 10) : 1;
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    load_folder(argv[1]);
    for (size_t i = 0; i < corpus_count; i++) {
        memcpy(current, corpus[i].data, corpus[i].size);
        current_size = corpus[i].size;
        run_current();
    }
    for (unsigned long i = 0; corpus_count > 0 && i < mutations; i++) {
        mutate();
        run_current();
    }
    printf("%zu files, %lu mutations\n", corpus_count, mutations);
    printf("%d passed, %d failed\n", corpus_count > 0, corpus_count == 0);
    for (size_t i = 0; i < corpus_count; i++)
        free(corpus[i].data);
    return corpus_count == 0;
}
