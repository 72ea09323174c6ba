/* blocks.h: blocks of caches in slots.
 *
 * A moment writes the blocks of its frozen caches of which slots have too few tokens, each once
 * however many sessions share it.  A start gives caches their blocks again, absent at first; blocks
 * of one place are one block.  attn_stored.since is the number of the moment that wrote the
 * block. */
#ifndef SRV_BLOCKS_H
#define SRV_BLOCKS_H

#include "attn_state.h"
#include "store/manifest.h"
#include "store/slots.h"

/* ---- A moment -------------------------------------------------------------------------------- */

/* The blocks that a moment has written.  Zeroed at first but for its first members. */
struct srv_block_writer {
    struct srv_slots *slots;
    uint64_t moment;                    /* its number, larger than those before */
    uint64_t told;                      /* the newest moment that the manifest has; 0: none */
    struct srv_written_blocks *written; /* the newest first */
    struct srv_slot_reader reader;      /* of blocks that have left memory */
    uint64_t bytes;                     /* of the blocks */
};

#define SRV_WRITTEN_BLOCK_BYTES 48 /* of memory, for each block that is written, at most */

/* Writes the blocks of a frozen cache that are new, or have new tokens.  False with errno. */
bool srv_blocks_write(struct srv_block_writer *writer, const struct attn_cache *frozen,
                      size_t num_layers);

/* Brings what was written to the disk and gives up the places that it replaces.  Without `ok`, or
 * where that fails (false with errno), the blocks have their former places again.  Frees the list;
 * the caches are still there. */
bool srv_blocks_end(struct srv_block_writer *writer, bool ok);

/* Blocks that a cache has. */
size_t srv_blocks_count(const struct attn_cache *cache, size_t num_layers);

/* Says of each layer what a manifest is to say: length, first, kept, added, and lists the places of
 * those added, [srv_blocks_count] at most; `whole`: of all blocks.  Returns how many it lists. */
size_t srv_blocks_list(struct srv_manifest_layer layers[], struct srv_block_place places[],
                       const struct srv_block_writer *writer, const struct attn_cache *frozen,
                       size_t num_layers, bool whole);

/* ---- A start --------------------------------------------------------------------------------- */

/* Blocks by their place.  Zeroed at first.  Caches that blocks came from outlive the map. */
struct srv_block_map {
    struct srv_mapped_block *entries; /* [capacity] */
    size_t capacity, count;
};
#define SRV_MAPPED_BLOCK_BYTES 96 /* of memory, for each block, at most */
void srv_block_map_fini(struct srv_block_map *map);

/* Gives an empty cache the blocks of an entry that is not lost; their slots count as taken.
 * Errors: ATTN_MALFORMED (a slot is not there, or the cache cannot have such blocks; the message
 * says which), ATTN_IO (a file exists and cannot be read), ATTN_POOL_FULL, ATTN_CACHE_FULL,
 * ATTN_NO_MEMORY. */
enum attn_status srv_blocks_restore(struct attn_cache *cache, struct srv_block_map *map,
                                    struct srv_slots *slots, const struct srv_manifest_entry *entry,
                                    struct attn_error *error);

/* Fills in the absent blocks of a layer that have memory, in runs.  Errors: ATTN_MALFORMED (one is
 * not as it was written), ATTN_IO (errno). */
enum attn_status srv_blocks_fill(const struct attn_cache *cache, const struct attn_model *model,
                                 size_t layer, struct srv_slots *slots,
                                 struct srv_slot_reader *reader);

/* Reads the blocks of an entry that are not in the map yet, which notes of each whether it is
 * sound.  Errors: ATTN_MALFORMED (one is not, or not there), ATTN_IO (errno), ATTN_NO_MEMORY. */
enum attn_status srv_blocks_verify(struct srv_block_map *map, struct srv_slots *slots,
                                   struct srv_slot_reader *reader,
                                   const struct srv_manifest_entry *entry);

#endif
