/* item_prepare.c: items on a compute thread: the rows of a body against model and layer, before
 * there is a session. */
#include "base/digest.h"
#include "schedule/steps.h"

enum srv_error_code srv_item_fail_missing(struct srv_item *item)
{
    struct srv_error *error = &item->error;
    if (srv_session_fail_missing(item->job->context->sessions, item->rows->session_id, error) !=
        SRV_E_SESSION_NOT_FOUND)
        return error->code;
    return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id",
                    "there is no session of this id; `start` makes one");
}

/* A step that brings query, key and value has its sizes from these alone: it has no model before it
 * has a session. */
static void check_given_rows(struct srv_item *item)
{
    struct srv_sizes *sizes = &item->sizes;
    if (srv_field_rules_check(item->rows, SRV_FORM_GIVEN_STEP, NULL, &item->error) != SRV_OK ||
        srv_shape_given_rows(sizes, item->rows, &item->error) != SRV_OK)
        return;
    if (sizes->keys != sizes->queries)
        srv_fail(&item->error, SRV_E_SHAPE_MISMATCH, "key",
                 "%zu keys for %zu queries: a session takes a key and a value of each row",
                 sizes->keys, sizes->queries);
    else if (sizes->batch != 1)
        srv_fail(&item->error, SRV_E_SHAPE_MISMATCH, "query",
                 "query holds %zu sequences, a session is one", sizes->batch);
}

/* A session knows its model, so a body that continues a session need not name the model. */
static enum srv_error_code find_model(struct srv_item *item)
{
    const struct srv_scheduler_context *context = item->job->context;
    const char *name = item->job->call.model;
    if (name != NULL || context->models->count < 2 || item->rows->start)
        return srv_models_find(&item->model, context->models, name, &item->error);
    struct srv_session *session =
        srv_session_peek(context->sessions, &item->job->request->key, item->rows->session_id);
    if (session == NULL)
        return srv_item_fail_missing(item);
    if (session->model->weightless == NULL)
        item->model = session->model;
    else /* a model that the session alone keeps */
        srv_fail(&item->error, SRV_E_MODEL_MISMATCH, "hidden_states",
                 "the session is without weights: it takes query, key and value");
    srv_session_put(session);
    return item->error.code;
}

/* Sets the item's model, and the sizes of its step by the model's layer. */
static void check_hidden_states(struct srv_item *item)
{
    const struct srv_tensor *tensor = &item->rows->hidden_states;
    const struct attn_layer_spec *spec = NULL;
    struct srv_sizes *sizes = &item->sizes;
    if (find_model(item) != SRV_OK ||
        srv_job_find_layer(&spec, item->job, item->model, &item->error) != SRV_OK ||
        srv_field_rules_check(item->rows, SRV_FORM_STEP, spec, &item->error) != SRV_OK)
        return;
    *sizes = srv_sizes_of_layer(spec);
    sizes->over_cache = !spec->is_cross;
    if (tensor->rank == 1) { /* one row */
        sizes->queries = 1;
        sizes->one_row = true;
        srv_shape_check(tensor, "hidden_states", &spec->hidden_size, 1, &item->error);
    } else if (srv_shape_rows(&sizes->batch, &sizes->queries, &sizes->batched, tensor,
                              "hidden_states", spec->hidden_size, &item->error) == SRV_OK &&
               sizes->batch != 1) {
        srv_fail(&item->error, SRV_E_SHAPE_MISMATCH, "hidden_states",
                 "hidden_states hold %zu sequences, a session is one", sizes->batch);
    }
}

enum srv_error_code srv_item_prepare(struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    const struct srv_tensor *const tensors[] = {&rows->hidden_states, &rows->query, &rows->key,
                                                &rows->value};
    item->sizes.over_cache = true;
    if (rows->query.present)
        check_given_rows(item);
    else
        check_hidden_states(item);
    if (item->error.code != SRV_OK)
        return item->error.code;
    srv_digest_init(item->digest);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        if (tensors[i]->present)
            srv_digest_add(item->digest, tensors[i]->data, tensors[i]->count * sizeof(float));
    if (rows->position_ids.present)
        srv_digest_add(item->digest, rows->position_ids.data,
                       rows->position_ids.count * sizeof(int64_t));
    return SRV_OK;
}

/* Nobody can know what a session that starts will have. */
enum srv_error_code srv_item_check_start(struct srv_item *item)
{
    if (item->rows->has_epoch)
        return srv_fail(&item->error, SRV_E_EPOCH_MISMATCH, "epoch",
                        "a session that starts has no epoch yet");
    if (item->rows->revision != 0)
        return srv_fail(&item->error, SRV_E_REVISION_MISMATCH, "revision",
                        "a session that starts has no revision yet");
    return SRV_OK;
}

struct srv_session_options srv_item_start_options(const struct srv_item *item)
{
    const struct srv_key *key = &item->job->request->key;
    return (struct srv_session_options){.id = item->rows->session_id,
                                        .idempotency_key = item->job->start_key,
                                        .owner = key->name,
                                        .group = key->group};
}

enum srv_error_code srv_job_prepare_single(struct srv_job *job, struct srv_error *error)
{
    if (srv_job_check_session_header(job, job->call.rows.session_id, error) != SRV_OK ||
        srv_job_alloc_items(job, 1, error) != SRV_OK)
        return error->code;
    struct srv_item *item = &job->items[0];
    item->rows = &job->call.rows;
    job->stage = &srv_steps_stage;
    const struct srv_session_options options = srv_item_start_options(item);
    if (srv_item_prepare(item) == SRV_OK && item->rows->encoder_hidden_states.present &&
        srv_item_check_start(item) == SRV_OK)
        srv_encoding_prepare(job, item->model, &options, &item->error);
    if (item->error.code != SRV_OK) {
        *error = item->error;
        return error->code;
    }
    return srv_job_reserve_reply(job->request, job->request->reply_bytes, error);
}
