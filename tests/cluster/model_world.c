/* model_world.c: clocks, etcd, the mount, and what is held against a state. */
#include <string.h>

#include "model.h"

/* ---- The session ----------------------------------------------------------------------------- */

static bool cuts(const struct state *state, uint8_t change)
{
    return (state->cuts >> change & 1) != 0;
}

unsigned model_rows(uint8_t rows[ROWS], const struct state *state, const struct log *log)
{
    unsigned count = 0;
    memset(rows, 0, ROWS);
    for (unsigned i = 0; i < log->count; i++)
        if (!cuts(state, log->changes[i]))
            rows[count++ % ROWS] = log->changes[i];
        else if (count > 0)
            rows[--count] = 0;
    return count;
}

void model_apply(struct log *log, struct place places[ROWS], const struct state *state,
                 uint8_t change)
{
    uint8_t rows[ROWS];
    unsigned count = model_rows(rows, state, log);
    if (cuts(state, change) && count > 0)
        places[count - 1] = (struct place){0};
    if (log->count < CHANGES)
        log->changes[log->count++] = change;
}

static bool has(const struct log *log, uint8_t change)
{
    return memchr(log->changes, change, log->count) != NULL;
}

static bool continues(const struct log *log, const struct log *former)
{
    return log->count >= former->count && memcmp(log->changes, former->changes, former->count) == 0;
}

static bool has_refused(const struct state *state, const struct log *log)
{
    for (unsigned i = 0; i < log->count; i++)
        if ((state->refused >> log->changes[i] & 1) != 0)
            return true;
    return false;
}

void model_answer(struct state *state, const struct log *log, unsigned fence, const char **wrong)
{
    if (!continues(log, &state->answered))
        *wrong = "an answer lacks what was answered before";
    else if (has_refused(state, log))
        *wrong = "an answer shows a change that was refused";
    else if (fence < state->answered_fence)
        *wrong = "two owners answer";
    state->answered = *log;
    state->answered_fence = (uint8_t)fence;
}

/* ---- Clocks ---------------------------------------------------------------------------------- */

static void lapse(struct daemon *daemon, const struct search *search)
{
    if (search->plant != PLANT_SEEN_KEPT)
        daemon->seen = daemon->seen_of = daemon->seen_age = 0;
    if (daemon->held.phase != OUT && search->plant != PLANT_LAPSE_FORGOTTEN &&
        search->plant != PLANT_RECORD_STAYS)
        daemon->held.lapsed = 1;
}

static void pass(struct daemon *daemon, const struct search *search)
{
    const unsigned whole = LEASE - (search->plant == PLANT_NO_MARGIN ? 0 : MARGIN);
    if (daemon->left > 0 && --daemon->left == 0) {
        daemon->lagged = 0;
        lapse(daemon, search);
    }
    if (daemon->asked && daemon->age < whole)
        daemon->age++;
    if (daemon->age == whole && search->plant != PLANT_FROM_REPLY)
        daemon->asked = daemon->age = daemon->asked_lagged = 0; /* too late to be of use */
    if (daemon->seen != 0 && daemon->seen_age < LEASE)
        daemon->seen_age++;
    if (daemon->held.waits > 0)
        daemon->held.waits--;
}

static bool pass_for_all_but(struct state *state, const struct search *search, unsigned late)
{
    for (unsigned i = 0; i < search->daemons; i++)
        if (i != late)
            pass(&state->daemons[i], search);
    if (state->has_backup && state->backup_age < LEASE)
        state->backup_age++;
    return true;
}

bool model_tick(struct state *state, const struct search *search, struct move move,
                const char **wrong)
{
    (void)wrong, (void)move;
    return !search->mount && pass_for_all_but(state, search, DAEMONS);
}

/* The clock of daemon `a` does not see a tick. */
bool model_lag(struct state *state, const struct search *search, struct move move,
               const char **wrong)
{
    struct daemon *late = &state->daemons[move.a];
    (void)wrong;
    if (search->mount || late->lagged || late->asked_lagged || (!late->left && !late->asked))
        return false;
    late->lagged = late->left > 0;
    late->asked_lagged = late->asked;
    return pass_for_all_but(state, search, move.a);
}

