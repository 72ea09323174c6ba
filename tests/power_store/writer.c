/* writer.c: a store's order of writes on slots and manifests, without a daemon around it. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "disk.h"
#include "world.h"

struct writer {
    struct history *history;
    struct power_log *log;
    enum mistake mistake;
    uint64_t random, next_id, next_epoch;
    int directory;
    struct srv_slots *slots;
    struct srv_manifest manifest;
    struct world world, said; /* now; at the newest section */
    uint64_t named[MOMENTS];  /* generations of manifests that there are, [num_named] */
    size_t num_named;
};

static size_t below(struct writer *writer, size_t n)
{
    return (size_t)disk_draw(&writer->random, n);
}

void block_fill(unsigned char *out, uint64_t id, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)((id * 0x9e3779b97f4a7c15 + i * 0xff51afd7ed558ccd) >> 29);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

static size_t blocks_of(size_t tokens) { return (tokens + 63) / 64; }

/* Makes a layer as long as this; rows after the first `same` are new ones. */
static void set_length(struct writer *writer, struct layer *layer, size_t length, size_t same)
{
    layer->length = length;
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block *block = &layer->blocks[i];
        const size_t rows = length <= i * 64 ? 0 : length - i * 64 < 64 ? length - i * 64 : 64;
        if (rows == 0)
            memset(block, 0, sizeof *block);
        else if (same < length && same < (i + 1) * 64) { /* it has new rows */
            if (writer->mistake != MISTAKE_IN_PLACE || block->place.rows == 0)
                memset(block, 0, sizeof *block);
            block->place.rows = 0;
            block->id = ++writer->next_id;
        }
        block->rows = rows;
        if (layer->kept > i && block->place.rows == 0)
            layer->kept = i;
    }
    layer->kept = layer->kept < blocks_of(length) ? layer->kept : blocks_of(length);
}

static void change(struct writer *writer, size_t i)
{
    struct world *world = &writer->world;
    const size_t other = below(writer, SESSIONS), how = below(writer, 8);
    if (world->lives[i] && how == 0) {
        world->lives[i] = false;
        memset(world->layers[i], 0, sizeof world->layers[i]);
        return;
    }
    if (!world->lives[i]) {
        world->lives[i] = world->is_new[i] = true;
        world->epochs[i] = ++writer->next_epoch;
        if (world->lives[other] && other != i && how < 6) /* a fork */
            memcpy(world->layers[i], world->layers[other], sizeof world->layers[i]);
    }
    world->changed[i] = true;
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &world->layers[i][l];
        const size_t same = how == 1 ? below(writer, layer->length + 1) : layer->length;
        const size_t length = same + below(writer, 90);
        if (world->generation > 4 * l)
            set_length(writer, layer, length < 64 * BLOCKS ? length : 64 * BLOCKS, same);
    }
}

/* Calls `visit` for each block of sessions that live. */
#define EACH_BLOCK(block, world, l)                                                             \
    for (size_t n_ = 0, l = 0; n_ < SESSIONS * LAYERS * BLOCKS; n_++, l = n_ / BLOCKS % LAYERS) \
        if ((block = &(world)->layers[n_ / BLOCKS / LAYERS][l].blocks[n_ % BLOCKS])->id != 0)

static bool is_named(const struct world *world, uint64_t slot, size_t layer)
{
    const struct block *block;
    EACH_BLOCK(block, world, l)
    if (l == layer && block->place.rows > 0 && block->place.slot == slot)
        return true;
    return false;
}

static void drop_slots(struct writer *writer, const struct world *before)
{
    const struct block *block;
    uint64_t dropped[SESSIONS * LAYERS * BLOCKS][2];
    size_t count = 0, i;
    EACH_BLOCK(block, before, l)
    {
        if (block->place.rows == 0 || is_named(&writer->world, block->place.slot, l) ||
            writer->mistake == MISTAKE_IN_PLACE)
            continue;
        for (i = 0; i < count && (dropped[i][0] != block->place.slot || dropped[i][1] != l);)
            i++;
        if (i < count)
            continue;
        dropped[count][0] = block->place.slot;
        dropped[count++][1] = l;
        if (writer->mistake == MISTAKE_FREE_EARLY)
            srv_slots_release(writer->slots, block->slot);
        else
            srv_slots_drop(writer->slots, block->slot);
    }
}

/* ---- A moment -------------------------------------------------------------------------------- */

static bool share_slot(struct block *block, const struct world *world)
{
    const struct block *other;
    EACH_BLOCK(other, world, l)
    if (other->id == block->id && other->place.rows >= block->rows) {
        *block = (struct block){block->id, block->rows, other->place, other->slot};
        return true;
    }
    return false;
}

static void write_blocks(struct writer *writer)
{
    unsigned char bytes[130000];
    struct block *block;
    uint64_t sum = 0;
    EACH_BLOCK(block, &writer->world, l)
    {
        const size_t size = block_bytes[l];
        if (block->place.rows > 0 || share_slot(block, &writer->world))
            continue;
        if (writer->mistake != MISTAKE_IN_PLACE || block->place.generation == 0)
            ck_assert_uint_eq(srv_slots_take(&block->slot, writer->slots, size, 1), 1);
        block_fill(bytes, block->id, size);
        block->place = (struct srv_block_place){
            srv_slot_generation(writer->slots, block->slot), block->slot.index,
            srv_slots_write(writer->slots, block->slot, bytes, size), block->rows};
        const uint64_t own = block->place.sum;
        if (writer->mistake == MISTAKE_OTHER_SUM && sum != 0)
            block->place.sum = sum;
        sum = own;
    }
}

