/* endpoint_sessions.c: POST, GET and DELETE of /sessions.
 *
 * All handlers run on an event thread, since none touches the tokens of a cache. */
#include <string.h>

#include "api/endpoints.h"
#include "api/session_reply.h"
#include "app.h"
#include "wire/call.h"
#include "wire/document.h"

#define PAGE_DEFAULT 100
#define LIMIT_DIGITS 20 /* so few that a query that was shortened is never a valid one */

/* ---- POST ------------------------------------------------------------------------------------ */

struct create_call {
    const char *session_id, *model; /* NULL: not given */
    size_t max_length, ttl_s;       /* 0: not given */
    bool shared;
};

static const struct srv_document_field create_fields[] = {
    SRV_TEXT_FIELD(create_call, session_id),     SRV_TEXT_FIELD(create_call, model),
    SRV_COUNT_FIELD(create_call, max_length, 1), SRV_COUNT_FIELD(create_call, ttl_s, 1),
    SRV_FLAG_FIELD(create_call, shared),
};
#define CREATE_FIELDS (sizeof create_fields / sizeof create_fields[0])

/* Reads the body's tree, in which the texts of *out live on. */
static enum srv_error_code read_call(struct srv_session_options *out,
                                     const struct srv_model **model,
                                     const struct srv_request *request, json_t *body,
                                     struct srv_error *error)
{
    struct create_call call = {0};
    if (srv_document_fields(&call, create_fields, CREATE_FIELDS, body, error) != SRV_OK)
        return error->code;
    const char *id = call.session_id != NULL ? call.session_id : "";
    if (srv_session_check_header(request, id, error) != SRV_OK)
        return error->code;
    if (srv_models_find(model, &request->app->models, call.model, error) != SRV_OK)
        return error->code;
    if ((*model)->is_cross)
        return srv_fail(error, SRV_E_UNSUPPORTED, "model",
                        "model %s is of cross-attention, which has no cache", (*model)->name);
    *out = (struct srv_session_options){.id = call.session_id,
                                        .max_length = call.max_length,
                                        .ttl_s = call.ttl_s,
                                        .shared = call.shared};
    srv_session_set_owner(out, request);
    srv_session_set_idempotency_key(out, request);
    return SRV_OK;
}

/* Creates the session; *replayed where the same request, by its Idempotency-Key, had created it
 * before, which is then *out. */
static enum srv_error_code create(struct srv_session **out, bool *replayed,
                                  struct srv_request *request, json_t *body,
                                  struct srv_error *error)
{
    const struct srv_model *model;
    struct srv_session_options options;
    struct srv_sessions *sessions = request->app->sessions;
    enum srv_error_code code = read_call(&options, &model, request, body, error);
    if (code == SRV_OK)
        code = srv_session_find_by_idempotency_key(out, sessions, &options, error);
    *replayed = code == SRV_OK && *out != NULL;
    if (code != SRV_OK || *replayed)
        return code;
    if (srv_session_reserve_reply(request, model, error) != SRV_OK)
        return error->code;
    code = srv_session_create(out, sessions, model, &options, error);
    if (code != SRV_E_IDEMPOTENCY)
        return code;
    /* The same request, on another thread, created the session after the first look. */
    if (srv_session_find_by_idempotency_key(out, sessions, &options, error) != SRV_OK ||
        *out == NULL)
        return code;
    *replayed = true;
    return SRV_OK;
}

/* Creates the session and records that in the journal; also for a replayed one, which the thread
 * that created it may not have recorded yet. */
static enum srv_error_code create_recorded(struct srv_session **out, bool *replayed,
                                           struct srv_request *request, json_t *body,
                                           struct srv_error *error)
{
    enum srv_error_code code = create(out, replayed, request, body, error);
    if (code == SRV_OK && srv_store_create(request->app->store, *out, error) != SRV_OK)
        code = srv_session_undo_create(*out, request, error);
    return code;
}

