/* record_rows.c: the rows of a record become tokens of a cache. */
#include <stdlib.h>

#include "store/restore.h"

#define PIECE ((size_t)256 << 10) /* bytes of rows that are held at a time, one row at least */

/* Rows that are held: key [count][keys] and value [count][values] of tokens from `first` on. */
struct held_rows {
    size_t layer, first, count, keys, values;
    const float *key, *value;
};

/* Appends the rows, or with `end` fills those of the tokens before it that the cache still has. */
static enum attn_status put(struct attn_cache *cache, const struct held_rows *rows,
                            const size_t *end)
{
    struct attn_error cause = {0};
    enum attn_status status = ATTN_OK;
    const size_t kept = attn_cache_first(cache, rows->layer);
    for (size_t i = 0; i < rows->count && status == ATTN_OK; i++) {
        const float *key = rows->key + i * rows->keys, *value = rows->value + i * rows->values;
        const size_t token = rows->first + i;
        if (end == NULL)
            status = attn_cache_write(cache, rows->layer, 1, key, value, &cause);
        else if (token < *end && token >= kept)
            status = attn_cache_fill(cache, rows->layer, token, key, value, &cause);
    }
    return status;
}

enum attn_status srv_restore_rows(const struct srv_session *session,
                                  const struct srv_record *record,
                                  const struct srv_record_rows *head, const size_t *end)
{
    const size_t number = sizeof(float), rows = (size_t)head->rows;
    const struct attn_cached_sizes sizes =
        attn_cached_sizes(attn_model_layer(session->model->attn, (size_t)head->layer));
    struct held_rows held = {.layer = (size_t)head->layer,
                             .keys = sizes.heads * sizes.key,
                             .values = sizes.heads * sizes.value};
    const size_t width = held.keys + held.values, key_at = sizeof *head;
    const size_t value_at = key_at + rows * held.keys * number;
    size_t piece_rows = PIECE / (width * number);
    piece_rows = piece_rows < 1 ? 1 : piece_rows < rows ? piece_rows : rows;
    float *key = malloc(piece_rows * width * number);
    enum attn_status status = key != NULL ? ATTN_OK : ATTN_NO_MEMORY;
    for (size_t done = 0; done < rows && status == ATTN_OK; done += held.count) {
        held.count = piece_rows < rows - done ? piece_rows : rows - done;
        float *value = key + held.count * held.keys;
        held.first = (size_t)head->position + done;
        held.key = key;
        held.value = value;
        status = ATTN_IO;
        if (srv_record_read(key, record, key_at + done * held.keys * number,
                            held.count * held.keys * number) &&
            srv_record_read(value, record, value_at + done * held.values * number,
                            held.count * held.values * number))
            status = put(session->cache, &held, end);
    }
    free(key);
    return status;
}
