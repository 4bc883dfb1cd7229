/* providers.h: the functions that rows of kernels.def name, declared. */
#ifndef CPU_PROVIDERS_H
#define CPU_PROVIDERS_H

#include "air_driver.h"
#include "driver/cpu/attention/attention_backward.h"
#include "driver/cpu/conv/conv_backward.h"
#include "driver/cpu/moving.h"
#include "driver/cpu/planes/grid_isa.h"
#include "driver/cpu/planes/pool_isa.h"
#include "driver/cpu/planes/resample_isa.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/library.h"
#include "driver/cpu/rows/arg_isa.h"
#include "driver/cpu/rows/bag_isa.h"
#include "driver/cpu/rows/best_isa.h"
#include "driver/cpu/rows/order_isa.h"
#include "driver/cpu/rows/random_isa.h"
#include "driver/cpu/rows/scan_isa.h"

#endif
