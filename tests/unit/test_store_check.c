/* test_store_check.c: what `attnd journal check` says that a start would do is what a start does:
 * over every choice of files that are missing, and over damage in each file. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store_check.h"
#include "store/store_files.h"
#include "store_app.h"
#include "suites.h"

#define FILES_MAX 12
#define PLACES 16    /* of a file that are damaged, one at a time */
#define USED_SLOTS 4 /* of the file of blocks: a block of each session of the snapshot */

static struct srv_app app;
static char scene[SCRATCH_PATH]; /* the files as they were */
static char names[FILES_MAX][SRV_FILE_NAME];
static size_t num_files;

/* Sessions of every kind: in the manifest with and without records since, forked, cut, deleted, and
 * in the newer of two journals alone. */
static void make_scene(void)
{
    struct srv_session *a = store_app_session(&app, "a"), *b = store_app_session(&app, "b");
    struct srv_session *c = store_app_session(&app, "c"), *d = store_app_session(&app, "d");
    struct srv_session *const all[] = {a, b, c, d};
    struct srv_error error;
    for (size_t i = 0; i < 8; i++)
        ck_assert_int_eq(store_app_append(&app, all[i % 4]), SRV_OK);
    store_app_snapshot(&app);
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    srv_session_put(store_app_fork(&app, a, "fork"));
    ck_assert_int_eq(store_app_truncate(&app, b, 1), SRV_OK);
    ck_assert_int_eq(srv_store_delete(app.store, c, &error), SRV_OK);
    srv_session_remove(app.sessions, c);
    for (size_t i = 0; i < 4; i++)
        srv_session_put(all[i]);
    store_app_end(&app);
    store_app_begin(&app);
    struct srv_session *late = store_app_session(&app, "late");
    ck_assert_int_eq(store_app_append(&app, late), SRV_OK);
    srv_session_put(late);
    store_app_end(&app);
}

static void keep_scene(void)
{
    struct srv_file *files;
    int directory = open(app.config.state_dir, O_RDONLY | O_DIRECTORY);
    char command[2 * SCRATCH_PATH];
    ck_assert(srv_files_list(&files, &num_files, directory) && num_files <= FILES_MAX);
    for (size_t i = 0; i < num_files; i++)
        snprintf(names[i], sizeof names[i], "%s", files[i].name);
    free(files);
    close(directory);
    snprintf(command, sizeof command, "cp %s/* %s", app.config.state_dir, scene);
    ck_assert_int_eq(system(command), 0);
}

static void set_up(void)
{
    scratch_make(scene);
    store_app_open_tiny(&app, 16, 64);
    store_app_begin(&app);
    make_scene();
    keep_scene();
}

static void tear_down(void)
{
    store_app_close(&app);
    scratch_remove(scene);
}

/* ---- Check and start ------------------------------------------------------------------------- */

static void check(struct srv_store_check *out)
{
    char message[SRV_STORE_CHECK_MESSAGE];
    struct srv_buffer text;
    int directory = open(app.config.state_dir, O_RDONLY | O_DIRECTORY);
    srv_buffer_init(&text, (size_t)1 << 20);
    ck_assert_msg(srv_store_check(out, &text, directory, message), "%s", message);
    srv_buffer_fini(&text);
    close(directory);
}

static size_t lost_so_far(void)
{
    static const char name[] = "\nattnd_sessions_lost_total ";
    struct srv_buffer text;
    srv_buffer_init(&text, (size_t)1 << 20);
    srv_metrics_print(&text, app.metrics);
    srv_buffer_append(&text, "", 1);
    const char *line = strstr(text.data, name);
    ck_assert_ptr_nonnull(line);
    size_t lost = strtoul(line + strlen(name), NULL, 10);
    srv_buffer_fini(&text);
    return lost;
}

/* Compares the two over the files as they are now; returns how many sessions the start has lost. */
static size_t expect_same(const char *what, size_t which)
{
    struct srv_store_check said;
    check(&said);
    const size_t before = lost_so_far();
    store_app_begin(&app);
    const size_t served = srv_sessions_count(app.sessions), lost = lost_so_far() - before;
    store_app_end(&app);
    ck_assert_msg(said.served == served && said.lost == lost,
                  "%s %zu: check says %zu served and %zu lost, and the start has %zu and %zu", what,
                  which, said.served, said.lost, served, lost);
    return lost;
}

static void restore_scene(void)
{
    char command[2 * SCRATCH_PATH];
    snprintf(command, sizeof command, "rm -rf ./* && cp %s/* .", scene);
    store_app_shell(&app, command);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

START_TEST(test_check_says_what_a_start_does_with_whichever_files_are_missing)
{
    char path[2 * SCRATCH_PATH];
    size_t losses = 0;
    for (size_t missing = 0; missing < (size_t)1 << num_files; missing++) {
        restore_scene();
        for (size_t i = 0; i < num_files; i++) {
            snprintf(path, sizeof path, "%s/%s", app.config.state_dir, names[i]);
            if (missing >> i & 1)
                ck_assert_int_eq(unlink(path), 0);
        }
        size_t lost = expect_same("without the files", missing);
        ck_assert(missing > 0 || lost == 0);
        losses += lost > 0;
    }
    ck_assert_uint_gt(losses, (size_t)1 << (num_files - 3));
}
END_TEST

/* A bit is changed, or the file ends there. */
START_TEST(test_check_says_what_a_start_does_with_damage_anywhere)
{
    size_t losses = 0;
    for (size_t i = 0; i < num_files * PLACES; i++) {
        const char *name = names[i / PLACES];
        size_t length;
        restore_scene();
        char *bytes = scratch_read(&length, app.config.state_dir, name);
        const bool blocks = strstr(name, ".blocks") != NULL; /* of which most are free */
        const size_t used = blocks ? USED_SLOTS * SRV_SLOT_UNIT : length;
        size_t at = used * (i % PLACES) / PLACES;
        bytes[at] ^= 4;
        scratch_write(app.config.state_dir, name, bytes, _i == 0 ? length : at);
        free(bytes);
        losses += expect_same(name, at) > 0;
    }
    ck_assert_uint_gt(losses, num_files);
}
END_TEST

Suite *suite_store_check(void)
{
    Suite *suite = suite_create("store_check");
    TCase *tests = suite_cases(suite, "store_check", set_up, tear_down, 120);
    tcase_add_test(tests, test_check_says_what_a_start_does_with_whichever_files_are_missing);
    tcase_add_loop_test(tests, test_check_says_what_a_start_does_with_damage_anywhere, 0, 2);
    return suite;
}
