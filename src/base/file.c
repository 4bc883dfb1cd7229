/* file.c: whole reads, and files that are replaced at once. */
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int64_t
base_file_size(int fd)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    return lseek(fd, 0, SEEK_SET) == 0 ? size : -1;
}

size_t
base_file_read(int fd, void *data, size_t size)
{
    size_t got = 0;
    while (got < size) {
        const ssize_t n = read(fd, (char *)data + got, size - got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got;
}

static bool
write_all(int fd, const char *at, size_t size)
{
    while (size > 0) {
        const ssize_t n = write(fd, at, size);
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

bool
base_file_replace(const char *path, const void *first, size_t first_size,
                  const void *second, size_t second_size)
{
    char other[BASE_MAX_PATH + 8];
    const int length = snprintf(other, sizeof other, "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof other)
        return false;
    const int fd = mkstemp(other);
    if (fd < 0)
        return false;
    bool good =
        write_all(fd, first, first_size) && write_all(fd, second, second_size);
    good = close(fd) == 0 && good && rename(other, path) == 0;
    if (!good)
        (void)unlink(other);
    return good;
}
