/* inputs.c: PUT and GET of /inputs/{digest}: rows that calls name instead of sending them.
 *
 * The body is one tensor object, in both forms that tensors have, and the digest is the SHA-256 of
 * the body, so that it stands for numbers and shape. */
#include <string.h>

#include "api/endpoints.h"
#include "app.h"
#include "schedule/job.h"
#include "wire/inputs.h"

_Static_assert(SRV_INPUT_DIGEST == SRV_KEY_DIGITS && SRV_INPUT_DIGEST <= SRV_ID_MAX,
               "a digest is a SHA-256, and a path can name it");

static void write_input(struct srv_buffer *out, const char *digest)
{
    srv_buffer_printf(out, "{\"input\":\"%s\",\"ttl_s\":%d}", digest, SRV_INPUT_TTL_S);
}

static enum srv_error_code check_digest(const struct srv_request *request, struct srv_error *error)
{
    char digest[SRV_KEY_DIGITS + 1];
    srv_key_digest_print(digest, request->body, request->body_length);
    if (strcmp(digest, request->path_arg) == 0)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, "digest",
                    "the path has not the SHA-256 of the body, in lower case: %s", digest);
}

/* The parser has kept the input: nothing is left for the engine's owner. */
static const struct srv_job_stage *reply_stage(struct srv_job *job)
{
    (void)job;
    return NULL;
}

static void write_kept(const struct srv_job *job, struct srv_buffer *out)
{
    write_input(out, job->request->path_arg);
}

static const struct srv_job_stage kept_stage = {SRV_QUEUE_CHANGES, .at_once = true,
                                                .any_time = true, .run = reply_stage};
static const struct srv_job_type input_type = {.encode = write_kept};

enum srv_error_code srv_parse_input(struct srv_request *request, struct srv_error *error)
{
    struct srv_job *job =
        srv_job_new(sizeof *job, &input_type, request, &request->app->scheduler_context, error);
    struct srv_tensor tensor = {0};
    struct srv_source source;
    struct srv_body body;
    if (job == NULL || check_digest(request, error) != SRV_OK ||
        srv_job_split_body(&body, request, error) != SRV_OK)
        return error->code;
    body.request = NULL; /* an input is no other one */
    srv_source_init(&source, &body, &request->arena, error);
    srv_tensor_read(&tensor, &source, SRV_FLOATS, false, "input");
    if (!srv_json_at_end(&source.json))
        srv_json_expected(&source.json, "nothing behind the tensor");
    srv_source_check_bytes(&source);
    job->stage = &kept_stage;
    request->job = job;
    return error->code == SRV_OK ? srv_inputs_keep(request, request->path_arg, &tensor, error)
                                 : error->code;
}

void srv_get_input(struct srv_request *request)
{
    struct srv_error error = {0};
    struct srv_tensor tensor;
    if (srv_inputs_find(&tensor, request, request->path_arg, NULL, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    write_input(&request->reply.body, request->path_arg);
    srv_reply_status(request, 200);
}
