/* session_state.c: GET and PUT of /sessions/{id}/state: a session as a safetensors file.
 *
 * The file's form is the library's (attn_state.h); a session adds notes to it (session/notes.h).
 *
 * Exports and imports are jobs in pieces.  An export begins by freezing the cache at one moment,
 * and its pieces copy from the frozen cache while steps go on.  An import fills a cache that no
 * table lists, and publishes it as a session when the whole file has been verified. */

#include "api/endpoints.h"
#include "api/sessions.h"
#include "app.h"
#include "basics/mem.h"
#include "session/notes.h"
#include "session/weightless.h"

#define PIECE 262144 /* bytes that are copied or checked at a time: about a millisecond */

struct state_job {
    struct srv_job job;            /* first, so that a job is cast to its state_job */
    const struct srv_model *model; /* held */
    /* Of an export. */
    struct attn_export *export;
    struct attn_cache *frozen;
    char *file; /* in the reply's body */
    /* Of an import. */
    struct attn_import *import;
    struct attn_cache *cache; /* NULL once job.session has it */
    size_t charged_bytes;     /* of its blocks, to the account of the API key; 0 from then on */
};

static const struct srv_job_stage copy_stage, verify_stage;

/* A new job; NULL, with its error, where there is none. */
static struct state_job *new_state_job(struct srv_request *request, const struct srv_job_type *type,
                                       const struct srv_job_stage *stage, struct srv_error *error)
{
    struct state_job *state =
        srv_job_new(sizeof *state, type, request, &request->app->scheduler_context, error);
    if (state == NULL || srv_session_check_header(request, request->path_arg, error) != SRV_OK)
        return NULL;
    state->job.stage = stage;
    return state;
}

/* Charges the request for memory that the library will take. */
static enum srv_error_code charge(struct srv_request *request, size_t bytes,
                                  struct srv_error *error)
{
    return srv_request_charge(request, bytes) ? SRV_OK : srv_fail_in_flight(error);
}

static void end_state(struct srv_job *job)
{
    struct state_job *state = (struct state_job *)job;
    attn_export_close(state->export);
    attn_import_close(state->import);
    attn_cache_free(state->frozen);
    attn_cache_free(state->cache);
    srv_model_put(state->model); /* after its caches */
    srv_account_uncharge(job->request->key.account, SRV_QUOTA_CACHE, state->charged_bytes);
}

/* ---- GET ------------------------------------------------------------------------------------- */

static enum srv_error_code open_export(struct state_job *state, const struct srv_session *session,
                                       struct srv_error *error)
{
    struct attn_error cause = {0};
    struct srv_arena *arena = &state->job.request->arena;
    size_t most = SRV_NOTES + session->model->info.num_layers;
    struct srv_note_text *texts = srv_arena_alloc(arena, most, sizeof *texts);
    struct attn_note *notes = srv_arena_alloc(arena, most, sizeof *notes);
    if (texts == NULL || notes == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the request");
    size_t count = srv_notes_print(texts, session);
    for (size_t i = 0; i < count; i++)
        notes[i] = (struct attn_note){texts[i].name, texts[i].value};
    if (charge(state->job.request, attn_export_memory(session->cache, notes, count), error) !=
        SRV_OK)
        return error->code;
    state->model = session->model;
    (void)srv_model_hold(state->model, 0);
    if (attn_cache_freeze(&state->frozen, session->cache, &cause) != ATTN_OK ||
        attn_export_open(&state->export, state->frozen, notes, count, &cause) != ATTN_OK)
        return srv_fail_attn(error, &cause);
    return SRV_OK;
}

/* Reserves room for the whole file in the reply. */
static enum srv_error_code reserve_file(struct state_job *state, struct srv_error *error)
{
    struct srv_request *request = state->job.request;
    size_t bytes = attn_export_bytes(state->export);
    size_t most = request->limits->max_state_bytes;
    if (bytes > most)
        return srv_fail(error, SRV_E_REPLY_TOO_LARGE, NULL,
                        "the state has %zu bytes, max_state_bytes is %zu", bytes, most);
    if (charge(request, bytes, error) != SRV_OK)
        return error->code;
    request->reply.body.limit = bytes;
    state->file = srv_buffer_reserve(&request->reply.body, bytes);
    return state->file != NULL ? SRV_OK
                               : srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL,
                                          "no memory for a state of %zu bytes", bytes);
}

