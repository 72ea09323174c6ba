/* steps.c: steps over sessions: positions, retries, publishing.
 *
 * A caller that never saw the reply to a step repeats its request.  So each session remembers, for
 * each layer, the last step that it published.  A step at that position with the same rows is
 * computed again over the cached rows, which gives the same bits, and appends nothing.  Other rows
 * at that position are a conflict.  A step of cross-attention appends nothing and may be repeated
 * at any time; its position is what the caller says. */
#include "schedule/steps.h"

#include "base/clock.h"
#include "ops/metrics.h"
#include "wire/outputs.h"

/* ---- Running --------------------------------------------------------------------------------- */

static struct srv_last_step *last_step(const struct srv_item *item)
{
    return &item->session->last_steps[item->layer];
}

static bool repeats_last(const struct srv_item *item, size_t position, size_t length)
{
    const struct srv_last_step *last = last_step(item);
    return last->rows == item->sizes.queries && last->position == position &&
           position + last->rows == length &&
           memcmp(last->digest, item->digest, sizeof last->digest) == 0;
}

/* Refuses a step whose sender does not know the session's last truncation: the body names another
 * revision, or is the session's start, sent again.  A truncation may have come while the step was
 * queued. */
static enum srv_error_code check_revision(struct srv_item *item, size_t length)
{
    const struct srv_rows *rows = item->rows;
    const struct srv_session *session = item->session;
    const uint64_t named = (uint64_t)rows->revision;
    const bool starts_again = rows->start && !item->creates_session && !item->model->is_cross;
    item->revision = session->revision;
    if (named == item->revision || (named == 0 && !(starts_again && session->revision_before != 0)))
        return SRV_OK;
    return srv_session_fail_revision(session, named, length, &item->error);
}

/* Decides where the rows go: after the cached ones, or over the last step again. */
static enum srv_error_code resolve_position(struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    size_t length = attn_cache_length(item->session->cache, item->layer);
    if (check_revision(item, length) != SRV_OK)
        return item->error.code;
    size_t position = rows->has_position ? (size_t)rows->position : length;
    item->step.position = position;
    if (item->model->is_cross)
        return SRV_OK;
    item->is_replay = position < length && repeats_last(item, position, length);
    if (position == length || item->is_replay)
        return SRV_OK;
    srv_fail(&item->error, position < length ? SRV_E_POSITION_CONFLICT : SRV_E_POSITION_GAP,
             "position", "position is %zu, the length of this layer is %zu", position, length);
    item->error.has_length = true; /* after srv_fail, which clears the record */
    item->error.length = (uint32_t)length;
    item->error.lowest = (uint32_t)attn_cache_lowest_length(item->session->cache);
    return item->error.code;
}

/* Charges the session's owner for the blocks that the step will take; accept_result
 * returns the charge of a step that appends nothing. */
static enum srv_error_code charge(struct srv_item *item)
{
    const struct attn_step *step = &item->step;
    if (item->is_replay || item->model->is_cross)
        return SRV_OK;
    item->block_bytes =
        attn_cache_layer_bytes(step->cache, item->layer, step->position + step->rows);
    size_t bytes =
        item->block_bytes - attn_cache_layer_bytes(step->cache, item->layer, step->position);
    if (srv_session_charge(item->session, bytes, &item->error) == SRV_OK)
        item->charged = bytes;
    return item->error.code;
}

/* Whether the step gives the session a copy of a block that others share, which no manifest names,
 * also where it appends nothing. */
static bool copies_block(const struct srv_item *item)
{
    const struct attn_step *step = &item->step;
    return !item->is_replay && !item->model->is_cross && step->position % ATTN_BLOCK_TOKENS > 0 &&
           attn_cache_growth(step->cache, item->layer, 1) > 0;
}

/* Fills item->step; false, with item->error set, where the item cannot run. */
static bool make_step(struct srv_item *item)
{
    const struct srv_job *job = item->job;
    const struct attn_layer_spec *spec = attn_model_layer(item->model->attn, item->layer);
    struct srv_arena *arena = &job->request->arena;
    struct attn_step *step = &item->step;
    if (item->session->pending_creation && !item->creates_session)
        srv_item_fail_missing(item); /* the step that was to create it has failed */
    if (item->error.code != SRV_OK || resolve_position(item) != SRV_OK)
        return false;
    step->cache = item->session->cache;
    step->rows = item->sizes.queries;
    step->hidden_states = item->rows->hidden_states.f32;
    step->query = item->rows->query.f32;
    step->key = item->rows->key.f32;
    step->value = item->rows->value.f32;
    step->commit = item->rows->commit;
    item->sizes.keys = item->model->is_cross ? attn_cache_length(step->cache, item->layer)
                                             : step->position + step->rows;
    item->sizes.columns = attn_weight_columns(spec, item->sizes.keys);
    item->sizes.map_datatype = item->rows->map_datatype;
    item->copies = copies_block(item);
    const struct srv_limits *limits = job->request->limits;
    const char *param = item->rows->query.present ? "query" : "hidden_states";
    return srv_sizes_check(&item->sizes, limits, param, NULL, &item->error) == SRV_OK &&
           srv_modifiers_read(&step->modifiers, item->rows, &item->sizes, arena, &item->error) ==
               SRV_OK &&
           srv_outputs_alloc(&step->outputs, item->rows, &item->sizes, job->request,
                             &item->error) == SRV_OK &&
           charge(item) == SRV_OK;
}

