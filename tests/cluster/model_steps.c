/* model_steps.c: the steps of a daemon. */
#include <string.h>

#include "model.h"

enum { NEW_RECORD = 200 }; /* a value that no record has; model_settle numbers it */

static uint16_t bit_of(struct place place)
{
    return (uint16_t)(place.fence == 0 ? 0 : 1u << ((place.fence - 1) * SLOTS + place.slot));
}

static uint16_t bits_of(const struct place places[ROWS])
{
    uint16_t bits = 0;
    for (unsigned i = 0; i < ROWS; i++)
        bits |= bit_of(places[i]);
    return bits;
}

static struct journal *journal_of(struct state *state, const struct held *held)
{
    return &state->files[held->fence].journals[held->last];
}

static bool is_mine(const struct state *state, unsigned daemon)
{
    const uint8_t record = state->daemons[daemon].record;
    return record != 0 && record == state->etcd.records[daemon];
}

/* ---- The record ------------------------------------------------------------------------------ */

static void get_reply(struct daemon *me, const struct search *search)
{
    const uint8_t whole = LEASE - (search->plant == PLANT_NO_MARGIN ? 0 : MARGIN);
    me->left = (uint8_t)(whole - (search->plant == PLANT_FROM_REPLY ? 0 : me->age));
    me->lagged = search->plant == PLANT_FROM_REPLY ? 0 : me->asked_lagged;
    me->asked = me->age = me->asked_lagged = 0;
}

static void write_record(struct state *state, const struct search *search, unsigned daemon)
{
    struct daemon *me = &state->daemons[daemon];
    me->record = state->etcd.records[daemon] = NEW_RECORD;
    me->asked = 1;
    me->age = me->asked_lagged = 0;
    if (!search->replies && !search->mount)
        get_reply(me, search);
}

static bool join(struct state *state, const struct search *search, struct move move,
                 const char **wrong)
{
    (void)wrong;
    if (state->daemons[move.a].record != 0 || move.a >= search->daemons)
        return false;
    write_record(state, search, move.a);
    return true;
}

static bool renew(struct state *state, const struct search *search, struct move move,
                  const char **wrong)
{
    struct daemon *me = &state->daemons[move.a];
    (void)wrong;
    if (me->record == 0 || me->asked || search->mount || !is_mine(state, move.a))
        return false;
    write_record(state, search, move.a);
    return true;
}

static bool lose(struct state *state, const struct search *search, struct move move,
                 const char **wrong)
{
    struct daemon *me = &state->daemons[move.a];
    (void)wrong, (void)search;
    if (me->record == 0 || is_mine(state, move.a))
        return false;
    memset(me, 0, sizeof *me);
    return true;
}

static bool reply(struct state *state, const struct search *search, struct move move,
                  const char **wrong)
{
    (void)wrong;
    if (!state->daemons[move.a].asked || search->mount)
        return false;
    get_reply(&state->daemons[move.a], search);
    return true;
}

/* ---- Taking the partition -------------------------------------------------------------------- */

static bool look_at_owner(struct state *state, const struct search *search, struct move move,
                          const char **wrong)
{
    struct daemon *me = &state->daemons[move.a];
    const uint8_t owner = state->etcd.owner;
    (void)wrong;
    if (me->left == 0 || me->held.phase != OUT || owner == 0 || owner == move.a + 1 ||
        search->mount || state->etcd.records[owner - 1] == 0 ||
        (me->seen_of == owner && me->seen == state->etcd.records[owner - 1]))
        return false;
    me->seen = state->etcd.records[owner - 1];
    me->seen_of = owner;
    me->seen_age = 0;
    return true;
}

static bool is_takeable(const struct state *state, const struct search *search, unsigned daemon)
{
    const struct daemon *me = &state->daemons[daemon];
    const uint8_t owner = state->etcd.owner;
    if (owner == 0 || owner == daemon + 1 || state->etcd.records[owner - 1] == 0 || search->mount)
        return true;
    return me->seen_of == owner && me->seen == state->etcd.records[owner - 1] &&
           me->seen_age >= (search->plant == PLANT_TAKES_EARLY ? 1 : LEASE);
}

