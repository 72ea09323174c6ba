/* encoding.c: from an encoder's rows to a session: checks, computing, recording, entering the
 * table. */
#include "schedule/encoding.h"

#include <string.h>

#include "attn_limits.h"
#include "base/digest.h"
#include "ops/metrics.h"

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

enum srv_error_code srv_encoding_prepare(struct srv_job *job,
                                         const struct srv_scheduler_context *context,
                                         const struct srv_model *model,
                                         const struct srv_session_options *options,
                                         struct srv_error *error)
{
    if (!model->is_cross)
        return srv_fail(error, SRV_E_UNSUPPORTED, "encoder_hidden_states",
                        "model %s is of self-attention, whose sessions have no encoder rows",
                        model->name);
    struct srv_encoding *encoding = srv_arena_alloc(&job->request->arena, 1, sizeof *encoding);
    if (encoding == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the request");
    *encoding = (struct srv_encoding){.context = context, .model = model, .options = *options};
    job->encoding = encoding;
    return read_rows(encoding, job, srv_model_first_layer(model->attn)->key_size, error);
}

/* ---- By the engine owner --------------------------------------------------------------------- */

bool srv_encoding_is_due(const struct srv_job *job)
{
    return job->encoding != NULL && !job->encoding->made;
}

/* Charges the owner for the blocks of all layers. */
static enum srv_error_code charge(struct srv_encoding *encoding, struct srv_error *error)
{
    const uint8_t *padding = encoding->args.padding_mask;
    size_t kept = 0, bytes = 0;
    for (size_t i = 0; i < encoding->args.rows; i++)
        kept += padding == NULL || padding[i] != 0;
    for (size_t i = 0; i < encoding->model->info.num_layers; i++)
        bytes += attn_cache_layer_bytes(encoding->session->cache, i, kept);
    return srv_session_charge(encoding->session, bytes, error);
}

static bool holds_rows(const struct srv_session *session, const struct srv_encoding *encoding)
{
    bool same = session->model == encoding->model;
    for (size_t i = 0; same && i < session->model->info.num_layers; i++)
        same =
            attn_model_layer(session->model->attn, i) == NULL ||
            (session->last_steps[i].rows > 0 &&
             memcmp(session->last_steps[i].digest, encoding->digest, sizeof encoding->digest) == 0);
    return same;
}

/* The caller's own session of that id that was made of the same rows; NULL where there is none.  A
 * start makes the caller's own beside one that another owner shares. */
static struct srv_session *find_same(const struct srv_job *job)
{
    const struct srv_encoding *encoding = job->encoding;
    struct srv_session *session = NULL;
    if (encoding->options.id != NULL)
        session =
            srv_session_get(encoding->context->sessions, &job->request->key, encoding->options.id);
    if (session == NULL ||
        (srv_session_is_own(session, &encoding->options) && holds_rows(session, encoding)))
        return session;
    srv_session_put(session);
    return NULL;
}

/* The session that the same request has made before: by its key, or, of a start, by its id with the
 * same rows.  NULL where there is none, and with an error. */
static struct srv_session *find_made(struct srv_job *job)
{
    const struct srv_encoding *encoding = job->encoding;
    struct srv_session *session;
    enum srv_error_code code = srv_session_find_by_idempotency_key(
        &session, encoding->context->sessions, &encoding->options, &job->error);
    if (session != NULL && !holds_rows(session, encoding)) {
        srv_session_put(session);
        session = NULL;
        code = srv_fail(&job->error, SRV_E_IDEMPOTENCY, "encoder_hidden_states",
                        "the request was sent before with other encoder rows");
    }
    bool starts = job->num_items > 0;
    return session == NULL && code == SRV_OK && starts ? find_same(job) : session;
}

void srv_encoding_begin(struct srv_job *job)
{
    struct srv_encoding *encoding = job->encoding;
    encoding->session = find_made(job);
    encoding->made = encoding->replayed = encoding->session != NULL;
    if (job->error.code == SRV_OK && !encoding->made &&
        srv_session_prepare(&encoding->session, encoding->context->sessions, encoding->model,
                            &encoding->options, &job->error) == SRV_OK)
        charge(encoding, &job->error);
}

/* The last step of each layer is the encoder's rows, by which a repeated start is recognised. */
static void remember(const struct srv_encoding *encoding)
{
    struct srv_session *session = encoding->session;
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        struct srv_last_step *last = &session->last_steps[i];
        last->rows = attn_cache_length(session->cache, i);
        memcpy(last->digest, encoding->digest, sizeof last->digest);
    }
}

void srv_encoding_compute(struct srv_job *job)
{
    struct srv_encoding *encoding = job->encoding;
    struct attn_error cause;
    encoding->args.yield = job->yield;
    if (attn_cache_encode(encoding->session->cache, encoding->context->engine, &encoding->args,
                          &cause) == ATTN_OK)
        remember(encoding);
    else
        srv_fail_attn(&job->error, &cause);
}

/* Where the same request, sent twice, has made the session meanwhile, that one is taken. */
static void take_same(struct srv_job *job)
{
    struct srv_encoding *encoding = job->encoding;
    const struct srv_error refusal = job->error;
    job->error = (struct srv_error){.code = SRV_OK};
    struct srv_session *same = find_made(job);
    if (same == NULL) {
        job->error = refusal;
        return;
    }
    srv_store_import_abandon(encoding->context->store, &encoding->recorded, encoding->session);
    srv_session_put(encoding->session);
    encoding->session = same;
    encoding->made = encoding->replayed = true;
}

/* Lists the session and ends its record in the journal, without which it is removed again. */
static void publish(struct srv_job *job)
{
    struct srv_encoding *encoding = job->encoding;
    struct srv_sessions *sessions = encoding->context->sessions;
    if (srv_session_insert(sessions, encoding->session, &job->error) != SRV_OK)
        take_same(job);
    else if (srv_store_import_end(encoding->context->store, &encoding->recorded, encoding->session,
                                  &job->error) == SRV_OK)
        encoding->made = true;
    else
        srv_session_remove(sessions, encoding->session);
}

bool srv_encoding_advance(struct srv_job *job)
{
    struct srv_encoding *encoding = job->encoding;
    bool more = false;
    if (srv_store_import_piece(&more, encoding->context->store, &encoding->recorded,
                               encoding->session, &job->error) != SRV_OK)
        return false;
    if (!more)
        publish(job);
    return more;
}

void srv_encoding_abandon(struct srv_job *job)
{
    struct srv_encoding *encoding = job->encoding;
    if (encoding == NULL)
        return;
    if (!encoding->made && encoding->session != NULL)
        srv_store_import_abandon(encoding->context->store, &encoding->recorded, encoding->session);
    srv_session_put(encoding->session);
    encoding->session = NULL;
}

/* ---- Estimates ------------------------------------------------------------------------------- */

size_t srv_encoding_work(const struct srv_encoding *encoding)
{
    const struct attn_layer_spec *spec = srv_model_first_layer(encoding->model->attn);
    size_t width = spec->num_kv_heads * (spec->head_dim + spec->value_head_dim);
    return encoding->model->info.num_resident * encoding->args.rows * spec->key_size * width;
}

size_t srv_encoding_bytes(const struct srv_encoding *encoding, unsigned threads)
{
    const struct attn_call_size size = {.rows = ATTN_ENCODE_ROWS, .tokens = ATTN_ENCODE_ROWS};
    return attn_call_bytes(encoding->model->attn, &size, threads);
}
