/* job.c: what jobs of all types have in common: reading the call, finding model and layer, the
 * statistics of models. */
#include "schedule/job.h"

#include "base/clock.h"
#include "ops/stage.h"
#include "schedule/dispatch.h"
#include "wire/outputs.h"

/* ---- Reading --------------------------------------------------------------------------------- */

void *srv_job_new(size_t size, const struct srv_job_type *type, struct srv_request *request,
                  const struct srv_scheduler_context *context, struct srv_error *error)
{
    struct srv_job *job = srv_arena_alloc(&request->arena, 1, size);
    if (job == NULL) {
        srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the request");
        return NULL;
    }
    memset(job, 0, size);
    job->type = type;
    job->context = context;
    job->request = request;
    return job;
}

enum srv_error_code srv_job_split_body(struct srv_body *out, struct srv_request *request,
                                       struct srv_error *error)
{
    uint64_t length = request->framed ? request->json_length : request->body_length;
    if (length > request->body_length)
        return srv_fail(error, SRV_E_BAD_REQUEST, "Inference-Header-Content-Length",
                        "Inference-Header-Content-Length is %llu, the body has %zu bytes",
                        (unsigned long long)length, request->body_length);
    *out = (struct srv_body){
        .json = request->body,
        .json_length = (size_t)length,
        .bytes = {.at = request->body + length,
                  .left = request->body_length - (size_t)length,
                  .framed = request->framed},
        .cancel = {srv_codec_check, request},
        .request = request,
    };
    return SRV_OK;
}

bool srv_job_is_compressed(const struct srv_call *call, enum srv_reply_compression option)
{
    if (call->has_compressed_output)
        return call->compressed_output;
    return option == SRV_COMPRESS_ALL || (option == SRV_COMPRESS_JSON && !call->binary_output);
}

enum srv_error_code srv_job_read(struct srv_job *job, enum srv_call_kind kind,
                                 struct srv_error *error)
{
    struct srv_request *request = job->request;
    struct srv_body body;
    job->call.binary_output = request->binary;
    enum srv_error_code code = srv_job_split_body(&body, request, error);
    if (code == SRV_OK)
        code = srv_call_read(&job->call, &body, kind, request->limits->max_sequences,
                             &request->arena, error);
    request->binary = job->call.binary_output;
    request->compresses = srv_job_is_compressed(&job->call, job->context->reply_compression);
    return code;
}

enum srv_error_code srv_job_find_layer(const struct attn_layer_spec **out,
                                       const struct srv_job *job, const struct srv_model *model,
                                       struct srv_error *error)
{
    *out = attn_model_layer(model->attn, (size_t)job->call.layer);
    if (*out != NULL)
        return SRV_OK;
    return srv_fail(error, SRV_E_LAYER_NOT_FOUND, "layer", "model %s has no layer %lld (of %zu)",
                    model->name, (long long)job->call.layer, model->info.num_layers);
}

enum srv_error_code srv_job_alloc_items(struct srv_job *job, size_t count, struct srv_error *error)
{
    if (srv_reply_reserve(job->request, count, error) != SRV_OK)
        return error->code;
    job->items = srv_arena_alloc(&job->request->arena, count, sizeof *job->items);
    if (job->items == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for %zu sequences", count);
    job->num_items = job->pending = count;
    for (size_t i = 0; i < count; i++)
        job->items[i] = (struct srv_item){.job = job, .layer = (size_t)job->call.layer};
    return SRV_OK;
}

enum srv_error_code srv_job_check_session_header(const struct srv_job *job, const char *session_id,
                                                 struct srv_error *error)
{
    const char *header = job->request->session_header;
    if (header[0] == '\0' || (session_id != NULL && strcmp(header, session_id) == 0))
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, "session_id",
                    "the X-Session-Id header does not name the session of the body");
}

/* ---- Replying -------------------------------------------------------------------------------- */

enum srv_error_code srv_job_reserve_reply(struct srv_request *request, size_t bytes,
                                          struct srv_error *error)
{
    if (srv_buffer_reserve(&request->reply.body, bytes) != NULL)
        return SRV_OK;
    return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply");
}

/* Counts what a job with a call has computed in the statistics of its models. */
static void count_inferences(const struct srv_job *job)
{
    const struct srv_request *request = job->request;
    uint64_t now = srv_now_ns();
    const uint64_t ns[SRV_INFERENCE_PARTS] = {
        [SRV_INFERENCE_SUCCESS] = now - request->t_start,
        [SRV_INFERENCE_QUEUE] = srv_stage_ns(request, SRV_STAGE_QUEUE),
        [SRV_INFERENCE_INPUT] = srv_stage_ns(request, SRV_STAGE_PARSE),
        [SRV_INFERENCE_INFER] = srv_stage_ns(request, SRV_STAGE_COMPUTE),
        [SRV_INFERENCE_OUTPUT] = now - request->t_computed,
    };
    size_t layer = (size_t)job->call.layer;
    bool success = request->reply.code == SRV_OK;
    if (job->num_items == 0) {
        struct srv_model_stats *stats = srv_models_stats(job->context->models, job->model, layer);
        srv_model_count_request(stats, success, job->sizes.batch, ns);
        if (success)
            srv_model_count_execution(stats);
    }
    for (size_t i = 0; i < job->num_items; i++) {
        const struct srv_item *item = &job->items[i];
        if (item->model != NULL && attn_model_layer(item->model->attn, layer) != NULL)
            srv_model_count_request(srv_models_stats(job->context->models, item->model, layer),
                                    success && item->error.code == SRV_OK, 1, ns);
    }
}

void srv_job_release(struct srv_job *job)
{
    if (job->type->encode != NULL)
        count_inferences(job);
    for (size_t i = 0; i < job->num_items; i++)
        srv_session_put(job->items[i].session);
    srv_session_put(job->session);
    if (job->type->release != NULL)
        job->type->release(job);
}
