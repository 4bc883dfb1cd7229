/* file.h: small files that several processes read and replace. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BASE_MAX_PATH = 1024 }; /* bytes of a path and its end */

/* Bytes of the file, which is at its start then; -1 of a pipe. */
int64_t base_file_size(int fd);

/* Bytes read, less than size where the file ends or cannot be read. */
size_t base_file_read(int fd, void *data, size_t size);

/* The file becomes both pieces, one after the other (second may be NULL with
 * size 0). It is written under another name in its folder and renamed: a
 * reader never sees half of it. False: nothing changed. */
bool base_file_replace(const char *path, const void *first, size_t first_size,
                       const void *second, size_t second_size);

#endif
