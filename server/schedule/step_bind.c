/* step_bind.c: items, from the rows of a body to their place in a session, and their end there. */
#include "schedule/steps.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "ops/metrics.h"
#include "schedule/encoding.h"
#include "schedule/given_steps.h"
#include "session/model_stats.h"
#include "session/weightless.h"
#include "store/store.h"
#include "wire/field_rules.h"
#include "wire/outputs.h"

enum srv_error_code srv_item_fail_missing(const struct srv_item *item, struct srv_error *error)
{
    if (srv_session_fail_missing(item->job->context->sessions, item->rows->session_id, error) !=
        SRV_E_SESSION_NOT_FOUND)
        return error->code;
    return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id",
                    "there is no session of this id; `start` makes one");
}

/* ---- On a compute thread --------------------------------------------------------------------- */

static enum srv_error_code check_item(struct srv_item *item, const struct attn_layer_spec *spec,
                                      struct srv_error *error)
{
    const struct srv_tensor *tensor = &item->rows->hidden_states;
    struct srv_sizes *sizes = &item->sizes;
    if (tensor->rank == 1) { /* one row */
        sizes->queries = 1;
        sizes->one_row = true;
        return srv_shape_check(tensor, "hidden_states", &spec->hidden_size, 1, error);
    }
    enum srv_error_code code = srv_shape_rows(&sizes->batch, &sizes->queries, &sizes->batched,
                                              tensor, "hidden_states", spec->hidden_size, error);
    if (code != SRV_OK)
        return code;
    if (sizes->batch != 1)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, "hidden_states",
                        "hidden_states hold %zu sequences, a session is one", sizes->batch);
    return SRV_OK;
}

static void add_tensor(uint64_t digest[2], const struct srv_tensor *tensor)
{
    if (tensor->present)
        srv_digest_add(digest, tensor->data, tensor->count * sizeof(float));
}

static void take_digest(struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    srv_digest_init(item->digest);
    add_tensor(item->digest, &rows->hidden_states);
    add_tensor(item->digest, &rows->query);
    add_tensor(item->digest, &rows->key);
    add_tensor(item->digest, &rows->value);
    if (rows->position_ids.present)
        srv_digest_add(item->digest, rows->position_ids.data,
                       rows->position_ids.count * sizeof(int64_t));
}

/* A session knows its model, so a body that continues a session need not name the model. */
static enum srv_error_code find_model(struct srv_item *item, struct srv_error *error)
{
    const struct srv_scheduler_context *context = item->job->context;
    if (item->job->call.model != NULL || context->models->count < 2 || item->rows->start)
        return srv_job_find_model(&item->model, item->job, error);
    struct srv_session *session =
        srv_session_peek(context->sessions, &item->job->request->key, item->rows->session_id);
    if (session == NULL)
        return srv_item_fail_missing(item, error);
    bool weightless = session->model->weightless != NULL;
    item->model = session->model;
    srv_session_put(session);
    if (!weightless)
        return SRV_OK;
    item->model = NULL; /* which the session alone keeps */
    return srv_fail(error, SRV_E_MODEL_MISMATCH, "hidden_states",
                    "the session is without weights: it takes query, key and value");
}

enum srv_error_code srv_item_prepare(struct srv_item *item, struct srv_error *error)
{
    const struct srv_job *job = item->job;
    const struct srv_rows *rows = item->rows;
    const struct attn_layer_spec *spec = NULL;
    enum srv_error_code code = SRV_OK;
    item->sizes.over_cache = true;
    if (rows->query.present) {
        code = srv_given_item_check(item, error);
        take_digest(item);
        return code;
    }
    code = find_model(item, error);
    if (code == SRV_OK)
        code = srv_job_find_layer(&spec, job, item->model, error);
    if (code == SRV_OK)
        code = srv_field_rules_check(rows, SRV_FORM_STEP, spec, error);
    if (code != SRV_OK)
        return code;
    item->sizes = srv_sizes_of_layer(spec);
    item->sizes.over_cache = !spec->is_cross;
    code = check_item(item, spec, error);
    if (code == SRV_OK)
        take_digest(item);
    return code;
}

