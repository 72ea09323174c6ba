/* import_verify.c: the checksum of a whole file, without a model; and files of other formats. */
#include <stdio.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "states/cache_file.h"

#define VERIFY_BYTES ((size_t)256 << 10) /* read at a time */
#define FORMATS "attn-cache-"            /* the name of each format begins so */

static enum attn_status fail_form(struct attn_error *error, const char *param, const char *what)
{
    return attn_fail(error, ATTN_MALFORMED, param, "state: %s", what);
}

enum attn_status attn_cache_file_check_sum(struct attn_checksum *sum,
                                           const struct attn_safetensors *file,
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

/* Adds a whole tensor to the sum, in pieces that fit `room`. */
static enum attn_status sum_tensor(struct attn_checksum *sum, struct attn_safetensors *file,
                                   const struct attn_tensor_entry *tensor, void *room,
                                   struct attn_error *error)
{
    const void *bytes;
    enum attn_status status = ATTN_OK;
    size_t left = tensor->end - tensor->begin, at = 0;
    for (size_t count; left > 0 && status == ATTN_OK; at += count, left -= count) {
        count = attn_min(left, VERIFY_BYTES);
        status = attn_safetensors_read_bytes(&bytes, file, tensor, at, count, room, error);
        if (status == ATTN_OK)
            attn_checksum_add(sum, bytes, count);
    }
    return status;
}

enum attn_status attn_cache_file_verify(struct attn_safetensors *file, struct attn_error *error)
{
    struct attn_checksum sum;
    char name[ATTN_CACHE_FILE_NAME], *room = attn_alloc(VERIFY_BYTES, 1);
    enum attn_status status = room != NULL ? ATTN_OK : attn_fail_memory(error, VERIFY_BYTES);
    size_t found = 0;
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
        if (tensor == NULL || status != ATTN_OK)
            continue;
        found++;
        status = sum_tensor(&sum, file, tensor, room, error);
    }
    attn_free(room);
    if (status == ATTN_OK && found != attn_safetensors_count(file))
        status = fail_form(error, NULL, "it has tensors that are no layer's");
    return status == ATTN_OK ? attn_cache_file_check_sum(&sum, file, error) : status;
}

bool attn_import_other_format(char out[ATTN_STATE_FORMAT], int file, size_t size)
{
    const struct attn_safetensors_source source = {NULL, file, size};
    struct attn_safetensors *opened = NULL;
    struct attn_error error;
    if (attn_safetensors_open_source(&opened, &source, "state", ATTN_MAX_STATE_HEADER, &error) !=
        ATTN_OK)
        return false;
    const char *note = attn_safetensors_note(opened, "format");
    const bool other = note != NULL && strncmp(note, FORMATS, strlen(FORMATS)) == 0 &&
                       strlen(note) < ATTN_STATE_FORMAT &&
                       strcmp(note, ATTN_CACHE_FILE_FORMAT) != 0 &&
                       strcmp(note, ATTN_CACHE_FILE_WINDOWS) != 0 &&
                       attn_cache_file_verify(opened, &error) == ATTN_OK;
    if (other)
        snprintf(out, ATTN_STATE_FORMAT, "%s", note);
    attn_safetensors_close(opened);
    return other;
}