static bool take(struct state *state, const struct search *search, struct move move,
                 const char **wrong)
{
    struct daemon *me = &state->daemons[move.a];
    struct held *held = &me->held;
    const bool anew = held->phase != OUT; /* it lapsed, and was the owner */
    const uint8_t owner = state->etcd.owner;
    const uint8_t given = (uint8_t)(search->plant == PLANT_FENCE_LATE       ? 0
                                    : search->plant == PLANT_FENCE_REPEATED ? state->etcd.fence + 1
                                                                            : state->clock + 1);
    (void)wrong;
    if (!is_mine(state, move.a) || given > search->fences ||
        (me->left == 0 && !search->mount && search->plant != PLANT_TAKE_LAPSED) ||
        !is_takeable(state, search, move.a) ||
        (anew && (!held->lapsed || owner != move.a + 1 || held->change == WRITTEN ||
                  held->moment == WRITTEN)))
        return false;
    if (owner != 0 && owner != move.a + 1 && search->plant != PLANT_RECORD_STAYS)
        state->etcd.records[owner - 1] = 0;
    if (held->phase != SERVING)
        model_drop(me);
    held->kept = anew ? held->fence : 0;
    held->lapsed = 0;
    held->phase = TAKEN;
    held->before = state->etcd.fence;
    held->given = state->etcd.fence = given;
    if (given > state->clock)
        state->clock = given;
    state->etcd.owner = (uint8_t)(move.a + 1);
    me->seen = me->seen_of = me->seen_age = 0;
    return true;
}

static bool make_mark(struct state *state, const struct search *search, struct move move,
                      const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    (void)wrong;
    if (held->phase != TAKEN)
        return false;
    if (search->plant == PLANT_FENCE_LATE) {
        if (state->clock == search->fences)
            return false;
        held->given = ++state->clock;
    }
    if (state->files[held->given].mark && search->plant != PLANT_FENCE_REPEATED)
        return false;
    state->files[held->given].mark = 1;
    held->phase = MARKED;
    return true;
}

static bool list_marks(struct state *state, const struct search *search, struct move move,
                       const char **wrong)
{
    struct daemon *me = &state->daemons[move.a];
    struct held *held = &me->held;
    (void)wrong;
    if (held->phase != MARKED)
        return false;
    if (model_has_mark(state, held->given, FENCES + 1) && search->plant != PLANT_HIGHER_UNNOTICED) {
        model_drop(me);
        return true;
    }
    const bool restored = model_has_mark(state, held->before, held->given) &&
                          search->plant != PLANT_FENCE_LATE &&
                          search->plant != PLANT_RESTORE_UNNOTICED;
    if (held->kept != 0 &&
        (search->plant == PLANT_MEMORY_KEPT || !model_has_mark(state, held->kept, held->given))) {
        for (unsigned i = 0; i < ROWS; i++)
            if ((bit_of(held->places[i]) & held->named) == 0)
                held->places[i] = (struct place){0}; /* in a slot that may not be flushed */
        held->phase = SEALING;
        held->fence = held->given;
        held->last = held->used = held->moment = 0;
        return true;
    }
    const uint8_t given = held->given, before = held->before, lapsed = held->lapsed;
    model_drop(me);
    held->phase = LISTED;
    held->lapsed = lapsed;
    held->given = held->fence = given;
    held->before = before;
    held->waits = restored && !search->mount ? LEASE : 0;
    return true;
}

static bool find_manifest(struct state *state, const struct search *search, struct move move,
                          const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    (void)wrong;
    if (held->phase != LISTED || held->waits > 0 || !model_newest(held->found, state, search))
        return false;
    const struct manifest *found = &state->files[held->found[0]].manifests[held->found[1]];
    held->log = found->log;
    memcpy(held->places, found->places, sizeof held->places);
    held->phase = FOUND;
    return true;
}

