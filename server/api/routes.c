/* routes.c: the route table and nothing else. */
#include "api/endpoints.h"

#define BYTES "application/octet-stream"

static const struct srv_route table[] = {
    {SRV_POST, "/attend", SRV_BODY_TENSORS, .parse = srv_parse_attend,
     .doc = {"attend", "Attention over given rows; with session_id, a prefill",
             .request = "AttendRequest", .reply = "AttendReply"}},
    {SRV_POST, "/decode", SRV_BODY_TENSORS, .parse = srv_parse_decode,
     .doc = {"decode", "One step over a session, or one over each of many",
             .request = "DecodeRequest", .reply = "DecodeReply"}},

    {SRV_POST, "/sessions", SRV_BODY_OPTIONAL, .parse = srv_parse_create,
     .fields = &srv_create_fields,
     .doc = {"createSession", "Creates a session", 201, "CreateRequest", "Session",
             .errors = "model_not_found unsupported", .parameters = "Idempotency-Key"}},
    {SRV_GET, "/sessions", SRV_BODY_NONE, .handle = srv_get_sessions, .access = SRV_FOR_ADMIN,
     .doc = {"listSessions", "Lists sessions in the order of their ids", .reply = "SessionPage",
             .errors = "unknown_field duplicate_field", .parameters = "after limit"}},
    {SRV_GET, "/sessions/{id}", SRV_BODY_NONE, .handle = srv_get_session, .access = SRV_FOR_OWNER,
     .doc = {"getSession", "One session", .reply = "Session", .parameters = "owner"}},
    {SRV_DELETE, "/sessions/{id}", SRV_BODY_IGNORED, .parse = srv_parse_delete,
     .access = SRV_FOR_OWNER,
     .doc = {"deleteSession", "Ends a session", 204, .parameters = "owner"}},
    {SRV_POST, "/sessions/{id}/fork", SRV_BODY_OPTIONAL, .parse = srv_parse_fork,
     .fields = &srv_fork_fields,
     .doc = {"forkSession", "Makes a session that goes on from this one", 201, "ForkRequest",
             "Session", .parameters = "Idempotency-Key"}},
    {SRV_POST, "/sessions/{id}/truncate", SRV_BODY_OPTIONAL, .parse = srv_parse_truncate,
     .fields = &srv_truncate_fields,
     .doc = {"truncateSession", "Rolls a session back", .request = "TruncateRequest",
             .reply = "Session"}},
    {SRV_GET, "/sessions/{id}/state", SRV_BODY_NONE, .parse = srv_parse_export, .type = BYTES,
     .doc = {"exportSession", "A session as a safetensors file", .errors = "reply_too_large"}},
    {SRV_PUT, "/sessions/{id}/state", SRV_BODY_BYTES, .parse = srv_parse_import,
     .doc = {"importSession", "Makes a session from a safetensors file", 201, .reply = "Session",
             .errors = "model_not_found unsupported"}},

    {SRV_POST, "/snapshot", SRV_BODY_NONE, .handle = srv_post_snapshot, .access = SRV_FOR_ADMIN,
     .doc = {"requestSnapshot", "Asks for all sessions to be written to disk", 202,
             .reply = "Snapshot", .errors = "unsupported"}},
    {SRV_GET, "/snapshot", SRV_BODY_NONE, .handle = srv_get_snapshot, .access = SRV_FOR_ADMIN,
     .doc = {"getSnapshot", "How far writing all sessions to disk is", .reply = "Snapshot",
             .errors = "unsupported"}},

    {SRV_GET, "/models", SRV_BODY_NONE, .handle = srv_get_models, .slash = true,
     .doc = {"listModels", "All models, as they were resolved", .reply = "ModelList"}},
    {SRV_GET, "/models/{name}", SRV_BODY_NONE, .handle = srv_get_model,
     .doc = {"getModel", "One model", .reply = "Model", .errors = "model_not_found"}},

    {SRV_GET, "/openapi.json", SRV_BODY_NONE, .handle = srv_get_openapi, .access = SRV_FOR_ANY_KEY,
     .doc = {"getOpenapi", "This description of the interface", .reply = "OpenapiDocument"}},

    {SRV_GET, "/healthz", SRV_BODY_NONE, .handle = srv_get_health, .access = SRV_FOR_ALL,
     .while_draining = true,
     .doc = {"getHealthz", "200 while the daemon answers", .reply = "Health"}},
    {SRV_GET, "/health", SRV_BODY_NONE, .handle = srv_get_health, .access = SRV_FOR_ALL,
     .while_draining = true,
     .doc = {"getHealth", "200 while the daemon answers", .reply = "Health"}},
    {SRV_GET, "/livez", SRV_BODY_NONE, .handle = srv_get_health, .access = SRV_FOR_ALL,
     .while_draining = true,
     .doc = {"getLivez", "200 while the daemon answers", .reply = "Health"}},
    {SRV_GET, "/readyz", SRV_BODY_NONE, .handle = srv_get_ready, .access = SRV_FOR_ALL,
     .while_draining = true,
     .doc = {"getReadyz", "200 while requests are served; 503 while loading or draining",
             .reply = "Ready", .errors = "loading draining"}},
    {SRV_GET, "/metrics", SRV_BODY_NONE, .handle = srv_get_metrics, .access = SRV_FOR_METRICS,
     .while_draining = true, .type = "text/plain",
     .doc = {"getMetrics", "Figures of the daemon in the text form of Prometheus"}},
};

const struct srv_routes srv_routes = {.items = table, .count = sizeof table / sizeof table[0]};
