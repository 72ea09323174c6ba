/* cache_file.c: names, sizes and sums of a cache's file, for export and import. */
#include "states/cache_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "basics/tile.h"
#include "models/model.h"

#define DIGITS 21 /* digits of the longest length, and a blank */

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
            layers[found++] = (struct attn_cache_file_layer){.layer = i, .spec = spec};
    }
    *out = layers;
    *count = resident;
    return ATTN_OK;
}

size_t attn_cache_file_row_bytes(const struct attn_cache_file_layer *layer,
                                 enum attn_cache_file_kind kind)
{
    const struct attn_cached_sizes sizes = attn_cached_sizes(layer->spec);
    return (kind == ATTN_CACHE_FILE_KEY ? sizes.key : sizes.value) * sizeof(float);
}

size_t attn_cache_file_tensor_bytes(const struct attn_cache_file_layer *layer,
                                    enum attn_cache_file_kind kind)
{
    return attn_cached_sizes(layer->spec).heads * (layer->length - layer->first) *
           attn_cache_file_row_bytes(layer, kind);
}

size_t attn_cache_file_scratch_bytes(const struct attn_model *model)
{
    size_t most = 0;
    for (size_t i = 0; i < attn_model_num_resident(model); i++) {
        const struct attn_cache_file_layer layer = {.spec = attn_model_slot_spec(model, i)};
        size_t token = attn_cache_file_row_bytes(&layer, ATTN_CACHE_FILE_KEY) +
                       attn_cache_file_row_bytes(&layer, ATTN_CACHE_FILE_VALUE);
        most = attn_max(most, attn_cached_sizes(layer.spec).heads * token);
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

/* Writes the lengths or the first tokens, with blanks between them. */
static enum attn_status print_numbers(char **out, const struct attn_cache_file_layer *layers,
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

enum attn_status attn_cache_file_lengths(char **out, const struct attn_cache_file_layer *layers,
                                         size_t count, struct attn_error *error)
{
    return print_numbers(out, layers, count, false, error);
}

enum attn_status attn_cache_file_firsts(char **out, const struct attn_cache_file_layer *layers,
                                        size_t count, struct attn_error *error)
{
    return print_numbers(out, layers, count, true, error);
}

/* Reads one number of the list, as print_numbers writes it. */
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

bool attn_cache_file_forgets(const struct attn_cache_file_layer *layers, size_t count)
{
    size_t i = 0;
    while (i < count && layers[i].first == 0)
        i++;
    return i < count;
}

void attn_cache_file_sum_note(struct attn_checksum *sum, const char *name, const char *value)
{
    attn_checksum_add(sum, name, strlen(name));
    attn_checksum_add(sum, "=", 1);
    attn_checksum_add(sum, value, strlen(value));
    attn_checksum_add(sum, "\n", 1);
}
