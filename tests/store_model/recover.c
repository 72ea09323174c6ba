/* recover.c: what a start finds on the disk, and whether it may find that. */
#include "model.h"

#include <string.h>

/* What a start has found. */
struct found {
    struct session sessions[SESSIONS];
    uint8_t section, number, last; /* the newest section; records that are in it */
    uint8_t lost;                  /* sessions that it says are damaged, a bit each */
    bool gap;                      /* records that were durable are missing */
};

static uint8_t min(uint8_t a, uint8_t b) { return a < b ? a : b; }

/* ---- The manifest ---------------------------------------------------------------------------- */

static bool is_there(const struct state *state, const struct section *section, unsigned part)
{
    for (unsigned copy = 0; copy < COPIES; copy++) {
        uint8_t where = section->parts[copy][part];
        if (where != NOWHERE && where != DAMAGED &&
            model_has_name(&state->manifests[section->manifest][copy]))
            return true;
    }
    return false;
}

/* The section that comes after `at` in its manifest, or the first of `manifest`; 0: none is whole
 * there. */
static uint8_t next_section(const struct state *state, const struct search *search,
                            uint8_t manifest, uint8_t at)
{
    const bool planted = search->plant == PLANT_UNCHAINED_SECTIONS;
    const uint8_t before = at == 0 ? 0 : state->sections[at].moment;
    for (uint8_t i = (uint8_t)(at + 1); i <= SECTIONS; i++) {
        const struct section *section = &state->sections[i];
        if (section->manifest != manifest)
            continue;
        if (is_there(state, section, 1) &&
            (planted || (is_there(state, section, 0) && section->before == before)))
            return i;
        if (!planted)
            return 0;
    }
    return 0;
}

static void read_manifest(struct found *out, const struct state *state, const struct search *search)
{
    uint8_t at = 0;
    for (uint8_t manifest = MANIFESTS; manifest > 0 && at == 0; manifest--)
        at = next_section(state, search, manifest, 0);
    while (at != 0) {
        const struct section *section = &state->sections[at];
        for (unsigned i = 0; i < SESSIONS && is_there(state, section, 0); i++)
            if ((section->changed >> i & 1) != 0)
                out->sessions[i] = section->sessions[i];
        out->section = at;
        out->number = section->number;
        out->last = section->last;
        at = next_section(state, search, section->manifest, at);
    }
}

/* ---- Journals -------------------------------------------------------------------------------- */

static bool is_readable(const struct state *state, const struct record *record, uint8_t journal)
{
    return record->journal == journal && record->where != NOWHERE && record->where != DAMAGED &&
           model_has_name(&state->journals[journal]);
}

/* After a gap: the session's own chain says whether it has lost something. */
static void apply_after_gap(struct found *out, uint8_t number, const struct record *record,
                            uint8_t *seen)
{
    uint8_t self = (uint8_t)(1 << record->session);
    uint8_t whose = record->type == FORK ? record->argument : record->session;
    bool whole = (out->lost >> whose & 1) == 0 && out->sessions[whose].last == record->own;
    if (record->type != END && !whole) {
        out->lost |= self;
        return;
    }
    if (record->type == END || record->type == FORK || record->type == CREATE)
        out->lost &= (uint8_t)~self;
    *seen |= self;
    model_apply(out->sessions, number, record);
}

/* Reads on after a gap that later records prove; of sessions that none of them names nothing is
 * known. */
static void read_after_gap(struct found *out, const struct state *state, uint8_t from)
{
    uint8_t seen = 0;
    out->gap = true;
    for (uint8_t journal = from; journal <= JOURNALS; journal++)
        for (uint8_t i = 1; i <= state->used; i++)
            if (is_readable(state, &state->records[i], journal) &&
                state->records[i].number > out->number) {
                apply_after_gap(out, i, &state->records[i], &seen);
                out->number = state->records[i].number;
            }
    out->lost |= (uint8_t)~seen;
}

