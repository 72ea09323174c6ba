/* volumes.c: a daemon on file systems in image files, mounted in a mount namespace of our own.
 *
 * A case saves a session, appends as much again, and has the file system fail while the next
 * snapshot is written.  The daemon must go on serving with the same bits, refuse changes with
 * insufficient_storage alone, log the path and the reason, and try the snapshot again; and once the
 * file system is well, after SIGKILL and a start, every session must be what it was last saved as.
 * A start on a full file system must serve, too.  Of a frozen one /readyz must tell. */
#include "volumes.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "calls.h"
#include "inject.h"
#include "tensors.h"

#define WIDTH 512
#define ROWS 512 /* of a prefill: 2 MiB of keys and values */
#define ROW_BYTES (2 * WIDTH * sizeof(float))
#define PREFILLS 3    /* of the session before it is saved, and before the file system fails */
#define AFTER_KIB 200 /* room beside the new blocks that btrfs is left with */
#define WAIT_MS 20000
#define SHUT_DOWN _IOR('X', 125, uint32_t) /* XFS_IOC_GOINGDOWN and EXT4_IOC_SHUTDOWN */
#define NO_FLUSH 2
#define CONFIG                                                                                  \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"instance\":\"test\",\"threads\":2,\"log\":\"error\"," \
    "\"memory_limit\":\"2GiB\",\"snapshot_interval_s\":0,\"models\":[{\"name\":\"wide\","       \
    "\"random\":{\"hidden_size\":512,\"num_attention_heads\":4,\"is_causal\":true,\"seed\":7}}]}"

enum failure { ROOM_FOR_BLOCKS, FULL, SHUTDOWN, READ_ONLY, FROZEN };

static const char *const failures[] = {"room for the blocks", "full", "shut down", "read-only",
                                       "frozen"};

static const struct volume {
    const char *type, *size, *options;
    enum failure failure;
    const char *durability;
    bool quick;
} volumes[] = {
    {"btrfs", "128M", "loop", ROOM_FOR_BLOCKS, "snapshot", true},
    {"btrfs", "128M", "loop", ROOM_FOR_BLOCKS, "journal", false},
    {"btrfs", "128M", "loop", FULL, "snapshot", false},
    {"btrfs", "128M", "loop", FULL, "journal", false},
    {"xfs", "320M", "loop", FULL, "snapshot", false},
    {"xfs", "320M", "loop", FULL, "journal", false},
    {"xfs", "320M", "loop", SHUTDOWN, "snapshot", true},
    {"xfs", "320M", "loop", SHUTDOWN, "journal", false},
    {"ext4", "96M", "loop,errors=remount-ro", FULL, "snapshot", false},
    {"ext4", "96M", "loop,errors=remount-ro", FULL, "journal", true},
    {"ext4", "96M", "loop,errors=remount-ro", SHUTDOWN, "snapshot", false},
    {"ext4", "96M", "loop,errors=remount-ro", SHUTDOWN, "journal", false},
    {"ext4", "96M", "loop,errors=remount-ro", READ_ONLY, "snapshot", false},
    {"ext4", "96M", "loop,errors=remount-ro", READ_ONLY, "journal", false},
    {"ext4", "96M", "loop", FROZEN, "journal", true},
};

static struct {
    const struct volume *volume;
    char image[96], mount[96], state[112], filler[112];
    struct daemon daemon;
    struct client client;
    char *bits;       /* of the session's next decode */
    char *saved_bits; /* as it is known to be on the disk */
} run;

/* ---- File systems ---------------------------------------------------------------------------- */

static bool shell(const char *format, const char *a, const char *b, const char *c)
{
    char command[512];
    snprintf(command, sizeof command, format, a, b, c);
    return system(command) == 0;
}

static bool mount_image(void)
{
    return shell("mount -o %s %s %s 2>/dev/null", run.volume->options, run.image, run.mount);
}

/* NULL, or why the file system cannot be had here. */
static const char *make_volume(void)
{
    const struct volume *volume = run.volume;
    if (!shell("rm -f %s && truncate -s %s %s", run.image, volume->size, run.image))
        return "no image";
    if (!shell("mkfs.%s -q %s >/dev/null 2>&1", volume->type, run.image, ""))
        return "no mkfs";
    return mount_image() ? NULL : "a loop device cannot be mounted here";
}

