/* model_main.c: build/cluster_model [--quick]: searches all that the model of a partition (model.h)
 * can do, then with each rule left out, which must be found.  --only TEXT: the searches that have
 * it in their name. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "model.h"

/* ---- Searching ------------------------------------------------------------------------------- */

static bool is_left_out(const struct search *search, const char *name)
{
    const char *at = strstr(search->without, name);
    return at != NULL && at[-1] == ' ' && at[strlen(name)] == ' ';
}

struct run {
    const struct search *search;
    uint64_t *taken;          /* how often each step was taken */
    bool left_out[UINT8_MAX]; /* of each step */
};

static void expand(struct explorer *explorer, const void *state, void *context)
{
    const struct run *run = context;
    const struct search *search = run->search;
    struct state next = *(const struct state *)state;
    for (unsigned i = 0; i < model_num_steps; i++) {
        const struct step *step = &model_steps[i];
        const unsigned num_a = step->a == 0 ? search->daemons : step->a;
        if (run->left_out[i])
            continue;
        for (unsigned at = 0; at < num_a * step->b; at++) {
            struct move move = {(uint8_t)i, (uint8_t)(at / step->b), (uint16_t)(at % step->b)};
            const char *wrong = NULL;
            if (!step->take(&next, search, move, &wrong))
                continue;
            run->taken[i]++;
            model_settle(&next, search, &wrong);
            explore_reach(explorer, &next, move, wrong);
            next = *(const struct state *)state;
        }
    }
}

static struct outcome search_one(uint64_t taken[], const struct search *search)
{
    struct run run = {.search = search, .taken = taken};
    struct explore_model model = {sizeof(struct state), expand, &run};
    struct state first;
    for (unsigned i = 0; i < model_num_steps; i++)
        run.left_out[i] = is_left_out(search, model_steps[i].name);
    model_init(&first, search);
    return explore(&model, &first);
}

/* ---- Stories --------------------------------------------------------------------------------- */

static void tell_step(const struct state *state, const struct step *step, struct move move)
{
    const unsigned fence = step->a == 0 ? state->daemons[move.a].held.given : move.a + 1u;
    for (const char *c = step->text; *c != '\0'; c++)
        switch (*c) {
        case '@':
            putchar('A' + move.a);
            break;
        case '#':
            printf("%u", fence);
            break;
        case '$':
            printf("%u", (unsigned)move.b);
            break;
        default:
            putchar(*c);
        }
}

static void tell(const struct search *search, const struct outcome *outcome)
{
    struct state state;
    model_init(&state, search);
    for (unsigned i = 0; i < outcome->num_trace; i++) {
        const struct move move = outcome->trace[i];
        const struct step *step = &model_steps[move.step];
        const char *wrong = NULL;
        step->take(&state, search, move, &wrong);
        printf("%s", i == 0 ? "    A serves, fence 2; " : "; ");
        tell_step(&state, step, move);
        model_settle(&state, search, &wrong);
    }
    if (outcome->num_trace > 0)
        printf("\n");
}

/* ---- What is searched ------------------------------------------------------------------------ */

#define SAFE_ETCD " back-up restore "
#define EXACT " back-up restore lag " /* clocks */
#define NO_MOMENTS "look unlink write-slot flush-slots "

/* Steps that are left out; daemons, fences, manifests, changes; restarts, faults, backups; whether
 * the mount is looked at, whether replies may be late. */
static const struct search quick[] = {
    {"takeovers", EXACT, 2, 3, 2, 4, 0, 0, 0, false, false, PLANT_NOTHING},
    {"clocks", SAFE_ETCD, 2, 3, 1, 3, 0, 0, 0, false, true, PLANT_NOTHING},
    {"failures", EXACT, 2, 3, 2, 3, 0, 1, 0, false, false, PLANT_NOTHING},
    {"restarts", EXACT, 2, 4, 1, 3, 1, 0, 0, false, false, PLANT_NOTHING},
    {"etcd restored", " lag release " NO_MOMENTS, 2, 4, 1, 2, 0, 0, 1, false, false, PLANT_NOTHING},
    {"etcd restored from an old backup", " lag " NO_MOMENTS, 2, 4, 1, 3, 0, 0, OLD_BACKUP, false,
     false, PLANT_NOTHING},
    {"look: mount", "", 2, 4, 1, 3, 0, 1, 1, true, false, PLANT_NOTHING},
};

