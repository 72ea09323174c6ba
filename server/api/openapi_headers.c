/* openapi_headers.c: the header fields of replies, a row each. */
#include "api/openapi_types.h"
#include "wire/document.h"

enum { ANY = 0, SUCCESS = 2 }; /* SUCCESS: below 400 */

static const struct header {
    const char *name, *type, *meaning;
    unsigned traits; /* of routes whose replies may have it */
    unsigned status; /* of these replies; or ANY, SUCCESS */
} headers[] = {
    {"X-Request-Id", "string", "the request's id", SRV_TRAIT_ANY, ANY},
    {"X-Attn-Instance", "string", "the daemon that replied", SRV_TRAIT_ANY, ANY},
    {"Cache-Control", "string", "no-store; of the page no-cache", SRV_TRAIT_ANY, ANY},
    {"traceparent", "string", "of a request that had one: W3C Trace Context", SRV_TRAIT_ANY, ANY},
    {"Server-Timing", "string", "milliseconds of parse, queue, compute and write", SRV_TRAIT_QUEUED,
     ANY},
    {"Inference-Header-Content-Length", "Count", "bytes of JSON in a reply in binary form",
     SRV_TRAIT_TENSORS, SUCCESS},
    {"Content-Encoding", "string", "of a large reply, and of the page: gzip or deflate",
     SRV_TRAIT_TENSORS | SRV_TRAIT_PAGE, SUCCESS},
    {"ETag", "string", "what the file is, for If-None-Match", SRV_TRAIT_PAGE, SUCCESS},
    {"Content-Security-Policy", "string", "what the page may load", SRV_TRAIT_PAGE, SUCCESS},
    {"X-Content-Type-Options", "string", "nosniff", SRV_TRAIT_PAGE, SUCCESS},
    {"Referrer-Policy", "string", "no-referrer", SRV_TRAIT_PAGE, SUCCESS},
    {"WWW-Authenticate", "string", "Bearer", SRV_TRAIT_ANY, 401},
    {"X-Attn-Owner", "string", "with wrong_instance: the instance that the id names",
     SRV_TRAIT_TENSORS | SRV_TRAIT_SESSION | SRV_TRAIT_CREATES, 421},
    {"Retry-After", "PositiveCount", "with wrong_instance: 1 second",
     SRV_TRAIT_TENSORS | SRV_TRAIT_SESSION | SRV_TRAIT_CREATES, 421},
    {"Retry-After", "PositiveCount", "seconds until there will be room, 1 to 60", SRV_TRAIT_ANY,
     429},
    {"Retry-After", "PositiveCount", "seconds until there will be room, 1 to 60", SRV_TRAIT_ANY,
     503},
};
#define HEADER_COUNT (sizeof headers / sizeof headers[0])

json_t *srv_openapi_headers(void)
{
    json_t *components = json_object();
    for (size_t i = 0; i < HEADER_COUNT; i++)
        srv_document_set(&components, headers[i].name,
                         json_pack("{s:s, s:o}", "description", headers[i].meaning, "schema",
                                   srv_openapi_type(headers[i].type)));
    return components;
}

json_t *srv_openapi_reply_headers(const struct srv_route *route, unsigned status)
{
    json_t *fields = json_object();
    unsigned traits = srv_openapi_traits(route);
    for (size_t i = 0; i < HEADER_COUNT; i++) {
        const struct header *header = &headers[i];
        bool now = header->status == ANY || header->status == status ||
                   (header->status == SUCCESS && status < 400);
        if (now && (header->traits & traits) != 0)
            srv_document_set(&fields, header->name, srv_openapi_ref("headers", header->name));
    }
    return fields;
}