static bool read_journal(struct state *state, const struct search *search, struct move move,
                         const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    (void)wrong;
    if (held->phase != FOUND)
        return false;
    if (state->files[held->found[0]].manifests[held->found[1]].where != LANDED) {
        held->phase = LISTED; /* unlinked meanwhile: there is a newer one */
    } else {
        model_replay(&held->log, held->places, state, search, held->found);
        held->phase = SEALING;
    }
    memset(held->found, 0, sizeof held->found);
    if (held->phase == LISTED) {
        memset(&held->log, 0, sizeof held->log);
        memset(held->places, 0, sizeof held->places);
    }
    return true;
}

/* ---- Slots and manifests --------------------------------------------------------------------- */

static bool may_overwrite(const struct held *held, const struct search *search)
{
    return held->moment == LOOKED ||
           (held->moment == DURABLE && search->plant == PLANT_SLOT_UNLOOKED);
}

/* b: the slot. */
static bool write_slot(struct state *state, const struct search *search, struct move move,
                       const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    struct files *files = &state->files[held->fence];
    const struct place place = {held->fence, (uint8_t)move.b};
    uint8_t rows[ROWS];
    unsigned i = 0, count = model_rows(rows, state, &held->log);
    (void)wrong;
    if ((held->phase != SEALING && held->phase != SERVING) || held->moment == WRITTEN ||
        held->change == WRITTEN || files->late[place.slot] != 0 ||
        ((bits_of(held->places) | held->named | held->perhaps) & bit_of(place)) != 0 ||
        (files->slots[place.slot] != 0 && !may_overwrite(held, search)))
        return false;
    while (i < count && held->places[i].fence != 0)
        i++;
    if (i == count)
        return false;
    held->places[i] = place;
    files->late[place.slot] = rows[i];
    return true;
}

static bool flush_slots(struct state *state, const struct search *search, struct move move,
                        const char **wrong)
{
    const struct held *held = &state->daemons[move.a].held;
    struct files *files = &state->files[held->fence];
    bool some = false;
    (void)wrong, (void)search;
    for (unsigned i = 0; i < SLOTS && (held->phase == SEALING || held->phase == SERVING); i++)
        if (files->late[i] != 0) {
            files->slots[i] = files->late[i];
            files->late[i] = 0;
            some = true;
        }
    return some;
}

static bool write_manifest(struct state *state, const struct search *search, struct move move,
                           const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    uint8_t rows[ROWS];
    unsigned count = model_rows(rows, state, &held->log);
    (void)wrong;
    if ((held->phase != SEALING && held->phase != SERVING) || held->moment == WRITTEN ||
        held->change == WRITTEN || held->used == search->manifests || held->released)
        return false;
    for (unsigned i = 0; i < count; i++)
        if (held->places[i].fence == 0 ||
            (held->places[i].fence == held->fence &&
             state->files[held->fence].late[held->places[i].slot] != 0))
            return false;
    struct manifest *manifest = &state->files[held->fence].manifests[++held->used];
    manifest->where = LATE;
    manifest->log = held->log;
    memcpy(manifest->places, held->places, sizeof manifest->places);
    memset(&state->files[held->fence].journals[held->used], 0, sizeof(struct journal));
    held->moment = WRITTEN;
    held->perhaps |= bits_of(held->places);
    if (search->plant == PLANT_UNSEALED && held->phase == SEALING) {
        held->last = held->used;
        held->phase = SERVING;
    }
    return true;
}

static bool flush_manifest(struct state *state, const struct search *search, struct move move,
                           const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    (void)wrong;
    if (held->moment != WRITTEN)
        return false;
    model_manifest_landed(state, search, held->fence, held->used);
    held->last = held->used;
    held->named = bits_of(held->places);
    held->perhaps = held->broken = held->kept = held->before = 0;
    held->phase = SERVING;
    held->moment = DURABLE;
    return true;
}

