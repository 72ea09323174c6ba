/* decode.c: POST /decode: one step over one session, or a step over each of many.
 *
 * This file knows the form of the body and of the reply.  Steps over sessions are steps.c's, the
 * batches that they run in batch.c's. */
#include "api/endpoints.h"
#include "app.h"
#include "schedule/steps.h"

static void write_one(const struct srv_job *job, struct srv_buffer *out)
{
    srv_buffer_text(out, "{");
    srv_item_write(out, &job->items[0]);
    srv_buffer_text(out, "}");
}

/* Each item of a list succeeds or fails alone. */
static void write_many(const struct srv_job *job, struct srv_buffer *out)
{
    srv_buffer_text(out, "{\"sequences\":[");
    for (size_t i = 0; i < job->num_items; i++) {
        const struct srv_item *item = &job->items[i];
        srv_buffer_text(out, i > 0 ? ",{" : "{");
        if (item->error.code == SRV_OK) {
            srv_item_write(out, item);
        } else {
            srv_buffer_text(out, "\"session_id\":");
            srv_buffer_json_string(out, item->rows->session_id);
            srv_buffer_text(out, ",\"error\":");
            srv_error_write(out, &item->error, NULL);
        }
        srv_buffer_text(out, "}");
    }
    srv_buffer_text(out, "]}");
}

static const struct srv_job_type one_type = {.encode = write_one};
static const struct srv_job_type many_type = {.encode = write_many};

/* X-Session-Id leads a list to the shard of one of its sessions; items of other shards are refused
 * there, each for itself. */
static enum srv_error_code check_list_header(const struct srv_job *job, struct srv_error *error)
{
    for (size_t i = 0; i < job->call.num_sequences; i++)
        if (srv_job_check_session_header(job, job->call.sequences[i].session_id, error) == SRV_OK) {
            error->code = SRV_OK; /* also where an item before it was another session's */
            break;
        }
    return error->code;
}

static enum srv_error_code prepare_many(struct srv_job *job, struct srv_error *error)
{
    if (check_list_header(job, error) != SRV_OK ||
        srv_job_alloc_items(job, job->call.num_sequences, error) != SRV_OK)
        return error->code;
    for (size_t i = 0; i < job->num_items; i++) {
        struct srv_item *item = &job->items[i];
        item->rows = &job->call.sequences[i];
        srv_item_prepare(item);
    }
    job->type = &many_type;
    job->stage = &srv_steps_stage;
    return srv_job_reserve_reply(job->request, job->request->reply_bytes, error);
}

enum srv_error_code srv_parse_decode(struct srv_request *request, struct srv_error *error)
{
    struct srv_job *job =
        srv_job_new(sizeof *job, &one_type, request, &request->app->scheduler_context, error);
    if (job == NULL || srv_job_read(job, SRV_CALL_DECODE, error) != SRV_OK)
        return error->code;
    request->job = job;
    return job->call.sequences != NULL ? prepare_many(job, error)
                                       : srv_job_prepare_single(job, error);
}
