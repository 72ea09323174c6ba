/* proxy.c: one thread accepts connections, and one more serves each connection.  Copies that are
 * held, and what late ones may do: held.c. */
#include "proxy.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "held.h"
#include "inspected.h"

#define PATIENCE_MS 60000
#define CHANCE 40 /* of so many requests those of `faults` have one */
#define RELEASE 2 /* with one of so many a copy that is held is delivered, where there is one */

enum fault {
    NO_FAULT,
    LOSE_REPLY,
    TRUNCATE_REPLY,
    REPEAT,
    REPEAT_AT_ONCE,
    LOSE_REQUEST,
    HOLD_COPY,
    HOLD_REQUEST
};

static const struct daemon *upstream;
static int listener;
static pthread_t acceptor;

/* Guards the variables below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static size_t open_connections;
static unsigned random_state = 1;
static struct proxy_figures figures;
static struct {
    size_t number, deliveries;
} latest[PROXY_CALLERS];

/* To the daemon: for a request, for its second copy, for one that is late. */
enum { MAIN, SECOND, LATE, CONNECTIONS };

struct connection {
    struct raw client, daemon[CONNECTIONS];
    bool is_open[CONNECTIONS];
};

/* A request, and what its X-Request-Id says. */
struct passing {
    struct raw_answer request;
    unsigned caller;
    size_t number, again, first;
};

/* A copy that is delivered late; before the request that passes, or at once with it. */
struct late {
    struct raw_answer request; /* head NULL: none */
    bool at_once;
};

