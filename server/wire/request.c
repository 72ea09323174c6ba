/* request.c: a request's memory, and the two ways to fill a reply: success and error. */
#include "wire/request.h"

#include <stdlib.h>

#include "wire/error_body.h"
#include "wire/route.h"

bool srv_request_charge(struct srv_request *request, size_t bytes)
{
    const struct srv_route *route = request->route;
    size_t beyond = route != NULL && route->while_draining ? SRV_PROBE_BYTES : 0;
    struct srv_account *account = request->key.account;
    request->over_quota = !srv_account_take(account, SRV_QUOTA_IN_FLIGHT, bytes, beyond);
    if (request->over_quota)
        return false;
    if (!srv_budget_take(request->in_flight, bytes, beyond)) {
        srv_account_return(account, SRV_QUOTA_IN_FLIGHT, bytes);
        return false;
    }
    request->charged += bytes;
    return true;
}

void srv_request_uncharge(struct srv_request *request)
{
    srv_budget_return(request->in_flight, request->charged);
    srv_account_return(request->key.account, SRV_QUOTA_IN_FLIGHT, request->charged);
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
    struct srv_error quota;
    if (error->code == SRV_E_OUT_OF_MEMORY && request->over_quota) {
        srv_account_refuse(request->key.account, SRV_QUOTA_IN_FLIGHT, &quota);
        error = &quota;
    }
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
