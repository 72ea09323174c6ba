/* checksum.c: SHA-256 by nettle. */
#include "files/checksum.h"

#include <nettle/base16.h>

void attn_checksum_init(struct attn_checksum *sum) { sha256_init(&sum->sha256); }

void attn_checksum_add(struct attn_checksum *sum, const void *bytes, size_t count)
{
    sha256_update(&sum->sha256, count, bytes);
}

void attn_checksum_hex(char out[ATTN_CHECKSUM_DIGITS], struct attn_checksum *sum)
{
    uint8_t bytes[SHA256_DIGEST_SIZE];
    sha256_digest(&sum->sha256, sizeof bytes, bytes);
    base16_encode_update(out, sizeof bytes, bytes);
}
