/* main.c: prints the description of the interface as OpenAPI 3.1: paths, operations, parameters.
 *
 *   openapi_text
 *
 * The daemon replies with what is printed when it is built (server/api/openapi.c).  An
 * operation is made from its row of the table of routes.  Schemas come from the tables of fields
 * (bodies.c), of replies (replies.c) and of values (values.c), errors from the table of
 * errors (errors.c). */

#include "api/endpoints.h"
#include "openapi/openapi.h"

#define JSON_TYPE "application/json"
#define BYTES_TYPE "application/octet-stream"

/* ---- Parameters ------------------------------------------------------------------------------ */

static const struct parameter {
    const char *name, *in, *type, *meaning;
    unsigned traits; /* of routes that take it; 0: those whose doc.parameters name it */
} parameters[] = {
    {"X-Request-Id", "header", "string",
     "1 to 64 of A-Za-z0-9_.-, used in reply, error and log; anything else is replaced", TRAIT_ANY},
    {"traceparent", "header", "string", "W3C Trace Context: logged, and answered", TRAIT_ANY},
    {"X-Session-Id", "header", "Id",
     "for load balancers; must name the session of the request, in a list that of one item",
     TRAIT_QUEUED | TRAIT_SESSION},
    {"X-Deadline-Ms", "header", "DeadlineMs", "what is not computed by then is not computed at all",
     TRAIT_QUEUED},
    {"Inference-Header-Content-Length", "header", "Count",
     "bytes of JSON in a body in binary form; the tensors' bytes follow", TRAIT_TENSORS},
    {"Content-Encoding", "header", "RequestCoding", "of the body", TRAIT_BODY},
    {"Idempotency-Key", "header", "IdempotencyKey",
     "the same request with the same key makes one session however often it is sent", 0},
    {"If-None-Match", "header", "string", "ETags of what the client has kept", TRAIT_FILE},
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
        set(components, parameters[i].name,
            pack("{s:s, s:s, s:s, s:o}", "name", parameters[i].name, "in", parameters[i].in,
                 "description", parameters[i].meaning, "schema", schema_of(parameters[i].type)));
    return components;
}

