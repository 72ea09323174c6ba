/* main.c: the power fails, thousands of times: build/power [--quick] [--mode NAME] [--states N].
 *
 * For each durability a daemon is recorded under random requests.  States of the disk that the
 * record allows are built, and a daemon is started on each (judge.c).  Then defects are planted in
 * the record (disk.h), each of which must be found.  The last line has the figures.
 *
 * A broken promise is printed with the command that repeats it on the files that stay:
 * build/power --again DIRECTORY/NAME --state N. */
#include <check.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "judge.h"
#include "verdict.h"

#define STATES 2000 /* of each mode */
#define STATES_QUICK 60
#define RECORDS 5 /* of each mode */
#define RECORDS_QUICK 1
#define SECONDS 10 /* of a record */
#define SECONDS_QUICK 4
#define PLANTED_STATES 400 /* at most, until a planted defect is found */
#define SOON 40            /* operations after a start, which an eighth of the cuts are within */
#define WORKERS 4
#define SHOWN 3 /* broken promises of a record whose directories stay */

static const char *const kind_names[DISK_KINDS] = {
    [DISK_NONE] = "only what was synced",
    [DISK_ALL] = "everything",
    [DISK_PAGES] = "pages, lengths and names at random",
    [DISK_ONE_PAGE] = "all but a page",
    [DISK_FILES] = "some files",
    [DISK_NAMES] = "some names",
    [DISK_SIZES] = "other lengths",
};

/* Defects, and the modes in which each must be found. */
#define IN(mode) (1u << (mode))
static const struct {
    const char *name;
    unsigned modes;
} plants[DISK_PLANTS] = {
    [PLANT_NOTHING] = {"nothing", 0},
    [PLANT_NO_FLUSH] = {"no flush", IN(MODE_ALWAYS) | IN(MODE_EVERYSEC)},
    [PLANT_LATE_FLUSH] = {"late flush", IN(MODE_ALWAYS) | IN(MODE_EVERYSEC)},
    [PLANT_NO_FILE_SYNC] = {"no file sync", IN(POWER_MODES) - 1},
    [PLANT_NO_DIRECTORY_SYNC] = {"no directory sync", IN(POWER_MODES) - 1},
    [PLANT_EARLY_UNLINK] = {"early unlink", IN(POWER_MODES) - 1},
    [PLANT_NO_BLOCK_SYNC] = {"no sync of blocks", IN(POWER_MODES) - 1},
    [PLANT_LATE_BLOCKS] = {"section before its blocks", IN(POWER_MODES) - 1},
    [PLANT_NO_SECTION_SYNC] = {"no sync of later sections", IN(POWER_MODES) - 1},
};

/* Written by all workers. */
static struct shared {
    _Atomic size_t next; /* record */
    _Atomic size_t states[POWER_MODES][DISK_KINDS], broken[POWER_MODES], tried[POWER_MODES];
    _Atomic size_t promised[POWER_MODES], lost[POWER_MODES], losing[POWER_MODES];
    _Atomic size_t requests, entries, records, partial, failed;
    _Atomic size_t found[DISK_PLANTS][POWER_MODES]; /* records in which the defect was found */
} * shared;

static struct {
    bool quick;
    size_t states, records;
    unsigned seconds, modes;
    char directory[64], recorder[4096];
    const char *again;
    size_t state;
} options = {
    .states = STATES, .records = RECORDS, .seconds = SECONDS, .modes = IN(POWER_MODES) - 1};

/* Assertions end the process, as no suite of libcheck runs here to count those that hold. */
void __wrap__mark_point(const char *file, int line);
void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
    __attribute__((noreturn));

void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%d: %s: ", file, line, expr);
    va_start(arguments, msg);
    if (msg != NULL)
        (void)vfprintf(stderr, msg, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    exit(EXIT_FAILURE);
}

