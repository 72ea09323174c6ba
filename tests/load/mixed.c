/* mixed.c: decodes beside a long attend: what each costs the other.
 *
 *   mixed PORT [seconds of a run] [share of the capacity] [tokens]
 *
 * The program talks to an attnd with the models `short` (decoded, one session per connection)
 * and `long` (a layer for /attend).  All tensors are sent as bytes, so that the daemon is
 * measured and not its client.  The capacity is measured first: as many decodes as 32
 * connections can have.  A `share` of the capacity is then an open-loop load: requests are due
 * at random times (Poisson), independent of the answers, and a latency counts from the due time,
 * so waiting for a free connection is part of it.  This load runs alone, then beside attends
 * that follow one another; the attends also run alone.  Printed are p50 and p99 of the decodes,
 * the mean time of the attends, and both ratios with their bounds.  The exit status is 1 where a
 * request fails, 2 where a ratio is beyond its bound. */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 32
#define SHORT_WIDTH 256 /* widths of the models of mixed.sh */
#define LONG_WIDTH 1024
#define MAX_STEPS 512 /* of a session; then it starts again under a new name */
#define MAX_SAMPLES 4000000
#define SHARE 0.2 /* of the capacity */
#define DECODE_BOUND 2.0
#define ATTEND_BOUND 1.3

