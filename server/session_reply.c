/* session_reply.c: a session as JSON, and the ways to find none.
 *
 * Lengths may advance while they are read: each is a value that the layer had. */
#include "session_reply.h"

#include <string.h>

#include "app.h"
#include "digest.h"

static json_t *lengths_json(const struct srv_session *session)
{
    json_t *list = json_array();
    const struct srv_model *model = session->model;
    for (size_t i = 0; i < model->info.num_layers; i++) {
        if (attn_model_layer(model->attn, i) == NULL)
            continue;
        size_t length = attn_cache_length(session->cache, i);
        json_array_append_new(
            list, json_pack("{s:I, s:I}", "layer", (json_int_t)i, "length", (json_int_t)length));
    }
    return list;
}

json_t *srv_session_json(const struct srv_session *session)
{
    uint64_t now = srv_now_ns(), used = atomic_load(&session->used_ns);
    double idle_s = now > used ? (double)((now - used) / 1000000) / 1000 : 0;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:I, s:o}", "session_id", session->id, "model",
                     session->model->name, "epoch", (json_int_t)session->epoch, "max_length",
                     (json_int_t)attn_cache_max_length(session->cache), "ttl_s",
                     (json_int_t)(session->ttl_ns / 1000000000), "idle_s", idle_s, "bytes",
                     (json_int_t)attn_cache_bytes(session->cache), "lengths",
                     lengths_json(session));
}

void srv_session_reply(struct srv_request *request, unsigned status, struct srv_session *session,
                       bool replayed)
{
    json_t *document = srv_session_json(session);
    if (replayed && document != NULL &&
        json_object_set_new(document, "replayed", json_true()) != 0) {
        json_decref(document);
        document = NULL;
    }
    srv_document_reply(request, status, document);
    srv_session_put(session);
}

enum srv_error_code srv_session_take_back(struct srv_session *session,
                                          const struct srv_request *request,
                                          const struct srv_error *error)
{
    srv_session_remove(request->app->sessions, session);
    srv_session_put(session);
    return error->code;
}

enum srv_error_code srv_session_check_header(const struct srv_request *request, const char *id,
                                             struct srv_error *error)
{
    if (request->session_header[0] == '\0' || strcmp(request->session_header, id) == 0)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, "X-Session-Id",
                    "X-Session-Id does not name the session of the request");
}

enum srv_error_code srv_session_fail_unknown(struct srv_error *error)
{
    return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id", "there is no such session");
}

enum srv_error_code srv_session_look(struct srv_session **out, const struct srv_request *request,
                                     struct srv_error *error)
{
    if (srv_session_check_header(request, request->path_arg, error) != SRV_OK)
        return error->code;
    *out = srv_session_peek(request->app->sessions, request->path_arg);
    return *out != NULL ? SRV_OK : srv_session_fail_unknown(error);
}

void srv_session_take_key(struct srv_session_options *out, const struct srv_request *request)
{
    out->key = request->idempotency_key;
    srv_digest_init(out->key_digest);
    srv_digest_add(out->key_digest, request->route->path, strlen(request->route->path));
    srv_digest_add(out->key_digest, request->path_arg, strlen(request->path_arg));
    srv_digest_add(out->key_digest, request->body_length > 0 ? request->body : "",
                   request->body_length);
}
