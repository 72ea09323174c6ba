/* crowd.c: one thread with epoll opens the connections, sends for them and sees them closed. */
#include "crowd.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

#define EVENTS 256
#define RAMP_S 2.0  /* the slow connections are opened within this time */
#define PAUSE_S 0.5 /* between two bytes of a slow connection */
#define TINY_BUFFER 4096

struct crowd_member {
    int fd; /* -1: closed */
    enum crowd_kind kind;
    double began, sent;
};

static const char head[] = "POST /decode HTTP/1.1\r\nHost: test\r\nX-Slow: ";
static const char body[] =
    "POST /decode HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    "Content-Length: 4000\r\n\r\n{";

/* ---- One connection -------------------------------------------------------------------------- */

static void begin(struct crowd *crowd, size_t i, enum crowd_kind kind)
{
    struct crowd_member *m = &crowd->members[i];
    struct epoll_event event = {.events = EPOLLRDHUP, .data.u64 = i};
    const struct {
        const char *bytes;
        size_t length;
    } first[CROWD_KINDS] = {[CROWD_HEADS] = {head, strlen(head)},
                            [CROWD_BODIES] = {body, strlen(body)},
                            [CROWD_READLESS] = {crowd->asks->data, crowd->asks->length}};
    m->kind = kind;
    m->began = m->sent = load_now();
    m->fd = load_dial(crowd->port, kind == CROWD_READLESS ? TINY_BUFFER : 0);
    if (kind == CROWD_IDLE)
        load_greet(m->fd);
    else
        ck_assert_int_eq(send(m->fd, first[kind].bytes, first[kind].length, MSG_NOSIGNAL),
                         (ssize_t)first[kind].length);
    ck_assert_int_eq(fcntl(m->fd, F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(epoll_ctl(crowd->epoll, EPOLL_CTL_ADD, m->fd, &event), 0);
    crowd->opened[kind]++;
}

static void end(struct crowd *crowd, struct crowd_member *m)
{
    double after = load_now() - m->began;
    close(m->fd);
    m->fd = -1;
    crowd->closed[m->kind]++;
    if (after > crowd->slowest_s[m->kind])
        crowd->slowest_s[m->kind] = after;
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* Opens the slow connections that are due by now, the kinds in turn. */
static void open_more(struct crowd *crowd, double share)
{
    for (enum crowd_kind kind = CROWD_HEADS; kind < CROWD_KINDS; kind++) {
        size_t due =
            share < 1 ? (size_t)(share * (double)crowd->wanted[kind]) : crowd->wanted[kind];
        while (crowd->opened[kind] < due)
            begin(crowd, crowd->total++, kind);
    }
}

static void send_bytes(struct crowd *crowd, double now)
{
    for (size_t i = crowd->wanted[CROWD_IDLE]; i < crowd->total; i++) {
        struct crowd_member *m = &crowd->members[i];
        if (m->fd < 0 || m->kind == CROWD_READLESS || now - m->sent < PAUSE_S)
            continue;
        m->sent = now;
        (void)!send(m->fd, " ", 1, MSG_NOSIGNAL);
    }
}

static void look(struct crowd *crowd, int ms)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(crowd->epoll, events, EVENTS, ms);
    for (int i = 0; i < count; i++)
        end(crowd, &crowd->members[events[i].data.u64]);
}

static bool all_closed(const struct crowd *crowd)
{
    bool all = true;
    for (enum crowd_kind kind = CROWD_HEADS; kind < CROWD_KINDS; kind++)
        all = all && crowd->closed[kind] == crowd->wanted[kind];
    return all;
}

static void *run(void *argument)
{
    struct crowd *crowd = argument;
    double start = load_now(), now = start;
    while (!all_closed(crowd) && now - start < crowd->patience_s) {
        open_more(crowd, (now - start) / RAMP_S);
        send_bytes(crowd, now);
        look(crowd, 10);
        now = load_now();
    }
    atomic_store(&crowd->over, true);
    return NULL;
}

/* ---- Interface ------------------------------------------------------------------------------- */

void crowd_open(struct crowd *crowd, unsigned port, const size_t wanted[CROWD_KINDS],
                const struct text *asks, double patience_s)
{
    size_t most = 0;
    *crowd = (struct crowd){.port = port, .asks = asks, .patience_s = patience_s};
    for (size_t kind = 0; kind < CROWD_KINDS; kind++)
        most += crowd->wanted[kind] = wanted[kind];
    crowd->members = calloc(most, sizeof *crowd->members);
    crowd->epoll = epoll_create1(EPOLL_CLOEXEC);
    ck_assert(crowd->members != NULL && crowd->epoll >= 0);
    for (; crowd->total < wanted[CROWD_IDLE]; crowd->total++)
        begin(crowd, crowd->total, CROWD_IDLE);
}

void crowd_start(struct crowd *crowd)
{
    ck_assert_int_eq(pthread_create(&crowd->thread, NULL, run, crowd), 0);
}

void crowd_join(struct crowd *crowd)
{
    pthread_join(crowd->thread, NULL);
    look(crowd, 0);
}

void crowd_close(struct crowd *crowd)
{
    for (size_t i = 0; i < crowd->total; i++)
        if (crowd->members[i].fd >= 0)
            close(crowd->members[i].fd);
    close(crowd->epoll);
    free(crowd->members);
}
