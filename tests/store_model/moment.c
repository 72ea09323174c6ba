/* moment.c: slots, and the moment whose section is written. */
#include "model.h"

#include <string.h>

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Slots that may not be written. */
static uint8_t taken(const struct state *state, const struct search *search)
{
    unsigned taken = model_named(state->sessions) | model_named(state->frozen);
    if (search->plant != PLANT_SLOT_UNDER_READ)
        taken |= 1u << state->reading.slot;
    for (unsigned i = 1; i <= SLOTS; i++)
        if (state->slots[i].where == CACHED || (state->slots[i].held >= state->durable_moment &&
                                                search->plant != PLANT_SLOT_FREE_EARLY))
            taken |= 1u << i;
    return (uint8_t)taken;
}

void model_hold_dropped(struct state *state, const struct state *before)
{
    unsigned dropped = (model_named(before->sessions) | model_named(before->frozen)) &
                       ~(unsigned)(model_named(state->sessions) | model_named(state->frozen));
    for (unsigned i = 1; i <= SLOTS && before->phase == SERVING && state->phase == SERVING; i++)
        if ((dropped >> i & 1) != 0 && state->slots[i].where != NOWHERE)
            state->slots[i].held = state->moment;
}

/* Writes block `b` into a free slot; false where there is none. */
static bool write_block(struct state *state, const struct search *search, struct session *session,
                        unsigned b)
{
    struct place *stored = &session->blocks[b].stored;
    uint8_t slot = 1, rows = model_rows_of(session, b), used = taken(state, search);
    while (slot <= SLOTS && (used >> slot & 1) != 0)
        slot++;
    if (search->plant == PLANT_TAIL_IN_PLACE && stored->slot != 0)
        slot = stored->slot;
    if (slot > SLOTS)
        return false;
    *stored = (struct place){.slot = slot, .rows = rows};
    memcpy(stored->sum, session->rows + b * ROWS, rows);
    memcpy(state->slots[slot].cache, stored->sum, ROWS);
    state->slots[slot].where = CACHED;
    if (state->slot_file.made == NOWHERE)
        state->slot_file.made = CACHED;
    if (search->plant == PLANT_OTHER_SUM && b > 0)
        memcpy(stored->sum, session->rows, ROWS);
    return true;
}

static bool is_dirty(const struct session *session, unsigned b)
{
    return model_rows_of(session, b) > session->blocks[b].stored.rows;
}

/* A block of memory that is to leave it goes into a slot outside of a moment. */
bool model_evict_write(struct state *state, const struct search *search, const struct move *move,
                       const char **wrong)
{
    struct session *session = &state->sessions[move->a];
    (void)wrong;
    if (state->phase != SERVING || !is_dirty(session, move->b) || session->blocks[move->b].absent ||
        !write_block(state, search, session, move->b))
        return false;
    if (search->plant != PLANT_PLACE_UNCHANGED)
        state->changed |= (uint8_t)(1 << move->a);
    return true;
}

bool model_flush_slots(struct state *state, const struct search *search, const struct move *move,
                       const char **wrong)
{
    bool some = false;
    (void)wrong, (void)move;
    for (unsigned i = 1; i <= SLOTS && state->phase == SERVING; i++) {
        struct slot *slot = &state->slots[i];
        if (slot->where != CACHED ||
            (search->plant == PLANT_OWN_WRITES_ONLY && (state->written >> i & 1) == 0))
            continue;
        memcpy(slot->disk, slot->cache, ROWS);
        slot->where = ON_DISK;
        some = true;
    }
    return some;
}

/* b: the slot, counted from 0, whose write is lost. */
bool model_flush_losing_slot(struct state *state, const struct search *search,
                             const struct move *move, const char **wrong)
{
    struct slot *slot = &state->slots[move->b + 1];
    if (slot->where != CACHED || !model_may_damage(state, search))
        return false;
    memcpy(slot->cache, slot->disk, ROWS);
    model_damage(state);
    return model_flush_slots(state, search, move, wrong);
}

