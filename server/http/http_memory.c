/* http_memory.c: the memory of exchanges: spare ones, bodies, what is charged for them.
 *
 * Each event thread keeps some exchanges with room for a small body and a small job, so that most
 * requests take nothing from the system.  They are one block and stay it: 17 KiB each, taken by one
 * thread and freed by another, would leave holes in the heap that grow for hours.  What
 * max_in_flight_bytes is charged is the same either way. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_exchange.h"

#define KEPT 256         /* exchanges of an event thread */
#define SMALL_BODY 65536 /* bytes: below, room for eight times what is there, as each step copies */

/* AddressSanitizer sees who touches one between its requests. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)
#define ASAN_UNPOISON_MEMORY_REGION(at, size)
#endif

/* ---- Exchanges ------------------------------------------------------------------------------- */

static bool is_kept(const struct srv_exchange *x, const struct srv_loop *loop)
{
    return (uintptr_t)x - (uintptr_t)loop->kept < KEPT * sizeof *x;
}

/* One that was used before, or the next of the block; NULL where there is none. */
static struct srv_exchange *take_kept(struct srv_loop *loop)
{
    if (loop->spare == NULL)
        loop->spare = atomic_exchange(&loop->given_back, NULL);
    struct srv_exchange *x = loop->spare;
    if (x != NULL) {
        ASAN_UNPOISON_MEMORY_REGION(x, offsetof(struct srv_exchange, next));
        loop->spare = x->next;
        return x;
    }
    if (loop->num_used == KEPT)
        return NULL;
    if (loop->kept == NULL)
        loop->kept = aligned_alloc(64, KEPT * sizeof *x);
    return loop->kept != NULL ? &loop->kept[loop->num_used++] : NULL;
}

/* `own`: on the loop's thread. */
static void give_back(struct srv_exchange *x, struct srv_loop *loop, bool own)
{
    ASAN_POISON_MEMORY_REGION(x, offsetof(struct srv_exchange, next));
    if (own) {
        x->next = loop->spare;
        loop->spare = x;
        return;
    }
    x->next = atomic_load(&loop->given_back);
    while (!atomic_compare_exchange_weak(&loop->given_back, &x->next, x))
        ;
}

struct srv_exchange *srv_exchange_new(struct srv_loop *loop)
{
    struct srv_exchange *x = take_kept(loop);
    if (x == NULL)
        x = aligned_alloc(64, sizeof *x);
    if (x != NULL)
        memset(x, 0, offsetof(struct srv_exchange, next));
    return x;
}

_Static_assert(offsetof(struct srv_exchange, reply) + SMALL_REPLY -
                       offsetof(struct srv_exchange, body) >=
                   SRV_MAX_HEADER_BYTES,
               "a target lies where body, job and reply will");

void srv_exchange_target(struct srv_exchange *x, const char *target)
{
    size_t length = strnlen(target, sizeof x->target - 1);
    memcpy(x->target, target, length);
    x->target[length] = '\0';
    const char *query = memchr(x->target, '?', length);
    if (query == NULL)
        return;
    length = strnlen(query + 1, QUERY_MAX);
    memcpy(x->query, query + 1, length);
    x->query[length] = '\0';
    x->request.query = x->query;
}

void srv_exchange_discard(struct srv_exchange *x, bool own)
{
    if (is_kept(x, x->loop))
        give_back(x, x->loop, own);
    else
        free(x);
}

void srv_exchange_free(struct srv_exchange *x, bool own)
{
    struct srv_request *request = &x->request;
    struct srv_http *http = x->loop->http;
    srv_budget_return(request->in_flight, request->charged);
    srv_request_release(request);
    srv_buffer_fini(&request->reply.body);
    srv_exchange_discard(x, own);
    atomic_fetch_sub(&http->active, 1);
}

void srv_exchange_free_kept(struct srv_loop *loop) { free(loop->kept); }

/* ---- Charging and bodies --------------------------------------------------------------------- */

bool srv_exchange_grant(void *context, size_t bytes)
{
    struct srv_exchange *x = context;
    return srv_request_charge(&x->request, bytes);
}

enum srv_error_code srv_exchange_full(struct srv_error *error)
{
    return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL,
                    "requests in flight use the memory that max_in_flight_bytes grants");
}

static char *resize_body(struct srv_exchange *x, size_t capacity)
{
    struct srv_request *request = &x->request;
    bool own = request->body != NULL && request->body != x->body;
    if (!own && capacity <= BODY_FIRST)
        return x->body;
    char *body = realloc(own ? request->body : NULL, capacity + 1);
    if (body != NULL && !own && request->body != NULL)
        memcpy(body, x->body, request->body_length);
    return body;
}

/* Makes room for a body of `capacity` bytes and the NUL behind it; for `needed` where that is all
 * there is. */
static enum srv_error_code make_room(struct srv_exchange *x, size_t needed, size_t capacity,
                                     struct srv_error *error)
{
    if (!srv_request_charge(&x->request, capacity - x->capacity)) {
        if (!srv_request_charge(&x->request, needed - x->capacity))
            return srv_exchange_full(error);
        capacity = needed;
    }
    char *body = resize_body(x, capacity);
    if (body == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a body of %zu bytes",
                        capacity);
    x->request.body = body;
    x->capacity = capacity;
    return SRV_OK;
}

size_t srv_http_exchange_bytes(void) { return sizeof(struct srv_exchange); }

enum srv_error_code srv_exchange_check_length(const struct srv_exchange *x, uint64_t length,
                                              struct srv_error *error)
{
    size_t max = srv_body_limit(&x->request);
    if (length <= max)
        return SRV_OK;
    return srv_fail(error, SRV_E_BODY_TOO_LARGE, NULL, "a body of %llu bytes, at most %zu",
                    (unsigned long long)length, max);
}

enum srv_error_code srv_exchange_grow(struct srv_exchange *x, size_t needed,
                                      struct srv_error *error)
{
    if (needed <= x->capacity)
        return SRV_OK;
    if (srv_exchange_check_length(x, needed, error) != SRV_OK)
        return error->code;
    size_t max = x->framing.chunked ? srv_body_limit(&x->request) : (size_t)x->framing.length;
    size_t factor = needed < SMALL_BODY ? 8 : 2;
    size_t capacity = needed <= BODY_FIRST ? BODY_FIRST : factor * needed;
    capacity = capacity < max ? capacity : max;
    return make_room(x, needed, capacity > needed ? capacity : needed, error);
}
