/* attn_limits.h: bounds on the files of checkpoints, and what memory all of it takes, so that a
 * process can know before it begins whether it will have enough.
 *
 * Bounds on layers and calls stand in attn.h, where their arguments do.  Sums that would not fit
 * size_t are SIZE_MAX. */
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

/* The least of what control groups (v1 and v2, and those above) and the machine allow this process;
 * *source says which in a few words.  SIZE_MAX where nobody says. */
size_t attn_memory_limit(const char **source);

/* CPUs that this process may use: what an engine of 0 threads takes. */
unsigned attn_usable_cpus(void);

/* What a model takes beside attn_model_info's weight_bytes. */
struct attn_model_memory {
    size_t side_bytes;    /* resident: what is derived from the weights */
    size_t loading_bytes; /* while attn_model_load runs: one layer as float32, files' headers */
    size_t cache_bytes;   /* of an empty cache */
    size_t block_bytes;   /* of the smallest block that its caches grow by; SIZE_MAX: it has none */
};
void attn_model_memory(struct attn_model_memory *out, const struct attn_model *model);

/* Of a block beside its bytes in a pool's budget: head, places in lists, the allocator's own. */
#define ATTN_BLOCK_OVERHEAD 192

/* What a cache pool may hold for each size of block beyond its budget: huge pages of which not all
 * blocks are in use yet. */
#define ATTN_POOL_SLACK ((size_t)4 << 20)

/* The size of a call, at most: of queries and of keys each. */
struct attn_call_size {
    size_t rows;   /* of all sequences or steps together */
    size_t tokens; /* of one sequence */
    size_t few;    /* of rows, those of steps that share their products with others */
    size_t cached; /* tokens in the caches of steps with a tree's positions or a padding_mask */
};

/* What such a call to any layer of the model takes beside its arguments and results, as
 * attn_engine_options.call_bytes has it.  model NULL: weightless attention, where `rows` are the
 * numbers of the keys, and those of the values. */
size_t attn_call_bytes(const struct attn_model *model, const struct attn_call_size *size,
                       unsigned threads);

/* What an engine takes beside that: scratch. */
size_t attn_engine_bytes(unsigned threads);

#endif
