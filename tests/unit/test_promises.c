/* test_promises.c: promises of SECURITY.md that no look at a single result shows: that keys are
 * compared in constant time, and that ids, epochs and hashes cannot be foreseen; and refusals of
 * the sandbox that test_sandbox.c does not try.
 *
 * Time is counted in instructions: a child calls the function between two stops, and its parent
 * steps it from one to the other.  So the figure is exact and does not depend on the machine's
 * load. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attn.h"
#include "config/keys.h"
#include "ops/sandbox.h"
#include "session/models.h"
#include "session/session.h"
#include "suites.h"

/* ---- Comparing keys -------------------------------------------------------------------------- */

#define KEYS 16
#define MOST_STEPS 1000000
#define TELLING 8 /* instructions: what follows the comparison may differ by a branch */

static struct srv_keys keys;

/* Fills the keys with digests that agree in no byte. */
static void make_keys(void)
{
    keys = (struct srv_keys){.count = KEYS};
    for (size_t i = 0; i < KEYS; i++)
        for (size_t j = 0; j < SRV_KEY_DIGEST; j++)
            keys.items[i].digest[j] = (unsigned char)(i * 16 + j % 16);
}

static void look_up(const unsigned char digest[SRV_KEY_DIGEST])
{
    (void)srv_keys_find(&keys, digest); /* loads what is bound or paged in at first use */
    raise(SIGSTOP);
    const struct srv_key *volatile found = srv_keys_find(&keys, digest);
    (void)found;
    raise(SIGSTOP);
    _exit(0);
}

/* The instructions of looking up a digest. */
static long count_instructions(const unsigned char digest[SRV_KEY_DIGEST])
{
    int status;
    long steps = 0;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(1);
        look_up(digest);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "no tracing: %d", status);
    do {
        ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFSTOPPED(status), "the child ended: %d", status);
    } while (WSTOPSIG(status) == SIGTRAP && steps++ < MOST_STEPS);
    ck_assert_int_eq(WSTOPSIG(status), SIGSTOP);
    ptrace(PTRACE_CONT, child, NULL, NULL);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return steps;
}

/* The digest of key i with its bit turned in the byte `at`; with at == SRV_KEY_DIGEST the key's. */
static long count_near(size_t i, size_t at)
{
    unsigned char digest[SRV_KEY_DIGEST];
    memcpy(digest, keys.items[i].digest, sizeof digest);
    if (at < SRV_KEY_DIGEST)
        digest[at] ^= 0x80;
    return count_instructions(digest);
}

TEST(comparing_keys_takes_the_same_instructions_wherever_they_differ)
{
    make_keys();
    long first = count_near(0, 0);
    ck_assert_int_gt(first, KEYS * SRV_KEY_DIGEST / 8); /* at the least a load for 8 bytes */
    for (size_t at = 1; at < SRV_KEY_DIGEST; at += 10)
        ck_assert_int_eq(count_near(0, at), first);
    ck_assert_int_eq(count_near(KEYS - 1, SRV_KEY_DIGEST - 1), first);
}

TEST(comparing_keys_takes_the_same_instructions_whichever_key_it_is)
{
    make_keys();
    long first = count_near(0, SRV_KEY_DIGEST), none = count_near(0, 0);
    ck_assert_int_eq(count_near(KEYS / 2, SRV_KEY_DIGEST), first);
    ck_assert_int_eq(count_near(KEYS - 1, SRV_KEY_DIGEST), first);
    ck_assert_int_le(labs(none - first), TELLING);
}

/* ---- What cannot be foreseen ----------------------------------------------------------------- */

#define MADE 256         /* sessions */
#define DIGITS 21        /* of an id that attnd makes, after the generation's */
#define FEWEST_DIGITS 16 /* of 32 that must occur in each place */
#define ID_AT (sizeof "here.12345" - 1)

static const struct srv_limits limits = {.max_sessions = 1024, .session_ttl_s = 100};
static struct srv_model model;

static void open_model(void)
{
    static const char random[] = "{\"hidden_size\":16,\"num_attention_heads\":2,\"seed\":1}";
    struct attn_error cause = {0};
    ck_assert_int_eq(attn_cache_pool_new(&model.pool, 1 << 20), ATTN_OK);
    ck_assert_msg(attn_model_open_random(&model.attn, random, sizeof random - 1, NULL, &cause) ==
                      ATTN_OK,
                  "%s", cause.message);
    attn_model_describe(&model.info, model.attn);
    model.max_length = 64;
}

static void close_model(void)
{
    attn_model_close(model.attn);
    attn_cache_pool_free(model.pool);
}

/* A table with MADE sessions of the ids s0, s1, ..., or, without `named`, of ids that it makes. */
static struct srv_sessions *open_table(bool named)
{
    struct srv_sessions *sessions;
    ck_assert(srv_sessions_open(&sessions, &limits, "here"));
    for (unsigned i = 0; i < MADE; i++) {
        char id[16];
        struct srv_session *session;
        struct srv_error error = {0};
        snprintf(id, sizeof id, "s%u", i);
        const struct srv_session_options options = {.id = named ? id : NULL};
        ck_assert_int_eq(srv_session_create(&session, sessions, &model, &options, &error), SRV_OK);
        srv_session_put(session);
    }
    return sessions;
}