static bool fail_manifest(struct state *state, const struct search *search, struct move move,
                          const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    (void)wrong;
    if (held->moment != WRITTEN || state->faults == search->faults)
        return false;
    held->moment = IDLE;
    held->broken = held->phase == SERVING && search->plant != PLANT_OLD_JOURNAL_KEPT;
    state->faults++;
    return true;
}

static bool look_at_moment(struct state *state, const struct search *search, struct move move,
                           const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    (void)wrong;
    if (held->moment != DURABLE || !model_look(state, search, move.a))
        return false;
    held->moment = LOOKED;
    return true;
}

/* What is older than the newest manifest, and what that does not name. */
static bool unlink_files(struct state *state, const struct search *search, struct move move,
                         const char **wrong)
{
    const struct held *held = &state->daemons[move.a].held;
    bool some = false;
    (void)wrong;
    if (held->phase != SERVING ||
        (held->moment != LOOKED &&
         (held->moment != DURABLE || search->plant != PLANT_UNLINK_UNLOOKED)))
        return false;
    for (uint8_t fence = 1; fence <= held->fence; fence++) {
        struct files *files = &state->files[fence];
        unsigned numbers = fence < held->fence ? MANIFESTS + 1 : held->last;
        for (unsigned i = 1; i < numbers; i++) {
            some |= files->manifests[i].where != NOWHERE || files->journals[i].written != 0;
            memset(&files->manifests[i], 0, sizeof files->manifests[i]);
            memset(&files->journals[i], 0, sizeof files->journals[i]);
        }
        uint16_t named = held->named | bits_of(held->places);
        if (fence == held->fence || (named >> ((fence - 1) * SLOTS) & ((1u << SLOTS) - 1)) != 0)
            continue;
        for (unsigned i = 0; i < SLOTS; i++) {
            some |= files->slots[i] != 0 || files->late[i] != 0;
            files->slots[i] = files->late[i] = 0;
        }
    }
    return some;
}

/* ---- Changes --------------------------------------------------------------------------------- */

/* b: whether the change cuts a row. */
static bool change(struct state *state, const struct search *search, struct move move,
                   const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    uint8_t rows[ROWS];
    unsigned count = model_rows(rows, state, &held->log);
    (void)wrong;
    if (held->phase != SERVING || (held->change != IDLE && held->change != DURABLE) ||
        held->broken || held->released ||
        (held->moment == WRITTEN && search->plant != PLANT_UNSEALED) || held->refuse != 0 ||
        state->changes == search->changes || (move.b != 0 ? count == 0 : count == ROWS))
        return false;
    const uint8_t number = ++state->changes;
    struct journal *journal = journal_of(state, held);
    if (move.b != 0) {
        state->cuts |= (uint8_t)(1 << number);
        held->undo = held->places[count - 1];
    }
    model_apply(&held->log, held->places, state, number);
    journal->changes[journal->written++] = number;
    held->change = WRITTEN;
    return true;
}

static void end_change(struct daemon *me)
{
    me->held.change = IDLE;
    me->held.undo = (struct place){0};
    if (me->held.released)
        model_drop(me);
}

static bool flush_journal(struct state *state, const struct search *search, struct move move,
                          const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    const uint8_t ready = search->plant == PLANT_LOOK_FIRST ? LOOKED_EARLY : WRITTEN;
    (void)wrong;
    if (held->change != ready)
        return false;
    if (!held->unsound) /* planted: the pages that failed are clean, and not there */
        journal_of(state, held)->landed = journal_of(state, held)->written;
    held->change = DURABLE;
    return true;
}

static bool look_early(struct state *state, const struct search *search, struct move move,
                       const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    (void)wrong;
    if (search->plant != PLANT_LOOK_FIRST || held->change != WRITTEN ||
        !model_look(state, search, move.a))
        return false;
    held->change = LOOKED_EARLY;
    return true;
}

