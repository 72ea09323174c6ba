/* session_change.c: POST /sessions/{id}/fork, /truncate and /prefetch.
 *
 * Bodies are read on a compute thread.  The change itself is made by the engine thread between two
 * batches, in one piece: neither change copies a token, and both take time in proportion to the
 * session's blocks. */

#include "api/endpoints.h"
#include "api/sessions.h"
#include "app.h"
#include "base/clock.h"
#include "basics/mem.h"

struct change {
    struct srv_job job; /* first, so that a job is cast to its change */
    struct srv_change_call call;
};

#define NAMED_FIELDS                                                                            \
    SRV_COUNT_FIELD(srv_change_call, epoch, 1,                                                  \
                    .meaning = "the epoch that the session must have, which is there already"), \
        SRV_COUNT_FIELD(srv_change_call, revision, 1,                                           \
                        .meaning = "the revision that the session must have")

#define FORK_FIELDS                                                                        \
    SRV_TEXT_FIELD(srv_change_call, session_id,                                            \
                   .meaning = "the id of the new session; made by attnd where not given"), \
        SRV_COUNT_FIELD(srv_change_call, length, 0,                                        \
                        .meaning = "tokens of every layer to keep; default all of them"),  \
        NAMED_FIELDS,                                                                      \
        SRV_FLAG_FIELD(srv_change_call, shared, .meaning = "every API key finds the new session")

#define TABLE(list)                                 \
    {                                               \
        .fields = (list), .count = ATTN_COUNT(list) \
    }

static const struct srv_document_field fork_fields[] = {FORK_FIELDS};
const struct srv_document_table srv_fork_fields = TABLE(fork_fields);

static const struct srv_document_field fork_entry_fields[] = {
    SRV_TEXT_FIELD(srv_change_call, from, .required = true, .meaning = "the session to fork"),
    FORK_FIELDS,
};
const struct srv_document_table srv_fork_entry_fields = TABLE(fork_entry_fields);

static const struct srv_document_field truncate_fields[] = {
    SRV_COUNT_FIELD(srv_change_call, length, 0, .required = true,
                    .meaning = "tokens of every layer to keep"),
    NAMED_FIELDS,
};
const struct srv_document_table srv_truncate_fields = TABLE(truncate_fields);

static const struct srv_document_field delete_entry_fields[] = {
    SRV_TEXT_FIELD(srv_change_call, session_id, .required = true, .meaning = "the session to end"),
    NAMED_FIELDS,
};
const struct srv_document_table srv_delete_entry_fields = TABLE(delete_entry_fields);

static const struct srv_job_type change_type;

/* ---- On a compute thread --------------------------------------------------------------------- */

static enum srv_error_code parse_change(struct srv_request *request,
                                        const struct srv_job_stage *stage, struct srv_error *error)
{
    json_t *body = NULL;
    struct change *change =
        srv_job_new(sizeof *change, &change_type, request, &request->app->scheduler_context, error);
    if (change == NULL)
        return error->code;
    change->job.stage = stage;
    change->call = (struct srv_change_call){.from = request->path_arg, .length = SRV_NOT_GIVEN};
    if (srv_session_check_header(request, request->path_arg, error) == SRV_OK &&
        srv_document_read(&body, request, error) == SRV_OK &&
        srv_document_fields(&change->call, request->route->fields, body, error) == SRV_OK &&
        srv_session_keep_id(&change->call.session_id, request, error) == SRV_OK)
        request->job = &change->job;
    json_decref(body);
    return error->code;
}

/* ---- By the engine thread ------------------------------------------------------------------ */

/* Checks that windows hold what the next token of a session of this length sees. */
static enum srv_error_code check_kept(size_t length, const struct srv_session *session,
                                      struct srv_error *error)
{
    size_t lowest = attn_cache_lowest_length(session->cache);
    if (length == 0 || length >= lowest)
        return SRV_OK;
    srv_fail(error, SRV_E_FORGOTTEN, "length",
             "length is %zu, what its next token sees is forgotten, or rotated for longer "
             "sequences: use 0, or %zu and more, or fork before the session grows",
             length, lowest);
    error->lowest = (uint32_t)lowest;
    return error->code;
}