static void free_list(struct srv_session *list[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        srv_session_put(list[i]);
    free(list);
}

CASE(sessions, open_model, close_model, 0)

TEST(every_place_of_an_id_that_is_made_takes_many_values)
{
    struct srv_sessions *sessions = open_table(false);
    struct srv_session **list;
    size_t count;
    ck_assert(srv_sessions_all(&list, &count, sessions));
    ck_assert_uint_eq(count, MADE);
    for (size_t place = 0; place < DIGITS; place++) {
        bool seen[256] = {false};
        unsigned values = 0;
        for (size_t i = 0; i < count; i++) {
            ck_assert_uint_eq(strlen(list[i]->id), ID_AT + DIGITS);
            bool *one = &seen[(unsigned char)list[i]->id[ID_AT + place]];
            values += !*one;
            *one = true;
        }
        ck_assert_msg(values >= FEWEST_DIGITS, "place %zu has %u values", place, values);
    }
    free_list(list, count);
    srv_sessions_close(sessions);
}

TEST(epochs_of_two_runs_have_nothing_in_common)
{
    struct srv_sessions *tables[2] = {open_table(true), open_table(true)};
    for (unsigned i = 0; i < MADE; i++) {
        char id[16];
        struct srv_session *a, *b;
        snprintf(id, sizeof id, "s%u", i);
        a = srv_session_peek(tables[0], NULL, id);
        b = srv_session_peek(tables[1], NULL, id);
        ck_assert_uint_ne(a->epoch >> 12, b->epoch >> 12); /* the random part of a run */
        srv_session_put(a);
        srv_session_put(b);
    }
    srv_sessions_close(tables[0]);
    srv_sessions_close(tables[1]);
}

/* The order of a table's buckets is that of the hashes of the ids.  Of a hash that is the same in
 * each run anybody can compute ids that all fall into one bucket. */
TEST(ids_fall_into_other_buckets_in_each_run)
{
    struct srv_sessions *tables[2] = {open_table(true), open_table(true)};
    struct srv_session **lists[2];
    size_t counts[2], same = 0;
    for (size_t i = 0; i < 2; i++)
        ck_assert(srv_sessions_all(&lists[i], &counts[i], tables[i]));
    for (size_t i = 0; i < MADE; i++)
        same += strcmp(lists[0][i]->id, lists[1][i]->id) == 0;
    ck_assert_uint_lt(same, MADE / 4);
    for (size_t i = 0; i < 2; i++) {
        free_list(lists[i], counts[i]);
        srv_sessions_close(tables[i]);
    }
}

/* Both are made before either is listed, as by two requests at once. */
TEST(of_two_sessions_of_one_id_the_first_that_is_listed_stays)
{
    struct srv_sessions *sessions = open_table(true);
    const struct srv_session_options options = {.id = "one"};
    struct srv_session *made[2], *found;
    struct srv_error error = {0};
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(srv_session_new(&made[i], sessions, &model, &options, &error), SRV_OK);
    ck_assert_int_eq(srv_session_insert(sessions, made[0], &error), SRV_OK);
    ck_assert_int_eq(srv_session_insert(sessions, made[1], &error), SRV_E_SESSION_EXISTS);
    ck_assert_uint_eq(srv_sessions_count(sessions), MADE + 1);
    found = srv_session_peek(sessions, NULL, "one");
    ck_assert_ptr_eq(found, made[0]);
    srv_session_put(found);
    for (size_t i = 0; i < 2; i++)
        srv_session_put(made[i]);
    srv_sessions_close(sessions);
}

/* ---- The sandbox ----------------------------------------------------------------------------- */

static char inside[64];

static void make_directory(void)
{
    snprintf(inside, sizeof inside, "/tmp/attnd-promises-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(inside));
}

static void remove_directory(void) { ck_assert_int_eq(rmdir(inside), 0); }

/* Enters the sandbox as the daemon does; `reads` where it reloads files. */
static bool enter_sandbox(bool reads)
{
    char message[SRV_MESSAGE_MAX];
    int directory;
    const char *directories[] = {inside};
    return srv_sandbox_restrict_files(directories, 1, message) &&
           (directory = open(inside, O_RDONLY | O_DIRECTORY)) >= 0 &&
           srv_sandbox_restrict_calls(&directory, 1, reads, message);
}

static bool refused(long result) { return result == -1 && errno == EPERM; }

static bool makes_no_code_of_memory(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page != MAP_FAILED && enter_sandbox(false) && mprotect(page, size, PROT_READ) == 0 &&
           refused(mprotect(page, size, PROT_EXEC));
}

static bool signals_itself_alone(void)
{
    pid_t parent = getppid(), self = getpid();
    return enter_sandbox(false) && syscall(SYS_tgkill, self, self, 0) == 0 &&
           refused(syscall(SYS_tgkill, parent, parent, 0));
}

static bool reloads_by_reading_alone(void)
{
    return enter_sandbox(true) && open("/etc/passwd", O_RDONLY) >= 0 &&
           refused(open("/dev/null", O_WRONLY)) && refused(open("/dev/null", O_RDWR)) &&
           refused(open("/etc/passwd", O_RDONLY | O_TRUNC)) &&
           refused(open("/tmp/attnd-promises", O_RDONLY | O_CREAT, 0600));
}

static bool (*const attempts[])(void) = {makes_no_code_of_memory, signals_itself_alone,
                                         reloads_by_reading_alone};
#define ATTEMPTS (int)COUNT(attempts)

CASE(sandbox, make_directory, remove_directory, 0)

TEST_EACH(sandbox_refuses_code_signals_and_writing_when_files_are_reloaded, ATTEMPTS)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(attempts[_i]() ? 0 : 1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "attempt %d: %d", _i, status);
}

SUITE(promises)
