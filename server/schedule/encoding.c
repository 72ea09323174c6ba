/* encoding.c: from an encoder's rows to a session: checks, computing, recording, entering the
 * table. */

#include "base/digest.h"
#include "schedule/job.h"

struct srv_encoding {
    struct srv_session_options options;
    struct attn_encode_args args;
    uint64_t digest[2]; /* of the rows and their mask, which the session's last steps have too */
    size_t room;        /* bytes of the pool that the session takes */
    unsigned retries;   /* of the computation */
};

#define MOST_RETRIES 8 /* of a computation that found no room: another thread had taken it */

static const struct srv_job_stage begin_stage, compute_stage;

/* ---- On a compute thread --------------------------------------------------------------------- */

static enum srv_error_code read_rows(struct srv_encoding *encoding, const struct srv_job *job,
                                     size_t width, struct srv_error *error)
{
    const struct srv_rows *rows = &job->call.rows;
    const struct srv_tensor *tensor = &rows->encoder_hidden_states;
    const size_t most = job->request->limits->max_tokens;
    size_t batch, tokens;
    bool batched;
    if (srv_shape_rows(&batch, &tokens, &batched, tensor, "encoder_hidden_states", width, error) !=
        SRV_OK)
        return error->code;
    if (batch != 1)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, "encoder_hidden_states",
                        "encoder_hidden_states hold %zu sequences, a session is one", batch);
    if (tokens > most)
        return srv_fail(error, SRV_E_TOO_MANY_TOKENS, "encoder_hidden_states",
                        "%zu encoder rows, max_tokens is %zu", tokens, most);
    encoding->args =
        (struct attn_encode_args){.rows = tokens, .encoder_hidden_states = tensor->f32};
    srv_digest_init(encoding->digest);
    srv_digest_add(encoding->digest, tensor->data, tensor->count * sizeof(float));
    if (!rows->encoder_padding_mask.present)
        return SRV_OK;
    srv_digest_add(encoding->digest, rows->encoder_padding_mask.data,
                   rows->encoder_padding_mask.count);
    const size_t shape[] = {1, tokens};
    const unsigned rank = rows->encoder_padding_mask.rank == 2 ? 2 : 1;
    encoding->args.padding_mask = rows->encoder_padding_mask.u8;
    return srv_shape_check(&rows->encoder_padding_mask, "encoder_padding_mask", shape + 2 - rank,
                           rank, error);
}