void __wrap__mark_point(const char *file, int line)
{
    (void)file;
    (void)line;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* A record and its log, in two files that begin with `path`. */
struct files {
    char path[80], log_path[96];
    struct power_log *log;
    struct record *record;
};

static void *map_file(const char *path, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_msg(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "%s", path);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    close(fd);
    return map;
}

static void open_files(struct files *out, const char *path)
{
    char record[112];
    snprintf(out->path, sizeof out->path, "%s", path);
    snprintf(out->log_path, sizeof out->log_path, "%s.log", path);
    snprintf(record, sizeof record, "%s.record", path);
    out->log = map_file(out->log_path, POWER_LOG_BYTES);
    out->record = map_file(record, sizeof *out->record);
}

static void close_files(struct files *files, bool remove)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf %s %s.log %s.record", files->path, files->path,
             files->path);
    ck_assert(!remove || system(command) == 0);
    munmap(files->log, POWER_LOG_BYTES);
    munmap(files->record, sizeof *files->record);
}

/* ---- States ---------------------------------------------------------------------------------- */

static void draw_state(struct disk_state *out, const struct files *files, const struct disk *disk,
                       size_t number, enum disk_plant plant)
{
    const uint64_t *starts = files->record->starts;
    uint64_t random = files->record->seed << 32 | (uint64_t)plant << 24 | number;
    uint64_t soon = starts[disk_draw(&random, 2)] + disk_draw(&random, SOON);
    *out = (struct disk_state){.plant = plant, .cut = disk_draw_cut(disk, starts[0], &random)};
    if (disk_draw(&random, 8) == 0 && soon <= disk->count)
        out->cut = soon;
    out->kind = (enum disk_kind)disk_draw(&random, DISK_KINDS);
    out->seed = disk_draw(&random, UINT64_MAX);
}

/* Whether the promise is kept on a state of the record. */
static bool try_state(struct judge_verdict *verdict, const struct files *files,
                      const struct disk *disk, const struct disk_state *state, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s.%s", files->path, name);
    return judge(verdict, files->record, disk, state, path);
}

static void remove_state(const struct files *files, const char *name)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf %s.%s %s.%s.log", files->path, name, files->path,
             name);
    ck_assert_int_eq(system(command), 0);
}

/* Tries the states with the numbers 0 to count - 1. */
static void try_states(const struct files *files, const struct disk *disk, size_t count)
{
    uint32_t mode = files->record->mode;
    size_t broken = 0;
    for (size_t i = 0; i < count; i++) {
        char name[32];
        struct disk_state state;
        struct judge_verdict verdict;
        draw_state(&state, files, disk, i, PLANT_NOTHING);
        snprintf(name, sizeof name, "state-%zu", i);
        bool kept = try_state(&verdict, files, disk, &state, name);
        shared->tried[mode]++;
        shared->states[mode][state.kind]++;
        shared->promised[mode] += verdict.promised;
        shared->lost[mode] += verdict.lost;
        shared->losing[mode] += verdict.lost > 0;
        shared->broken[mode] += !kept;
        if (!kept && ++broken <= SHOWN)
            fprintf(stderr,
                    "check-power: --again %s --state %zu: %s, cut %llu of %llu, %s: %s\n"
                    "    (the state, as the daemon left it: %s.%s; its log: %s.%s.log)\n",
                    files->path, i, power_mode_names[mode], (unsigned long long)state.cut,
                    (unsigned long long)disk->count, kind_names[state.kind], verdict.text,
                    files->path, name, files->path, name);
        else if (!kept)
            remove_state(files, name);
    }
}

/* Tries states of the record with each defect that no record of its mode has shown so far, until
 * one breaks a promise. */
static void try_plants(const struct files *files, const struct disk *disk)
{
    uint32_t mode = files->record->mode;
    for (size_t plant = 1; plant < DISK_PLANTS; plant++) {
        bool found = (plants[plant].modes & IN(mode)) == 0 || shared->found[plant][mode] > 0;
        for (size_t i = 0; i < PLANTED_STATES && !found; i++) {
            struct disk_state state;
            struct judge_verdict verdict;
            draw_state(&state, files, disk, i, (enum disk_plant)plant);
            found = !try_state(&verdict, files, disk, &state, "planted");
            if (found)
                shared->found[plant][mode]++;
            if (found)
                remove_state(files, "planted");
        }
    }
}

/* ---- Workers --------------------------------------------------------------------------------- */

