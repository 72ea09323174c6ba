/* import.c: the bytes of a file become a cache.
 *
 * The bytes are not trusted; they are in memory, or in a file of which no more than 64 tokens are
 * held at a time.  Checks run in this order: the container (files/safetensors.h), the tensors
 * against the model, the checksum.  Only then are tokens copied, 64 at a time, and each number is
 * checked on the way.  The cache belongs to the import alone until it is complete, so a refused
 * file leaves nothing to undo. */
#include <stdio.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "basics/widen.h"
#include "models/model.h"
#include "states/cache_file.h"

#define VERIFY_BYTES ((size_t)256 << 10) /* read at a time */
#define FORMATS "attn-cache-"            /* the name of each format begins so */

/* Which blocks of a layer the import is to share. */
struct share {
    size_t layer;                  /* index among the resident ones */
    const struct attn_cache *from; /* of the same model and pool */
    size_t blocks; /* those before this index, of blocks of both; 0: none is left to share */
};

struct attn_import {
    struct attn_safetensors *file;
    struct attn_cache *cache;
    struct attn_cache_file_layer *layers; /* [num_layers] */
    size_t num_layers;
    struct share *shares; /* [num_shares] of a layer in the order of blocks */
    size_t num_shares, shares_capacity;
    const struct attn_tensor_entry **tensors; /* [2 * num_layers] key and value of each layer */
    const size_t *ends; /* of a cache that has its lengths: what is filled, by layer; or NULL */
    float *scratch;     /* [scratch_bytes] 64 tokens */
    size_t scratch_bytes;
    /* Progress. */
    bool summed;
    size_t tensor, offset; /* the next to be summed up: index into `tensors`, byte of that tensor */
    size_t layer, token;   /* the next to be copied, counted from the first that is kept */
    struct attn_checksum sum;
};

static enum attn_status fail_form(struct attn_error *error, const char *param, const char *what)
{
    return attn_fail(error, ATTN_MALFORMED, param, "state: %s", what);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static bool has_format(const struct attn_import *import, const char *format)
{
    const char *note = attn_import_note(import, "format");
    return note != NULL && strcmp(note, format) == 0;
}

static enum attn_status open_source(struct attn_import **out,
                                    const struct attn_safetensors_source *source,
                                    struct attn_error *error)
{
    struct attn_import *import = attn_calloc(1, sizeof *import);
    if (import == NULL)
        return attn_fail_memory(error, sizeof *import);
    attn_checksum_init(&import->sum);
    enum attn_status status =
        attn_safetensors_open_source(&import->file, source, "state", ATTN_MAX_STATE_HEADER, error);
    if (status == ATTN_OK && !has_format(import, ATTN_CACHE_FILE_FORMAT) &&
        !has_format(import, ATTN_CACHE_FILE_WINDOWS))
        status = fail_form(error, "format",
                           "its format is neither " ATTN_CACHE_FILE_FORMAT
                           " nor " ATTN_CACHE_FILE_WINDOWS);
    if (status == ATTN_OK)
        *out = import;
    else
        attn_import_close(import);
    return status;
}

enum attn_status attn_import_open(struct attn_import **out, const void *bytes, size_t size,
                                  struct attn_error *error)
{
    return open_source(out, &(struct attn_safetensors_source){bytes, -1, size}, error);
}

enum attn_status attn_import_open_file(struct attn_import **out, int file, size_t size,
                                       struct attn_error *error)
{
    return open_source(out, &(struct attn_safetensors_source){NULL, file, size}, error);
}

void attn_import_close(struct attn_import *import)
{
    if (import == NULL)
        return;
    attn_safetensors_close(import->file);
    attn_free(import->layers);
    attn_free(import->shares);
    attn_free(import->tensors);
    attn_free(import->scratch);
    attn_free(import);
}

const char *attn_import_note(const struct attn_import *import, const char *name)
{
    return attn_safetensors_note(import->file, name);
}

/* ---- Against the model ----------------------------------------------------------------------- */

/* Finds one tensor and takes the layer's length from its shape. */
static enum attn_status find_tensor(const struct attn_tensor_entry **out, size_t *length,
                                    const struct attn_import *import,
                                    const struct attn_cache_file_layer *layer,
                                    enum attn_cache_file_kind kind, struct attn_error *error)
{
    char name[ATTN_CACHE_FILE_NAME];
    attn_cache_file_tensor_name(name, layer, kind);
    const struct attn_tensor_entry *entry = attn_safetensors_find(import->file, name);
    if (entry == NULL)
        return fail_form(error, name, "a tensor of the model's layers is missing");
    const size_t groups = layer->heads, width = layer->row_bytes[kind] / sizeof(float);
    if (strcmp(entry->dtype->name, "F32") != 0)
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s is %s, not F32", name,
                         entry->dtype->name);
    if (entry->ndim != 3 || entry->shape[0] != groups || entry->shape[2] != width)
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s is not [%zu,L,%zu]", name, groups,
                         width);
    *out = entry;
    *length = entry->shape[1];
    return ATTN_OK;
}