static bool fail_journal(struct state *state, const struct search *search, struct move move,
                         const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    uint8_t rows[ROWS];
    (void)wrong;
    if (held->change != WRITTEN || state->faults == search->faults || held->unsound)
        return false;
    state->faults++;
    if (search->plant == PLANT_SECOND_FLUSH) {
        held->unsound = 1;
        return true;
    }
    held->refuse = held->log.changes[--held->log.count];
    held->log.changes[held->log.count] = 0;
    if ((state->cuts >> held->refuse & 1) != 0)
        held->places[model_rows(rows, state, &held->log) - 1] = held->undo;
    held->broken = 1;
    end_change(&state->daemons[move.a]);
    return true;
}

static bool refuse(struct state *state, const struct search *search, struct move move,
                   const char **wrong)
{
    struct held *held = &state->daemons[move.a].held;
    if (held->phase != SERVING || held->refuse == 0 ||
        (held->broken && search->plant != PLANT_ERROR_EARLY) ||
        (!model_look(state, search, move.a) && search->plant != PLANT_ERROR_UNLOOKED))
        return false;
    if (memchr(state->answered.changes, held->refuse, state->answered.count) != NULL)
        *wrong = "a change is refused that others have seen";
    state->refused |= (uint8_t)(1 << held->refuse);
    held->refuse = 0;
    return true;
}

static bool answer(struct state *state, const struct search *search, struct move move,
                   const char **wrong)
{
    struct daemon *me = &state->daemons[move.a];
    const uint8_t ready = search->plant == PLANT_ANSWER_UNFLUSHED ? WRITTEN : DURABLE;
    if (me->held.phase != SERVING || me->held.change != ready ||
        (!model_look(state, search, move.a) && search->plant != PLANT_ANSWER_UNLOOKED &&
         search->plant != PLANT_LOOK_FIRST))
        return false;
    model_answer(state, &me->held.log, me->held.fence, wrong);
    end_change(me);
    return true;
}

/* An error that says what the session is reads it too. */
static bool answer_read(struct state *state, const struct search *search, struct move move,
                        const char **wrong)
{
    const struct held *held = &state->daemons[move.a].held;
    struct log log = held->log;
    if (held->phase != SERVING || held->released ||
        (!model_look(state, search, move.a) && search->plant != PLANT_READ_UNLOOKED))
        return false;
    if (held->change == WRITTEN || held->change == LOOKED_EARLY)
        log.changes[--log.count] = 0;
    model_answer(state, &log, held->fence, wrong);
    return true;
}

static bool release(struct state *state, const struct search *search, struct move move,
                    const char **wrong)
{
    struct daemon *me = &state->daemons[move.a];
    (void)wrong;
    if (me->held.phase != SERVING || me->held.moment == WRITTEN || me->held.released ||
        (me->held.change != IDLE && search->plant != PLANT_RELEASE_EARLY) ||
        !is_mine(state, move.a) || state->etcd.owner != move.a + 1)
        return false;
    state->etcd.owner = 0;
    if (me->held.change == IDLE)
        model_drop(me);
    else
        me->held.released = 1;
    return true;
}

/* A daemon that stops for ever is one that takes no further step. */
static bool restart(struct state *state, const struct search *search, struct move move,
                    const char **wrong)
{
    struct daemon *me = &state->daemons[move.a];
    (void)wrong;
    if (state->restarts == search->restarts || me->record == 0)
        return false;
    memset(me, 0, sizeof *me);
    state->restarts++;
    return true;
}

/* ---- All of them ----------------------------------------------------------------------------- */

