/* session_batch.c: POST /sessions/batch: forks and deletes of several sessions.
 *
 * The engine thread makes all of them between two batches: the forks first, in their order, then
 * the deletes.  Each item is what its own route would have done (session_change.c, srv_session_end)
 * and succeeds or fails alone.  The reply's room is reserved before the first of them. */

#include "api/endpoints.h"
#include "api/sessions.h"
#include "app.h"
#include "base/digest.h"

#define ENTRIES_MAX 64  /* of each list */
#define ENTRY_TEXT 2560 /* bytes of a reply's item that is no session: an error's at most */

struct batch_call {
    json_t *fork, *delete;
};

static const struct srv_document_field fields[] = {
    SRV_LIST_FIELD(batch_call, fork, &srv_fork_entry_fields, .item_type = "ForkItem",
                   .most = ENTRIES_MAX, .meaning = "sessions to make, in this order"),
    SRV_LIST_FIELD(batch_call, delete, &srv_delete_entry_fields, .item_type = "DeleteItem",
                   .most = ENTRIES_MAX, .meaning = "sessions to end, once the forks are made"),
};
const struct srv_document_table srv_batch_fields = {.fields = fields, .count = 2};

struct batch {
    struct srv_job job; /* first, so that a job is cast to its batch */
    struct srv_change_call *forks, *deletes;
    size_t num_forks, num_deletes;
};

/* ---- On a compute thread --------------------------------------------------------------------- */

/* Checks an id of an item and moves it to the request's arena; NULL stays. */
static enum srv_error_code keep_id(const char **id, const char *path, const char *name,
                                   struct srv_request *request, struct srv_error *error)
{
    char param[64];
    if (*id == NULL || srv_id_valid(*id))
        return srv_session_keep_id(id, request, error);
    srv_field_path(param, sizeof param, path, name);
    return srv_fail(error, SRV_E_INVALID_VALUE, param,
                    "%s must be a letter or digit and up to %d letters, digits, '_', '.' or '-'",
                    param, SRV_ID_MAX - 1);
}

static enum srv_error_code read_entry(struct srv_change_call *call,
                                      const struct srv_document_field *field, size_t i,
                                      json_t *item, struct srv_request *request,
                                      struct srv_error *error)
{
    char path[32];
    snprintf(path, sizeof path, "%s[%zu]", field->name, i);
    *call = (struct srv_change_call){.length = SRV_NOT_GIVEN};
    if (srv_document_entry(call, field, i, item, error) != SRV_OK ||
        keep_id(&call->from, path, "from", request, error) != SRV_OK)
        return error->code;
    return keep_id(&call->session_id, path, "session_id", request, error);
}