/* Under the lock. */
static unsigned draw(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* Draws the fault of a request, and holds a copy where that is the fault. */
static enum fault draw_fault(const struct passing *p)
{
    static const enum fault faults[CHANCE] = {
        LOSE_REPLY, TRUNCATE_REPLY, REPEAT,    REPEAT_AT_ONCE, LOSE_REQUEST, HOLD_COPY,
        HOLD_COPY,  HOLD_COPY,      HOLD_COPY, HOLD_REQUEST,   HOLD_REQUEST};
    pthread_mutex_lock(&lock);
    enum fault fault = faults[draw() % CHANCE];
    figures.requests++;
    figures.dropped += fault == LOSE_REPLY || fault == TRUNCATE_REPLY || fault == LOSE_REQUEST ||
                       fault == HOLD_REQUEST;
    figures.doubled += fault == REPEAT || fault == REPEAT_AT_ONCE;
    if (fault == HOLD_COPY || fault == HOLD_REQUEST)
        held_add(p->caller, p->number, &p->request, draw());
    pthread_mutex_unlock(&lock);
    return fault;
}

/* Takes a copy of an earlier request of the caller. */
static struct late draw_late(const struct passing *p)
{
    struct late late = {.request.head = NULL};
    bool in_order;
    pthread_mutex_lock(&lock);
    if (draw() % RELEASE == 0 &&
        held_take(&late.request, &in_order, p->caller, p->number, draw())) {
        late.at_once = draw() % 2 == 0;
        figures.held++;
        figures.reordered += !in_order || late.at_once;
    }
    pthread_mutex_unlock(&lock);
    return late;
}

/* Counts the request as delivered to the daemon, and the replays expected of its reply. */
static void count_delivery(const struct passing *p)
{
    pthread_mutex_lock(&lock);
    if (latest[p->caller].number != p->number)
        latest[p->caller].deliveries = 0;
    latest[p->caller].number = p->number;
    size_t expected = latest[p->caller].deliveries++ > 0 ? p->again : p->first;
    figures.expected += expected != PROXY_ANY ? expected : 0;
    pthread_mutex_unlock(&lock);
}

static struct raw *open_daemon(struct connection *c, size_t which)
{
    if (!c->is_open[which])
        raw_open(&c->daemon[which], upstream->host, upstream->port);
    c->is_open[which] = true;
    return &c->daemon[which];
}

static void send_on(struct connection *c, size_t which, const struct raw_answer *request)
{
    struct raw *daemon = open_daemon(c, which);
    ck_assert(raw_send(daemon, request->head, strlen(request->head)) &&
              raw_send(daemon, request->body, request->length));
}

static void deliver(struct connection *c, size_t which, const struct passing *p)
{
    count_delivery(p);
    send_on(c, which, &p->request);
}

/* Reads the daemon's reply, and counts every `replayed` in it. */
static struct raw_answer collect(struct connection *c, size_t which, const struct passing *p)
{
    struct raw_answer reply = raw_read(&c->daemon[which], false, PATIENCE_MS);
    ck_assert_uint_ne(reply.status, 0);
    size_t count = p->again != PROXY_ANY ? held_count(reply.body, "\"replayed\":true") : 0;
    pthread_mutex_lock(&lock);
    figures.replayed += count;
    pthread_mutex_unlock(&lock);
    return reply;
}

static void collect_late(struct connection *c, struct late *late)
{
    struct raw_answer reply = raw_read(&c->daemon[LATE], false, PATIENCE_MS);
    ck_assert_uint_ne(reply.status, 0);
    pthread_mutex_lock(&lock);
    held_judge(&figures, &late->request, &reply);
    pthread_mutex_unlock(&lock);
    raw_answer_free(&reply);
    raw_answer_free(&late->request);
}

/* Delivers the request a second time; the later reply replaces the first. */
static void repeat(struct raw_answer *reply, struct connection *c, const struct passing *p)
{
    raw_answer_free(reply);
    deliver(c, MAIN, p);
    *reply = collect(c, MAIN, p);
}

static struct raw_answer exchange(struct connection *c, const struct passing *p, enum fault fault)
{
    struct late late = draw_late(p);
    const bool is_late = late.request.head != NULL;
    if (is_late)
        send_on(c, LATE, &late.request);
    if (is_late && !late.at_once)
        collect_late(c, &late);
    deliver(c, MAIN, p);
    if (fault == REPEAT_AT_ONCE)
        deliver(c, SECOND, p);
    struct raw_answer reply = collect(c, MAIN, p);
    if (fault == REPEAT_AT_ONCE) {
        struct raw_answer other = collect(c, SECOND, p);
        raw_answer_free(&other);
    }
    if (is_late && late.at_once)
        collect_late(c, &late);
    if (fault == REPEAT)
        repeat(&reply, c, p);
    return reply;
}

/* Passes the request on, and its reply back; false where the connection is to be closed. */
static bool pass_on(struct connection *c, const struct passing *p, enum fault fault)
{
    struct raw_answer reply = exchange(c, p, fault);
    bool keep_open = fault != LOSE_REPLY && fault != TRUNCATE_REPLY;
    if (fault != LOSE_REPLY) {
        size_t part = keep_open ? reply.length : reply.length / 2;
        keep_open = raw_send(&c->client, reply.head, strlen(reply.head)) &&
                    raw_send(&c->client, reply.body, part) && keep_open;
    }
    raw_answer_free(&reply);
    return keep_open;
}

/* Serves one request; false where the connection is to be closed. */
static bool pass(struct connection *c)
{
    char id[256];
    struct passing p = {.request = raw_read(&c->client, false, PATIENCE_MS)};
    if (p.request.head == NULL)
        return false;
    ck_assert(raw_header(id, &p.request, "X-Request-Id"));
    ck_assert_int_eq(sscanf(id, PROXY_ID, &p.caller, &p.number, &p.again, &p.first), 4);
    ck_assert_uint_lt(p.caller, PROXY_CALLERS);
    enum fault fault = draw_fault(&p);
    bool keep_open = fault != LOSE_REQUEST && fault != HOLD_REQUEST && pass_on(c, &p, fault);
    raw_answer_free(&p.request);
    return keep_open;
}

static void *serve(void *argument)
{
    struct connection *c = argument;
    while (pass(c))
        continue;
    raw_close(&c->client);
    for (size_t i = 0; i < CONNECTIONS; i++)
        if (c->is_open[i])
            raw_close(&c->daemon[i]);
    free(c);
    pthread_mutex_lock(&lock);
    if (--open_connections == 0)
        pthread_cond_signal(&ended);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Accepts connections until the listening socket is shut down. */
static void *accept_all(void *argument)
{
    struct connection *c = calloc(1, sizeof *c);
    while (c != NULL && raw_accept(&c->client, listener)) {
        pthread_t thread;
        pthread_mutex_lock(&lock);
        open_connections++;
        pthread_mutex_unlock(&lock);
        ck_assert_int_eq(pthread_create(&thread, NULL, serve, c), 0);
        pthread_detach(thread);
        c = calloc(1, sizeof *c);
    }
    free(c);
    return argument;
}

void proxy_open(struct daemon *through, const struct daemon *daemon)
{
    upstream = daemon;
    *through = *daemon;
    listener = inspected_listen(&through->port);
    snprintf(through->url, sizeof through->url, "http://127.0.0.1:%u", through->port);
    ck_assert_int_eq(pthread_create(&acceptor, NULL, accept_all, NULL), 0);
}

struct proxy_figures proxy_close(void)
{
    shutdown(listener, SHUT_RDWR);
    pthread_join(acceptor, NULL);
    close(listener);
    pthread_mutex_lock(&lock);
    while (open_connections > 0)
        pthread_cond_wait(&ended, &lock);
    held_drop_all();
    const struct proxy_figures all = figures;
    figures = (struct proxy_figures){0};
    memset(latest, 0, sizeof latest);
    pthread_mutex_unlock(&lock);
    return all;
}
