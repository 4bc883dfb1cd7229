/* region_case.h: building a region with its data, and running it. */
#ifndef REGION_CASE_H
#define REGION_CASE_H

#include "air_driver.h"
#include "driver/cpu/region/region.h"

typedef struct {
    air_region rg;
    air_rg_node nodes[AIR_RG_MAX_NODES];
    air_rg_buf bufs[AIR_RG_MAX_BUFS];
    air_rg_phase phases[AIR_RG_MAX_PHASES];
    int64_t first[AIR_RG_MAX_BUFS]; /* element the buffer starts at */
    int64_t count[AIR_RG_MAX_BUFS]; /* elements in memory */
    void *data[AIR_RG_MAX_BUFS];    /* before a run */
    void *work[AIR_RG_MAX_BUFS];    /* after it */
    uint32_t seed;
    bool raised; /* by the last run, whatever it was */
} region_case;

void case_init(region_case *c, air_walk walk, int rank, const int64_t *dims,
               uint32_t seed);
void case_free(region_case *c);
uint32_t case_random(region_case *c); /* 24 bits */

/* A buffer of the given strides, filled with random values (`special`: NaN,
 * infinities, subnormals among them). */
int case_buf(region_case *c, air_dtype dtype, const int64_t *strides,
             bool special);
/* Dense row-major; bit a of `broadcast`: stride 0 in axis a. */
int case_dense(region_case *c, air_dtype dtype, unsigned broadcast,
               bool special);
int case_scratch(region_case *c, air_dtype dtype);
int case_sums(region_case *c, air_dtype dtype);

void case_phase(region_case *c, air_phase_kind kind); /* ends the last one */
int case_const(region_case *c, air_lane lane, double value);
int case_load(region_case *c, air_lane lane, int buf);
int case_op(region_case *c, air_rg_op op, air_lane lane, int a, int b, int z);
void case_store(region_case *c, int buf, int a);
int case_reduce(region_case *c, air_reduce how, int a); /* gives the scalar */
int case_set(region_case *c, int a);                    /* gives the scalar */
int case_scalar(region_case *c, air_lane lane, int scalar);

/* Data -> work, then runs. False: the region was refused. */
bool case_run(region_case *c, const air_code *code, const char *isa,
              int threads);
double case_get(const region_case *c, int buf, int64_t element);
/* Same bits in all buffers, any NaN being equal to any other. */
bool case_equal(const region_case *a, void *const *other);
void case_save(const region_case *c, void **out); /* copies of work */
void case_drop(const region_case *c, void **saved);

/* Can this machine run code of regions? Skips the test where it cannot. */
bool case_has_code(void);

#endif
