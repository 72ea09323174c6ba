/* attn_limits.h: bounds on the files of checkpoints.
 *
 * Bounds on layers and calls stand in attn.h, where their arguments do. */
#ifndef ATTN_LIMITS_H
#define ATTN_LIMITS_H

#include "attn.h"

/* Bounds on the files of a checkpoint.  What passes them is refused with ATTN_MALFORMED. */
#define ATTN_CHECKPOINT_MAX_CONFIG 1048576    /* bytes of config.json */
#define ATTN_CHECKPOINT_MAX_INDEX 67108864    /* bytes of the index */
#define ATTN_CHECKPOINT_MAX_SHARDS 1024       /* files that the index names */
#define ATTN_SAFETENSORS_MAX_HEADER 100000000 /* bytes, the format's own limit */
#define ATTN_SAFETENSORS_MAX_TENSORS 1000000
#define ATTN_SAFETENSORS_MAX_NAME 512 /* bytes */
#define ATTN_SAFETENSORS_MAX_RANK 8
#define ATTN_SAFETENSORS_MAX_NOTES 4096 /* pairs of __metadata__, where they are kept */

#endif
