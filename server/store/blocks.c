/* blocks.c: which blocks a moment writes, and giving caches their blocks at a start. */
#include "store/blocks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKENS ((size_t)64) /* of a block */
#define MOST_READ 256       /* blocks of one read */
#define WRITTEN 256         /* blocks that are noted in one piece of memory */

struct srv_written_blocks {
    struct srv_written_blocks *next;
    size_t count;
    struct {
        struct attn_block *block;
        struct attn_stored before;
    } items[WRITTEN];
};

struct srv_mapped_block {
    struct attn_block *block; /* NULL where blocks are verified alone */
    uint64_t index;           /* of the slot, in that file */
    uint32_t file;
    bool used, damaged;
};

static struct srv_slot slot_of(const struct attn_stored *stored)
{
    return (struct srv_slot){stored->file, stored->slot};
}

/* ---- A moment -------------------------------------------------------------------------------- */

/* The blocks of a layer, and of which the first is, counted from token 0 on. */
struct list {
    struct attn_block *const *blocks; /* [count] */
    size_t count, first, length;      /* length: of the layer, in tokens */
};

static struct list list_of(const struct attn_cache *cache, size_t layer)
{
    struct list list = {.length = attn_cache_length(cache, layer)};
    list.blocks = attn_cache_blocks(&list.count, cache, layer);
    list.first = list.count > 0 ? attn_cache_first(cache, layer) / TOKENS : 0;
    return list;
}

/* Tokens that the layer uses of its block i. */
static size_t used(const struct list *list, size_t i)
{
    const size_t left = list->length - (list->first + i) * TOKENS;
    return left < TOKENS ? left : TOKENS;
}

static bool is_new(const struct srv_block_writer *writer, const struct list *list, size_t i)
{
    const struct attn_stored stored = attn_block_stored(list->blocks[i]);
    return stored.rows < used(list, i) || srv_slot_is_gone(writer->slots, slot_of(&stored));
}

static bool note_written(struct srv_block_writer *writer, struct attn_block *block)
{
    struct srv_written_blocks *last = writer->written;
    if (last == NULL || last->count == WRITTEN) {
        last = malloc(sizeof *last);
        if (last == NULL) {
            errno = ENOMEM;
            return false;
        }
        last->next = writer->written;
        last->count = 0;
        writer->written = last;
    }
    last->items[last->count].block = block;
    last->items[last->count++].before = attn_block_stored(block);
    return true;
}

/* The bytes of a block of which `rows` tokens are used: where it has left memory, those of its
 * slot, whose file was removed.  NULL with errno. */
static const void *bytes_of(size_t *size, struct srv_block_writer *writer,
                            const struct attn_block *block, size_t rows)
{
    const struct attn_stored stored = attn_block_stored(block);
    const void *bytes = attn_block_bytes_of(size, block);
    if (bytes != NULL && attn_block_absent(block) == 0)
        return bytes;
    errno = EBUSY; /* a part of it is absent, and has to be filled in first */
    if (stored.rows < rows)
        return NULL;
    const bool read = srv_slots_read(&writer->reader, writer->slots, slot_of(&stored), &stored.sum,
                                     1, *size) == 1;
    errno = writer->reader.error;
    return read ? srv_slot_read_block(&writer->reader, 0, *size) : NULL;
}

/* Writes block i of the list to a slot. */
static bool write_block(struct srv_block_writer *writer, const struct list *list, size_t i,
                        struct srv_slot slot)
{
    size_t size;
    struct attn_block *block = list->blocks[i];
    const struct attn_stored before = attn_block_stored(block);
    const void *bytes = bytes_of(&size, writer, block, used(list, i));
    if (bytes == NULL)
        return false;
    if (before.since == writer->moment && before.rows > 0) /* this moment's, with fewer tokens */
        srv_slots_release(writer->slots, slot_of(&before));
    else if (!note_written(writer, block))
        return false;
    const struct attn_stored now = {.slot = slot.index,
                                    .file = slot.file,
                                    .since = writer->moment,
                                    .rows = (uint32_t)used(list, i),
                                    .sum = srv_slots_write(writer->slots, slot, bytes, size)};
    attn_block_set_stored(block, &now);
    writer->bytes += size;
    return true;
}

/* Writes the new blocks of the list that follow each other from `i` on; returns how many, 0 with
 * errno. */