static const struct search whole[] = {
    {"takeovers", EXACT, 2, 4, 2, 4, 0, 0, 0, false, false, PLANT_NOTHING},
    {"clocks", SAFE_ETCD, 2, 4, 1, 3, 0, 0, 0, false, true, PLANT_NOTHING},
    {"failures", EXACT, 2, 3, 3, 3, 0, 2, 0, false, false, PLANT_NOTHING},
    {"restarts", EXACT, 2, 4, 2, 3, 1, 0, 0, false, false, PLANT_NOTHING},
    {"three daemons", EXACT NO_MOMENTS, 3, 4, 1, 3, 0, 0, 0, false, false, PLANT_NOTHING},
    {"etcd restored", " lag " NO_MOMENTS, 2, 4, 1, 3, 0, 0, 1, false, false, PLANT_NOTHING},
    {"etcd restored from an old backup", " lag " NO_MOMENTS, 3, 4, 1, 3, 0, 0, OLD_BACKUP, false,
     false, PLANT_NOTHING},
    {"look: mount", "", 3, 4, 1, 3, 0, 1, 1, true, false, PLANT_NOTHING},
};

/* Each with a search that comes to it. */
static const struct search planted[] = {
    {"rule 1: a change is answered without a look", EXACT, 2, 3, 1, 3, 0, 0, 0, false, false,
     PLANT_ANSWER_UNLOOKED},
    {"rule 1: an error is answered without a look", EXACT, 2, 3, 2, 3, 0, 1, 0, false, false,
     PLANT_ERROR_UNLOOKED},
    {"rule 1: a read is answered without a look", EXACT, 2, 3, 1, 3, 0, 0, 0, false, false,
     PLANT_READ_UNLOOKED},
    {"rule 1: files are unlinked without a look", EXACT, 2, 3, 2, 4, 0, 0, 0, false, false,
     PLANT_UNLINK_UNLOOKED},
    {"rule 1: slots are reused before the look", EXACT, 2, 3, 2, 4, 0, 0, 0, false, false,
     PLANT_SLOT_UNLOOKED},
    {"rule 1: the look comes before the flush", EXACT, 2, 3, 1, 3, 0, 0, 0, false, false,
     PLANT_LOOK_FIRST},
    {"rule 1, mount: a change is answered without a look", "", 2, 3, 1, 3, 0, 0, 0, true, false,
     PLANT_ANSWER_UNLOOKED},
    {"rule 1, mount: the look comes before the flush", "", 2, 3, 1, 3, 0, 0, 0, true, false,
     PLANT_LOOK_FIRST},
    {"rule 7: the flush of another partition counts for this one", EXACT, 2, 3, 1, 3, 0, 0, 0,
     false, false, PLANT_ANSWER_UNFLUSHED},
    {"rule 1: an error is answered before a manifest without the change", EXACT, 2, 3, 2, 3, 0, 1,
     0, false, false, PLANT_ERROR_EARLY},
    {"rule 2: the right is by the wall clock", EXACT, 2, 3, 1, 3, 0, 1, 0, false, false,
     PLANT_WALL_CLOCK},
    {"rule 2: the right is reckoned from the reply", SAFE_ETCD, 2, 3, 1, 3, 0, 0, 0, false, true,
     PLANT_FROM_REPLY},
    {"rule 2: no margin for clocks that lag", SAFE_ETCD, 2, 3, 1, 3, 0, 0, 0, false, false,
     PLANT_NO_MARGIN},
    {"rule 2: the record stays, and its owner goes on by it", EXACT, 2, 3, 1, 3, 0, 0, 0, false,
     false, PLANT_RECORD_STAYS},
    {"rule 2: the partition is taken before L", EXACT, 2, 3, 1, 3, 0, 0, 0, false, false,
     PLANT_TAKES_EARLY},
    {"rule 2: who lapsed goes on from what it had seen", " lag release " NO_MOMENTS, 2, 3, 1, 2, 0,
     0, 1, false, false, PLANT_SEEN_KEPT},
    {"rule 2: who lapsed and has its record goes on", " lag " NO_MOMENTS, 2, 4, 1, 2, 0, 0, 1,
     false, false, PLANT_LAPSE_FORGOTTEN},
    {"rule 3: a fence is repeated after a restore", " lag " NO_MOMENTS, 1, 4, 2, 3, 0, 0, 1, false,
     false, PLANT_FENCE_REPEATED},
    {"rule 3: the fence is chosen in the directory", EXACT, 2, 4, 1, 3, 0, 0, 0, false, false,
     PLANT_FENCE_LATE},
    {"rule 3: a mark that etcd does not know is passed over", " lag " NO_MOMENTS, 2, 4, 1, 2, 0, 0,
     OLD_BACKUP, false, false, PLANT_RESTORE_UNNOTICED},
    {"rule 3: a mark above one's own is passed over", " lag release " NO_MOMENTS, 2, 4, 1, 2, 0, 0,
     1, false, false, PLANT_HIGHER_UNNOTICED},
    {"rule 4: the journal of an older fence is read again", EXACT, 2, 3, 1, 4, 0, 0, 0, false,
     false, PLANT_OLD_JOURNAL},
    {"rule 4: a manifest is replaced", EXACT, 2, 3, 2, 3, 0, 0, 0, false, false,
     PLANT_MANIFEST_REPLACED},
    {"rule 4: answered before the own manifest is durable", EXACT, 2, 3, 1, 3, 0, 0, 0, false,
     false, PLANT_UNSEALED},
    {"rule 5: a second flush is believed", EXACT, 2, 3, 1, 3, 0, 1, 0, false, false,
     PLANT_SECOND_FLUSH},
    {"rule 5: the old journal goes on after a manifest's flush failed", EXACT, 2, 3, 2, 3, 0, 1, 0,
     false, false, PLANT_OLD_JOURNAL_KEPT},
    {"rule 8: the partition is released before the flush", EXACT, 2, 3, 1, 3, 0, 0, 0, false, false,
     PLANT_RELEASE_EARLY},
    {"the world: a backup is restored that is younger than L", " lag release " NO_MOMENTS, 2, 3, 1,
     2, 0, 0, 1, false, false, PLANT_YOUNG_BACKUP},
};

