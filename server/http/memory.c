/* memory.c: the memory of exchanges: the pool they come from, bodies, what is charged for
 * them.
 *
 * Each event thread has a pool of exchanges with room for a small body and a small job, so that
 * most requests take nothing from the system.  The pool is one block and stays it: exchanges of 17
 * KiB, allocated by one thread and freed by another, would leave holes in the heap that grow for
 * hours.  Where the pool is used up, exchanges come from malloc.  The charge to max_in_flight_bytes
 * is the same either way. */
#include <stdio.h>
#include <stdlib.h>

#include "http/exchange.h"

#define HINT_MAX 160
#define NUMBER_LEAST 10 /* bytes of a number in JSON, as clients write them */
#define NUMBER_MOST 22
#define POOL_SIZE 256    /* exchanges of an event thread */
#define SMALL_BODY 65536 /* bytes: below, room for eight times what is there, as growing copies */

/* AddressSanitizer reports accesses to an exchange between two of its requests. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)
#define ASAN_UNPOISON_MEMORY_REGION(at, size)
#endif

/* ---- Exchanges ------------------------------------------------------------------------------- */

/* A freed exchange, or else the next unused one of the pool; NULL where there is none. */
static struct srv_exchange *pop_from_pool(struct srv_loop *loop)
{
    if (loop->free_list == NULL)
        loop->free_list = atomic_exchange(&loop->freed_elsewhere, NULL);
    struct srv_exchange *x = loop->free_list;
    if (x != NULL) {
        ASAN_UNPOISON_MEMORY_REGION(x, offsetof(struct srv_exchange, next_free));
        loop->free_list = x->next_free;
        return x;
    }
    if (loop->pool_used == POOL_SIZE)
        return NULL;
    if (loop->pool == NULL)
        loop->pool = aligned_alloc(64, POOL_SIZE * sizeof *x);
    return loop->pool != NULL ? &loop->pool[loop->pool_used++] : NULL;
}

static void return_to_pool(struct srv_exchange *x, struct srv_loop *loop, bool on_loop_thread)
{
    ASAN_POISON_MEMORY_REGION(x, offsetof(struct srv_exchange, next_free));
    if (on_loop_thread) {
        x->next_free = loop->free_list;
        loop->free_list = x;
        return;
    }
    x->next_free = atomic_load(&loop->freed_elsewhere);
    while (!atomic_compare_exchange_weak(&loop->freed_elsewhere, &x->next_free, x))
        ;
}

struct srv_exchange *srv_exchange_new(struct srv_loop *loop)
{
    struct srv_exchange *x = pop_from_pool(loop);
    if (x == NULL)
        x = aligned_alloc(64, sizeof *x);
    if (x != NULL)
        memset(x, 0, offsetof(struct srv_exchange, next_free));
    return x;
}

_Static_assert(offsetof(struct srv_exchange, reply) + SMALL_REPLY -
                       offsetof(struct srv_exchange, body) >=
                   SRV_MAX_HEADER_BYTES,
               "a target lies where body, job and reply will");

void srv_exchange_set_target(struct srv_exchange *x, const char *target)
{
    size_t length = strnlen(target, sizeof x->target - 1);
    memcpy(x->target, target, length);
    x->target[length] = '\0';
    x->request.is_v2 = srv_v2_is_path(x->target);
    const char *query = memchr(x->target, '?', length);
    if (query == NULL)
        return;
    length = strnlen(query + 1, SRV_QUERY_MAX);
    memcpy(x->query, query + 1, length);
    x->query[length] = '\0';
    x->request.query = x->query;
}

void srv_exchange_free(struct srv_exchange *x, bool on_loop_thread)
{
    struct srv_request *request = &x->request;
    struct srv_http *http = x->loop->http;
    srv_request_uncharge(request);
    srv_request_release(request);
    srv_buffer_fini(&request->reply.body);
    if ((uintptr_t)x - (uintptr_t)x->loop->pool < POOL_SIZE * sizeof *x)
        return_to_pool(x, x->loop, on_loop_thread);
    else
        free(x);
    atomic_fetch_sub(&http->active, 1);
}

void srv_exchange_free_pool(struct srv_loop *loop) { free(loop->pool); }

size_t srv_http_exchange_bytes(void) { return sizeof(struct srv_exchange); }

/* ---- Charging and bodies --------------------------------------------------------------------- */

static char *resize_body(struct srv_exchange *x, size_t capacity)
{
    struct srv_request *request = &x->request;
    bool allocated = request->body != NULL && request->body != x->body;
    if (!allocated && capacity <= BODY_FIRST)
        return x->body;
    char *body = realloc(allocated ? request->body : NULL, capacity + 1);
    if (body != NULL && !allocated && request->body != NULL)
        memcpy(body, x->body, request->body_length);
    return body;
}

/* Makes room for a body of `capacity` bytes and the NUL after it; for `needed` bytes where memory
 * in flight allows no more. */
static enum srv_error_code grow_to(struct srv_exchange *x, size_t needed, size_t capacity,
                                   struct srv_error *error)
{
    if (!srv_request_charge(&x->request, capacity - x->capacity)) {
        if (!srv_request_charge(&x->request, needed - x->capacity))
            return srv_fail_in_flight(error);
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

/* Says what a body of JSON would be in the binary form, unless it comes in chunks. */
static void write_hint(char out[HINT_MAX], const struct srv_exchange *x, uint64_t length)
{
    const struct srv_request *request = &x->request;
    enum srv_body_rule rule = request->route->body;
    bool takes_tensors = rule == SRV_BODY_TENSORS || rule == SRV_BODY_OPTIONAL_TENSORS;
    out[0] = '\0';
    if (!takes_tensors || request->framed || request->coding != SRV_IDENTITY)
        return;
    int written = snprintf(out, HINT_MAX,
                           "; in the binary form a number takes 4 bytes, not the %d to "
                           "%d of JSON",
                           NUMBER_LEAST, NUMBER_MOST);
    if (!x->framing.chunked)
        snprintf(out + written, HINT_MAX - (size_t)written, ": this body some %llu to %llu",
                 (unsigned long long)length / NUMBER_MOST * 4,
                 (unsigned long long)length / NUMBER_LEAST * 4);
}

enum srv_error_code srv_exchange_check_length(const struct srv_exchange *x, uint64_t length,
                                              struct srv_error *error)
{
    char hint[HINT_MAX];
    enum srv_body_rule rule = x->request.route->body;
    size_t max = srv_body_limit(&x->request);
    if (length <= max)
        return SRV_OK;
    write_hint(hint, x, length);
    return srv_fail(error, SRV_E_BODY_TOO_LARGE, NULL, "a body of %llu bytes, at most %zu%s%s",
                    (unsigned long long)length, max,
                    rule == SRV_BODY_IGNORED ? ""
                    : rule == SRV_BODY_BYTES ? " (max_state_bytes)"
                                             : " (max_body_bytes)",
                    hint);
}

enum srv_error_code srv_exchange_grow_body(struct srv_exchange *x, size_t needed,
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
    return grow_to(x, needed, capacity > needed ? capacity : needed, error);
}
