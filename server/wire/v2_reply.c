/* v2_reply.c: writes the outputs of an infer reply. */
#include "wire/v2.h"

static void write_tensor(struct srv_buffer *out, const struct srv_output_tensor *tensor,
                         bool binary)
{
    srv_buffer_text(out, "{\"name\":");
    srv_buffer_json_string(out, tensor->is_index ? SRV_V2_INDEX : tensor->output);
    srv_buffer_text(out, ",\"datatype\":\"");
    srv_buffer_text(out, tensor->datatype);
    srv_buffer_text(out, "\",");
    srv_shape_write(out, tensor->shape, tensor->rank);
    if (binary) {
        srv_buffer_text(out, ",\"parameters\":{\"binary_data_size\":");
        srv_buffer_unsigned(out, tensor->count * tensor->element_bytes, 1);
        srv_output_write_ranges(out, tensor, true);
        srv_buffer_text(out, "}");
    } else {
        srv_buffer_text(out, ",\"data\":");
        srv_output_write_json(out, tensor, &tensor->count, 1);
    }
    srv_buffer_text(out, "}");
}

void srv_v2_outputs_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                          const struct srv_sizes *sizes, const struct srv_v2_outputs *forms)
{
    struct srv_output_tensor list[SRV_OUTPUT_TENSORS];
    size_t count = srv_outputs_list(list, outputs, sizes);
    srv_buffer_text(out, "\"outputs\":[");
    for (size_t i = 0; i < count; i++) {
        srv_buffer_text(out, i > 0 ? "," : "");
        write_tensor(out, &list[i], srv_v2_output_is_binary(forms, list[i].output));
    }
    srv_buffer_text(out, "]");
}

size_t srv_v2_outputs_write_bytes(struct srv_buffer *out, const struct attn_outputs *outputs,
                                  const struct srv_sizes *sizes, const struct srv_v2_outputs *forms)
{
    struct srv_output_tensor list[SRV_OUTPUT_TENSORS];
    size_t count = srv_outputs_list(list, outputs, sizes), json_length = 0;
    for (size_t i = 0; i < count; i++) {
        if (!srv_v2_output_is_binary(forms, list[i].output))
            continue;
        if (json_length == 0)
            srv_tensor_align(out);
        json_length = json_length > 0 ? json_length : out->length;
        srv_output_write_bytes(out, &list[i]);
    }
    return json_length;
}
