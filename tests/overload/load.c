/* load.c: an open-loop sender of fixed requests. */
#include "load.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REPLY_MAX 8192
#define EVENTS 256
#define REST_S 30.0 /* at most, to wait for answers after a run */

struct load_connection {
    int fd;
    const struct text *request;
    double sent; /* 0: nothing is under way */
    size_t have;
    char reply[REPLY_MAX + 1];
};

double load_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Connections ----------------------------------------------------------------------------- */

int load_dial(unsigned port, int buffer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_ge(fd, 0);
    if (buffer > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void load_greet(int fd)
{
    static const char request[] = "GET /livez HTTP/1.1\r\nHost: test\r\n\r\n";
    char answer[2048];
    size_t have = 0;
    ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    do {
        ssize_t got = recv(fd, answer + have, sizeof answer - 1 - have, 0);
        ck_assert_int_gt(got, 0);
        have += (size_t)got;
        answer[have] = '\0';
    } while (strstr(answer, "\r\n\r\n") == NULL || answer[have - 1] != '}');
}

/* Opens connection i, and lets it have an answer: a connection that had one may wait for long until
 * it is used. */
static void dial(struct load *load, size_t i)
{
    struct load_connection *c = &load->connections[i];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
    c->fd = load_dial(load->port, 0);
    load_greet(c->fd);
    ck_assert_int_eq(fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(epoll_ctl(load->epoll, EPOLL_CTL_ADD, c->fd, &event), 0);
}

void load_open(struct load *load, unsigned port, const struct text requests[], size_t count)
{
    *load = (struct load){.port = port, .count = count, .num_free = count, .random = 7};
    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    load->connections = calloc(count, sizeof *load->connections);
    load->free = calloc(count, sizeof *load->free);
    ck_assert(load->epoll >= 0 && load->connections != NULL && load->free != NULL);
    for (size_t i = 0; i < count; i++) {
        load->connections[i].request = &requests[i];
        load->free[i] = count - 1 - i;
        dial(load, i);
    }
}

void load_close(struct load *load)
{
    for (size_t i = 0; i < load->count; i++)
        close(load->connections[i].fd);
    close(load->epoll);
    free(load->connections);
    free(load->free);
}

/* ---- Sending and receiving ------------------------------------------------------------------- */

static void send_next(struct load *load)
{
    struct load_connection *c = &load->connections[load->free[--load->num_free]];
    c->sent = load->now;
    c->have = 0;
    ssize_t sent = send(c->fd, c->request->data, c->request->length, MSG_NOSIGNAL);
    ck_assert_msg(sent == (ssize_t)c->request->length, "a request could not be sent");
    load->num_busy++;
    load->result->sent++;
}

void load_add(struct load_times *times, double ms)
{
    if (times->count == times->capacity) {
        times->capacity = times->capacity > 0 ? 2 * times->capacity : 4096;
        times->ms = realloc(times->ms, times->capacity * sizeof *times->ms);
        ck_assert_ptr_nonnull(times->ms);
    }
    times->ms[times->count++] = (float)ms;
}

static void count_answer(struct load *load, struct load_connection *c)
{
    struct load_result *result = load->result;
    unsigned long status = strtoul(c->reply + 9, NULL, 10);
    if (load->now > load->end)
        return;
    if (status == 200) {
        result->good++;
        load_add(&result->good_ms, 1000 * (load->now - c->sent));
    } else if (status == 429 || status == 503 || status == 504) {
        result->refused++;
        load_add(&result->refused_ms, 1000 * (load->now - c->sent));
    } else {
        result->other++;
    }
}

/* Whether the whole answer has been received. */
static bool is_whole(const struct load_connection *c)
{
    const char *end = strstr(c->reply, "\r\n\r\n");
    const char *length = strcasestr(c->reply, "\nContent-Length:");
    if (end == NULL || length == NULL || length > end)
        return false;
    return c->have >= (size_t)(end + 4 - c->reply) + strtoul(length + 16, NULL, 10);
}

static void receive(struct load *load, size_t i)
{
    struct load_connection *c = &load->connections[i];
    ssize_t got = recv(c->fd, c->reply + c->have, REPLY_MAX - c->have, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got > 0) {
        c->have += (size_t)got;
        c->reply[c->have] = '\0';
        if (c->sent == 0 || !is_whole(c))
            return;
        count_answer(load, c);
    } else { /* the connection ended; a request without an answer counts as `other` */
        load->result->other += c->sent != 0;
        close(c->fd);
        dial(load, i);
        if (c->sent == 0)
            return;
    }
    c->sent = 0;
    load->free[load->num_free++] = i;
    load->num_busy--;
}

static void wait_and_receive(struct load *load, int ms)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(load->epoll, events, EVENTS, ms);
    load->now = load_now();
    for (int i = 0; i < count; i++)
        receive(load, (size_t)events[i].data.u64);
}

/* ---- A run ----------------------------------------------------------------------------------- */

/* Seconds between two requests of a Poisson process. */
static double gap(struct load *load, double rate)
{
    load->random = load->random * 1664525u + 1013904223u;
    return -log(((load->random >> 8) + 1) / 16777217.0) / rate;
}

static void run_open(struct load *load, double rate)
{
    for (double due = load->now; load->now < load->end;) {
        for (; due <= load->now; due += gap(load, rate)) {
            if (load->num_free > 0)
                send_next(load);
            else
                load->result->unsent++;
        }
        wait_and_receive(load, 1);
    }
}

static void run_closed(struct load *load, size_t most)
{
    while (load->now < load->end) {
        while (load->num_busy < most && load->num_free > 0)
            send_next(load);
        wait_and_receive(load, 10);
    }
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

void load_sort(struct load_times *times)
{
    if (times->count > 0)
        qsort(times->ms, times->count, sizeof *times->ms, compare);
}

void load_run(struct load_result *out, struct load *load, double rate, double seconds, size_t most)
{
    *out = (struct load_result){.seconds = seconds};
    load->result = out;
    load->now = load_now();
    load->end = load->now + seconds;
    if (rate > 0)
        run_open(load, rate);
    else
        run_closed(load, most);
    while (load->num_busy > 0 && load->now < load->end + REST_S)
        wait_and_receive(load, 10);
    ck_assert_msg(load->num_busy == 0, "%zu requests had no answer", load->num_busy);
    load_sort(&out->good_ms);
    load_sort(&out->refused_ms);
}

double load_ask(struct load *load)
{
    struct load_result run = {0};
    load->result = &run;
    load->now = load_now();
    load->end = load->now + REST_S;
    send_next(load);
    while (load->num_busy > 0 && load->now < load->end)
        wait_and_receive(load, 100);
    double ms = run.good == 1 ? (double)run.good_ms.ms[0] : INFINITY;
    load_result_free(&run);
    return ms;
}

double load_ms(const struct load_times *times, double share)
{
    if (times->count == 0)
        return 0;
    return (double)times->ms[(size_t)(share * (double)(times->count - 1))];
}

void load_result_free(struct load_result *result)
{
    free(result->good_ms.ms);
    free(result->refused_ms.ms);
}