/* Waits until nothing uses it any more: the kernel ends a killed daemon a little later. */
static void unmount(void)
{
    for (unsigned waited = 0; umount(run.mount) != 0; waited += 10) {
        ck_assert_msg(errno == EBUSY && waited < WAIT_MS, "umount: %s", strerror(errno));
        pause_ms(10);
    }
}

static uint64_t free_bytes(void)
{
    struct statvfs facts;
    ck_assert_int_eq(statvfs(run.mount, &facts), 0);
    return (uint64_t)facts.f_bavail * facts.f_frsize;
}

/* Leaves about so many bytes. */
static void fill(uint64_t leave)
{
    static const char block[4096];
    int fd = open(run.filler, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    uint64_t room = free_bytes();
    if (room > leave)
        (void)!posix_fallocate(fd, 0, (off_t)(room - leave));
    (void)lseek(fd, 0, SEEK_END);
    while (leave == 0 && write(fd, block, sizeof block) > 0)
        continue;
    (void)fsync(fd);
    close(fd);
}

static void shut_down(void)
{
    const uint32_t how = NO_FLUSH;
    int fd = open(run.mount, O_RDONLY | O_DIRECTORY);
    ck_assert_msg(fd >= 0 && ioctl(fd, SHUT_DOWN, &how) == 0, "shutdown: %s", strerror(errno));
    close(fd);
}

/* As an error found by ext4 does. */
static bool turn_read_only(void)
{
    return shell("echo 1 2>/dev/null >"
                 "/sys/fs/ext4/$(basename $(findmnt -no SOURCE %s))/trigger_fs_error",
                 run.mount, "", "");
}

/* ---- The daemon ------------------------------------------------------------------------------ */

static void wrong(const char *format, const char *detail)
{
    char text[900], *log = daemon_log(&run.daemon);
    size_t length = strlen(log);
    snprintf(text, sizeof text, format, detail);
    figures.wrong++;
    fprintf(stderr, "fault: %s that is %s, %s: %s; log: %s\n", run.volume->type,
            failures[run.volume->failure], run.volume->durability, text,
            length > 700 ? log + length - 700 : log);
    free(log);
}

static void start(void)
{
    const char *const arguments[] = {"--durability",
                                     run.volume->durability,
                                     "--state-dir",
                                     run.state,
                                     "--journal-fsync",
                                     "always",
                                     NULL};
    daemon_start(&run.daemon, CONFIG, arguments, NULL);
    client_open(&run.client, &run.daemon);
}

static void kill_daemon(void)
{
    client_close(&run.client);
    process_end(&run.daemon.process);
}

static long send_rows(const char *path, const char *id, size_t rows, const char *extra, char **bits)
{
    static float numbers[ROWS * WIDTH];
    struct text body = {0};
    make_numbers(numbers, rows * WIDTH, 5);
    text_add(&body, "{\"model\":\"wide\",\"session_id\":\"%s\"%s,\"hidden_states\":", id, extra);
    text_floats(&body, numbers, 6, SHAPE(rows, WIDTH));
    text_add(&body, "}");
    struct answer answer = client_post(&run.client, path, body.data);
    long status = answer.status;
    if (status != 200 && strcmp(answer_code(&answer), "insufficient_storage") != 0)
        wrong("a step: %.200s", answer.text);
    if (bits != NULL)
        *bits = exact_text(answer.json, "output");
    answer_free(&answer);
    text_free(&body);
    return status;
}

static void prefill(const char *extra)
{
    for (int i = 0; i < PREFILLS; i++)
        (void)send_rows("/attend", "base", ROWS, i == 0 ? extra : "", NULL);
}

static char *next_bits(void)
{
    char *bits = NULL;
    (void)send_rows("/decode", "base", 1, ",\"commit\":false", &bits);
    return bits;
}

/* Appends a row; one that is answered counts as saved where there is a journal. */
static long change(void)
{
    long status = send_rows("/decode", "base", 1, "", NULL);
    if (status != 200)
        return status;
    free(run.bits);
    run.bits = next_bits();
    if (strcmp(run.volume->durability, "journal") == 0) {
        free(run.saved_bits);
        run.saved_bits = strdup(run.bits);
    }
    return status;
}

static double count(const char *name) { return call_metric(&run.client, name); }

static void ask_for_snapshot(void)
{
    struct answer answer = client_post(&run.client, "/snapshot", NULL);
    answer_free(&answer);
}

/* Waits until one more of these is counted. */
static bool await(const char *name, double before)
{
    for (unsigned waited = 0; count(name) <= before; waited += 10) {
        if (waited > WAIT_MS)
            return false;
        pause_ms(10);
    }
    return true;
}

static void save(void)
{
    double made = count("attnd_snapshots_total");
    ask_for_snapshot();
    if (!await("attnd_snapshots_total", made))
        wrong("no snapshot is %s", "made");
    free(run.saved_bits);
    run.saved_bits = strdup(run.bits);
}

static void expect_bits(const char *expected, const char *when)
{
    char *bits = next_bits();
    if (bits == NULL || strcmp(bits, expected) != 0)
        wrong("another decode %s", when);
    free(bits);
}

/* ---- A case ---------------------------------------------------------------------------------- */

/* When the newest block was written; 0: none was. */
static int64_t written_at(void)
{
    int64_t newest = 0;
    DIR *directory = opendir(run.state);
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        struct stat facts;
        if (strstr(entry->d_name, ".blocks") == NULL ||
            fstatat(dirfd(directory), entry->d_name, &facts, 0) != 0)
            continue;
        const int64_t time_ns = facts.st_mtim.tv_sec * INT64_C(1000000000) + facts.st_mtim.tv_nsec;
        newest = time_ns > newest ? time_ns : newest;
    }
    if (directory != NULL)
        closedir(directory);
    return newest;
}

