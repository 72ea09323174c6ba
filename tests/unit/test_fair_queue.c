/* test_fair_queue.c: the order of the fair queue; who may join it, and when to come again. */
#include <check.h>
#include <stdlib.h>

#include "api/endpoints.h"
#include "base/clock.h"
#include "schedule/dispatch.h"
#include "schedule/fair_queue.h"
#include "suites.h"

#define MANY 3000

static struct srv_fair_queue queue;
static struct srv_queue_node nodes[MANY];

static struct srv_queue_node *put(size_t i, unsigned caller, size_t cost)
{
    nodes[i] = (struct srv_queue_node){.caller = caller, .cost = cost};
    srv_fair_queue_put(&queue, SRV_QUEUE_STEPS, &nodes[i]);
    return &nodes[i];
}

static void expect_next(const struct srv_queue_node *node)
{
    ck_assert_ptr_eq(srv_fair_queue_pop(&queue, SRV_QUEUE_STEPS), node);
}

static bool is_empty(void)
{
    size_t waiting = 0;
    for (size_t kind = 0; kind < SRV_NUM_QUEUES; kind++)
        waiting += queue.waiting[kind];
    return waiting == 0;
}

/* ---- Order ----------------------------------------------------------------------------------- */

TEST(fair_queue_one_caller_is_served_in_order)
{
    srv_fair_queue_init(&queue);
    for (size_t i = 0; i < 10; i++)
        put(i, 5, 1 + i % 3);
    ck_assert_uint_eq(queue.waiting[SRV_QUEUE_STEPS], 10);
    for (size_t i = 0; i < 10; i++)
        expect_next(&nodes[i]);
    ck_assert_ptr_null(srv_fair_queue_pop(&queue, SRV_QUEUE_STEPS));
    ck_assert(is_empty());
}

/* The caller with 1,000 nodes and those with ten each get the same while all have some. */
TEST(fair_queue_callers_get_equal_shares_however_much_they_ask_for)
{
    size_t taken[4] = {0};
    srv_fair_queue_init(&queue);
    for (size_t i = 0; i < 1000; i++)
        put(i, 0, 1);
    for (size_t i = 0; i < 30; i++)
        put(1000 + i, 1 + (unsigned)(i % 3), 1);
    for (size_t i = 0; i < 40; i++)
        taken[srv_fair_queue_pop(&queue, SRV_QUEUE_STEPS)->caller]++;
    for (size_t i = 0; i < 4; i++)
        ck_assert_uint_eq(taken[i], 10);
    ck_assert_uint_eq(queue.waiting[SRV_QUEUE_STEPS], 990);
}

TEST(fair_queue_shares_are_counted_in_cost)
{
    size_t taken[2] = {0};
    srv_fair_queue_init(&queue);
    for (size_t i = 0; i < 200; i++)
        put(i, i % 2 ? 1 : 0, i % 2 ? 8 : 1);
    for (size_t i = 0; i < 90; i++)
        taken[srv_fair_queue_pop(&queue, SRV_QUEUE_STEPS)->caller]++;
    ck_assert_uint_eq(taken[0], 80);
    ck_assert_uint_eq(taken[1], 10);
}

/* A caller that was away has not saved up a share that the others would have to wait for. */
TEST(fair_queue_rest_earns_nothing)
{
    size_t taken[2] = {0};
    srv_fair_queue_init(&queue);
    for (size_t i = 0; i < 1000; i++)
        put(i, 0, 1);
    for (size_t i = 0; i < 500; i++)
        expect_next(&nodes[i]);
    for (size_t i = 0; i < 100; i++)
        put(1000 + i, 1, 1);
    for (size_t i = 0; i < 100; i++)
        taken[srv_fair_queue_pop(&queue, SRV_QUEUE_STEPS)->caller]++;
    ck_assert_uint_eq(taken[0], 50);
    ck_assert_uint_eq(taken[1], 50);
}

TEST(fair_queue_has_a_queue_for_each_kind)
{
    srv_fair_queue_init(&queue);
    struct srv_queue_node attend = {.caller = 1, .cost = 100}, *step = put(0, 1, 1);
    srv_fair_queue_put(&queue, SRV_QUEUE_ATTENDS, &attend);
    ck_assert_ptr_eq(srv_fair_queue_pop(&queue, SRV_QUEUE_ATTENDS), &attend);
    ck_assert_ptr_null(srv_fair_queue_pop(&queue, SRV_QUEUE_ATTENDS));
    ck_assert(!is_empty());
    expect_next(step);
}

TEST(fair_queue_walk_leaves_what_it_passes_in_order)
{
    struct srv_queue_walk walk;
    srv_fair_queue_init(&queue);
    for (size_t i = 0; i < MANY; i++)
        put(i, (unsigned)(i % 7), 1);
    srv_queue_walk_begin(&walk, &queue, SRV_QUEUE_STEPS);
    size_t looks = 0;
    for (struct srv_queue_node *w; (w = srv_queue_walk_next(&walk)) != NULL; looks++) {
        size_t i = (size_t)(w - nodes);
        if (i % 3 == 0)
            srv_queue_walk_remove_and_charge(&walk);
        else if (i % 3 == 1)
            srv_queue_walk_remove(&walk);
    }
    ck_assert_uint_eq(looks, MANY);
    ck_assert_uint_eq(queue.waiting[SRV_QUEUE_STEPS], MANY / 3);
    ck_assert_uint_eq((MANY - 2) % 7, 2);
    ck_assert_uint_eq((MANY - 2) % 3, 1);
    put(0, 2, 1); /* after the others of its caller, the last of which the walk has taken */
    size_t before[7] = {0}, left = 0;
    for (struct srv_queue_node *w; (w = srv_fair_queue_pop(&queue, SRV_QUEUE_STEPS)) != NULL;
         left++) {
        size_t i = (size_t)(w - nodes);
        ck_assert(i % 3 == 2 || i == 0);
        ck_assert(i > before[w->caller] || i == 0);
        before[w->caller] = i == 0 ? MANY : i;
    }
    ck_assert_uint_eq(left, MANY / 3 + 1);
}