/* Whether a layer that reads another begins where that begins. */
static bool begins_with_source(const struct attn_import *import, size_t i)
{
    const struct attn_cache_file_layer *layer = &import->layers[i];
    size_t first = 0;
    for (size_t j = 0; j < i; j++)
        if (import->layers[j].layer == layer->spec->shares_layer)
            first = import->layers[j].first;
    return layer->spec->shares_layer == SIZE_MAX || layer->first == first;
}

static enum attn_status find_layer(struct attn_import *import, size_t i, struct attn_error *error)
{
    struct attn_cache_file_layer *layer = &import->layers[i];
    size_t lengths[2], limit = attn_cache_max_length(import->cache);
    for (int kind = 0; kind < 2; kind++) {
        enum attn_status status = find_tensor(&import->tensors[2 * i + (size_t)kind],
                                              &lengths[kind], import, layer, kind, error);
        if (status != ATTN_OK)
            return status;
    }
    if (lengths[0] != lengths[1])
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "layers",
                         "layer %zu has %zu keys and %zu values", layer->layer, lengths[0],
                         lengths[1]);
    layer->length = layer->first + lengths[0];
    if (layer->length > limit)
        return attn_fail(error, ATTN_CACHE_FULL, "lengths",
                         "layer %zu has %zu tokens, max_length is %zu", layer->layer, layer->length,
                         limit);
    if (import->ends == NULL && attn_cache_length(import->cache, layer->layer) > 0)
        return attn_fail(error, ATTN_INVALID, "cache", "the cache is not empty");
    const size_t end = import->ends != NULL ? import->ends[layer->layer] : 0;
    const size_t filled = attn_cache_filled(import->cache, layer->layer);
    if (import->ends != NULL && (end > layer->length || (filled < end && filled < layer->first)))
        return attn_fail(error, ATTN_INVALID, "cache",
                         "layer %zu has tokens %zu to %zu, not all that are missing before %zu",
                         layer->layer, layer->first, layer->length, end);
    if (!begins_with_source(import, i))
        return attn_fail(error, ATTN_MALFORMED, "first",
                         "layer %zu begins at token %zu, the layer that it reads at another",
                         layer->layer, layer->first);
    if (layer->first > attn_window_first(layer->spec, layer->length))
        return attn_fail(error, ATTN_MALFORMED, "first",
                         "layer %zu begins at token %zu, after what its window sees at %zu",
                         layer->layer, layer->first, layer->length);
    return ATTN_OK;
}

size_t attn_import_memory(const struct attn_model *model)
{
    size_t tensors = 2 * attn_model_num_resident(model) * sizeof(struct attn_tensor_entry *);
    return attn_cache_memory(model) + attn_cache_file_lists_bytes(model) +
           attn_cache_file_scratch_bytes(model) + tensors + 2 * ATTN_ALIGN;
}

