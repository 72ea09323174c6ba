/* ep_sessions.c: POST, GET and DELETE of /sessions.
 *
 * Runs on an event thread.  A session's lengths may advance while they are read: each is a value
 * that the layer had. */
#include <string.h>

#include "app.h"
#include "document.h"
#include "endpoints.h"
#include "request.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 100

/* ---- A session as JSON ----------------------------------------------------------------------- */

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

static json_t *session_json(const struct srv_session *session)
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

/* Replies with the session and drops the caller's reference. */
static void reply_session(struct srv_request *request, unsigned status, struct srv_session *session)
{
    srv_document_reply(request, status, session_json(session));
    srv_session_put(session);
}

/* ---- POST ------------------------------------------------------------------------------------ */

struct create_call {
    const char *session_id, *model; /* NULL: not given */
    size_t max_length, ttl_s;       /* 0: not given */
};

static const struct {
    const char *name;
    bool is_text;
    size_t offset; /* in struct create_call */
} create_fields[] = {
    {"session_id", true, offsetof(struct create_call, session_id)},
    {"model", true, offsetof(struct create_call, model)},
    {"max_length", false, offsetof(struct create_call, max_length)},
    {"ttl_s", false, offsetof(struct create_call, ttl_s)},
};
#define CREATE_FIELDS (sizeof create_fields / sizeof create_fields[0])

static enum srv_error_code read_text(const char **out, const char *name, const json_t *value,
                                     struct srv_error *error)
{
    *out = json_string_value(value);
    return *out != NULL ? SRV_OK
                        : srv_fail(error, SRV_E_INVALID_TYPE, name, "%s must be a string", name);
}

static enum srv_error_code read_count(size_t *out, const char *name, const json_t *value,
                                      struct srv_error *error)
{
    json_int_t count = json_integer_value(value);
    if (!json_is_integer(value))
        return srv_fail(error, SRV_E_INVALID_TYPE, name, "%s must be an integer", name);
    if (count < 1)
        return srv_fail(error, SRV_E_INVALID_VALUE, name,
                        "%s is %" JSON_INTEGER_FORMAT ", it must be at least 1", name, count);
    *out = (size_t)count;
    return SRV_OK;
}

static enum srv_error_code read_field(struct create_call *call, const char *name,
                                      const json_t *value, struct srv_error *error)
{
    for (size_t i = 0; i < CREATE_FIELDS; i++) {
        if (strcmp(create_fields[i].name, name) != 0)
            continue;
        void *out = (char *)call + create_fields[i].offset;
        if (json_is_null(value)) /* as in /decode: the same as leaving it out */
            return SRV_OK;
        return create_fields[i].is_text ? read_text(out, name, value, error)
                                        : read_count(out, name, value, error);
    }
    return srv_fail(error, SRV_E_UNKNOWN_FIELD, name, "there is no field \"%.64s\"", name);
}

static enum srv_error_code read_call(struct create_call *call, json_t *body,
                                     struct srv_error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value) {
        enum srv_error_code code = read_field(call, name, value, error);
        if (code != SRV_OK)
            return code;
    }
    return SRV_OK;
}

/* X-Session-Id is for load balancers, which route by it: it must name the request's session. */
static enum srv_error_code check_header(const struct srv_request *request, const char *id,
                                        struct srv_error *error)
{
    if (request->session_header[0] == '\0' || strcmp(request->session_header, id) == 0)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, "X-Session-Id",
                    "X-Session-Id does not name the session of the request");
}

static enum srv_error_code create(struct srv_session **out, struct srv_request *request,
                                  json_t *body, struct srv_error *error)
{
    struct srv_app *app = request->app;
    const struct srv_model *model;
    struct create_call call = {0};
    enum srv_error_code code = read_call(&call, body, error);
    if (code == SRV_OK)
        code = check_header(request, call.session_id != NULL ? call.session_id : "", error);
    if (code == SRV_OK)
        code = srv_models_find(&model, &app->models, call.model, error);
    if (code != SRV_OK)
        return code;
    if (model->is_cross)
        return srv_fail(error, SRV_E_UNSUPPORTED, "model",
                        "model %s is of cross-attention, which has no cache", model->name);
    struct srv_session_options options = {call.session_id, call.max_length, call.ttl_s};
    return srv_session_create(out, app->sessions, model, &options, error);
}