/* The program that is recorded is that of the variable RECORDED, if it is set. */
static void record(const struct files *files, const struct record_plan *plan)
{
    char *tried = getenv("ATTND") != NULL ? strdup(getenv("ATTND")) : NULL;
    if (getenv("RECORDED") != NULL)
        setenv("ATTND", getenv("RECORDED"), 1);
    record_make(files->record, files->log, plan);
    if (tried != NULL)
        setenv("ATTND", tried, 1);
    free(tried);
}

/* Makes a record and tries its states.  Where `from` is not NULL, the daemon goes on after a power
 * failure of that record. */
static void make_and_try(struct files *files, struct disk *disk, enum power_mode mode,
                         size_t number, const struct files *from, const struct disk *from_disk)
{
    char path[80];
    snprintf(path, sizeof path, "%s/%s-%zu%s", options.directory, power_mode_names[mode], number,
             from != NULL ? "-after" : "");
    uint64_t seed = (2 * number + (from != NULL)) * POWER_MODES + mode + 1;
    open_files(files, path);
    if (from != NULL) {
        struct disk_state state;
        draw_state(&state, from, from_disk, (1 << 24) - 1, PLANT_NOTHING);
        disk_build(from_disk, &state, path);
    }
    record(files, &(struct record_plan){.mode = mode,
                                        .seed = seed,
                                        .kills = number % 2 == (from != NULL),
                                        .fails = number % 2 == 1,
                                        .seconds = options.seconds,
                                        .recorder = options.recorder,
                                        .log_path = files->log_path,
                                        .directory = files->path});
    disk_open(disk, files->log);
    shared->records++;
    shared->partial += !files->record->whole;
    shared->requests += files->record->requests;
    shared->failed += files->record->failed;
    shared->entries += disk->count;
    try_states(files, disk, options.states / options.records / 2);
}

/* A record, and one of a daemon that starts on a state of the disk of the first. */
static void make_pair(enum power_mode mode, size_t number)
{
    struct files first, second;
    struct disk first_disk, second_disk;
    make_and_try(&first, &first_disk, mode, number, NULL, NULL);
    if (number == 0)
        try_plants(&first, &first_disk);
    make_and_try(&second, &second_disk, mode, number, &first, &first_disk);
    if (number == 0)
        try_plants(&second, &second_disk);
    disk_close(&first_disk);
    disk_close(&second_disk);
    close_files(&first, shared->broken[mode] == 0);
    close_files(&second, shared->broken[mode] == 0);
}

static void work(void)
{
    for (;;) {
        size_t number = shared->next++;
        if (number >= options.records * POWER_MODES)
            exit(EXIT_SUCCESS);
        if ((options.modes & IN(number % POWER_MODES)) != 0)
            make_pair((enum power_mode)(number % POWER_MODES), number / POWER_MODES);
    }
}

/* Runs all records; false where a worker failed. */
static bool run_workers(void)
{
    pid_t workers[WORKERS];
    bool right = true;
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        ck_assert_int_ge(workers[i], 0);
        if (workers[i] == 0)
            work();
    }
    for (size_t i = 0; i < WORKERS; i++) {
        int status = 0;
        right = waitpid(workers[i], &status, 0) == workers[i] && status == 0 && right;
    }
    return right;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* Repeats one state; its directory stays where the promise is broken. */
