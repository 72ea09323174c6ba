/* attn_limits.h: bounds on the files of checkpoints, and the memory that models, caches, engines
 * and calls take, so that a process can know before it begins whether it will have enough.
 *
 * Figures are upper bounds in bytes; a sum that would not fit size_t is SIZE_MAX.  Nothing here
 * fails, allocates or takes a lock, and every call may be made from any thread.  Bounds on layers
 * and calls stand in attn_model.h and attn.h, where their arguments do. */
#ifndef ATTN_LIMITS_H
#define ATTN_LIMITS_H

#include "attn.h"

/* Bounds on the files of a checkpoint.  A file beyond them is refused with ATTN_MALFORMED, before
 * memory in its size is taken. */
#define ATTN_CHECKPOINT_MAX_CONFIG 16777216   /* bytes of config.json */
#define ATTN_CHECKPOINT_MAX_INDEX 67108864    /* bytes of the index */
#define ATTN_CHECKPOINT_MAX_SHARDS 1024       /* files that the index names; parts of GGUF */
#define ATTN_SAFETENSORS_MAX_HEADER 100000000 /* bytes, the format's own limit */
#define ATTN_SAFETENSORS_MAX_TENSORS 1000000
#define ATTN_SAFETENSORS_MAX_NAME 512 /* bytes */
#define ATTN_SAFETENSORS_MAX_RANK 8
#define ATTN_SAFETENSORS_MAX_NOTES 2048 /* pairs of __metadata__ in a cache's file */
#define ATTN_NPZ_MAX_MEMBERS 65536      /* of an .npz file */
#define ATTN_NPZ_MAX_DIRECTORY 16777216 /* bytes of its central directory */

/* Bytes of memory that this process may use: the least of the machine's and of the limits of its
 * control groups (v1, v2 and their parents); SIZE_MAX where none is known.  *source names the limit
 * that counts, in a few words; the string is static.  Reads files of /proc and /sys. */
size_t attn_memory_limit(const char **source);

/* CPUs that this process may use: its affinity mask, bounded by the CPU quota of its control
 * groups, rounded up.  An engine that is opened with 0 threads has as many.  At least 1. */
unsigned attn_usable_cpus(void);

/* The memory of a model beside attn_model_info's weight_bytes. */
struct attn_model_memory {
    size_t side_bytes;    /* resident: tables derived from the weights */
    size_t loading_bytes; /* while attn_model_load runs: one layer as float32, files' headers */
    size_t cache_bytes;   /* of an empty cache */
    size_t block_bytes;   /* of the smallest block that its caches grow by */
};

/* Fills *out for a model that is open; before it is loaded the figures are complete. */
void attn_model_memory(struct attn_model_memory *out, const struct attn_model *model);

/* Bytes of the blocks of a cache of up to `tokens` tokens in all resident layers, at most: layers
 * with a window hold what it sees, all others every token.  After a step of more than one row, a
 * layer with a window holds its rows too, until the next step. */
size_t attn_model_cache_bytes(const struct attn_model *model, size_t tokens);

#define ATTN_BLOCK_TOKENS 64 /* of one layer in a block of a cache */
#define ATTN_ENCODE_ROWS 512 /* rows that attn_cache_encode projects at a time */

/* Memory of one block beside its bytes in a pool's budget: its head, its places in lists, and what
 * the allocator keeps of it. */
#define ATTN_BLOCK_OVERHEAD 192

/* Memory that a cache pool may hold beyond its budget for each size of block: huge pages of which
 * some blocks have never been used. */
#define ATTN_POOL_SLACK ((size_t)4 << 20)

/* The largest call that is to be expected: its queries, and its keys, have at most these sizes. */
struct attn_call_size {
    size_t rows;         /* of all sequences or steps together */
    size_t tokens;       /* of one sequence */
    size_t batched_rows; /* of `rows`, those of steps of up to 64 rows, which share products */
    size_t cached;       /* tokens in the caches of steps that have `tree` or a padding_mask */
};

/* Working memory of such a call to any layer of the model, on an engine of `threads`: what
 * attn_engine_options.call_bytes must allow.  Arguments and results are not counted.  model NULL:
 * weightless attention (attn_core), where `rows` counts the floats of the keys, and likewise of the
 * values. */
size_t attn_call_bytes(const struct attn_model *model, const struct attn_call_size *size,
                       unsigned threads);

/* Bytes of working memory that a call may take now, with a yield or without: inside attn_yield.run
 * less than elsewhere.  SIZE_MAX: no bound.  From the thread that makes calls. */
size_t attn_engine_free_bytes(const struct attn_engine *engine, bool has_yield);

/* Memory that an engine of these options, with threads > 0, keeps while it is open: scratch, and
 * what OpenBLAS touches if the engine uses it; and the address space that OpenBLAS reserves. */
size_t attn_engine_bytes(const struct attn_engine_options *options);
size_t attn_engine_reserved(const struct attn_engine_options *options);

/* The estimate of a step's work, in multiply-adds:
 *
 *   rows * (E * ((H + G) * (D + Dv) + gates) + S * H * (D + Dv))
 *
 * that is the projections of `rows` tokens, with `gates` outputs more where outputs are gated, and
 * their scores and weighted sums over `keys` (S) tokens, cached ones and their own.  Layers of
 * latents: attn_mla_step_work (layers/mla.h).  Norms, positions, masks and outputs beside `output`
 * are not counted.  Schedulers compare such estimates; no result depends on them. */
size_t attn_step_work(const struct attn_layer_spec *spec, size_t rows, size_t keys);

#endif
