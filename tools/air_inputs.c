/* air_inputs.c: what a user gives for the inputs of a graph. */
#include "air_inputs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

static bool
read_all(FILE *in, file_text *out)
{
    size_t cap = 1 << 16;
    *out = (file_text){malloc(cap), 0};
    while (out->data && !feof(in) && !ferror(in)) {
        if (out->len == cap) {
            char *more = realloc(out->data, cap * 2);
            if (!more)
                return false;
            out->data = more;
            cap *= 2;
        }
        out->len += fread(out->data + out->len, 1, cap - out->len, in);
    }
    return out->data && feof(in);
}

bool
file_read(const char *path, file_text *out)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *in = standard ? stdin : fopen(path, "rb");
    if (!in)
        return false;
    bool good = read_all(in, out);
    int why = errno;
    if (!standard)
        fclose(in);
    errno = why;
    return good;
}

/* ---- inputs ---- */

static bool
find_input(const air_graph *graph, const char *given, size_t len, size_t *index,
           air_input *out)
{
    for (*index = 0; air_graph_get_input(graph, *index, out); ++*index)
        if (strlen(out->name) == len && memcmp(out->name, given, len) == 0)
            return true;
    return false;
}

/* Those that can be given: weights lie in the program's file. */
static const char *
name_inputs(const air_graph *graph, char *out, size_t room)
{
    air_input input;
    size_t used = (size_t)snprintf(out, room,
                                   "the graph has no such input; it "
                                   "has");
    for (size_t i = 0; used < room && air_graph_get_input(graph, i, &input);
         i++)
        if (!input.is_int && !(input.flags & AIR_INPUT_PARAM))
            used +=
                (size_t)snprintf(out + used, room - used, " %s", input.name);
    return out;
}

/* The symbol that a size is, if it is nothing but a symbol. */
static bool
find_symbol(air_graph *graph, air_dim size, air_symbol *out)
{
    air_dim d;
    for (size_t i = 0; air_graph_get_symbol(graph, i, out); i++)
        if (air_dim_symbol(graph, out->name, out->min, out->max, 0, &d) ==
                AIR_OK &&
            d.id == size.id)
            return true;
    return false;
}

/* Whether the array can be an input of this dtype and rank. */
static const char *
check_kind(const air_input *input, input_array *out)
{
    air_dtype have = out->array.dtype, want = input->type.dtype;
    if (have != want)
        snprintf(out->wrong, sizeof out->wrong, "the array is %s, the input %s",
                 air_dtype_text(have), air_dtype_text(want));
    else if (out->array.rank != input->type.rank)
        snprintf(out->wrong, sizeof out->wrong,
                 "the array has %d dimensions, the input %d", out->array.rank,
                 input->type.rank);
    return out->wrong[0] ? out->wrong : NULL;
}

static bool
sources_push(size_sources *sources, size_source source)
{
    if (sources->count == sources->room) {
        const size_t room = sources->room ? 2 * sources->room : 16;
        size_source *more = realloc(sources->all, room * sizeof *more);
        if (!more)
            return false;
        sources->all = more;
        sources->room = room;
    }
    sources->all[sources->count++] = source;
    return true;
}

bool
sources_add(size_sources *sources, const air_graph *graph, const char *symbol,
            const char *option, const char *given)
{
    air_symbol known;
    for (size_t i = 0; air_graph_get_symbol(graph, i, &known); i++)
        if (strcmp(known.name, symbol) == 0)
            return sources_push(sources,
                                (size_source){known.name, option, given});
    return true;
}

void
sources_free(size_sources *sources)
{
    free(sources->all);
    *sources = (size_sources){.count = 0};
}

static const size_source *
find_source(const size_sources *sources, const char *symbol)
{
    for (size_t i = 0; i < sources->count; i++)
        if (strcmp(sources->all[i].symbol, symbol) == 0)
            return &sources->all[i];
    return NULL;
}

/* The size of an array in place of its symbol's hint. */
static const char *
take_size(air_graph *graph, const air_symbol *symbol, int i,
          size_sources *sources, const char *given, input_array *out)
{
    const int64_t have = out->array.dims[i];
    const size_source *by = find_source(sources, symbol->name);
    if (!by) {
        if (!sources_add(sources, graph, symbol->name, "--input", given))
            return strerror(errno);
        bool good = air_graph_set_hint(graph, symbol->name, have) == AIR_OK;
        return good ? NULL : air_last_error()->message;
    }
    if (symbol->hint == have)
        return NULL;
    snprintf(out->wrong, sizeof out->wrong,
             "dimension %d of the array is %lld, but %s is %lld by %s %s", i,
             (long long)have, symbol->name, (long long)symbol->hint, by->option,
             by->given);
    return out->wrong;
}

