/* checksum.h: SHA-256, as 64 hexadecimal digits.
 *
 * The checksum guards against damage, not against forgers.  Fewer bits would do for that; SHA-256
 * can be made and checked with the tools of every system and language.  The code is nettle's, which
 * comes with libmicrohttpd anyway (through GnuTLS) and uses the CPU's SHA instructions. */
#ifndef ATTN_LIB_FILES_CHECKSUM_H
#define ATTN_LIB_FILES_CHECKSUM_H

#include <nettle/sha2.h>
#include <sys/stat.h>

#define ATTN_CHECKSUM_DIGITS (2 * SHA256_DIGEST_SIZE)

struct attn_checksum {
    struct sha256_ctx sha256;
};

void attn_checksum_init(struct attn_checksum *sum);
void attn_checksum_add(struct attn_checksum *sum, const void *bytes, size_t count);

/* Adds what tells a file's content from another's unread: size, inode, times of change. */
void attn_checksum_add_stat(struct attn_checksum *sum, const struct stat *info);

/* Writes the digits of all that was added, in lower case and without a NUL, and ends the sum. */
void attn_checksum_hex(char out[ATTN_CHECKSUM_DIGITS], struct attn_checksum *sum);

#endif
