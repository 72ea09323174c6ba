/* routes.c: the route table and nothing else. */
#include "api/endpoints.h"

static const struct srv_route table[] = {
    {SRV_POST, "/attend", SRV_BODY_TENSORS, .parse = srv_parse_attend},
    {SRV_POST, "/decode", SRV_BODY_TENSORS, .parse = srv_parse_decode},

    {SRV_POST, "/sessions", SRV_BODY_OPTIONAL, .parse = srv_parse_create},
    {SRV_GET, "/sessions", SRV_BODY_NONE, .handle = srv_get_sessions, .access = SRV_FOR_ADMIN},
    {SRV_GET, "/sessions/{id}", SRV_BODY_NONE, .handle = srv_get_session, .access = SRV_FOR_OWNER},
    {SRV_DELETE, "/sessions/{id}", SRV_BODY_IGNORED, .parse = srv_parse_delete,
     .access = SRV_FOR_OWNER},
    {SRV_POST, "/sessions/{id}/fork", SRV_BODY_OPTIONAL, .parse = srv_parse_fork},
    {SRV_POST, "/sessions/{id}/truncate", SRV_BODY_OPTIONAL, .parse = srv_parse_truncate},
    {SRV_GET, "/sessions/{id}/state", SRV_BODY_NONE, .parse = srv_parse_export,
     .type = "application/octet-stream"},
    {SRV_PUT, "/sessions/{id}/state", SRV_BODY_BYTES, .parse = srv_parse_import},

    {SRV_POST, "/snapshot", SRV_BODY_NONE, .handle = srv_post_snapshot, .access = SRV_FOR_ADMIN},
    {SRV_GET, "/snapshot", SRV_BODY_NONE, .handle = srv_get_snapshot, .access = SRV_FOR_ADMIN},

    {SRV_GET, "/models", SRV_BODY_NONE, .handle = srv_get_models, .slash = true},
    {SRV_GET, "/models/{name}", SRV_BODY_NONE, .handle = srv_get_model},

    {SRV_GET, "/healthz", SRV_BODY_NONE, .handle = srv_get_health, .access = SRV_FOR_ALL,
     .while_draining = true},
    {SRV_GET, "/health", SRV_BODY_NONE, .handle = srv_get_health, .access = SRV_FOR_ALL,
     .while_draining = true},
    {SRV_GET, "/livez", SRV_BODY_NONE, .handle = srv_get_health, .access = SRV_FOR_ALL,
     .while_draining = true},
    {SRV_GET, "/readyz", SRV_BODY_NONE, .handle = srv_get_ready, .access = SRV_FOR_ALL,
     .while_draining = true},
    {SRV_GET, "/metrics", SRV_BODY_NONE, .handle = srv_get_metrics, .access = SRV_FOR_METRICS,
     .while_draining = true, .type = "text/plain"},
};

const struct srv_routes srv_routes = {.items = table, .count = sizeof table / sizeof table[0]};
