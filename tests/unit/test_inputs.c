/* test_inputs.c: inputs that are kept (wire/inputs.h): whose they are, which go first, until when
 * they are held, and how long they stay. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "suites.h"
#include "wire/inputs.h"

#define ROOM (4 * (size_t)SRV_INPUT_OVERHEAD) /* for three inputs of few numbers */

static struct srv_inputs *inputs;
static struct srv_error error;

static bool grant(void *context, size_t bytes)
{
    (void)context;
    return bytes > 0;
}

static void open_inputs(void) { inputs = srv_inputs_open(ROOM); }
static void close_inputs(void) { srv_inputs_close(inputs); }

/* A request of that API key, to be released. */
static void begin(struct srv_request *request, const char *owner)
{
    static struct srv_budget in_flight = {.limit = SIZE_MAX / 2};
    *request = (struct srv_request){.inputs = inputs, .in_flight = &in_flight};
    snprintf(request->key.name, sizeof request->key.name, "%s", owner);
    srv_arena_init(&request->arena, 1 << 20, grant, NULL);
    error = (struct srv_error){0};
}

/* The digest of the input number i, which is `first` and so on. */
static void name(char out[SRV_INPUT_DIGEST + 1], size_t i)
{
    snprintf(out, SRV_INPUT_DIGEST + 1, "%064zx", i);
}

static enum srv_error_code keep(const char *owner, size_t i, size_t count)
{
    static float numbers[ROOM / sizeof(float)];
    struct srv_tensor tensor = {.present = true, .rank = 1, .shape = {count}, .count = count};
    struct srv_request request;
    char digest[SRV_INPUT_DIGEST + 1];
    tensor.f32 = numbers;
    numbers[0] = (float)i;
    name(digest, i);
    begin(&request, owner);
    enum srv_error_code code = srv_inputs_keep(&request, digest, &tensor, &error);
    srv_request_release(&request);
    return code;
}

static enum srv_error_code find(struct srv_tensor *out, struct srv_request *request, size_t i)
{
    char digest[SRV_INPUT_DIGEST + 1];
    name(digest, i);
    error = (struct srv_error){0};
    return srv_inputs_find(out, request, digest, "key", &error);
}

static bool has(const char *owner, size_t i)
{
    struct srv_request request;
    struct srv_tensor tensor;
    begin(&request, owner);
    bool found = find(&tensor, &request, i) == SRV_OK;
    ck_assert_msg(!found || (tensor.present && tensor.f32[0] == (float)i), "another's numbers");
    srv_request_release(&request);
    return found;
}

CASE(inputs, open_inputs, close_inputs, 0)

TEST(a_key_finds_its_own)
{
    ck_assert_int_eq(keep("a", 1, 8), SRV_OK);
    ck_assert(has("a", 1));
    ck_assert(!has("b", 1));
    ck_assert_int_eq(error.code, SRV_E_INPUT_NOT_FOUND);
    ck_assert(!has("a", 2));
    ck_assert_uint_eq(srv_inputs_bytes(inputs), SRV_INPUT_OVERHEAD + 8 * sizeof(float));
    ck_assert_int_eq(keep("a", 1, 8), SRV_OK); /* again: nothing more */
    ck_assert_uint_eq(srv_inputs_bytes(inputs), SRV_INPUT_OVERHEAD + 8 * sizeof(float));
}

TEST(the_one_used_longest_ago_goes)
{
    for (size_t i = 1; i <= 3; i++)
        ck_assert_int_eq(keep("a", i, 8), SRV_OK);
    ck_assert(has("a", 1));
    ck_assert_int_eq(keep("a", 4, 8), SRV_OK);
    ck_assert(!has("a", 2));
    ck_assert(has("a", 1) && has("a", 3) && has("a", 4));
}

/* Whoever keeps much gives way to who keeps little, not the other way round. */
TEST(the_key_that_keeps_most_gives_way)
{
    ck_assert_int_eq(keep("b", 1, 8), SRV_OK);
    for (size_t i = 2; i <= 9; i++)
        ck_assert_int_eq(keep("a", i, 8), SRV_OK);
    ck_assert(has("b", 1));
    ck_assert(has("a", 8) && has("a", 9) && !has("a", 7));
}

TEST(a_request_holds_what_it_uses)
{
    struct srv_request request;
    struct srv_tensor tensor;
    const size_t half = (ROOM / 2 - SRV_INPUT_OVERHEAD) / sizeof(float);
    ck_assert_int_eq(keep("b", 1, 8), SRV_OK);
    ck_assert_int_eq(keep("a", 2, half), SRV_OK);
    begin(&request, "a");
    ck_assert_int_eq(find(&tensor, &request, 2), SRV_OK);
    ck_assert_int_eq(keep("a", 3, half), SRV_E_OUT_OF_MEMORY); /* b keeps less */
    ck_assert_int_eq(keep("a", 4, 2 * half), SRV_E_OUT_OF_MEMORY);
    ck_assert(has("b", 1) && has("a", 2) && tensor.f32[0] == 2);
    srv_request_release(&request);
    ck_assert_int_eq(keep("a", 3, half), SRV_OK);
    ck_assert(has("b", 1) && !has("a", 2));
}

/* An input that expires while a request computes with it is freed after that. */
TEST(a_held_input_outlives_its_time)
{
    struct srv_request request;
    struct srv_tensor tensor;
    ck_assert_int_eq(keep("a", 1, 8), SRV_OK);
    begin(&request, "a");
    ck_assert_int_eq(find(&tensor, &request, 1), SRV_OK);
    srv_inputs_expire(inputs, UINT64_MAX);
    ck_assert(!has("a", 1) && tensor.f32[0] == 1);
    ck_assert_uint_gt(srv_inputs_bytes(inputs), 0);
    srv_request_release(&request);
    ck_assert_uint_eq(srv_inputs_bytes(inputs), 0);
}

TEST(bounds)
{
    ck_assert_int_eq(keep("a", 1, (ROOM - SRV_INPUT_OVERHEAD) / sizeof(float)), SRV_OK);
    ck_assert_int_eq(keep("a", 2, (ROOM - SRV_INPUT_OVERHEAD) / sizeof(float) + 1),
                     SRV_E_BODY_TOO_LARGE);
    ck_assert(has("a", 1));
    close_inputs();
    inputs = srv_inputs_open(SIZE_MAX / 2);
    for (size_t i = 0; i <= SRV_MAX_INPUTS; i++)
        ck_assert_int_eq(keep(i % 2 == 0 ? "a" : "b", i, 1), SRV_OK);
    ck_assert(!has("a", 0) && has("b", 1) && has("a", SRV_MAX_INPUTS));
}

TEST(what_is_not_used_ends)
{
    const uint64_t ttl_ns = SRV_INPUT_TTL_S * SRV_S_NS, before_ns = srv_now_ns();
    ck_assert_int_eq(keep("a", 1, 8), SRV_OK);
    srv_inputs_expire(inputs, before_ns + ttl_ns);
    ck_assert(has("a", 1));
    srv_inputs_expire(inputs, srv_now_ns() + ttl_ns + 1);
    ck_assert(!has("a", 1));
    ck_assert_uint_eq(srv_inputs_bytes(inputs), 0);
}

SUITE(inputs)
