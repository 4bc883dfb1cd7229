/* providers.h: the functions that rows of kernels.def name, declared. */
#ifndef CPU_PROVIDERS_H
#define CPU_PROVIDERS_H

#include "air_driver.h"
#include "driver/cpu/arg_isa.h"
#include "driver/cpu/attention_backward.h"
#include "driver/cpu/bag_isa.h"
#include "driver/cpu/best_isa.h"
#include "driver/cpu/conv_backward.h"
#include "driver/cpu/gemm.h"
#include "driver/cpu/grid_isa.h"
#include "driver/cpu/library.h"
#include "driver/cpu/moving.h"
#include "driver/cpu/order_isa.h"
#include "driver/cpu/pool_isa.h"
#include "driver/cpu/random_isa.h"
#include "driver/cpu/resample_isa.h"
#include "driver/cpu/scan_isa.h"

#endif
