/* steps.c: what callers do to sessions, the journal, eviction, and the steps of a start. */
#include "model.h"

#include <string.h>

static unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }

uint8_t model_rows_of(const struct session *session, unsigned b)
{
    return (uint8_t)(session->length <= b * ROWS ? 0 : min(session->length - b * ROWS, ROWS));
}

uint8_t model_named(const struct session sessions[SESSIONS])
{
    unsigned named = 0;
    for (unsigned i = 0; i < SESSIONS; i++)
        for (unsigned b = 0; b < BLOCKS; b++)
            named |= 1u << sessions[i].blocks[b].stored.slot;
    return (uint8_t)(named & ~1u);
}

bool model_has_name(const struct name *name)
{
    return name->made != NOWHERE && name->gone == NOWHERE;
}

static bool is_durable(const struct name *name)
{
    return name->made == ON_DISK || name->made == IN_DOUBT;
}

/* ---- Records --------------------------------------------------------------------------------- */

static void append_row(struct session *session, uint8_t number)
{
    struct block *block = &session->blocks[session->length / ROWS];
    if (session->length % ROWS == 0)
        memset(block, 0, sizeof *block);
    session->rows[session->length++] = number;
}

static void truncate(struct session *session, uint8_t length)
{
    session->length = length;
    memset(session->rows + length, 0, LENGTH - length);
    for (unsigned b = 0; b < BLOCKS; b++) {
        struct block *block = &session->blocks[b];
        uint8_t rows = model_rows_of(session, b);
        if (rows == 0)
            memset(block, 0, sizeof *block);
        else if (block->stored.rows > rows)
            block->stored.rows = rows;
    }
}

void model_apply(struct session sessions[SESSIONS], uint8_t number, const struct record *record)
{
    struct session *session = &sessions[record->session];
    switch (record->type) {
    case ROW:
        append_row(session, number);
        break;
    case TRUNCATE:
        truncate(session, record->argument);
        break;
    case FORK:
        *session = sessions[record->argument];
        break;
    case CREATE:
        session->alive = 1;
        break;
    default:
        memset(session, 0, sizeof *session);
        session->alive = 2; /* has ended */
    }
    session->last = number;
}

static bool add(struct state *state, const struct search *search, enum record_type type,
                unsigned session, unsigned argument)
{
    if (state->phase != SERVING || state->broken || state->used == search->records)
        return false;
    uint8_t number = ++state->used;
    struct record *record = &state->records[number];
    *record = (struct record){
        .type = (uint8_t)type,
        .session = (uint8_t)session,
        .argument = (uint8_t)argument,
        .before = state->history[state->done],
        .own = state->sessions[type == FORK ? argument : session].last,
        .number = (uint8_t)(state->done + 1),
        .synced = state->durable,
        .journal = state->journal,
        .where = CACHED,
    };
    state->history[++state->done] = number;
    model_apply(state->sessions, number, record);
    state->changed |= (uint8_t)(1 << session);
    return true;
}

static bool is_open(const struct state *state, unsigned session)
{
    return state->sessions[session].alive == 1;
}

static bool row(struct state *state, const struct search *search, const struct move *move,
                const char **wrong)
{
    const struct session *session = &state->sessions[move->a];
    (void)wrong;
    return is_open(state, move->a) && session->length < LENGTH &&
           (session->length % ROWS == 0 || !session->blocks[session->length / ROWS].absent) &&
           add(state, search, ROW, move->a, 0);
}

static bool cut(struct state *state, const struct search *search, const struct move *move,
                const char **wrong)
{
    (void)wrong;
    return is_open(state, move->a) && move->b < state->sessions[move->a].length &&
           add(state, search, TRUNCATE, move->a, move->b);
}

/* The next session's index; SESSIONS: there is no room. */
static unsigned next_session(const struct state *state, const struct search *search)
{
    unsigned next = 0;
    while (next < search->sessions && state->sessions[next].alive != 0)
        next++;
    return next < search->sessions ? next : SESSIONS;
}

static bool fork_session(struct state *state, const struct search *search, const struct move *move,
                         const char **wrong)
{
    unsigned next = next_session(state, search);
    (void)wrong;
    return next < SESSIONS && is_open(state, move->a) && state->sessions[move->a].length > 0 &&
           add(state, search, FORK, next, move->a);
}

static bool create(struct state *state, const struct search *search, const struct move *move,
                   const char **wrong)
{
    unsigned next = next_session(state, search);
    (void)wrong, (void)move;
    return next < SESSIONS && add(state, search, CREATE, next, 0);
}

static bool end(struct state *state, const struct search *search, const struct move *move,
                const char **wrong)
{
    (void)wrong;
    return is_open(state, move->a) && add(state, search, END, move->a, 0);
}

/* ---- The journal ----------------------------------------------------------------------------- */

