/* state_file.h: exported sessions from the bytes of an input.
 *
 * The input is the header's text up to a NUL, followed by the data.  The header's length is put
 * before it and, if asked for, fingerprint and checksum are made right, so that the code after
 * those checks is reached. */
#ifndef TESTS_FUZZ_STATE_FILE_H
#define TESTS_FUZZ_STATE_FILE_H

#include "attn_state.h"
#include "files/checksum.h"
#include "files/safetensors.h"
#include "fuzz.h"
#include "states/cache_file.h"

#define STATE_PREFIX 8 /* bytes before the header: its length */

/* Writes `text` over the bytes after `before`, where there are as many. */
static inline void state_overwrite(char *bytes, size_t size, const char *before, const char *text,
                                   size_t length)
{
    char *at = memmem(bytes, size, before, strlen(before));
    if (at != NULL && (size_t)(bytes + size - at) >= strlen(before) + length)
        memcpy(at + strlen(before), text, length);
}

/* Writes the checksum that docs/API.md describes, over tensors that follow each other as they
 * should. */
static inline void state_repair_sum(char *bytes, size_t size, size_t header)
{
    struct attn_safetensors *file;
    struct attn_checksum sum;
    char digits[ATTN_CHECKSUM_DIGITS];
    if (attn_safetensors_open_bytes(&file, bytes, size, "x", 1 << 20, NULL) != ATTN_OK)
        return;
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, bytes + STATE_PREFIX + header, size - STATE_PREFIX - header);
    const struct attn_safetensors_pair *notes = file->metadata;
    for (size_t i = 0; i < file->num_metadata; i++)
        if (strcmp(notes[i].name, "checksum") != 0)
            attn_cache_file_sum_note(&sum, notes[i].name, notes[i].value);
    attn_checksum_hex(digits, &sum);
    attn_safetensors_close(file);
    state_overwrite(bytes + STATE_PREFIX, header, "\"checksum\":\"", digits, sizeof digits);
}

/* Returns the file, in memory of exactly its size; the caller frees it. */
static inline char *state_file(size_t *size, const struct fuzz_input *in, bool repaired,
                               const char *fingerprint)
{
    const uint8_t *nul = in->left > 0 ? memchr(in->at, '\0', in->left) : NULL;
    uint64_t header = nul != NULL ? (uint64_t)(nul - in->at) : in->left;
    size_t skipped = nul != NULL;
    *size = STATE_PREFIX + in->left - skipped;
    char *bytes = malloc(*size);
    FUZZ_EXPECT(bytes != NULL);
    memcpy(bytes, &header, STATE_PREFIX);
    memcpy(bytes + STATE_PREFIX, in->at, header);
    memcpy(bytes + STATE_PREFIX + header, in->at + header + skipped, in->left - header - skipped);
    if (repaired) {
        state_overwrite(bytes + STATE_PREFIX, header, "\"fingerprint\":\"", fingerprint, 16);
        state_repair_sum(bytes, *size, header);
    }
    return bytes;
}

#endif
