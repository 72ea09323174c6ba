/* output_tensor.c: tensors of a reply, most of all in binary form: descriptions, and bytes that are
 * the numbers themselves, halves, or places in a map's range. */
#include <math.h>

#include "basics/half_float.h"
#include "wire/tensor.h"

#define CHUNK ((size_t)4096) /* numbers converted at a time */
#define LANES ((size_t)8)    /* chains of a reduction, so that a vector holds some of them */

const char *const srv_map_datatypes[SRV_MAP_DATATYPES] = {
    [SRV_MAP_FP32] = "FP32", [SRV_MAP_FP16] = "FP16", [SRV_MAP_UINT8] = "UINT8"};

/* ---- Descriptions ---------------------------------------------------------------------------- */

void srv_shape_write(struct srv_buffer *out, const size_t *shape, unsigned rank)
{
    srv_buffer_text(out, "\"shape\":[");
    for (unsigned d = 0; d < rank; d++) {
        srv_buffer_text(out, d > 0 ? "," : "");
        srv_buffer_unsigned(out, shape[d], 1);
    }
    srv_buffer_text(out, "]");
}

void srv_tensor_describe(struct srv_buffer *out, const char *datatype, size_t bytes,
                         const size_t *shape, unsigned rank)
{
    size_t size = bytes;
    for (unsigned d = 0; d < rank; d++)
        size *= shape[d];
    srv_buffer_text(out, "{");
    srv_shape_write(out, shape, rank);
    srv_buffer_text(out, ",\"datatype\":\"");
    srv_buffer_text(out, datatype);
    srv_buffer_text(out, "\",\"binary_data_size\":");
    srv_buffer_unsigned(out, size, 1);
}

_Static_assert(SRV_BINARY_ALIGNMENT % SRV_BINARY_ELEMENT_BYTES == 0,
               "what follows a whole tensor is aligned to its own elements");

void srv_tensor_align(struct srv_buffer *out)
{
    static const char blanks[] = "                                                               ";
    _Static_assert(sizeof blanks == SRV_BINARY_ALIGNMENT, "one blank less than the alignment");
    srv_buffer_append(out, blanks, -out->length % SRV_BINARY_ALIGNMENT);
}

void srv_output_write_json(struct srv_buffer *out, const struct srv_output_tensor *tensor,
                           const size_t *shape, unsigned rank)
{
    if (tensor->is_index)
        srv_indices_write_json(out, tensor->data, shape, rank);
    else
        srv_tensor_write_json(out, tensor->data, shape, rank);
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

static float smaller(float a, float b) { return a < b ? a : b; }
static float larger(float a, float b) { return a > b ? a : b; }

struct srv_map_range srv_map_range(const float *map, size_t count)
{
    float least[LANES] = {0}, most[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            least[j] = smaller(map[i + j], least[j]);
            most[j] = larger(map[i + j], most[j]);
        }
    for (; i < count; i++) {
        least[0] = smaller(map[i], least[0]);
        most[0] = larger(map[i], most[0]);
    }
    struct srv_map_range range = {least[0], most[0]};
    for (size_t j = 1; j < LANES; j++) {
        range.minimum = smaller(least[j], range.minimum);
        range.maximum = larger(most[j], range.maximum);
    }
    return range;
}

size_t srv_output_maps(const size_t *shape, unsigned rank)
{
    size_t maps = 1;
    for (unsigned i = 0; i + 2 < rank; i++)
        maps *= shape[i];
    return maps;
}

/* The numbers of a map: the product of the last two dimensions. */
static size_t map_size(const struct srv_output_tensor *tensor)
{
    return tensor->shape[tensor->rank - 2] * tensor->shape[tensor->rank - 1];
}

void srv_output_write_ranges(struct srv_buffer *out, const struct srv_output_tensor *tensor,
                             bool flat)
{
    if (tensor->narrow != SRV_MAP_UINT8)
        return;
    const size_t maps = srv_output_maps(tensor->shape, tensor->rank), size = map_size(tensor);
    /* The numbers of an innermost list; 0: the only number stands without a list. */
    const size_t inner = flat ? maps : tensor->rank > 2 ? tensor->shape[tensor->rank - 3] : 0;
    const bool nested = tensor->rank > 3 && !flat;
    for (int maximum = 0; maximum < 2; maximum++) {
        srv_buffer_text(out, maximum ? ",\"maximum\":" : ",\"minimum\":");
        srv_buffer_text(out, nested ? "[" : "");
        for (size_t i = 0; i < maps; i++) {
            const struct srv_map_range range =
                srv_map_range((const float *)tensor->data + i * size, size);
            srv_buffer_text(out, i > 0 ? "," : "");
            srv_buffer_text(out, inner > 0 && i % inner == 0 ? "[" : "");
            srv_tensor_write_json(out, maximum ? &range.maximum : &range.minimum, NULL, 0);
            srv_buffer_text(out, inner > 0 && (i + 1) % inner == 0 ? "]" : "");
        }
        srv_buffer_text(out, nested ? "]" : "");
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static void write_fp16(struct srv_buffer *out, const float *numbers, size_t count)
{
    const float most = 65504; /* unless a number is infinite */
    uint16_t chunk[CHUNK];
    for (size_t first = 0, n; first < count; first += n) {
        n = count - first < CHUNK ? count - first : CHUNK;
        for (size_t i = 0; i < n; i++) {
            const float x = numbers[first + i];
            chunk[i] = attn_float_to_f16(isinf(x) ? x : fminf(fmaxf(x, -most), most));
        }
        srv_buffer_append(out, (const char *)chunk, n * sizeof chunk[0]);
    }
}

static void write_uint8(struct srv_buffer *out, const float *map, size_t count)
{
    const struct srv_map_range range = srv_map_range(map, count);
    const double minimum = (double)range.minimum, width = (double)range.maximum - minimum;
    const double scale = width > 0 ? 255 / width : 0;
    uint8_t chunk[CHUNK];
    for (size_t first = 0, n; first < count; first += n) {
        n = count - first < CHUNK ? count - first : CHUNK;
        for (size_t i = 0; i < n; i++)
            chunk[i] = (uint8_t)(int)(((double)map[first + i] - minimum) * scale + 0.5);
        srv_buffer_append(out, (const char *)chunk, n);
    }
}

void srv_output_write_bytes(struct srv_buffer *out, const struct srv_output_tensor *tensor)
{
    static const char zeros[SRV_BINARY_ELEMENT_BYTES];
    srv_buffer_append(out, zeros, -out->length % tensor->element_bytes);
    if (tensor->narrow == SRV_MAP_FP32)
        srv_buffer_append(out, tensor->data, tensor->count * SRV_BINARY_ELEMENT_BYTES);
    else if (tensor->narrow == SRV_MAP_FP16)
        write_fp16(out, tensor->data, tensor->count);
    else
        for (size_t i = 0, size = map_size(tensor); i < tensor->count; i += size)
            write_uint8(out, (const float *)tensor->data + i, size);
}