static unsigned port;

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("mixed: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_until(double when)
{
    double seconds = floor(when);
    struct timespec t = {(time_t)seconds, (long)((when - seconds) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* ---- HTTP ---- */

static int dial(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("no connection to port %u: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void send_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
        if (n <= 0)
            die("sending: %s", strerror(errno));
        bytes += n;
        count -= (size_t)n;
    }
}

/* Reads one reply, which must be 200, and discards it. */
static void expect_ok(int fd)
{
    char head[65536];
    size_t have = 0;
    char *end = NULL;
    while (end == NULL) {
        ssize_t n = recv(fd, head + have, sizeof head - 1 - have, 0);
        if (n <= 0)
            die("the connection ended");
        have += (size_t)n;
        head[have] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    const char *length = strcasestr(head, "\r\nContent-Length:");
    if (strncmp(head, "HTTP/1.1 200", 12) != 0 || length == NULL || length > end)
        die("a reply is not 200: %.300s", head);
    size_t body = strtoul(length + 17, NULL, 10), got = have - (size_t)(end + 4 - head);
    while (got < body) {
        ssize_t n = recv(fd, head, sizeof head, 0);
        if (n <= 0)
            die("the connection ended within a reply");
        got += (size_t)n;
    }
}

/* A request to `path`: this JSON, followed by rows of `width` floats. */
struct message {
    char *bytes;
    size_t length;
};

static struct message new_message(const char *path, const char *json, size_t rows, size_t width)
{
    size_t floats = rows * width, size = floats * sizeof(float) + strlen(json) + 1024;
    struct message message = {.bytes = malloc(size)};
    if (message.bytes == NULL)
        die("out of memory");
    int head = snprintf(message.bytes, size,
                        "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                        "application/octet-stream\r\nInference-Header-Content-Length: "
                        "%zu\r\nContent-Length: %zu\r\n\r\n%s",
                        path, strlen(json), strlen(json) + floats * sizeof(float), json);
    message.length = (size_t)head;
    for (size_t i = 0; i < floats; i++) {
        float x = (float)((i * 2654435761u >> 7) % 2001) / 1000 - 1;
        memcpy(message.bytes + message.length, &x, sizeof x);
        message.length += sizeof x;
    }
    return message;
}

/* ---- Decodes ---- */

struct load {
    double start, seconds, rate; /* rate 0: closed loop */
    double *due;                 /* [samples] when each request is due */
    float *latency;              /* [samples] */
    size_t samples;
    atomic_size_t next, done;
};

struct session {
    struct load *load;
    unsigned number;
};

static atomic_uint session_names;

static void decode_once(int fd, size_t *steps, unsigned *name)
{
    char json[256];
    bool start = *steps % MAX_STEPS == 0;
    if (start)
        *name = atomic_fetch_add(&session_names, 1);
    snprintf(json, sizeof json,
             "{\"model\":\"short\",\"session_id\":\"m%d-%u\",%s\"binary_output\":true,"
             "\"hidden_states\":{\"shape\":[1,%d],\"datatype\":\"FP32\",\"binary_data_size\":%d}}",
             (int)getpid(), *name, start ? "\"start\":true," : "", SHORT_WIDTH, SHORT_WIDTH * 4);
    struct message message = new_message("/decode", json, 1, SHORT_WIDTH);
    send_all(fd, message.bytes, message.length);
    free(message.bytes);
    expect_ok(fd);
    ++*steps;
}

static void *run_session(void *argument)
{
    struct session *session = argument;
    struct load *load = session->load;
    int fd = dial();
    size_t steps = 0;
    unsigned name = 0;
    for (;;) {
        size_t i = atomic_fetch_add(&load->next, 1);
        if (i >= load->samples || (load->rate <= 0 && now_s() > load->start + load->seconds))
            break;
        double due = load->rate > 0 ? load->due[i] : now_s();
        sleep_until(due);
        decode_once(fd, &steps, &name);
        load->latency[i] = (float)(now_s() - due);
        atomic_fetch_add(&load->done, 1);
    }
    close(fd);
    return NULL;
}

static void load_begin(struct load *load, double seconds, double rate, pthread_t threads[],
                       struct session sessions[])
{
    double at = now_s() + 0.05;
    uint64_t seed = 88172645463325252u;
    *load = (struct load){.start = at, .seconds = seconds, .rate = rate, .samples = MAX_SAMPLES};
    load->due = calloc(MAX_SAMPLES, sizeof *load->due);
    load->latency = calloc(MAX_SAMPLES, sizeof *load->latency);
    if (load->due == NULL || load->latency == NULL)
        die("out of memory");
    for (size_t i = 0; rate > 0 && i < load->samples; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        at -= log(((double)(seed >> 11) + 1) / 9007199254740993.0) / rate;
        if (at > load->start + seconds)
            load->samples = i;
        load->due[i] = at;
    }
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        sessions[i] = (struct session){load, i};
        if (pthread_create(&threads[i], NULL, run_session, &sessions[i]) != 0)
            die("no more threads");
    }
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

struct figures {
    double rate, p50_ms, p99_ms, max_ms;
};

static struct figures load_end(struct load *load, pthread_t threads[])
{
    for (unsigned i = 0; i < CONNECTIONS; i++)
        pthread_join(threads[i], NULL);
    size_t n = atomic_load(&load->done);
    if (n < 100)
        die("only %zu decodes: raise seconds", n);
    qsort(load->latency, n, sizeof *load->latency, by_value);
    struct figures figures = {
        .rate = (double)n / load->seconds,
        .p50_ms = 1e3 * (double)load->latency[n / 2],
        .p99_ms = 1e3 * (double)load->latency[n - 1 - n / 100],
        .max_ms = 1e3 * (double)load->latency[n - 1],
    };
    free(load->due);
    free(load->latency);
    return figures;
}

static struct figures run_load(double seconds, double rate)
{
    struct load load;
    pthread_t threads[CONNECTIONS];
    struct session sessions[CONNECTIONS];
    load_begin(&load, seconds, rate, threads, sessions);
    return load_end(&load, threads);
}

/* ---- Attends ---- */

/* Returns the seconds that one attend takes. */
static double attend_once(int fd, const struct message *message)
{
    double start = now_s();
    send_all(fd, message->bytes, message->length);
    expect_ok(fd);
    return now_s() - start;
}

static struct message attend_message(size_t tokens)
{
    char json[256];
    snprintf(json, sizeof json,
             "{\"model\":\"long\",\"binary_output\":true,\"hidden_states\":{\"shape\":[%zu,%d],"
             "\"datatype\":\"FP32\",\"binary_data_size\":%zu}}",
             tokens, LONG_WIDTH, tokens * LONG_WIDTH * 4);
    return new_message("/attend", json, tokens, LONG_WIDTH);
}

/* Decodes at `rate` while `count` attends run; *attend_s receives the attends' mean seconds. */
static struct figures run_beside(double *attend_s, int fd, const struct message *message,
                                 size_t count, double rate, double alone_s)
{
    struct load load;
    pthread_t threads[CONNECTIONS];
    struct session sessions[CONNECTIONS];
    double total = 0;
    /* Decodes end a little before the attends, so that each of them is beside one. */
    load_begin(&load, alone_s * (double)count, rate, threads, sessions);
    for (size_t i = 0; i < count; i++)
        total += attend_once(fd, message);
    *attend_s = total / (double)count;
    return load_end(&load, threads);
}

static void print_load(const char *what, const struct figures *figures)
{
    printf("%-22s %9.0f/s   p50 %7.3f   p99 %7.3f   max %8.3f ms\n", what, figures->rate,
           figures->p50_ms, figures->p99_ms, figures->max_ms);
}

static bool judge(const char *what, double ratio, double bound)
{
    printf("%-22s %.2f of alone; at most %.1f: %s\n", what, ratio, bound,
           ratio <= bound ? "met" : "UNMET");
    return ratio <= bound;
}

int main(int argc, char *argv[])
{
    if (argc < 2 || argc > 5)
        die("usage: mixed PORT [seconds] [share of the capacity] [tokens]");
    port = (unsigned)strtoul(argv[1], NULL, 10);
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 10;
    double share = argc > 3 ? strtod(argv[3], NULL) : SHARE;
    size_t tokens = argc > 4 ? strtoul(argv[4], NULL, 10) : 8192, count;
    int fd = dial();
    struct message message = attend_message(tokens);
    attend_once(fd, &message); /* the first one allocates its memory */
    struct figures capacity = run_load(seconds / 2, 0);
    print_load("capacity", &capacity);
    double attend = attend_once(fd, &message), beside_s;
    count = (size_t)fmax(1, ceil(seconds / attend));
    for (size_t i = 1; i < count; i++)
        attend += attend_once(fd, &message);
    attend /= (double)count;
    struct figures alone = run_load(seconds, share * capacity.rate);
    print_load("decodes alone", &alone);
    struct figures beside =
        run_beside(&beside_s, fd, &message, count, share * capacity.rate, attend);
    print_load("decodes beside attends", &beside);
    printf("%-22s %zu tokens   alone %.3f s   beside %.3f s   (%zu of them)\n", "attends", tokens,
           attend, beside_s, count);
    bool met = judge("p99 of decodes", beside.p99_ms / alone.p99_ms, DECODE_BOUND);
    met = judge("time of an attend", beside_s / attend, ATTEND_BOUND) && met;
    free(message.bytes);
    close(fd);
    return met ? 0 : 2;
}
