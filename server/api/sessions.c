/* sessions.c: POST /sessions, GET and DELETE of /sessions/{id}.
 *
 * The engine thread creates and deletes sessions, since both are recorded in the journal, and may
 * wait for the disk.  GET is answered on an event thread. */
#include "api/sessions.h"
#include "api/endpoints.h"
#include "app.h"
#include "session/weightless.h"

/* ---- POST ------------------------------------------------------------------------------------ */

struct create_call {
    const char *session_id, *model; /* NULL: not given */
    size_t max_length, ttl_s;       /* 0: not given */
    bool shared;
    /* Of a session without weights; 0 or NULL: not given. */
    size_t num_attention_heads, num_key_value_heads, head_dim, value_head_dim, num_hidden_layers;
    size_t sliding_window;
    double scale, softcap;
    const char *kv_dtype;
    /* Of a session of cross-attention. */
    struct srv_tensor encoder_hidden_states, encoder_padding_mask;
};

#define OF_SHAPE .needs = "num_attention_heads", .meaning = "of a session without weights"

static const struct srv_document_field create_fields[] = {
    SRV_TEXT_FIELD(create_call, session_id, .meaning = "the id; made by attnd where not given"),
    SRV_TEXT_FIELD(create_call, model, .meaning = "the model, for good; default the only one"),
    SRV_COUNT_FIELD(create_call, max_length, 1,
                    .meaning = "tokens; default and most is the model's max_length"),
    SRV_COUNT_FIELD(create_call, ttl_s, 1,
                    .meaning = "seconds without a step after which the session expires"),
    SRV_FLAG_FIELD(create_call, shared, .meaning = "every API key finds the session"),
    SRV_COUNT_FIELD(create_call, num_attention_heads, 1, .needs = "head_dim",
                    .meaning = "a session without weights, for query, key and value"),
    SRV_COUNT_FIELD(create_call, num_key_value_heads, 1, OF_SHAPE "; default num_attention_heads"),
    SRV_COUNT_FIELD(create_call, head_dim, 1, OF_SHAPE),
    SRV_COUNT_FIELD(create_call, value_head_dim, 1, OF_SHAPE "; default head_dim"),
    SRV_COUNT_FIELD(create_call, num_hidden_layers, 1, OF_SHAPE "; default 1, at most 256"),
    SRV_TEXT_FIELD(create_call, kv_dtype, OF_SHAPE ": " ATTN_KV_DTYPE_WORDS "; default f32"),
    SRV_NUMBER_FIELD(create_call, scale, OF_SHAPE "; default 1/sqrt(head_dim)"),
    SRV_NUMBER_FIELD(create_call, softcap, OF_SHAPE "; default none"),
    SRV_COUNT_FIELD(create_call, sliding_window, 1, OF_SHAPE "; default none"),
    SRV_TENSOR_FIELD(create_call, encoder_hidden_states, SRV_FLOATS, .shapes = "[S,Ek]",
                     .meaning = "the encoder's rows, which a session of cross-attention keeps"),
    SRV_TENSOR_FIELD(create_call, encoder_padding_mask, SRV_BOOLS, .shapes = "[S] [1,S]",
                     .needs = "encoder_hidden_states",
                     .meaning = "1: a real encoder row; 0: the session leaves the row out"),
};
const struct srv_document_table srv_create_fields = {
    .fields = create_fields, .count = sizeof create_fields / sizeof create_fields[0]};

struct create {
    struct srv_job job;            /* first, so that a job is cast to its create */
    const struct srv_model *model; /* NULL: without weights, of this shape */
    struct attn_weightless_options shape;
    struct srv_session_options options;
};

static enum srv_error_code read_shape(struct attn_weightless_options *out,
                                      const struct create_call *call, struct srv_error *error)
{
    *out = (struct attn_weightless_options){.num_heads = call->num_attention_heads,
                                            .num_kv_heads = call->num_key_value_heads,
                                            .head_dim = call->head_dim,
                                            .value_head_dim = call->value_head_dim,
                                            .num_layers = call->num_hidden_layers,
                                            .scale = call->scale,
                                            .softcap = call->softcap,
                                            .sliding_window = call->sliding_window};
    if (call->model != NULL)
        return srv_fail(error, SRV_E_INVALID_VALUE, "num_attention_heads",
                        "num_attention_heads cannot stand beside model, which has its shape");
    if (call->kv_dtype != NULL && !attn_dtype_find(&out->kv_dtype, call->kv_dtype))
        return srv_fail(error, SRV_E_INVALID_VALUE, "kv_dtype",
                        "kv_dtype must be " ATTN_KV_DTYPE_WORDS);
    return SRV_OK;
}

/* Finds what the session is made of: a shape, or a model, with an encoder's rows or without. */
static enum srv_error_code read_kind(struct create *create, const struct create_call *call,
                                     struct srv_error *error)
{
    bool weightless = call->num_attention_heads > 0; /* fields of a shape require it */
    bool encoded = call->encoder_hidden_states.present;
    const struct srv_models *models = &create->job.request->app->models;
    if (weightless && encoded)
        return srv_fail(error, SRV_E_INVALID_VALUE, "encoder_hidden_states",
                        "encoder_hidden_states cannot stand beside num_attention_heads");
    if (weightless)
        return read_shape(&create->shape, call, error);
    if (srv_models_find(&create->model, models, call->model, error) != SRV_OK)
        return error->code;
    if (create->model->is_cross && !encoded)
        return srv_fail(error, SRV_E_UNSUPPORTED, "encoder_hidden_states",
                        "a session of cross-attention starts with encoder_hidden_states");
    return SRV_OK;
}