bool model_set_back(struct state *state, const struct search *search, struct move move,
                    const char **wrong)
{
    struct daemon *daemon = &state->daemons[move.a];
    (void)wrong;
    if (search->plant != PLANT_WALL_CLOCK || daemon->held.phase != SERVING || daemon->left != 0 ||
        state->faults == search->faults)
        return false;
    daemon->left = LEASE - MARGIN;
    daemon->held.lapsed = 0;
    state->faults++;
    return true;
}

bool model_has_mark(const struct state *state, unsigned above, unsigned below)
{
    for (unsigned i = above + 1; i < below; i++)
        if (state->files[i].mark)
            return true;
    return false;
}

bool model_look(const struct state *state, const struct search *search, unsigned daemon)
{
    const struct daemon *me = &state->daemons[daemon];
    if (search->mount)
        return !model_has_mark(state, me->held.given, FENCES + 1);
    return me->left > 0 && !me->held.lapsed;
}

/* ---- etcd ------------------------------------------------------------------------------------ */

bool model_back_up(struct state *state, const struct search *search, struct move move,
                   const char **wrong)
{
    (void)wrong, (void)move;
    if (state->has_backup || state->restored || search->backups == 0)
        return false;
    state->backup = state->etcd;
    state->has_backup = 1;
    return true;
}

bool model_restore(struct state *state, const struct search *search, struct move move,
                   const char **wrong)
{
    const bool is_old = state->backup_age >= LEASE || search->mount;
    (void)wrong, (void)move;
    if (!state->has_backup || (!is_old && search->plant != PLANT_YOUNG_BACKUP))
        return false;
    state->etcd = state->backup;
    memset(&state->backup, 0, sizeof state->backup);
    state->has_backup = state->backup_age = 0;
    state->restored = 1;
    return true;
}

/* Numbers the values that daemon i's record has had: which are the same is all that matters. */
static void renumber(struct state *state, unsigned i)
{
    uint8_t *places[3 + DAEMONS], values[3 + DAEMONS] = {0}, count = 0, known = 0;
    places[count++] = &state->etcd.records[i];
    places[count++] = &state->daemons[i].record;
    if (state->has_backup)
        places[count++] = &state->backup.records[i];
    for (unsigned w = 0; w < DAEMONS; w++)
        if (state->daemons[w].seen_of == i + 1)
            places[count++] = &state->daemons[w].seen;
    for (unsigned p = 0; p < count; p++) {
        uint8_t number = 0;
        for (uint8_t k = 0; k < known && number == 0; k++)
            if (values[k] == *places[p])
                number = (uint8_t)(k + 1);
        if (number == 0 && *places[p] != 0) {
            values[known++] = *places[p];
            number = known;
        }
        *places[p] = number;
    }
}

/* ---- The mount ------------------------------------------------------------------------------- */

void model_manifest_landed(struct state *state, const struct search *search, unsigned fence,
                           unsigned number)
{
    state->files[fence].manifests[number].where = LANDED;
    if (search->plant == PLANT_MANIFEST_REPLACED) {
        state->landed[0] = (uint8_t)fence;
        state->landed[1] = (uint8_t)number;
    }
}

bool model_land_record(struct state *state, const struct search *search, struct move move,
                       const char **wrong)
{
    struct journal *journal = &state->files[move.a + 1].journals[move.b + 1];
    (void)wrong, (void)search;
    if (journal->landed == journal->written)
        return false;
    journal->landed++;
    return true;
}

bool model_land_manifest(struct state *state, const struct search *search, struct move move,
                         const char **wrong)
{
    const struct manifest *manifest = &state->files[move.a + 1].manifests[move.b + 1];
    (void)wrong;
    if (manifest->where != LATE)
        return false;
    model_manifest_landed(state, search, move.a + 1u, move.b + 1u);
    return true;
}

bool model_land_slot(struct state *state, const struct search *search, struct move move,
                     const char **wrong)
{
    struct files *files = &state->files[move.a + 1];
    (void)wrong, (void)search;
    if (files->late[move.b] == 0)
        return false;
    files->slots[move.b] = files->late[move.b];
    files->late[move.b] = 0;
    return true;
}

