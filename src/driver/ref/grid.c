/* grid.c: the arithmetic of grid_sampler along one axis. */
#include "driver/ref/grid.h"

#include <math.h>

#define SHARP (-0.75) /* cubic */

ref_grid
ref_grid_open(const air_call *call, bool backward)
{
    const int at = backward;

    return (ref_grid){.mode = (int)ref_int(call, at + 2, 0),
                      .padding = (int)ref_int(call, at + 3, 0),
                      .axes = call->args[at].t->rank - 2,
                      .align = ref_int(call, at + 4, 0) != 0,
                      .wide = call->args[at].t->dtype == AIR_F64};
}

int
ref_grid_count(const ref_grid *g)
{
    return g->mode == REF_GRID_NEAREST ? 1 : g->mode == REF_GRID_LINEAR ? 2 : 4;
}

/* A result of f32 arithmetic, or of f64. */
static double
rounded(const ref_grid *g, double x)
{
    return g->wide ? x : (double)(float)x;
}

/* ---- padding ------------------------------------------------------------- */

/* What is no number becomes 0; in a volume, the last element. `turn` is the
 * sign of the slope, 0 where x was moved to an end. */
static double
clip(const ref_grid *g, double x, double last, double *turn)
{
    if (!(x > 0) || !(x < last))
        *turn = 0;
    if (x <= 0 || (isnan(x) && g->axes < REF_GRID_AXES))
        x = 0;
    return x < last ? x : last;
}

/* There and back between the ends. */
static double
reflect(const ref_grid *g, int64_t size, double x, double *turn)
{
    const double low = g->align ? 0 : -0.5;
    const double round = 2.0 * (double)(g->align ? size - 1 : size);
    double way = rounded(g, fabs(rounded(g, x - low)));
    double rest, back;

    if (round == 0) {
        *turn = 0;
        return 0;
    }
    rest = rounded(g, floor(rounded(g, way / round)) * round);
    rest = rounded(g, way - rest);
    back = rounded(g, round - rest);
    if ((x < low) != (back < rest))
        *turn = -*turn;
    return rounded(g, (back < rest ? back : rest) + low);
}

static double
padded(const ref_grid *g, int64_t size, double x, double *turn)
{
    if (g->padding == REF_GRID_ZEROS)
        return x;
    if (g->padding == REF_GRID_REFLECT)
        x = reflect(g, size, x, turn);
    return clip(g, x, (double)(size - 1), turn);
}

/* ---- taps ---------------------------------------------------------------- */

/* Outside a volume nothing counts, not even a weight that is NaN. */
static void
put_tap(const ref_grid *g, int64_t size, double at, double weight, double slope,
        ref_grid_taps *out)
{
    const bool inside = at > -1 && at < (double)size;
    const bool counts = inside || g->axes < REF_GRID_AXES;

    out->index[out->count] = inside ? (int64_t)at : -1;
    out->weight[out->count] = counts ? weight : 0;
    out->slope[out->count++] = counts ? slope : 0;
}

/* The weight of a point at distance x, and its derivative: below 1, below 2. */
static double
cubic_near(double x)
{
    return ((SHARP + 2) * x - (SHARP + 3)) * x * x + 1;
}

static double
cubic_far(double x)
{
    return ((SHARP * x - 5 * SHARP) * x + 8 * SHARP) * x - 4 * SHARP;
}

static double
slope_near(double x)
{
    return (3 * (SHARP + 2) * x - 2 * (SHARP + 3)) * x;
}

static double
slope_far(double x)
{
    return (3 * SHARP * x - 10 * SHARP) * x + 8 * SHARP;
}

static void
cubic_taps(const ref_grid *g, int64_t size, double x, double scale,
           ref_grid_taps *out)
{
    const double first = floor(x) - 1, t = rounded(g, x - floor(x));
    const double weight[] = {cubic_far(t + 1), cubic_near(t), cubic_near(1 - t),
                             cubic_far(2 - t)};
    const double slope[] = {slope_far(t + 1), slope_near(t), -slope_near(1 - t),
                            -slope_far(2 - t)};

    for (int k = 0; k < REF_GRID_TAPS; k++) {
        double turn = 1;
        double at = padded(g, size, rounded(g, first + k), &turn);
        put_tap(g, size, at, weight[k], slope[k] * scale, out);
    }
}

void
ref_grid_find(const ref_grid *g, int64_t size, double x, ref_grid_taps *out)
{
    double scale = (double)(g->align ? size - 1 : size) / 2, turn = 1, low;

    out->count = 0;
    x = rounded(g, rounded(g, x + 1) * rounded(g, scale));
    if (!g->align)
        x = rounded(g, x - 0.5);
    if (g->mode == REF_GRID_CUBIC) {
        cubic_taps(g, size, x, scale, out);
        return;
    }
    x = padded(g, size, x, &turn);
    low = floor(x);
    scale *= turn;
    if (g->mode == REF_GRID_NEAREST) {
        put_tap(g, size, nearbyint(x), 1, 0, out);
        return;
    }
    put_tap(g, size, low, rounded(g, low + 1 - x), -scale, out);
    put_tap(g, size, low + 1, rounded(g, x - low), scale, out);
}
