/* routes.c: the route table and nothing else. */
#include "api/endpoints.h"

#define BYTES "application/octet-stream"

/* Probes. */
#define OPEN .access = SRV_FOR_ALL, .while_draining = true
#define IS_ALIVE .handle = srv_get_health, OPEN
#define ALIVE "200 while the daemon answers", .reply = "Health"
#define IS_READY .handle = srv_get_ready, OPEN
#define READY                                                \
    "200 while ready; 503 while loading, stalled, stopping", \
        .reply = "Ready", .errors = "loading storage_stalled lame_duck draining"

/* Routes of a model of the Open Inference Protocol, with its version or without. */
#define ROW(...)    \
    {               \
        __VA_ARGS__ \
    }
#define V2_GET(path, handler, ...)                            \
    ROW(SRV_GET, "/v2/models/{name}" path, .handle = handler, \
        .doc = {__VA_ARGS__, .errors = "model_not_found"})
#define V2_MODEL(version, id)                                                           \
    V2_GET(version, srv_get_v2_model, "getV2Model" id, "Inputs and outputs of a model", \
           .reply = "V2Model"),                                                         \
        V2_GET(version "/ready", srv_get_v2_model_ready, "getV2ModelReady" id,          \
               "200 where there is such a model", .reply = "V2ModelReady"),             \
        V2_GET(version "/config", srv_get_v2_model_config, "getV2ModelConfig" id,       \
               "The configuration of a model", .reply = "V2Config"),                    \
        V2_GET(version "/stats", srv_get_v2_model_stats, "getV2ModelStatistics" id,     \
               "Statistics of a model", .reply = "V2Statistics"),                       \
        ROW(SRV_POST, "/v2/models/{name}" version "/infer", SRV_BODY_TENSORS,           \
            .parse = srv_parse_v2_infer,                                                \
            .doc = {"inferV2" id,                                                       \
                    "Attention over inputs; with sequence_id, a step over a session",   \
                    .request = "V2InferRequest", .reply = "V2InferReply"})