static void read_journals(struct found *out, const struct state *state, const struct search *search)
{
    const uint8_t from = state->sections[out->section].journal;
    uint8_t synced = 0;
    bool ended = false;
    for (uint8_t journal = from; journal <= JOURNALS; journal++)
        for (uint8_t i = 1; i <= state->used; i++) {
            const struct record *record = &state->records[i];
            if (!is_readable(state, record, journal))
                continue;
            ended |= record->before != out->last && search->plant != PLANT_UNCHAINED_RECORDS;
            synced = record->synced > synced ? record->synced : synced;
            if (ended)
                continue;
            if (search->plant != PLANT_FORK_TRUNCATED || record->type == FORK ||
                out->sessions[record->session].last < i)
                model_apply(out->sessions, i, record);
            out->number++;
            out->last = i;
        }
    if (synced > out->number)
        read_after_gap(out, state, from);
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static void read_slots(struct found *out, const struct state *state, const struct search *search)
{
    for (unsigned i = 0; i < SESSIONS; i++)
        for (unsigned b = 0; b < BLOCKS; b++) {
            struct block *block = &out->sessions[i].blocks[b];
            const struct place *stored = &block->stored;
            const uint8_t *rows = state->slots[stored->slot].cache;
            if (stored->rows == 0)
                continue;
            if (memcmp(rows, stored->sum, ROWS) != 0 && search->plant != PLANT_SUM_UNREAD)
                out->lost |= (uint8_t)(1 << i);
            memcpy(out->sessions[i].rows + b * ROWS, rows, stored->rows);
            block->absent = stored->rows == model_rows_of(&out->sessions[i], b);
        }
}

/* ---- Whether it may be so -------------------------------------------------------------------- */

/* Without slots and sections: the sessions after `number` records. */
static void history_at(struct session out[SESSIONS], const struct state *state, unsigned number)
{
    memset(out, 0, SESSIONS * sizeof *out);
    out[0].alive = 1;
    for (unsigned i = 1; i <= number; i++)
        model_apply(out, state->history[i], &state->records[state->history[i]]);
}

static const char *judge(const struct found *found, const struct state *state)
{
    struct session were[SESSIONS];
    bool end_damaged = found->number < state->done &&
                       state->records[state->history[found->number + 1]].where == DAMAGED;
    if (found->section == 0)
        return state->damage ? NULL : "no manifest is whole";
    if (found->number > state->done)
        return "records come back";
    if (found->number < state->durable && !end_damaged)
        return "durable records are lost";
    if (!found->gap && found->last != state->history[found->number])
        return "records that never were come back";
    if (found->lost != 0 && state->damage == 0)
        return "a block is damaged";
    history_at(were, state, found->number);
    for (unsigned i = 0; i < SESSIONS; i++) {
        const struct session *was = &were[i], *is = &found->sessions[i];
        if ((found->lost >> i & 1) != 0)
            continue;
        if (was->alive != is->alive || was->length != is->length)
            return "a session is not what it was";
        if (memcmp(was->rows, is->rows, LENGTH) != 0)
            return "a session has other rows";
    }
    return NULL;
}

/* ---- The step -------------------------------------------------------------------------------- */

static uint8_t newest_journal(const struct state *state)
{
    uint8_t newest = 0;
    for (uint8_t i = 1; i <= JOURNALS; i++)
        newest = state->journals[i].made != NOWHERE ? i : newest;
    return newest;
}

bool model_read(struct state *state, const struct search *search, const struct move *move,
                const char **wrong)
{
    struct found found = {0};
    (void)move;
    if (state->phase != DOWN)
        return false;
    read_manifest(&found, state, search);
    read_journals(&found, state, search);
    read_slots(&found, state, search);
    *wrong = judge(&found, state);
    if (*wrong != NULL || found.lost != 0 || found.section == 0 ||
        state->crashes == search->crashes)
        return *wrong != NULL; /* nothing comes after it that is looked at */
    const struct section *section = &state->sections[found.section];
    memcpy(state->sessions, found.sessions, sizeof found.sessions);
    state->done = found.number;
    state->durable = min(state->durable, state->done); /* less, after damage */
    memset(state->history + state->done + 1, 0, RECORDS - state->done);
    state->journal = newest_journal(state);
    state->manifest = section->manifest;
    state->section = found.section;
    state->moment = state->durable_moment = section->moment;
    state->rewrite = search->plant != PLANT_START_IN_OLD_FENCE;
    state->changed = (1 << SESSIONS) - 1;
    state->phase = READ;
    return true;
}
