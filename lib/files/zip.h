/* zip.h: members of a ZIP archive, read without trust: stored or deflated, of any size (ZIP64).
 *
 * The central directory is read once and checked against the file's size; a member's bytes are read
 * on request.  Nothing is taken in the size that an archive claims: members are inflated into the
 * caller's memory, as far as the caller asks.  The checksum of a member is compared when its last
 * byte has been read, so a caller that reads a member to its end has read what was written.
 *
 * Source: the format's description, APPNOTE.TXT of PKWARE. */
#ifndef ATTN_LIB_FILES_ZIP_H
#define ATTN_LIB_FILES_ZIP_H

#include "attn.h"

struct attn_zip; /* an open archive; one thread at a time */

struct attn_zip_member {
    const char *name; /* borrowed from the archive */
    size_t size;      /* bytes, expanded */
    size_t packed;    /* bytes in the archive */
    size_t header;    /* where its local header begins */
    uint32_t checksum;
    unsigned method, flags; /* as the format has them */
};

/* Opens file `name` of a directory descriptor (AT_FDCWD: the working directory) and reads its
 * central directory.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED, ATTN_NO_MEMORY. */
enum attn_status attn_zip_open(struct attn_zip **out, int directory, const char *name,
                               struct attn_error *error);
void attn_zip_close(struct attn_zip *zip);

/* The descriptor of the file.  Borrowed. */
int attn_zip_descriptor(const struct attn_zip *zip);

/* The members in the order of their names, each name once.  Borrowed. */
const struct attn_zip_member *attn_zip_members(size_t *count, const struct attn_zip *zip);

/* Reads bytes [first, first + count) of a member, which must lie inside member->size.  Reading
 * onwards is cheap; a read before the last one begins at the member's start again.
 * Errors: ATTN_UNSUPPORTED (encrypted, or a method other than stored and deflated), ATTN_MALFORMED
 * (data that do not inflate to the size or the checksum), ATTN_IO, ATTN_NO_MEMORY. */
enum attn_status attn_zip_read(void *out, struct attn_zip *zip,
                               const struct attn_zip_member *member, size_t first, size_t count,
                               struct attn_error *error);

/* Bytes of memory that the archive takes while it is open; 0 for NULL. */
size_t attn_zip_memory(const struct attn_zip *zip);

#endif
