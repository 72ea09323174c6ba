/* proxy.c: one thread accepts connections, and one more serves each connection. */
#include "proxy.h"

#include <arpa/inet.h>
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raw.h"

#define PATIENCE_MS 60000
#define CHANCE 20 /* of so many requests one loses its reply, and one is duplicated */

enum fault { NO_FAULT, LOSE_REPLY, TRUNCATE_REPLY, REPEAT, REPEAT_AT_ONCE };

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

struct connection {
    struct raw client, daemon[2];
    bool second_open;
};

static enum fault draw_fault(void)
{
    static const enum fault faults[2 * CHANCE] = {LOSE_REPLY, TRUNCATE_REPLY, REPEAT,
                                                  REPEAT_AT_ONCE};
    pthread_mutex_lock(&lock);
    random_state = random_state * 1664525u + 1013904223u;
    enum fault fault = faults[(random_state >> 8) % (2 * CHANCE)];
    figures.requests++;
    figures.dropped += fault == LOSE_REPLY || fault == TRUNCATE_REPLY;
    figures.doubled += fault == REPEAT || fault == REPEAT_AT_ONCE;
    pthread_mutex_unlock(&lock);
    return fault;
}

/* Counts the request as delivered to the daemon, and the replays expected of its reply. */
static void count_delivery(const struct raw_answer *request)
{
    char id[256];
    unsigned caller;
    size_t number, again, first;
    ck_assert(raw_header(id, request, "X-Request-Id"));
    ck_assert_int_eq(sscanf(id, PROXY_ID, &caller, &number, &again, &first), 4);
    ck_assert_uint_lt(caller, PROXY_CALLERS);
    pthread_mutex_lock(&lock);
    if (latest[caller].number != number)
        latest[caller].deliveries = 0;
    latest[caller].number = number;
    figures.expected += latest[caller].deliveries++ > 0 ? again : first;
    pthread_mutex_unlock(&lock);
}

static void deliver(struct raw *daemon, const struct raw_answer *request)
{
    count_delivery(request);
    ck_assert(raw_send(daemon, request->head, strlen(request->head)) &&
              raw_send(daemon, request->body, request->length));
}

/* Reads the daemon's reply, and counts every `replayed` in it. */
static struct raw_answer collect(struct raw *daemon)
{
    static const char word[] = "\"replayed\":true";
    struct raw_answer reply = raw_read(daemon, false, PATIENCE_MS);
    size_t count = 0;
    ck_assert_uint_ne(reply.status, 0);
    for (const char *at = reply.body; (at = strstr(at, word)) != NULL; at += sizeof word - 1)
        count++;
    pthread_mutex_lock(&lock);
    figures.replayed += count;
    pthread_mutex_unlock(&lock);
    return reply;
}

/* Delivers the request a second time; the later reply replaces the first. */
static void repeat(struct raw_answer *reply, struct connection *c, const struct raw_answer *request)
{
    raw_answer_free(reply);
    deliver(&c->daemon[0], request);
    *reply = collect(&c->daemon[0]);
}

static struct raw_answer exchange(struct connection *c, const struct raw_answer *request,
                                  enum fault fault)
{
    if (fault == REPEAT_AT_ONCE && !c->second_open) {
        raw_open(&c->daemon[1], upstream->host, upstream->port);
        c->second_open = true;
    }
    deliver(&c->daemon[0], request);
    if (fault == REPEAT_AT_ONCE)
        deliver(&c->daemon[1], request);
    struct raw_answer reply = collect(&c->daemon[0]);
    if (fault == REPEAT_AT_ONCE) {
        struct raw_answer other = collect(&c->daemon[1]);
        raw_answer_free(&other);
    }
    if (fault == REPEAT)
        repeat(&reply, c, request);
    return reply;
}

/* Serves one request; false where the connection is to be closed. */
static bool pass(struct connection *c)
{
    struct raw_answer request = raw_read(&c->client, false, PATIENCE_MS);
    if (request.head == NULL)
        return false;
    enum fault fault = draw_fault();
    struct raw_answer reply = exchange(c, &request, fault);
    bool keep_open = fault != LOSE_REPLY && fault != TRUNCATE_REPLY;
    if (fault != LOSE_REPLY) {
        size_t part = keep_open ? reply.length : reply.length / 2;
        keep_open = raw_send(&c->client, reply.head, strlen(reply.head)) &&
                    raw_send(&c->client, reply.body, part) && keep_open;
    }
    raw_answer_free(&request);
    raw_answer_free(&reply);
    return keep_open;
}

static void *serve(void *argument)
{
    struct connection *c = argument;
    raw_open(&c->daemon[0], upstream->host, upstream->port);
    while (pass(c))
        continue;
    raw_close(&c->client);
    raw_close(&c->daemon[0]);
    if (c->second_open)
        raw_close(&c->daemon[1]);
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
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    upstream = daemon;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listener, 64), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    *through = *daemon;
    through->port = ntohs(address.sin_port);
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
    pthread_mutex_unlock(&lock);
    return figures;
}