static size_t write_run(struct srv_block_writer *writer, const struct list *list, size_t i)
{
    struct srv_slot slot;
    size_t size, count = 1, done = 0;
    (void)attn_block_bytes_of(&size, list->blocks[i]);
    while (i + count < list->count && is_new(writer, list, i + count))
        count++;
    count = srv_slots_take(&slot, writer->slots, size, count);
    while (done < count && write_block(writer, list, i + done, slot)) {
        slot.index++;
        done++;
    }
    const int error = errno;
    for (size_t left = done; left < count; left++, slot.index++)
        srv_slots_release(writer->slots, slot);
    errno = error;
    return done == count ? count : 0;
}

bool srv_blocks_write(struct srv_block_writer *writer, const struct attn_cache *frozen,
                      size_t num_layers)
{
    for (size_t layer = 0; layer < num_layers; layer++) {
        const struct list list = list_of(frozen, layer);
        for (size_t i = 0; i < list.count;) {
            const size_t written = is_new(writer, &list, i) ? write_run(writer, &list, i) : 1;
            if (written == 0)
                return false;
            i += written;
        }
    }
    return true;
}

/* Gives up the place that a block had before, or the one that it was given. */
static void end_block(struct srv_slots *slots, struct attn_block *block,
                      const struct attn_stored *before, bool ok)
{
    const struct attn_stored now = attn_block_stored(block);
    if (ok && before->rows > 0)
        srv_slots_drop(slots, slot_of(before));
    if (ok)
        return;
    srv_slots_release(slots, slot_of(&now));
    attn_block_set_stored(block, before);
}

bool srv_blocks_end(struct srv_block_writer *writer, bool ok)
{
    int error = errno;
    srv_slot_reader_fini(&writer->reader);
    if (!srv_slots_sync(writer->slots)) {
        error = ok ? errno : error;
        ok = false;
    }
    for (struct srv_written_blocks *piece; (piece = writer->written) != NULL;) {
        for (size_t i = 0; i < piece->count; i++)
            end_block(writer->slots, piece->items[i].block, &piece->items[i].before, ok);
        writer->written = piece->next;
        free(piece);
    }
    errno = error;
    return ok;
}

size_t srv_blocks_count(const struct attn_cache *cache, size_t num_layers)
{
    size_t count = 0;
    for (size_t i = 0; i < num_layers; i++)
        count += list_of(cache, i).count;
    return count;
}

size_t srv_blocks_list(struct srv_manifest_layer layers[], struct srv_block_place places[],
                       const struct srv_block_writer *writer, const struct attn_cache *frozen,
                       size_t num_layers, bool whole)
{
    size_t count = 0;
    for (size_t layer = 0; layer < num_layers; layer++) {
        const struct list list = list_of(frozen, layer);
        size_t kept = 0, bytes = 0;
        if (list.count > 0)
            (void)attn_block_bytes_of(&bytes, list.blocks[0]);
        while (!whole && kept < list.count &&
               attn_block_stored(list.blocks[kept]).since <= writer->told)
            kept++;
        layers[layer].length = (uint32_t)list.length;
        layers[layer].first = (uint32_t)(list.first * TOKENS);
        layers[layer].kept = (uint32_t)(kept > 0 ? list.first + kept : 0);
        layers[layer].added = (uint32_t)(list.count - kept);
        layers[layer].block_bytes = (uint32_t)bytes;
        for (size_t i = kept; i < list.count; i++) {
            const struct attn_stored stored = attn_block_stored(list.blocks[i]);
            places[count++] = (struct srv_block_place){
                .generation = srv_slot_generation(writer->slots, slot_of(&stored)),
                .slot = stored.slot,
                .sum = stored.sum,
                .rows = stored.rows};
        }
    }
    return count;
}

/* ---- A start --------------------------------------------------------------------------------- */

static struct srv_mapped_block *find(const struct srv_block_map *map, struct srv_slot slot)
{
    const uint64_t key = (slot.index << 16 | slot.file) * UINT64_C(0x9e3779b97f4a7c15);
    size_t i = (size_t)(key >> 20) & (map->capacity - 1);
    while (map->entries[i].used &&
           (map->entries[i].index != slot.index || map->entries[i].file != slot.file))
        i = (i + 1) & (map->capacity - 1);
    return &map->entries[i];
}

