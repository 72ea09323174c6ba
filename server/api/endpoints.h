/* endpoints.h: the route table, the handlers and parsers that it calls, by their files, and what
 * several of them use. */
#ifndef SRV_ENDPOINTS_H
#define SRV_ENDPOINTS_H

#include "attn.h"
#include "wire/document.h"
#include "wire/route.h"
#include <jansson.h>

/* ---- layer_json.c ------------------------------------------------------------------------------
 *
 * A layer's specification as a JSON object, for GET /models and `attnd inspect`. */

/* An object with every member in a fixed order; a feature that the layer does not have is null or
 * false.  The caller's to json_decref.  NULL where memory is short. */
json_t *srv_layer_json(const struct attn_layer_spec *spec);

struct srv_model;
struct srv_models; /* session/models.h */

/* routes.c */
extern const struct srv_routes srv_routes;
extern const bool srv_has_page; /* whether the attention viewer is among them */

/* attend.c, decode.c.  srv_attend_prepare checks a job, whose call was read as a
 * body of /attend, against models and limits, allocates its outputs and sets its type. */
struct srv_job;
enum srv_error_code srv_attend_prepare(struct srv_job *job, struct srv_error *error);
srv_job_parser srv_parse_attend;
srv_job_parser srv_parse_decode;

/* inputs.c */
srv_job_parser srv_parse_input;
srv_handler srv_get_input;

/* sessions.c */
extern const struct srv_document_table srv_create_fields;
srv_job_parser srv_parse_create;
srv_handler srv_get_session;
srv_job_parser srv_parse_delete;

/* session_list.c */
srv_handler srv_get_sessions;
srv_is_long srv_sessions_are_long;

/* session_change.c: the fields of their bodies are the route's */
extern const struct srv_document_table srv_fork_fields, srv_truncate_fields;
srv_job_parser srv_parse_fork;
srv_job_parser srv_parse_truncate;
srv_job_parser srv_parse_prefetch;

/* session_batch.c */
extern const struct srv_document_table srv_batch_fields;
srv_job_parser srv_parse_batch;

/* session_state.c */
srv_job_parser srv_parse_export;
srv_job_parser srv_parse_import;

/* models.c.  srv_models_describe makes the replies, once models are loaded; false where
 * memory is short. */
bool srv_models_describe(struct srv_app *app);
srv_handler srv_get_models;
srv_handler srv_get_model;

/* openapi.c */
srv_handler srv_get_openapi;
srv_is_long srv_openapi_is_long;

/* ops.c */
srv_handler srv_get_health;
srv_handler srv_get_ready;
srv_handler srv_get_metrics;
srv_is_long srv_metrics_are_long;
srv_handler srv_post_drain;
srv_handler srv_post_snapshot;
srv_handler srv_get_snapshot;

/* ui.c */
srv_handler srv_get_page;
srv_handler srv_get_page_file;

/* v2_infer.c, v2_models.c: the Open Inference Protocol */
srv_job_parser srv_parse_v2_infer;
srv_handler srv_get_v2;
srv_handler srv_get_v2_model;
srv_handler srv_get_v2_model_config;
srv_handler srv_get_v2_model_ready;
srv_handler srv_get_v2_model_stats;
srv_handler srv_get_v2_stats;
srv_handler srv_post_v2_index;
srv_handler srv_post_v2_load;
srv_is_long srv_v2_is_long; /* what lists all models */

/* Models of the protocol: each layer is one, NAME.LAYER; NAME is all layers of a model, and
 * `attention` attention without weights. */
#define SRV_V2_VERSION "1" /* of every model */
#define SRV_V2_WEIGHTLESS "attention"

struct srv_v2_model {
    const char *name;              /* as the path has it */
    const struct srv_model *model; /* NULL: weightless */
    bool has_layer;
    size_t layer; /* else 0 */
};

/* Finds a model by its name: one that is configured under the whole of it, else `attention`, else
 * NAME.LAYER with a resident layer.  `name` must outlive *out.  Error: model_not_found. */
enum srv_error_code srv_v2_find(struct srv_v2_model *out, const struct srv_models *models,
                                const char *name, struct srv_error *error);

/* v2_tensors.c: appends the lists of tensors of a layer, or without weights (NULL): those of a
 * model's metadata, or of its configuration. */
void srv_v2_write_inputs(struct srv_buffer *out, const struct attn_layer_spec *spec, bool config);
void srv_v2_write_outputs(struct srv_buffer *out, const struct attn_layer_spec *spec, bool config);

/* ---- embedded.c: replies that are files of the binary ---- */

#define SRV_EMBEDDED_MAX_BYTES (1 << 20) /* of a file, expanded */

struct srv_embedded {
    const char *bytes; /* [length], constant: the file as a member of gzip */
    size_t length;
    const char *type;   /* media type, as Content-Type has it; NULL: application/json */
    const char *fields; /* further header fields, as struct srv_reply has them; or NULL */
};

/* Replies with the file, or with 304 where the client has kept it. */
void srv_reply_embedded(struct srv_request *request, const struct srv_embedded *file);

#endif