/* Has the file system fail, and a snapshot meet that.  False where it cannot be had here. */
static bool strike(void)
{
    const enum failure failure = run.volume->failure;
    const int64_t before = written_at();
    if (failure == ROOM_FOR_BLOCKS)
        fill(PREFILLS * ROWS * ROW_BYTES + AFTER_KIB * 1024);
    if (failure == FULL)
        fill(0);
    ask_for_snapshot();
    for (unsigned waited = 0; failure >= SHUTDOWN && written_at() == before && waited < WAIT_MS * 5;
         waited++)
        usleep(200);
    if (failure == SHUTDOWN)
        shut_down();
    return failure != READ_ONLY || turn_read_only();
}

static void expect_log(void)
{
    char *log = daemon_log_with(&run.daemon, "\"event\":\"storage\""), path[128];
    snprintf(path, sizeof path, "%s/", run.state);
    const char *line = strstr(log, "\"event\":\"storage\"");
    if (line == NULL || strstr(line, path) == NULL)
        wrong("no line with the path %s", path);
    free(log);
}

/* While the file system fails: snapshots are tried again, and the daemon serves on. */
static void check_failing(double made, double failed)
{
    if (run.volume->failure == ROOM_FOR_BLOCKS) {
        for (unsigned waited = 0; count("attnd_snapshots_total") == made &&
                                  count("attnd_snapshots_failed_total") == failed;
             waited += 10)
            pause_ms(waited < WAIT_MS ? 10 : 0);
        expect_bits(run.bits, "on a file system with little room");
        return;
    }
    for (double again = 0; again < (figures.quick ? 1 : 2); again++)
        if (!await("attnd_snapshots_failed_total", failed + again))
            wrong("the snapshot is not tried %s", "again");
    expect_log();
    expect_bits(run.bits, "while the file system fails");
    (void)change();
    expect_bits(run.bits, "after a change");
}

/* Starts on the full file system, and has it emptied. */
static void check_full_start(void)
{
    kill_daemon();
    start();
    expect_bits(run.saved_bits, "after a start on a full file system");
    free(run.bits);
    run.bits = strdup(run.saved_bits);
    (void)change();
    if (unlink(run.filler) != 0)
        wrong("%s", strerror(errno));
    for (unsigned waited = 0; change() != 200; waited += 50) {
        pause_ms(50);
        if (waited > WAIT_MS) {
            wrong("changes are refused though there is %s", "room");
            break;
        }
    }
}