void srv_post_sessions(struct srv_request *request)
{
    struct srv_session *session;
    struct srv_error error = {0};
    json_t *body = NULL;
    enum srv_error_code code = srv_document_read(&body, request, &error);
    if (code == SRV_OK)
        code = create(&session, request, body, &error);
    json_decref(body);
    if (code != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    srv_metrics_session(request->app->metrics, SRV_SESSION_CREATED, 1);
    reply_session(request, 201, session);
}

/* ---- One session ----------------------------------------------------------------------------- */

static void refuse_unknown(struct srv_request *request)
{
    struct srv_error error = {0};
    srv_fail(&error, SRV_E_SESSION_NOT_FOUND, "session_id", "there is no such session");
    srv_reply_error(request, &error);
}

void srv_get_session(struct srv_request *request)
{
    struct srv_error error = {0};
    if (check_header(request, request->path_arg, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    struct srv_session *session = srv_session_peek(request->app->sessions, request->path_arg);
    if (session == NULL)
        refuse_unknown(request);
    else
        reply_session(request, 200, session);
}

void srv_delete_session(struct srv_request *request)
{
    struct srv_error error = {0};
    if (check_header(request, request->path_arg, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    if (!srv_session_delete(request->app->sessions, request->path_arg)) {
        refuse_unknown(request);
        return;
    }
    srv_metrics_session(request->app->metrics, SRV_SESSION_DELETED, 1);
    srv_reply_status(request, 204);
}

/* ---- The list -------------------------------------------------------------------------------- */

struct page_query {
    char after[SRV_ID_MAX + 1];
    size_t limit;
};

static enum srv_error_code read_limit(size_t *out, const char *value, size_t length,
                                      struct srv_error *error)
{
    size_t limit = 0;
    for (size_t i = 0; i < length && limit <= PAGE_MAX; i++) {
        bool digit = value[i] >= '0' && value[i] <= '9';
        limit = digit ? limit * 10 + (size_t)(value[i] - '0') : PAGE_MAX + 1;
    }
    if (limit < 1 || limit > PAGE_MAX)
        return srv_fail(error, SRV_E_INVALID_VALUE, "limit", "limit must be from 1 to %d",
                        PAGE_MAX);
    *out = limit;
    return SRV_OK;
}

static enum srv_error_code read_after(char out[SRV_ID_MAX + 1], const char *value, size_t length,
                                      struct srv_error *error)
{
    size_t kept = length <= SRV_ID_MAX ? length : 0;
    memcpy(out, value, kept);
    out[kept] = '\0';
    if (!srv_id_valid(out))
        return srv_fail(error, SRV_E_INVALID_VALUE, "after", "after must be a session id");
    return SRV_OK;
}

static enum srv_error_code read_pair(struct page_query *query, const char *pair, size_t length,
                                     struct srv_error *error)
{
    if (length >= 6 && memcmp(pair, "after=", 6) == 0)
        return read_after(query->after, pair + 6, length - 6, error);
    if (length >= 6 && memcmp(pair, "limit=", 6) == 0)
        return read_limit(&query->limit, pair + 6, length - 6, error);
    return srv_fail(error, SRV_E_UNKNOWN_FIELD, "query",
                    "the query knows after=ID and limit=N only");
}

static enum srv_error_code read_query(struct page_query *query, const char *text,
                                      struct srv_error *error)
{
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, "&");
        enum srv_error_code code = read_pair(query, text, length, error);
        if (code != SRV_OK)
            return code;
        text += length + (text[length] == '&');
    }
    return SRV_OK;
}

/* One session more than fits the page is asked for, to know whether there is a next page. */
static json_t *page_json(struct srv_session *const page[], size_t count, size_t limit)
{
    json_t *list = json_array();
    size_t shown = count < limit ? count : limit;
    for (size_t i = 0; i < shown; i++)
        json_array_append_new(list, session_json(page[i]));
    return json_pack("{s:o, s:s?}", "sessions", list, "next",
                     count > limit ? page[limit - 1]->id : NULL);
}

void srv_get_sessions(struct srv_request *request)
{
    struct page_query query = {"", PAGE_DEFAULT};
    struct srv_error error = {0};
    if (read_query(&query, request->query, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    struct srv_session **page =
        srv_arena_alloc(&request->arena, query.limit + 1, sizeof(struct srv_session *));
    if (page == NULL) {
        srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the list");
        srv_reply_error(request, &error);
        return;
    }
    size_t count = srv_sessions_page(page, query.limit + 1, request->app->sessions, query.after);
    srv_document_reply(request, 200, page_json(page, count, query.limit));
    for (size_t i = 0; i < count; i++)
        srv_session_put(page[i]);
}