/* Checks the epoch, revision and length of the body, where given, against the session.  One of
 * cross-attention keeps its encoder rows. */
static enum srv_error_code check_call(const struct srv_change_call *call,
                                      const struct srv_session *session, struct srv_error *error)
{
    const bool cross = session->model->is_cross;
    const size_t longest = srv_session_longest(session);
    if (srv_session_check_named(session, call->epoch, call->revision, error) != SRV_OK)
        return error->code;
    if (call->length == SRV_NOT_GIVEN || (cross && call->length == longest))
        return SRV_OK;
    if (!cross && call->length <= longest)
        return check_kept(call->length, session, error);
    if (call->length > longest)
        srv_fail(error, SRV_E_POSITION_GAP, "length", "length is %zu, the longest layer has %zu",
                 call->length, longest);
    else
        srv_fail(error, SRV_E_POSITION_CONFLICT, "length",
                 "length is %zu, a session of cross-attention keeps its %zu encoder rows",
                 call->length, longest);
    error->has_length = true;
    error->length = (uint32_t)longest;
    return error->code;
}

static enum srv_error_code find_session(struct srv_session **out, const struct srv_request *request,
                                        const struct srv_change_call *call, struct srv_error *error)
{
    *out = srv_session_get(request->app->sessions, &request->key, call->from);
    if (*out == NULL || (*out)->pending_creation)
        return srv_session_fail_missing(request->app->sessions, call->from, error);
    return srv_session_check_present(*out, error);
}

/* Copies a session's last steps for a fork with this cache.  A last step that does not end at the
 * end of its layer in that cache cannot be repeated and is left out. */
