/* openapi.c: the description of the interface as OpenAPI 3.1: paths, operations, parameters.
 *
 * An operation is made from its row of the route table.  Schemas come from the tables of fields
 * (openapi_calls.c, openapi_types.c) and of replies (openapi_replies.c), errors from the table of
 * errors (openapi_errors.c). */
#include "api/openapi.h"

#include <ctype.h>
#include <string.h>

#include "api/openapi_types.h"
#include "wire/document.h"

#define JSON_TYPE "application/json"
#define BYTES_TYPE "application/octet-stream"

/* ---- Parameters ------------------------------------------------------------------------------ */

static const struct parameter {
    const char *name, *in, *type, *meaning;
    unsigned traits; /* of routes that take it; 0: those whose doc.parameters name it */
} parameters[] = {
    {"X-Request-Id", "header", "string",
     "1 to 64 of A-Za-z0-9_.-, used in reply, error and log; anything else is replaced",
     SRV_TRAIT_ANY},
    {"traceparent", "header", "string", "W3C Trace Context: logged, and answered", SRV_TRAIT_ANY},
    {"X-Session-Id", "header", "Id",
     "for load balancers; must name the session of the request, in a list that of one item",
     SRV_TRAIT_QUEUED | SRV_TRAIT_SESSION},
    {"X-Deadline-Ms", "header", "DeadlineMs", "what is not computed by then is not computed at all",
     SRV_TRAIT_QUEUED},
    {"Inference-Header-Content-Length", "header", "Count",
     "bytes of JSON in a body in binary form; the tensors' bytes follow", SRV_TRAIT_TENSORS},
    {"Content-Encoding", "header", "RequestCoding", "of the body", SRV_TRAIT_BODY},
    {"Idempotency-Key", "header", "IdempotencyKey",
     "the same request with the same key makes one session however often it is sent", 0},
    {"If-None-Match", "header", "string", "ETags of the files that the client has kept",
     SRV_TRAIT_PAGE},
    {"after", "query", "PageToken", "sessions after this one: `next` of the page before", 0},
    {"limit", "query", "PageLimit", "sessions of the page at most; default 100", 0},
    {"details", "query", "PageDetails", "lengths of all layers, and shapes; in shorter pages", 0},
    {"owner", "query", "OwnerName", "whose session, for the scope admin", 0},
    {"epoch", "query", "PositiveCount", "the epoch that the session must have", 0},
    {"revision", "query", "PositiveCount", "the revision that the session must have", 0},
};
#define PARAMETER_COUNT (sizeof parameters / sizeof parameters[0])

static json_t *parameter_components(void)
{
    json_t *components = json_object();
    for (size_t i = 0; i < PARAMETER_COUNT; i++)
        srv_document_set(&components, parameters[i].name,
                         json_pack("{s:s, s:s, s:s, s:o}", "name", parameters[i].name, "in",
                                   parameters[i].in, "description", parameters[i].meaning, "schema",
                                   srv_openapi_type(parameters[i].type)));
    return components;
}