/* On a compute thread: takes over what the body asks for.  Its texts outlive the tree. */
static enum srv_error_code read_call(struct create *create, const struct create_call *call,
                                     struct srv_error *error)
{
    struct srv_request *request = create->job.request;
    const char *id = call->session_id != NULL ? call->session_id : "";
    create->options.id = call->session_id;
    create->options.max_length = call->max_length;
    create->options.ttl_s = call->ttl_s;
    create->options.shared = call->shared;
    if (srv_session_check_header(request, id, error) != SRV_OK ||
        read_kind(create, call, error) != SRV_OK ||
        srv_session_keep_id(&create->options.id, request, error) != SRV_OK ||
        !call->encoder_hidden_states.present)
        return error->code;
    create->job.call.rows.encoder_hidden_states = call->encoder_hidden_states;
    create->job.call.rows.encoder_padding_mask = call->encoder_padding_mask;
    create->job.finish = &srv_reply_made_stage;
    if (srv_job_reserve_reply(request, srv_session_text_bytes(create->model), error) != SRV_OK)
        return error->code;
    return srv_encoding_prepare(&create->job, create->model, &create->options, error);
}

/* Makes a session without encoder rows; one without weights takes its model by its shape. */
static enum srv_error_code make_session(struct srv_session **out, const struct create *create,
                                        struct srv_error *error)
{
    struct srv_request *request = create->job.request;
    struct srv_app *app = request->app;
    const struct srv_model *model = create->model;
    if (model == NULL &&
        srv_weightless_get(&model, app->models.weightless, &create->shape, error) != SRV_OK)
        return error->code;
    if (srv_job_reserve_reply(request, srv_session_text_bytes(model), error) == SRV_OK)
        srv_session_create(out, app->sessions, model, &create->options, error);
    if (create->model == NULL)
        srv_model_put(model); /* the session holds it */
    return error->code;
}

/* Creates the session and records that in the journal, unless the same request, by its
 * Idempotency-Key, has created it before. */
static const struct srv_job_stage *create_session(struct srv_job *job)
{
    const struct create *create = (const struct create *)job;
    struct srv_app *app = job->request->app;
    srv_session_find_by_idempotency_key(&job->session, app->sessions, &create->options,
                                        &job->error);
    job->replayed = job->session != NULL;
    if (!job->replayed && job->error.code == SRV_OK &&
        make_session(&job->session, create, &job->error) == SRV_OK &&
        srv_store_create(app->store, job->session, &job->error) != SRV_OK)
        srv_session_remove(app->sessions, job->session);
    return &srv_reply_made_stage;
}

static const struct srv_job_stage create_stage = {SRV_QUEUE_CHANGES, .any_time = true,
                                                  .run = create_session};
static const struct srv_job_type session_type = {.encode = NULL};

enum srv_error_code srv_parse_create(struct srv_request *request, struct srv_error *error)
{
    json_t *document = NULL;
    struct srv_body body;
    struct create_call call = {0};
    struct create *create = srv_job_new(sizeof *create, &session_type, request,
                                        &request->app->scheduler_context, error);
    if (create == NULL)
        return error->code;
    create->job.stage = &create_stage;
    srv_session_set_owner(&create->options, request);
    srv_session_set_idempotency_key(&create->options, request); /* of the body as it came */
    if (srv_job_split_body(&body, request, error) == SRV_OK &&
        srv_document_read_tensors(&document, &call, &srv_create_fields, &body, &request->arena,
                                  error) == SRV_OK &&
        srv_document_fields(&call, &srv_create_fields, document, error) == SRV_OK &&
        read_call(create, &call, error) == SRV_OK)
        request->job = &create->job;
    json_decref(document);
    return error->code;
}

/* ---- DELETE ---------------------------------------------------------------------------------- */

static const struct srv_job_stage *delete_session(struct srv_job *job)
{
    struct srv_session *session;
    if (srv_session_of_path(&session, job->request, &job->error) == SRV_OK &&
        srv_session_end(session, job->request, &job->error) == SRV_OK)
        srv_reply_status(job->request, 204);
    srv_session_put(session);
    return NULL;
}

static const struct srv_job_stage delete_stage = {SRV_QUEUE_CHANGES, .any_time = true,
                                                  .run = delete_session};

enum srv_error_code srv_parse_delete(struct srv_request *request, struct srv_error *error)
{
    struct srv_job *job =
        srv_job_new(sizeof *job, &session_type, request, &request->app->scheduler_context, error);
    if (job == NULL)
        return error->code;
    job->stage = &delete_stage;
    request->job = job;
    return srv_session_check_header(request, request->path_arg, error);
}

/* ---- One session ----------------------------------------------------------------------------- */

void srv_get_session(struct srv_request *request)
{
    struct srv_error error = {0};
    struct srv_session *session;
    if (srv_session_of_path(&session, request, &error) == SRV_OK)
        srv_session_reply(request, 200, session, false);
    else
        srv_reply_error(request, &error);
}
