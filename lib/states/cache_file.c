/* cache_file.c: names, sizes and sums of a cache's file, for export and import. */
#include "states/cache_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/status.h"
#include "basics/tile.h"
#include "models/model.h"

#define DIGITS 21 /* digits of the longest length, and a blank */

static struct attn_cache_file_layer layer_of(const struct attn_layer_spec *spec, size_t layer)
{
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    return (struct attn_cache_file_layer){
        .layer = layer,
        .spec = spec,
        .heads = sizes.heads,
        .row_bytes = {sizes.key * sizeof(float), sizes.value * sizeof(float)},
    };
}

enum attn_status attn_cache_file_layers(struct attn_cache_file_layer **out, size_t *count,
                                        const struct attn_model *model, struct attn_error *error)
{
    size_t resident = attn_model_num_resident(model), found = 0;
    struct attn_cache_file_layer *layers = attn_calloc(resident, sizeof *layers);
    if (layers == NULL)
        return attn_fail_memory(error, resident * sizeof *layers);
    for (size_t i = 0; found < resident; i++) {
        const struct attn_layer_spec *spec = attn_model_layer(model, i);
        if (spec != NULL)
            layers[found++] = layer_of(spec, i);
    }
    *out = layers;
    *count = resident;
    return ATTN_OK;
}

size_t attn_cache_file_tensor_bytes(const struct attn_cache_file_layer *layer,
                                    enum attn_cache_file_kind kind)
{
    return layer->heads * (layer->length - layer->first) * layer->row_bytes[kind];
}

size_t attn_cache_file_scratch_bytes(const struct attn_model *model)
{
    size_t most = 0;
    for (size_t i = 0; i < attn_model_num_resident(model); i++) {
        const struct attn_cache_file_layer layer = layer_of(attn_model_resident_spec(model, i), i);
        most = attn_max(most, layer.heads * (layer.row_bytes[0] + layer.row_bytes[1]));
    }
    return ATTN_TILE * most;
}

size_t attn_cache_file_lists_bytes(const struct attn_model *model)
{
    size_t layers = attn_model_num_resident(model);
    return layers * sizeof(struct attn_cache_file_layer) + 2 * (layers + 1) * DIGITS +
           3 * ATTN_ALIGN;
}

void attn_cache_file_tensor_name(char out[ATTN_CACHE_FILE_NAME],
                                 const struct attn_cache_file_layer *layer,
                                 enum attn_cache_file_kind kind)
{
    snprintf(out, ATTN_CACHE_FILE_NAME, "layers.%zu.%s", layer->layer,
             kind == ATTN_CACHE_FILE_KEY ? "key" : "value");
}

enum attn_status attn_cache_file_numbers(char **out, const struct attn_cache_file_layer *layers,
                                         size_t count, bool firsts, struct attn_error *error)
{
    char *text = attn_alloc(count + 1, DIGITS);
    if (text == NULL)
        return attn_fail_memory(error, (count + 1) * DIGITS);
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        at += (size_t)snprintf(text + at, DIGITS, "%s%zu", i > 0 ? " " : "",
                               firsts ? layers[i].first : layers[i].length);
    *out = text;
    return ATTN_OK;
}

/* Reads one number of the list, as attn_cache_file_numbers writes it. */
static bool read_number(size_t *out, const char **at)
{
    char *end;
    if (**at < '0' || **at > '9' || (**at == '0' && (*at)[1] >= '0' && (*at)[1] <= '9'))
        return false;
    errno = 0;
    unsigned long long number = strtoull(*at, &end, 10);
    *at = end;
    *out = (size_t)number;
    return errno == 0 && number <= ATTN_MAX_TOKENS;
}

bool attn_cache_file_read_firsts(struct attn_cache_file_layer *layers, size_t count,
                                 const char *note)
{
    const char *at = note;
    for (size_t i = 0; i < count; i++) {
        if ((i > 0 && *at++ != ' ') || !read_number(&layers[i].first, &at) ||
            layers[i].first % ATTN_TILE != 0)
            return false;
    }
    return *at == '\0';
}

void attn_cache_file_sum_note(struct attn_checksum *sum, const char *name, const char *value)
{
    attn_checksum_add(sum, name, strlen(name));
    attn_checksum_add(sum, "=", 1);
    attn_checksum_add(sum, value, strlen(value));
    attn_checksum_add(sum, "\n", 1);
}