static const struct srv_job_stage *begin_export(struct srv_job *job)
{
    struct state_job *state = (struct state_job *)job;
    struct srv_session *session;
    if (srv_session_of_path(&session, job->request, &job->error) != SRV_OK)
        return NULL;
    if (session->pending_creation)
        srv_session_fail_missing(job->request->app->sessions, job->request->path_arg, &job->error);
    else if (srv_session_check_present(session, &job->error) == SRV_OK &&
             open_export(state, session, &job->error) == SRV_OK)
        reserve_file(state, &job->error);
    srv_session_put(session);
    return &copy_stage;
}

static const struct srv_job_stage *copy_piece(struct srv_job *job)
{
    struct state_job *state = (struct state_job *)job;
    struct srv_reply *reply = &job->request->reply;
    if (attn_export_run(state->export, state->file, PIECE))
        return &copy_stage;
    reply->body.length = attn_export_bytes(state->export);
    reply->content_type = "application/octet-stream";
    srv_reply_status(job->request, 200);
    return NULL;
}

static struct srv_session *needed_session(const struct srv_job *job)
{
    struct srv_error ignored;
    struct srv_session *session;
    (void)srv_session_of_path(&session, job->request, &ignored);
    return session;
}

static const struct srv_job_type export_type = {.needs = needed_session, .release = end_state};
static const struct srv_job_stage begin_export_stage = {SRV_QUEUE_CHANGES, .run = begin_export};
static const struct srv_job_stage copy_stage = {SRV_QUEUE_PIECES, .run = copy_piece};

enum srv_error_code srv_parse_export(struct srv_request *request, struct srv_error *error)
{
    struct state_job *state = new_state_job(request, &export_type, &begin_export_stage, error);
    if (state != NULL)
        request->job = &state->job;
    return error->code;
}

/* ---- PUT ------------------------------------------------------------------------------------- */

/* Fails with the library's verdict on a file, which is about the client's input. */
static enum srv_error_code fail_state(struct srv_error *error, const struct attn_error *cause)
{
    enum srv_error_code code = srv_fail_attn(error, cause);
    if (cause->status == ATTN_MALFORMED)
        code = SRV_E_MALFORMED_STATE;
    else if (cause->status == ATTN_INVALID)
        code = SRV_E_FINGERPRINT;
    return error->code = code;
}

/* Finds the model that the file names, makes a cache for it, and checks the file against it. */
static enum srv_error_code open_cache(struct state_job *state, struct srv_error *error)
{
    struct attn_error cause = {0};
    struct srv_request *request = state->job.request;
    const char *name = attn_import_note(state->import, "model");
    if (name == NULL)
        return srv_fail(error, SRV_E_MALFORMED_STATE, "model", "the state names no model");
    if (srv_models_get(&state->model, &request->app->models, name, error) != SRV_OK ||
        charge(request, attn_import_memory(state->model->attn), error) != SRV_OK)
        return error->code;
    size_t limit = state->model->max_length, noted = srv_notes_number(state->import, "max_length");
    if (attn_cache_new(&state->cache, state->model->pool, state->model->attn,
                       noted > 0 ? attn_min(noted, limit) : limit, &cause) != ATTN_OK)
        return srv_fail_attn(error, &cause);
    if (attn_import_begin(state->import, state->cache, &cause) != ATTN_OK)
        return fail_state(error, &cause);
    /* All blocks that the cache will have. */
    size_t bytes = attn_import_cache_bytes(state->import);
    if (!srv_account_charge(request->key.account, SRV_QUOTA_CACHE, bytes))
        return srv_account_refuse(request->key.account, SRV_QUOTA_CACHE, error);
    state->charged_bytes = state->job.room = bytes;
    return SRV_OK;
}