static void drop_frozen(struct state *state)
{
    memset(state->frozen, 0, sizeof state->frozen);
    state->frozen_changed = state->frozen_number = state->frozen_last = state->frozen_journal = 0;
    state->written = 0;
    state->stage = IDLE;
}

static void give_up(struct state *state, const struct search *search)
{
    if (search->plant != PLANT_CHANGES_FORGOTTEN)
        state->changed |= state->frozen_changed;
    if (state->broken == JOURNAL_LEFT)
        state->broken = JOURNAL_BROKEN;
    drop_frozen(state);
}

/* Nothing names what was written since the last flush; memory still has it. */
bool model_slots_fail(struct state *state, const struct search *search, const struct move *move,
                      const char **wrong)
{
    bool some = false;
    (void)wrong, (void)move;
    if (state->phase != SERVING || state->faults == search->faults)
        return false;
    for (unsigned i = 1; i <= SLOTS; i++) {
        struct slot *slot = &state->slots[i];
        if (slot->where != CACHED)
            continue;
        memset(slot, 0, sizeof *slot);
        memset(slot->cache, GARBAGE, ROWS);
        memset(slot->disk, GARBAGE, ROWS);
        for (unsigned s = 0; s < SESSIONS; s++)
            for (unsigned b = 0; b < BLOCKS; b++) {
                struct block *block = &state->sessions[s].blocks[b];
                if (block->stored.slot == i && !block->absent)
                    memset(block, 0, sizeof *block);
            }
        some = true;
    }
    state->faults++;
    if (state->stage == FROZEN)
        give_up(state, search);
    return some;
}

/* ---- The moment ------------------------------------------------------------------------------ */

bool model_freeze(struct state *state, const struct search *search, const struct move *move,
                  const char **wrong)
{
    (void)wrong, (void)move;
    if (state->phase != SERVING || state->stage != IDLE || state->journal == JOURNALS ||
        state->moments_made == search->moments ||
        (state->changed == 0 && state->broken != JOURNAL_BROKEN))
        return false;
    uint8_t made = state->journals[state->journal + 1].made;
    if (made != ON_DISK && made != IN_DOUBT &&
        (made != CACHED || search->plant != PLANT_JOURNAL_LATE))
        return false;
    memcpy(state->frozen, state->sessions, sizeof state->frozen);
    state->stage = FROZEN;
    state->moment++;
    state->moments_made++;
    state->frozen_journal = ++state->journal;
    state->frozen_number = state->done;
    state->frozen_last = state->history[state->done];
    state->frozen_changed = state->rewrite ? (1 << SESSIONS) - 1 : state->changed;
    state->changed = 0;
    if (state->broken == JOURNAL_BROKEN)
        state->broken = JOURNAL_LEFT;
    return true;
}

/* A block of another session with the same rows is the same block. */
static bool share_slot(struct state *state, struct session *session, unsigned b)
{
    uint8_t rows = model_rows_of(session, b);
    for (unsigned i = 0; i < SESSIONS; i++) {
        const struct session *other = &state->frozen[i];
        if (other->blocks[b].stored.rows == rows && model_rows_of(other, b) == rows &&
            memcmp(other->rows + b * ROWS, session->rows + b * ROWS, rows) == 0) {
            session->blocks[b].stored = other->blocks[b].stored;
            return true;
        }
    }
    return false;
}

bool model_write_block(struct state *state, const struct search *search, const struct move *move,
                       const char **wrong)
{
    (void)wrong, (void)move;
    for (unsigned i = 0; i < SESSIONS && state->stage == FROZEN; i++)
        for (unsigned b = 0; b < BLOCKS; b++) {
            struct session *session = &state->frozen[i];
            if ((state->frozen_changed >> i & 1) == 0 || !is_dirty(session, b))
                continue;
            if (search->plant == PLANT_FREEZE_LATE || search->plant == PLANT_FORK_TRUNCATED)
                *session = state->sessions[i];
            if (!is_dirty(session, b) || share_slot(state, session, b))
                return true;
            if (!write_block(state, search, session, b))
                return false;
            state->written |= (uint8_t)(1 << session->blocks[b].stored.slot);
            return true;
        }
    return false;
}

