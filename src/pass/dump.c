/* dump.c: the graph after each pass, as text files. */
#include <stdio.h>

#include "pass/pass.h"

static air_status
write_file(const char *path, const base_text *text)
{
    FILE *file = fopen(path, "w");

    AIR_REQUIRE(file, AIR_ERROR_ARGUMENT, "dump_dir: cannot write %s", path);
    size_t done = fwrite(text->data, 1, text->len, file);
    int closed = fclose(file);
    AIR_REQUIRE(done == text->len && closed == 0, AIR_ERROR_ARGUMENT,
                "dump_dir: could not write all of %s", path);
    return AIR_OK;
}

air_status
pass_dump_graph(const char *dir, const pass_record *record, const ir_graph *g)
{
    char path[512];
    base_text text;

    int len = snprintf(path, sizeof path, "%s/%02d-%s.txt", dir, record->index,
                       record->name);
    AIR_REQUIRE(len > 0 && (size_t)len < sizeof path, AIR_ERROR_ARGUMENT,
                "dump_dir: the path is longer than %zu bytes", sizeof path);
    base_text_init(&text, g->alloc);
    base_text_add(&text, "# %s: %u -> %u nodes, %zu rewrites, %.3f ms\n",
                  record->name, (unsigned)record->before,
                  (unsigned)record->after, record->rewrites,
                  record->seconds * 1e3);
    air_status status = ir_print(g, &text);
    if (status == AIR_OK)
        status = text.status;
    if (status == AIR_OK)
        status = write_file(path, &text);
    base_text_deinit(&text);
    return status;
}
