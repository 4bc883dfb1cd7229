/* fuzz_air_file.c: exported programs. What is taken for one lies inside the
 * bytes, to the last byte of each weight. */
#include "air_file.h"

#include <stdint.h>
#include <string.h>

#include "fuzz.h"

const char *const fuzz_words[] = {
    "air 1\n",
    "weight ",
    "graph ",
    "x ",
    "0 ",
    "16",
    "\n",
    " file",
    "18446744073709551615",
    "18446744073709551616",
    "999999999",
    NULL,
};

int
fuzz_one(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data, *end = bytes + size;
    air_file file;
    air_file_weight w;
    const char *wrong = air_file_parse(bytes, size, &file);
    if (wrong) {
        FUZZ_REQUIRE(wrong[0] != '\0');
        return 0;
    }
    FUZZ_REQUIRE(air_file_is(bytes, size));
    FUZZ_REQUIRE(file.text + file.text_len == file.data);
    FUZZ_REQUIRE(file.data + file.data_len == end);
    for (size_t at = 0; air_file_next(&file, &at, &w);) {
        FUZZ_REQUIRE(w.name[0] && strlen(w.name) < AIR_FILE_NAME);
        if (!w.path[0])
            FUZZ_REQUIRE(w.bytes <= file.data_len &&
                         w.offset <= file.data_len - w.bytes);
    }
    return 0;
}