static const char *
take_sizes(air_graph *graph, const air_input *input, size_sources *sources,
           const char *given, input_array *out)
{
    const npy_array *array = &out->array;
    const char *wrong = NULL;
    air_symbol symbol;
    for (int i = 0; !wrong && i < array->rank; i++)
        if (find_symbol(graph, input->type.dims[i], &symbol))
            wrong = take_size(graph, &symbol, i, sources, given, out);
    if (wrong)
        return wrong;
    for (int i = 0; i < array->rank; i++) {
        int64_t size;
        if (air_dim_hint(graph, input->type.dims[i], &size) != AIR_OK)
            return air_last_error()->message;
        if (size == array->dims[i])
            continue;
        snprintf(out->wrong, sizeof out->wrong,
                 "dimension %d of the array is %lld, of the input %lld", i,
                 (long long)array->dims[i], (long long)size);
        return out->wrong;
    }
    return NULL;
}

const char *
input_open(const char *given, air_graph *graph, size_sources *sources,
           input_array *out)
{
    air_input input;
    const char *equals = strchr(given, '=');
    size_t len = equals ? (size_t)(equals - given) : 0;
    *out = (input_array){.index = 0};
    if (len == 0)
        return "write it as x=FILE.npy";
    if (!find_input(graph, given, len, &out->index, &input))
        return name_inputs(graph, out->wrong, sizeof out->wrong);
    if (input.is_int)
        return "an integer input takes its value from --set";
    if (!file_read(equals + 1, &out->file))
        return strerror(errno);
    const char *wrong = npy_parse(out->file.data, out->file.len, &out->array);
    if (wrong)
        return wrong;
    wrong = check_kind(&input, out);
    return wrong ? wrong : take_sizes(graph, &input, sources, given, out);
}

/* ---- weights ---- */

static bool
is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    len -= folder[len - 1] == '/'; /* "/" itself */
    return strncmp(path, folder, len) == 0 && path[len] == '/';
}

/* `name`, from the folder of the program, without links and "..". */
static bool
find_beside(const char *program, const char *name, char out[PATH_MAX])
{
    char path[PATH_MAX];
    const char *slash = strrchr(program, '/');
    int folder = slash && name[0] != '/' ? (int)(slash - program) + 1 : 0;
    int n = snprintf(path, sizeof path, "%.*s%s", folder, program, name);
    if (n >= 0 && (size_t)n < sizeof path)
        return realpath(path, out);
    errno = ENAMETOOLONG;
    return false;
}

/* The file beside the program. A program that somebody else has made is not to
 * read what it likes. */
static const char *
read_beside(const char *program, const air_file_weight *weight, bool anywhere,
            file_text *out)
{
    char path[PATH_MAX], folder[PATH_MAX];
    if (!find_beside(program, weight->path, path) ||
        !find_beside(program, ".", folder))
        return strerror(errno);
    if (!anywhere && !is_below(path, folder))
        return "its file is outside of the program's folder, which "
               "--weights-anywhere allows";
    return file_read(path, out) ? NULL : strerror(errno);
}

/* An input's sizes as a dense array; they are not to depend on symbols. */
static const char *
dense_array(const air_graph *graph, const air_input *input, npy_array *out)
{
    size_t bytes = air_dtype_bytes(input->type.dtype);
    *out = (npy_array){.dtype = input->type.dtype, .rank = input->type.rank};
    for (int i = out->rank - 1; i >= 0; i--) {
        if (air_dim_hint(graph, input->type.dims[i], &out->dims[i]) != AIR_OK)
            return air_last_error()->message;
        out->strides[i] =
            i == out->rank - 1 ? 1 : out->strides[i + 1] * out->dims[i + 1];
    }
    for (int i = 0; i < out->rank; i++)
        bytes *= (size_t)out->dims[i];
    out->bytes = bytes;
    return NULL;
}

const char *
weight_open(const air_file *file, const air_file_weight *weight,
            const char *path, bool anywhere, const air_graph *graph,
            input_array *out)
{
    air_input input;
    *out = (input_array){.index = 0};
    if (!find_input(graph, weight->name, strlen(weight->name), &out->index,
                    &input) ||
        input.is_int)
        return "the graph has no tensor input of that name";
    const char *wrong = dense_array(graph, &input, &out->array);
    if (wrong)
        return wrong;
    if (out->array.bytes != weight->bytes)
        return "it has another size than the graph's input";
    out->array.data = file->data + weight->offset;
    if (!weight->path[0])
        return NULL;
    wrong = read_beside(path, weight, anywhere, &out->file);
    if (wrong)
        return wrong;
    if (weight->offset > out->file.len ||
        weight->bytes > out->file.len - weight->offset)
        return "its file is too short";
    out->array.data = out->file.data + weight->offset;
    return NULL;
}

air_status
input_apply(const input_array *input, air_values *values)
{
    const npy_array *array = &input->array;
    air_value *value = &values->values[input->index];
    void *data = malloc(array->bytes ? array->bytes : 1);
    if (!data)
        return AIR_ERROR_MEMORY;
    if (array->bytes)
        memcpy(data, array->data, array->bytes);
    free(value->data);
    value->data = data;
    value->strides = array->strides;
    return AIR_OK;
}

void
input_close(input_array *input)
{
    free(input->file.data);
    *input = (input_array){.index = 0};
}
