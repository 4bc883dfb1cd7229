/* fuzz.h: one target a program. A target defines fuzz_one; the driver
 * (fuzz_main.c) replays a corpus and mutates it:
 *
 *     fuzz_parse CORPUS_DIR [MUTATIONS [SEED]]
 *
 * fuzz_one must return for every input; what it finds wrong it reports by
 * FUZZ_REQUIRE, which prints the place and ends the program with the input
 * left in fuzz-crash.bin. Build with sanitizers: make fuzz. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int fuzz_one(const uint8_t *data, size_t size);
/* Words to splice into inputs, NULL at the end; may be empty. */
extern const char *const fuzz_words[];

void fuzz_wrong(const char *file, int line, const char *text);
#define FUZZ_REQUIRE(cond) \
    ((cond) ? (void)0 : fuzz_wrong(__FILE__, __LINE__, #cond))

#endif