/* Likewise; not with --quick. */
static const struct search planted_deep[] = {
    {"rule 2: the partition is taken without a right", " lag " NO_MOMENTS, 2, 4, 1, 2, 0, 0, 1,
     false, false, PLANT_TAKE_LAPSED},
    {"rule 3: memory is kept though another has made a mark", " lag release " NO_MOMENTS, 2, 4, 1,
     3, 0, 0, 1, false, false, PLANT_MEMORY_KEPT},
};

static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

static bool is_wanted(const struct search *search, const char *only)
{
    return only == NULL || strstr(search->name, only) != NULL;
}

static bool search_all(uint64_t taken[], const struct search searches[], size_t count,
                       const char *only)
{
    bool sound = true;
    for (size_t i = 0; i < count; i++) {
        double begun = cpu_s();
        if (!is_wanted(&searches[i], only))
            continue;
        struct outcome found = search_one(taken, &searches[i]);
        printf("%s: %lu states, %lu steps, %.1f s: %s\n", searches[i].name,
               (unsigned long)found.states, (unsigned long)found.moves, cpu_s() - begun,
               found.wrong != NULL ? found.wrong
               : found.full        ? "not all of them"
                                   : "all are right");
        tell(&searches[i], &found);
        fflush(stdout);
        sound &= found.wrong == NULL && !found.full;
    }
    return sound;
}

static bool find_planted(uint64_t taken[], const struct search planted_searches[], size_t num,
                         const char *only)
{
    unsigned noticed = 0, count = 0;
    double begun = cpu_s();
    for (size_t i = 0; i < num; i++) {
        if (!is_wanted(&planted_searches[i], only))
            continue;
        struct outcome found = search_one(taken, &planted_searches[i]);
        printf("planted: %s: %s, after %lu states\n", planted_searches[i].name,
               found.wrong != NULL ? found.wrong : "NOT NOTICED", (unsigned long)found.states);
        tell(&planted_searches[i], &found);
        noticed += found.wrong != NULL;
        count++;
    }
    printf("cluster_model: %u of %u planted mistakes noticed, %.1f s\n", noticed, count,
           cpu_s() - begun);
    return noticed == count;
}

/* A step that is never taken proves nothing. */
static bool took_each(const uint64_t taken[])
{
    bool all = true;
    for (unsigned i = 0; i < model_num_steps; i++)
        if (taken[i] == 0) {
            printf("cluster_model: nobody took the step %s\n", model_steps[i].name);
            all = false;
        }
    return all;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

int main(int argc, char **argv)
{
    const bool is_quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    const char *only = argc == 3 && strcmp(argv[1], "--only") == 0 ? argv[2] : NULL;
    uint64_t taken[UINT8_MAX] = {0};
    if (argc > 1 && !is_quick && only == NULL) {
        fprintf(stderr, "usage: cluster_model [--quick | --only TEXT]\n");
        return 2;
    }
    bool ok = is_quick ? search_all(taken, quick, COUNT(quick), NULL)
                       : search_all(taken, whole, COUNT(whole), only);
    ok &= find_planted(taken, planted, COUNT(planted), only);
    if (!is_quick)
        ok &= find_planted(taken, planted_deep, COUNT(planted_deep), only);
    if (only == NULL)
        ok &= took_each(taken);
    printf("cluster_model: %s\n", ok ? "ok" : "FAILED");
    return ok ? 0 : 1;
}