/* Makes the step, which was appended, the layer's last; what the layer's window has forgotten after
 * it is charged no longer. */
static void set_last_step(const struct srv_item *item)
{
    const struct attn_step *step = &item->step;
    struct srv_last_step *last = last_step(item);
    size_t kept = attn_cache_layer_bytes(step->cache, item->layer, step->position + step->rows);
    srv_session_uncharge(item->session, item->block_bytes - kept);
    last->position = step->position;
    last->rows = step->rows;
    memcpy(last->digest, item->digest, sizeof last->digest);
}

static void accept_result(struct srv_item *item)
{
    const struct attn_step *step = &item->step;
    if (item->error.code == SRV_OK && step->error.status != ATTN_OK)
        srv_fail_attn(&item->error, &step->error);
    if (item->error.code == SRV_E_FORGOTTEN)
        item->error.lowest = (uint32_t)attn_cache_lowest_length(item->session->cache);
    if (item->error.code != SRV_OK || !step->commit || item->is_replay || item->model->is_cross)
        srv_session_uncharge(item->session, item->charged);
    else
        set_last_step(item);
    item->session->changed = item->session->changed || item->copies;
}

/* The batch's attn_recorder: `list` has the steps that are about to be published. */
static bool record(void *context, const struct attn_appended list[], size_t count,
                   struct attn_error *error)
{
    struct srv_store_step steps[SRV_BATCH_STEPS];
    struct srv_error cause = {0};
    for (size_t i = 0; i < count; i++) {
        const struct srv_item *item =
            (const void *)((const char *)list[i].step - offsetof(struct srv_item, step));
        steps[i] = (struct srv_store_step){item->session, item->layer, &list[i], item->digest};
    }
    if (srv_store_steps(context, steps, count, &cause) == SRV_OK)
        return true;
    snprintf(error->message, sizeof error->message, "%s", cause.message);
    return false;
}

void srv_items_run(struct srv_item *const items[], size_t count)
{
    struct attn_step *steps[SRV_BATCH_STEPS];
    size_t ready = 0, rows = 0;
    const struct srv_item *first = items[0];
    const struct srv_model *model = first->model;
    const struct srv_scheduler_context *context = first->job->context;
    const struct attn_recorder recorder = {record, context->store};
    uint64_t start = srv_now_ns();
    for (size_t i = 0; i < count; i++)
        if (make_step(items[i])) {
            steps[ready++] = &items[i]->step;
            rows += items[i]->step.rows;
        }
    /* Each step's own error says whether the step succeeded, also where the whole call failed. */
    if (ready > 0 && attn_decode_recorded(context->engine, model->attn, first->layer, steps, ready,
                                          context->store != NULL ? &recorder : NULL) == ATTN_OK) {
        uint64_t ns = srv_now_ns() - start;
        if (ready == 1 && rows > SRV_DECODE_ROWS_MAX) /* a prefill */
            srv_metrics_attend(context->metrics, model->index, rows, ns);
        else
            srv_metrics_decode(context->metrics, model->index, ready, rows, ns);
        srv_model_count_execution(srv_models_stats(context->models, model, first->layer));
    }
    for (size_t i = 0; i < count; i++)
        accept_result(items[i]);
}

/* The tokens of the layer after the item's step. */
static size_t length_after(const struct srv_item *item)
{
    const struct attn_step *step = &item->step;
    if (item->model->is_cross)
        return item->sizes.keys;
    return item->is_replay || step->commit ? step->position + step->rows : step->position;
}

void srv_item_write_position(struct srv_buffer *out, const struct srv_item *item)
{
    srv_buffer_number(out, ",\"position\":", item->step.position);
    srv_buffer_number(out, ",\"length\":", length_after(item));
    srv_buffer_number(out, ",\"epoch\":", item->session->epoch);
    srv_buffer_number(out, ",\"revision\":", item->revision);
    srv_buffer_text(out, item->is_replay ? ",\"replayed\":true" : "");
}

void srv_item_write(struct srv_buffer *out, const struct srv_item *item)
{
    srv_buffer_text(out, "\"session_id\":");
    srv_buffer_json_string(out, item->session->id);
    srv_buffer_number(out, ",\"layer\":", item->layer);
    srv_item_write_position(out, item);
    srv_outputs_write(out, &item->step.outputs, &item->sizes, item->job->request->binary);
}
