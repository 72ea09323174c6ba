/* v2.c: what is otherwise in requests of the Open Inference Protocol, as its clients send
 * them. */

#include "http/exchange.h"

#define UNKNOWN "GET /v2 lists the extensions, GET /openapi.json all paths"

/* Paths of extensions that attnd lacks; clients of Triton ask for them.  The first row that fits
 * counts. */
static const struct {
    const char *prefix, *part; /* of a path: its begin, and what stands in the rest of it */
    const char *why;
} absent[] = {
    {"/v2/systemsharedmemory", "",
     "attnd has no shared memory: send and take tensors as bytes of the request and the reply"},
    {"/v2/cudasharedmemory", "",
     "attnd has no shared memory: send and take tensors as bytes of the request and the reply"},
    {"/v2", "/trace/setting",
     "attnd has no trace settings: traceparent and Server-Timing are kept"},
    {"/v2/logging", "", "the log is set when attnd starts, by its option log"},
    {"/v2/models/", "/generate",
     "attnd makes no text: POST /v2/models/NAME/infer computes attention"},
    {"/v2/models/", "/versions/1/", UNKNOWN},
    {"/v2/models/", "/versions/", "models have the version 1 only"},
};

const char *srv_v2_why_absent(const char *path)
{
    for (size_t row = 0; row < sizeof absent / sizeof absent[0]; row++) {
        size_t length = strlen(absent[row].prefix);
        if (strncmp(path, absent[row].prefix, length) == 0 &&
            strstr(path + length, absent[row].part) != NULL)
            return absent[row].why;
    }
    return UNKNOWN;
}

enum srv_error_code srv_v2_check_types(struct srv_request *request, const struct srv_head *head,
                                       bool has_body, struct srv_error *error)
{
    bool tensors = request->route->body == SRV_BODY_TENSORS;
    request->accepted = srv_guard_accept_encoding(head);
    if (has_body && request->route->body != SRV_BODY_IGNORED &&
        srv_guard_content_encoding(&request->coding, head, error) != SRV_OK)
        return error->code;
    if (tensors && srv_head_find(head, SRV_JSON_LENGTH) != NULL)
        return srv_guard_json_length(&request->framed, &request->json_length, head, error);
    return SRV_OK;
}
