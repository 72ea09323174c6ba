/* main.c: the power fails on slots and a manifest: build/power_store [--quick].
 *
 * A writer (writer.c) is recorded as check-power records a daemon.  Of each record states of the
 * disk are built and read (judge.c).  Then the writer makes mistakes, or the record is read
 * otherwise (tests/power/disk.h); each must be found. */
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk.h"
#include "scratch.h"
#include "world.h"

#define RECORDS 20
#define RECORDS_QUICK 3
#define STATES 100 /* of a record */
#define STATES_QUICK 40
#define PLANTED 1500 /* states, at most, until a mistake is found */

/* Assertions end the process, as no suite of libcheck runs here. */
void __wrap__mark_point(const char *file, int line);
void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
    __attribute__((noreturn));

void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, expr, msg != NULL ? msg : "");
    exit(EXIT_FAILURE);
}

void __wrap__mark_point(const char *file, int line)
{
    (void)file;
    (void)line;
}

/* ---- A record -------------------------------------------------------------------------------- */

struct record {
    char path[SCRATCH_PATH]; /* of a folder for all of it */
    uint64_t seed;
    struct power_log *log;
    struct history *history;
    struct disk disk;
};

static void *map_file(const char *folder, const char *name, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    close(fd);
    return map;
}

static void map_record(struct record *record)
{
    record->log = map_file(record->path, "log", POWER_LOG_BYTES);
    record->history = map_file(record->path, "history", sizeof *record->history);
}

/* The writer's process: the recorder is loaded before everything else. */
static int write_record(char **arguments)
{
    struct record record = {.seed = strtoull(arguments[1], NULL, 10)};
    char path[PATH_MAX];
    snprintf(record.path, sizeof record.path, "%s", arguments[0]);
    snprintf(path, sizeof path, "%s/state", arguments[0]);
    map_record(&record);
    write_history(record.history, record.log, path, record.seed,
                  (enum mistake)strtoul(arguments[2], NULL, 10));
    return EXIT_SUCCESS;
}

static void start_writer(const struct record *record, enum mistake mistake)
{
    char self[PATH_MAX], recorder[PATH_MAX + 16], log[PATH_MAX], state[PATH_MAX], seed[24], how[8];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(length, 0);
    self[length] = '\0';
    snprintf(recorder, sizeof recorder, "%.*s/recorder.so", (int)(strrchr(self, '/') - self), self);
    snprintf(log, sizeof log, "%s/log", record->path);
    snprintf(state, sizeof state, "%s/state", record->path);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)record->seed);
    snprintf(how, sizeof how, "%u", (unsigned)mistake);
    setenv("LD_PRELOAD", recorder, 1);
    setenv(POWER_LOG_VARIABLE, log, 1);
    setenv(POWER_DIRECTORY_VARIABLE, state, 1);
    execl(self, self, "--write", record->path, seed, how, (char *)NULL);
    _exit(EXIT_FAILURE);
}

static void open_record(struct record *out, uint64_t seed, enum mistake mistake)
{
    char state[PATH_MAX];
    int status;
    out->seed = seed;
    scratch_make(out->path);
    snprintf(state, sizeof state, "%s/state", out->path);
    ck_assert_int_eq(mkdir(state, 0700), 0);
    map_record(out);
    out->log->files = POWER_FIRST_FILE;
    const pid_t writer = fork();
    if (writer == 0)
        start_writer(out, mistake);
    ck_assert(writer > 0 && waitpid(writer, &status, 0) == writer);
    ck_assert_msg(status == 0 && out->history->ended && !atomic_load(&out->log->full),
                  "the writer has failed");
    disk_open(&out->disk, out->log);
}

static void close_record(struct record *record)
{
    disk_close(&record->disk);
    munmap(record->log, POWER_LOG_BYTES);
    munmap(record->history, sizeof *record->history);
    scratch_remove(record->path);
}

/* ---- States ---------------------------------------------------------------------------------- */

static const char *try_state(const struct record *record, uint64_t number, enum disk_plant plant)
{
    uint64_t random = record->seed << 32 | number;
    char path[PATH_MAX];
    struct disk_state state = {.plant = plant, .cut = disk_draw_cut(&record->disk, 0, &random)};
    state.kind = (enum disk_kind)disk_draw(&random, DISK_KINDS);
    state.seed = disk_draw(&random, UINT64_MAX);
    snprintf(path, sizeof path, "%s/broken", record->path);
    disk_build(&record->disk, &state, path);
    const char *wrong = judge_directory(record->history, state.cut, path);
    scratch_remove(path);
    return wrong;
}

static size_t try_records(size_t records, size_t states)
{
    size_t broken = 0;
    for (size_t i = 1; i <= records; i++) {
        struct record record;
        open_record(&record, i, MISTAKE_NONE);
        for (size_t number = 0; number < states; number++) {
            const char *wrong = try_state(&record, number, PLANT_NOTHING);
            if (wrong != NULL && broken++ < 5)
                fprintf(stderr, "power_store: record %zu, state %zu: %s\n", i, number, wrong);
        }
        close_record(&record);
    }
    return broken;
}

static bool find_mistake(const char *name, enum mistake mistake, enum disk_plant plant)
{
    const char *wrong = NULL;
    size_t tried = 0;
    while (wrong == NULL && tried < PLANTED) {
        struct record record;
        open_record(&record, 1 + tried / 100, mistake);
        for (size_t number = 0; number < 100 && wrong == NULL; number++, tried++)
            wrong = try_state(&record, number, plant);
        close_record(&record);
    }
    printf("planted: %s: %s, in %zu states\n", name, wrong != NULL ? wrong : "NOT NOTICED", tried);
    return wrong != NULL;
}

static const struct {
    const char *name;
    enum mistake mistake;
    enum disk_plant plant;
} planted[] = {
    {"blocks are not flushed before the section", MISTAKE_NO_FLUSH, PLANT_NOTHING},
    {"a dropped slot is free at once", MISTAKE_FREE_EARLY, PLANT_NOTHING},
    {"a tail is overwritten in place", MISTAKE_IN_PLACE, PLANT_NOTHING},
    {"older manifests are removed first", MISTAKE_UNLINK, PLANT_NOTHING},
    {"the checksum is that of another block", MISTAKE_OTHER_SUM, PLANT_NOTHING},
    {"blocks whose flush failed are flushed again", MISTAKE_RESYNC, PLANT_NOTHING},
    {"a manifest is renamed before its flush", MISTAKE_NONE, PLANT_NO_FILE_SYNC},
    {"later sections of a manifest are not flushed", MISTAKE_NONE, PLANT_NO_SECTION_SYNC},
    {"the directory is not flushed", MISTAKE_NONE, PLANT_NO_DIRECTORY_SYNC},
};

int main(int argc, char **argv)
{
    const bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    const size_t records = quick ? RECORDS_QUICK : RECORDS, states = quick ? STATES_QUICK : STATES;
    const size_t count = sizeof planted / sizeof *planted;
    size_t noticed = 0;
    if (argc == 5 && strcmp(argv[1], "--write") == 0)
        return write_record(argv + 2);
    if (argc > 1 && !quick) {
        fprintf(stderr, "usage: power_store [--quick]\n");
        return 2;
    }
    const size_t broken = try_records(records, states);
    for (size_t i = 0; i < count; i++)
        noticed += find_mistake(planted[i].name, planted[i].mistake, planted[i].plant);
    printf("power_store: %zu of %zu states broken, %zu of %zu planted mistakes noticed\n", broken,
           records * states, noticed, count);
    return broken == 0 && noticed == count ? EXIT_SUCCESS : EXIT_FAILURE;
}
