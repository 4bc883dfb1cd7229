/* gemm_ask.c: lines of the cache that a product asks for before it needs them.
 */
#include "driver/cpu/product/gemm_ask.h"

static void
ask_for_rows(const void *p, int64_t at, int64_t row, int64_t size, int64_t nr)
{
    const char *line = (const char *)p + at * size;
    for (int64_t i = 0; i < nr; i++, line += row * size) {
        __builtin_prefetch(line, 1, 2);
        if (size > 2)
            __builtin_prefetch(line + 64, 1, 2);
    }
}

void
cpu_gemm_ask_lines(const gemm_job *job, int64_t l, int64_t r, int64_t nr)
{
    const gemm_lines *lines = job->lines;
    const int64_t at = l + r * job->yr;
    if (lines == NULL || lines->keep)
        ask_for_rows(job->y, at, job->yr, cpu_gemm_size_of(job->y_dtype), nr);
    for (int i = 0; lines != NULL && i < lines->nbeside; i++)
        ask_for_rows(lines->beside[i].p, job->at + at, job->yr,
                     lines->beside[i].size, nr);
}

void
cpu_gemm_ask_ends(const gemm_job *job, int64_t l, int64_t nl, int64_t r,
                  int64_t nr)
{
    const int64_t size = cpu_gemm_size_of(job->y_dtype), step = job->yl * size;
    char *y = (char *)job->y + l * step + (r + nr - 1) * size;
    const bool along_rows = job->yr == 1 && job->yl != 1;
    for (int64_t i = 0; i < nl && along_rows && job->lines == NULL; i++)
        __builtin_prefetch(y + i * step, 1, 2);
}
