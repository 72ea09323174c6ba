/* judge.c: reads manifest and slots of a directory as a start does, and compares them. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "world.h"

/* The newest manifest below a generation that has a name; 0: none. */
static uint64_t newest_below(const char *path, uint64_t generation)
{
    uint64_t newest = 0, found;
    char end[16];
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (sscanf(entry->d_name, "%16" SCNx64 ".%15s", &found, end) == 2 &&
            (strcmp(end, "manifest") == 0 || strcmp(end, "copy") == 0) && found < generation &&
            found > newest)
            newest = found;
    if (directory != NULL)
        closedir(directory);
    return newest;
}

static bool is_block(struct srv_slots *slots, const struct srv_block_place *place,
                     const struct block *expected, size_t bytes)
{
    unsigned char content[130000];
    struct srv_slot_reader reader = {0};
    struct srv_slot slot;
    bool first, same = false;
    block_fill(content, expected->id, bytes);
    if (place->rows >= expected->rows &&
        srv_slots_hold(&slot, &first, slots, place->generation, place->slot, bytes) &&
        srv_slots_read(&reader, slots, slot, &place->sum, 1, bytes) == 1)
        same = memcmp(srv_slot_read_block(&reader, 0, bytes), content, bytes) == 0;
    srv_slot_reader_fini(&reader);
    return same;
}

static const char *compare_session(const struct srv_manifest_entry *entry,
                                   const struct layer layers[LAYERS], struct srv_slots *slots)
{
    size_t next = 0;
    if (entry == NULL || entry->lost || entry->options == NULL || entry->facts.num_layers != LAYERS)
        return "a session is missing";
    for (size_t l = 0; l < LAYERS; l++) {
        if (entry->layers[l].length != layers[l].length)
            return "a layer has another length";
        for (size_t b = 0; b < BLOCKS && layers[l].blocks[b].id != 0; b++)
            if (!is_block(slots, &entry->blocks[next++], &layers[l].blocks[b], block_bytes[l]))
                return "a block is missing, or another";
    }
    return NULL;
}

static const char *compare(const struct srv_manifest_state *state, const struct world *world,
                           struct srv_slots *slots)
{
    const char *wrong = NULL;
    size_t living = 0, found = 0;
    for (size_t i = 0; i < SESSIONS && wrong == NULL; i++)
        if (world->lives[i]) {
            living++;
            wrong = compare_session(srv_manifest_find(state, world->epochs[i]), world->layers[i],
                                    slots);
        }
    for (size_t i = 0; i < state->capacity; i++)
        found += state->entries[i].epoch != 0 && state->entries[i].options != NULL;
    return wrong != NULL ? wrong : found != living ? "a session has come back" : NULL;
}

/* Whether a moment of that generation may be the newest one after `cut` entries. */
static const char *find_moment(const struct world **out, const struct history *history,
                               uint64_t cut, uint64_t generation)
{
    uint64_t least = 0;
    *out = NULL;
    for (size_t i = 0; i < atomic_load(&history->count); i++) {
        const uint64_t own = history->moments[i].world.generation;
        if (history->moments[i].done != 0 && history->moments[i].done <= cut)
            least = own;
        if (history->moments[i].begun <= cut && own == generation)
            *out = &history->moments[i].world;
    }
    return generation < least               ? "a durable moment is lost"
           : generation > 0 && *out == NULL ? "a moment that never was has come"
                                            : NULL;
}

const char *judge_directory(const struct history *history, uint64_t cut, const char *path)
{
    struct srv_manifest_state state = {0};
    const struct world *world;
    const int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t generation = UINT64_MAX;
    enum srv_manifest_reading reading = SRV_MANIFEST_NONE;
    while (reading != SRV_MANIFEST_READ && (generation = newest_below(path, generation)) > 0)
        reading = srv_manifest_read(&state, directory, generation, false);
    const char *wrong =
        find_moment(&world, history, cut, reading == SRV_MANIFEST_READ ? state.generation : 0);
    struct srv_slots *slots = srv_slots_new(directory, MOMENTS + 1, 0);
    if (wrong == NULL && world != NULL)
        wrong = compare(&state, world, slots);
    srv_slots_free(slots);
    if (reading == SRV_MANIFEST_READ)
        srv_manifest_state_fini(&state);
    close(directory);
    return wrong;
}