/* Nothing names the slots that were written for this moment. */
static void release_blocks(struct writer *writer, const struct world *before)
{
    struct world *world = &writer->world;
    struct block *block;
    EACH_BLOCK(block, world, l)
    {
        const struct srv_block_place place = block->place;
        if (place.rows == 0 || is_named(before, place.slot, l))
            continue;
        srv_slots_release(writer->slots, block->slot);
        for (size_t i = 0; i < SESSIONS * BLOCKS; i++) {
            struct block *other = &world->layers[i / BLOCKS][l].blocks[i % BLOCKS];
            if (other->place.slot == place.slot)
                other->place.rows = 0;
        }
    }
}

static void add_session(struct writer *writer, size_t i)
{
    struct world *world = &writer->world;
    const bool whole = writer->manifest.is_first || world->is_new[i];
    struct srv_record_create options = {0};
    struct srv_manifest_layer layers[LAYERS] = {{0}};
    struct srv_block_place blocks[LAYERS * BLOCKS];
    struct srv_description said = {.epoch = world->epochs[i],
                                   .facts.num_layers = LAYERS,
                                   .options = whole ? &options : NULL,
                                   .layers = layers,
                                   .blocks = blocks};
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &world->layers[i][l];
        const size_t kept = whole ? 0 : layer->kept, count = blocks_of(layer->length);
        layers[l].length = (uint32_t)layer->length;
        layers[l].kept = (uint32_t)kept;
        layers[l].added = (uint32_t)(count - kept);
        for (size_t b = kept; b < count; b++)
            blocks[said.facts.num_blocks++] = layer->blocks[b].place;
        layer->kept = count;
    }
    srv_manifest_add(&writer->manifest, &said);
}

static void remove_manifests(struct writer *writer)
{
    char name[SRV_MANIFEST_NAME];
    for (size_t i = 0; i < writer->num_named; i++)
        for (size_t copy = 0; copy < 2; copy++) {
            srv_manifest_name(name, writer->named[i], copy);
            (void)unlinkat(writer->directory, name, 0);
        }
    writer->num_named = 0;
}

/* False where nobody knows whether it is there. */
static bool write_section(struct writer *writer)
{
    struct world *world = &writer->world;
    const struct world *said = &writer->said;
    uint64_t ended[SESSIONS];
    size_t num_ended = 0;
    const bool is_due = srv_manifest_is_due(&writer->manifest) || below(writer, 8) == 0;
    writer->manifest.broken = is_due; /* at times earlier than it would be */
    srv_manifest_begin(&writer->manifest, writer->directory, world->generation);
    for (size_t i = 0; i < SESSIONS; i++) {
        if (said->lives[i] && said->epochs[i] != (world->lives[i] ? world->epochs[i] : 0))
            ended[num_ended++] = said->epochs[i];
        if (world->lives[i] && (is_due || world->changed[i]))
            add_session(writer, i);
    }
    if (is_due && writer->mistake == MISTAKE_UNLINK)
        remove_manifests(writer);
    if (!srv_manifest_end(&writer->manifest, world->generation, ended, num_ended))
        return false;
    if (is_due) {
        remove_manifests(writer);
        writer->named[writer->num_named++] = writer->manifest.named;
    }
    memset(world->changed, 0, sizeof world->changed);
    memset(world->is_new, 0, sizeof world->is_new);
    writer->said = *world;
    return true;
}

static void make_moment(struct writer *writer)
{
    const size_t at = atomic_load(&writer->history->count);
    const struct world before = writer->world;
    srv_slots_begin_moment(writer->slots);
    atomic_store(&writer->log->failing, below(writer, 4) == 0 ? 1 + (uint32_t)below(writer, 6) : 0);
    write_blocks(writer);
    if (writer->mistake != MISTAKE_NO_FLUSH && !srv_slots_sync(writer->slots)) {
        if (writer->mistake != MISTAKE_RESYNC)
            release_blocks(writer, &before);
        return;
    }
    writer->history->moments[at].world = writer->world;
    writer->history->moments[at].begun = atomic_load(&writer->log->count);
    atomic_store(&writer->history->count, at + 1);
    const bool written = write_section(writer);
    if (writer->mistake == MISTAKE_NO_FLUSH)
        (void)srv_slots_sync(writer->slots);
    if (!written)
        return;
    writer->history->moments[at].done = atomic_load(&writer->log->count);
    srv_slots_end_moment(writer->slots);
    if (below(writer, 4) == 0)
        (void)srv_slots_punch(writer->slots, 1 << 20);
}

void write_history(struct history *history, struct power_log *log, const char *path, uint64_t seed,
                   enum mistake mistake)
{
    struct writer writer = {.history = history, .log = log, .mistake = mistake, .random = seed};
    writer.directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(writer.directory, 0);
    writer.slots = srv_slots_new(writer.directory, 1, 0);
    ck_assert_ptr_nonnull(writer.slots);
    for (uint64_t moment = 1; moment <= MOMENTS; moment++) {
        const struct world before = writer.world;
        writer.world.generation = moment;
        for (size_t changes = 1 + below(&writer, 3); changes > 0; changes--)
            change(&writer, below(&writer, SESSIONS));
        drop_slots(&writer, &before);
        make_moment(&writer);
    }
    history->ended = true;
    srv_manifest_fini(&writer.manifest);
    srv_slots_free(writer.slots);
    close(writer.directory);
}
