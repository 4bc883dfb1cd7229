/* cache.c: compiled code in a folder, a file by hash.
 *
 * A file is written under another name and renamed, so that a reader never
 * sees half of one; its head says how long it is and what its bytes hash to,
 * so that a damaged one is as good as none. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "driver/cuda/device.h"

typedef struct {
    char magic[8];
    uint64_t size, sum;
} head;
static const char magic[] = "aircubin";

static bool
file_name(const char *folder, const uint64_t hash[2], char *out)
{
    const int n =
        snprintf(out, BASE_MAX_PATH, "%s/%016" PRIx64 "%016" PRIx64 ".cubin",
                 folder, hash[0], hash[1]);
    return n > 0 && n < BASE_MAX_PATH;
}

static air_status
read_file(const air_alloc *alloc, int fd, char **out, size_t *out_size)
{
    const int64_t size = base_file_size(fd);
    head h;
    void *data;
    if (size < 0 || base_file_read(fd, &h, sizeof h) != sizeof h ||
        memcmp(h.magic, magic, sizeof h.magic) != 0 || h.size == 0 ||
        (uint64_t)size != sizeof h + h.size)
        return AIR_OK;
    AIR_TRY(base_new(alloc, h.size, &data));
    if (base_file_read(fd, data, h.size) != h.size ||
        base_hash(data, h.size, 0) != h.sum) {
        base_free(alloc, data, h.size);
        return AIR_OK;
    }
    *out = data;
    *out_size = h.size;
    return AIR_OK;
}

air_status
cuda_cache_read(const air_alloc *alloc, const char *folder,
                const uint64_t hash[2], char **out, size_t *out_size)
{
    char path[BASE_MAX_PATH];
    *out = NULL;
    *out_size = 0;
    if (!folder || !file_name(folder, hash, path))
        return AIR_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return AIR_OK;
    const air_status status = read_file(alloc, fd, out, out_size);
    close(fd);
    return status;
}

void
cuda_cache_write(const char *folder, const uint64_t hash[2], const char *data,
                 size_t size)
{
    char path[BASE_MAX_PATH];
    head h = {.size = size, .sum = base_hash(data, size, 0)};
    if (!folder || !file_name(folder, hash, path))
        return;
    memcpy(h.magic, magic, sizeof h.magic);
    (void)mkdir(folder, 0700);
    (void)base_file_replace(path, &h, sizeof h, data, size);
}