static bool flush_journal(struct state *state, const struct search *search, const struct move *move,
                          const char **wrong)
{
    (void)wrong, (void)move;
    if (state->phase != SERVING || state->broken || state->durable == state->done)
        return false;
    for (unsigned i = 1; i <= state->used; i++)
        if (state->records[i].where == CACHED && search->plant != PLANT_JOURNAL_UNFLUSHED)
            state->records[i].where = ON_DISK;
    state->durable = state->done;
    return true;
}

/* b: the record, counted from 0, whose write is lost. */
static bool flush_losing_record(struct state *state, const struct search *search,
                                const struct move *move, const char **wrong)
{
    struct record *record = &state->records[move->b + 1];
    if (record->where != CACHED || !model_may_damage(state, search))
        return false;
    record->where = DAMAGED;
    model_damage(state);
    return flush_journal(state, search, move, wrong);
}

static bool journal_fails(struct state *state, const struct search *search, const struct move *move,
                          const char **wrong)
{
    bool some = false;
    (void)wrong, (void)move;
    if (state->phase != SERVING || state->broken || state->faults == search->faults)
        return false;
    for (unsigned i = 1; i <= state->used; i++)
        if (state->records[i].where == CACHED) {
            state->records[i].where = IN_DOUBT;
            some = true;
        }
    state->broken = search->plant == PLANT_FAILURE_FORGOTTEN ? 0 : JOURNAL_BROKEN;
    state->faults++;
    return some;
}

static bool make_journal(struct state *state, const struct search *search, const struct move *move,
                         const char **wrong)
{
    (void)wrong, (void)move;
    if ((state->phase != STARTED && (state->phase != SERVING || state->stage != IDLE ||
                                     state->moments_made == search->moments)) ||
        state->journal == JOURNALS || state->journals[state->journal + 1].made != NOWHERE)
        return false;
    state->journals[state->journal + 1].made = CACHED;
    return true;
}

/* ---- Names ----------------------------------------------------------------------------------- */

static bool flush_name(struct name *name, bool planted)
{
    bool some = name->made == CACHED || name->gone == CACHED;
    if (name->made == CACHED)
        name->made = planted ? IN_DOUBT : ON_DISK;
    if (name->gone == CACHED)
        name->gone = planted ? IN_DOUBT : ON_DISK;
    return some;
}

static bool flush_names(struct state *state, bool planted)
{
    bool some = flush_name(&state->slot_file, planted);
    for (unsigned i = 1; i <= JOURNALS; i++)
        some |= flush_name(&state->journals[i], planted);
    for (unsigned i = 1; i <= MANIFESTS; i++)
        for (unsigned copy = 0; copy < COPIES; copy++)
            some |= flush_name(&state->manifests[i][copy], planted);
    for (unsigned i = 1; i <= SECTIONS; i++) {
        const struct name *names = state->manifests[state->sections[i].manifest];
        if (names[0].gone == ON_DISK && names[1].gone == ON_DISK)
            memset(&state->sections[i], 0, sizeof state->sections[i]);
    }
    return some;
}

static bool flush_directory(struct state *state, const struct search *search,
                            const struct move *move, const char **wrong)
{
    (void)wrong, (void)move;
    if ((state->phase != SERVING && state->phase != STARTED) ||
        !flush_names(state, search->plant == PLANT_DIRECTORY_UNFLUSHED))
        return false;
    if (state->stage == RENAMED)
        model_end_moment(state);
    return true;
}

/* ---- Eviction -------------------------------------------------------------------------------- */

static bool evict(struct state *state, const struct search *search, const struct move *move,
                  const char **wrong)
{
    struct block *block = &state->sessions[move->a].blocks[move->b];
    uint8_t rows = model_rows_of(&state->sessions[move->a], move->b);
    (void)wrong;
    if (state->phase != SERVING || rows == 0 || block->absent || block->stored.rows == 0)
        return false;
    if (block->stored.rows < rows && search->plant != PLANT_DIRTY_EVICTED)
        return false;
    if (state->slots[block->stored.slot].where == CACHED &&
        search->plant != PLANT_UNFLUSHED_EVICTED)
        return false;
    block->absent = 1;
    return true;
}

static bool begin_read(struct state *state, const struct search *search, const struct move *move,
                       const char **wrong)
{
    const struct block *block = &state->sessions[move->a].blocks[move->b];
    (void)wrong, (void)search;
    if (state->phase != SERVING || !block->absent || state->reading.slot != 0)
        return false;
    state->reading = block->stored;
    return true;
}

static bool end_read(struct state *state, const struct search *search, const struct move *move,
                     const char **wrong)
{
    const struct place read = state->reading;
    (void)move, (void)search;
    if (state->phase != SERVING || read.slot == 0)
        return false;
    if (memcmp(state->slots[read.slot].cache, read.sum, ROWS) != 0) {
        *wrong = "a read finds another block in the slot";
        return state->damage == 0; /* which is reported */
    }
    memset(&state->reading, 0, sizeof state->reading);
    for (unsigned i = 0; i < SESSIONS; i++)
        for (unsigned b = 0; b < BLOCKS; b++) {
            struct block *block = &state->sessions[i].blocks[b];
            if (!block->absent || block->stored.slot != read.slot)
                continue;
            block->absent = 0;
            if (block->stored.rows < model_rows_of(&state->sessions[i], b))
                *wrong = "rows have left memory that no slot has";
        }
    return true;
}

