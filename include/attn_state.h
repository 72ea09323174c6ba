/* attn_state.h: operations on a cache beside steps: encode, fork, freeze, truncate, read, write,
 * record, export, import.
 *
 * Caches share blocks of 64 tokens by reference: a fork and a frozen copy cost references, and a
 * cache that writes to a shared block copies it first.  Notation, errors, ownership and threads are
 * those of attn.h. */
#ifndef ATTN_STATE_H
#define ATTN_STATE_H

#include "attn.h"

/* ---- Whole caches --------------------------------------------------------------------------- */

/* A second cache with the first `length` tokens of each layer, or all where a layer is shorter.
 * `length` is 0, or at least attn_cache_lowest_length.
 * The two share blocks until one of them writes (copy-on-write), have the same max_length, and are
 * freed in any order.
 * Cost: O(blocks), 16 bytes of the pool's budget for each.
 * Errors: ATTN_FORGOTTEN, ATTN_POOL_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_fork(struct attn_cache **out,
                                                 const struct attn_cache *cache, size_t length,
                                                 struct attn_error *error);

/* A frozen copy of the whole cache, to be exported while steps go on in the cache itself.  Another
 * thread may read and free the copy; no step may use it.  A frozen copy takes
 * attn_cache_frozen_bytes of memory and nothing of the pool's budget, so that a full pool can be
 * written to disk.
 * Cost: O(blocks).
 * Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_freeze(struct attn_cache **out,
                                                   const struct attn_cache *cache,
                                                   struct attn_error *error);

/* Memory that attn_cache_freeze of this cache would take now. */
size_t attn_cache_frozen_bytes(const struct attn_cache *cache);

/* The list [*count] of the blocks of 64 tokens that hold a layer's tokens from attn_cache_first on,
 * in order.  Callers only compare the addresses: at one moment, two caches of a pool share a block
 * where their lists have the same address at the place of the same token.  The list belongs to the
 * cache and is good until that changes.  Used by the thread that uses the cache. */
struct attn_block;
struct attn_block *const *attn_cache_blocks(size_t *count, const struct attn_cache *cache,
                                            size_t layer);

/* Drops all but the first `length` tokens of every layer; shorter layers stay as they are.  Blocks
 * that hold no token any more return to the pool.  False, with nothing changed, where `length` is
 * neither 0 nor at least attn_cache_lowest_length. */
bool attn_cache_truncate(struct attn_cache *cache, size_t length);

/* ---- Windows forget -------------------------------------------------------------------------
 *
 * In a layer with sliding_window W, a query at position i sees keys from i - W + 1 on; with chunks
 * of C, of its own chunk, which begins no earlier than i - C + 1.  When a step
 * has been published, the layer's blocks before the first key that the step itself, or a later one,
 * can see return to the pool.  So the last step can be repeated.  A step at position 0 brings all
 * of its keys, and is repeated without cached ones.  No bit of a result depends on what is
 * forgotten. */

/* The first token that a layer still holds, a multiple of 64; 0 where the layer has no window.  Any
 * thread. */
size_t attn_cache_first(const struct attn_cache *cache, size_t layer);

/* The least length, beside 0, to which the cache can be truncated or forked: its next token sees
 * only what is there.  0: any. */
size_t attn_cache_lowest_length(const struct attn_cache *cache);

/* Returns the blocks of a layer to the pool that neither a step at `position` nor a later one sees,
 * nor the last step of a layer that reads this one, as attn_decode does after it has published a
 * step.  For callers of attn_cache_write. */
void attn_cache_forget(struct attn_cache *cache, size_t layer, size_t position);

/* Says that the layer's tokens from `position` on are those of its last step, which may be
 * repeated, of a cache that has them from a file.  Steps, forks and truncations note so. */
void attn_cache_note_step(struct attn_cache *cache, size_t layer, size_t position);

/* Has an empty layer begin at token `first`, a multiple of 64, as if all before it had been
 * forgotten: the next token to be written is that one.
 * Error: ATTN_INVALID, where no layer with such a window can begin there. */
ATTN_MUST_CHECK enum attn_status attn_cache_begin_at(struct attn_cache *cache, size_t layer,
                                                     size_t first, struct attn_error *error);

/* ---- Encoder rows --------------------------------------------------------------------------- */

