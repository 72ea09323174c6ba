/* job.c: what every job begins and ends with. */
#include "job.h"

#include <string.h>

#include "app.h"
#include "outputs.h"

enum srv_error_code srv_job_read(struct srv_job **out, struct srv_request *request,
                                 enum srv_call_kind kind, struct srv_error *error)
{
    const struct srv_limits *limits = &request->app->config.limits;
    struct srv_job *job = srv_arena_alloc(&request->arena, 1, sizeof *job);
    if (job == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the request");
    *job = (struct srv_job){.request = request};
    *out = job;
    return srv_call_read_json(&job->call, request->body, request->body_length, kind,
                              limits->max_sequences, &request->arena, error);
}

enum srv_error_code srv_job_find_model(const struct srv_model **out, const struct srv_job *job,
                                       struct srv_error *error)
{
    return srv_models_find(out, &job->request->app->models, job->call.model, error);
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

enum srv_error_code srv_job_take_items(struct srv_job *job, size_t count, struct srv_error *error)
{
    if (srv_reply_reserve(job->request, count, error) != SRV_OK)
        return error->code;
    job->items = srv_arena_alloc(&job->request->arena, count, sizeof *job->items);
    if (job->items == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for %zu sequences", count);
    job->num_items = job->pending = count;
    for (size_t i = 0; i < count; i++)
        job->items[i] = (struct srv_item){.job = job};
    return SRV_OK;
}

enum srv_error_code srv_job_check_header(const struct srv_job *job, const char *session_id,
                                         struct srv_error *error)
{
    const char *header = job->request->session_header;
    if (header[0] == '\0' || (session_id != NULL && strcmp(header, session_id) == 0))
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, "session_id",
                    "the X-Session-Id header does not name the session of the body");
}

void srv_job_end(struct srv_job *job)
{
    for (size_t i = 0; i < job->num_items; i++)
        srv_session_put(job->items[i].session);
}
