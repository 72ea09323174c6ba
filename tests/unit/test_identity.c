/* test_identity.c: the file that says whose sessions a state directory holds. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "store/identity.h"
#include "suites.h"

static char path[SCRATCH_PATH], message[512];
static int directory;

static void set_up(void)
{
    scratch_make(path);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(directory, 0);
}

static void tear_down(void)
{
    close(directory);
    scratch_remove(path);
}

static enum srv_identity_status read_text(struct srv_identity *out, const char *text, size_t length)
{
    scratch_write(path, SRV_IDENTITY_FILE, text, length);
    *out = (struct srv_identity){"unchanged", "00000"};
    message[0] = '\0';
    return srv_identity_read(out, directory, message, sizeof message);
}

static bool resolve(struct srv_identity *out, const char *instance, enum srv_naming naming)
{
    ck_assert(srv_identity_make(out, instance));
    return srv_identity_resolve(out, directory, "/state", naming, message, sizeof message);
}

CASE(identity, set_up, tear_down, 0)

TEST(identity_of_a_new_directory_is_kept)
{
    struct srv_identity first, again, other;
    ck_assert_msg(resolve(&first, "a", SRV_NAME_GIVEN), "%s", message);
    ck_assert(resolve(&again, "a", SRV_NAME_GIVEN));
    ck_assert_str_eq(again.generation, first.generation);
    ck_assert(resolve(&other, "host", SRV_NAME_DEFAULT)); /* the host's name gives way */
    ck_assert_str_eq(other.instance, "a");
    ck_assert_str_eq(other.generation, first.generation);
    ck_assert(resolve(&other, "salvage", SRV_NAME_NONE));
    ck_assert_str_eq(other.instance, "a");
}

TEST(identity_of_another_name_is_refused_with_the_remedy)
{
    struct srv_identity first, other;
    ck_assert(resolve(&first, "a", SRV_NAME_DEFAULT));
    ck_assert(!resolve(&other, "b", SRV_NAME_GIVEN));
    ck_assert_ptr_nonnull(strstr(message, "--instance a, or another --state-dir and --adopt"));
    ck_assert_str_eq(other.instance, "b");
}

TEST(identity_is_not_written_where_none_is_to_be)
{
    struct srv_identity identity;
    ck_assert(resolve(&identity, "salvage", SRV_NAME_NONE));
    ck_assert_int_eq(srv_identity_read(&identity, directory, message, sizeof message),
                     SRV_IDENTITY_NONE);
}

static const char *const sound[] = {
    "{\"instance\":\"a\",\"generation\":\"k3f9q\"}",
    " {\n \"generation\" : \"00000\",\n \"instance\" : \"A-9\"}\r\n\n",
    "{\"instance\":\"abcdefghijklmnopqrstuvwxyz012345\",\"generation\":\"zzzzz\"}",
};

static const char *const damaged[] = {
    "",
    "{}",
    "{\"instance\":\"a\",\"generation\":\"k3f9q\"",
    "{\"instance\":\"a\",\"generation\":\"k3f9\"}",
    "{\"instance\":\"a\",\"generation\":\"k3f9qq\"}",
    "{\"instance\":\"a\",\"generation\":\"k3f9i\"}", /* no digit */
    "{\"instance\":\"a\",\"generation\":12345}",
    "{\"instance\":\"\",\"generation\":\"k3f9q\"}",
    "{\"instance\":\"-a\",\"generation\":\"k3f9q\"}",
    "{\"instance\":\"a.b\",\"generation\":\"k3f9q\"}",
    "{\"instance\":\"abcdefghijklmnopqrstuvwxyz0123456\",\"generation\":\"k3f9q\"}",
    "{\"instance\":\"a\",\"instance\":\"b\",\"generation\":\"k3f9q\"}",
    "{\"instance\":\"a\",\"generation\":\"k3f9q\",\"more\":1}",
    "{\"instance\":\"a\\u0000b\",\"generation\":\"k3f9q\"}",
    "[\"a\",\"k3f9q\"]",
    "a k3f9q",
};

