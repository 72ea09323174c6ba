/* checksum.c: the only file that calls nettle. */
#include "checksum.h"

void attn_checksum_init(struct attn_checksum *sum) { sha256_init(&sum->sha256); }

void attn_checksum_add(struct attn_checksum *sum, const void *bytes, size_t count)
{
    sha256_update(&sum->sha256, count, bytes);
}

void attn_checksum_print(char out[ATTN_CHECKSUM_DIGITS], struct attn_checksum *sum)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[SHA256_DIGEST_SIZE];
    sha256_digest(&sum->sha256, sizeof bytes, bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}