/* An encoder's rows for attn_cache_encode. */
struct attn_encode_args {
    size_t rows;                        /* S */
    const float *encoder_hidden_states; /* [S][key_size] */
    const uint8_t *padding_mask;        /* [S] 1 = real token, 0 = left out; NULL: all are real */
    const struct attn_yield *yield;     /* NULL: gives way to nothing */
};

/* Projects an encoder's rows to keys and values of every resident layer, which must be of
 * cross-attention, and stores them in an empty cache: steps then attend to them and append nothing.
 * Rows of padding are left out, so a layer's length is the number of real rows and keys are counted
 * among these; a layer with a position bias, window or chunks takes no padding.
 *
 * Blocks until all layers are stored; runs on all threads of the engine, in pieces of
 * ATTN_ENCODE_ROWS (attn_limits.h), whose memory does not grow with S.  After an error, or
 * cancelled, the cache is empty.
 * Cost: 2 S key_size G (D + Dv) operations a layer.
 * Errors: ATTN_INVALID (a cache that is not empty, no real row), ATTN_UNSUPPORTED (a layer of
 * self-attention, one whose keys and values come from rows of different widths or whose queries are
 * scaled by position, padding), ATTN_OUT_OF_RANGE (rows), ATTN_NON_FINITE, ATTN_OVERFLOW,
 * ATTN_NOT_FOUND (a model that is not loaded), ATTN_CACHE_FULL, ATTN_POOL_FULL, ATTN_CANCELLED,
 * ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_encode(struct attn_cache *cache,
                                                   struct attn_engine *engine,
                                                   const struct attn_encode_args *args,
                                                   struct attn_error *error);

/* ---- Tokens --------------------------------------------------------------------------------- */

/* Copies tokens [0, count) of one layer out of the cache, as float32 whatever kv_dtype is: key
 * [G][count][D], value [G][count][Dv]; either may be NULL.  count is at most the layer's length.
 * Rows of forgotten tokens are 0.  Keys are as cached, after bias, norm and RoPE. */
void attn_cache_read(float *key, float *value, const struct attn_cache *cache, size_t layer,
                     size_t count);

/* As attn_cache_read, of tokens [first, first + count). */
void attn_cache_read_from(float *key, float *value, const struct attn_cache *cache, size_t layer,
                          size_t first, size_t count);

/* Appends `count` tokens to one layer: key [G][count][D], value [G][count][Dv].  Numbers that
 * attn_cache_read gave from a cache of the same kv_dtype are stored without a change of a bit;
 * others are rounded to kv_dtype.  After an error the cache is as it was.
 * Errors: ATTN_NOT_FOUND (layer), ATTN_OUT_OF_RANGE (NaN, or beyond ATTN_MAX_MAGNITUDE and what
 * rounding to int8 adds), ATTN_CACHE_FULL, ATTN_POOL_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_write(struct attn_cache *cache, size_t layer,
                                                  size_t count, const float *key,
                                                  const float *value, struct attn_error *error);

/* ---- Blocks in a store -----------------------------------------------------------------------
 *
 * A store may keep blocks elsewhere: a block remembers where, and how many of its first tokens
 * stand there.  A block may be absent: its first tokens are in the store alone until they are
 * filled in, and tokens after them may be appended meanwhile.
 *
 * A layer of a cache may be evicted: blocks that the store has need no memory then, unless another
 * cache uses them.  A cache with an evicted layer, or absent blocks, may be measured, forked,
 * frozen, truncated, appended to with attn_cache_write and freed; its tokens must not be read, and
 * no step may use it. */

/* A place in a store; the store alone knows what the numbers mean. */
struct attn_stored {
    uint64_t slot, sum, since;
    uint32_t file;
    uint32_t rows; /* tokens that the store has; 0: it has none */
};

/* The bytes of a block, which do not depend on the CPU: [*size]; NULL where it has no memory. */
const void *attn_block_bytes_of(size_t *size, const struct attn_block *block);

/* Where the store has the block.  Set by one thread, which has a frozen cache that holds the block,
 * or before any step; tokens that are written to a block lower `rows`. */
struct attn_stored attn_block_stored(const struct attn_block *block);
void attn_block_set_stored(struct attn_block *block, const struct attn_stored *stored);