/* On a compute thread: makes all checks of the file that come before its checksum. */
static enum srv_error_code open_import(struct state_job *state, struct srv_error *error)
{
    struct attn_error cause = {0};
    struct srv_request *request = state->job.request;
    size_t header = attn_min(request->body_length, ATTN_MAX_STATE_HEADER);
    if (!srv_id_valid(request->path_arg))
        return srv_fail(error, SRV_E_INVALID_VALUE, "session_id",
                        "session_id must be 1 to %d letters, digits, '.', '_' or '-', the first a "
                        "letter or digit",
                        SRV_ID_MAX);
    if (charge(request, 4 * header + ATTN_MAX_STATE_HEADER, error) != SRV_OK)
        return error->code;
    if (attn_import_open(&state->import, request->body_length > 0 ? request->body : "",
                         request->body_length, &cause) != ATTN_OK)
        return fail_state(error, &cause);
    return open_cache(state, error);
}

/* The file has been verified: makes a session of the cache, which is not listed yet. */
static enum srv_error_code make_session(struct state_job *state, struct srv_error *error)
{
    struct srv_request *request = state->job.request;
    struct srv_last_step *last_steps =
        srv_arena_alloc(&request->arena, state->model->info.num_layers, sizeof *last_steps);
    if (last_steps == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session");
    if (srv_job_reserve_reply(request, srv_session_text_bytes(state->model), error) != SRV_OK ||
        srv_notes_last_steps(last_steps, state->import, state->model, state->cache, error) !=
            SRV_OK)
        return error->code;
    struct srv_session_options options = {
        .id = request->path_arg,
        .ttl_s = attn_min(
            srv_notes_number(state->import, "ttl_s"),
            attn_min(srv_account_limit(request->key.account, SRV_QUOTA_TTL), SRV_MAX_TTL_S)),
        .cache = state->cache,
        .charged_bytes = state->charged_bytes,
        .last_steps = last_steps,
    };
    srv_session_set_owner(&options, request);
    state->cache = NULL;
    state->charged_bytes = 0;
    return srv_session_new(&state->job.session, request->app->sessions, state->model, &options,
                           error);
}

/* Refuses an id that is in use, or another instance's, before any work is done. */
static const struct srv_job_stage *begin_import(struct srv_job *job)
{
    struct srv_sessions *sessions = job->request->app->sessions;
    struct srv_session_options options = {.id = job->request->path_arg};
    srv_session_set_owner(&options, job->request);
    if (srv_session_exists(sessions, &options))
        srv_fail(&job->error, SRV_E_SESSION_EXISTS, "session_id", "the session exists");
    else
        srv_session_check_instance(sessions, &options, &job->error);
    return &verify_stage;
}

/* Checks a piece of the file; the last one makes the session, which is then recorded. */
static const struct srv_job_stage *verify_piece(struct srv_job *job)
{
    struct state_job *state = (struct state_job *)job;
    struct attn_error cause = {0};
    bool more = false;
    if (attn_import_run(&more, state->import, PIECE, &cause) != ATTN_OK)
        fail_state(&job->error, &cause);
    else if (!more)
        make_session(state, &job->error);
    return more ? &verify_stage : &srv_record_stage;
}

static const struct srv_job_type import_type = {.release = end_state};
static const struct srv_job_stage begin_import_stage = {SRV_QUEUE_CHANGES, .run = begin_import};
static const struct srv_job_stage verify_stage = {SRV_QUEUE_PIECES, .run = verify_piece};

enum srv_error_code srv_parse_import(struct srv_request *request, struct srv_error *error)
{
    struct state_job *state = new_state_job(request, &import_type, &begin_import_stage, error);
    if (state == NULL)
        return error->code;
    state->job.finish = &srv_reply_made_stage;
    if (open_import(state, error) == SRV_OK)
        request->job = &state->job;
    else
        end_state(&state->job);
    return error->code;
}