static const struct srv_route table[] = {
    {SRV_POST, "/attend", SRV_BODY_TENSORS, .parse = srv_parse_attend,
     .doc = {"attend", "Attention over given rows; with session_id, a prefill",
             .request = "AttendRequest", .reply = "AttendReply"}},
    {SRV_POST, "/decode", SRV_BODY_TENSORS, .parse = srv_parse_decode,
     .doc = {"decode", "One step over a session, or one over each of many",
             .request = "DecodeRequest", .reply = "DecodeReply"}},

    {SRV_PUT, "/inputs/{digest}", SRV_BODY_OPTIONAL_TENSORS, .parse = srv_parse_input,
     .doc = {"keepInput", "Keeps rows that calls then name", .request = "FloatTensor",
             .reply = "Input", .errors = "shape_mismatch non_finite_input unsupported"}},
    {SRV_GET, "/inputs/{digest}", .handle = srv_get_input,
     .doc = {"getInput", "Whether rows of this digest are kept", .reply = "Input",
             .errors = "input_not_found"}},

    {SRV_POST, "/sessions", SRV_BODY_OPTIONAL_TENSORS, .parse = srv_parse_create,
     .fields = &srv_create_fields,
     .doc = {"createSession", "Creates a session", 201, "CreateRequest", "Session",
             .errors = "model_not_found unsupported shape_mismatch non_finite_input "
                       "too_many_tokens numeric_overflow",
             .parameters = "Idempotency-Key"}},
    {SRV_GET, "/sessions", .handle = srv_get_sessions, .is_long = srv_sessions_are_long,
     .access = SRV_FOR_ADMIN,
     .doc = {"listSessions", "Lists sessions in the order of their ids", .reply = "SessionPage",
             .parameters = "after limit details"}},
    {SRV_POST, "/sessions/batch", SRV_BODY_OPTIONAL, .parse = srv_parse_batch,
     .fields = &srv_batch_fields,
     .doc = {"changeSessions", "Forks and ends several sessions", .request = "BatchRequest",
             .reply = "BatchReply", .errors = "session_lost", .parameters = "Idempotency-Key"}},
    {SRV_GET, "/sessions/{id}", .handle = srv_get_session, .access = SRV_FOR_OWNER,
     .doc = {"getSession", "One session", .reply = "Session", .parameters = "owner"}},
    {SRV_DELETE, "/sessions/{id}", SRV_BODY_IGNORED, .parse = srv_parse_delete,
     .access = SRV_FOR_OWNER,
     .doc = {"deleteSession", "Ends a session", 204, .errors = "epoch_mismatch revision_mismatch",
             .parameters = "owner epoch revision"}},
    {SRV_POST, "/sessions/{id}/fork", SRV_BODY_OPTIONAL, .parse = srv_parse_fork,
     .fields = &srv_fork_fields,
     .doc = {"forkSession", "Makes a session that goes on from this one", 201, "ForkRequest",
             "Session", .parameters = "Idempotency-Key"}},
    {SRV_POST, "/sessions/{id}/truncate", SRV_BODY_OPTIONAL, .parse = srv_parse_truncate,
     .fields = &srv_truncate_fields,
     .doc = {"truncateSession", "Rolls a session back", .request = "TruncateRequest",
             .reply = "Session"}},
    {SRV_POST, "/sessions/{id}/prefetch", SRV_BODY_IGNORED, .parse = srv_parse_prefetch,
     .doc = {"prefetchSession", "Brings a session's tokens into memory", .reply = "Session"}},
    {SRV_GET, "/sessions/{id}/state", .parse = srv_parse_export, .type = BYTES,
     .doc = {"exportSession", "A session as a safetensors file", .errors = "reply_too_large"}},
    {SRV_PUT, "/sessions/{id}/state", SRV_BODY_BYTES, .parse = srv_parse_import,
     .doc = {"importSession", "Makes a session from a safetensors file", 201, .reply = "Session",
             .errors = "model_not_found unsupported"}},

    {SRV_POST, "/snapshot", .handle = srv_post_snapshot, .access = SRV_FOR_ADMIN,
     .doc = {"requestSnapshot", "Asks for all sessions to be written to disk", 202,
             .reply = "Snapshot", .errors = "unsupported"}},
    {SRV_GET, "/snapshot", .handle = srv_get_snapshot, .access = SRV_FOR_ADMIN,
     .doc = {"getSnapshot", "How far writing all sessions to disk is", .reply = "Snapshot",
             .errors = "unsupported"}},

    {SRV_POST, "/admin/drain", .handle = srv_post_drain, .access = SRV_FOR_ADMIN,
     .doc = {"drain", "Stops the daemon, as SIGTERM does", 202, .reply = "Stopping"}},

    {SRV_GET, "/models", .handle = srv_get_models, .slash = true,
     .doc = {"listModels", "All models, as they were resolved", .reply = "ModelList"}},
    {SRV_GET, "/models/{name}", .handle = srv_get_model,
     .doc = {"getModel", "One model", .reply = "Model", .errors = "model_not_found"}},

    {SRV_GET, "/openapi.json", .handle = srv_get_openapi, .is_long = srv_openapi_is_long,
     .access = SRV_FOR_ANY_KEY,
     .doc = {"getOpenapi", "This description of the interface", .reply = "OpenapiDocument"}},

    {SRV_GET, "/healthz", IS_ALIVE, .doc = {"getHealthz", ALIVE}},
    {SRV_GET, "/health", IS_ALIVE, .doc = {"getHealth", ALIVE}},
    {SRV_GET, "/livez", IS_ALIVE, .doc = {"getLivez", ALIVE}},
    {SRV_GET, "/readyz", IS_READY, .doc = {"getReadyz", READY}},
    {SRV_GET, "/metrics", .handle = srv_get_metrics, .is_long = srv_metrics_are_long,
     .access = SRV_FOR_METRICS, .while_draining = true, .type = "text/plain",
     .doc = {"getMetrics", "Figures of the daemon in the text form of Prometheus"}},

#ifndef SRV_NO_UI /* make UI=0 */
    {SRV_GET, "/", .handle = srv_get_page, OPEN, .type = "text/html",
     .doc = {"getPage", "The attention viewer: a page for a browser"}},
    {SRV_GET, "/ui/{file}", .handle = srv_get_page_file, OPEN,
     .type = "text/javascript text/css text/plain image/svg+xml application/octet-stream",
     .doc = {"getPageFile", "A file that the page loads", .errors = "route_not_found"}},
#endif

    /* The Open Inference Protocol: the first row whose path matches counts. */
    {SRV_GET, "/v2", .handle = srv_get_v2, .slash = true,
     .doc = {"getV2", "The server: name, version, extensions", .reply = "V2Server"}},
    {SRV_GET, "/v2/health/live", IS_ALIVE, .doc = {"getV2Live", ALIVE}},
    {SRV_GET, "/v2/health/ready", IS_READY, .doc = {"getV2Ready", READY}},
    {SRV_GET, "/v2/models/stats", .handle = srv_get_v2_stats, .is_long = srv_v2_is_long,
     .doc = {"getV2Statistics", "Statistics of all models", .reply = "V2Statistics"}},
    V2_MODEL("", ""),
    V2_MODEL("/versions/1", "OfVersion"),
    {SRV_POST, "/v2/repository/index", SRV_BODY_IGNORED, .handle = srv_post_v2_index,
     .is_long = srv_v2_is_long, .doc = {"indexV2", "The names of all models", .reply = "V2Index"}},
    {SRV_POST, "/v2/repository/models/{name}/load", SRV_BODY_IGNORED, .handle = srv_post_v2_load,
     .doc = {"loadV2", "400: models are configured", .reply = "V2ModelReady"}},
    {SRV_POST, "/v2/repository/models/{name}/unload", SRV_BODY_IGNORED, .handle = srv_post_v2_load,
     .doc = {"unloadV2", "400: models are configured", .reply = "V2ModelReady"}},
};

const struct srv_routes srv_routes = {.items = table, .count = sizeof table / sizeof table[0]};

#ifdef SRV_NO_UI
const bool srv_has_page = false;
#else
const bool srv_has_page = true;
#endif