enum srv_error_code srv_encoding_prepare(struct srv_job *job, const struct srv_model *model,
                                         const struct srv_session_options *options,
                                         struct srv_error *error)
{
    if (!model->is_cross)
        return srv_fail(error, SRV_E_UNSUPPORTED, "encoder_hidden_states",
                        "model %s is of self-attention, whose sessions have no encoder rows",
                        model->name);
    const struct attn_layer_spec *spec = srv_model_first_layer(model->attn);
    struct srv_encoding *encoding = srv_arena_alloc(&job->request->arena, 1, sizeof *encoding);
    if (encoding == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the request");
    *encoding = (struct srv_encoding){.options = *options};
    if (read_rows(encoding, job, spec->key_size, error) != SRV_OK)
        return error->code;
    job->encoding = encoding;
    job->stage = &begin_stage;
    job->model = model;
    job->rows = encoding->args.rows;
    job->work = model->info.num_resident * job->rows * spec->key_size * spec->num_kv_heads *
                (spec->head_dim + spec->value_head_dim);
    job->size = (struct attn_call_size){.rows = ATTN_ENCODE_ROWS, .tokens = ATTN_ENCODE_ROWS};
    return SRV_OK;
}

/* ---- By the engine thread ------------------------------------------------------------------ */

/* Whether the session was made of the encoding's rows. */
static bool is_of_rows(const struct srv_session *session, const struct srv_job *job)
{
    const uint64_t *digest = job->encoding->digest;
    bool same = session->model == job->model;
    for (size_t i = 0; same && i < session->model->info.num_layers; i++) {
        const struct srv_last_step *last = &session->last_steps[i];
        same = attn_model_layer(session->model->attn, i) == NULL ||
               (last->rows > 0 && memcmp(last->digest, digest, sizeof last->digest) == 0);
    }
    return same;
}

/* Whether the same request has made its session before: by its key, or, of a start, by its id with
 * the same rows.  That is the job's then.  False also with an error.  Beside a session that another
 * owner shares, a start makes the caller's own. */
static bool find_made(struct srv_job *job, struct srv_error *error)
{
    const struct srv_session_options *options = &job->encoding->options;
    struct srv_sessions *sessions = job->context->sessions;
    struct srv_session *session;
    if (srv_session_find_by_idempotency_key(&session, sessions, options, error) != SRV_OK)
        return false;
    if (session != NULL && !is_of_rows(session, job))
        srv_fail(error, SRV_E_IDEMPOTENCY, "encoder_hidden_states",
                 "the request was sent before with other encoder rows");
    if (session == NULL && job->num_items > 0 && options->id != NULL)
        session = srv_session_get(sessions, &job->request->key, options->id);
    if (session == NULL || !is_of_rows(session, job) || !srv_session_is_own(session, options)) {
        srv_session_put(session);
        return false;
    }
    job->session = session;
    return job->replayed = true;
}

/* The stage that follows when the session is in the table. */
static const struct srv_job_stage *after_session(const struct srv_job *job)
{
    return job->num_items > 0 ? &srv_steps_stage : job->finish;
}

/* Makes the session, and charges its owner for the blocks of all layers. */
static const struct srv_job_stage *begin(struct srv_job *job)
{
    const struct attn_encode_args *args = &job->encoding->args;
    size_t kept = 0, bytes = 0;
    if (find_made(job, &job->error))
        return after_session(job);
    if (job->error.code != SRV_OK ||
        srv_session_prepare(&job->session, job->context->sessions, job->model,
                            &job->encoding->options, &job->error) != SRV_OK)
        return NULL;
    for (size_t i = 0; i < args->rows; i++)
        kept += args->padding_mask == NULL || args->padding_mask[i] != 0;
    for (size_t i = 0; i < job->model->info.num_layers; i++)
        bytes += attn_cache_layer_bytes(job->session->cache, i, kept);
    srv_session_charge(job->session, bytes, &job->error);
    job->room = job->encoding->room = bytes;
    return &compute_stage;
}

/* Projects the rows, which become the last step of each layer: by that a repeated start is
 * recognised. */
static const struct srv_job_stage *compute(struct srv_job *job)
{
    struct srv_encoding *encoding = job->encoding;
    struct srv_session *session = job->session;
    struct attn_error cause;
    encoding->args.yield = job->yield;
    const enum attn_status status =
        attn_cache_encode(session->cache, job->context->engine, &encoding->args, &cause);
    if (status == ATTN_POOL_FULL && encoding->retries++ < MOST_RETRIES) {
        job->room = encoding->room;
        return &compute_stage;
    }
    if (status != ATTN_OK)
        srv_fail_attn(&job->error, &cause);
    for (size_t i = 0; i < session->model->info.num_layers && job->error.code == SRV_OK; i++) {
        struct srv_last_step *last = &session->last_steps[i];
        last->rows = attn_cache_length(session->cache, i);
        memcpy(last->digest, encoding->digest, sizeof last->digest);
    }
    return &srv_record_stage;
}

static const struct srv_job_stage begin_stage = {SRV_QUEUE_CHANGES, .at_once = true, .run = begin};
static const struct srv_job_stage compute_stage = {SRV_QUEUE_ATTENDS, .run = compute};

/* ---- Recording ------------------------------------------------------------------------------- */

/* Lists the session and ends its record in the journal, without which it is removed again.  Where
 * the same request, sent twice, has made one meanwhile, that is the job's. */
static void list_session(struct srv_job *job)
{
    struct srv_sessions *sessions = job->context->sessions;
    struct srv_store *store = job->context->store;
    struct srv_session *made = job->session;
    struct srv_error ignored = {.code = SRV_OK};
    if (srv_session_insert(sessions, made, &job->error) == SRV_OK) {
        if (srv_store_import_end(store, &job->recorded, made, &job->error) != SRV_OK)
            srv_session_remove(sessions, made);
    } else if (job->encoding != NULL && find_made(job, &ignored)) {
        job->error.code = SRV_OK;
        srv_store_import_abandon(store, &job->recorded, made);
        srv_session_put(made);
    }
}

static const struct srv_job_stage *record(struct srv_job *job)
{
    bool more = false;
    if (srv_store_import_piece(&more, job->context->store, &job->recorded, job->session,
                               &job->error) == SRV_OK &&
        !more)
        list_session(job);
    return more ? &srv_record_stage : after_session(job);
}

const struct srv_job_stage srv_record_stage = {SRV_QUEUE_PIECES, .run = record};
