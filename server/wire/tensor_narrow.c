/* tensor_narrow.c: numbers of maps as halves and as bytes, a piece at a time. */
#include "wire/tensor_narrow.h"

#include <math.h>
#include <stdint.h>

#include "basics/half_float.h"
#include "wire/tensor_json.h"

#define PIECE ((size_t)4096) /* numbers converted at a time */
#define LANES ((size_t)8)    /* chains of a reduction, so that a vector holds some of them */

const char *const srv_map_datatypes[SRV_MAP_DATATYPES] = {
    [SRV_MAP_FP32] = "FP32", [SRV_MAP_FP16] = "FP16", [SRV_MAP_UINT8] = "UINT8"};

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

void srv_map_ranges_write(struct srv_buffer *out, const struct srv_map_list *list, bool maximum)
{
    srv_buffer_text(out, list->nested ? "[" : "");
    for (size_t i = 0; i < list->count; i++) {
        const struct srv_map_range range = srv_map_range(list->maps + i * list->size, list->size);
        const float *end = maximum ? &range.maximum : &range.minimum;
        srv_buffer_text(out, i > 0 ? "," : "");
        srv_buffer_text(out, list->inner > 0 && i % list->inner == 0 ? "[" : "");
        srv_tensor_write_json(out, end, NULL, 0);
        srv_buffer_text(out, list->inner > 0 && (i + 1) % list->inner == 0 ? "]" : "");
    }
    srv_buffer_text(out, list->nested ? "]" : "");
}

/* ---- Elements -------------------------------------------------------------------------------- */

/* A float as the nearest half, at most 65504 unless it is infinite. */
static uint16_t half_of(float x)
{
    const float most = 65504;
    return attn_float_to_f16(isinf(x) ? x : fminf(fmaxf(x, -most), most));
}

static void write_halves(struct srv_buffer *out, const float *numbers, size_t count)
{
    uint16_t piece[PIECE];
    for (size_t first = 0, n; first < count; first += n) {
        n = count - first < PIECE ? count - first : PIECE;
        for (size_t i = 0; i < n; i++)
            piece[i] = half_of(numbers[first + i]);
        srv_buffer_append(out, (const char *)piece, n * sizeof piece[0]);
    }
}

static void write_bytes(struct srv_buffer *out, const float *map, size_t count)
{
    const struct srv_map_range range = srv_map_range(map, count);
    const double minimum = (double)range.minimum, width = (double)range.maximum - minimum;
    const double scale = width > 0 ? 255 / width : 0;
    uint8_t piece[PIECE];
    for (size_t first = 0, n; first < count; first += n) {
        n = count - first < PIECE ? count - first : PIECE;
        for (size_t i = 0; i < n; i++)
            piece[i] = (uint8_t)(int)(((double)map[first + i] - minimum) * scale + 0.5);
        srv_buffer_append(out, (const char *)piece, n);
    }
}

void srv_map_write(struct srv_buffer *out, const struct srv_map_list *list,
                   enum srv_map_datatype type)
{
    if (type == SRV_MAP_FP16)
        write_halves(out, list->maps, list->count * list->size);
    for (size_t i = 0; type == SRV_MAP_UINT8 && i < list->count; i++)
        write_bytes(out, list->maps + i * list->size, list->size);
}