/* The schema of a variable part of a path, "{id}/...". */
static const char *path_type(const char *variable)
{
    static const char *const types[][2] = {{"{id}", "Id"}, {"{file}", "string"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strncmp(variable, types[i][0], strlen(types[i][0])) == 0)
            return types[i][1];
    return "ModelName";
}

static void add_path_parameters(json_t **list, const char *path)
{
    while ((path = strchr(path, '{')) != NULL) {
        size_t length = strcspn(path + 1, "}");
        srv_document_append(list, json_pack("{s:s%, s:s, s:b, s:o}", "name", path + 1, length, "in",
                                            "path", "required", 1, "schema",
                                            srv_openapi_type(path_type(path))));
        path++;
    }
}

static json_t *operation_parameters(const struct srv_route *route)
{
    json_t *list = json_array();
    unsigned traits = srv_openapi_traits(route);
    add_path_parameters(&list, route->path);
    for (size_t i = 0; i < PARAMETER_COUNT; i++)
        if ((parameters[i].traits & traits) != 0 ||
            (parameters[i].traits == 0 &&
             srv_openapi_has_word(route->doc.parameters, parameters[i].name)))
            srv_document_append(&list, srv_openapi_ref("parameters", parameters[i].name));
    return list;
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* A body of this media type that is no JSON.  Generators of clients make `unknown` of a schema
 * without a type, and of a choice between JSON and `unknown` too. */
static json_t *text_content(const char *type, const char *meaning)
{
    json_t *schema = json_pack("{s:s, s:s}", "type", "string", "description", meaning);
    if (strcmp(type, BYTES_TYPE) == 0)
        srv_document_set(&schema, "format", json_string("binary"));
    return json_pack("{s:o}", "schema", schema);
}

#define BINARY_FORM \
    "the JSON, as long as Inference-Header-Content-Length says, and the bytes of its tensors"

/* Below /v2 a body is JSON whatever its Content-Type says. */
static bool takes_any_type(const struct srv_route *route)
{
    return strncmp(route->path, "/v2/", 4) == 0;
}

static json_t *request_body(const struct srv_route *route)
{
    if (route->body == SRV_BODY_BYTES)
        return json_pack("{s:b, s:{s:o}}", "required", 1, "content", BYTES_TYPE,
                         text_content(BYTES_TYPE, "a session's state, as GET replies with it"));
    json_t *content = json_pack("{s:{s:o}}", JSON_TYPE, "schema",
                                route->doc.request != NULL ? srv_openapi_type(route->doc.request)
                                                           : json_object());
    if (route->body == SRV_BODY_TENSORS || route->body == SRV_BODY_OPTIONAL_TENSORS)
        srv_document_set(&content, BYTES_TYPE, text_content(BYTES_TYPE, BINARY_FORM));
    if (takes_any_type(route) && route->doc.request != NULL)
        srv_document_set(&content, "*/*",
                         json_pack("{s:o}", "schema", srv_openapi_type(route->doc.request)));
    return json_pack("{s:b, s:o}", "required", route->body == SRV_BODY_TENSORS, "content", content);
}

/* Bodies of each of the route's media types that are no JSON. */
static json_t *plain_content(const struct srv_route *route)
{
    json_t *content = json_object(), *types = srv_openapi_words(route->type), *type;
    size_t i;
    json_array_foreach(types, i, type)
        srv_document_set(&content, json_string_value(type),
                         text_content(json_string_value(type), route->doc.summary));
    json_decref(types);
    return content;
}

static json_t *success_content(const struct srv_route *route)
{
    if (route->doc.reply == NULL)
        return plain_content(route);
    json_t *content =
        json_pack("{s:{s:o}}", JSON_TYPE, "schema", srv_openapi_type(route->doc.reply));
    if (route->body == SRV_BODY_TENSORS)
        srv_document_set(&content, BYTES_TYPE, text_content(BYTES_TYPE, BINARY_FORM));
    return content;
}

static unsigned success_status(const struct srv_route *route)
{
    return route->doc.status != 0 ? route->doc.status : 200;
}

/* For a client that has kept what it asks for. */
static json_t *not_modified(const struct srv_route *route)
{
    return json_pack("{s:s, s:o}", "description", "If-None-Match has the file's ETag", "headers",
                     srv_openapi_reply_headers(route, 304));
}

static json_t *success(const struct srv_route *route)
{
    json_t *reply = json_pack("{s:s, s:o}", "description", route->doc.summary, "headers",
                              srv_openapi_reply_headers(route, success_status(route)));
    if (route->doc.reply != NULL || route->type != NULL)
        srv_document_set(&reply, "content", success_content(route));
    return reply;
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* The scopes of which a key needs one, each as a way of its own; none where no key is needed. */
static json_t *security(const struct srv_route *route, bool keyed)
{
    static const char *const scopes[] = {
        [SRV_FOR_INFER] = "infer",
        [SRV_FOR_ADMIN] = "admin",
        [SRV_FOR_OWNER] = "infer admin",
        [SRV_FOR_METRICS] = "metrics admin",
        [SRV_FOR_ANY_KEY] = "infer admin metrics",
    };
    json_t *ways = json_array(), *words, *scope;
    size_t i;
    if (route->access == SRV_FOR_ALL)
        return ways;
    words = srv_openapi_words(scopes[route->access]);
    json_array_foreach(words, i, scope)
        srv_document_append(&ways, json_pack("{s:[O]}", "ApiKey", scope));
    json_decref(words);
    if (!keyed)
        srv_document_append(&ways, json_object());
    return ways;
}

/* The first segment of the path; the page has that of its files. */
static json_t *tag(const struct srv_route *route)
{
    const char *path = route->path[1] != '\0' ? route->path + 1 : "ui";
    return json_stringn(path, strcspn(path, "/"));
}

static json_t *operation(json_t **responses, const struct srv_route *route, bool keyed)
{
    char status[16];
    snprintf(status, sizeof status, "%u", success_status(route));
    json_t *replies = json_pack("{s:o}", status, success(route));
    if ((srv_openapi_traits(route) & SRV_TRAIT_PAGE) != 0)
        srv_document_set(&replies, "304", not_modified(route));
    json_t *errors = srv_openapi_errors(responses, route);
    if (json_object_update(replies, errors) != 0) {
        json_decref(replies);
        replies = NULL;
    }
    json_decref(errors);
    json_t *json =
        json_pack("{s:s, s:s, s:[o], s:o, s:o, s:o}", "operationId", route->doc.id, "summary",
                  route->doc.summary, "tags", tag(route), "security", security(route, keyed),
                  "parameters", operation_parameters(route), "responses", replies);
    if (route->body > SRV_BODY_IGNORED)
        srv_document_set(&json, "requestBody", request_body(route));
    if (route->slash)
        srv_document_set(&json, "x-trailing-slash", json_true());
    return json;
}

static json_t *paths(json_t **responses, const struct srv_routes *routes, bool keyed)
{
    static const char *const methods[SRV_METHOD_COUNT] = {
        [SRV_GET] = "get", [SRV_POST] = "post", [SRV_PUT] = "put", [SRV_DELETE] = "delete"};
    json_t *all = json_object();
    for (size_t i = 0; i < routes->count; i++) {
        const struct srv_route *route = &routes->items[i];
        if (route->doc.id == NULL) /* left out; the unit suite does not pass */
            continue;
        json_t *item = json_incref(json_object_get(all, route->path));
        if (item == NULL)
            item = json_object();
        srv_document_set(&item, methods[route->method], operation(responses, route, keyed));
        srv_document_set(&all, route->path, item);
    }
    return all;
}

/* ---- The document ---------------------------------------------------------------------------- */

/* The bounds beyond which a caller gets an error. */
static json_t *bounds(const struct srv_config *config)
{
    json_t *all = json_object();
    for (size_t i = 0; i < srv_bound_count; i++) {
        const struct srv_bound *bound = &srv_bounds[i];
        if (bound->code == SRV_OK)
            continue;
        json_t *json =
            json_pack("{s:I, s:s, s:s}", "value", (json_int_t)srv_bound_value(bound, config),
                      "error", srv_error_word(bound->code), "subject", bound->subject);
        if (bound->unit != NULL)
            srv_document_set(&json, "unit", json_string(bound->unit));
        srv_document_set(&all, bound->name, json);
    }
    return all;
}

/* Routes of one tag stand together in the table. */
static json_t *tags(const struct srv_routes *routes)
{
    json_t *list = json_array();
    for (size_t i = 0; i < routes->count; i++) {
        if (routes->items[i].doc.id == NULL)
            continue;
        json_t *name = tag(&routes->items[i]);
        json_t *last = json_array_get(list, json_array_size(list) - 1);
        if (json_equal(name, json_object_get(last, "name")))
            json_decref(name);
        else
            srv_document_append(&list, json_pack("{s:s+, s:o}", "description", "Paths of /",
                                                 json_string_value(name), "name", name));
    }
    return list;
}

static json_t *schemas(const struct srv_routes *routes, const struct srv_config *config)
{
    json_t *all = json_object();
    srv_openapi_add_values(&all);
    srv_openapi_add_replies(&all);
    srv_openapi_add_calls(&all, config->limits.max_sequences);
    srv_openapi_add_documents(&all, routes);
    return all;
}

static json_t *info(const struct srv_config *config)
{
    return json_pack("{s:s, s:s, s:s, s:{s:s, s:s}, s:o}", "title", "attnd", "version",
                     ATTN_VERSION, "description",
                     "Attention over HTTP.  Shapes (x-shapes) are in row-major order: B batch, T "
                     "query tokens, S key tokens, E model width, H query heads, G key/value heads, "
                     "D head width, Dv head width of values.  x-bounds are this daemon's.",
                     "license", "name", "MIT", "identifier", "MIT", "x-bounds", bounds(config));
}

json_t *srv_openapi_document(const struct srv_routes *routes, const struct srv_config *config)
{
    json_t *responses = json_object();
    json_t *all = paths(&responses, routes, config->api_keys != NULL);
    return json_pack(
        "{s:s, s:o, s:[{s:s}], s:o, s:o, s:{s:o, s:o, s:o, s:o, s:{s:{s:s, s:s, s:s}}}}", "openapi",
        "3.1.0", "info", info(config), "servers", "url", ".", "tags", tags(routes), "paths", all,
        "components", "schemas", schemas(routes, config), "responses", responses, "parameters",
        parameter_components(), "headers", srv_openapi_headers(), "securitySchemes", "ApiKey",
        "type", "http", "scheme", "bearer", "description", "a key of the daemon's key file");
}