enum attn_status attn_import_begin(struct attn_import *import, struct attn_cache *cache,
                                   struct attn_error *error)
{
    struct attn_model_info info;
    const char *note = attn_import_note(import, "fingerprint");
    char *lengths = NULL;
    import->cache = cache;
    attn_model_describe(&info, attn_cache_model(cache));
    if (note == NULL || strcmp(note, info.fingerprint) != 0)
        return attn_fail(error, ATTN_INVALID, "fingerprint",
                         "the state is of a model with fingerprint %.32s, this one's is %s",
                         note != NULL ? note : "(none)", info.fingerprint);
    enum attn_status status = attn_cache_file_layers(&import->layers, &import->num_layers,
                                                     attn_cache_model(cache), error);
    if (status != ATTN_OK)
        return status;
    import->tensors = attn_alloc(2 * import->num_layers, sizeof *import->tensors);
    import->scratch_bytes = attn_cache_file_scratch_bytes(attn_cache_model(cache));
    import->scratch = attn_alloc(import->scratch_bytes, 1);
    if (import->tensors == NULL || import->scratch == NULL)
        return attn_fail_memory(error, import->scratch_bytes);
    const char *first = attn_import_note(import, "first");
    if (has_format(import, ATTN_CACHE_FILE_WINDOWS) &&
        (first == NULL || !attn_cache_file_read_firsts(import->layers, import->num_layers, first)))
        status = fail_form(error, "first", "first is no list of the layers' first tokens");
    for (size_t i = 0; i < import->num_layers && status == ATTN_OK; i++)
        status = find_layer(import, i, error);
    if (status == ATTN_OK && attn_safetensors_count(import->file) != 2 * import->num_layers)
        status = fail_form(error, NULL, "it has tensors that belong to none of the model's layers");
    if (status == ATTN_OK)
        status =
            attn_cache_file_numbers(&lengths, import->layers, import->num_layers, false, error);
    if (status == ATTN_OK &&
        ((note = attn_import_note(import, "lengths")) == NULL || strcmp(note, lengths) != 0))
        status = fail_form(error, "lengths", "lengths are not those of its tensors");
    attn_free(lengths);
    for (size_t i = 0; i < import->num_layers && status == ATTN_OK && import->ends == NULL; i++)
        status =
            attn_cache_begin_at(cache, import->layers[i].layer, import->layers[i].first, error);
    return status;
}

enum attn_status attn_import_begin_fill(struct attn_import *import, struct attn_cache *cache,
                                        const size_t ends[], struct attn_error *error)
{
    import->ends = ends;
    return attn_import_begin(import, cache, error);
}

size_t attn_import_cache_bytes(const struct attn_import *import)
{
    size_t bytes = 0;
    for (size_t i = 0; i < import->num_layers; i++)
        bytes += attn_cache_layer_bytes(import->cache, import->layers[i].layer,
                                        import->layers[i].length);
    return bytes;
}

/* ---- Sharing blocks with a cache that was imported before --------------------------------------
 *
 * One block can hold the tokens of two caches where the tokens of one are the first tokens of the
 * other, since a cache shows no slot beyond its own length.  The caller names the cache and the
 * number of blocks.  Whether both caches hold the same tokens is verified here, token by token, so
 * that a wrong name costs memory and never a bit.
 *
 * A fork may end within a block in which its parent goes on, and may be imported before its parent.
 * So a block that an import fills counts its tokens (attn_block.tokens), whichever of its caches
 * shows them.  A longer cache that shares the block later compares that many tokens and writes the
 * rest after them.  A step that writes to a block sets its count to 0, and no import shares the
 * block from then on. */

/* Tokens that are to be written to a block. */
struct tokens {
    const struct attn_layer_spec *spec;
    size_t count;
    const float *key, *value; /* [G][count][D], [G][count][Dv] */
};

static bool has_token(const struct attn_block *block, const struct tokens *tokens, size_t i)
{
    const struct attn_layer_spec *s = tokens->spec;
    const struct attn_cached_sizes sizes = attn_cached_sizes(s);
    const size_t d = sizes.key, dv = sizes.value;
    float key[ATTN_MAX_HEAD_DIM], value[ATTN_MAX_HEAD_DIM];
    for (size_t g = 0; g < sizes.heads; g++) {
        size_t row = g * tokens->count + i;
        struct attn_tile tile;
        attn_block_tile(&tile, block, s, g);
        attn_tile_get(key, value, &tile, i, d, dv);
        if (memcmp(key, tokens->key + row * d, d * sizeof *key) != 0 ||
            memcmp(value, tokens->value + row * dv, dv * sizeof *value) != 0)
            return false;
    }
    return true;
}

/* Whether the first tokens of the block and of `tokens` are the same, as far as both go. */
static bool agrees(const struct attn_block *block, const struct tokens *tokens)
{
    size_t both = attn_min(block->tokens, tokens->count);
    for (size_t i = 0; i < both; i++)
        if (!has_token(block, tokens, i))
            return false;
    return both > 0;
}