bool model_newest(uint8_t out[2], const struct state *state, const struct search *search)
{
    if (search->plant == PLANT_MANIFEST_REPLACED && state->landed[0] != 0) {
        memcpy(out, state->landed, 2);
        return true;
    }
    for (uint8_t fence = FENCES; fence > 0; fence--)
        for (uint8_t number = MANIFESTS; number > 0; number--)
            if (state->files[fence].manifests[number].where == LANDED) {
                out[0] = fence;
                out[1] = number;
                return true;
            }
    return false;
}

void model_replay(struct log *log, struct place places[ROWS], const struct state *state,
                  const struct search *search, const uint8_t manifest[2])
{
    const unsigned first = search->plant == PLANT_OLD_JOURNAL ? 1 : manifest[0];
    for (unsigned fence = first; fence <= manifest[0]; fence++)
        for (unsigned number = 1; number <= MANIFESTS; number++) {
            const struct journal *journal = &state->files[fence].journals[number];
            if (fence == manifest[0] && number != manifest[1])
                continue;
            for (unsigned i = 0; i < journal->landed; i++)
                if (!has(log, journal->changes[i]))
                    model_apply(log, places, state, journal->changes[i]);
        }
}

bool model_slots_hold(const struct state *state, const struct log *log,
                      const struct place places[ROWS])
{
    uint8_t rows[ROWS];
    unsigned count = model_rows(rows, state, log);
    for (unsigned i = 0; i < count; i++)
        if (places[i].fence != 0 && state->files[places[i].fence].slots[places[i].slot] != rows[i])
            return false;
    return true;
}

/* ---- What is held against a state ------------------------------------------------------------ */

static void check_directory(const struct state *state, const struct search *search,
                            const char **wrong)
{
    uint8_t newest[2];
    if (!model_newest(newest, state, search)) {
        *wrong = "the manifest that counts is gone or written over";
        return;
    }
    struct manifest read = state->files[newest[0]].manifests[newest[1]];
    if (!model_slots_hold(state, &read.log, read.places))
        *wrong = "a slot that the newest manifest names is overwritten or gone";
    model_replay(&read.log, read.places, state, search, newest);
    if (!continues(&read.log, &state->answered))
        *wrong = "a reader of the directory would miss what was answered";
    else if (has_refused(state, &read.log))
        *wrong = "a reader of the directory would find a change that was refused";
}

/* Manifests and journals that are older than the newest are read by nobody, but by a daemon that
 * has found one of them already. */
static void forget_older(struct state *state, const struct search *search)
{
    uint8_t newest[2];
    if (search->plant == PLANT_OLD_JOURNAL || search->plant == PLANT_MANIFEST_REPLACED ||
        !model_newest(newest, state, search))
        return;
    for (unsigned fence = 1; fence <= newest[0]; fence++)
        for (unsigned number = 1; number <= MANIFESTS; number++) {
            bool found = fence == newest[0] && number >= newest[1];
            for (unsigned i = 0; i < DAEMONS; i++) {
                const struct held *held = &state->daemons[i].held;
                found |=
                    held->phase == FOUND && held->found[0] == fence && held->found[1] == number;
            }
            if (found)
                continue;
            memset(&state->files[fence].manifests[number], 0, sizeof(struct manifest));
            memset(&state->files[fence].journals[number], 0, sizeof(struct journal));
        }
}

void model_drop(struct daemon *daemon) { memset(&daemon->held, 0, sizeof daemon->held); }

void model_settle(struct state *state, const struct search *search, const char **wrong)
{
    for (unsigned i = 0; i < DAEMONS; i++) {
        struct daemon *daemon = &state->daemons[i];
        if (daemon->seen != 0 && daemon->seen != state->etcd.records[daemon->seen_of - 1] &&
            daemon->seen != state->backup.records[daemon->seen_of - 1])
            daemon->seen = daemon->seen_of = daemon->seen_age = 0; /* it will not be again */
    }
    for (unsigned i = 0; i < DAEMONS; i++)
        renumber(state, i);
    if (*wrong == NULL)
        check_directory(state, search, wrong);
    forget_older(state, search);
}
