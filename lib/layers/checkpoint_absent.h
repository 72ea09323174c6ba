/* checkpoint_absent.h: what to do about a directory that lacks what a checkpoint has. */
#ifndef ATTN_LIB_LAYERS_CHECKPOINT_ABSENT_H
#define ATTN_LIB_LAYERS_CHECKPOINT_ABSENT_H

#include "attn.h"

/* Refuses a directory with an adapter, which would have to be applied.
 * Error: ATTN_UNSUPPORTED. */
enum attn_status attn_refuse_adapter(int directory, struct attn_error *error);

/* Fails with ATTN_NOT_FOUND: `name` is not there, in the words of `absent`; what else is there, and
 * what to do about it, follows. */
enum attn_status attn_fail_absent(int directory, const char *name, const char *absent,
                                  struct attn_error *error);

/* The same for a path that leads nowhere. */
enum attn_status attn_fail_no_path(const char *path, struct attn_error *error);

#endif
