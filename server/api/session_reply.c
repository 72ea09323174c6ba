/* session_reply.c: a session as JSON, and what requests that make one have in common.
 *
 * Lengths of layers are read while steps may extend them: each length is one that the layer had,
 * but not all need be of one moment.  The revision is read first, so that no length is from before
 * the truncation that made it. */
#include "api/sessions.h"

#include "app.h"
#include "base/clock.h"
#include "base/digest.h"

#define TEXT_MAX 1024 /* bytes of a session's text without its lengths */
#define LAYER_MAX 64  /* bytes of one length's text */

static void write_lengths(struct srv_buffer *out, const struct srv_session *session)
{
    const struct srv_model *model = session->model;
    const char *comma = "";
    srv_buffer_text(out, ",\"lengths\":[");
    for (size_t i = 0; i < model->info.num_layers; i++) {
        if (attn_model_layer(model->attn, i) == NULL)
            continue;
        srv_buffer_printf(out, "%s{\"layer\":%zu,\"length\":%zu}", comma, i,
                          attn_cache_length(session->cache, i));
        comma = ",";
    }
    srv_buffer_text(out, "]");
}

static void write_number(struct srv_buffer *out, const char *name, double value)
{
    srv_buffer_printf(out, value != 0 ? ",\"%s\":%.9g" : ",\"%s\":null", name, value);
}

/* The shape of a session without weights, by the names with which it was made. */
static void write_shape(struct srv_buffer *out, const struct srv_model *model)
{
    const struct attn_layer_spec *spec = attn_model_layer(model->attn, 0);
    srv_buffer_printf(out,
                      ",\"weightless\":{\"num_attention_heads\":%zu,\"num_key_value_heads\":%zu,"
                      "\"head_dim\":%zu,\"value_head_dim\":%zu,\"num_hidden_layers\":%zu,"
                      "\"kv_dtype\":\"%s\"",
                      spec->num_heads, spec->num_kv_heads, spec->head_dim, spec->value_head_dim,
                      model->info.num_layers, attn_dtype_name(spec->kv_dtype));
    write_number(out, "scale", spec->scale);
    write_number(out, "softcap", spec->softcap);
    write_number(out, "sliding_window", (double)spec->sliding_window);
    srv_buffer_text(out, "}");
}

/* Appends all but lengths and the object's end. */
static void write_facts(struct srv_buffer *out, const struct srv_session *session,
                        const struct srv_request *request, bool shape)
{
    uint64_t now = srv_now_ns(), used = atomic_load(&session->used_ns);
    double idle_s = now > used ? (double)((now - used) / 1000000) / 1000 : 0;
    srv_buffer_text(out, "{\"session_id\":");
    srv_buffer_json_string(out, session->id);
    srv_buffer_text(out, ",\"model\":");
    srv_model_write_name(out, session->model);
    if (shape && session->model->weightless != NULL)
        write_shape(out, session->model);
    /* Who may see the sessions of all sees whose they are. */
    bool without_keys = request->key.scopes == 0 && session->owner[0] == '\0';
    if (srv_request_is_admin(request) && !without_keys) {
        srv_buffer_text(out, ",\"owner\":");
        srv_buffer_json_string(out, session->owner);
    }
    srv_buffer_text(out, session->shared ? ",\"shared\":true" : "");
    srv_buffer_number(out, ",\"epoch\":", session->epoch);
    srv_buffer_number(out, ",\"revision\":", session->revision);
    srv_buffer_number(out, ",\"max_length\":", attn_cache_max_length(session->cache));
    srv_buffer_number(out, ",\"ttl_s\":", session->ttl_ns / SRV_S_NS);
    srv_buffer_printf(out, ",\"idle_s\":%.3f", idle_s);
    srv_buffer_number(out, ",\"bytes\":", attn_cache_bytes(session->cache));
    srv_buffer_text(out, session->presence == SRV_UNREAD ? ",\"in_memory\":false" : "");
    size_t lowest = attn_cache_lowest_length(session->cache);
    if (lowest > 0)
        srv_buffer_number(out, ",\"lowest_length\":", lowest);
}

void srv_session_print(struct srv_buffer *out, const struct srv_session *session,
                       const struct srv_request *request, bool replayed)
{
    write_facts(out, session, request, true);
    write_lengths(out, session);
    srv_buffer_text(out, replayed ? ",\"replayed\":true}" : "}");
}

size_t srv_session_text_bytes(const struct srv_model *model)
{
    return TEXT_MAX + LAYER_MAX * model->info.num_layers;
}

void srv_session_print_listed(struct srv_buffer *out, const struct srv_session *session,
                              const struct srv_request *request, bool details)
{
    write_facts(out, session, request, details);
    srv_buffer_printf(out, ",\"length\":%zu", srv_session_longest(session));
    if (details)
        write_lengths(out, session);
    srv_buffer_text(out, "}");
}

void srv_session_reply(struct srv_request *request, unsigned status, struct srv_session *session,
                       bool replayed)
{
    srv_session_print(&request->reply.body, session, request, replayed);
    srv_reply_status(request, status);
    srv_session_put(session);
}

static const struct srv_job_stage *reply_made(struct srv_job *job)
{
    struct srv_session *session = job->session;
    job->session = NULL;
    if (!job->replayed)
        srv_metrics_session(job->request->app->metrics, SRV_SESSION_CREATED, 1);
    srv_session_reply(job->request, 201, session, job->replayed);
    return NULL;
}

const struct srv_job_stage srv_reply_made_stage = {SRV_QUEUE_CHANGES, .at_once = true,
                                                   .run = reply_made};

enum srv_error_code srv_session_end(struct srv_session *session, const struct srv_request *request,
                                    struct srv_error *error)
{
    struct srv_app *app = request->app;
    if (srv_store_delete(app->store, session, error) != SRV_OK)
        return error->code;
    if (!srv_session_remove(app->sessions, session))
        return srv_session_fail_missing(app->sessions, session->id, error);
    srv_metrics_session(app->metrics, SRV_SESSION_DELETED, 1);
    return SRV_OK;
}

enum srv_error_code srv_session_check_header(const struct srv_request *request, const char *id,
                                             struct srv_error *error)
{
    if (request->session_header[0] == '\0' || strcmp(request->session_header, id) == 0)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, "X-Session-Id",
                    "X-Session-Id does not name the session of the request");
}

void srv_session_set_owner(struct srv_session_options *out, const struct srv_request *request)
{
    out->owner = request->key.name;
    out->group = request->key.group;
}

enum srv_error_code srv_session_keep_id(const char **id, struct srv_request *request,
                                        struct srv_error *error)
{
    if (*id == NULL)
        return SRV_OK;
    *id = srv_arena_copy(&request->arena, *id, strlen(*id));
    return *id != NULL ? SRV_OK
                       : srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the request");
}

void srv_session_set_idempotency_key(struct srv_session_options *out,
                                     const struct srv_request *request)
{
    out->idempotency_key = request->idempotency_key;
    srv_digest_init(out->key_digest);
    srv_digest_add(out->key_digest, request->route->path, strlen(request->route->path));
    srv_digest_add(out->key_digest, request->path_arg, strlen(request->path_arg));
    srv_digest_add(out->key_digest, request->body_length > 0 ? request->body : "",
                   request->body_length);
}
