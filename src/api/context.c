/* context.c: contexts and their pool. */
#include <string.h>

#include "base/memory.h"
#include "driver/driver.h"
#include "exec/graph_pool.h"
#include "ir/ir.h"

static air_status
open_device(air_context *ctx, const air_options *options)
{
    const char *name = options->driver ? options->driver : "cpu";
    air_status status;

    ctx->driver = driver_find(name);
    AIR_REQUIRE(ctx->driver, AIR_ERROR_ARGUMENT,
                "there is no driver \"%s\"; `air drivers` lists them", name);
    AIR_TRY(ctx->driver->open(options, &ctx->alloc, &ctx->device));
    ctx->driver->target(ctx->device, &ctx->target);
    status = exec_pool_create(&ctx->alloc, ctx->driver, ctx->device,
                              ctx->target.apart, &ctx->pool);
    if (status != AIR_OK)
        ctx->driver->close(ctx->device);
    return status;
}

air_status
air_context_create(const air_options *options, air_context **out)
{
    static const air_options none = {0};
    const air_alloc *alloc;
    air_context *ctx;
    air_status status;

    AIR_REQUIRE(out, AIR_ERROR_ARGUMENT, "out must not be NULL");
    *out = NULL;
    if (!options)
        options = &none;
    AIR_REQUIRE(options->threads >= 0 && options->threads <= 4096,
                AIR_ERROR_ARGUMENT, "threads is %d, allowed are 0 .. 4096",
                options->threads);
    alloc = options->alloc ? options->alloc : &base_libc_alloc;
    AIR_TRY(ir_ops_init());
    AIR_TRY(base_new(alloc, sizeof *ctx, (void **)&ctx));
    ctx->alloc = *alloc;
    ctx->no_emitter = options->no_emitter;
    ctx->verify = options->verify;
    ctx->log = options->log;
    ctx->log_user = options->log_user;
    status = open_device(ctx, options);
    if (status != AIR_OK) {
        base_free(alloc, ctx, sizeof *ctx);
        return base_trace(status, __func__, __LINE__);
    }
    *out = ctx;
    return AIR_OK;
}

void
air_context_destroy(air_context *ctx)
{
    air_alloc alloc;

    if (!ctx)
        return;
    alloc = ctx->alloc;
    exec_pool_release(ctx->pool); /* closes the device with its last block */
    base_free(&alloc, ctx, sizeof *ctx);
}

void
air_context_set_threads(air_context *ctx, int threads)
{
    if (ctx && threads > 0 && ctx->driver->set_threads)
        ctx->driver->set_threads(ctx->device, threads);
}

air_status
air_context_get_limits(air_context *ctx, air_limits *out)
{
    AIR_REQUIRE(ctx && out, AIR_ERROR_ARGUMENT, "ctx and out must not be NULL");
    AIR_REQUIRE(ctx->driver->limits, AIR_ERROR_UNSUPPORTED,
                "driver %s does not measure its limits", ctx->driver->name);
    if (ctx->limits.threads == 0)
        AIR_TRY(ctx->driver->limits(ctx->device, &ctx->limits));
    *out = ctx->limits;
    return AIR_OK;
}

void
air_context_get_pool_stats(const air_context *ctx, air_pool_stats *out)
{
    *out = (air_pool_stats){0};
    if (!ctx)
        return;
    exec_pool_stats(ctx->pool, out);
    exec_graph_pools_add(ctx->pool, out);
}

void
air_context_trim(air_context *ctx)
{
    if (!ctx)
        return;
    exec_graph_pools_trim(ctx->pool);
    exec_pool_trim(ctx->pool);
}

/* ---- memory of the device ---- */

air_status
air_memory_alloc(air_context *ctx, size_t size, void **out)
{
    AIR_REQUIRE(ctx && out, AIR_ERROR_ARGUMENT, "%s must not be NULL",
                ctx ? "out" : "context");
    *out = NULL;
    AIR_TRY(ctx->driver->alloc(ctx->device, size > 0 ? size : 1, out));
    return AIR_OK;
}

void
air_memory_free(air_context *ctx, void *data, size_t size)
{
    if (ctx && data)
        ctx->driver->free(ctx->device, data, size > 0 ? size : 1);
}

air_status
air_memory_copy(air_context *ctx, void *dst, const void *src, size_t size)
{
    AIR_REQUIRE(ctx, AIR_ERROR_ARGUMENT, "context must not be NULL");
    AIR_REQUIRE(size == 0 || (dst && src), AIR_ERROR_ARGUMENT,
                "a copy of %zu bytes needs dst and src", size);
    if (size == 0)
        return AIR_OK;
    if (ctx->driver->copy)
        AIR_TRY(ctx->driver->copy(ctx->device, dst, src, size));
    else
        memcpy(dst, src, size);
    return AIR_OK;
}
