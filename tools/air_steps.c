#include "air_steps.h"

#include <stdlib.h>
#include <string.h>

#include "air_values.h"

static double
bytes_of(const air_value *v)
{
    return (double)value_count(v) * (double)air_dtype_bytes(v->dtype);
}

static double
last(const air_value *v, int from_end)
{
    return v->rank < from_end ? 1 : (double)v->dims[v->rank - from_end];
}

/* What the flops of its results depend on. */
static void
read_step(steps_table *t, const air_seen *seen)
{
    t->reads = t->inner[0] = t->inner[1] = 0;
    t->window = t->keys[0] = t->keys[1] = t->places = 1;
    t->pairs = seen->count > 0 && strcmp(seen->kind, "call") == 0 &&
               seen->values[0].value.dtype == AIR_BF16;
    for (size_t i = 0; i < seen->count; i++) {
        const air_value *v = &seen->values[i].value;
        t->reads += bytes_of(v);
        if (i < 2)
            t->inner[i] = last(v, 1);
    }
    if (seen->count < 2)
        return;
    const air_value *second = &seen->values[1].value;
    t->keys[0] = last(second, 2);
    if (seen->count > 2)
        t->keys[1] = last(&seen->values[2].value, 2);
    for (int i = 1; i < second->rank; i++)
        t->window *= (double)second->dims[i];
    t->numbers = (double)value_count(&seen->values[0].value);
    if (second->rank > 1 && second->dims[1] > 0)
        t->places = (double)(value_count(second) / second->dims[1]);
}

static bool
is_named(const char *op, const char *name)
{
    const char *space = strstr(op, "::");
    size_t n = strlen(name);
    op = space ? space + 2 : op;
    return strncmp(op, name, n) == 0 && (op[n] == '\0' || op[n] == '.');
}

/* Of one result: multiplications and additions of contractions; one for each
 * element of anything else. */
static double
flops_of(const steps_table *t, const air_seen_value *v, bool first)
{
    double count = (double)value_count(&v->value);
    const char *op = v->op ? v->op : "";
    if (is_named(op, "mm") || is_named(op, "bmm") ||
        is_named(op, "quantised_mm"))
        return 2 * count * t->inner[0];
    if (is_named(op, "addmm") || is_named(op, "baddbmm"))
        return 2 * count * t->inner[1];
    if (is_named(op, "convolution_weight"))
        return 2 * count * t->places;
    if (is_named(op, "convolution_transposed"))
        return 2 * t->numbers * t->window;
    if (strstr(op, "convolution"))
        return 2 * count * t->window;
    if (strstr(op, "attention") && first) /* backward: five products */
        return strstr(op, "_backward") ? 10 * count * t->keys[1]
                                       : 4 * count * t->keys[0];
    return count;
}

static steps_row *
row_at(steps_table *t, size_t i)
{
    if (i >= t->room) {
        size_t room = i < 64 ? 128 : 2 * i;
        steps_row *rows = realloc(t->rows, room * sizeof *rows);
        if (!rows)
            return NULL;
        memset(rows + t->room, 0, (room - t->room) * sizeof *rows);
        t->rows = rows;
        t->room = room;
    }
    t->count = i < t->count ? t->count : i + 1;
    return &t->rows[i];
}

air_status
steps_see(void *user, const air_seen *seen)
{
    steps_table *t = user;
    if (seen->once) /* no part of a run */
        return AIR_OK;
    if (!seen->done) {
        read_step(t, seen);
        return AIR_OK;
    }
    steps_row *row = row_at(t, seen->index);
    if (!row)
        return AIR_ERROR_MEMORY;
    if (row->seconds == 0 || seen->seconds < row->seconds)
        row->seconds = seen->seconds;
    snprintf(row->label, sizeof row->label, "%s %s", seen->kind, seen->label);
    row->pairs = t->pairs;
    row->bytes = t->reads;
    row->flops = 0;
    for (size_t i = 0; i < seen->count; i++) {
        row->bytes += bytes_of(&seen->values[i].value);
        row->flops += flops_of(t, &seen->values[i], i == 0);
    }
    return AIR_OK;
}

static int
slower(const void *a, const void *b)
{
    double x = ((const steps_row *)a)->seconds;
    double y = ((const steps_row *)b)->seconds;
    return (x < y) - (x > y);
}

/* The larger of its shares of the two limits. */
static void
print_share(FILE *out, const steps_row *row, const air_limits *limits)
{
    double memory = row->bytes / row->seconds / limits->read;
    bool pairs = row->pairs && limits->pair_flops > 0;
    double peak = pairs ? limits->pair_flops : limits->flops;
    double compute = row->flops / row->seconds / peak;
    bool flops = compute > memory;
    fprintf(out, " %4.0f%% of %s", 100 * (flops ? compute : memory),
            flops ? "flops " : "memory");
}

void
steps_print(FILE *out, steps_table *t, size_t most, const air_limits *limits)
{
    double total = 0;
    if (t->count == 0)
        return;
    qsort(t->rows, t->count, sizeof *t->rows, slower);
    for (size_t i = 0; i < t->count; i++)
        total += t->rows[i].seconds;
    fprintf(out, "step by step %.4f ms, the slowest:\n", 1e3 * total);
    for (size_t i = 0; i < t->count && i < most; i++) {
        const steps_row *row = &t->rows[i];
        if (row->seconds <= 0)
            break;
        fprintf(out, "%10.2f us %3.0f%% %8.2f GB/s %9.2f GFLOP/s",
                1e6 * row->seconds, 100 * row->seconds / total,
                1e-9 * row->bytes / row->seconds,
                1e-9 * row->flops / row->seconds);
        if (limits)
            print_share(out, row, limits);
        fprintf(out, "  %s\n", row->label);
    }
    if (!limits)
        return;
    fprintf(out,
            "limits of %d threads: %.1f GB/s read, the best 16 MB of four "
            "passes over 128;\n%.1f GFLOP/s of f32",
            limits->threads, 1e-9 * limits->read, 1e-9 * limits->flops);
    if (limits->pair_flops > 0)
        fprintf(out, ", %.1f of bf16", 1e-9 * limits->pair_flops);
    fputs(", of multiply-adds in registers. More than 100%: from a cache\n",
          out);
}

void
steps_free(steps_table *t)
{
    free(t->rows);
    *t = (steps_table){0};
}