/* First tokens of a block that are absent. */
size_t attn_block_absent(const struct attn_block *block);

/* Fills in the absent tokens of a block of such a layer from the block's bytes as they were stored.
 * Other threads may use other blocks meanwhile. */
struct attn_layer_spec;
void attn_block_fill(struct attn_block *block, const struct attn_layer_spec *spec,
                     const void *bytes);

/* Bytes of blocks that appending that many rows to a layer takes, with the copy of a block that is
 * shared now. */
size_t attn_cache_growth(const struct attn_cache *cache, size_t layer, size_t rows);

/* Whether a layer is evicted; evicting one, which takes no memory.  Each block that is at `stored`
 * with all its tokens gives its memory back once no cache uses it and none is frozen with it. */
bool attn_cache_is_evicted(const struct attn_cache *cache, size_t layer);
void attn_cache_evict(struct attn_cache *cache, size_t layer);

/* Bytes of the pool that giving a layer's blocks memory takes. */
size_t attn_cache_evicted_bytes(const struct attn_cache *cache, size_t layer);

/* Gives the blocks of an evicted layer memory again; absent ones are then to be filled in.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY; the layer stays evicted. */
ATTN_MUST_CHECK enum attn_status attn_cache_admit(struct attn_cache *cache, size_t layer,
                                                  struct attn_error *error);

/* Appends a block to an evicted or empty layer whose length is a multiple of 64: `shared`, which
 * another cache of the same model and pool has, or where that is NULL one that is in the store
 * alone, at `stored`.  The layer
 * then has `length` tokens, at most 64 more than before.  A layer that reads another's keys has no
 * blocks: with both NULL it gets the length, whatever that is.
 * Errors: ATTN_INVALID, ATTN_NOT_FOUND (layer), ATTN_CACHE_FULL, ATTN_POOL_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_append_stored(struct attn_cache *cache, size_t layer,
                                                          size_t length, struct attn_block *shared,
                                                          const struct attn_stored *stored,
                                                          struct attn_error *error);

/* Has `dropped` called with each place that a block gives up, as it is freed or overwritten; NULL,
 * as at first: nobody is called.  From any thread that uses caches, under the pool's lock. */
void attn_cache_pool_set_dropped(struct attn_cache_pool *pool,
                                 void (*dropped)(void *context, const struct attn_stored *place),
                                 void *context);

/* ---- Steps on record ------------------------------------------------------------------------ */

/* The keys and values that a step of n rows is about to add to its cache. */
struct attn_appended {
    const struct attn_step *step;
    const float *key;   /* [n][G][D], before rounding to kv_dtype: attn_cache_write of these numbers
                           stores the same bits as the step */
    const float *value; /* [n][G][Dv] */
};

/* A write-ahead recorder: it writes down what steps add to caches before the tokens are visible. */
struct attn_recorder {
    /* Called once for a batch, on the calling thread of attn_decode_recorded, with the steps that
     * succeeded, commit and append.  Where the recorder returns false with *error filled, these
     * steps fail with ATTN_IO and that message.  A recorder must not call the engine, nor touch
     * these caches. */
    bool (*record)(void *context, const struct attn_appended list[], size_t count,
                   struct attn_error *error);
    void *context;
};

/* attn_decode with a recorder, NULL for none.  The call lasts as long as the recorder takes. */
ATTN_MUST_CHECK enum attn_status attn_decode_recorded(struct attn_engine *engine,
                                                      const struct attn_model *model, size_t layer,
                                                      struct attn_step *const steps[], size_t count,
                                                      const struct attn_recorder *recorder);

/* ---- Caches as bytes ------------------------------------------------------------------------ */

/* A cache as the bytes of a safetensors file: tensors layers.<i>.key [G][L][D] and layers.<i>.value
 * [G][L][Dv] of F32 for every resident layer i.  Its __metadata__ holds the format, the model's
 * fingerprint, the layers' lengths, the caller's notes and a checksum.  The checksum is SHA-256, in
 * hexadecimal, of the tensors' bytes (layers in order, each key and then value) and then of name,
 * '=', value and a line feed of each other pair of __metadata__, in the order of their names.
 * Where windows have forgotten tokens the format is another one, which notes the first token of
 * each layer too; L is then the number of tokens from that one on.
 *
 * An export or import is done in pieces, whose size the caller chooses, so that other work can run
 * between them.  Each belongs to one thread at a time. */