/* ---- Admission ------------------------------------------------------------------------------- */

#define CAPACITY 80
#define MS UINT64_C(1000000)

static struct srv_admission admission;
static struct srv_error error;

static struct srv_request from(unsigned caller)
{
    return (struct srv_request){.route = &srv_routes.items[0], .caller = caller};
}

/* Has up to `count` requests of a caller join; returns how many did. */
static size_t join(unsigned caller, size_t count)
{
    struct srv_request request = from(caller);
    size_t joined = 0;
    while (joined < count && srv_admission_check(&admission, &request, &error) == SRV_OK) {
        srv_admission_join(&admission, &request);
        joined++;
    }
    return joined;
}

static void setup(void) { ck_assert(srv_admission_init(&admission, CAPACITY, &srv_routes)); }
static void teardown(void)
{
    srv_admission_fini(&admission);
    admission = (struct srv_admission){0};
}

CASE(joining, setup, teardown, 0)

TEST(admission_without_keys_has_the_whole_queue)
{
    struct srv_request request = from(0);
    ck_assert_uint_eq(join(0, 1000), CAPACITY);
    ck_assert_int_eq(error.code, SRV_E_QUEUE_FULL);
    srv_admission_leave(&admission, &request);
    ck_assert_uint_eq(join(0, 1000), 1);
}

TEST(admission_keeps_room_for_callers_below_their_share)
{
    ck_assert_uint_eq(join(3, 1000), CAPACITY - CAPACITY / 8);
    ck_assert_int_eq(error.code, SRV_E_QUEUE_FULL);
    ck_assert_uint_eq(join(7, 4), 4);
    ck_assert_uint_eq(join(3, 1), 0);
    ck_assert_uint_eq(join(1, 1000), CAPACITY / 8 - 4);
    ck_assert_uint_eq(join(9, 1), 0); /* full is full */
}

TEST(admission_a_queue_of_one_takes_one_of_anybody)
{
    teardown();
    ck_assert(srv_admission_init(&admission, 1, &srv_routes));
    ck_assert_uint_eq(join(63, 5), 1);
    ck_assert_uint_eq(join(0, 5), 0);
}

/* `count` requests that end `each_ms` after one another, while others run all the time. */
static void run(size_t count, uint64_t each_ms)
{
    struct srv_request request = from(0), *list[] = {&request};
    for (size_t i = 0; i < count; i++) {
        struct srv_route_pace *pace = &admission.paces[0];
        request.t_popped = 1;
        pace->ended_ns = srv_now_ns() - each_ms * MS;
        srv_admission_count_ended(&admission, list, 1);
    }
}

TEST(admission_predicts_the_wait_from_depth_and_pace)
{
    struct srv_request request = from(0), other = from(0);
    ck_assert_uint_eq(srv_admission_retry_after_s(&admission, &request), 1); /* nothing is known */
    run(40, 500);
    ck_assert_uint_eq(srv_admission_retry_after_s(&admission, &request), 1); /* nobody waits */
    ck_assert_uint_eq(join(0, 20), 20);
    ck_assert_uint_eq(srv_admission_retry_after_s(&admission, &request), 11);
    other.route = &srv_routes.items[1];
    ck_assert_uint_eq(srv_admission_retry_after_s(&admission, &other), 1);
    run(40, 10000);
    ck_assert_uint_eq(srv_admission_retry_after_s(&admission, &request), SRV_MAX_RETRY_S);
    run(400, 1);
    ck_assert_uint_eq(srv_admission_retry_after_s(&admission, &request), 1); /* of late */
}

TEST(admission_a_caller_with_little_waits_for_its_turn_and_not_for_the_queue)
{
    struct srv_request hog = from(1), small = from(2);
    run(40, 100);
    ck_assert_uint_eq(join(1, 60), 60);
    ck_assert_uint_ge(srv_admission_retry_after_s(&admission, &hog), 6);
    ck_assert_uint_eq(srv_admission_retry_after_s(&admission, &small), 1);
    small.deadline_ns = srv_now_ns() + 250 * MS;
    ck_assert_int_eq(srv_admission_check(&admission, &small, &error), SRV_OK);
}

TEST(admission_refuses_what_would_wait_beyond_its_deadline)
{
    struct srv_request request = from(0);
    run(40, 100);
    ck_assert_uint_eq(join(0, 20), 20);
    request.deadline_ns = srv_now_ns() + 1000 * MS;
    ck_assert_int_eq(srv_admission_check(&admission, &request, &error), SRV_E_DEADLINE);
    request.deadline_ns = srv_now_ns() + 5000 * MS;
    ck_assert_int_eq(srv_admission_check(&admission, &request, &error), SRV_OK);
}

SUITE(fair_queue)
