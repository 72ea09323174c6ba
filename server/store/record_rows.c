/* record_rows.c: the rows of a record become tokens of a cache. */
#include <stdlib.h>

#include "store/restore.h"

#define PIECE ((size_t)256 << 10) /* bytes of rows that are held at a time, one row at least */

enum attn_status srv_restore_rows(const struct srv_session *session,
                                  const struct srv_record *record,
                                  const struct srv_record_rows *head)
{
    struct attn_error cause;
    const size_t number = sizeof(float), rows = (size_t)head->rows;
    const struct attn_cached_sizes sizes =
        attn_cached_sizes(attn_model_layer(session->model->attn, (size_t)head->layer));
    const size_t keys = sizes.heads * sizes.key, values = sizes.heads * sizes.value;
    const size_t width = keys + values, key_at = sizeof *head;
    const size_t value_at = key_at + rows * keys * number;
    size_t most = PIECE / (width * number), count;
    most = most < 1 ? 1 : most < rows ? most : rows;
    float *key = malloc(most * width * number);
    enum attn_status status = key != NULL ? ATTN_OK : ATTN_NO_MEMORY;
    for (size_t done = 0; done < rows && status == ATTN_OK; done += count) {
        count = most < rows - done ? most : rows - done;
        float *value = key + count * keys;
        status = ATTN_IO;
        if (srv_record_read(key, record, key_at + done * keys * number, count * keys * number) &&
            srv_record_read(value, record, value_at + done * values * number,
                            count * values * number))
            status = ATTN_OK;
        for (size_t i = 0; i < count && status == ATTN_OK; i++)
            status = attn_cache_write(session->cache, (size_t)head->layer, 1, key + i * keys,
                                      value + i * values, &cause);
    }
    free(key);
    return status;
}
