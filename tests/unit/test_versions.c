/* test_versions.c: a state directory with a file of another version, its checksum right: nothing
 * begins over it and nothing in it changes, and the sessions are there for the build that knows the
 * version. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "disk.h"
#include "store/identity.h"
#include "store/store_check.h"
#include "store/store_files.h"
#include "store/stores.h"
#include "store/versions.h"
#include "store_app.h"
#include "suites.h"

#define SESSIONS 3
#define TEXT_MAX ((size_t)1 << 20)

static struct srv_app app;
static char own[SCRATCH_PATH], other[SCRATCH_PATH], message[512];

/* ---- A directory ----------------------------------------------------------------------------- */

static bool open_stores(const char *instance, char *directory, const char *adopt)
{
    app.config.state_dir = directory;
    ck_assert(srv_sessions_open(&app.sessions, &app.config.limits, instance));
    const struct srv_store_context context = srv_app_store_context(&app);
    return srv_stores_open(&app.store, &context, adopt, message, sizeof message) &&
           srv_stores_load(app.store, message, sizeof message);
}

static void close_stores(void)
{
    ck_assert(srv_stores_close(app.store));
    srv_sessions_close(app.sessions);
}

static void expect_sessions(size_t rows)
{
    char id[8] = "s0";
    for (; id[1] < '0' + SESSIONS; id[1]++)
        ck_assert_uint_eq(store_app_length(&app, id), rows);
}

/* The directory has a snapshot of sessions of a row, and a row of each in a journal after it. */
static void set_up(void)
{
    char id[8] = "s0";
    disk_reset();
    store_app_open_tiny(&app, 8, 64);
    app.config.limits.session_ttl_s = 100;
    snprintf(own, sizeof own, "%s", app.config.state_dir);
    scratch_make(other);
    ck_assert(open_stores("a", own, NULL));
    for (; id[1] < '0' + SESSIONS; id[1]++) {
        struct srv_session *session = store_app_session(&app, id);
        ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
        srv_session_put(session);
    }
    ck_assert(srv_store_start(app.store, message, sizeof message));
    store_app_snapshot(&app);
    for (id[1] = '0'; id[1] < '0' + SESSIONS; id[1]++) {
        struct srv_session *session = srv_session_get(app.sessions, NULL, id);
        ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
        srv_session_put(session);
    }
    close_stores();
}

static void tear_down(void)
{
    store_app_close(&app);
    scratch_remove(other);
}

/* All that the directory says: names, times and bytes of its files. */
static char *listing(const char *path)
{
    char command[2 * SCRATCH_PATH + 128];
    size_t length;
    snprintf(command, sizeof command,
             "cd %s && { stat -c '%%n %%s %%i %%y' * && cat *; } > %s.listing", path, path);
    ck_assert_int_eq(system(command), 0);
    snprintf(command, sizeof command, "%s.listing", path);
    char *text = scratch_read(&length, "/", command + 1);
    char *sum = malloc(17);
    snprintf(sum, 17, "%016llx", (unsigned long long)XXH3_64bits(text, length / 4 * 4));
    ck_assert_int_eq(unlink(command), 0);
    free(text);
    return sum;
}

/* ---- Files of the next version --------------------------------------------------------------- */

struct bytes {
    char *at;
    size_t length;
};

/* The version stands in the head, and the checksum of what is before behind it. */
static void raise_journal(struct bytes *file, bool right)
{
    const size_t at = 16, sum_at = at + 8;
    file->at[at]++;
    const uint64_t sum = XXH3_64bits(file->at, sum_at) ^ !right;
    memcpy(file->at + sum_at, &sum, sizeof sum);
}

static void raise_identity(struct bytes *file, bool right)
{
    static const char text[] = "{\"instance\":\"a\",\"generation\":\"k3f9q\",\"version\":2}\n",
                      wrong[] = "{\"instance\":\"a\",\"generation\":\"k3f9q\",\"version\":x}\n";
    free(file->at);
    file->at = strdup(right ? text : wrong);
    file->length = strlen(file->at);
}

static const struct kind {
    const char *files; /* as the shell names them */
    void (*raise)(struct bytes *file, bool right);
    const char *says;
} kinds[] = {
    {"*.journal", raise_journal, "version 7, and this build of attnd reads version 6"},
    {"*.manifest", raise_journal, "version 7, and this build of attnd reads version 6"},
    {"*.copy", raise_journal, "version 7, and this build of attnd reads version 6"},
    {"identity", raise_identity, "version 2, and this build of attnd reads files without one"},
};
#define KINDS ((int)COUNT(kinds))

