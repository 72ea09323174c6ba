/* inputs.c: PUT and GET of /inputs/{digest}: rows that calls name instead of sending them.
 *
 * The body is one tensor object, in both forms that tensors have, and the digest is the SHA-256 of
 * the body, so that it stands for numbers and shape. */
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <string.h>

#include "api/endpoints.h"
#include "app.h"
#include "basics/mem.h"
#include "schedule/dispatch.h"
#include "schedule/job.h"
#include "wire/inputs.h"

_Static_assert(SRV_INPUT_DIGEST == 2 * SHA256_DIGEST_SIZE && SRV_INPUT_DIGEST <= SRV_ID_MAX,
               "a digest is a SHA-256, and a path can name it");

#define PART ((size_t)1 << 20) /* bytes of a body from one look at its client to the next */

static void write_input(struct srv_buffer *out, const char *digest)
{
    srv_buffer_printf(out, "{\"input\":\"%s\",\"ttl_s\":%d}", digest, SRV_INPUT_TTL_S);
}

/* Compares the digest, of which a client that leaves, or a deadline, need not see the end. */
static enum srv_error_code check_digest(struct srv_request *request, struct srv_error *error)
{
    unsigned char sum[SHA256_DIGEST_SIZE];
    char digest[SRV_INPUT_DIGEST + 1] = "";
    struct sha256_ctx context;
    sha256_init(&context);
    for (size_t at = 0, length; at < request->body_length; at += length) {
        length = attn_min(request->body_length - at, PART);
        sha256_update(&context, length, (const uint8_t *)request->body + at);
        if (srv_codec_check(request, error) != SRV_OK)
            return error->code;
    }
    sha256_digest(&context, sizeof sum, sum);
    base16_encode_update(digest, sizeof sum, sum);
    if (strcmp(digest, request->path_arg) == 0)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, "digest",
                    "the path has not the SHA-256 of the body, in lower case: %s", digest);
}

/* The parser has kept the input: nothing is left for the engine thread but to say so. */
static const struct srv_job_stage *reply_kept(struct srv_job *job)
{
    write_input(&job->request->reply.body, job->request->path_arg);
    srv_reply_status(job->request, 200);
    return NULL;
}

static const struct srv_job_stage kept_stage = {SRV_QUEUE_CHANGES, .at_once = true,
                                                .any_time = true, .run = reply_kept};
static const struct srv_job_type input_type = {.encode = NULL};

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
    srv_inputs_release(request);
    write_input(&request->reply.body, request->path_arg);
    srv_reply_status(request, 200);
}