static void check_restart(void)
{
    kill_daemon();
    if (run.volume->failure >= SHUTDOWN) {
        unmount();
        ck_assert_msg(mount_image(), "it cannot be mounted again");
    }
    start();
    expect_bits(run.saved_bits, "after a start");
    if (count("attnd_damaged_files_total") > 0 || count("attnd_sessions_lost_total") > 0)
        wrong("sessions are %s", "lost");
    kill_daemon();
}

static bool set_frozen(bool frozen)
{
    int fd = open(run.mount, O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(fd, 0);
    bool set = ioctl(fd, frozen ? FIFREEZE : FITHAW, 0) == 0;
    close(fd);
    return set;
}

static void *change_frozen(void *argument)
{
    *(long *)argument = change();
    return NULL;
}

/* Waits until /readyz has this status; /livez answers meanwhile. */
static bool await_readyz(struct client *client, long status, const char *code)
{
    bool seen = false;
    for (unsigned waited = 0; !seen && waited < WAIT_MS; waited += 50) {
        pause_ms(50);
        struct answer alive = client_get(client, "/livez"), ready = client_get(client, "/readyz");
        seen = ready.status == status && (code == NULL || strcmp(answer_code(&ready), code) == 0);
        if (alive.status != 200)
            wrong("/livez is not %s", "200");
        answer_free(&alive);
        answer_free(&ready);
    }
    return seen;
}

/* A change waits for the disk, and is made once the file system has been thawed. */
static void play_frozen(void)
{
    struct client own;
    pthread_t thread;
    long status = 0;
    if (!set_frozen(true)) {
        printf("fault: NOT RUN: %s cannot be frozen here: %s\n", run.volume->type, strerror(errno));
        return;
    }
    client_open(&own, &run.daemon);
    ck_assert_int_eq(pthread_create(&thread, NULL, change_frozen, &status), 0);
    if (!await_readyz(&own, 503, "storage_stalled"))
        wrong("/readyz does not say that the file system is %s", "frozen");
    ck_assert(set_frozen(false));
    if (!await_readyz(&own, 200, NULL))
        wrong("/readyz does not say that the file system is %s", "thawed");
    pthread_join(thread, NULL);
    if (status != 200)
        wrong("the change that waited is %s", "refused");
    expect_bits(run.bits, "after a change that waited");
    client_close(&own);
    check_restart();
    figures.volumes++;
}

static void play(void)
{
    start();
    prefill(",\"start\":true");
    run.bits = next_bits();
    save();
    prefill("");
    (void)change();
    if (run.volume->failure == FROZEN) {
        play_frozen();
        return;
    }
    double made = count("attnd_snapshots_total"), failed = count("attnd_snapshots_failed_total");
    if (!strike()) {
        printf("fault: NOT RUN: %s cannot be made to fail here\n", run.volume->type);
        kill_daemon();
        return;
    }
    check_failing(made, failed);
    if (run.volume->failure == FULL)
        check_full_start();
    if (run.volume->failure < SHUTDOWN)
        (void)unlink(run.filler);
    if (run.volume->failure < SHUTDOWN)
        save();
    check_restart();
    figures.volumes++;
}

static void play_volume(const struct volume *volume)
{
    run.volume = volume;
    const char *why = make_volume();
    if (why != NULL) {
        printf("fault: NOT RUN: %s that is %s, %s: %s\n", volume->type, failures[volume->failure],
               volume->durability, why);
        return;
    }
    play();
    unmount();
    free(run.bits);
    free(run.saved_bits);
    run.bits = run.saved_bits = NULL;
}

void volumes_run(const char *directory)
{
    snprintf(run.image, sizeof run.image, "%s/image", directory);
    snprintf(run.mount, sizeof run.mount, "%s/mount", directory);
    snprintf(run.state, sizeof run.state, "%s/state", run.mount);
    snprintf(run.filler, sizeof run.filler, "%s/filler", run.mount);
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        printf("fault: NOT RUN: no file system can be mounted here (%s)\n",
               geteuid() != 0 ? "not root" : strerror(errno));
        return;
    }
    ck_assert_int_eq(mkdir(run.mount, 0700), 0);
    for (size_t i = 0; i < sizeof volumes / sizeof volumes[0]; i++)
        if (!figures.quick || volumes[i].quick)
            play_volume(&volumes[i]);
}

void volumes_end(void) { (void)umount2(run.mount, MNT_DETACH); }
