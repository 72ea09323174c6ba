/* attn_state.h: what can be done with a cache beside stepping it: fork, freeze, truncate, read,
 * write, bytes.
 *
 * Notation, errors, ownership and threads are those of attn.h. */
#ifndef ATTN_STATE_H
#define ATTN_STATE_H

#include "attn.h"

/* ---- Whole caches --------------------------------------------------------------------------- */

/* A second cache with the first `length` tokens of each layer, sharing blocks until one of the
 * two writes (copy-on-write).  O(blocks): it takes 16 bytes of the pool's budget for each.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_fork(struct attn_cache **out,
                                                 const struct attn_cache *cache, size_t length,
                                                 struct attn_error *error);

/* A fork of the whole cache that is only read and freed, by any thread, while the cache is used; on
 * the way to a file, say.  It takes nothing of the pool's budget, so that there can be one however
 * full that is, and attn_cache_frozen_bytes of memory.  Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_freeze(struct attn_cache **out,
                                                   const struct attn_cache *cache,
                                                   struct attn_error *error);
size_t attn_cache_frozen_bytes(const struct attn_cache *cache);

/* The list [*count] of the blocks of 64 tokens that hold a layer's tokens, in order.  Callers only
 * compare the addresses: at one moment, two caches of a pool share a block where their lists have
 * the same address at the same place.  The list belongs to the cache and is good until that
 * changes.  Used by the thread that uses the cache. */
struct attn_block;
struct attn_block *const *attn_cache_blocks(size_t *count, const struct attn_cache *cache,
                                            size_t layer);

/* Forgets all but the first `length` tokens of every layer; layers shorter than that stay. */
void attn_cache_truncate(struct attn_cache *cache, size_t length);

/* ---- Tokens --------------------------------------------------------------------------------- */

/* Copies tokens [0, count) of one layer out of the cache, as float32 whatever kv_dtype is: key
 * [G][count][D], value [G][count][Dv]; either may be NULL.  count is at most the layer's length. */
void attn_cache_read(float *key, float *value, const struct attn_cache *cache, size_t layer,
                     size_t count);

/* attn_cache_read of tokens [first, first + count). */
void attn_cache_read_from(float *key, float *value, const struct attn_cache *cache, size_t layer,
                          size_t first, size_t count);

/* Appends `count` tokens to one layer: key [G][count][D], value [G][count][Dv], as attn_cache_read
 * gave them from a cache of the same kv_dtype: what is read after that is what was written, bit for
 * bit.
 * Errors: ATTN_NOT_FOUND (layer), ATTN_OUT_OF_RANGE (NaN or beyond ATTN_MAX_MAGNITUDE),
 * ATTN_CACHE_FULL, ATTN_POOL_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_write(struct attn_cache *cache, size_t layer,
                                                  size_t count, const float *key,
                                                  const float *value, struct attn_error *error);

/* ---- Steps on record ------------------------------------------------------------------------ */

/* What a step of n rows is about to add to its cache. */
struct attn_appended {
    const struct attn_step *step;
    const float *key;   /* [n][G][D], before they are rounded to kv_dtype: attn_cache_write of them
                           stores what the step has stored */
    const float *value; /* [n][G][Dv] */
};

/* Someone who writes down what steps add to caches before anybody sees it. */
struct attn_recorder {
    /* Called once for a batch, before it becomes visible, with its steps that succeeded, commit and
     * do not repeat; false with *error to have them all fail with ATTN_IO and that message.  It
     * must not call the engine, nor touch these caches. */
    bool (*record)(void *context, const struct attn_appended list[], size_t count,
                   struct attn_error *error);
    void *context;
};

/* attn_decode with a recorder, NULL for none. */
ATTN_MUST_CHECK enum attn_status attn_decode_recorded(struct attn_engine *engine,
                                                      const struct attn_model *model, size_t layer,
                                                      struct attn_step *const steps[], size_t count,
                                                      const struct attn_recorder *recorder);

/* ---- Caches as bytes ------------------------------------------------------------------------ */

