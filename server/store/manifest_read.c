/* manifest_read.c: reading a manifest, of which each record counts that is sound in either copy.
 *
 * The copies have the same bytes, so that a record stands at the same place in both.  Records of a
 * section are listed until its MOMENT shows that all of them are there, and then applied.  Where a
 * record is sound in neither copy, later ones say whether it was on the disk (record.h): then its
 * session is lost, and else the manifest ends before its section. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/manifest.h"
#include "store/store_files.h"

#define BLOCK ((size_t)64) /* tokens of a block */
#define EMPTY_STATE ((size_t)64)

/* A record's place. */
struct found {
    size_t at, copy;
};

struct reading {
    struct srv_file_reader copies[2];
    bool open[2];
    size_t at, end;    /* of the next record; of the longer copy */
    uint64_t sequence; /* of the next record */
    uint64_t chain;
    size_t missing;        /* records of the section that is read */
    size_t before;         /* records of the list that stand before the last damage */
    struct found *section; /* [count] */
    size_t count, capacity;
    struct srv_manifest_state *state;
    int error;
    size_t failed; /* the copy that had the error */
};

/* ---- Entries --------------------------------------------------------------------------------- */

static size_t slot_of(const struct srv_manifest_state *state, uint64_t epoch)
{
    size_t i = (size_t)(epoch * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (state->capacity - 1);
    while (state->entries[i].epoch != 0 && state->entries[i].epoch != epoch)
        i = (i + 1) & (state->capacity - 1);
    return i;
}

struct srv_manifest_entry *srv_manifest_find(const struct srv_manifest_state *state, uint64_t epoch)
{
    if (state->capacity == 0 || epoch == 0)
        return NULL;
    struct srv_manifest_entry *entry = &state->entries[slot_of(state, epoch)];
    return entry->epoch != 0 ? entry : NULL;
}

static bool grow(struct srv_manifest_state *state)
{
    const struct srv_manifest_state before = *state;
    if (2 * (state->count + 1) <= state->capacity)
        return true;
    state->capacity = before.capacity > 0 ? 2 * before.capacity : EMPTY_STATE;
    state->entries = calloc(state->capacity, sizeof *state->entries);
    if (state->entries == NULL) {
        *state = before;
        return false;
    }
    for (size_t i = 0; i < before.capacity; i++)
        if (before.entries[i].epoch != 0)
            state->entries[slot_of(state, before.entries[i].epoch)] = before.entries[i];
    free(before.entries);
    return true;
}

/* The entry of an epoch, made where there is none; NULL where memory is short. */
static struct srv_manifest_entry *make_entry(struct srv_manifest_state *state, uint64_t epoch)
{
    if (!grow(state))
        return NULL;
    struct srv_manifest_entry *entry = &state->entries[slot_of(state, epoch)];
    state->count += entry->epoch == 0;
    entry->epoch = epoch;
    return entry;
}

static void clear(struct srv_manifest_entry *entry)
{
    free(entry->options);
    free(entry->layers);
    free(entry->blocks);
    *entry = (struct srv_manifest_entry){0};
}

/* Drops what is known of a session, which is lost. */
static void clear_lost(struct srv_manifest_entry *entry)
{
    const uint64_t epoch = entry->epoch;
    clear(entry);
    *entry = (struct srv_manifest_entry){.epoch = epoch, .lost = true};
}

/* Removes the entry of a session that has ended. */
static void remove_entry(struct srv_manifest_state *state, struct srv_manifest_entry *entry)
{
    size_t i = (size_t)(entry - state->entries);
    clear(entry);
    state->count--;
    while (state->entries[i = (i + 1) & (state->capacity - 1)].epoch != 0) {
        const struct srv_manifest_entry moved = state->entries[i];
        state->entries[i] = (struct srv_manifest_entry){0};
        state->entries[slot_of(state, moved.epoch)] = moved;
    }
}

void srv_manifest_state_fini(struct srv_manifest_state *state)
{
    for (size_t i = 0; i < state->capacity; i++)
        clear(&state->entries[i]);
    free(state->entries);
    *state = (struct srv_manifest_state){0};
}

/* ---- A session's record ---------------------------------------------------------------------- */

/* The parts of a payload, whose length is right. */
struct payload {
    struct srv_manifest_session facts;
    const struct srv_record_create *options; /* NULL: none */
    const uint64_t *files;                   /* [facts.num_files] */
    const struct srv_manifest_layer *layers; /* [facts.num_layers] */
    const struct srv_manifest_block *blocks; /* [facts.num_blocks] */
};

static bool split(struct payload *out, const unsigned char *bytes, size_t length)
{
    if (length < sizeof out->facts)
        return false;
    memcpy(&out->facts, bytes, sizeof out->facts);
    const struct srv_manifest_session *facts = &out->facts;
    const size_t options = facts->has_options ? sizeof *out->options : 0;
    const size_t files = facts->num_files * sizeof *out->files;
    const size_t layers = facts->num_layers * sizeof *out->layers;
    const size_t blocks = facts->num_blocks * sizeof *out->blocks;
    if (facts->num_files > SRV_MANIFEST_FILES || facts->num_layers > ATTN_MAX_LAYERS ||
        length != sizeof *facts + options + files + layers + blocks)
        return false;
    bytes += sizeof *facts;
    out->options = options > 0 ? (const void *)bytes : NULL;
    out->files = (const void *)(bytes + options);
    out->layers = (const void *)(bytes + options + files);
    out->blocks = (const void *)(bytes + options + files + layers);
    return true;
}

static bool read_block(struct srv_block_place *out, const struct payload *from, size_t i)
{
    const struct srv_manifest_block *block = &from->blocks[i];
    const size_t file = block->place >> 8 & 255;
    if (i >= from->facts.num_blocks || file >= from->facts.num_files)
        return false;
    *out = (struct srv_block_place){from->files[file], block->place >> 16, block->sum,
                                    block->place & 255};
    return out->generation != 0;
}

/* Makes the list of a layer's blocks of what stays of the old one, NULL: nothing, and of what is
 * added.  *added and *next count the record's blocks and those of the session. */
static bool apply_layer(struct srv_manifest_layer *layer, struct srv_block_place blocks[],
                        const struct srv_manifest_layer *old,
                        const struct srv_block_place old_blocks[], const struct payload *from,
                        size_t *added)
{
    const size_t first = layer->first / BLOCK;
    const size_t end = (layer->length + BLOCK - 1) / BLOCK;
    const size_t stay = layer->kept > first ? layer->kept : first;
    const size_t old_first = old != NULL ? old->kept : 0;
    if (layer->length > ATTN_MAX_TOKENS || layer->first > layer->length ||
        layer->first % BLOCK != 0 || layer->rows > layer->length)
        return false;
    if (layer->kept == 0 && layer->added == 0) /* another layer has them */
        return true;
    if (stay > end || layer->added != end - stay ||
        (stay > first && (old == NULL || first < old_first || stay > old_first + old->added)))
        return false;
    for (size_t i = first; i < end; i++) {
        struct srv_block_place *block = &blocks[i - first];
        if (i < stay)
            *block = old_blocks[i - old_first];
        else if (!read_block(block, from, (*added)++))
            return false;
        if (block->rows > BLOCK || block->rows < (i + 1 < end ? BLOCK : layer->length - i * BLOCK))
            return false;
    }
    layer->kept = (uint32_t)first;
    layer->added = (uint32_t)(end - first);
    return true;
}

/* The blocks that a record's layers have in the end; SIZE_MAX where they are more than it can
 * have. */
static size_t count_blocks(const struct payload *from, const struct srv_manifest_entry *entry)
{
    const size_t most = (size_t)from->facts.num_blocks + entry->facts.num_blocks;
    size_t count = 0;
    for (size_t i = 0; i < from->facts.num_layers; i++) {
        const struct srv_manifest_layer *layer = &from->layers[i];
        const size_t end = (layer->length + BLOCK - 1) / BLOCK, first = layer->first / BLOCK;
        if ((layer->kept > 0 || layer->added > 0) && end > first)
            count += end - first;
    }
    return count <= most && count <= UINT32_MAX ? count : SIZE_MAX;
}

/* Applies the layers of a record to an entry; false where they are not possible. */
static bool apply_layers(struct srv_manifest_entry *entry, const struct payload *from)
{
    const bool whole = from->options != NULL;
    const size_t count = from->facts.num_layers, room = count_blocks(from, entry);
    if (count == 0 || (!whole && count != entry->facts.num_layers) || room == SIZE_MAX)
        return false;
    struct srv_manifest_layer *layers = malloc(count * sizeof *layers);
    struct srv_block_place *blocks = malloc((room + 1) * sizeof *blocks);
    size_t added = 0, next = 0, old_next = 0;
    bool possible = layers != NULL && blocks != NULL;
    for (size_t i = 0; i < count && possible; i++) {
        const struct srv_manifest_layer *old = whole ? NULL : &entry->layers[i];
        layers[i] = from->layers[i];
        possible = apply_layer(&layers[i], blocks + next, old,
                               whole ? NULL : entry->blocks + old_next, from, &added);
        next += layers[i].added;
        old_next += whole ? 0 : old->added;
    }
    if (!possible || added != from->facts.num_blocks) {
        free(layers);
        free(blocks);
        return false;
    }
    free(entry->layers);
    free(entry->blocks);
    entry->layers = layers;
    entry->blocks = blocks;
    entry->facts.num_layers = (uint32_t)count;
    entry->facts.num_blocks = (uint32_t)next;
    return true;
}

static bool apply_payload(struct srv_manifest_entry *entry, const struct payload *from)
{
    const bool whole = from->options != NULL;
    if (!whole && (entry->options == NULL || entry->lost))
        return false;
    if ((whole || from->facts.num_layers > 0) && !apply_layers(entry, from))
        return false;
    if (whole && entry->options == NULL)
        entry->options = malloc(sizeof *entry->options);
    if (whole && entry->options != NULL)
        *entry->options = *from->options;
    entry->facts.used_ns = from->facts.used_ns;
    entry->facts.next_record = from->facts.next_record;
    entry->facts.revision = from->facts.revision;
    entry->lost = false;
    return entry->options != NULL;
}

/* Applies a record that was found sound; one that its session cannot have loses that session.
 * False with an error. */
static bool apply(struct reading *r, const struct found *found)
{
    struct srv_record record;
    struct payload payload;
    struct srv_file_reader *file = &r->copies[found->copy];
    if (!srv_journal_read_at(&record, file, found->at)) {
        r->error = file->error != 0 ? file->error : EIO;
        return false;
    }
    if (record.head.type != SRV_RECORD_SESSION || record.head.epoch == 0)
        return true; /* nothing that was written here */
    const size_t length = (size_t)record.head.length;
    struct srv_manifest_entry *entry = make_entry(r->state, record.head.epoch);
    unsigned char *bytes = malloc(length + 1);
    if (entry == NULL || bytes == NULL || !srv_record_read(bytes, &record, 0, length)) {
        r->error = file->error != 0 ? file->error : ENOMEM;
        free(bytes);
        return false;
    }
    errno = 0;
    if (!split(&payload, bytes, length) || !apply_payload(entry, &payload)) {
        r->error = errno == ENOMEM ? ENOMEM : 0;
        clear_lost(entry);
    }
    free(bytes);
    return r->error == 0;
}

/* ---- Sections -------------------------------------------------------------------------------- */

static bool list(struct reading *r, size_t copy)
{
    if (r->count == r->capacity) {
        const size_t capacity = 2 * r->capacity + 64;
        struct found *more = realloc(r->section, capacity * sizeof *more);
        if (more == NULL) {
            r->error = ENOMEM;
            return false;
        }
        r->section = more;
        r->capacity = capacity;
    }
    r->section[r->count++] = (struct found){r->at, copy};
    return true;
}

static bool lose(struct reading *r, uint64_t epoch)
{
    struct srv_manifest_entry *entry = epoch != 0 ? make_entry(r->state, epoch) : NULL;
    if (entry != NULL)
        clear_lost(entry);
    return entry != NULL;
}

/* The epoch of a record of the list; 0 where it cannot be read. */
static uint64_t epoch_of(struct reading *r, size_t i)
{
    struct srv_record record;
    const struct found *found = &r->section[i];
    return srv_journal_read_at(&record, &r->copies[found->copy], found->at) ? record.head.epoch : 0;
}

/* Loses the sessions of which a record of the section may be missing: those that the moment lists
 * and no record names; or where more is missing, so a moment too, all that there are, and those of
 * records before the damage. */
static bool lose_missing(struct reading *r, const uint64_t changed[], size_t count)
{
    bool noted = true;
    if (r->missing + r->count == count) {
        r->before = 0;
        for (size_t i = 0; i < count && noted; i++) {
            size_t j = 0;
            while (j < r->count && epoch_of(r, j) != changed[i])
                j++;
            noted = j < r->count || lose(r, changed[i]);
        }
        return noted;
    }
    for (size_t i = 0; i < r->state->capacity; i++)
        if (r->state->entries[i].epoch != 0)
            clear_lost(&r->state->entries[i]);
    for (size_t i = 0; i < r->before && noted; i++)
        noted = lose(r, epoch_of(r, i));
    return noted;
}

/* Applies the section that a moment ends.  False where that does not count, or with an error. */
static bool end_section(struct reading *r, const struct srv_record *record)
{
    struct srv_manifest_moment moment;
    const size_t length = (size_t)record->head.length, most = length / sizeof(uint64_t);
    if (length < sizeof moment || !srv_record_read(&moment, record, 0, sizeof moment) ||
        moment.num_changed > most || moment.num_ended > most ||
        length != sizeof moment + (moment.num_changed + moment.num_ended) * sizeof(uint64_t) ||
        (r->missing == 0 && (moment.chain != r->chain || moment.num_changed != r->count)))
        return false;
    uint64_t *epochs = malloc(length);
    bool applied =
        epochs != NULL && srv_record_read(epochs, record, sizeof moment, length - sizeof moment);
    if (applied && r->missing > 0)
        applied = lose_missing(r, epochs, (size_t)moment.num_changed);
    for (size_t i = r->before; i < r->count && applied; i++)
        applied = apply(r, &r->section[i]);
    for (size_t i = 0; i < moment.num_ended && applied; i++) {
        struct srv_manifest_entry *entry =
            srv_manifest_find(r->state, epochs[moment.num_changed + i]);
        if (entry != NULL)
            remove_entry(r->state, entry);
    }
    free(epochs);
    if (!applied) {
        r->error = r->error != 0 ? r->error : ENOMEM;
        return false;
    }
    r->state->generation = moment.generation;
    r->state->time_ns = moment.time_ns;
    r->state->sections++;
    r->chain = srv_manifest_chain(moment.chain, &record->head);
    r->count = r->missing = r->before = 0;
    return true;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Reads the record at a place from the copy in which it is sound; false where there is none.  Its
 * number is `sequence` or, with `later`, a larger one. */
static bool read_at(struct srv_record *out, size_t *copy, struct reading *r, size_t at, bool later)
{
    size_t sound = 0;
    for (size_t i = 2; i-- > 0;) {
        struct srv_record record;
        if (!r->open[i] || !srv_journal_read_at(&record, &r->copies[i], at) ||
            (later ? record.head.sequence <= r->sequence : record.head.sequence != r->sequence))
            continue;
        *out = record;
        *copy = i;
        sound++;
    }
    r->state->damaged += !later && sound == 1 && r->open[0] && r->open[1];
    return sound > 0;
}

/* Goes on to the next sound record, if a record says that those before it were on the disk; the
 * first section was there before the file had its name. */
static bool skip_damage(struct reading *r)
{
    struct srv_record record;
    size_t copy, next = 0;
    uint64_t first = 0, synced = 0;
    for (size_t at = r->at; at < r->end && synced <= r->sequence; at += 4) {
        if (!read_at(&record, &copy, r, at, true))
            continue;
        next = first == 0 ? at : next;
        first = first == 0 ? record.head.sequence : first;
        synced = record.head.synced > synced ? record.head.synced : synced;
        synced = r->state->sections == 0 ? UINT64_MAX : synced;
    }
    if (synced <= r->sequence)
        return false;
    r->state->damaged += (size_t)(first - r->sequence);
    r->missing += (size_t)(first - r->sequence);
    r->before = r->count;
    r->at = next;
    r->sequence = first;
    return true;
}

static void read_records(struct reading *r)
{
    struct srv_record record;
    size_t copy;
    while (r->at < r->end && r->error == 0) {
        if (!read_at(&record, &copy, r, r->at, false)) {
            if (!skip_damage(r))
                break;
            continue;
        }
        if (record.head.type == SRV_RECORD_MOMENT ? !end_section(r, &record) : !list(r, copy))
            break;
        if (record.head.type != SRV_RECORD_MOMENT)
            r->chain = srv_manifest_chain(r->chain, &record.head);
        r->at += SRV_RECORD_HEAD + (size_t)record.head.length;
        r->sequence++;
    }
    r->state->torn = r->at < r->end || r->count > 0;
    for (size_t i = 0; i < 2; i++)
        if (r->open[i] && r->copies[i].error != 0) {
            r->error = r->copies[i].error;
            r->failed = i;
        }
}

enum srv_manifest_reading srv_manifest_read(struct srv_manifest_state *out, int directory,
                                            uint64_t generation, bool set_aside)
{
    char name[SRV_MANIFEST_NAME], whole[SRV_MANIFEST_NAME + sizeof SRV_SET_ASIDE];
    struct reading r = {.at = SRV_JOURNAL_HEAD, .sequence = 1, .state = out};
    *out = (struct srv_manifest_state){0};
    for (size_t i = 0; i < 2; i++) {
        srv_manifest_name(name, generation, i);
        snprintf(whole, sizeof whole, "%s%s", name, set_aside ? SRV_SET_ASIDE : "");
        r.open[i] = srv_file_reader_open(&r.copies[i], directory, whole);
        if (!r.open[i] && errno != ENOENT) {
            r.error = errno;
            r.failed = i;
        }
        r.end = r.open[i] && r.copies[i].size > r.end ? r.copies[i].size : r.end;
        out->damaged += !r.open[i];
    }
    if (r.error == 0)
        read_records(&r);
    for (size_t i = 0; i < 2; i++)
        if (r.open[i])
            srv_file_reader_close(&r.copies[i]);
    free(r.section);
    if (r.error != 0) {
        srv_manifest_state_fini(out);
        out->unreadable = r.failed;
    }
    errno = r.error;
    return r.error != 0         ? SRV_MANIFEST_UNREADABLE
           : out->sections == 0 ? SRV_MANIFEST_NONE
                                : SRV_MANIFEST_READ;
}
