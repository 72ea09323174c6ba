/* usage.c: /proc/self/statm and /proc/self/fd, read again and again. */
#include "usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct srv_usage {
    int memory;           /* -1: none */
    pthread_mutex_t lock; /* of the directory's position */
    DIR *files;           /* NULL: none */
};

struct srv_usage *srv_usage_open(void)
{
    struct srv_usage *usage = calloc(1, sizeof *usage);
    if (usage == NULL)
        return NULL;
    pthread_mutex_init(&usage->lock, NULL);
    usage->memory = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    usage->files = opendir("/proc/self/fd");
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

size_t srv_usage_resident_bytes(struct srv_usage *usage)
{
    char text[128], *end;
    ssize_t length = usage->memory >= 0 ? pread(usage->memory, text, sizeof text - 1, 0) : 0;
    if (length <= 0)
        return 0;
    text[length] = '\0';
    (void)strtoul(text, &end, 10); /* all pages; then those in memory */
    return strtoul(end, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

size_t srv_usage_open_files(struct srv_usage *usage)
{
    size_t count = 0;
    if (usage->files == NULL)
        return 0;
    pthread_mutex_lock(&usage->lock);
    rewinddir(usage->files);
    while (readdir(usage->files) != NULL)
        count++;
    pthread_mutex_unlock(&usage->lock);
    return count > 2 ? count - 2 : 0; /* ".", ".." */
}
