/* head_stats.h: what head_stats are asked about keys, and their text in a reply. */
#ifndef SRV_HEAD_STATS_H
#define SRV_HEAD_STATS_H

#include "base/buffer.h"
#include "wire/shapes.h"

/* Fills in the targets and groups of keys that the rows name, in memory of the arena; sizes->keys
 * is known.  The library checks the targets.  Errors: shape_mismatch (targets), number_out_of_range
 * (a key of a group that does not exist, or stands in it twice), out_of_memory. */
enum srv_error_code srv_head_stats_read(struct attn_outputs *out, const struct srv_rows *rows,
                                        const struct srv_sizes *sizes, struct srv_arena *arena,
                                        struct srv_error *error);

/* The most bytes of text that one head's object takes. */
size_t srv_head_stats_text(const struct attn_outputs *outputs);

/* Appends a list [H'] of objects, or [B][H'] in a reply with a batch dimension. */
void srv_head_stats_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                          const struct srv_sizes *sizes);

#endif
