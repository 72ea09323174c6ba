/* status.h: setting a struct attn_error, and with mem.h what any file of the library needs.  Every
 * failing path of the library ends in attn_fail. */
#ifndef ATTN_LIB_BASICS_STATUS_H
#define ATTN_LIB_BASICS_STATUS_H

#include "attn.h"
#include "basics/mem.h"

/* Fills *error (which may be NULL) with status, the field at fault (NULL: none) and a one-line
 * message, and returns status, so that a check reads `return attn_fail(error, ...)`. */
enum attn_status attn_fail(struct attn_error *error, enum attn_status status, const char *param,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ATTN_OK where value is in [1, limit], else ATTN_OUT_OF_RANGE for `param`. */
enum attn_status attn_check_count(size_t value, size_t limit, const char *param,
                                  struct attn_error *error);

/* ATTN_OK where every element of x [n] is within +-limit, else ATTN_OUT_OF_RANGE for `param` with
 * the first offender.  x may be NULL. */
enum attn_status attn_check_magnitudes(const float *x, size_t n, float limit, const char *param,
                                       struct attn_error *error);

/* ATTN_NO_MEMORY for an allocation of `bytes` that was refused. */
enum attn_status attn_fail_memory(struct attn_error *error, size_t bytes);

#endif
