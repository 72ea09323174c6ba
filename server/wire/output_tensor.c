/* output_tensor.c: ranges and bytes of a tensor of a reply. */
#include "wire/output_tensor.h"

#include "wire/tensor_binary.h"

size_t srv_output_maps(const size_t *shape, unsigned rank)
{
    size_t maps = 1;
    for (unsigned i = 0; i + 2 < rank; i++)
        maps *= shape[i];
    return maps;
}

/* The tensor's maps, with lists of the shape of its leading dimensions: none, [n] or [m][n]. */
static struct srv_map_list maps_of(const struct srv_output_tensor *tensor)
{
    const unsigned rank = tensor->rank;
    return (struct srv_map_list){.maps = tensor->data,
                                 .count = srv_output_maps(tensor->shape, rank),
                                 .size = tensor->shape[rank - 2] * tensor->shape[rank - 1],
                                 .inner = rank > 2 ? tensor->shape[rank - 3] : 0,
                                 .nested = rank > 3};
}

void srv_output_write_ranges(struct srv_buffer *out, const struct srv_output_tensor *tensor,
                             bool flat)
{
    if (tensor->narrow != SRV_MAP_UINT8)
        return;
    struct srv_map_list maps = maps_of(tensor);
    maps.inner = flat ? maps.count : maps.inner;
    maps.nested = maps.nested && !flat;
    srv_buffer_text(out, ",\"minimum\":");
    srv_map_ranges_write(out, &maps, false);
    srv_buffer_text(out, ",\"maximum\":");
    srv_map_ranges_write(out, &maps, true);
}

void srv_output_write_bytes(struct srv_buffer *out, const struct srv_output_tensor *tensor)
{
    srv_tensor_pad(out, tensor->element_bytes);
    if (tensor->narrow == SRV_MAP_FP32) {
        srv_tensor_write_binary(out, tensor->data, tensor->count);
    } else {
        const struct srv_map_list maps = maps_of(tensor);
        srv_map_write(out, &maps, tensor->narrow);
    }
}
