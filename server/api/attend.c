/* attend.c: POST /attend: attention over given rows, or, with session_id, a prefill.
 *
 * A body has one of three forms: rows for a layer (self- or cross-attention), query, key and value
 * without weights, or either of them for a session.  The first two are computed here, as a whole.
 * The third becomes one item of a job, as in /decode (steps.c). */

#include "api/endpoints.h"
#include "app.h"
#include "schedule/steps.h"
#include "wire/outputs.h"

/* ---- The reply ---- */

static void write_attend(const struct srv_job *job, struct srv_buffer *out)
{
    srv_buffer_text(out, "{\"model\":");
    srv_model_write_name(out, job->model);
    srv_buffer_number(out, ",\"layer\":", (uint64_t)job->call.layer);
    srv_outputs_write(out, &job->outputs, &job->sizes, job->request->binary);
    srv_buffer_text(out, "}");
}

static void write_prefill(const struct srv_job *job, struct srv_buffer *out)
{
    srv_buffer_text(out, "{\"model\":");
    srv_model_write_name(out, job->items[0].model);
    srv_buffer_text(out, ",");
    srv_item_write(out, &job->items[0]);
    srv_buffer_text(out, "}");
}

/* The rows that keys are projected from; not present for self-attention. */
static const struct srv_tensor *key_rows(const struct srv_rows *rows)
{
    return rows->encoder_hidden_states.present ? &rows->encoder_hidden_states
                                               : &rows->key_hidden_states;
}

/* ---- Computing, by the engine thread ---- */

static const struct srv_job_stage *compute_layer(struct srv_job *job)
{
    struct srv_app *app = job->request->app;
    const struct srv_rows *rows = &job->call.rows;
    const struct srv_tensor *keys = key_rows(rows);
    struct attn_error cause;
    struct attn_attend_args args = {
        .batch = job->sizes.batch,
        .queries = job->sizes.queries,
        .keys = job->sizes.keys,
        .hidden_states = rows->hidden_states.f32,
        .key_hidden_states = keys->f32,
        .value_hidden_states = rows->value_hidden_states.f32,
        .modifiers = job->modifiers,
        .outputs = job->outputs,
        .yield = job->yield,
    };
    if (attn_attend(app->engine, job->model->attn, (size_t)job->call.layer, &args, &cause) !=
        ATTN_OK)
        srv_fail_attn(&job->error, &cause);
    return NULL;
}

static const struct srv_job_stage *compute_weightless(struct srv_job *job)
{
    struct srv_app *app = job->request->app;
    const struct srv_rows *rows = &job->call.rows;
    struct attn_error cause;
    struct attn_core_args args = {
        .batch = job->sizes.batch,
        .queries = job->sizes.queries,
        .keys = job->sizes.keys,
        .num_heads = job->sizes.num_heads,
        .num_kv_heads = job->sizes.num_kv_heads,
        .head_dim = job->sizes.head_dim,
        .value_head_dim = job->sizes.value_head_dim,
        .query = rows->query.f32,
        .key = rows->key.f32,
        .value = rows->value.f32,
        .modifiers = job->modifiers,
        .outputs = job->outputs,
        .yield = job->yield,
    };
    args.outputs.key = args.outputs.value = NULL;
    if (attn_core(app->engine, &args, &cause) != ATTN_OK)
        srv_fail_attn(&job->error, &cause);
    if (job->outputs.key != NULL) /* beside past_key: all keys, as ONNX's present_key */
        memcpy(job->outputs.key, rows->key.data, rows->key.count * sizeof(float));
    if (job->outputs.value != NULL)
        memcpy(job->outputs.value, rows->value.data, rows->value.count * sizeof(float));
    return NULL;
}

static const struct srv_job_stage layer_stage = {SRV_QUEUE_ATTENDS, .run = compute_layer};
static const struct srv_job_stage weightless_stage = {SRV_QUEUE_ATTENDS, .run = compute_weightless};
static const struct srv_job_type attend_type = {.encode = write_attend};
static const struct srv_job_type prefill_type = {.encode = write_prefill};

/* ---- Reading ---- */

/* Reads modifiers and outputs of a body whose sizes are known, and estimates the computation. */
static enum srv_error_code finish_attend(struct srv_job *job, struct srv_error *error)
{
    struct srv_request *request = job->request;
    struct srv_sizes *sizes = &job->sizes;
    const size_t tokens = sizes->queries > sizes->keys ? sizes->queries : sizes->keys;
    sizes->map_datatype = job->call.rows.map_datatype;
    job->rows = sizes->batch * sizes->queries;
    job->work = srv_attend_work(job);
    job->size = (struct attn_call_size){.rows = sizes->batch * tokens, .tokens = tokens};
    if (job->model == NULL) /* rows are floats of keys */
        job->size.rows *= sizes->num_kv_heads * (sizes->head_dim + sizes->value_head_dim);
    if (srv_modifiers_read(&job->modifiers, &job->call.rows, sizes, &request->arena, error) !=
            SRV_OK ||
        srv_reply_reserve(request, 1, error) != SRV_OK)
        return error->code;
    return srv_outputs_alloc(&job->outputs, &job->call.rows, sizes, request, error);
}

