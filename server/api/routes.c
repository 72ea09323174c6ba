/* routes.c: the route table and nothing else. */
#include "api/endpoints.h"

static const struct srv_route table[] = {
    {SRV_POST, "/attend", SRV_BODY_TENSORS, .parse = srv_parse_attend},
    {SRV_POST, "/decode", SRV_BODY_TENSORS, .parse = srv_parse_decode},

    {SRV_POST, "/sessions", SRV_BODY_OPTIONAL, .parse = srv_parse_create},
    {SRV_GET, "/sessions", SRV_BODY_NONE, .handle = srv_get_sessions, .access = SRV_FOR_ADMIN},
    {SRV_GET, "/sessions/{id}", SRV_BODY_NONE, .handle = srv_get_session, .access = SRV_FOR_OWNER},
    {SRV_DELETE, "/sessions/{id}", SRV_BODY_NONE, .parse = srv_parse_delete,
     .access = SRV_FOR_OWNER},
    {SRV_POST, "/sessions/{id}/fork", SRV_BODY_OPTIONAL, .parse = srv_parse_fork},
    {SRV_POST, "/sessions/{id}/truncate", SRV_BODY_OPTIONAL, .parse = srv_parse_truncate},
    {SRV_GET, "/sessions/{id}/state", SRV_BODY_NONE, .parse = srv_parse_export,
     .type = "application/octet-stream"},
    {SRV_PUT, "/sessions/{id}/state", SRV_BODY_BYTES, .parse = srv_parse_import},

    {SRV_POST, "/snapshot", SRV_BODY_NONE, .handle = srv_post_snapshot, .access = SRV_FOR_ADMIN},
    {SRV_GET, "/snapshot", SRV_BODY_NONE, .handle = srv_get_snapshot, .access = SRV_FOR_ADMIN},

    {SRV_GET, "/models", SRV_BODY_NONE, .handle = srv_get_models},
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

    /* The Open Inference Protocol: the first row whose path matches counts. */
    {SRV_GET, "/v2", SRV_BODY_NONE, .handle = srv_get_v2},
    {SRV_GET, "/v2/", SRV_BODY_NONE, .handle = srv_get_v2},
    {SRV_GET, "/v2/health/live", SRV_BODY_NONE, .handle = srv_get_health, .access = SRV_FOR_ALL,
     .while_draining = true},
    {SRV_GET, "/v2/health/ready", SRV_BODY_NONE, .handle = srv_get_ready, .access = SRV_FOR_ALL,
     .while_draining = true},
    {SRV_GET, "/v2/models/stats", SRV_BODY_NONE, .handle = srv_get_v2_stats},
    {SRV_GET, "/v2/models/{name}", SRV_BODY_NONE, .handle = srv_get_v2_model},
    {SRV_GET, "/v2/models/{name}/ready", SRV_BODY_NONE, .handle = srv_get_v2_model_ready},
    {SRV_GET, "/v2/models/{name}/config", SRV_BODY_NONE, .handle = srv_get_v2_model_config},
    {SRV_GET, "/v2/models/{name}/stats", SRV_BODY_NONE, .handle = srv_get_v2_model_stats},
    {SRV_POST, "/v2/models/{name}/infer", SRV_BODY_TENSORS, .parse = srv_parse_v2_infer},
    {SRV_GET, "/v2/models/{name}/versions/1", SRV_BODY_NONE, .handle = srv_get_v2_model},
    {SRV_GET, "/v2/models/{name}/versions/1/ready", SRV_BODY_NONE,
     .handle = srv_get_v2_model_ready},
    {SRV_GET, "/v2/models/{name}/versions/1/config", SRV_BODY_NONE,
     .handle = srv_get_v2_model_config},
    {SRV_GET, "/v2/models/{name}/versions/1/stats", SRV_BODY_NONE,
     .handle = srv_get_v2_model_stats},
    {SRV_POST, "/v2/models/{name}/versions/1/infer", SRV_BODY_TENSORS, .parse = srv_parse_v2_infer},
    {SRV_POST, "/v2/repository/index", SRV_BODY_OPTIONAL, .handle = srv_post_v2_index},
    {SRV_POST, "/v2/repository/models/{name}/load", SRV_BODY_OPTIONAL, .handle = srv_post_v2_load},
    {SRV_POST, "/v2/repository/models/{name}/unload", SRV_BODY_OPTIONAL,
     .handle = srv_post_v2_load},
};

const struct srv_routes srv_routes = {.items = table, .count = sizeof table / sizeof table[0]};
