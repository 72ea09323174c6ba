/* test_session.c: the table of sessions: ids, expiry, who is nearest, and several threads at
 * once.  Limits, refusals and pages are shown by the HTTP suites sessions and instances.
 *
 * The model is random and never loaded: caches need its shape only. */
#include <check.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "attn.h"
#include "base/clock.h"
#include "http/http.h"
#include "session/models.h"
#include "session/session.h"
#include "suites.h"

#define NS_PER_S UINT64_C(1000000000)

static struct srv_limits limits = {.max_sessions = 8, .session_ttl_s = 100};
static struct srv_model model;
static struct srv_sessions *sessions;
static struct srv_error error;

static void open_table(void)
{
    static const char random[] = "{\"hidden_size\":16,\"num_attention_heads\":2,\"seed\":1}";
    struct attn_error cause = {0};
    ck_assert_int_eq(attn_cache_pool_new(&model.pool, 1 << 20), ATTN_OK);
    ck_assert_msg(attn_model_open_random(&model.attn, random, sizeof random - 1, NULL, &cause) ==
                      ATTN_OK,
                  "%s", cause.message);
    attn_model_describe(&model.info, model.attn);
    model.max_length = 64;
    ck_assert(srv_sessions_open(&sessions, &limits, "here"));
    srv_sessions_set_identity(sessions, 0, &(struct srv_identity){"here", "zyxwv"});
    error = (struct srv_error){0};
}

static void close_table(void)
{
    srv_sessions_close(sessions);
    attn_model_close(model.attn);
    ck_assert_uint_eq(attn_cache_pool_used(model.pool), 0);
    attn_cache_pool_free(model.pool);
}

static enum srv_error_code create(struct srv_session **out, const char *id, size_t max_length,
                                  size_t ttl_s)
{
    struct srv_session_options options = {.id = id, .max_length = max_length, .ttl_s = ttl_s};
    return srv_session_create(out, sessions, &model, &options, &error);
}

/* Ids that no session has, and what a caller is told of each. */
static const struct {
    const char *id;
    enum srv_error_code code;
} missing[] = {
    {"there.0123456789abcdefghjkmnpqrs", SRV_E_WRONG_INSTANCE},
    {"here-2.0123456789abcdefghjkmnpqrs", SRV_E_WRONG_INSTANCE},
    {"her.0123456789abcdefghjkmnpqrs", SRV_E_WRONG_INSTANCE},
    {"HERE.0123456789abcdefghjkmnpqrs", SRV_E_WRONG_INSTANCE},
    {"here.zyxwv56789abcdefghjkmnpqrs", SRV_E_SESSION_NOT_FOUND}, /* made here, and gone */
    {"here.0123456789abcdefghjkmnpqrs", SRV_E_SESSION_LOST},      /* in another directory */
    {"here.zyxw056789abcdefghjkmnpqrs", SRV_E_SESSION_LOST},
    {"there.0123456789abcdefghjkmnpqr", SRV_E_SESSION_NOT_FOUND},   /* 25 digits */
    {"there.0123456789abcdefghjkmnpqrst", SRV_E_SESSION_NOT_FOUND}, /* 27 */
    {"there.0123456789abcdefghijkmnpqr", SRV_E_SESSION_NOT_FOUND},  /* i is no digit */
    {"the_re.0123456789abcdefghjkmnpqrs", SRV_E_SESSION_NOT_FOUND}, /* no instance's name */
    {"a.there.0123456789abcdefghjkmnpqrs", SRV_E_SESSION_NOT_FOUND},
    {"-there.0123456789abcdefghjkmnpqrs", SRV_E_SESSION_NOT_FOUND},
    {"there%.0123456789abcdefghjkmnpqrs", SRV_E_SESSION_NOT_FOUND},
    {".0123456789abcdefghjkmnpqrs", SRV_E_SESSION_NOT_FOUND},
    {"there", SRV_E_SESSION_NOT_FOUND},
    {"there.", SRV_E_SESSION_NOT_FOUND},
    {"abcdefghijklmnopqrstuvwxyz0123456.0123456789abcdefghjkmnpqrs", SRV_E_SESSION_NOT_FOUND},
    {"", SRV_E_SESSION_NOT_FOUND},
};

CASE(session, open_table, close_table, 0)