/* Raises the version of the last file of the kind; its name, and the bytes that it had. */
static struct bytes raise_last(char name[64], const struct kind *kind, bool right)
{
    char command[SCRATCH_PATH + 64];
    snprintf(command, sizeof command, "cd %s && ls %s | tail -1", own, kind->files);
    FILE *list = popen(command, "r");
    ck_assert(list != NULL && fscanf(list, "%63s", name) == 1);
    ck_assert_int_eq(pclose(list), 0);
    struct bytes before, file;
    before.at = scratch_read(&before.length, own, name);
    file.at = scratch_read(&file.length, own, name);
    kind->raise(&file, right);
    scratch_write(own, name, file.at, file.length);
    free(file.at);
    return before;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void expect_refused(const char *instance, char *directory, const char *adopt,
                           const char *name, const char *says)
{
    message[0] = '\0';
    ck_assert(!open_stores(instance, directory, adopt));
    close_stores();
    ck_assert_msg(strstr(message, name) != NULL && strstr(message, says) != NULL &&
                      strstr(message, own) != NULL &&
                      strstr(message, "start the build that wrote it;") != NULL,
                  "%s", message);
}

static void expect_unchanged(const char *before)
{
    char *now = listing(own);
    ck_assert_str_eq(now, before);
    free(now);
}

/* What `attnd journal check` says. */
static void expect_checked(const char *name, const char *says)
{
    struct srv_store_check check;
    struct srv_buffer text;
    char why[SRV_STORE_CHECK_MESSAGE], line[256];
    int directory = open(own, O_RDONLY | O_DIRECTORY);
    srv_buffer_init(&text, TEXT_MAX);
    ck_assert(srv_store_check(&check, &text, directory, why));
    srv_buffer_append(&text, "", 1);
    snprintf(line, sizeof line, "%s: of another version: %s\n", name, says);
    ck_assert_msg(check.later == 1 && check.damaged == 0 && strstr(text.data, line) != NULL, "%s",
                  text.data);
    srv_buffer_fini(&text);
    close(directory);
}

CASE(versions, set_up, tear_down, 0)

TEST_EACH(versions_a_later_one_is_refused_and_nothing_is_touched, KINDS)
{
    const struct kind *kind = &kinds[_i];
    char name[64];
    const struct bytes before = raise_last(name, kind, true);
    char *whole = listing(own);
    expect_refused("a", own, NULL, name, kind->says);
    expect_unchanged(whole);
    expect_refused("b", other, own, name, kind->says);
    expect_unchanged(whole);
    free(whole);
    expect_checked(name, kind->says);
    scratch_write(own, name, before.at, before.length);
    free(before.at);
    ck_assert_msg(open_stores("a", own, NULL), "%s", message);
    expect_sessions(2);
    close_stores();
    ck_assert(open_stores("b", other, own));
    expect_sessions(2);
    close_stores();
}

TEST_EACH(versions_a_directory_without_a_lock_file_gets_none, KINDS)
{
    char name[64];
    free(raise_last(name, &kinds[_i], true).at);
    store_app_shell(&app, "rm lock");
    char *whole = listing(own);
    expect_refused("a", own, NULL, name, kinds[_i].says);
    expect_unchanged(whole);
    free(whole);
}

/* Versions of which checksums were of another kind (4) are known by their magic. */
TEST_EACH(versions_an_older_one_is_refused_too, 2)
{
    char name[64], says[64];
    struct bytes file = raise_last(name, &kinds[0], true);
    const uint64_t version = _i == 0 ? 4 : 5;
    memcpy(file.at, _i == 0 ? "ATTNJRNL" : file.at, 8);
    memcpy(file.at + 16, &version, 4);
    const uint64_t sum = XXH3_64bits(file.at, 24);
    memcpy(file.at + 24, _i == 0 ? file.at + 24 : (const char *)&sum, 8);
    scratch_write(own, name, file.at, file.length);
    free(file.at);
    char *whole = listing(own);
    snprintf(says, sizeof says, "version %d, and this build of attnd reads version 6", _i + 4);
    expect_refused("a", own, NULL, name, says);
    expect_unchanged(whole);
    free(whole);
}

/* Builds that kept each session in a file of its own. */
TEST_EACH(versions_files_of_sessions_are_refused, 2)
{
    static const char *const names[] = {"0000000000000002.base",
                                        "0123456789abcdef-0000000000000002.session"};
    static const char says[] =
        "an older form, with a file for each session, and this build of attnd reads blocks";
    scratch_write(own, names[_i], "what it was", 11);
    char *whole = listing(own);
    expect_refused("a", own, NULL, names[_i], says);
    expect_refused("b", other, own, names[_i], says);
    expect_unchanged(whole);
    free(whole);
    expect_checked(names[_i], says);
}

/* A head that says so with a wrong checksum is damaged, as before. */
TEST_EACH(versions_a_damaged_head_is_no_later_version, KINDS)
{
    char name[64];
    free(raise_last(name, &kinds[_i], false).at);
    int directory = open(own, O_RDONLY | O_DIRECTORY);
    ck_assert_msg(srv_versions_are_known(directory, own, message, sizeof message), "%s", message);
    close(directory);
}

SUITE(versions)