/* Whether all blocks of the moment are in slots, and these and their file's name flushed. */
static bool is_stored(const struct state *state, const struct search *search)
{
    for (unsigned i = 0; i < SESSIONS; i++)
        for (unsigned b = 0; b < BLOCKS; b++) {
            uint8_t slot = state->frozen[i].blocks[b].stored.slot;
            if ((state->frozen_changed >> i & 1) == 0)
                continue;
            if (slot != 0 && state->slot_file.made == CACHED &&
                search->plant != PLANT_SLOTS_UNNAMED)
                return false;
            if (is_dirty(&state->frozen[i], b) && (search->plant != PLANT_TAIL_LEFT_OUT ||
                                                   model_rows_of(&state->frozen[i], b) == ROWS))
                return false;
            if (state->slots[slot].where == CACHED && search->plant != PLANT_BLOCKS_UNFLUSHED &&
                (search->plant != PLANT_OWN_WRITES_ONLY || (state->written >> slot & 1) != 0))
                return false;
        }
    return true;
}

/* Sessions that still have a block that was frozen get its place. */
static void give_places(struct state *state)
{
    for (unsigned i = 0; i < SESSIONS * SESSIONS * BLOCKS; i++) {
        unsigned b = i % BLOCKS;
        const struct session *frozen = &state->frozen[i / BLOCKS % SESSIONS];
        struct session *session = &state->sessions[i / BLOCKS / SESSIONS];
        uint8_t rows = model_rows_of(frozen, b);
        if (rows > 0 && frozen->blocks[b].stored.rows == rows && is_dirty(session, b) &&
            model_rows_of(session, b) == rows &&
            memcmp(frozen->rows + b * ROWS, session->rows + b * ROWS, rows) == 0)
            session->blocks[b].stored = frozen->blocks[b].stored;
    }
}

static uint8_t new_manifest(const struct state *state)
{
    unsigned last = 0;
    for (unsigned i = 1; i <= MANIFESTS; i++)
        if (state->manifests[i][0].made != NOWHERE || state->manifests[i][1].made != NOWHERE)
            last = i;
    return (uint8_t)(last + 1);
}

bool model_append(struct state *state, const struct search *search, const struct move *move,
                  const char **wrong)
{
    unsigned at = 1;
    (void)wrong, (void)move;
    if (state->stage != FROZEN || !is_stored(state, search))
        return false;
    for (unsigned i = 1; i <= SECTIONS; i++)
        at = state->sections[i].manifest != 0 ? i + 1 : at;
    uint8_t manifest = state->rewrite ? new_manifest(state) : state->manifest;
    if (at > SECTIONS || manifest > MANIFESTS)
        return false;
    struct section *section = &state->sections[at];
    *section = (struct section){
        .manifest = manifest,
        .moment = state->moment,
        .journal = state->frozen_journal,
        .number = state->frozen_number,
        .last = state->frozen_last,
        .before = state->rewrite ? 0 : state->durable_moment,
        .changed = state->frozen_changed,
        .parts = {{CACHED, CACHED}, {CACHED, CACHED}},
    };
    for (unsigned i = 0; i < SESSIONS; i++)
        if ((section->changed >> i & 1) != 0) {
            section->sessions[i] = state->frozen[i];
            memset(section->sessions[i].rows, 0, LENGTH); /* the slots have them */
        }
    give_places(state);
    state->section = (uint8_t)at;
    state->stage = state->rewrite ? WRITTEN : APPENDED;
    return true;
}

void model_end_moment(struct state *state)
{
    const struct section *section = &state->sections[state->section];
    state->manifest = section->manifest;
    state->durable_moment = section->moment;
    state->durable = section->number > state->durable ? section->number : state->durable;
    state->rewrite = 0;
    if (state->broken == JOURNAL_LEFT)
        state->broken = 0;
    drop_frozen(state);
}

