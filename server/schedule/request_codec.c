/* request_codec.c: decompresses and parses bodies, writes and compresses replies. */
#include "base/clock.h"
#include "schedule/dispatch.h"
#include "schedule/job.h"
#include "wire/outputs.h"
#include "wire/route.h"

enum srv_error_code srv_codec_goes_on(struct srv_request *request, struct srv_error *error)
{
    bool computed = request->t_computed != 0;
    if (computed && request->reply_bytes <= SRV_LARGE_BYTES)
        return SRV_OK;
    enum srv_error_code code = srv_request_check_cancelled(request, srv_now_ns(), error);
    if (!computed || request->job->num_items == 0 || code == SRV_OK || code == SRV_E_CLIENT_GONE)
        return code;
    if (code == SRV_E_DEADLINE)
        return error->code = SRV_OK;
    atomic_store(&request->client_gone, true);
    return srv_fail(error, SRV_E_CLIENT_GONE, NULL, "attnd stops before its reply is written");
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

bool srv_body_is_parsed(const struct srv_request *request)
{
    return request->job != NULL || request->reply.status != 0;
}

/* On other threads than a worker's, where most compressed bodies are small, no more than a small
 * body is expanded. */
static enum srv_error_code parse_body(struct srv_request *request, struct srv_error *error)
{
    const struct srv_cancel cancel = {srv_codec_check, request};
    const bool is_document = request->route->body == SRV_BODY_OPTIONAL;
    size_t most = srv_body_limit(request);
    if (is_document && most > SRV_MAX_DOCUMENT_BYTES)
        most = SRV_MAX_DOCUMENT_BYTES;
    const bool bounded = request->codec_workers == NULL && most > SRV_LARGE_BYTES;
    request->expands = false;
    if (srv_codec_goes_on(request, error) != SRV_OK)
        return error->code;
    if (srv_body_decompress(request, bounded ? SRV_LARGE_BYTES : most, &cancel, error) == SRV_OK)
        return request->route->parse(request, error);
    request->expands = error->code == SRV_E_BODY_TOO_LARGE && bounded;
    return error->code;
}

void srv_parse_body(struct srv_request *request)
{
    struct srv_error error = {.code = SRV_OK};
    if (!srv_body_is_parsed(request) && parse_body(request, &error) != SRV_OK &&
        !request->expands) {
        request->job = NULL;
        srv_reply_error(request, &error);
    }
    request->codec_workers = NULL;
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* Writes the reply's body: its JSON and, in binary form, the bytes of tensors after the JSON. */
static void write_body(const struct srv_job *job)
{
    struct srv_request *request = job->request;
    struct srv_buffer *out = &request->reply.body;
    srv_buffer_reserve(out, request->reply_bytes); /* at once, so that nothing is moved again */
    out->cancel = (struct srv_cancel){srv_codec_check, request};
    job->type->encode(job, out);
    if (!request->binary)
        return;
    srv_tensor_align(out);
    request->reply.content_type = "application/octet-stream";
    request->reply.json_length = out->length;
    if (job->num_items == 0)
        srv_outputs_write_bytes(out, &job->outputs, &job->sizes);
    for (size_t i = 0; i < job->num_items; i++)
        if (job->items[i].error.code == SRV_OK)
            srv_outputs_write_bytes(out, &job->items[i].step.outputs, &job->items[i].sizes);
}

/* Writes the plain reply, unless it is written already and being compressed. */
static enum srv_error_code write_plain(struct srv_request *request, struct srv_error *error)
{
    if (error->code != SRV_OK || srv_codec_goes_on(request, error) != SRV_OK ||
        request->compressor != NULL)
        return error->code;
    write_body(request->job);
    if (!request->reply.body.failed || srv_codec_goes_on(request, error) != SRV_OK)
        return error->code;
    return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply");
}

bool srv_write_reply_piece(struct srv_request *request)
{
    if (request->reply.status != 0)
        return false; /* the reply says why the body could not be parsed */
    if (write_plain(request, &request->job->error) != SRV_OK) {
        srv_reply_compress_stop(request);
        srv_reply_error(request, &request->job->error);
        return false;
    }
    bool more = srv_reply_compress(request);
    if (!more)
        srv_reply_status(request, 200);
    return more;
}

void srv_write_reply(struct srv_request *request)
{
    while (srv_write_reply_piece(request))
        ;
}