/* Adds the block to the cache, and to the block the tokens that it does not have yet. */
static enum attn_status append_shared(struct attn_block *block, const struct tokens *tokens,
                                      struct attn_cache *cache, size_t layer,
                                      struct attn_error *error)
{
    enum attn_status status =
        attn_cache_check_rows(tokens->spec, tokens->count, tokens->key, tokens->value, error);
    if (status == ATTN_OK)
        status = attn_cache_share_block(cache, layer, block, error);
    if (status == ATTN_OK)
        status =
            attn_cache_put_rows(cache, layer, tokens->count, attn_min(block->tokens, tokens->count),
                                tokens->key, tokens->value, error);
    if (status == ATTN_OK && tokens->count > block->tokens)
        block->tokens = (unsigned)tokens->count;
    return status;
}

/* attn_cache_write of up to ATTN_TILE tokens to a layer whose length is a multiple of that.  The
 * cache shares the block of `share` where that block holds the same tokens; else it takes a block
 * of its own, and so do all writes after this one, unless a window of `from` has forgotten it. */
static enum attn_status write_tokens(struct share *share, struct attn_cache *cache, size_t layer,
                                     size_t count, const float *key, const float *value,
                                     struct attn_error *error)
{
    const struct tokens tokens = {attn_model_layer(attn_cache_model(cache), layer), count, key,
                                  value};
    size_t index = attn_cache_length(cache, layer) / ATTN_TILE;
    if (count == 0)
        return ATTN_OK;
    if (attn_cache_shares_layer(cache, layer))
        return attn_cache_write(cache, layer, count, key, value, error);
    if (index < share->blocks) {
        const struct attn_cache_view from = attn_cache_view(share->from, layer);
        struct attn_block *block = index >= from.first ? from.blocks[index - from.first] : NULL;
        if (block != NULL && agrees(block, &tokens))
            return append_shared(block, &tokens, cache, layer, error);
        if (block != NULL)
            share->blocks = 0;
    }
    enum attn_status status = attn_cache_write(cache, layer, count, key, value, error);
    const struct attn_cache_view own = attn_cache_view(cache, layer);
    if (status == ATTN_OK)
        own.blocks[index - own.first]->tokens = (unsigned)count;
    return status;
}

static bool grow_shares(struct attn_import *import)
{
    const size_t capacity = attn_max(2 * import->shares_capacity, import->num_layers);
    struct share *shares = attn_calloc(capacity, sizeof *shares);
    if (shares == NULL)
        return false;
    if (import->num_shares > 0)
        memcpy(shares, import->shares, import->num_shares * sizeof *shares);
    attn_free(import->shares);
    import->shares = shares;
    import->shares_capacity = capacity;
    return true;
}

enum attn_status attn_import_share_blocks(struct attn_import *import, size_t layer,
                                          const struct attn_cache *from, size_t blocks,
                                          struct attn_error *error)
{
    size_t i = 0, most;
    (void)attn_cache_blocks(&most, from, layer);
    while (i < import->num_layers && import->layers[i].layer != layer)
        i++;
    if (i == import->num_layers || attn_cache_model(from) != attn_cache_model(import->cache))
        return ATTN_OK;
    if (import->num_shares == import->shares_capacity && !grow_shares(import))
        return attn_fail_memory(error, import->num_shares * sizeof *import->shares);
    most += attn_cache_first(from, layer) / ATTN_TILE;
    import->shares[import->num_shares++] = (struct share){i, from, attn_min(blocks, most)};
    return ATTN_OK;
}

/* ---- Without a model ------------------------------------------------------------------------- */

/* Ends the sum of a file's tensors with its notes and compares it with the note `checksum`. */
static enum attn_status check_sum(struct attn_checksum *sum, const struct attn_safetensors *file,
                                  struct attn_error *error)
{
    size_t count;
    char digits[ATTN_CHECKSUM_DIGITS + 1];
    const char *said = attn_safetensors_note(file, "checksum");
    const struct attn_safetensors_note_pair *notes = attn_safetensors_notes(&count, file);
    for (size_t i = 0; i < count; i++)
        if (notes[i].value != said)
            attn_cache_file_sum_note(sum, notes[i].name, notes[i].value);
    attn_checksum_hex(digits, sum);
    digits[ATTN_CHECKSUM_DIGITS] = '\0';
    if (said != NULL && strcmp(said, digits) == 0)
        return ATTN_OK;
    return fail_form(error, "checksum", "its checksum is not that of its contents");
}

