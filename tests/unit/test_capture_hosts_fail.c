/* test_capture_hosts_fail.c: HOST nodes in graphs of the device: what becomes
 * of them when a call, an allocation, the application or the device fails. */
#include <string.h>

#include "../fake/fake_cuda.h"
#include "capture_case.h"
#include "cuda_case.h"
#include "driver/driver.h"
#include "driver/wrap/wrap.h"
#include "hosts_case.h"

/* ---- failures ---- */

/* What is in the graph and what is not, and an operand that moves. */
static const application kinds[] = {
    {0},
    {.unrecorded = 1u << 2},
    {.refused = 1u << 3},
    {.unrecorded = 1u << 1, .own = 1u << 1},
    {.strided = true},
    {.text = hosts_started, .right = hosts_right_started},
    {.text = hosts_given, .right = hosts_right_started, .holds = true},
    {.text = hosts_given,
     .right = hosts_right_started,
     .refused = 1u << 3,
     .own = 1u << 3},
    {.text = hosts_given,
     .right = hosts_right_started,
     .unrecorded = 1u << 3,
     .own = 1u << 3}};
enum { KINDS = sizeof kinds / sizeof *kinds, CALLS = 4 };

/* Calls; one that fails is made again at once, and does. */
static air_status
live(life *l)
{
    air_status first = AIR_OK;
    for (int i = 0; i < CALLS; i++) {
        const air_status status = hosts_call(l);
        if (status == AIR_OK)
            continue;
        first = status;
        CHECK_OK(hosts_call(l));
    }
    return first;
}

/* Each call of the device fails once, at any time from the first run on. */
TEST(capture_hosts_when_a_call_of_the_device_fails)
{
    for (int k = 0; k < KINDS; k++) {
        long at = 1, failed = 0;
        for (bool more = true; more && at < 200; at++) {
            life l;
            if (!hosts_open(&l, kinds[k]))
                break;
            wrap_fault_set(at);
            const air_status status = live(&l);
            more = wrap_fault_calls() >= at;
            CHECK(status == AIR_OK || status == AIR_ERROR_DRIVER ||
                  status == AIR_ERROR_MEMORY);
            failed += status != AIR_OK;
            wrap_fault_set(0);
            CHECK_OK(hosts_call(&l));
            hosts_close(&l);
        }
        CHECK(at < 200);
        CHECK(failed >= 5);
    }
}

/* The application fails once, in a call or while it is recorded. */
TEST(capture_hosts_when_the_application_fails)
{
    for (int k = 0; k < KINDS; k++) {
        long at = 1;
        for (bool more = true; more && at < 100; at++) {
            life l;
            if (!hosts_open(&l, kinds[k]))
                break;
            hosts_app.fail_at = at;
            const air_status status = live(&l);
            more = hosts_app.at >= at;
            CHECK(status == AIR_OK || status == AIR_ERROR_HOST);
            hosts_close(&l);
        }
        CHECK(at > 4 && at < 100);
    }
}

static air_status
live_with(const air_alloc *alloc, void *user)
{
    air_options options = {.threads = 1, .alloc = alloc};
    life l;
    hosts_app = *(application *)user;
    wrap_around(hosts_app.on_device ? NULL : capture_double_driver());
    options.driver = hosts_app.on_device ? "cuda" : "check:ref";
    const air_gpu gpu = {.libraries = FAKE_CUDA};
    options.gpu = hosts_app.on_device ? &gpu : NULL;
    air_status status = hosts_begin(&l, &options);
    if (status == AIR_OK)
        status = live(&l);
    hosts_close(&l);
    return status;
}

TEST(capture_hosts_out_of_memory)
{
    for (int k = 0; k < KINDS; k++) {
        application how = kinds[k];
        TEST_OOM(live_with, &how);
    }
}

/* ---- a GPU that is none: nothing is computed, everything is asked for ---- */

static bool
prepare(cuda_case *f, life *l, application how)
{
    how.on_device = true;
    hosts_app = how;
    if (!cuda_case_prepare(f))
        return false;
    f->options.driver = "cuda";
    f->options.gpu = &f->gpu;
    return CHECK_OK(hosts_begin(l, &f->options));
}

static void
nothing_is_left(life *l, const cuda_case *f)
{
    hosts_give_back(l);
    hosts_end(l);
    CHECK_INT(f->cuda->live, 0);
    CHECK_INT(f->nvrtc->live, 0);
}

TEST(capture_hosts_on_a_gpu_are_recorded)
{
    cuda_case f;
    life l;
    if (!prepare(&f, &l, kinds[1]))
        return;
    hosts_check_call(&l, 4, 0);
    hosts_check_call(&l, 1, 3);
    const long launches = f.cuda->launches;
    hosts_check_call(&l, 1, 0);
    CHECK(f.cuda->launches > launches);
    CHECK_INT(f.cuda->instantiated, 2);
    nothing_is_left(&l, &f);
}

/* Each call of CUDA fails once: the call says so, or all went well without; the
 * next one does. */
TEST(capture_hosts_when_a_call_of_cuda_fails)
{
    for (int k = 0; k < KINDS; k++) {
        long at = 1, failed = 0;
        for (bool more = true; more && at < 2000; at++) {
            cuda_case f;
            life l;
            if (!prepare(&f, &l, kinds[k]))
                return;
            f.cuda->fail_at = f.cuda->calls + at;
            const air_status status = live(&l);
            more = f.cuda->calls >= f.cuda->fail_at;
            CHECK(status == AIR_OK || status == AIR_ERROR_DRIVER ||
                  status == AIR_ERROR_MEMORY);
            failed += status != AIR_OK;
            nothing_is_left(&l, &f);
        }
        CHECK(at < 2000);
        CHECK(failed >= 20);
    }
}

TEST(capture_hosts_out_of_memory_on_a_gpu)
{
    for (int k = 0; k < KINDS; k++) {
        application how = kinds[k];
        cuda_case f;
        REQUIRE(cuda_case_prepare(&f));
        how.on_device = true;
        TEST_OOM(live_with, &how);
        CHECK_INT(f.cuda->live, 0);
        CHECK_INT(f.nvrtc->live, 0);
    }
}

/* The GPU is gone, from any call on: every run fails and says what CUDA does,
 * the process lives, and all memory of the host is given back. */
TEST(capture_hosts_when_the_gpu_is_taken_away)
{
    long at = 1;
    for (bool more = true; more && at < 2000; at++) {
        cuda_case f;
        life l;
        test_alloc alloc;
        test_alloc_init(&alloc);
        if (!cuda_case_prepare(&f))
            return;
        hosts_app = (application){.on_device = true, .unrecorded = 1u << 2};
        f.options = (air_options){.driver = "cuda",
                                  .threads = 1,
                                  .alloc = &alloc.alloc,
                                  .gpu = &f.gpu};
        CHECK_OK(hosts_begin(&l, &f.options));
        f.cuda->gone_at = f.cuda->calls + at;
        for (int i = 0; i < CALLS; i++) {
            const air_status status = hosts_call(&l);
            if (f.cuda->calls < f.cuda->gone_at)
                continue;
            if (status != AIR_OK)
                CHECK(strstr(air_last_error()->message, "CUDA_ERROR_FAKE"));
            CHECK_FAILS(hosts_call(&l), DRIVER);
        }
        more = f.cuda->calls >= f.cuda->gone_at;
        nothing_is_left(&l, &f);
        CHECK_CLEAN(&alloc);
    }
    CHECK(at < 2000);
}
