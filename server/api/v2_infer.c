/* v2_infer.c: POST /v2/models/{name}/infer: a call of /attend in the form of the Open Inference
 * Protocol; with a sequence_id, a step over the session of that name.
 *
 * The body becomes the call that /attend would have read (wire/v2.h), and the job the one
 * that /attend would have made: only its reply is written otherwise.  A sequence ends after its
 * step: the session is deleted before the reply goes out, and only where the step has succeeded. */

#include "api/endpoints.h"
#include "app.h"
#include "base/clock.h"
#include "schedule/steps.h"
#include "wire/v2.h"

struct infer {
    struct srv_job job; /* first, so that a job is cast to its infer */
    struct srv_v2_request v2;
    const char *model_name;
    char start_key[SRV_KEY_DIGITS + 1];
};

/* ---- The reply ------------------------------------------------------------------------------- */

/* The members that the reply of /attend or /decode has beside its outputs. */
static void write_parameters(const struct srv_job *job, struct srv_buffer *out)
{
    const struct srv_item *item = job->num_items > 0 ? &job->items[0] : NULL;
    if (item == NULL && job->model == NULL)
        return;
    srv_buffer_number(out, ",\"parameters\":{\"layer\":", (uint64_t)job->call.layer);
    if (item != NULL) {
        srv_buffer_text(out, ",\"sequence_id\":");
        srv_buffer_json_string(out, item->session->id);
        srv_item_write_position(out, item);
    }
    srv_buffer_text(out, "}");
}

static void write_infer(const struct srv_job *job, struct srv_buffer *out)
{
    const struct infer *infer = (const struct infer *)job;
    const struct srv_item *item = job->num_items > 0 ? &job->items[0] : NULL;
    const struct attn_outputs *outputs = item != NULL ? &item->step.outputs : &job->outputs;
    const struct srv_sizes *sizes = item != NULL ? &item->sizes : &job->sizes;
    struct srv_reply *reply = &job->request->reply;
    srv_buffer_text(out, "{\"model_name\":");
    srv_buffer_json_string(out, infer->model_name);
    srv_buffer_text(out, ",\"model_version\":\"" SRV_V2_VERSION "\"");
    if (infer->v2.id != NULL) {
        srv_buffer_text(out, ",\"id\":");
        srv_buffer_json_string(out, infer->v2.id);
    }
    write_parameters(job, out);
    srv_buffer_text(out, ",");
    srv_v2_outputs_write(out, outputs, sizes, &infer->v2.outputs);
    srv_buffer_text(out, "}");
    reply->json_length = srv_v2_outputs_write_bytes(out, outputs, sizes, &infer->v2.outputs);
    if (reply->json_length > 0)
        reply->content_type = "application/octet-stream";
}

/* ---- Sequences ------------------------------------------------------------------------------- */

/* By the engine thread, after the step. */
static const struct srv_job_stage *end_sequence(struct srv_job *job)
{
    struct srv_app *app = job->request->app;
    struct srv_session *session = job->items[0].session;
    if (srv_store_delete(app->store, session, &job->error) == SRV_OK &&
        srv_session_remove(app->sessions, session))
        srv_metrics_session(app->metrics, SRV_SESSION_DELETED, 1);
    return NULL;
}

static const struct srv_job_stage end_stage = {SRV_QUEUE_CHANGES, .any_time = true,
                                               .completes = true, .run = end_sequence};
static const struct srv_job_type infer_type = {.encode = write_infer};

/* A start that is sent again, by `id` and `position`, finds the session that it has made. */
static void set_start_key(struct infer *infer)
{
    char text[3 * SRV_ID_MAX + SRV_V2_ID_MAX];
    const struct srv_rows *rows = &infer->job.call.rows;
    if (!infer->v2.start || infer->v2.id == NULL || !rows->has_position)
        return;
    int length = snprintf(text, sizeof text, "%s\nv2\n%s\n%s", infer->job.request->key.name,
                          rows->session_id, infer->v2.id);
    srv_key_digest_print(infer->start_key, text, (size_t)length);
    infer->job.start_key = infer->start_key;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* The parameter `timeout` bounds the wait as X-Deadline-Ms does; the earlier of the two holds. */
static void set_deadline(struct srv_request *request, uint64_t timeout_us)
{
    uint64_t most_us = (uint64_t)SRV_MAX_DEADLINE_MS * 1000;
    uint64_t us = timeout_us < most_us ? timeout_us : most_us;
    uint64_t deadline_ns = request->t_start + us * 1000;
    request->by_timeout =
        timeout_us > 0 && (request->deadline_ns == 0 || deadline_ns < request->deadline_ns);
    if (request->by_timeout)
        request->deadline_ns = deadline_ns;
}

/* The layer of a call that names one becomes the model's, also where the call cannot be read. */
static enum srv_error_code read_call(struct infer *infer, struct srv_v2_model *model,
                                     struct srv_error *error)
{
    struct srv_job *job = &infer->job;
    struct srv_request *request = job->request;
    struct srv_body body;
    const struct srv_v2_target target = {.model = model->model != NULL ? model->model->name : NULL,
                                         .has_layer = model->has_layer,
                                         .layer = model->layer};
    enum srv_error_code code = srv_job_split_body(&body, request, error);
    if (code == SRV_OK)
        code = srv_v2_read(&infer->v2, &job->call, &target, &body, &request->arena, error);
    if (model->model != NULL && !model->has_layer)
        model->layer = (size_t)job->call.layer;
    if (code == SRV_OK && model->model == NULL && !job->call.rows.query.present)
        return srv_fail(error, SRV_E_MISSING_FIELD, "query",
                        "the model " SRV_V2_WEIGHTLESS " needs query, key and value");
    return code;
}

static enum srv_error_code prepare(struct infer *infer, struct srv_error *error)
{
    struct srv_job *job = &infer->job;
    struct srv_request *request = job->request;
    request->v2_outputs = &infer->v2.outputs; /* instead of request->binary */
    job->call.binary_output = srv_v2_has_binary(&infer->v2.outputs);
    request->compresses = srv_job_is_compressed(&job->call, job->context->reply_compression);
    set_deadline(request, infer->v2.timeout_us);
    set_start_key(infer);
    if (infer->v2.end)
        job->finish = &end_stage;
    return srv_attend_prepare(job, error);
}

enum srv_error_code srv_parse_v2_infer(struct srv_request *request, struct srv_error *error)
{
    const struct srv_models *models = &request->app->models;
    struct srv_v2_model model;
    if (srv_v2_find(&model, models, request->path_arg, error) != SRV_OK)
        return error->code;
    struct infer *infer =
        srv_job_new(sizeof *infer, &infer_type, request, &request->app->scheduler_context, error);
    if (infer != NULL) {
        infer->model_name = request->path_arg;
        if (read_call(infer, &model, error) == SRV_OK && prepare(infer, error) == SRV_OK) {
            request->job = &infer->job;
            return SRV_OK;
        }
    }
    const uint64_t ns[SRV_INFERENCE_PARTS] = {srv_now_ns() - request->t_start};
    if (model.model == NULL || attn_model_layer(model.model->attn, model.layer) != NULL)
        srv_model_count_request(srv_models_stats(models, model.model, model.layer), false, 0, ns);
    return error->code;
}