enum attn_status attn_import_verify(struct attn_import *import, struct attn_error *error)
{
    struct attn_safetensors *file = import->file;
    struct attn_checksum sum;
    char name[ATTN_CACHE_FILE_NAME], *room = attn_alloc(VERIFY_BYTES, 1);
    enum attn_status status = room != NULL ? ATTN_OK : attn_fail_memory(error, VERIFY_BYTES);
    size_t found = 0;
    const void *bytes;
    bool has_key = false;
    attn_checksum_init(&sum);
    for (size_t i = 0; i < 2 * (size_t)ATTN_MAX_LAYERS && status == ATTN_OK; i++) {
        const struct attn_cache_file_layer layer = {.layer = i / 2};
        attn_cache_file_tensor_name(name, &layer, (enum attn_cache_file_kind)(i % 2));
        const struct attn_tensor_entry *tensor = attn_safetensors_find(file, name);
        if (i % 2 == 0)
            has_key = tensor != NULL;
        else if (has_key != (tensor != NULL))
            status = fail_form(error, NULL, "a layer has keys or values alone");
        found += tensor != NULL;
        size_t left = tensor != NULL ? tensor->end - tensor->begin : 0, at = 0;
        for (size_t count; left > 0 && status == ATTN_OK; at += count, left -= count) {
            count = attn_min(left, VERIFY_BYTES);
            status = attn_safetensors_read_bytes(&bytes, file, tensor, at, count, room, error);
            if (status == ATTN_OK)
                attn_checksum_add(&sum, bytes, count);
        }
    }
    attn_free(room);
    if (status == ATTN_OK && found != attn_safetensors_count(file))
        status = fail_form(error, NULL, "it has tensors that are no layer's");
    return status == ATTN_OK ? check_sum(&sum, file, error) : status;
}

