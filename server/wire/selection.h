/* selection.h: the parts of maps that a call asks for: heads, rows, blocks. */
#ifndef SRV_SELECTION_H
#define SRV_SELECTION_H

#include "attn.h"
#include "wire/call.h"

/* Reads a list of distinct indices below `limit` into the arena; *out stays as it is where the
 * field was not given.  Errors: number_out_of_range, shape_mismatch, invalid_value (an empty
 * list), out_of_memory. */
enum srv_error_code srv_selection_read(const size_t **out, size_t *count,
                                       const struct srv_tensor *list, const char *param,
                                       size_t limit, struct srv_arena *arena,
                                       struct srv_error *error);

/* Reads `pool` [R, C] and `pool_type`; *out stays as it is where `pool` was not given.  Errors:
 * number_out_of_range, shape_mismatch. */
enum srv_error_code srv_pool_read(struct attn_map_pooling *out, const struct srv_rows *rows,
                                  struct srv_error *error);

#endif