TEST_EACH(session_missing_id_of_another_instance_is_told_apart, COUNT(missing))
{
    ck_assert_int_eq(srv_session_fail_missing(sessions, missing[_i].id, &error), missing[_i].code);
    ck_assert_int_eq(error.code, missing[_i].code);
    ck_assert_str_eq(error.param, "session_id");
    size_t owner = error.code == SRV_E_WRONG_INSTANCE ? strcspn(missing[_i].id, ".") : 0;
    ck_assert(strlen(error.instance) == owner &&
              memcmp(error.instance, missing[_i].id, owner) == 0);
}

TEST(session_ids_have_instance_generation_and_105_other_bits)
{
    struct srv_session *first, *second;
    ck_assert_int_eq(create(&first, NULL, 0, 0), SRV_OK);
    ck_assert_int_eq(create(&second, NULL, 0, 0), SRV_OK);
    ck_assert_uint_eq(strlen(first->id), strlen("here.") + 26);
    ck_assert_int_eq(strncmp(first->id, "here.zyxwv", 10), 0);
    ck_assert_int_eq(strncmp(second->id, "here.zyxwv", 10), 0);
    ck_assert_str_ne(first->id + 10, second->id + 10);
    ck_assert_uint_eq(strspn(first->id + 5, "0123456789abcdefghjkmnpqrstvwxyz"), 26);
    srv_session_put(first);
    srv_session_put(second);
}

/* Of a table of the same instance, 25 random bits agree by chance once in 33 million times. */
TEST(session_tables_have_generations_of_their_own)
{
    struct srv_sessions *other;
    struct srv_identity identity;
    ck_assert(srv_sessions_open(&other, &limits, "here"));
    identity = *srv_sessions_identity(other);
    srv_sessions_close(other);
    ck_assert_str_eq(identity.instance, "here");
    ck_assert(srv_generation_valid(identity.generation));
    ck_assert(srv_sessions_open(&other, &limits, "here"));
    ck_assert_str_ne(srv_sessions_identity(other)->generation, identity.generation);
    srv_sessions_close(other);
}

/* Finds a session and takes it out of the table, as DELETE does. */
static bool delete_session(const char *id)
{
    struct srv_session *session = srv_session_peek(sessions, NULL, id);
    bool removed = session != NULL && srv_session_remove(sessions, session);
    srv_session_put(session);
    return removed;
}

/* Expires sessions; returns how many. */
static size_t expire(uint64_t now_ns)
{
    struct srv_session *session = srv_sessions_expire(sessions, now_ns), *next;
    size_t count = 0;
    for (; session != NULL; session = next, count++) {
        next = session->next;
        srv_session_put(session);
    }
    return count;
}

/* Creates a session that the table alone holds. */
static void add(const char *id)
{
    struct srv_session *session;
    ck_assert_msg(create(&session, id, 0, 0) == SRV_OK, "%s", error.message);
    srv_session_put(session);
}

TEST(session_left_out_options_take_the_model_s_and_the_table_s)
{
    struct srv_session *session;
    ck_assert_int_eq(create(&session, NULL, 0, 0), SRV_OK);
    ck_assert_uint_eq(attn_cache_max_length(session->cache), 64);
    ck_assert_uint_eq(session->ttl_ns, 100 * NS_PER_S);
    ck_assert_int_eq(strncmp(session->id, "here.", 5), 0);
    ck_assert_uint_eq(strlen(session->id), 5 + 26);
    srv_session_put(session);
}

TEST(session_expires_when_its_time_is_over_and_nothing_waits_for_it)
{
    struct srv_session *waited;
    uint64_t now = srv_now_ns();
    add("idle");
    ck_assert_int_eq(create(&waited, "waited", 0, 0), SRV_OK);
    atomic_store(&waited->waiting, 1);
    ck_assert_uint_eq(expire(now + 99 * NS_PER_S), 0);
    ck_assert_uint_eq(expire(srv_now_ns() + 100 * NS_PER_S), 1);
    ck_assert_ptr_null(srv_session_get(sessions, NULL, "idle"));
    atomic_store(&waited->waiting, 0);
    ck_assert_uint_eq(expire(srv_now_ns() + 100 * NS_PER_S), 1);
    ck_assert_uint_eq(srv_sessions_count(sessions), 0);
    srv_session_put(waited);
}