/* Nobody can know what a session that starts will have. */
static enum srv_error_code check_start(const struct srv_rows *rows, struct srv_error *error)
{
    if (rows->has_epoch)
        return srv_fail(error, SRV_E_EPOCH_MISMATCH, "epoch",
                        "a session that starts has no epoch yet");
    if (rows->revision != 0)
        return srv_fail(error, SRV_E_REVISION_MISMATCH, "revision",
                        "a session that starts has no revision yet");
    return SRV_OK;
}

static struct srv_session_options start_options(const struct srv_item *item)
{
    const struct srv_key *key = &item->job->request->key;
    return (struct srv_session_options){.id = item->rows->session_id,
                                        .idempotency_key = item->job->start_key,
                                        .owner = key->name,
                                        .group = key->group};
}

static enum srv_error_code prepare_encoding(const struct srv_item *item, struct srv_error *error)
{
    const struct srv_session_options options = start_options(item);
    if (check_start(item->rows, error) != SRV_OK)
        return error->code;
    return srv_encoding_prepare(item->job, item->job->context, item->model, &options, error);
}

enum srv_error_code srv_job_prepare_single(struct srv_job *job, struct srv_error *error)
{
    enum srv_error_code code = srv_job_check_session_header(job, job->call.rows.session_id, error);
    if (code == SRV_OK)
        code = srv_job_alloc_items(job, 1, error);
    if (code != SRV_OK)
        return code;
    job->items[0].rows = &job->call.rows;
    code = srv_item_prepare(&job->items[0], error);
    if (code == SRV_OK && job->call.rows.encoder_hidden_states.present)
        code = prepare_encoding(&job->items[0], error);
    return code == SRV_OK ? srv_job_reserve_reply(job, error) : code;
}

/* ---- Binding to a session -------------------------------------------------------------------- */

/* Whether the item's session is the one that the body means. */
static bool check_session(struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    if (srv_session_check_present(item->session, &item->error) != SRV_OK ||
        (rows->query.present && !srv_given_item_bind(item)))
        return false;
    if (item->session->model != item->model)
        srv_fail(&item->error, SRV_E_MODEL_MISMATCH, "model",
                 "the session belongs to model %s, not to %s", item->session->model->name,
                 item->model->name);
    else if (rows->has_epoch && (uint64_t)rows->epoch != item->session->epoch)
        srv_fail(&item->error, SRV_E_EPOCH_MISMATCH, "epoch",
                 "epoch is %lld, the session's is %llu", (long long)rows->epoch,
                 (unsigned long long)item->session->epoch);
    return item->error.code == SRV_OK;
}

/* Makes the item's session; one without weights has the shape of the rows. */
static bool make_session(struct srv_item *item, const struct srv_session_options *options)
{
    const struct srv_scheduler_context *context = item->job->context;
    const struct srv_model *model = item->model;
    const struct attn_weightless_options shape = {.num_heads = item->sizes.num_heads,
                                                  .num_kv_heads = item->sizes.num_kv_heads,
                                                  .head_dim = item->sizes.head_dim,
                                                  .value_head_dim = item->sizes.value_head_dim};
    if (model == NULL && item->job->call.layer > 0)
        srv_fail(&item->error, SRV_E_LAYER_NOT_FOUND, "layer",
                 "a session without weights that a step starts has layer 0 alone: POST /sessions "
                 "takes num_hidden_layers");
    else if (model == NULL)
        srv_weightless_take(&model, context->models->weightless, &shape, &item->error);
    if (item->error.code != SRV_OK)
        return false;
    srv_session_create(&item->session, context->sessions, model, options, &item->error);
    if (item->model == NULL)
        srv_model_put(model); /* the session holds it */
    if (item->session != NULL)
        item->model = model;
    return item->session != NULL;
}

