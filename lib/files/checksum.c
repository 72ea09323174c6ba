/* checksum.c: SHA-256 by nettle. */
#include "files/checksum.h"

#include <nettle/base16.h>

void attn_checksum_init(struct attn_checksum *sum) { sha256_init(&sum->sha256); }

void attn_checksum_add(struct attn_checksum *sum, const void *bytes, size_t count)
{
    sha256_update(&sum->sha256, count, bytes);
}

void attn_checksum_add_stat(struct attn_checksum *sum, const struct stat *info)
{
    const uint64_t facts[] = {
        (uint64_t)info->st_size,        info->st_ino,
        (uint64_t)info->st_mtim.tv_sec, (uint64_t)info->st_mtim.tv_nsec,
        (uint64_t)info->st_ctim.tv_sec, (uint64_t)info->st_ctim.tv_nsec,
    };
    attn_checksum_add(sum, facts, sizeof facts);
}

void attn_checksum_hex(char out[ATTN_CHECKSUM_DIGITS], struct attn_checksum *sum)
{
    uint8_t bytes[SHA256_DIGEST_SIZE];
    sha256_digest(&sum->sha256, sizeof bytes, bytes);
    base16_encode_update(out, sizeof bytes, bytes);
}