const struct step model_steps[] = {
    {"join", "@ joins with a record of its own", 0, 1, join},
    {"renew", "@ renews its record", 0, 1, renew},
    {"reply", "@ gets the reply", 0, 1, reply},
    {"lose", "@ finds its record gone and gives everything up", 0, 1, lose},
    {"look-at-owner", "@ reads the owner's record", 0, 1, look_at_owner},
    {"take", "@ takes the partition", 0, 1, take},
    {"make-mark", "@ makes its mark, fence #", 0, 1, make_mark},
    {"list-marks", "@ lists the marks", 0, 1, list_marks},
    {"find-manifest", "@ reads the newest manifest", 0, 1, find_manifest},
    {"read-journal", "@ reads the journal of that", 0, 1, read_journal},
    {"write-slot", "@ writes a row into slot $", 0, SLOTS, write_slot},
    {"flush-slots", "@ flushes its slots", 0, 1, flush_slots},
    {"write-manifest", "@ writes a manifest", 0, 1, write_manifest},
    {"flush-manifest", "@ flushes its manifest", 0, 1, flush_manifest},
    {"fail-manifest", "the flush of the manifest fails for @", 0, 1, fail_manifest},
    {"look", "@ looks and has the right", 0, 1, look_at_moment},
    {"unlink", "@ unlinks what is older", 0, 1, unlink_files},
    {"change", "@ puts a change into its journal", 0, 2, change},
    {"look-early", "@ looks and has the right", 0, 1, look_early},
    {"flush-journal", "@ flushes its journal", 0, 1, flush_journal},
    {"fail-journal", "the flush of the journal fails for @", 0, 1, fail_journal},
    {"refuse", "@ answers that the change did not happen", 0, 1, refuse},
    {"answer", "@ answers that it happened", 0, 1, answer},
    {"read", "@ answers a read", 0, 1, answer_read},
    {"release", "@ releases the partition", 0, 1, release},
    {"restart", "@ is killed and starts again", 0, 1, restart},
    {"tick", "a tick passes", 1, 1, model_tick},
    {"lag", "a tick passes, which the clock of @ does not see", 0, 1, model_lag},
    {"set-back", "the wall clock of @ is set back", 0, 1, model_set_back},
    {"land-record", "a late change lands in a journal of fence #", FENCES, MANIFESTS,
     model_land_record},
    {"land-manifest", "a late manifest of fence # lands", FENCES, MANIFESTS, model_land_manifest},
    {"land-slot", "a late row lands in a slot of fence #", FENCES, SLOTS, model_land_slot},
    {"back-up", "etcd is backed up", 1, 1, model_back_up},
    {"restore", "etcd is restored from the backup", 1, 1, model_restore},
};
const unsigned model_num_steps = sizeof model_steps / sizeof *model_steps;

/* Daemon 0 serves two rows, one in a slot of an older fence and one in its own.  An old backup is
 * from before it took the partition. */
void model_init(struct state *out, const struct search *search)
{
    memset(out, 0, sizeof *out);
    struct daemon *first = &out->daemons[0];
    struct files *files = &out->files[FIRST_FENCE];
    struct held *held = &first->held;
    out->changes = 2;
    model_apply(&held->log, held->places, out, 1);
    model_apply(&held->log, held->places, out, 2);
    held->places[0] = (struct place){FIRST_FENCE - 1, 0};
    held->places[1] = (struct place){FIRST_FENCE, 0};
    held->named = bits_of(held->places);
    held->phase = SERVING;
    held->given = held->fence = FIRST_FENCE;
    held->last = held->used = 1;
    out->files[FIRST_FENCE - 1].slots[0] = 1;
    out->files[FIRST_FENCE - 1].mark = 1;
    files->slots[0] = 2;
    files->mark = 1;
    files->manifests[1].where = LANDED;
    files->manifests[1].log = held->log;
    memcpy(files->manifests[1].places, held->places, sizeof held->places);
    out->answered = held->log;
    out->answered_fence = out->clock = out->etcd.fence = FIRST_FENCE;
    out->etcd.owner = 1;
    out->etcd.records[0] = first->record = 1;
    first->left = LEASE - MARGIN;
    if (search->backups == OLD_BACKUP) {
        out->backup.fence = FIRST_FENCE - 1;
        out->backup_age = LEASE;
        out->has_backup = 1;
    }
}
