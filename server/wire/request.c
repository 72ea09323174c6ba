/* request.c: a request's memory, and the two ways to fill a reply: success and error. */
#include "wire/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "wire/inputs.h"
#include "wire/route.h"
#include "wire/v2.h"

const char *srv_method_name(enum srv_method method)
{
    static const char *const names[SRV_METHOD_COUNT] = {
        [SRV_GET] = "GET", [SRV_POST] = "POST", [SRV_PUT] = "PUT", [SRV_DELETE] = "DELETE"};
    return method < SRV_METHOD_COUNT ? names[method] : "OTHER";
}

/* Whether the route is for probes and metrics, which are counted apart. */
static bool is_probe(const struct srv_request *request)
{
    return request->route != NULL && request->route->while_draining;
}

/* The bytes that requests of this request's client hold together; NULL where nobody counts. */
static atomic_size_t *client_counter(struct srv_request *request)
{
    struct srv_account *account = request->key.account;
    if (account != NULL && !is_probe(request))
        return &account->used[SRV_QUOTA_IN_FLIGHT];
    return request->client_bytes != NULL ? &request->client_bytes[is_probe(request)] : NULL;
}

static void return_to_client(struct srv_request *request, size_t bytes)
{
    atomic_size_t *client_bytes = client_counter(request);
    if (client_bytes != NULL)
        atomic_fetch_sub(client_bytes, bytes);
}

static size_t client_limit(const struct srv_request *request)
{
    return is_probe(request) ? SRV_PROBE_BYTES : request->limits->max_client_in_flight_bytes;
}

static bool has_quota(const struct srv_request *request)
{
    return !is_probe(request) &&
           srv_account_limit(request->key.account, SRV_QUOTA_IN_FLIGHT) != SRV_NO_QUOTA;
}

static bool charge_client(struct srv_request *request, size_t bytes)
{
    atomic_size_t *client_bytes = client_counter(request);
    size_t alone = request->charged; /* the counter while no other request of the client has any */
    request->over_quota = request->over_client_limit = false;
    if (has_quota(request))
        request->over_quota = !srv_account_charge(request->key.account, SRV_QUOTA_IN_FLIGHT, bytes);
    else if (client_bytes != NULL)
        request->over_client_limit =
            !srv_charge(client_bytes, bytes, client_limit(request)) &&
            !atomic_compare_exchange_strong(client_bytes, &alone, alone + bytes);
    return !request->over_quota && !request->over_client_limit;
}

/* The client is charged first: what is refused there never stands in the way of others. */
bool srv_request_charge(void *context, size_t bytes)
{
    struct srv_request *request = context;
    const size_t limit = request->in_flight->limit + (is_probe(request) ? SRV_PROBE_BYTES : 0);
    if (!charge_client(request, bytes))
        return false;
    if (!srv_charge(&request->in_flight->used, bytes, limit)) {
        return_to_client(request, bytes);
        return false;
    }
    request->charged += bytes;
    return true;
}

enum srv_error_code srv_fail_in_flight(struct srv_error *error)
{
    return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL,
                    "requests in flight use the memory that max_in_flight_bytes grants");
}

bool srv_request_client_allows(struct srv_request *request, size_t bytes)
{
    atomic_size_t *client_bytes = client_counter(request);
    size_t most = client_limit(request);
    size_t now = client_bytes != NULL ? atomic_load(client_bytes) : 0;
    request->over_client_limit = client_bytes != NULL && !has_quota(request) &&
                                 now != request->charged && (bytes > most || now > most - bytes);
    return !request->over_client_limit;
}

void srv_request_uncharge(struct srv_request *request)
{
    atomic_fetch_sub(&request->in_flight->used, request->charged);
    return_to_client(request, request->charged);
    request->charged = 0;
}

bool srv_request_is_admin(const struct srv_request *request)
{
    return request->key.scopes == 0 || (request->key.scopes & SRV_SCOPE_ADMIN) != 0;
}

