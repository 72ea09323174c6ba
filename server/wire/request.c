/* request.c: a request's memory, and the two ways to fill a reply: success and error. */
#include "wire/request.h"

#include <stdlib.h>

#include "wire/error_body.h"
#include "wire/route.h"

bool srv_request_charge(struct srv_request *request, size_t bytes)
{
    const struct srv_route *route = request->route;
    size_t beyond = route != NULL && route->while_draining ? SRV_PROBE_BYTES : 0;
    if (!srv_budget_take(request->in_flight, bytes, beyond))
        return false;
    request->charged += bytes;
    return true;
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
    srv_arena_fini(&request->arena);
}

size_t srv_body_limit(const struct srv_request *request)
{
    const struct srv_limits *limits = request->limits;
    return request->route->body == SRV_BODY_BYTES ? limits->max_state_bytes
                                                  : limits->max_body_bytes;
}

void srv_reply_status(struct srv_request *request, unsigned status)
{
    request->reply.status = status;
    request->reply.code = SRV_OK;
}

void srv_reply_error(struct srv_request *request, const struct srv_error *error)
{
    struct srv_reply *reply = &request->reply;
    size_t limit = reply->body.limit;
    srv_buffer_fini(&reply->body);
    srv_buffer_init(&reply->body, limit);
    reply->status = srv_error_status(error->code);
    reply->code = error->code;
    reply->content_type = NULL;
    reply->json_length = 0;
    reply->coding = SRV_IDENTITY;
    reply->varies = false;
    srv_buffer_text(&reply->body, "{\"error\":");
    srv_error_write(&reply->body, error, request->request_id);
    srv_buffer_text(&reply->body, "}");
}
