/* attend.c: POST /attend: attention over given rows, or, with session_id, a prefill.
 *
 * A body has one of three forms: rows for a layer (self- or cross-attention), query, key and value
 * without weights, or either of them for a session.  The first two are computed here, as a whole.
 * The third becomes one item of a job, as in /decode (steps.c). */
#include <string.h>

#include "api/endpoints.h"
#include "app.h"
#include "schedule/job.h"
#include "schedule/steps.h"
#include "wire/field_rules.h"
#include "wire/outputs.h"

/* ---- The reply ---- */

static void write_attend(const struct srv_job *job, struct srv_buffer *out)
{
    srv_buffer_text(out, "{\"model\":");
    srv_model_write_name(out, job->model);
    srv_buffer_text(out, ",\"layer\":");
    srv_buffer_unsigned(out, (uint64_t)job->call.layer, 1);
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

/* ---- Computing, by the engine owner ---- */

static void compute_layer(struct srv_job *job)
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
}

static void compute_weightless(struct srv_job *job)
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
}

static const struct srv_job_type layer_type = {.compute = compute_layer, .encode = write_attend};
static const struct srv_job_type weightless_type = {.compute = compute_weightless,
                                                    .encode = write_attend};
static const struct srv_job_type prefill_type = {.encode = write_prefill};

/* ---- Reading ---- */

/* Reads modifiers and outputs of a body whose sizes are known. */
static enum srv_error_code finish_attend(struct srv_job *job, struct srv_error *error)
{
    struct srv_request *request = job->request;
    job->sizes.map_datatype = job->call.rows.map_datatype;
    enum srv_error_code code =
        srv_modifiers_read(&job->modifiers, &job->call.rows, &job->sizes, &request->arena, error);
    if (code == SRV_OK)
        code = srv_reply_reserve(request, 1, error);
    if (code == SRV_OK)
        code = srv_outputs_alloc(&job->outputs, &job->call.rows, &job->sizes, request, error);
    return code;
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
    enum srv_error_code code = srv_job_find_model(&job->model, job, error);
    if (code == SRV_OK)
        code = srv_job_find_layer(&spec, job, job->model, error);
    if (code == SRV_OK)
        code = srv_field_rules_check(rows, key_rows(rows)->present ? SRV_FORM_CROSS : SRV_FORM_SELF,
                                     spec, error);
    if (code != SRV_OK)
        return code;
    job->sizes = srv_sizes_of_layer(spec);
    job->type = &layer_type;
    code = srv_shape_rows(&job->sizes.batch, &job->sizes.queries, &job->sizes.batched,
                          &rows->hidden_states, "hidden_states", spec->hidden_size, error);
    if (code == SRV_OK)
        code = read_keys_and_values(job, spec, error);
    if (code == SRV_OK)
        code = srv_sizes_check(&job->sizes, job->request->limits, "hidden_states",
                               "key_hidden_states", error);
    job->sizes.columns = attn_weight_columns(spec, job->sizes.keys);
    return code == SRV_OK ? finish_attend(job, error) : code;
}

static enum srv_error_code read_weightless(struct srv_job *job, struct srv_error *error)
{
    struct srv_rows *rows = &job->call.rows;
    job->type = &weightless_type;
    enum srv_error_code code = srv_field_rules_check(rows, SRV_FORM_WEIGHTLESS, NULL, error);
    if (code == SRV_OK)
        code = srv_shape_given_rows(&job->sizes, rows, error);
    if (code == SRV_OK)
        code = srv_shape_join_past(&job->sizes, rows, &job->request->arena, error);
    if (code == SRV_OK)
        code = srv_sizes_check(&job->sizes, job->request->limits, "query", "key", error);
    return code == SRV_OK ? finish_attend(job, error) : code;
}

enum srv_error_code srv_attend_prepare(struct srv_job *job, struct srv_error *error)
{
    const struct srv_rows *rows = &job->call.rows;
    enum srv_error_code code = SRV_OK;
    if (rows->session_id == NULL)
        code = srv_job_check_session_header(job, NULL, error);
    if (code != SRV_OK)
        return code;
    if (rows->session_id == NULL)
        return rows->query.present ? read_weightless(job, error) : read_layer_rows(job, error);
    job->type = &prefill_type;
    return srv_job_prepare_single(job, error);
}

enum srv_error_code srv_parse_attend(struct srv_request *request, struct srv_error *error)
{
    struct srv_job *job;
    enum srv_error_code code =
        srv_job_read(&job, request, SRV_CALL_ATTEND, &request->app->scheduler_context, error);
    if (code != SRV_OK)
        return code;
    request->job = job;
    return srv_attend_prepare(job, error);
}
