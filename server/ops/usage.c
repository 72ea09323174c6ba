/* usage.c: reads /proc/self/statm and /proc/self/fd through descriptors kept open, and clocks.
 *
 * The readings whose cost grows with the number of connections are taken at most once a second. */
#include "ops/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define SAMPLE_NS SRV_S_NS /* that a sample is used for */

struct sample {
    uint64_t taken_ns; /* 0: never */
    size_t value;
};

struct srv_usage {
    int memory;           /* /proc/self/statm; -1: none */
    pthread_mutex_t lock; /* of the directory's position, and of the samples */
    DIR *files;           /* /proc/self/fd; NULL: none */
    struct sample open_files, heap;
    double start_seconds;
    size_t max_files;
};

static double seconds_of(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t file_limit(void)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) == 0 ? (size_t)files.rlim_cur : 0;
}

struct srv_usage *srv_usage_open(void)
{
    struct srv_usage *usage = calloc(1, sizeof *usage);
    if (usage == NULL)
        return NULL;
    pthread_mutex_init(&usage->lock, NULL);
    usage->memory = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    usage->files = opendir("/proc/self/fd");
    usage->start_seconds = seconds_of(CLOCK_REALTIME);
    usage->max_files = file_limit();
    return usage;
}

void srv_usage_close(struct srv_usage *usage)
{
    if (usage == NULL)
        return;
    if (usage->memory >= 0)
        close(usage->memory);
    if (usage->files != NULL)
        closedir(usage->files);
    pthread_mutex_destroy(&usage->lock);
    free(usage);
}

bool srv_usage_is_whole(const struct srv_usage *usage)
{
    return usage->memory >= 0 && usage->files != NULL;
}

/* statm begins with all pages and resident pages. */
void srv_usage_read(struct srv_process *out, const struct srv_usage *usage)
{
    char text[128], *end;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ssize_t length = usage->memory >= 0 ? pread(usage->memory, text, sizeof text - 1, 0) : 0;
    text[length > 0 ? length : 0] = '\0';
    out->virtual_bytes = strtoul(text, &end, 10) * page;
    out->resident_bytes = strtoul(end, NULL, 10) * page;
    out->max_files = usage->max_files;
    out->start_seconds = usage->start_seconds;
    out->cpu_seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

/* The value of measure(), now or within the last second. */
static size_t sampled(struct srv_usage *usage, struct sample *sample,
                      size_t (*measure)(const struct srv_usage *usage))
{
    pthread_mutex_lock(&usage->lock);
    uint64_t now = srv_now_ns();
    if (sample->taken_ns == 0 || now - sample->taken_ns >= SAMPLE_NS)
        *sample = (struct sample){now, measure(usage)};
    size_t value = sample->value;
    pthread_mutex_unlock(&usage->lock);
    return value;
}

static size_t count_files(const struct srv_usage *usage)
{
    size_t count = 0;
    rewinddir(usage->files);
    while (readdir(usage->files) != NULL)
        count++;
    return count > 2 ? count - 2 : 0; /* ".", ".." */
}

static size_t measure_heap(const struct srv_usage *usage)
{
    (void)usage;
    return srv_heap_bytes();
}

size_t srv_usage_open_files(struct srv_usage *usage)
{
    struct stat status;
    if (usage->files == NULL)
        return 0;
    if (fstat(dirfd(usage->files), &status) == 0 && status.st_size > 0)
        return (size_t)status.st_size; /* the number of open files, since Linux 6.2 */
    return sampled(usage, &usage->open_files, count_files);
}

size_t srv_usage_heap_bytes(struct srv_usage *usage)
{
    return sampled(usage, &usage->heap, measure_heap);
}