bool attn_import_other_format(char out[ATTN_STATE_FORMAT], int file, size_t size)
{
    const struct attn_safetensors_source source = {NULL, file, size};
    struct attn_import import = {.file = NULL};
    struct attn_error error;
    if (attn_safetensors_open_source(&import.file, &source, "state", ATTN_MAX_STATE_HEADER,
                                     &error) != ATTN_OK)
        return false;
    const char *note = attn_import_note(&import, "format");
    const bool other = note != NULL && strncmp(note, FORMATS, strlen(FORMATS)) == 0 &&
                       strlen(note) < ATTN_STATE_FORMAT &&
                       !has_format(&import, ATTN_CACHE_FILE_FORMAT) &&
                       !has_format(&import, ATTN_CACHE_FILE_WINDOWS) &&
                       attn_import_verify(&import, &error) == ATTN_OK;
    if (other)
        snprintf(out, ATTN_STATE_FORMAT, "%s", note);
    attn_safetensors_close(import.file);
    return other;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* Adds up to `most` bytes of the current tensor to the sum, and goes on to the next at its end. */
static enum attn_status sum_piece(size_t *done, struct attn_import *import, size_t most,
                                  struct attn_error *error)
{
    const void *bytes;
    const struct attn_cache_file_layer *layer = &import->layers[import->tensor / 2];
    size_t left = attn_cache_file_tensor_bytes(layer, import->tensor % 2) - import->offset;
    size_t count = attn_min(attn_min(most, left), import->scratch_bytes);
    enum attn_status status =
        attn_safetensors_read_bytes(&bytes, import->file, import->tensors[import->tensor],
                                    import->offset, count, import->scratch, error);
    if (status != ATTN_OK)
        return status;
    attn_checksum_add(&import->sum, bytes, count);
    *done += count;
    import->offset += count;
    if (count == left) {
        import->tensor++;
        import->offset = 0;
    }
    return ATTN_OK;
}

/* Copies `count` tokens of one kind, from import->token on, into rows [G][count][..], and checks
 * that they are finite. */
static enum attn_status read_rows(float *rows, const struct attn_import *import, size_t count,
                                  enum attn_cache_file_kind kind, struct attn_error *error)
{
    const struct attn_cache_file_layer *layer = &import->layers[import->layer];
    const struct attn_tensor_entry *from = import->tensors[2 * import->layer + (size_t)kind];
    const size_t row = layer->row_bytes[kind], groups = layer->heads;
    for (size_t g = 0; g < groups; g++) {
        const void *bytes;
        char *room = (char *)rows + g * count * row;
        size_t first = (g * (layer->length - layer->first) + import->token) * row;
        enum attn_status status = attn_safetensors_read_bytes(&bytes, import->file, from, first,
                                                              count * row, room, error);
        if (status != ATTN_OK)
            return status;
        if (bytes != room)
            memcpy(room, bytes, count * row);
    }
    if (attn_all_finite(rows, groups * count * row / sizeof(float)))
        return ATTN_OK;
    return attn_fail(error, ATTN_NON_FINITE, kind == ATTN_CACHE_FILE_KEY ? "key" : "value",
                     "layer %zu: a %s from token %zu on is not finite", layer->layer,
                     kind == ATTN_CACHE_FILE_KEY ? "key" : "value", layer->first + import->token);
}

/* Writes the next tokens of the layer that is being copied. */
static enum attn_status write_piece(struct attn_import *import, size_t count, const float *key,
                                    const float *value, struct attn_error *error)
{
    const size_t layer = import->layers[import->layer].layer;
    const size_t index = attn_cache_length(import->cache, layer) / ATTN_TILE;
    if (import->ends != NULL)
        return attn_cache_fill_rows(import->cache, layer,
                                    import->layers[import->layer].first + import->token, count, key,
                                    value, error);
    struct share none = {0}, *share = &none;
    for (size_t i = 0; i < import->num_shares && share == &none; i++)
        if (import->shares[i].layer == import->layer && index < import->shares[i].blocks)
            share = &import->shares[i];
    return write_tokens(share, import->cache, layer, count, key, value, error);
}

/* The tokens of the current layer to be copied, from the first in the file on; goes past those that
 * the cache has. */
static size_t tokens_to_copy(struct attn_import *import)
{
    const struct attn_cache_file_layer *layer = &import->layers[import->layer];
    if (import->ends == NULL)
        return layer->length - layer->first;
    const size_t end = attn_max(import->ends[layer->layer], layer->first) - layer->first;
    if (import->token == 0)
        import->token =
            attn_max(attn_cache_filled(import->cache, layer->layer), layer->first) - layer->first;
    import->token = attn_min(import->token, end);
    return end;
}

/* Copies up to 64 tokens of the current layer, and goes on to the next at its end. */
static enum attn_status copy_piece(size_t *done, struct attn_import *import,
                                   struct attn_error *error)
{
    const struct attn_cache_file_layer *layer = &import->layers[import->layer];
    const size_t kept = tokens_to_copy(import);
    size_t count = attn_min(ATTN_TILE, kept - import->token);
    float *key = import->scratch;
    float *value = key + layer->heads * count * layer->row_bytes[ATTN_CACHE_FILE_KEY] / sizeof *key;
    enum attn_status status = ATTN_OK;
    if (import->ends == NULL)
        status = attn_cache_reserve_list(import->cache, layer->layer, layer->length, error);
    if (status == ATTN_OK)
        status = read_rows(key, import, count, ATTN_CACHE_FILE_KEY, error);
    if (status == ATTN_OK)
        status = read_rows(value, import, count, ATTN_CACHE_FILE_VALUE, error);
    if (status == ATTN_OK)
        status = write_piece(import, count, key, value, error);
    *done += layer->heads * count * (layer->row_bytes[0] + layer->row_bytes[1]);
    import->token += count;
    if (import->token == kept) {
        import->token = 0;
        import->layer++;
    }
    return status;
}

enum attn_status attn_import_run(bool *more, struct attn_import *import, size_t budget,
                                 struct attn_error *error)
{
    size_t done = 0;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && done < budget && import->tensor < 2 * import->num_layers)
        status = sum_piece(&done, import, budget - done, error);
    *more = import->tensor < 2 * import->num_layers;
    if (status != ATTN_OK || *more)
        return status;
    if (!import->summed)
        status = check_sum(&import->sum, import->file, error);
    import->summed = true;
    while (status == ATTN_OK && done < budget && import->layer < import->num_layers)
        status = copy_piece(&done, import, error);
    *more = import->layer < import->num_layers;
    return status;
}
