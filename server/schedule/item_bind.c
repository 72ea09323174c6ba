/* item_bind.c: items by the engine thread: their place in a session, and their end there. */
#include "base/clock.h"
#include "ops/metrics.h"
#include "schedule/steps.h"
#include "session/weightless.h"

/* ---- Binding to a session -------------------------------------------------------------------- */

/* Checks that the session takes rows of query, key and value of the item's sizes; its model is then
 * the item's. */
static void check_given_rows(struct srv_item *item)
{
    const struct srv_model *model = item->session->model;
    const struct srv_sizes *s = &item->sizes;
    const struct attn_layer_spec *spec = attn_model_layer(model->attn, item->layer);
    if (model->weightless == NULL)
        srv_fail(&item->error, SRV_E_MODEL_MISMATCH, "query",
                 "the session belongs to model %s, which takes hidden_states", model->name);
    else if (spec == NULL)
        srv_fail(&item->error, SRV_E_LAYER_NOT_FOUND, "layer",
                 "the session has no layer %zu (of %zu)", item->layer, model->info.num_layers);
    else if (s->num_heads != spec->num_heads || s->num_kv_heads != spec->num_kv_heads ||
             s->head_dim != spec->head_dim || s->value_head_dim != spec->value_head_dim)
        srv_fail(&item->error, SRV_E_SHAPE_MISMATCH, "query",
                 "%zu query and %zu key heads of width %zu, and %zu of values, are not the "
                 "session's %zu, %zu, %zu and %zu",
                 s->num_heads, s->num_kv_heads, s->head_dim, s->value_head_dim, spec->num_heads,
                 spec->num_kv_heads, spec->head_dim, spec->value_head_dim);
    else
        item->model = model;
}

/* Checks that the item's session is the one that the body means. */
static void check_session(struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    const struct srv_session *session = item->session;
    if ((session->presence == SRV_UNREAD || /* it has left memory: the item waits when it runs */
         srv_session_check_present(session, &item->error) == SRV_OK) &&
        rows->query.present)
        check_given_rows(item);
    if (item->error.code != SRV_OK)
        return;
    if (session->model != item->model)
        srv_fail(&item->error, SRV_E_MODEL_MISMATCH, "model",
                 "the session belongs to model %s, not to %s", session->model->name,
                 item->model->name);
    else if (rows->has_epoch && (uint64_t)rows->epoch != session->epoch)
        srv_fail(&item->error, SRV_E_EPOCH_MISMATCH, "epoch",
                 "epoch is %lld, the session's is %llu", (long long)rows->epoch,
                 (unsigned long long)session->epoch);
}

/* The model without weights that has the shape of the item's rows, or NULL with item->error set;
 * the caller's to put. */
static const struct srv_model *get_weightless(struct srv_item *item)
{
    const struct attn_weightless_options shape = {.num_heads = item->sizes.num_heads,
                                                  .num_kv_heads = item->sizes.num_kv_heads,
                                                  .head_dim = item->sizes.head_dim,
                                                  .value_head_dim = item->sizes.value_head_dim};
    const struct srv_model *model = NULL;
    if (item->layer > 0)
        srv_fail(&item->error, SRV_E_LAYER_NOT_FOUND, "layer",
                 "a session without weights that a step starts has layer 0 alone: POST /sessions "
                 "takes num_hidden_layers");
    else
        srv_weightless_get(&model, item->job->context->models->weightless, &shape, &item->error);
    return model;
}

/* Makes the session that the item starts, or finds the one of its key. */
static void create_session(struct srv_item *item)
{
    struct srv_sessions *sessions = item->job->context->sessions;
    const struct srv_session_options options = srv_item_start_options(item);
    if (srv_item_check_start(item) == SRV_OK && item->model != NULL && item->model->is_cross)
        srv_fail(&item->error, SRV_E_UNSUPPORTED, "encoder_hidden_states",
                 "a session of cross-attention starts with encoder_hidden_states");
    if (item->error.code != SRV_OK ||
        srv_session_find_by_idempotency_key(&item->session, sessions, &options, &item->error) !=
            SRV_OK ||
        item->session != NULL)
        return;
    const struct srv_model *model = item->model != NULL ? item->model : get_weightless(item);
    item->creates_session =
        item->error.code == SRV_OK &&
        srv_session_create(&item->session, sessions, model, &options, &item->error) == SRV_OK;
    if (item->model == NULL)
        srv_model_put(model); /* the session holds it */
}

/* Finds the session that the item is a step over. */
static void find_session(struct srv_item *item)
{
    struct srv_job *job = item->job;
    if (job->session != NULL) { /* an encoding has made it */
        item->session = job->session;
        job->session = NULL;
        item->is_replay = job->replayed;
        item->creates_session = !job->replayed;
    } else if (item->rows->start) {
        create_session(item);
    } else {
        item->session =
            srv_session_get(job->context->sessions, &job->request->key, item->rows->session_id);
        if (item->session == NULL)
            srv_item_fail_missing(item);
    }
}

/* Whether two neighbours among a session's items are of one request.  A request counts once among
 * those that wait for a session, for all its items are bound together. */
static bool same_request(const struct srv_item *item, const struct srv_item *neighbour)
{
    return item != NULL && neighbour != NULL && item->job == neighbour->job;
}

bool srv_item_bind(struct srv_item *item)
{
    size_t limit = item->job->context->limits->max_session_waiting + 1; /* with the one that runs */
    find_session(item);
    if (item->error.code == SRV_OK)
        check_session(item);
    if (item->error.code != SRV_OK)
        return false;
    struct srv_session *session = item->session;
    if (!same_request(item, session->last_item)) {
        if (atomic_load(&session->waiting) >= limit) {
            srv_fail(&item->error, SRV_E_SESSION_BUSY, "session_id",
                     "%zu requests wait for this session already", limit);
            return false;
        }
        atomic_fetch_add(&session->waiting, 1);
    }
    session->pending_creation = session->pending_creation || item->creates_session;
    item->is_first = session->last_item == NULL;
    if (!item->is_first)
        session->last_item->next_of_session = item;
    session->last_item = item;
    return true;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Removes an item from its session's list; `before` is the item before it, NULL if it is first. */
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

struct srv_item *srv_item_end(struct srv_item *item)
{
    const struct srv_scheduler_context *context = item->job->context;
    struct srv_session *session = item->session;
    struct srv_error ignored;
    if (item->creates_session && item->error.code == SRV_OK) {
        session->pending_creation = false;
        srv_metrics_session(context->metrics, SRV_SESSION_CREATED, 1);
    } else if (item->creates_session) {
        if (item->job->encoding != NULL && /* whose session is on record already */
            srv_store_delete(context->store, session, &ignored) != SRV_OK)
            srv_store_expire(context->store, session);
        srv_session_remove(context->sessions, session);
    }
    leave_session(item, NULL);
    return item->next_of_session;
}

/* The item that ends creates no session: only the first item of a session does. */
void srv_item_end_next(struct srv_item *item) { leave_session(item->next_of_session, item); }
