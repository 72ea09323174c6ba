/* log_writer.c: lines wait in one buffer while those of another are written.
 *
 * The thread takes all lines that wait by exchanging the two buffers, so nothing is copied under
 * the lock but one line at a time.  After each turn it rests for REST_NS: under load a line costs
 * neither a system call nor a wake, and a single line is written at once. */
#include "ops/log.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#define BUFFER ((size_t)1 << 20) /* bytes of lines that wait: those of some 3,000 requests */
#define REST_NS 2000000
#define FLUSH_NS SRV_S_NS

struct srv_log_writer {
    int fd;
    size_t (*print_dropped)(char out[SRV_LOG_LINE_MAX], size_t count);
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, settled; /* lines have come; lines are written or lost */
    char *waiting, *writing;      /* [BUFFER] lines that wait, and those that the thread writes */
    size_t length;                /* of `waiting` */
    uint64_t accepted, done;      /* bytes that came, and of those what is written or lost */
    size_t dropped;               /* lines of which no line has told */
    bool idle, stop;              /* the thread waits for `wake`; is to end */
};

/* ---- The thread ------------------------------------------------------------------------------ */

/* The bytes of the lines at the beginning that a pipe takes whole, whoever else writes to it. */
static size_t whole_lines(const char *lines, size_t length)
{
    if (length <= SRV_LOG_LINE_MAX)
        return length;
    const char *end = memrchr(lines, '\n', SRV_LOG_LINE_MAX);
    return end != NULL ? (size_t)(end - lines) + 1 : SRV_LOG_LINE_MAX;
}

/* write(2) that waits until the descriptor takes something, also where others have made it
 * non-blocking; 0 where it fails, as on a full disk. */
static size_t write_some(int fd, const char *bytes, size_t length)
{
    for (;;) {
        ssize_t count = write(fd, bytes, length);
        struct pollfd writable = {.fd = fd, .events = POLLOUT};
        if (count < 0 && errno == EAGAIN)
            (void)poll(&writable, 1, -1);
        else if (count >= 0 || errno != EINTR)
            return count > 0 ? (size_t)count : 0;
    }
}

static size_t count_lines(const char *lines, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += lines[i] == '\n';
    return count;
}

/* Writes the lines; returns how many are lost since the descriptor fails.  *torn, before and after:
 * what was written last is part of a line, which the next one must not continue. */
static size_t write_lines(bool *torn, int fd, const char *lines, size_t length)
{
    size_t done = 0, written = 1;
    if (*torn && write_some(fd, "\n", 1) == 0)
        return count_lines(lines, length);
    while (done < length && written > 0) {
        written = write_some(fd, lines + done, whole_lines(lines + done, length - done));
        done += written;
    }
    *torn = done > 0 && lines[done - 1] != '\n';
    return count_lines(lines + done, length - done);
}

/* Exchanges the buffers once lines wait; false at the end, when none do. */
static bool swap_buffers(size_t *length, struct srv_log_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->idle = true;
    while (writer->length == 0 && !writer->stop)
        pthread_cond_wait(&writer->wake, &writer->lock);
    writer->idle = false;
    char *lines = writer->waiting;
    writer->waiting = writer->writing;
    writer->writing = lines;
    *length = writer->length;
    writer->length = 0;
    pthread_mutex_unlock(&writer->lock);
    return *length > 0;
}

/* Counts what was written, and returns the lines of which the log does not tell yet. */
static size_t settle(struct srv_log_writer *writer, size_t length, size_t lost)
{
    pthread_mutex_lock(&writer->lock);
    writer->done += length;
    const size_t dropped = writer->dropped += lost;
    pthread_cond_broadcast(&writer->settled);
    pthread_mutex_unlock(&writer->lock);
    return dropped;
}

static void *writer_main(void *argument)
{
    struct srv_log_writer *writer = argument;
    const struct timespec rest = {.tv_nsec = REST_NS};
    size_t length;
    bool torn = false;
    pthread_setname_np(pthread_self(), "attnd-log");
    while (swap_buffers(&length, writer)) {
        char told[SRV_LOG_LINE_MAX];
        const size_t dropped =
            settle(writer, length, write_lines(&torn, writer->fd, writer->writing, length));
        if (dropped > 0 &&
            write_lines(&torn, writer->fd, told, writer->print_dropped(told, dropped)) == 0)
            settle(writer, 0, -dropped);
        nanosleep(&rest, NULL);
    }
    return NULL;
}

/* ---- Any thread ------------------------------------------------------------------------------ */

static void free_writer(struct srv_log_writer *writer)
{
    free(writer->waiting);
    free(writer->writing);
    pthread_cond_destroy(&writer->wake);
    pthread_cond_destroy(&writer->settled);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}

bool srv_log_writer_open(struct srv_log_writer **out, int fd,
                         size_t (*print_dropped)(char out[SRV_LOG_LINE_MAX], size_t count))
{
    struct srv_log_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return false;
    writer->fd = fd;
    writer->print_dropped = print_dropped;
    writer->waiting = malloc(BUFFER);
    writer->writing = malloc(BUFFER);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->wake, NULL);
    srv_cond_init(&writer->settled);
    if (writer->waiting == NULL || writer->writing == NULL ||
        !srv_thread_start(&writer->thread, writer_main, writer)) {
        free_writer(writer);
        return false;
    }
    *out = writer;
    return true;
}

void srv_log_writer_put(struct srv_log_writer *writer, const char *line, size_t length)
{
    pthread_mutex_lock(&writer->lock);
    if (length <= BUFFER - writer->length) {
        memcpy(writer->waiting + writer->length, line, length);
        writer->length += length;
        writer->accepted += length;
    } else {
        writer->dropped++;
    }
    if (writer->idle)
        pthread_cond_signal(&writer->wake);
    writer->idle = false;
    pthread_mutex_unlock(&writer->lock);
}

bool srv_log_writer_flush(struct srv_log_writer *writer)
{
    const uint64_t until_ns = srv_now_ns() + FLUSH_NS;
    bool in_time = true;
    pthread_mutex_lock(&writer->lock);
    const uint64_t accepted = writer->accepted;
    while (writer->done < accepted && in_time)
        in_time = srv_cond_wait_until(&writer->settled, &writer->lock, until_ns);
    const bool flushed = writer->done >= accepted;
    pthread_mutex_unlock(&writer->lock);
    return flushed;
}

void srv_log_writer_close(struct srv_log_writer *writer)
{
    if (writer == NULL)
        return;
    const bool flushed = srv_log_writer_flush(writer);
    pthread_mutex_lock(&writer->lock);
    writer->stop = true;
    pthread_cond_signal(&writer->wake);
    pthread_mutex_unlock(&writer->lock);
    if (!flushed) {
        pthread_detach(writer->thread);
        return;
    }
    pthread_join(writer->thread, NULL);
    free_writer(writer);
}