bool model_flush_manifest(struct state *state, const struct search *search, const struct move *move,
                          const char **wrong)
{
    (void)wrong, (void)move;
    if (state->stage != APPENDED && state->stage != WRITTEN)
        return false;
    struct section *section = &state->sections[state->section];
    for (unsigned copy = 0; copy < COPIES && search->plant != PLANT_SECTION_UNFLUSHED; copy++)
        if (section->parts[copy][0] != DAMAGED)
            memset(section->parts[copy], ON_DISK, 2);
    if (state->stage == WRITTEN)
        state->stage = FLUSHED;
    else
        model_end_moment(state);
    return true;
}

/* b: the copy whose write is lost. */
bool model_flush_losing_copy(struct state *state, const struct search *search,
                             const struct move *move, const char **wrong)
{
    if ((state->stage != APPENDED && state->stage != WRITTEN) || !model_may_damage(state, search))
        return false;
    memset(state->sections[state->section].parts[move->b], DAMAGED, 2);
    model_damage(state);
    return model_flush_manifest(state, search, move, wrong);
}

/* It is unknown whether the section is there. */
bool model_manifest_fails(struct state *state, const struct search *search, const struct move *move,
                          const char **wrong)
{
    (void)wrong, (void)move;
    if ((state->stage != APPENDED && state->stage != WRITTEN) || state->faults == search->faults)
        return false;
    struct section *section = &state->sections[state->section];
    if (state->stage == WRITTEN)
        memset(section, 0, sizeof *section); /* nothing has its name */
    else
        memset(section->parts, IN_DOUBT, sizeof section->parts);
    if (search->plant != PLANT_APPEND_AFTER_FAILURE)
        state->rewrite = 1;
    state->faults++;
    give_up(state, search);
    return true;
}

bool model_rename(struct state *state, const struct search *search, const struct move *move,
                  const char **wrong)
{
    (void)wrong, (void)move;
    if (state->stage != FLUSHED && (state->stage != WRITTEN || search->plant != PLANT_RENAME_EARLY))
        return false;
    for (unsigned copy = 0; copy < COPIES; copy++)
        state->manifests[state->sections[state->section].manifest][copy].made = CACHED;
    state->stage = RENAMED;
    return true;
}

/* ---- Older files ----------------------------------------------------------------------------- */

/* Whether the newest section is on its way, and planted mistakes take it for durable. */
static bool is_early(const struct state *state, const struct search *search, enum plant plant)
{
    return search->plant == plant && (state->stage == RENAMED || state->stage == APPENDED);
}

bool model_remove_journal(struct state *state, const struct search *search, const struct move *move,
                          const char **wrong)
{
    (void)wrong;
    uint8_t journal = 0;
    for (unsigned i = 1; i <= SECTIONS; i++)
        if (state->sections[i].manifest != 0 &&
            (state->sections[i].moment == state->durable_moment ||
             (i == state->section && is_early(state, search, PLANT_JOURNAL_EARLY))) &&
            state->sections[i].journal > journal)
            journal = state->sections[i].journal;
    if (state->phase != SERVING || move->a == 0 || move->a >= journal ||
        !model_has_name(&state->journals[move->a]))
        return false;
    state->journals[move->a].gone = CACHED;
    return true;
}

bool model_remove_manifest(struct state *state, const struct search *search,
                           const struct move *move, const char **wrong)
{
    (void)wrong;
    uint8_t newest = is_early(state, search, PLANT_MANIFEST_EARLY)
                         ? state->sections[state->section].manifest
                         : state->manifest;
    bool some = false;
    if (state->phase != SERVING || move->a == 0 || move->a >= newest)
        return false;
    for (unsigned copy = 0; copy < COPIES; copy++) {
        struct name *name = &state->manifests[move->a][copy];
        if (model_has_name(name)) {
            name->gone = CACHED;
            some = true;
        }
    }
    return some;
}