TEST(idle_time_may_have_begun_before_the_machine_did)
{
    struct srv_session *session;
    struct timespec up;
    clock_gettime(CLOCK_MONOTONIC, &up);
    ck_assert_int_eq(create(&session, "a", 0, 0), SRV_OK);
    uint64_t used =
        srv_session_used(sessions, session) - 2 * ((uint64_t)up.tv_sec + 100) * NS_PER_S;
    srv_session_set_used(sessions, session, used);
    ck_assert_uint_lt(srv_session_used(sessions, session) - used + NS_PER_S, 2 * NS_PER_S);
    ck_assert_uint_eq(expire(srv_now_ns()), 1);
    srv_session_put(session);
}

/* Whatever was first in the list: its own, then one of its group, then one that is shared. */
TEST(session_nearest_to_a_caller_is_its_own_then_its_group_s)
{
    static const struct srv_session_options options[] = {
        {.id = "x", .owner = "c", .shared = true},
        {.id = "x", .owner = "b", .group = "g"},
        {.id = "x", .owner = "a"},
    };
    const struct srv_key caller = {.name = "a", .group = "g", .scopes = SRV_SCOPE_INFER};
    struct srv_session *made[3];
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(srv_session_create(&made[i], sessions, &model, &options[i], &error),
                         SRV_OK);
        struct srv_session *found = srv_session_peek(sessions, &caller, "x");
        ck_assert_ptr_eq(found, made[i]);
        srv_session_put(found);
    }
    for (size_t i = 0; i < 3; i++)
        srv_session_put(made[i]);
}

TEST(session_get_counts_as_use_and_peek_does_not)
{
    struct srv_session *session;
    ck_assert_int_eq(create(&session, "a", 0, 0), SRV_OK);
    atomic_store(&session->used_ns, 1);
    srv_session_put(srv_session_peek(sessions, NULL, "a"));
    ck_assert_uint_eq(atomic_load(&session->used_ns), 1);
    srv_session_put(srv_session_get(sessions, NULL, "a"));
    ck_assert_uint_gt(atomic_load(&session->used_ns), 1);
    srv_session_put(session);
}

/* ---- Several threads ------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 500

/* Creates, finds and deletes a session of one id; counts its own successes. */
static void *contend(void *count)
{
    size_t *created = count;
    struct srv_error own = {0};
    struct srv_session_options options = {.id = "shared"};
    for (int i = 0; i < ROUNDS; i++) {
        struct srv_session *session = NULL, *found;
        enum srv_error_code code = srv_session_create(&session, sessions, &model, &options, &own);
        if (code != SRV_OK && code != SRV_E_SESSION_EXISTS)
            return NULL; /* too few rounds: the test fails on the count */
        found = srv_session_get(sessions, NULL, "shared");
        srv_session_put(found);
        expire(srv_now_ns());
        created[0] += code == SRV_OK;
        created[1] += code == SRV_OK && delete_session("shared");
        created[2]++;
        srv_session_put(session);
    }
    return NULL;
}

TEST(session_of_creates_at_once_exactly_one_wins)
{
    pthread_t threads[THREADS];
    size_t counts[THREADS][3] = {{0}};
    size_t created = 0, deleted = 0;
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, contend, counts[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(counts[i][2], ROUNDS);
        created += counts[i][0];
        deleted += counts[i][1];
    }
    /* Only the winner deletes what it made, so nothing is deleted twice or left. */
    ck_assert_uint_ge(created, 1);
    ck_assert_uint_eq(created, deleted);
    ck_assert_uint_eq(srv_sessions_count(sessions), 0);
}

/* Creates sessions until the table is full. */
static void *fill(void *created)
{
    struct srv_error own = {0};
    struct srv_session_options options = {.id = NULL};
    for (int i = 0; i < 8; i++) {
        struct srv_session *session = NULL;
        if (srv_session_create(&session, sessions, &model, &options, &own) == SRV_OK)
            ++*(size_t *)created;
        srv_session_put(session);
    }
    return NULL;
}

TEST(session_limit_holds_for_creates_at_once)
{
    pthread_t threads[THREADS];
    size_t counts[THREADS] = {0}, created = 0;
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, fill, &counts[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        created += counts[i];
    }
    ck_assert_uint_eq(created, limits.max_sessions);
    ck_assert_uint_eq(srv_sessions_count(sessions), limits.max_sessions);
}

SUITE(session)