/* Reads the rows of keys or of values, which have as many sequences as hidden_states. */
static enum srv_error_code read_source(size_t *tokens, const struct srv_job *job,
                                       const struct srv_tensor *tensor, const char *param,
                                       size_t width, struct srv_error *error)
{
    size_t batch;
    bool batched;
    enum srv_error_code code =
        srv_shape_rows(&batch, tokens, &batched, tensor, param, width, error);
    if (code == SRV_OK && (batched != job->sizes.batched || batch != job->sizes.batch))
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, param,
                        "%s and hidden_states hold different batches", param);
    return code;
}

static enum srv_error_code read_keys_and_values(struct srv_job *job,
                                                const struct attn_layer_spec *spec,
                                                struct srv_error *error)
{
    const struct srv_rows *rows = &job->call.rows;
    bool encoder = rows->encoder_hidden_states.present;
    const char *param = encoder ? "encoder_hidden_states" : "key_hidden_states";
    const struct srv_tensor *keys = key_rows(rows);
    size_t values = 0;
    if (!keys->present) {
        job->sizes.keys = job->sizes.queries;
        return SRV_OK;
    }
    enum srv_error_code code =
        read_source(&job->sizes.keys, job, keys, param, spec->key_size, error);
    if (code != SRV_OK || !rows->value_hidden_states.present)
        return code;
    code = read_source(&values, job, &rows->value_hidden_states, "value_hidden_states",
                       spec->value_size, error);
    if (code == SRV_OK && values != job->sizes.keys)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, "value_hidden_states",
                        "%zu value rows for %zu key rows", values, job->sizes.keys);
    return code;
}

static enum srv_error_code read_layer_rows(struct srv_job *job, struct srv_error *error)
{
    const struct srv_rows *rows = &job->call.rows;
    const struct attn_layer_spec *spec = NULL;
    job->stage = &layer_stage;
    if (srv_models_find(&job->model, job->context->models, job->call.model, error) != SRV_OK ||
        srv_job_find_layer(&spec, job, job->model, error) != SRV_OK ||
        srv_field_rules_check(rows, key_rows(rows)->present ? SRV_FORM_CROSS : SRV_FORM_SELF, spec,
                              error) != SRV_OK)
        return error->code;
    job->sizes = srv_sizes_of_layer(spec);
    if (srv_shape_rows(&job->sizes.batch, &job->sizes.queries, &job->sizes.batched,
                       &rows->hidden_states, "hidden_states", spec->hidden_size, error) != SRV_OK ||
        read_keys_and_values(job, spec, error) != SRV_OK ||
        srv_sizes_check(&job->sizes, job->request->limits, "hidden_states", "key_hidden_states",
                        error) != SRV_OK)
        return error->code;
    job->sizes.columns = attn_weight_columns(spec, job->sizes.keys);
    return finish_attend(job, error);
}

static enum srv_error_code read_weightless(struct srv_job *job, struct srv_error *error)
{
    struct srv_rows *rows = &job->call.rows;
    job->stage = &weightless_stage;
    if (srv_field_rules_check(rows, SRV_FORM_WEIGHTLESS, NULL, error) != SRV_OK ||
        srv_shape_given_rows(&job->sizes, rows, error) != SRV_OK ||
        srv_shape_join_past(&job->sizes, rows, &job->request->arena, error) != SRV_OK ||
        srv_sizes_check(&job->sizes, job->request->limits, "query", "key", error) != SRV_OK)
        return error->code;
    return finish_attend(job, error);
}

enum srv_error_code srv_attend_prepare(struct srv_job *job, struct srv_error *error)
{
    const struct srv_rows *rows = &job->call.rows;
    if (rows->session_id != NULL)
        return srv_job_prepare_single(job, error);
    if (srv_job_check_session_header(job, NULL, error) != SRV_OK)
        return error->code;
    return rows->query.present ? read_weightless(job, error) : read_layer_rows(job, error);
}

enum srv_error_code srv_parse_attend(struct srv_request *request, struct srv_error *error)
{
    struct srv_job *job =
        srv_job_new(sizeof *job, &attend_type, request, &request->app->scheduler_context, error);
    if (job == NULL || srv_job_read(job, SRV_CALL_ATTEND, error) != SRV_OK)
        return error->code;
    if (job->call.rows.session_id != NULL)
        job->type = &prefill_type;
    request->job = job;
    return srv_attend_prepare(job, error);
}