static bool grow(struct srv_block_map *map)
{
    const struct srv_block_map before = *map;
    if (4 * (map->count + 1) <= 3 * map->capacity)
        return true;
    map->capacity = before.capacity > 0 ? 2 * before.capacity : 1024;
    map->entries = calloc(map->capacity, sizeof *map->entries);
    if (map->entries == NULL) {
        *map = before;
        return false;
    }
    for (size_t i = 0; i < before.capacity; i++)
        if (before.entries[i].used)
            *find(map, (struct srv_slot){before.entries[i].file, before.entries[i].index}) =
                before.entries[i];
    free(before.entries);
    return true;
}

void srv_block_map_fini(struct srv_block_map *map)
{
    free(map->entries);
    *map = (struct srv_block_map){0};
}

static enum attn_status fail(struct attn_error *error, enum attn_status status, const char *what)
{
    *error = (struct attn_error){.status = status};
    snprintf(error->message, sizeof error->message, "%s", what);
    return status;
}

/* Appends a block that stands at `stored` to a layer, or the one of that place that is there. */
static enum attn_status append(struct attn_cache *cache, size_t layer, size_t length,
                               struct srv_block_map *map, const struct attn_stored *stored,
                               struct attn_error *error)
{
    if (!grow(map))
        return fail(error, ATTN_NO_MEMORY, "no memory for where blocks stand");
    struct srv_mapped_block *entry = find(map, slot_of(stored));
    const enum attn_status status =
        attn_cache_append_stored(cache, layer, length, entry->block, stored, error);
    if (status != ATTN_OK || entry->block != NULL)
        return status;
    const struct list list = list_of(cache, layer);
    *entry = (struct srv_mapped_block){.block = list.blocks[list.count - 1],
                                       .index = stored->slot,
                                       .file = stored->file,
                                       .used = true};
    map->count++;
    return ATTN_OK;
}

/* A slot that srv_slots_hold has not: it is not there, or its file cannot be read now. */
static enum attn_status fail_slot(struct attn_error *error, const struct srv_block_place *place,
                                  size_t bytes)
{
    const int cause = errno;
    char name[SRV_SLOT_FILE_NAME], what[128];
    if (cause == ENOENT)
        return fail(error, ATTN_MALFORMED, "a slot is not there");
    srv_slot_file_name(name, place->generation, srv_slot_bytes(bytes));
    snprintf(what, sizeof what, "%s: %s", name, strerrordesc_np(cause));
    return fail(error, ATTN_IO, what);
}

/* Gives a layer its blocks. */
static enum attn_status restore_layer(struct attn_cache *cache, size_t layer,
                                      const struct srv_manifest_layer *said,
                                      const struct srv_block_place places[],
                                      struct srv_block_map *map, struct srv_slots *slots,
                                      struct attn_error *error)
{
    const size_t bytes = attn_cache_layer_bytes(cache, layer, TOKENS);
    if (said->length > 0 && ((said->added > 0) != (bytes > 0) || said->block_bytes != bytes))
        return fail(error, ATTN_MALFORMED, "its blocks are not those of its model's layers");
    if (bytes == 0)
        return said->length == 0
                   ? ATTN_OK
                   : attn_cache_append_stored(cache, layer, said->length, NULL, NULL, error);
    enum attn_status status = attn_cache_begin_at(cache, layer, said->first, error);
    for (size_t i = 0; i < said->added && status == ATTN_OK; i++) {
        const struct srv_block_place *place = &places[i];
        const size_t end = (said->kept + i + 1) * TOKENS;
        struct srv_slot slot;
        bool first;
        if (!srv_slots_hold(&slot, &first, slots, place->generation, place->slot, bytes))
            return fail_slot(error, place, bytes);
        const struct attn_stored stored = {.slot = slot.index,
                                           .file = slot.file,
                                           .sum = place->sum,
                                           .rows = (uint32_t)place->rows};
        status = append(cache, layer, end < said->length ? end : said->length, map, &stored, error);
    }
    return status;
}

enum attn_status srv_blocks_restore(struct attn_cache *cache, struct srv_block_map *map,
                                    struct srv_slots *slots, const struct srv_manifest_entry *entry,
                                    struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    size_t next = 0;
    for (size_t i = 0; i < entry->facts.num_layers && status == ATTN_OK; i++) {
        status =
            restore_layer(cache, i, &entry->layers[i], entry->blocks + next, map, slots, error);
        next += entry->layers[i].added;
    }
    const bool fits = status == ATTN_OK || status == ATTN_POOL_FULL || status == ATTN_CACHE_FULL ||
                      status == ATTN_NO_MEMORY || status == ATTN_IO;
    return fits ? status : ATTN_MALFORMED;
}