static enum srv_error_code copy_last_steps(struct srv_last_step **out,
                                           const struct srv_session *session,
                                           const struct attn_cache *cache, struct srv_arena *arena,
                                           struct srv_error *error)
{
    size_t layers = session->model->info.num_layers;
    struct srv_last_step *last = srv_arena_alloc(arena, layers, sizeof *last);
    if (last == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session");
    for (size_t i = 0; i < layers; i++) {
        last[i] = session->last_steps[i];
        if (last[i].position + last[i].rows != attn_cache_length(cache, i))
            last[i] = (struct srv_last_step){0};
    }
    *out = last;
    return SRV_OK;
}

static enum srv_error_code fork_session(struct srv_session **out, struct srv_request *request,
                                        size_t length, const struct srv_session *parent,
                                        struct srv_session_options *options,
                                        struct srv_error *error)
{
    struct attn_error cause = {0};
    struct srv_last_step *last = NULL;
    if (attn_cache_fork(&options->cache, parent->cache, length, &cause) != ATTN_OK)
        return srv_fail_attn(error, &cause);
    if (copy_last_steps(&last, parent, options->cache, &request->arena, error) != SRV_OK) {
        attn_cache_free(options->cache);
        return error->code;
    }
    options->last_steps = last;
    options->store = parent->store + 1;
    size_t ttl_s = parent->ttl_ns / SRV_S_NS,
           most = srv_account_limit(request->key.account, SRV_QUOTA_TTL);
    options->ttl_s = ttl_s < most ? ttl_s : most;
    return srv_session_create(out, request->app->sessions, parent->model, options, error);
}

enum srv_error_code srv_fork_make(struct srv_session **out, bool *replayed,
                                  struct srv_request *request, const struct srv_change_call *call,
                                  struct srv_session_options *options, struct srv_error *error)
{
    struct srv_app *app = request->app;
    struct srv_session *parent = NULL;
    options->id = call->session_id;
    options->shared = call->shared;
    srv_session_set_owner(options, request);
    srv_session_find_by_idempotency_key(out, app->sessions, options, error);
    *replayed = *out != NULL;
    if (error->code != SRV_OK || *replayed)
        return error->code;
    if (find_session(&parent, request, call, error) == SRV_OK &&
        check_call(call, parent, error) == SRV_OK &&
        srv_job_reserve_reply(request, srv_session_text_bytes(parent->model), error) == SRV_OK &&
        fork_session(out, request, call->length, parent, options, error) == SRV_OK) {
        if (srv_store_fork(app->store, *out, parent, call->length, error) == SRV_OK) {
            srv_metrics_session(app->metrics, SRV_SESSION_CREATED, 1);
        } else {
            srv_session_remove(app->sessions, *out);
            srv_session_put(*out);
        }
    }
    srv_session_put(parent);
    return error->code;
}

static const struct srv_job_stage *make_fork(struct srv_job *job)
{
    const struct change *change = (const struct change *)job;
    struct srv_session *session = NULL;
    struct srv_session_options options = {0};
    bool replayed;
    srv_session_set_idempotency_key(&options, job->request);
    if (srv_fork_make(&session, &replayed, job->request, &change->call, &options, &job->error) ==
        SRV_OK)
        srv_session_reply(job->request, 201, session, replayed);
    return NULL;
}

/* The last truncation, sent again, has its reply and changes nothing, whatever has followed. */
static bool repeats_last(const struct srv_change_call *call, const struct srv_session *session)
{
    const struct srv_revision now = srv_session_revision(session);
    return (call->epoch == 0 || call->epoch == session->epoch) &&
           srv_revision_repeats(&now, call->revision, call->length);
}

/* Records the truncation, and makes it. */
static enum srv_error_code cut_session(struct srv_session *session, const struct change *change,
                                       struct srv_error *error)
{
    const struct srv_request *request = change->job.request;
    const struct srv_revision now = srv_session_revision(session);
    struct srv_revision after;
    if (!srv_revision_draw(&after, &now, change->call.length))
        return srv_fail(error, SRV_E_INTERNAL, NULL, "no random numbers for a revision");
    if (srv_store_truncate(request->app->store, session, &after, error) == SRV_OK)
        (void)srv_session_truncate(session, &after); /* check_kept has found it possible */
    return error->code;
}

static const struct srv_job_stage *truncate_session(struct srv_job *job)
{
    const struct change *change = (const struct change *)job;
    struct srv_session *session;
    struct srv_error *error = &job->error;
    find_session(&session, job->request, &change->call, error);
    const bool replayed = error->code == SRV_OK && repeats_last(&change->call, session);
    if (error->code == SRV_OK &&
        (replayed || check_call(&change->call, session, error) == SRV_OK) &&
        srv_job_reserve_reply(job->request, srv_session_text_bytes(session->model), error) ==
            SRV_OK &&
        (replayed || cut_session(session, change, error) == SRV_OK))
        srv_session_reply(job->request, 200, session, replayed);
    else
        srv_session_put(session);
    return NULL;
}

/* The job has waited until the session is in memory. */
static const struct srv_job_stage *reply_present(struct srv_job *job)
{
    const struct srv_change_call call = {.from = job->request->path_arg};
    struct srv_session *session;
    struct srv_error *error = &job->error;
    if (find_session(&session, job->request, &call, error) == SRV_OK &&
        srv_job_reserve_reply(job->request, srv_session_text_bytes(session->model), error) ==
            SRV_OK)
        srv_session_reply(job->request, 200, session, false);
    else
        srv_session_put(session);
    return NULL;
}

/* The session of the path. */
static struct srv_session *needed_session(const struct srv_job *job)
{
    return srv_session_get(job->request->app->sessions, &job->request->key, job->request->path_arg);
}

static const struct srv_job_type change_type = {.needs = needed_session};
static const struct srv_job_stage fork_stage = {SRV_QUEUE_CHANGES, .run = make_fork};
static const struct srv_job_stage truncate_stage = {SRV_QUEUE_CHANGES, .run = truncate_session};
static const struct srv_job_stage prefetch_stage = {SRV_QUEUE_CHANGES, .run = reply_present};

enum srv_error_code srv_parse_fork(struct srv_request *request, struct srv_error *error)
{
    return parse_change(request, &fork_stage, error);
}

enum srv_error_code srv_parse_truncate(struct srv_request *request, struct srv_error *error)
{
    return parse_change(request, &truncate_stage, error);
}

enum srv_error_code srv_parse_prefetch(struct srv_request *request, struct srv_error *error)
{
    struct srv_job *job =
        srv_job_new(sizeof *job, &change_type, request, &request->app->scheduler_context, error);
    if (job == NULL)
        return error->code;
    job->stage = &prefetch_stage;
    if (srv_session_check_header(request, request->path_arg, error) == SRV_OK)
        request->job = job;
    return error->code;
}
