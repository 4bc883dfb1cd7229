/* air_file.c: exported programs. */
#include "air_file.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "air ", version[] = "1\n";

typedef struct {
    const char *at, *end;
} cursor;

static bool
take(cursor *c, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(c->end - c->at) < len || memcmp(c->at, word, len) != 0)
        return false;
    c->at += len;
    return true;
}

static bool
take_number(cursor *c, size_t *out)
{
    const char *start = c->at;
    size_t n = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        size_t digit = (size_t)(*c->at - '0');
        if (n > (SIZE_MAX - digit) / 10)
            return false;
        n = n * 10 + digit;
        c->at++;
    }
    *out = n;
    return c->at > start;
}

/* Up to a space or the end of the line. */
static bool
take_name(cursor *c, char out[AIR_FILE_NAME])
{
    size_t len = 0;
    while (c->at < c->end && *c->at != ' ' && *c->at != '\n' && *c->at) {
        if (len + 1 >= AIR_FILE_NAME)
            return false;
        out[len++] = *c->at++;
    }
    out[len] = '\0';
    return len > 0;
}

/* NULL, or what is wrong. */
static const char *
take_weight(cursor *c, air_file_weight *out)
{
    *out = (air_file_weight){.offset = 0};
    if (!take_name(c, out->name) || !take(c, " "))
        return "a weight has no name, or one of more than 255 bytes";
    if (!take_number(c, &out->offset) || !take(c, " ") ||
        !take_number(c, &out->bytes))
        return "a weight has no offset and size: weight NAME OFFSET BYTES";
    if (take(c, " ") && !take_name(c, out->path))
        return "a weight has no file name, or one of more than 255 bytes";
    return take(c, "\n") ? NULL : "a weight's line does not end";
}

bool
air_file_is(const char *bytes, size_t len)
{
    cursor c = {bytes, bytes + len};
    return take(&c, family);
}

/* NULL, or that the version is another one than this. */
static const char *
take_version(cursor *c, air_file *out)
{
    int len = 0;
    if (!take(c, family))
        return "it does not begin with \"air \"";
    if (take(c, version))
        return NULL;
    while (c->at + len < c->end && len < 20 && c->at[len] > ' ')
        len++;
    snprintf(out->wrong, sizeof out->wrong,
             "version \"%.*s\" of the format is not known, only \"1\" is", len,
             c->at);
    return out->wrong;
}

static bool
lies_inside(const air_file_weight *w, size_t len)
{
    return w->path[0] || (w->offset <= len && w->bytes <= len - w->offset);
}

const char *
air_file_parse(const char *bytes, size_t len, air_file *out)
{
    air_file_weight w;
    cursor c = {bytes, bytes + len};
    *out = (air_file){.lines = NULL};
    const char *unknown = take_version(&c, out);
    if (unknown)
        return unknown;
    out->lines = c.at;
    while (take(&c, "weight ")) {
        const char *wrong = take_weight(&c, &w);
        if (wrong)
            return wrong;
    }
    out->lines_len = (size_t)(c.at - out->lines);
    if (!take(&c, "graph ") || !take_number(&c, &out->text_len) ||
        !take(&c, "\n") || out->text_len > (size_t)(c.end - c.at))
        return "a line \"graph BYTES\" and so much text are expected";
    out->text = c.at;
    out->data = c.at + out->text_len;
    out->data_len = (size_t)(c.end - out->data);
    for (size_t at = 0; air_file_next(out, &at, &w);)
        if (!lies_inside(&w, out->data_len))
            return "a weight lies behind the end of the file";
    return NULL;
}

bool
air_file_next(const air_file *file, size_t *at, air_file_weight *out)
{
    cursor c = {file->lines + *at, file->lines + file->lines_len};
    if (!take(&c, "weight ") || take_weight(&c, out))
        return false;
    *at = (size_t)(c.at - file->lines);
    return true;
}
