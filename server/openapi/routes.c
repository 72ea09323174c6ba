/* routes.c: the daemon's table of routes, and what its routes have in common.
 *
 * Handlers and parsers are not called here, and not linked either, since they lead to the whole
 * daemon: each name of endpoints.h stands for one of three functions that do nothing. */

#include "openapi/openapi.h"

static void handle(struct srv_request *request) { (void)request; }

static enum srv_error_code parse(struct srv_request *request, struct srv_error *error)
{
    (void)request;
    return error->code;
}

static bool is_long(const struct srv_request *request) { return request == NULL; }

#define srv_handler static __attribute__((alias("handle"))) srv_handler
#define srv_job_parser static __attribute__((alias("parse"))) srv_job_parser
#define srv_is_long static __attribute__((alias("is_long"))) srv_is_long
#include "api/routes.c"

unsigned traits_of(const struct srv_route *route)
{
    const bool is_page = route->path[1] == '\0' || strncmp(route->path, "/ui/", 4) == 0;
    const bool is_scoped = route->access != SRV_FOR_ALL && route->access != SRV_FOR_ANY_KEY;
    const bool has_query = route->method == SRV_GET || route->method == SRV_DELETE;
    const struct {
        bool holds;
        enum trait trait;
    } rows[] = {
        {true, TRAIT_ANY},
        {route->access != SRV_FOR_ALL, TRAIT_KEYED},
        {is_scoped, TRAIT_SCOPED},
        {route->body > SRV_BODY_IGNORED, TRAIT_BODY},
        {route->body >= SRV_BODY_OPTIONAL && route->body <= SRV_BODY_TENSORS, TRAIT_JSON},
        {route->body == SRV_BODY_TENSORS, TRAIT_TENSORS},
        {route->body == SRV_BODY_BYTES, TRAIT_STATE},
        {route->parse != NULL, TRAIT_QUEUED},
        {!route->while_draining, TRAIT_SERVED},
        {strstr(route->path, "/{id}") != NULL, TRAIT_SESSION},
        {route->doc.status == 201, TRAIT_CREATES},
        {route->fields != NULL && strstr(route->path, "/{id}/") != NULL, TRAIT_CHANGES},
        {has_query && route->doc.parameters != NULL, TRAIT_QUERY},
        {route->doc.status == 201 && has_word(route->doc.parameters, "Idempotency-Key"),
         TRAIT_REPEATS},
        {is_page, TRAIT_PAGE},
        {is_page || strcmp(route->path, "/openapi.json") == 0, TRAIT_FILE},
    };
    unsigned traits = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        traits |= rows[i].holds ? rows[i].trait : 0u;
    return traits;
}