static void free_body(struct srv_request *request)
{
    if (request->body != request->small_body)
        free(request->body);
}

void srv_request_replace_body(struct srv_request *request, char *body, size_t length)
{
    free_body(request);
    request->body = body;
    request->body_length = length;
}

void srv_request_release(struct srv_request *request)
{
    free_body(request);
    request->body = NULL;
    request->job = NULL;
    srv_inputs_release(request);
    srv_arena_fini(&request->arena);
}

enum srv_error_code srv_request_check_cancelled(const struct srv_request *request, uint64_t now_ns,
                                                struct srv_error *error)
{
    if (atomic_load_explicit(&request->client_gone, memory_order_relaxed))
        return srv_fail(error, SRV_E_CLIENT_GONE, NULL, "the client has left");
    if (request->deadline_ns != 0 && now_ns >= request->deadline_ns)
        return srv_fail(error, SRV_E_DEADLINE, request->by_timeout ? "timeout" : "X-Deadline-Ms",
                        "the deadline has passed");
    if (atomic_load_explicit(request->stopping, memory_order_relaxed))
        return srv_fail(error, SRV_E_DRAINING, NULL, "attnd is stopping");
    return SRV_OK;
}

size_t srv_body_limit(const struct srv_request *request)
{
    const struct srv_limits *limits = request->limits;
    if (request->route->body == SRV_BODY_IGNORED)
        return SRV_MAX_DOCUMENT_BYTES;
    return request->route->body == SRV_BODY_BYTES ? limits->max_state_bytes
                                                  : limits->max_body_bytes;
}

void srv_reply_status(struct srv_request *request, unsigned status)
{
    request->reply.status = status;
    request->reply.code = SRV_OK;
}

/* Why the request's client gets no memory, though the daemon may have some. */
static void refuse_client(const struct srv_request *request, struct srv_error *error)
{
    bool by_key = request->key.account != NULL && !is_probe(request);
    const char *name = is_probe(request) ? "probe_bytes" : "max_client_in_flight_bytes";
    if (request->over_quota)
        srv_account_refuse(request->key.account, SRV_QUOTA_IN_FLIGHT, error);
    else
        srv_fail(error, SRV_E_OUT_OF_MEMORY, name, "requests of this %s hold what %s grants, %zu",
                 by_key ? "API key" : "address", name, client_limit(request));
}

void srv_reply_write_tag(char out[SRV_TAG_SIZE], const struct srv_reply *reply)
{
    snprintf(out, SRV_TAG_SIZE, "W/\"%08" PRIx32 "\"", reply->tag);
}

void srv_reply_error(struct srv_request *request, const struct srv_error *error)
{
    struct srv_reply *reply = &request->reply;
    struct srv_error refusal;
    if (error->code == SRV_E_OUT_OF_MEMORY && (request->over_quota || request->over_client_limit)) {
        refuse_client(request, &refusal);
        error = &refusal;
    }
    size_t limit = reply->body.limit;
    srv_buffer_fini(&reply->body);
    srv_buffer_init(&reply->body, limit);
    reply->status = srv_error_status(error->code);
    reply->code = error->code;
    memcpy(reply->instance, error->instance, sizeof reply->instance);
    reply->content_type = NULL;
    reply->fields = NULL;
    reply->tag = 0;
    reply->json_length = 0;
    reply->coding = SRV_IDENTITY;
    reply->varies = false;
    if (request->is_v2) {
        struct srv_error reworded = *error;
        if (request->v2_outputs != NULL) /* once it is read, what fails is the call that it means */
            srv_v2_reword_error(&reworded);
        srv_error_write_v2(&reply->body, &reworded, request->request_id);
        return;
    }
    srv_buffer_text(&reply->body, "{\"error\":");
    srv_error_write(&reply->body, error, request->request_id);
    srv_buffer_text(&reply->body, "}");
}