/* ---- A start --------------------------------------------------------------------------------- */

static void flush_sections(struct state *state)
{
    for (unsigned i = 1; i <= SECTIONS; i++)
        for (unsigned copy = 0; copy < COPIES; copy++)
            for (unsigned part = 0; part < 2; part++)
                if (state->sections[i].parts[copy][part] == CACHED)
                    state->sections[i].parts[copy][part] = ON_DISK;
}

static bool flush_read(struct state *state, const struct search *search, const struct move *move,
                       const char **wrong)
{
    (void)wrong, (void)move;
    if (state->phase != READ)
        return false;
    bool kept[RECORDS + 1] = {false};
    for (unsigned i = 1; i <= state->done; i++)
        kept[state->history[i]] = true;
    for (unsigned i = 1; i <= state->used; i++) {
        struct record *record = &state->records[i];
        if (!kept[i] && search->plant != PLANT_START_UNCUT)
            memset(record, 0, sizeof *record);
        else if (record->where == CACHED && search->plant != PLANT_START_UNFLUSHED)
            record->where = ON_DISK;
    }
    if (search->plant != PLANT_START_UNFLUSHED) {
        flush_sections(state);
        flush_names(state, search->plant == PLANT_DIRECTORY_UNFLUSHED);
    }
    state->durable = state->done;
    state->phase = STARTED;
    return true;
}

static bool serve(struct state *state, const struct search *search, const struct move *move,
                  const char **wrong)
{
    (void)wrong, (void)search, (void)move;
    if (state->phase != STARTED || state->journal == JOURNALS ||
        !is_durable(&state->journals[state->journal + 1]))
        return false;
    state->journal++;
    state->phase = SERVING;
    return true;
}

/* ---- All of them ----------------------------------------------------------------------------- */

const struct step model_steps[] = {
    {"row", SESSIONS, 1, row},
    {"truncate", SESSIONS, LENGTH, cut},
    {"fork", SESSIONS, 1, fork_session},
    {"create", 1, 1, create},
    {"end", SESSIONS, 1, end},
    {"flush-journal", 1, 1, flush_journal},
    {"flush-journal-losing", 1, RECORDS, flush_losing_record},
    {"journal-fails", 1, 1, journal_fails},
    {"make-journal", 1, 1, make_journal},
    {"flush-directory", 1, 1, flush_directory},
    {"freeze", 1, 1, model_freeze},
    {"write-block", 1, 1, model_write_block},
    {"flush-slots", 1, 1, model_flush_slots},
    {"flush-slots-losing", 1, SLOTS, model_flush_losing_slot},
    {"slots-fail", 1, 1, model_slots_fail},
    {"append-section", 1, 1, model_append},
    {"flush-manifest", 1, 1, model_flush_manifest},
    {"flush-manifest-losing", 1, COPIES, model_flush_losing_copy},
    {"manifest-fails", 1, 1, model_manifest_fails},
    {"rename", 1, 1, model_rename},
    {"remove-journal", JOURNALS + 1, 1, model_remove_journal},
    {"remove-manifest", MANIFESTS + 1, 1, model_remove_manifest},
    {"write-out", SESSIONS, BLOCKS, model_evict_write},
    {"evict", SESSIONS, BLOCKS, evict},
    {"begin-read", SESSIONS, BLOCKS, begin_read},
    {"end-read", 1, 1, end_read},
    {"rot", 3, 16, model_rot},
    {"kill", 1, 1, model_kill},
    {"power", 1, 0, model_cut_power},
    {"read-disk", 1, 1, model_read},
    {"flush-read", 1, 1, flush_read},
    {"serve", 1, 1, serve},
};
const unsigned model_num_steps = sizeof model_steps / sizeof *model_steps;

/* One session without rows, in the section of moment 1 that journal 1 follows. */
void model_init(struct state *out)
{
    memset(out, 0, sizeof *out);
    out->sessions[0].alive = 1;
    out->journal = out->manifest = out->section = out->num_sections = 1;
    out->moment = out->durable_moment = 1;
    out->journals[1].made = ON_DISK;
    out->sections[1].manifest = out->sections[1].moment = out->sections[1].journal = 1;
    out->sections[1].changed = 1;
    out->sections[1].sessions[0].alive = 1;
    for (unsigned copy = 0; copy < COPIES; copy++) {
        out->manifests[1][copy].made = ON_DISK;
        memset(out->sections[1].parts[copy], ON_DISK, 2);
    }
}