/* The schema of a variable part of a path, "{id}/...". */
static const char *path_type(const char *variable)
{
    static const char *const types[][2] = {
        {"{id}", "Id"}, {"{digest}", "Digest"}, {"{file}", "string"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strncmp(variable, types[i][0], strlen(types[i][0])) == 0)
            return types[i][1];
    return "ModelName";
}

static json_t *operation_parameters(const struct srv_route *route)
{
    json_t *list = json_array();
    for (const char *at = route->path; (at = strchr(at, '{')) != NULL; at++)
        append(list, pack("{s:s%, s:s, s:b, s:o}", "name", at + 1, strcspn(at + 1, "}"), "in",
                          "path", "required", 1, "schema", schema_of(path_type(at))));
    for (size_t i = 0; i < PARAMETER_COUNT; i++)
        if ((parameters[i].traits & traits_of(route)) != 0 ||
            (parameters[i].traits == 0 && has_word(route->doc.parameters, parameters[i].name)))
            append(list, ref("parameters", parameters[i].name));
    return list;
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* A body of this media type that is no JSON.  Generators of clients make `unknown` of a schema
 * without a type, and of a choice between JSON and `unknown` too. */
static json_t *text_content(const char *type, const char *meaning)
{
    json_t *schema = pack("{s:s, s:s}", "type", "string", "description", meaning);
    if (strcmp(type, BYTES_TYPE) == 0)
        set(schema, "format", json_string("binary"));
    return pack("{s:o}", "schema", schema);
}

static json_t *json_content(const char *type) { return pack("{s:o}", "schema", schema_of(type)); }

#define BINARY_FORM \
    "the JSON, as long as Inference-Header-Content-Length says, and the bytes of its tensors"

/* Below /v2 a body is JSON whatever its Content-Type says. */
static json_t *request_body(const struct srv_route *route)
{
    json_t *content = json_object();
    if (route->body == SRV_BODY_BYTES)
        set(content, BYTES_TYPE,
            text_content(BYTES_TYPE, "a session's state, as GET replies with it"));
    else
        set(content, JSON_TYPE, json_content(route->doc.request));
    if (route->body == SRV_BODY_TENSORS || route->body == SRV_BODY_OPTIONAL_TENSORS)
        set(content, BYTES_TYPE, text_content(BYTES_TYPE, BINARY_FORM));
    if (srv_v2_is_path(route->path))
        set(content, "*/*", json_content(route->doc.request));
    return pack("{s:b, s:o}", "required", route->body >= SRV_BODY_TENSORS, "content", content);
}

/* Of a success: JSON, with bytes after it or not, or the route's media types that are no JSON. */
static json_t *reply_content(const struct srv_route *route)
{
    json_t *content = json_object(), *types = words(route->type), *type;
    size_t i;
    if (route->doc.reply != NULL)
        set(content, JSON_TYPE, json_content(route->doc.reply));
    if (route->body == SRV_BODY_TENSORS)
        set(content, BYTES_TYPE, text_content(BYTES_TYPE, BINARY_FORM));
    json_array_foreach(types, i, type)
        set(content, json_string_value(type),
            text_content(json_string_value(type), route->doc.summary));
    return content;
}

static json_t *replies(json_t *shared, const struct srv_route *route)
{
    char name[16];
    unsigned status = route->doc.status != 0 ? route->doc.status : 200;
    json_t *success = pack("{s:s, s:o}", "description", route->doc.summary, "headers",
                           reply_headers(route, status));
    json_t *content = reply_content(route);
    if (json_object_size(content) > 0)
        set(success, "content", content);
    snprintf(name, sizeof name, "%u", status);
    json_t *all = pack("{s:o}", name, success);
    if ((traits_of(route) & TRAIT_FILE) != 0)
        set(all, "304",
            pack("{s:s, s:o}", "description", "If-None-Match has the file's ETag", "headers",
                 reply_headers(route, 304)));
    add_errors(all, shared, route);
    return all;
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* The scopes of which a key needs one, each as a way of its own, and no key, which is a way where
 * the daemon has no key file; an empty list where no daemon asks for a key. */
static json_t *security(enum srv_access access)
{
    static const char *const scopes[] = {
        [SRV_FOR_INFER] = "infer",
        [SRV_FOR_ADMIN] = "admin",
        [SRV_FOR_OWNER] = "infer admin",
        [SRV_FOR_METRICS] = "metrics admin",
        [SRV_FOR_ANY_KEY] = "infer admin metrics",
    };
    json_t *ways = json_array(), *list, *scope;
    size_t i;
    if (access == SRV_FOR_ALL)
        return ways;
    list = words(scopes[access]);
    json_array_foreach(list, i, scope)
        append(ways, pack("{s:[O]}", "ApiKey", scope));
    append(ways, json_object());
    return ways;
}

/* The first segment of the path; the page has that of its files. */
static json_t *tag(const struct srv_route *route)
{
    const char *path = route->path[1] != '\0' ? route->path + 1 : "ui";
    return json_stringn(path, strcspn(path, "/"));
}

static json_t *operation(json_t *shared, const struct srv_route *route)
{
    json_t *json =
        pack("{s:s, s:s, s:[o], s:o, s:o, s:o}", "operationId", route->doc.id, "summary",
             route->doc.summary, "tags", tag(route), "security", security(route->access),
             "parameters", operation_parameters(route), "responses", replies(shared, route));
    if (route->body > SRV_BODY_IGNORED)
        set(json, "requestBody", request_body(route));
    if (route->slash)
        set(json, "x-trailing-slash", json_true());
    return json;
}

static json_t *paths(json_t *shared)
{
    static const char *const methods[SRV_METHOD_COUNT] = {
        [SRV_GET] = "get", [SRV_POST] = "post", [SRV_PUT] = "put", [SRV_DELETE] = "delete"};
    json_t *all = json_object();
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        if (json_object_get(all, route->path) == NULL)
            set(all, route->path, json_object());
        set(json_object_get(all, route->path), methods[route->method], operation(shared, route));
    }
    return all;
}

/* Routes of one tag stand together in the table. */
static json_t *tags(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < srv_routes.count; i++) {
        json_t *name = tag(&srv_routes.items[i]);
        json_t *last = json_array_get(list, json_array_size(list) - 1);
        if (!json_equal(name, json_object_get(last, "name")))
            append(list, pack("{s:s+, s:o}", "description", "Paths of /", json_string_value(name),
                              "name", name));
    }
    return list;
}

/* ---- The document ---------------------------------------------------------------------------- */

/* The bounds beyond which a caller gets an error. */
static json_t *bounds(void)
{
    json_t *all = json_object();
    for (size_t i = 0; i < srv_bound_count; i++) {
        const struct srv_bound *bound = &srv_bounds[i];
        if (bound->code == SRV_OK)
            continue;
        json_t *json =
            pack("{s:s, s:s}", "error", srv_error_word(bound->code), "subject", bound->subject);
        if (bound->is_option)
            set(json, "option", json_string(bound->name));
        else
            set(json, "value", json_integer((json_int_t)bound->value));
        if (bound->unit != NULL)
            set(json, "unit", json_string(bound->unit));
        set(all, bound->name, json);
    }
    return all;
}

static json_t *schemas(void)
{
    json_t *all = json_object();
    add_values(all);
    add_replies(all);
    add_calls(all);
    add_documents(all);
    return all;
}

static json_t *info(void)
{
    return pack(
        "{s:s, s:s, s:s, s:{s:s, s:s}, s:o}", "title", "attnd", "version", ATTN_VERSION,
        "description",
        "Attention over HTTP.  Shapes (x-shapes) are in row-major order: B batch, T query "
        "tokens, S key tokens, E model width, H query heads, G key/value heads, D head "
        "width, Dv head width of values.  A row of x-bounds has the value of a bound, or the "
        "option of the daemon that sets it.",
        "license", "name", "MIT", "identifier", "MIT", "x-bounds", bounds());
}

int main(void)
{
    json_t *shared = json_object(), *all = paths(shared);
    json_t *document = pack(
        "{s:s, s:o, s:[{s:s}], s:o, s:o, s:{s:o, s:o, s:o, s:o, s:{s:{s:s, s:s, s:s}}}}", "openapi",
        "3.1.0", "info", info(), "servers", "url", ".", "tags", tags(), "paths", all, "components",
        "schemas", schemas(), "responses", shared, "parameters", parameter_components(), "headers",
        headers_json(), "securitySchemes", "ApiKey", "type", "http", "scheme", "bearer",
        "description", "a key of the daemon's key file; a daemon without one needs no key");
    if (json_dumpf(document, stdout, JSON_COMPACT | JSON_REAL_PRECISION(16)) != 0 ||
        fflush(stdout) != 0)
        fail("the document cannot be written");
    return 0;
}
