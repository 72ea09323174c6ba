/* kinds.h: what a file is that was taken for weights, by its first bytes. */
#ifndef ATTN_LIB_FILES_KINDS_H
#define ATTN_LIB_FILES_KINDS_H

#include "attn.h"

/* ATTN_OK where these first bytes of a file are of no kind in the table; else ATTN_MALFORMED with
 * what the file is, that it is not `wanted`, and what to do.  For a file that cannot be read as
 * `wanted`: such a file could begin like any of these kinds. */
enum attn_status attn_check_kind(const char *start, size_t count, const char *name,
                                 const char *wanted, struct attn_error *error);

/* The same of an open file of `size` bytes, which was taken for a safetensors file. */
enum attn_status attn_file_kind(int file, const char *name, size_t size, struct attn_error *error);

/* The refusal of what torch.save wrote. */
enum attn_status attn_fail_torch(const char *name, struct attn_error *error);

#endif
