/* air_file.h: exported programs: a graph as text with values of its inputs.
 *
 *     air 1
 *     weight self.fc.weight 0 4096
 *     weight self.big.weight 0 4294967296 rank_0/big_weight
 *     graph 812
 *     ... 812 bytes of text, then the weights' bytes
 *
 * A weight is dense, row-major and in the machine's byte order: `weight NAME
 * OFFSET BYTES`, the offset behind the graph's text, or with a FILE, whose path
 * is relative to the folder of the program and does not leave it. Names are
 * those of the graph's inputs. torchair.dynamo_export writes such files. */
#ifndef AIR_FILE_H
#define AIR_FILE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *lines; /* of the weights */
    size_t lines_len;
    const char *text; /* of the graph */
    size_t text_len;
    const char *data;
    size_t data_len;
    char wrong[80]; /* a message that needs the file's version */
} air_file;

enum { AIR_FILE_NAME = 256 };

typedef struct {
    char name[AIR_FILE_NAME];
    char path[AIR_FILE_NAME]; /* "": inside the program */
    size_t offset, bytes;
} air_file_weight;

/* Does it begin like an exported program, of whatever version? Text of a graph
 * does not. */
bool air_file_is(const char *bytes, size_t len);
/* NULL, or what is wrong (with *out). Points into the bytes. */
const char *air_file_parse(const char *bytes, size_t len, air_file *out);
/* The weight at *at, which goes on to the next; start with 0. False: no more.
 * Weights without a path lie inside data. */
bool air_file_next(const air_file *file, size_t *at, air_file_weight *out);

#endif
