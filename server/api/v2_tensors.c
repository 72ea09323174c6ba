/* v2_tensors.c: the tensors of a model as the Open Inference Protocol lists them.
 *
 * Inputs and outputs are rows of two tables: which models have them.  Shapes and datatypes are
 * those of the fields and outputs of a call (wire/call.h). */
#include "api/endpoints.h"

#include "basics/mem.h"
#include "wire/call.h"

/* Kinds of model; a tensor has a row for those that can have it. */
enum { WEIGHTLESS = 1 << 0, LAYER = 1 << 1, SELF = 1 << 2, CROSS = 1 << 3, MAY_CROSS = 1 << 4 };
#define ANY (WEIGHTLESS | LAYER)

struct tensor_row {
    const char *name;
    unsigned where, needed; /* bits of models: one of them suffices */
};

static const struct tensor_row inputs[] = {
    {"hidden_states", LAYER, LAYER},
    {"encoder_hidden_states", MAY_CROSS, CROSS},
    {"key_hidden_states", MAY_CROSS, 0},
    {"value_hidden_states", MAY_CROSS, 0},
    {"query", WEIGHTLESS, WEIGHTLESS},
    {"key", WEIGHTLESS, WEIGHTLESS},
    {"value", WEIGHTLESS, WEIGHTLESS},
    {"padding_mask", ANY, 0},
    {"attention_mask", ANY, 0},
    {"attention_bias", ANY, 0},
    {"head_mask", ANY, 0},
    {"position_ids", SELF, 0},
    {"query_offset", ANY, 0},
};

static const struct tensor_row outputs[] = {
    {"output", ANY, ANY},
    {"attention_weights", ANY, 0},
    {"attention_scores", ANY, 0},
    {"lse", ANY, 0},
    {"key", LAYER, 0},
    {"value", LAYER, 0},
    {"query", LAYER, 0},
    {"head_output", LAYER, 0},
    {"concat", LAYER, 0},
};

/* The shape of the output of that name over a batch; without weights, that of heads. */
static const char *output_shape(const char *name, unsigned kinds)
{
    size_t i = 0;
    while (i + 1 < SRV_OUTPUT_COUNT && strcmp(srv_output_names[i].name, name) != 0)
        i++;
    return strstr(srv_output_names[i].shapes, (kinds & WEIGHTLESS) != 0 ? "[B,H" : "[B");
}

static unsigned kinds_of(const struct attn_layer_spec *spec)
{
    if (spec == NULL)
        return WEIGHTLESS;
    bool crosses = spec->is_cross || spec->rope.type == ATTN_ROPE_NONE;
    return LAYER | (spec->is_cross ? CROSS : SELF) | (crosses ? MAY_CROSS : 0);
}

/* The size that a dimension of `length` characters stands for; 0: variable. */
static size_t size_of(const char *dimension, size_t length, const struct attn_layer_spec *spec)
{
    const struct {
        const char *name;
        size_t size;
    } sizes[] = {
        {"E", spec->hidden_size},     {"Ek", spec->key_size},
        {"Ev", spec->value_size},     {"H", spec->num_heads},
        {"G", spec->num_kv_heads},    {"D", spec->head_dim},
        {"Dv", spec->value_head_dim}, {"H*Dv", spec->num_heads * spec->value_head_dim},
    };
    for (size_t i = 0; i < ATTN_COUNT(sizes); i++)
        if (strlen(sizes[i].name) == length && memcmp(sizes[i].name, dimension, length) == 0)
            return sizes[i].size;
    return 0;
}

static void write_shape(struct srv_buffer *out, const char *shape,
                        const struct attn_layer_spec *spec)
{
    srv_buffer_text(out, "[");
    for (const char *at = shape + 1; *at != '\0' && *at != ']';) {
        size_t length = strcspn(at, ",]");
        size_t size = spec != NULL ? size_of(at, strcspn(at, "',]"), spec) : 0;
        srv_buffer_text(out, at > shape + 1 ? "," : "");
        if (size > 0)
            srv_buffer_unsigned(out, size, 1);
        else
            srv_buffer_text(out, "-1");
        at += length + (at[length] == ',');
    }
    srv_buffer_text(out, "]");
}

/* The list of tensors of a model's metadata, or of its configuration: those of inputs in the widest
 * shape of their field and the datatype that calls compute with, which stands first. */
static void write_tensors(struct srv_buffer *out, const struct tensor_row rows[], size_t count,
                          const struct attn_layer_spec *spec, bool config)
{
    unsigned kinds = kinds_of(spec);
    const char *comma = "";
    srv_buffer_text(out, "[");
    for (size_t i = 0; i < count; i++) {
        const struct srv_field *field =
            rows == inputs ? srv_field_find(rows[i].name, SRV_CALL_ATTEND) : NULL;
        if ((rows[i].where & kinds) == 0)
            continue;
        srv_buffer_printf(out, "%s{\"name\":\"%s\",\"%s\":\"%s%s\",\"%s\":", comma, rows[i].name,
                          config ? "data_type" : "datatype", config ? "TYPE_" : "",
                          srv_datatype_name(0, field != NULL ? field->tensor : SRV_FLOATS, true),
                          config ? "dims" : "shape");
        write_shape(out,
                    field != NULL ? strrchr(field->shapes, '[') : output_shape(rows[i].name, kinds),
                    spec);
        if (config && field != NULL)
            srv_buffer_text(out, (rows[i].needed & kinds) != 0 ? ",\"optional\":false"
                                                               : ",\"optional\":true");
        srv_buffer_text(out, "}");
        comma = ",";
    }
    srv_buffer_text(out, "]");
}

void srv_v2_write_inputs(struct srv_buffer *out, const struct attn_layer_spec *spec, bool config)
{
    write_tensors(out, inputs, ATTN_COUNT(inputs), spec, config);
}

void srv_v2_write_outputs(struct srv_buffer *out, const struct attn_layer_spec *spec, bool config)
{
    write_tensors(out, outputs, ATTN_COUNT(outputs), spec, config);
}