/* The calls that a list holds; NULL, with no items, where the list is NULL. */
static enum srv_error_code read_list(struct srv_change_call **out, size_t *count,
                                     const struct srv_document_field *field, const json_t *list,
                                     struct srv_request *request, struct srv_error *error)
{
    *count = json_array_size(list);
    *out = *count > 0 ? srv_arena_alloc(&request->arena, *count, sizeof **out) : NULL;
    if (*count > 0 && *out == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the request");
    for (size_t i = 0; i < *count; i++)
        if (read_entry(&(*out)[i], field, i, json_array_get(list, i), request, error) != SRV_OK)
            return error->code;
    return SRV_OK;
}

/* X-Session-Id names one of the sessions that the batch is about, for load balancers. */
static enum srv_error_code check_header(const struct batch *batch, struct srv_error *error)
{
    const struct srv_request *request = batch->job.request;
    enum srv_error_code code =
        srv_fail(error, SRV_E_INVALID_VALUE, "fork", "fork and delete have no item");
    for (size_t i = 0; i < batch->num_forks && code != SRV_OK; i++)
        code = srv_session_check_header(request, batch->forks[i].from, error);
    for (size_t i = 0; i < batch->num_deletes && code != SRV_OK; i++)
        code = srv_session_check_header(request, batch->deletes[i].session_id, error);
    if (code == SRV_OK)
        *error = (struct srv_error){0};
    return code;
}

static enum srv_error_code read_batch(struct batch *batch, json_t *document,
                                      struct srv_error *error)
{
    struct batch_call call = {NULL, NULL};
    struct srv_request *request = batch->job.request;
    if (srv_document_fields(&call, request->route->fields, document, error) != SRV_OK ||
        read_list(&batch->forks, &batch->num_forks, &fields[0], call.fork, request, error) !=
            SRV_OK ||
        read_list(&batch->deletes, &batch->num_deletes, &fields[1], call.delete, request, error) !=
            SRV_OK)
        return error->code;
    return check_header(batch, error);
}

/* ---- By the engine thread ------------------------------------------------------------------ */

/* The key of one fork, which a repeated batch finds again: the request's, with the item's place. */
static void set_key(struct srv_session_options *out, char key[SRV_KEY_DIGITS + 1],
                    const struct batch *batch, size_t i)
{
    const struct srv_change_call *call = &batch->forks[i];
    const struct srv_request *request = batch->job.request;
    const char *path = request->route->path, *id = call->session_id != NULL ? call->session_id : "";
    const uint64_t numbers[] = {call->length, call->epoch, call->revision, call->shared};
    char text[SRV_ID_MAX + 24];
    key[0] = '\0';
    out->idempotency_key = key;
    if (request->idempotency_key[0] == '\0')
        return;
    int length = snprintf(text, sizeof text, "%s.%zu", request->idempotency_key, i);
    srv_key_digest_print(key, text, (size_t)length);
    srv_digest_init(out->key_digest);
    srv_digest_add(out->key_digest, path, strlen(path));
    srv_digest_add(out->key_digest, call->from, strlen(call->from));
    srv_digest_add(out->key_digest, id, strlen(id));
    srv_digest_add(out->key_digest, numbers, sizeof numbers);
}

static enum srv_error_code make_fork(struct batch *batch, size_t i, struct srv_error *error)
{
    char key[SRV_KEY_DIGITS + 1];
    struct srv_request *request = batch->job.request;
    struct srv_session_options options = {0};
    struct srv_session *session = NULL;
    bool replayed;
    set_key(&options, key, batch, i);
    if (srv_fork_make(&session, &replayed, request, &batch->forks[i], &options, error) != SRV_OK)
        return error->code;
    srv_session_print(&request->reply.body, session, request, replayed);
    srv_session_put(session);
    return SRV_OK;
}

static enum srv_error_code make_delete(struct batch *batch, size_t i, struct srv_error *error)
{
    const struct srv_change_call *call = &batch->deletes[i];
    struct srv_request *request = batch->job.request;
    struct srv_buffer *out = &request->reply.body;
    struct srv_sessions *sessions = request->app->sessions;
    struct srv_session *session = srv_session_peek(sessions, &request->key, call->session_id);
    if (session == NULL)
        srv_session_fail_missing(sessions, call->session_id, error);
    else if (srv_session_check_named(session, call->epoch, call->revision, error) == SRV_OK &&
             srv_session_end(session, request, error) == SRV_OK) {
        srv_buffer_text(out, "{\"session_id\":");
        srv_buffer_json_string(out, call->session_id);
        srv_buffer_text(out, "}");
    }
    srv_session_put(session);
    return error->code;
}

/* Makes each item of a list, and appends what has become of it. */
static void make_list(struct batch *batch, size_t count,
                      enum srv_error_code (*make)(struct batch *, size_t, struct srv_error *))
{
    struct srv_buffer *out = &batch->job.request->reply.body;
    for (size_t i = 0; i < count; i++) {
        struct srv_error error = {0};
        srv_buffer_text(out, i > 0 ? "," : "");
        if (make(batch, i, &error) == SRV_OK)
            continue;
        srv_buffer_text(out, "{\"error\":");
        srv_error_write(out, &error, NULL);
        srv_buffer_text(out, "}");
    }
}

/* Room for the whole reply, so that what is done is also said. */
static enum srv_error_code reserve_reply(struct batch *batch, struct srv_error *error)
{
    struct srv_request *request = batch->job.request;
    size_t bytes = (batch->num_forks + batch->num_deletes + 1) * ENTRY_TEXT;
    for (size_t i = 0; i < batch->num_forks; i++) {
        struct srv_session *parent =
            srv_session_peek(request->app->sessions, &request->key, batch->forks[i].from);
        bytes += parent != NULL ? srv_session_text_bytes(parent->model) : 0;
        srv_session_put(parent);
    }
    return srv_job_reserve_reply(request, bytes, error);
}

static const struct srv_job_stage *make_batch(struct srv_job *job)
{
    struct batch *batch = (struct batch *)job;
    struct srv_buffer *out = &job->request->reply.body;
    if (reserve_reply(batch, &job->error) != SRV_OK)
        return NULL;
    srv_buffer_text(out, "{\"fork\":[");
    make_list(batch, batch->num_forks, make_fork);
    srv_buffer_text(out, "],\"delete\":[");
    make_list(batch, batch->num_deletes, make_delete);
    srv_buffer_text(out, "]}");
    srv_reply_status(job->request, 200);
    return NULL;
}

/* The first session to be forked that is not read yet, or else one for which others wait. */
static struct srv_session *needed_session(const struct srv_job *job)
{
    const struct batch *batch = (const struct batch *)job;
    struct srv_session *waited = NULL;
    for (size_t i = 0; i < batch->num_forks; i++) {
        struct srv_session *session =
            srv_session_get(job->request->app->sessions, &job->request->key, batch->forks[i].from);
        bool unread = session != NULL && session->presence == SRV_UNREAD;
        bool takes = unread || (waited == NULL && session != NULL && session->parked > 0);
        srv_session_put(takes ? waited : session);
        waited = takes ? session : waited;
        if (unread)
            break;
    }
    return waited;
}

static const struct srv_job_type batch_type = {.needs = needed_session};
static const struct srv_job_stage batch_stage = {SRV_QUEUE_CHANGES, .run = make_batch};

enum srv_error_code srv_parse_batch(struct srv_request *request, struct srv_error *error)
{
    json_t *document = NULL;
    struct batch *batch =
        srv_job_new(sizeof *batch, &batch_type, request, &request->app->scheduler_context, error);
    if (batch == NULL)
        return error->code;
    batch->job.stage = &batch_stage;
    if (srv_document_read(&document, request, error) == SRV_OK &&
        read_batch(batch, document, error) == SRV_OK)
        request->job = &batch->job;
    json_decref(document);
    batch->job.changes = batch->num_forks + batch->num_deletes;
    return error->code;
}
