/* disk.c: what is left of the disk when the daemon is killed or the power fails, and bit rot. */
#include "model.h"

#include <string.h>

/* What the daemon had in memory is gone. */
static void forget(struct state *state)
{
    memset(state->sessions, 0, sizeof state->sessions);
    memset(state->frozen, 0, sizeof state->frozen);
    memset(&state->reading, 0, sizeof state->reading);
    state->journal = state->manifest = state->section = state->broken = state->rewrite = 0;
    state->changed = state->moment = state->durable_moment = state->stage = state->written = 0;
    state->frozen_changed = state->frozen_number = state->frozen_last = state->frozen_journal = 0;
    for (unsigned i = 1; i <= SLOTS; i++)
        state->slots[i].held = 0;
    for (unsigned i = 1; i <= SECTIONS; i++) {
        const struct name *names = state->manifests[state->sections[i].manifest];
        if (!model_has_name(&names[0]) && !model_has_name(&names[1]))
            memset(&state->sections[i], 0, sizeof state->sections[i]);
    }
    state->phase = DOWN;
    state->crashes++;
}

static bool may_crash(const struct state *state, const struct search *search)
{
    return state->phase != DOWN && state->crashes < search->crashes;
}

static void try_again(uint8_t *where)
{
    if (*where == IN_DOUBT)
        *where = CACHED;
}

/* A flush by the next start tries what failed again: a kernel that drops what it could not write,
 * and goes on showing it, is beyond a daemon's reach. */
bool model_kill(struct state *state, const struct search *search, const struct move *move,
                const char **wrong)
{
    (void)wrong, (void)move;
    if (!may_crash(state, search))
        return false;
    for (unsigned i = 1; i <= state->used; i++)
        try_again(&state->records[i].where);
    for (unsigned i = 1; i <= SECTIONS; i++)
        for (unsigned part = 0; part < 2 * COPIES; part++)
            try_again(&state->sections[i].parts[part / 2][part % 2]);
    forget(state);
    return true;
}

/* Bits that say of each thing that no flush covers whether it is there; `count` of them. */
struct draw {
    uint16_t bits;
    unsigned count;
};

static bool keeps(struct draw *draw) { return (draw->bits >> draw->count++ & 1) != 0; }

static void settle(uint8_t *where, struct draw *draw)
{
    if (*where == CACHED || *where == IN_DOUBT)
        *where = keeps(draw) ? ON_DISK : NOWHERE;
}

static void settle_name(struct name *name, struct draw *draw)
{
    settle(&name->made, draw);
    settle(&name->gone, draw);
    if (name->made == NOWHERE)
        name->gone = NOWHERE;
}

static void settle_slot(struct slot *slot, bool is_named, struct draw *draw)
{
    for (unsigned row = 0; row < ROWS; row++)
        if (is_named && slot->cache[row] != slot->disk[row] && keeps(draw))
            slot->disk[row] = slot->cache[row];
    memcpy(slot->cache, slot->disk, ROWS);
    slot->where = ON_DISK;
    if (!is_named)
        memset(slot, 0, sizeof *slot);
}

static void settle_section(struct section *section, const struct name names[COPIES],
                           struct draw *draw)
{
    for (unsigned copy = 0; copy < COPIES; copy++)
        for (unsigned part = 0; part < 2; part++)
            if (model_has_name(&names[copy]))
                settle(&section->parts[copy][part], draw);
            else
                section->parts[copy][part] = NOWHERE;
}

static void forget_lost_records(struct state *state)
{
    bool known[RECORDS + 1] = {false};
    for (unsigned i = 1; i <= state->done; i++)
        known[state->history[i]] = true;
    for (unsigned i = 1; i <= state->used; i++)
        if (!known[i] && state->records[i].where == NOWHERE)
            memset(&state->records[i], 0, sizeof state->records[i]);
}

static void lose(struct state *state, struct draw *draw)
{
    for (unsigned i = 1; i <= JOURNALS; i++)
        settle_name(&state->journals[i], draw);
    for (unsigned i = 1; i <= state->used; i++) {
        struct record *record = &state->records[i];
        if (record->where != NOWHERE && !model_has_name(&state->journals[record->journal]))
            record->where = NOWHERE;
        settle(&record->where, draw);
    }
    settle_name(&state->slot_file, draw);
    for (unsigned i = 1; i <= SLOTS; i++)
        settle_slot(&state->slots[i], state->slot_file.made != NOWHERE, draw);
    for (unsigned i = 1; i <= MANIFESTS; i++)
        for (unsigned copy = 0; copy < COPIES; copy++)
            settle_name(&state->manifests[i][copy], draw);
    for (unsigned i = 1; i <= SECTIONS; i++)
        settle_section(&state->sections[i], state->manifests[state->sections[i].manifest], draw);
}

unsigned model_unflushed(const struct state *state)
{
    struct state rest = *state;
    struct draw all = {.bits = UINT16_MAX};
    lose(&rest, &all);
    return all.count;
}

/* b: a bit for each thing that no flush covers. */
bool model_cut_power(struct state *state, const struct search *search, const struct move *move,
                     const char **wrong)
{
    struct draw draw = {.bits = move->b};
    (void)wrong;
    if (!may_crash(state, search))
        return false;
    lose(state, &draw);
    forget_lost_records(state);
    forget(state);
    return true;
}

bool model_may_damage(const struct state *state, const struct search *search)
{
    return state->damage == 0 && state->faults < search->faults;
}

void model_damage(struct state *state)
{
    state->faults++;
    state->damage = 1;
}

/* Of a section that one copy has alone nothing would be left. */
static bool is_whole(const struct section *section)
{
    for (unsigned part = 0; part < 2 * COPIES; part++)
        if (section->parts[part / 2][part % 2] != ON_DISK)
            return false;
    return section->manifest != 0;
}

/* a: of what; b: which. */
bool model_rot(struct state *state, const struct search *search, const struct move *move,
               const char **wrong)
{
    (void)wrong;
    if (state->phase != DOWN || !model_may_damage(state, search))
        return false;
    struct slot *slot = &state->slots[1 + move->b % SLOTS];
    struct section *section = &state->sections[1 + move->b % SECTIONS];
    uint8_t *part = section->parts[move->b / SECTIONS % COPIES];
    model_damage(state);
    if (move->a == 0 && move->b < SLOTS * ROWS && slot->disk[move->b / SLOTS] != 0) {
        slot->disk[move->b / SLOTS] = slot->cache[move->b / SLOTS] = GARBAGE;
        return true;
    }
    if (move->a == 1 && move->b <= state->used && state->records[move->b].where == ON_DISK) {
        state->records[move->b].where = DAMAGED;
        return true;
    }
    if (move->a == 2 && is_whole(section)) {
        memset(part, DAMAGED, 2);
        return true;
    }
    return false;
}
