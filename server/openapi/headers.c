/* headers.c: the header fields of replies, a row each. */
#include "openapi/openapi.h"

enum { ANY = 0, SUCCESS = 2 }; /* SUCCESS: below 400 */

static const struct header {
    const char *name, *type, *meaning;
    unsigned traits; /* of routes whose replies may have it */
    unsigned status; /* of these replies; or ANY, SUCCESS */
} headers[] = {
    {"X-Request-Id", "string", "the request's id", TRAIT_ANY, ANY},
    {"X-Attn-Instance", "string", "the daemon that replied", TRAIT_ANY, ANY},
    {"Cache-Control", "string", "no-store; of a reply with an ETag no-cache", TRAIT_ANY, ANY},
    {"traceparent", "string", "of a request that had one: W3C Trace Context", TRAIT_ANY, ANY},
    {"Server-Timing", "string", "milliseconds of parse, queue, compute and write", TRAIT_QUEUED,
     ANY},
    {"Inference-Header-Content-Length", "Count", "bytes of JSON in a reply in binary form",
     TRAIT_TENSORS, SUCCESS},
    {"Content-Encoding", "string", "of a large reply, and of files: gzip or deflate",
     TRAIT_TENSORS | TRAIT_FILE, SUCCESS},
    {"ETag", "string", "what the file is, for If-None-Match", TRAIT_FILE, SUCCESS},
    {"Content-Security-Policy", "string", "what the page may load", TRAIT_PAGE, SUCCESS},
    {"X-Content-Type-Options", "string", "nosniff", TRAIT_PAGE, SUCCESS},
    {"Referrer-Policy", "string", "no-referrer", TRAIT_PAGE, SUCCESS},
    {"WWW-Authenticate", "string", "Bearer", TRAIT_ANY, 401},
    {"X-Attn-Owner", "string", "with wrong_instance: the instance that the id names",
     TRAIT_TENSORS | TRAIT_SESSION | TRAIT_CREATES, 421},
    {"Retry-After", "PositiveCount", "with wrong_instance: 1 second",
     TRAIT_TENSORS | TRAIT_SESSION | TRAIT_CREATES, 421},
    {"Retry-After", "PositiveCount", "seconds until there will be room, 1 to 60", TRAIT_ANY, 429},
    {"Retry-After", "PositiveCount", "seconds until there will be room, 1 to 60", TRAIT_ANY, 503},
};
#define HEADER_COUNT (sizeof headers / sizeof headers[0])

json_t *headers_json(void)
{
    json_t *components = json_object();
    for (size_t i = 0; i < HEADER_COUNT; i++)
        set(components, headers[i].name,
            pack("{s:s, s:o}", "description", headers[i].meaning, "schema",
                 schema_of(headers[i].type)));
    return components;
}

json_t *reply_headers(const struct srv_route *route, unsigned status)
{
    json_t *fields = json_object();
    for (size_t i = 0; i < HEADER_COUNT; i++) {
        const struct header *header = &headers[i];
        bool now = header->status == ANY || header->status == status ||
                   (header->status == SUCCESS && status < 400);
        if (now && (header->traits & traits_of(route)) != 0)
            set(fields, header->name, ref("headers", header->name));
    }
    return fields;
}