struct attn_export;
struct attn_import;

#define ATTN_MAX_NOTES 2043           /* notes of one export, beside the five of its own */
#define ATTN_MAX_STATE_HEADER 1048576 /* bytes of a file's header */

/* A text of the caller's that is stored with a cache, as a pair of __metadata__. */
struct attn_note {
    const char *name, *value; /* printable ASCII without '"' and '\\'; names without '=' */
};

/* Begins to write a cache, which must not change until the export is closed; freeze it to go on
 * using the original.  Notes are copied; their names must differ from each other and from format,
 * fingerprint, lengths, first, checksum.  The header is made here, no token is copied yet.
 * Errors: ATTN_INVALID (a note), ATTN_OUT_OF_RANGE (too many, or too long together),
 * ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_export_open(struct attn_export **out,
                                                  const struct attn_cache *cache,
                                                  const struct attn_note *notes, size_t num_notes,
                                                  struct attn_error *error);

/* Bytes of the whole file, known once the export is open. */
size_t attn_export_bytes(const struct attn_export *state);

/* Memory that freezing this cache and exporting it with these notes takes, at most; the file itself
 * is not counted. */
size_t attn_export_memory(const struct attn_cache *cache, const struct attn_note *notes,
                          size_t num_notes);

/* Writes one more piece of the file at `out`, a buffer of attn_export_bytes, aligned as floats are
 * and the same in every call: about `budget` bytes.  Returns true until the file is complete. */
bool attn_export_run(struct attn_export *state, void *out, size_t budget);

/* The same for a file that is written elsewhere: writes the next piece to `out`, which has room for
 * `room` bytes, at least ATTN_EXPORT_ROOM, and is aligned as floats are.  Returns how many bytes
 * belong at *offset of the file; 0 once it is complete.  The file's beginning comes last.  One of
 * the two calls alone reads an export. */
#define ATTN_EXPORT_ROOM (ATTN_MAX_HEAD_DIM * sizeof(float))
size_t attn_export_piece(size_t *offset, void *out, struct attn_export *state, size_t room);

/* Frees the export, complete or not; the cache and `out` stay the caller's. */
void attn_export_close(struct attn_export *state);

/* Begins to read such a file from `size` bytes, which are not trusted and must not change until the
 * import is closed.  The container's header is parsed and checked here.  An import takes less than
 * 4 times the file's header, 1 MiB and 64 tokens of a layer of memory.
 * Errors: ATTN_MALFORMED, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_import_open(struct attn_import **out, const void *bytes,
                                                  size_t size, struct attn_error *error);

/* The value of a note, NULL where there is none; borrowed from the import.  A note is proved only
 * by the checksum, that is once attn_import_run has ended. */
const char *attn_import_note(const struct attn_import *state, const char *name);

/* Memory that an empty cache of the model and attn_import_begin for it take, at most. */
size_t attn_import_memory(const struct attn_model *model);

/* Names the empty cache that is to be filled, and checks the file against the cache's model:
 * layers, shapes, lengths, fingerprint.  Called once, before attn_import_run.
 * Errors: ATTN_INVALID (another fingerprint, a cache that is not empty), ATTN_MALFORMED,
 * ATTN_SHAPE_MISMATCH, ATTN_CACHE_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_import_begin(struct attn_import *state,
                                                   struct attn_cache *cache,
                                                   struct attn_error *error);

/* attn_cache_bytes of the cache once the import is complete; after attn_import_begin. */
size_t attn_import_cache_bytes(const struct attn_import *state);

/* Reads one more piece: first all bytes are summed up, then, once the checksum agrees, tokens are
 * copied into the cache, in both cases about `budget` bytes a call.  *more is true until the cache
 * is complete.  After an error the cache may only be freed.
 * Errors: ATTN_MALFORMED (checksum), ATTN_NON_FINITE, ATTN_OUT_OF_RANGE (as attn_cache_write),
 * ATTN_POOL_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_import_run(bool *more, struct attn_import *state,
                                                 size_t budget, struct attn_error *error);

/* Frees the import, complete or not; the cache stays the caller's. */
void attn_import_close(struct attn_import *state);

#endif
