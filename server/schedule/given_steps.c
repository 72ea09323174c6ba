/* given_steps.c: what a step of query, key and value needs beside other steps: its sizes, and a
 * session of the same. */
#include "schedule/given_steps.h"

#include "wire/field_rules.h"

enum srv_error_code srv_given_item_check(struct srv_item *item, struct srv_error *error)
{
    const struct srv_rows *rows = item->rows;
    struct srv_sizes *sizes = &item->sizes;
    enum srv_error_code code = srv_field_rules_check(rows, SRV_FORM_GIVEN_STEP, NULL, error);
    if (code == SRV_OK)
        code = srv_shape_given_rows(sizes, rows, error);
    if (code == SRV_OK && sizes->keys != sizes->queries)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, "key",
                        "%zu keys for %zu queries: a session takes a key and a value of each row",
                        sizes->keys, sizes->queries);
    if (code == SRV_OK && sizes->batch != 1)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, "query",
                        "query holds %zu sequences, a session is one", sizes->batch);
    return code;
}

bool srv_given_item_bind(struct srv_item *item)
{
    const struct srv_model *model = item->session->model;
    const struct srv_sizes *s = &item->sizes;
    const struct attn_layer_spec *spec =
        attn_model_layer(model->attn, (size_t)item->job->call.layer);
    if (model->weightless == NULL)
        srv_fail(&item->error, SRV_E_MODEL_MISMATCH, "query",
                 "the session belongs to model %s, which takes hidden_states", model->name);
    else if (spec == NULL)
        srv_fail(&item->error, SRV_E_LAYER_NOT_FOUND, "layer",
                 "the session has no layer %lld (of %zu)", (long long)item->job->call.layer,
                 model->info.num_layers);
    else if (s->num_heads != spec->num_heads || s->num_kv_heads != spec->num_kv_heads ||
             s->head_dim != spec->head_dim || s->value_head_dim != spec->value_head_dim)
        srv_fail(&item->error, SRV_E_SHAPE_MISMATCH, "query",
                 "%zu query and %zu key heads of width %zu, and %zu of values, are not the "
                 "session's %zu, %zu, %zu and %zu",
                 s->num_heads, s->num_kv_heads, s->head_dim, s->value_head_dim, spec->num_heads,
                 spec->num_kv_heads, spec->head_dim, spec->value_head_dim);
    else
        item->model = model;
    return item->error.code == SRV_OK;
}