/* ---- Verifying ------------------------------------------------------------------------------- */

/* Reads a block that the map has not; whether it is sound stands in the map then. */
static enum attn_status verify(struct srv_mapped_block **out, struct srv_block_map *map,
                               struct srv_slots *slots, struct srv_slot_reader *reader,
                               const struct srv_block_place *place, size_t bytes)
{
    struct srv_slot slot;
    bool first;
    if (!grow(map))
        return ATTN_NO_MEMORY;
    if (!srv_slots_hold(&slot, &first, slots, place->generation, place->slot, bytes))
        return errno == ENOENT ? ATTN_MALFORMED : ATTN_IO;
    *out = find(map, slot);
    if ((*out)->used)
        return ATTN_OK;
    const bool sound = srv_slots_read(reader, slots, slot, &place->sum, 1, bytes) == 1;
    errno = reader->error;
    if (!sound && reader->error != 0 && reader->error != EBADMSG)
        return ATTN_IO;
    **out = (struct srv_mapped_block){
        .index = slot.index, .file = slot.file, .used = true, .damaged = !sound};
    map->count++;
    return ATTN_OK;
}

enum attn_status srv_blocks_verify(struct srv_block_map *map, struct srv_slots *slots,
                                   struct srv_slot_reader *reader,
                                   const struct srv_manifest_entry *entry)
{
    const struct srv_block_place *place = entry->blocks;
    for (size_t i = 0; i < entry->facts.num_layers; i++) {
        const struct srv_manifest_layer *layer = &entry->layers[i];
        for (size_t j = 0; j < layer->added; j++, place++) {
            struct srv_mapped_block *mapped = NULL;
            const enum attn_status status =
                verify(&mapped, map, slots, reader, place, layer->block_bytes);
            if (status != ATTN_OK || mapped->damaged)
                return status != ATTN_OK ? status : ATTN_MALFORMED;
        }
    }
    return ATTN_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Whether a block in memory has absent tokens. */
static bool lacks_tokens(const struct attn_block *block)
{
    size_t size;
    return attn_block_absent(block) > 0 && attn_block_bytes_of(&size, block) != NULL;
}

/* The absent blocks of the list from `i` on that stand one after another, at most as many as one
 * read takes; their checksums. */
static size_t find_run(uint64_t sums[MOST_READ], const struct list *list, size_t i, size_t most)
{
    const struct attn_stored first = attn_block_stored(list->blocks[i]);
    size_t count = 0;
    for (; i + count < list->count && count < most; count++) {
        const struct attn_stored stored = attn_block_stored(list->blocks[i + count]);
        if (!lacks_tokens(list->blocks[i + count]) || stored.file != first.file ||
            stored.slot != first.slot + count)
            break;
        sums[count] = stored.sum;
    }
    return count;
}

enum attn_status srv_blocks_fill(const struct attn_cache *cache, const struct attn_model *model,
                                 size_t layer, struct srv_slots *slots,
                                 struct srv_slot_reader *reader)
{
    const struct list list = list_of(cache, layer);
    uint64_t sums[MOST_READ];
    for (size_t i = 0; i < list.count;) {
        if (!lacks_tokens(list.blocks[i])) {
            i++;
            continue;
        }
        size_t size;
        (void)attn_block_bytes_of(&size, list.blocks[i]);
        const size_t some = SRV_SLOT_RUN / size + 1;
        const size_t count = find_run(sums, &list, i, some < MOST_READ ? some : MOST_READ);
        const struct attn_stored first = attn_block_stored(list.blocks[i]);
        const size_t sound = srv_slots_read(reader, slots, slot_of(&first), sums, count, size);
        for (size_t j = 0; j < sound; j++)
            attn_block_fill(list.blocks[i + j], attn_model_layer(model, layer),
                            srv_slot_read_block(reader, j, size));
        if (sound < count) {
            errno = reader->error;
            return reader->error != 0 && reader->error != EBADMSG ? ATTN_IO : ATTN_MALFORMED;
        }
        i += count;
    }
    return ATTN_OK;
}