static bool create_session(struct srv_item *item)
{
    struct srv_sessions *sessions = item->job->context->sessions;
    const struct srv_session_options options = start_options(item);
    if (check_start(item->rows, &item->error) != SRV_OK)
        return false;
    if (item->model != NULL && item->model->is_cross) {
        srv_fail(&item->error, SRV_E_UNSUPPORTED, "encoder_hidden_states",
                 "a session of cross-attention starts with encoder_hidden_states");
        return false;
    }
    if (srv_session_find_by_idempotency_key(&item->session, sessions, &options, &item->error) !=
        SRV_OK)
        return false;
    if (item->session != NULL)
        return check_session(item);
    if (!make_session(item, &options))
        return false;
    item->creates_session = item->session->pending_creation = true;
    return true;
}

/* Takes over the session that the request's encoder rows have made. */
static bool take_encoded(struct srv_item *item)
{
    struct srv_encoding *encoding = item->job->encoding;
    item->session = encoding->session;
    encoding->session = NULL;
    item->is_replay = encoding->replayed;
    if (!encoding->replayed)
        item->creates_session = item->session->pending_creation = true;
    return check_session(item);
}

static bool find_session(struct srv_item *item)
{
    item->session = srv_session_get(item->job->context->sessions, &item->job->request->key,
                                    item->rows->session_id);
    if (item->session != NULL)
        return check_session(item);
    srv_item_fail_missing(item, &item->error);
    return false;
}

/* Whether two neighbours among a session's items are of one request.  A request counts once among
 * those that wait for a session, for all its items are bound together. */
static bool same_request(const struct srv_item *item, const struct srv_item *neighbour)
{
    return item != NULL && neighbour != NULL && item->job == neighbour->job;
}

/* Takes an item out of its session's list; `before` is the item before it, NULL if it is first. */
static void leave_session(struct srv_item *item, struct srv_item *before)
{
    struct srv_session *session = item->session;
    session->used_ns = srv_now_ns();
    if (!same_request(item, item->next_of_session) && !same_request(item, before))
        atomic_fetch_sub(&session->waiting, 1);
    item->job->pending--;
    if (before != NULL)
        before->next_of_session = item->next_of_session;
    if (session->last_item == item)
        session->last_item = before;
}

/* Counts the item's request as waiting for the session, unless the session's newest item is of the
 * same request. */
static bool join_waiting(struct srv_item *item)
{
    struct srv_session *session = item->session;
    size_t limit = item->job->context->limits->max_session_waiting + 1; /* with the one that runs */
    if (same_request(item, session->last_item))
        return true;
    if (atomic_load(&session->waiting) >= limit) {
        srv_fail(&item->error, SRV_E_SESSION_BUSY, "session_id",
                 "%zu requests wait for this session already", limit);
        return false;
    }
    atomic_fetch_add(&session->waiting, 1);
    return true;
}

bool srv_item_bind(struct srv_item *item)
{
    bool found = item->job->encoding != NULL ? take_encoded(item)
                 : item->rows->start         ? create_session(item)
                                             : find_session(item);
    if (!found || !join_waiting(item))
        return false;
    struct srv_session *session = item->session;
    item->is_first = session->last_item == NULL;
    if (!item->is_first)
        session->last_item->next_of_session = item;
    session->last_item = item;
    return true;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Removes the session that the item has made.  One of encoder rows is on record already. */
static void undo_creation(const struct srv_item *item)
{
    const struct srv_scheduler_context *context = item->job->context;
    struct srv_error error;
    if (item->job->encoding != NULL &&
        srv_store_delete(context->store, item->session, &error) != SRV_OK)
        srv_store_expire(context->store, item->session);
    srv_session_remove(context->sessions, item->session);
}

struct srv_item *srv_item_end(struct srv_item *item)
{
    const struct srv_scheduler_context *context = item->job->context;
    struct srv_session *session = item->session;
    bool failed = item->error.code != SRV_OK;
    if (failed && item->creates_session)
        undo_creation(item);
    if (!failed && item->creates_session) {
        session->pending_creation = false;
        srv_metrics_session(context->metrics, SRV_SESSION_CREATED, 1);
    }
    leave_session(item, NULL);
    return item->next_of_session;
}

/* The item that ends creates no session: only the first item of a session does. */
void srv_item_end_next(struct srv_item *item) { leave_session(item->next_of_session, item); }