/* A cache as the bytes of a safetensors file: tensors layers.<i>.key [G][L][D] and layers.<i>.value
 * [G][L][Dv] of F32 for every resident layer i, and in __metadata__ the format, the model's
 * fingerprint, the layers' lengths, the caller's notes, and a checksum: SHA-256 in hexadecimal of
 * the tensors' bytes (layers in order, each key and then value) and then, in the order of their
 * names, name, '=', value and a line feed of each other pair.
 *
 * Both directions are done in pieces, so that a long cache holds nobody up. */
struct attn_export;
struct attn_import;

#define ATTN_MAX_NOTES 2048           /* of one export */
#define ATTN_MAX_STATE_HEADER 1048576 /* bytes */

/* A text of the caller's that goes with a cache. */
struct attn_note {
    const char *name, *value; /* printable ASCII without '"' and '\\'; names without '=' */
};

/* Begins to write a cache, which must stay as it is until the export is closed: freeze it.  Notes
 * are copied; their names differ from each other and from format, fingerprint, lengths, checksum.
 * Errors: ATTN_INVALID (a note), ATTN_OUT_OF_RANGE (too many, or too long together),
 * ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_export_open(struct attn_export **out,
                                                  const struct attn_cache *cache,
                                                  const struct attn_note *notes, size_t num_notes,
                                                  struct attn_error *error);
size_t attn_export_bytes(const struct attn_export *state); /* of the whole file */

/* What freezing this cache and exporting it with these notes takes of memory, at most. */
size_t attn_export_memory(const struct attn_cache *cache, const struct attn_note *notes,
                          size_t num_notes);

/* Goes on writing the file at `out` [attn_export_bytes], aligned as floats are and the same in
 * every call: copies or sums up about `budget` bytes more.  True until all is there. */
bool attn_export_run(struct attn_export *state, void *out, size_t budget);
void attn_export_close(struct attn_export *state);

/* Begins to read such a file, from bytes that nobody vouches for and that must stay as they are
 * until the import is closed.  It takes less than 4 times the file's header and 1 MiB of memory,
 * and 64 tokens of a layer.  Errors: ATTN_MALFORMED, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_import_open(struct attn_import **out, const void *bytes,
                                                  size_t size, struct attn_error *error);

/* The same for the first `size` bytes of an open file, which is read in pieces: of a file of any
 * length it takes no more memory.  The descriptor stays the caller's.  From here on each call may
 * fail with ATTN_IO too. */
ATTN_MUST_CHECK enum attn_status attn_import_open_file(struct attn_import **out, int file,
                                                       size_t size, struct attn_error *error);

/* The value of a note; NULL where there is none.  Believe it when attn_import_run has ended. */
const char *attn_import_note(const struct attn_import *state, const char *name);

/* What an empty cache of the model and attn_import_begin for it take of memory, at most. */
size_t attn_import_memory(const struct attn_model *model);

/* Names the empty cache to fill, and checks the file against its model.
 * Errors: ATTN_INVALID (another fingerprint, a cache that is not empty), ATTN_MALFORMED,
 * ATTN_SHAPE_MISMATCH, ATTN_CACHE_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_import_begin(struct attn_import *state,
                                                   struct attn_cache *cache,
                                                   struct attn_error *error);

/* Has the cache that the import fills share up to `blocks` blocks of a layer, from the first one
 * on, with `from`, a cache of the same pool that another import has filled and that stays as it is
 * until this import is closed.  As many blocks are shared as hold the same tokens in both caches,
 * which is verified; either cache may end within the last of them.  No bit of either depends on
 * sharing.  Nothing is shared with a cache of another model, or in a layer that is not resident.
 * After attn_import_begin, before attn_import_run.  Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_import_share_blocks(struct attn_import *state, size_t layer,
                                                          const struct attn_cache *from,
                                                          size_t blocks, struct attn_error *error);

/* Sums up and then copies about `budget` bytes more; *more until the cache is whole.  Nothing is
 * copied before the checksum agrees.  After an error the cache is good for attn_cache_free only.
 * Errors: ATTN_MALFORMED (checksum), ATTN_NON_FINITE, ATTN_OUT_OF_RANGE (beyond
 * ATTN_MAX_MAGNITUDE), ATTN_POOL_FULL, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_import_run(bool *more, struct attn_import *state,
                                                 size_t budget, struct attn_error *error);
void attn_import_close(struct attn_import *state);

#endif
