/* checkpoint_files.h: the members of a checkpoint, for the files that open it, list its names and
 * tell it from another. */
#ifndef ATTN_LIB_LAYERS_CHECKPOINT_FILES_H
#define ATTN_LIB_LAYERS_CHECKPOINT_FILES_H

#include "layers/checkpoint.h"

#define MAX_SHARD_NAME 255 /* bytes, what a directory can hold */

struct shard {
    char name[MAX_SHARD_NAME + 1];
    struct attn_safetensors *file; /* NULL until needed */
};

struct mapping {
    const char *tensor;
    size_t shard;
};

struct attn_checkpoint {
    int directory;
    char *config; /* [config_length]; NULL: said elsewhere */
    size_t config_length;
    char *index; /* text of the index; NULL for a single file */
    size_t index_length;
    struct mapping *weight_map; /* [num_mappings], by tensor */
    size_t num_mappings, capacity;
    struct shard *shards; /* [max_shards] */
    size_t *by_name;      /* [max_shards] numbers of shards in the order of their names */
    size_t num_shards, max_shards;
    struct attn_npz *npz; /* the tensors, where they are in one such file; there are no shards */
};

#endif
