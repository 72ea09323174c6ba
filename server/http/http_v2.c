/* http_v2.c: what is otherwise in requests of the Open Inference Protocol, as its clients send
 * them. */
#include <string.h>

#include "http/http_exchange.h"

bool srv_v2_is_path(const char *path)
{
    return strncmp(path, "/v2", 3) == 0 && strchr("/?", path[3]) != NULL; /* or its NUL */
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