static int again(void)
{
    struct files files;
    struct disk disk;
    struct disk_state state;
    struct judge_verdict verdict;
    char name[32];
    open_files(&files, options.again);
    disk_open(&disk, files.log);
    draw_state(&state, &files, &disk, options.state, PLANT_NOTHING);
    snprintf(name, sizeof name, "again-%zu", options.state);
    bool kept = try_state(&verdict, &files, &disk, &state, name);
    printf("cut %llu of %llu, %s: %s\n", (unsigned long long)state.cut,
           (unsigned long long)disk.count, kind_names[state.kind], kept ? "ok" : verdict.text);
    return kept ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool report_mode(enum power_mode mode)
{
    const size_t want = options.states / options.records / 2 * options.records * 2;
    printf("  %s: %zu states", power_mode_names[mode], (size_t)shared->tried[mode]);
    for (size_t kind = 0; kind < DISK_KINDS; kind++)
        printf("%s %zu %s", kind > 0 ? "," : ":", (size_t)shared->states[mode][kind],
               kind_names[kind]);
    printf("; %zu promised sessions, %zu of them lost in %zu states; %zu broken\n",
           (size_t)shared->promised[mode], (size_t)shared->lost[mode], (size_t)shared->losing[mode],
           (size_t)shared->broken[mode]);
    const struct verdict_condition conditions[] = {VERDICT(shared->broken[mode] == 0),
                                                   VERDICT(shared->tried[mode] == want)};
    return VERDICTS(power_mode_names[mode], conditions);
}

/* Prints which planted defects were not found; returns how many were, and how many there are. */
static size_t report_plants(size_t *all)
{
    size_t found = 0;
    *all = 0;
    for (size_t plant = 1; plant < DISK_PLANTS; plant++)
        for (size_t mode = 0; mode < POWER_MODES; mode++) {
            if ((plants[plant].modes & options.modes & IN(mode)) == 0)
                continue;
            ++*all;
            found += shared->found[plant][mode] > 0;
            if (shared->found[plant][mode] == 0)
                printf("  planted and not found: %s, %s\n", power_mode_names[mode],
                       plants[plant].name);
        }
    return found;
}

static int report(bool ran)
{
    size_t tried = 0, broken = 0, planted, found = report_plants(&planted);
    bool modes_right = true;
    for (size_t mode = 0; mode < POWER_MODES; mode++) {
        if ((options.modes & IN(mode)) != 0)
            modes_right = report_mode((enum power_mode)mode) && modes_right;
        tried += shared->tried[mode];
        broken += shared->broken[mode];
    }
    const struct verdict_condition conditions[] = {
        VERDICT(ran), VERDICT(modes_right), VERDICT(found == planted),
        VERDICT(shared->partial == 0), VERDICT(shared->failed > 0 || options.records == 1)};
    const bool right = VERDICTS("check-power", conditions);
    printf("check-power: %zu states of the disk after %zu operations of %zu requests in %zu "
           "records, %zu of them not whole, with %zu failed snapshots: %zu broken promises; %zu of "
           "%zu planted defects found: %s\n",
           tried, (size_t)shared->entries, (size_t)shared->requests, (size_t)shared->records,
           (size_t)shared->partial, (size_t)shared->failed, broken, found, planted,
           right ? "ok" : "FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool take_option(const char *name, const char *value)
{
    if (strcmp(name, "--mode") == 0) {
        for (size_t mode = 0; mode < POWER_MODES; mode++)
            if (strcmp(power_mode_names[mode], value) == 0) {
                options.modes = IN(mode);
                return true;
            }
        return false;
    }
    if (strcmp(name, "--states") == 0)
        options.states = strtoul(value, NULL, 10);
    else if (strcmp(name, "--records") == 0)
        options.records = strtoul(value, NULL, 10);
    else if (strcmp(name, "--again") == 0)
        options.again = value;
    else if (strcmp(name, "--state") == 0)
        options.state = strtoul(value, NULL, 10);
    else
        return false;
    return options.states > 0 && options.records > 0;
}

static bool take_options(int argc, char *argv[])
{
    int i = 1;
    if (argc > 1 && strcmp(argv[1], "--quick") == 0) {
        options.states = STATES_QUICK;
        options.records = RECORDS_QUICK;
        options.seconds = SECONDS_QUICK;
        i++;
    }
    for (; i + 1 < argc; i += 2)
        if (!take_option(argv[i], argv[i + 1]))
            return false;
    return i == argc;
}

int main(int argc, char *argv[])
{
    const char *room = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    const char *recorder = getenv("RECORDER");
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!take_options(argc, argv) || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
        realpath(recorder != NULL ? recorder : "build/recorder.so", options.recorder) == NULL) {
        fprintf(stderr, "power: bad option, or no build/recorder.so\n");
        return EXIT_FAILURE;
    }
    if (options.again != NULL)
        return again();
    snprintf(options.directory, sizeof options.directory, "%s/attnd-power-XXXXXX", room);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || mkdtemp(options.directory) == NULL)
        return EXIT_FAILURE;
    int status = report(run_workers());
    rmdir(options.directory); /* where nothing is left in it */
    return status;
}
