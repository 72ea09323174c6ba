/* usage.c: reads /proc/self/statm and /proc/self/fd through descriptors kept open, clocks, and the
 * allocator.
 *
 * The readings whose cost grows with the number of connections, or of pieces of free memory, which
 * are 300,000 after a start with 100,000 sessions, are taken at most once a second, and for at most
 * a hundredth of the time: meanwhile nobody is served, and no other thread gets memory. */
#include "ops/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define SAMPLE_NS SRV_S_NS  /* that a sample is used for, at least; */
#define SAMPLE_COSTS 100    /* so many times what it took */
#define OWN_BYTES (1 << 20) /* blocks of this size and more have a mapping of their own */

struct srv_usage {
    int memory;           /* /proc/self/statm; -1: none */
    pthread_mutex_t lock; /* of the directory's position, and of the sample */
    DIR *files;           /* /proc/self/fd; NULL: none */
    uint64_t until_ns;    /* that the sample is used; 0: there is none */
    size_t open_files, heap_bytes;
    double start_seconds;
    size_t max_files;
};

/* By default malloc raises the threshold up to 32 MiB once a block as large was freed: such blocks
 * then lie among others, and a body that grows is copied whole.  And each thread gets an arena of
 * its own, which keeps as much as it ever needed at once. */
void srv_heap_configure(size_t threads)
{
    (void)mallopt(M_MMAP_THRESHOLD, OWN_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, 4 * OWN_BYTES);
    (void)mallopt(M_ARENA_MAX, threads < INT_MAX ? (int)threads : INT_MAX);
}

struct srv_usage *srv_usage_open(void)
{
    struct srv_usage *usage = calloc(1, sizeof *usage);
    struct rlimit files;
    if (usage == NULL)
        return NULL;
    pthread_mutex_init(&usage->lock, NULL);
    usage->memory = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    usage->files = opendir("/proc/self/fd");
    usage->start_seconds = (double)srv_wall_ns() / 1e9;
    usage->max_files = getrlimit(RLIMIT_NOFILE, &files) == 0 ? (size_t)files.rlim_cur : 0;
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

static size_t count_files(DIR *files)
{
    size_t count = 0;
    rewinddir(files);
    while (readdir(files) != NULL)
        count++;
    return count > 2 ? count - 2 : 0; /* ".", ".." */
}

/* statm begins with all pages and resident pages. */
void srv_usage_read(struct srv_process *out, struct srv_usage *usage)
{
    char text[128], *end;
    const uint64_t now = srv_now_ns();
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ssize_t length = usage->memory >= 0 ? pread(usage->memory, text, sizeof text - 1, 0) : 0;
    text[length > 0 ? length : 0] = '\0';
    out->virtual_bytes = strtoul(text, &end, 10) * page;
    out->resident_bytes = strtoul(end, NULL, 10) * page;
    out->max_files = usage->max_files;
    out->start_seconds = usage->start_seconds;
    out->cpu_seconds = (double)srv_clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
    struct stat files = {.st_size = 0}; /* its size: the number of open files, since Linux 6.2 */
    if (usage->files != NULL)
        (void)fstat(dirfd(usage->files), &files);
    pthread_mutex_lock(&usage->lock);
    if (now >= usage->until_ns) {
        struct mallinfo2 heap = mallinfo2();
        usage->heap_bytes = heap.uordblks + heap.hblkhd;
        if (usage->files != NULL && files.st_size <= 0)
            usage->open_files = count_files(usage->files);
        const uint64_t cost = SAMPLE_COSTS * (srv_now_ns() - now);
        usage->until_ns = now + (cost > SAMPLE_NS ? cost : SAMPLE_NS);
    }
    out->heap_bytes = usage->heap_bytes;
    out->open_files = files.st_size > 0 ? (size_t)files.st_size : usage->open_files;
    pthread_mutex_unlock(&usage->lock);
}