TEST_EACH(identity_sound_is_read, COUNT(sound))
{
    struct srv_identity identity;
    ck_assert_int_eq(read_text(&identity, sound[_i], strlen(sound[_i])), SRV_IDENTITY_SOUND);
    ck_assert(srv_instance_valid(identity.instance) && srv_generation_valid(identity.generation));
    ck_assert_str_ne(identity.instance, "unchanged");
}

/* Neither the name nor the generation is guessed, and the file stays as it is. */
TEST_EACH(identity_damaged_is_refused_and_kept, COUNT(damaged))
{
    struct srv_identity identity;
    size_t length;
    ck_assert_int_eq(read_text(&identity, damaged[_i], strlen(damaged[_i])), SRV_IDENTITY_DAMAGED);
    ck_assert_str_eq(identity.instance, "unchanged");
    ck_assert(!resolve(&identity, "a", SRV_NAME_DEFAULT));
    ck_assert_ptr_nonnull(strstr(message, "state_dir /state: identity is damaged: "));
    ck_assert_ptr_nonnull(strstr(message, "put it back"));
    char *kept = scratch_read(&length, path, SRV_IDENTITY_FILE);
    ck_assert_uint_eq(length, strlen(damaged[_i]));
    ck_assert_mem_eq(kept, damaged[_i], length);
    free(kept);
}

/* Every byte of a sound file is changed to every other: what is read is an identity all the same,
 * or the file is refused. */
TEST(identity_of_changed_bytes_is_one_or_refused)
{
    struct srv_identity identity;
    char text[128];
    size_t length = strlen(sound[0]), refused = 0;
    for (size_t at = 0; at < length; at++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            memcpy(text, sound[0], length);
            text[at] = (char)byte;
            enum srv_identity_status status = read_text(&identity, text, length);
            bool reads =
                srv_instance_valid(identity.instance) && srv_generation_valid(identity.generation);
            ck_assert(reads && (status == SRV_IDENTITY_SOUND || status == SRV_IDENTITY_DAMAGED));
            refused += status == SRV_IDENTITY_DAMAGED;
        }
    }
    ck_assert_uint_gt(refused, 250 * (length - 6)); /* six letters may be others */
}

TEST(identity_too_long_is_damaged)
{
    struct srv_identity identity;
    char text[512];
    memset(text, ' ', sizeof text);
    memcpy(text, sound[0], strlen(sound[0]));
    ck_assert_int_eq(read_text(&identity, text, 256), SRV_IDENTITY_SOUND);
    ck_assert_int_eq(read_text(&identity, text, 257), SRV_IDENTITY_DAMAGED);
}

/* A link, a directory and a pipe are no identity, and opening the pipe does not wait. */
TEST(identity_that_is_no_file_is_unreadable)
{
    struct srv_identity identity;
    char name[SCRATCH_PATH + 16];
    snprintf(name, sizeof name, "%s/" SRV_IDENTITY_FILE, path);
    for (unsigned kind = 0; kind < 3; kind++) {
        int made = kind == 0   ? symlink("/etc/hostname", name)
                   : kind == 1 ? mkdir(name, 0700)
                               : mkfifo(name, 0600);
        ck_assert_int_eq(made, 0);
        ck_assert_int_eq(srv_identity_read(&identity, directory, message, sizeof message),
                         SRV_IDENTITY_UNREADABLE);
        ck_assert(!resolve(&identity, "a", SRV_NAME_DEFAULT));
        ck_assert_ptr_nonnull(strstr(message, "identity cannot be read: "));
        ck_assert_int_eq(remove(name), 0);
    }
}

TEST(identity_is_not_left_half_on_a_full_disk)
{
    struct srv_identity identity;
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 7;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(!resolve(&identity, "a", SRV_NAME_GIVEN));
    ck_assert_ptr_nonnull(strstr(message, "identity cannot be written: "));
    ck_assert_int_eq(faccessat(directory, SRV_IDENTITY_FILE, F_OK, 0), -1);
    ck_assert_int_eq(faccessat(directory, SRV_IDENTITY_FILE ".new", F_OK, 0), -1);
    limit.rlim_cur = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(resolve(&identity, "a", SRV_NAME_GIVEN));
}

SUITE(identity)