void srv_post_sessions(struct srv_request *request)
{
    struct srv_session *session = NULL;
    struct srv_error error = {0};
    json_t *body = NULL;
    bool replayed = false;
    enum srv_error_code code = srv_document_read(&body, request, &error);
    if (code == SRV_OK)
        code = create_recorded(&session, &replayed, request, body, &error);
    json_decref(body);
    if (code != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    if (!replayed)
        srv_metrics_session(request->app->metrics, SRV_SESSION_CREATED, 1);
    srv_session_reply(request, 201, session, replayed);
}

/* ---- One session ----------------------------------------------------------------------------- */

void srv_get_session(struct srv_request *request)
{
    struct srv_error error = {0};
    struct srv_session *session;
    if (srv_session_of_path(&session, request, &error) == SRV_OK)
        srv_session_reply(request, 200, session, false);
    else
        srv_reply_error(request, &error);
}

static enum srv_error_code delete_session(const struct srv_request *request,
                                          struct srv_error *error)
{
    struct srv_app *app = request->app;
    struct srv_session *session;
    enum srv_error_code code = srv_session_of_path(&session, request, error);
    if (code == SRV_OK)
        code = srv_store_delete(app->store, session, error);
    if (code == SRV_OK && !srv_session_remove(app->sessions, session))
        code = srv_session_fail_not_found(error);
    srv_session_put(session);
    return code;
}

void srv_delete_session(struct srv_request *request)
{
    struct srv_error error = {0};
    if (delete_session(request, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    srv_metrics_session(request->app->metrics, SRV_SESSION_DELETED, 1);
    srv_reply_status(request, 204);
}

/* ---- The list -------------------------------------------------------------------------------- */

struct page_query {
    char after[SRV_ID_MAX + 1]; /* "": not given */
    char owner[SRV_ID_MAX + 1]; /* of the session `after`, where has_owner */
    bool has_owner;
    size_t limit; /* 0: not given */
};

static enum srv_error_code read_limit(size_t *out, const char *value, size_t length,
                                      struct srv_error *error)
{
    size_t limit = 0;
    for (size_t i = 0; i < length && limit <= SRV_MAX_PAGE_SESSIONS; i++) {
        bool digit = value[i] >= '0' && value[i] <= '9';
        limit = digit ? limit * 10 + (size_t)(value[i] - '0') : SRV_MAX_PAGE_SESSIONS + 1;
    }
    if (length > LIMIT_DIGITS || limit < 1 || limit > SRV_MAX_PAGE_SESSIONS)
        return srv_fail(error, SRV_E_INVALID_VALUE, "limit", "limit must be from 1 to %d",
                        SRV_MAX_PAGE_SESSIONS);
    *out = limit;
    return SRV_OK;
}

/* Copies an id of `length` characters; false where it is none. */
static bool read_id(char out[SRV_ID_MAX + 1], const char *value, size_t length)
{
    size_t kept = length <= SRV_ID_MAX ? length : 0;
    memcpy(out, value, kept);
    out[kept] = '\0';
    return srv_id_valid(out);
}

/* Reads ID, or ID:OWNER as `next` has it. */
static enum srv_error_code read_after(struct page_query *query, const char *value, size_t length,
                                      struct srv_error *error)
{
    const char *colon = memchr(value, ':', length);
    size_t id_length = colon != NULL ? (size_t)(colon - value) : length;
    query->has_owner = colon != NULL;
    if (!read_id(query->after, value, id_length) ||
        (colon != NULL && !read_id(query->owner, colon + 1, length - id_length - 1)))
        return srv_fail(error, SRV_E_INVALID_VALUE, "after", "after must be a session id");
    return SRV_OK;
}

static enum srv_error_code read_pair(struct page_query *query, const char *pair, size_t length,
                                     struct srv_error *error)
{
    bool is_after = length >= 6 && memcmp(pair, "after=", 6) == 0;
    bool is_limit = length >= 6 && memcmp(pair, "limit=", 6) == 0;
    if ((is_after && query->after[0] != '\0') || (is_limit && query->limit > 0))
        return srv_fail(error, SRV_E_DUPLICATE_FIELD, is_after ? "after" : "limit",
                        "%.5s is given twice", pair);
    if (is_after)
        return read_after(query, pair + 6, length - 6, error);
    if (is_limit)
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
    query->limit = query->limit > 0 ? query->limit : PAGE_DEFAULT;
    return SRV_OK;
}

/* The id, and whose it is: other owners may have sessions of the same id. */
static void write_next(struct srv_buffer *out, const struct srv_session *last)
{
    bool owned = last->owner[0] != '\0';
    srv_buffer_printf(out, "\"%s%s%s\"", last->id, owned ? ":" : "", last->owner);
}

/* Writes the first `limit` sessions of `page`.  Where `count` is larger, there is a next page. */
static void write_page(struct srv_request *request, struct srv_session *const page[], size_t count,
                       size_t limit)
{
    struct srv_buffer *out = &request->reply.body;
    size_t shown = count < limit ? count : limit;
    srv_buffer_text(out, "{\"sessions\":[");
    for (size_t i = 0; i < shown; i++) {
        srv_buffer_text(out, i > 0 ? "," : "");
        srv_session_print(out, page[i], request, false);
    }
    srv_buffer_text(out, "],\"next\":");
    if (count > limit)
        write_next(out, page[limit - 1]);
    else
        srv_buffer_text(out, "null");
    srv_buffer_text(out, "}");
}

void srv_get_sessions(struct srv_request *request)
{
    struct page_query query = {.limit = 0};
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
    size_t count = srv_sessions_page(page, query.limit + 1, request->app->sessions, query.after,
                                     query.has_owner ? query.owner : NULL);
    write_page(request, page, count, query.limit);
    srv_reply_status(request, 200);
    for (size_t i = 0; i < count; i++)
        srv_session_put(page[i]);
}
