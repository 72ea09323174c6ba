/* main.c: build/store_model [--quick]: searches all that the model of the store (model.h) can do,
 * then with each planted mistake, which must be found. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "search.h"

#define EVICTIONS " write-out evict begin-read end-read "

/* Steps that are left out, records, crashes, faults, moments, sessions. */
static const struct search quick[] = {
    {"moments", EVICTIONS, 3, 1, 0, 2, 2, PLANT_NOTHING},
    {"starts", EVICTIONS, 2, 2, 0, 1, 1, PLANT_NOTHING},
    {"failures and damage", EVICTIONS, 2, 1, 1, 2, 2, PLANT_NOTHING},
    {"eviction", "", 3, 1, 0, 1, 1, PLANT_NOTHING},
    {"eviction, failures and damage", "", 2, 1, 1, 1, 1, PLANT_NOTHING},
};

static const struct search whole[] = {
    {"moments", EVICTIONS, 4, 1, 0, 2, 2, PLANT_NOTHING},
    {"starts", EVICTIONS, 3, 2, 0, 1, 2, PLANT_NOTHING},
    {"failures and damage", EVICTIONS, 3, 1, 1, 2, 2, PLANT_NOTHING},
    {"failures, damage and starts", EVICTIONS, 2, 2, 1, 1, 1, PLANT_NOTHING},
    {"two failures", EVICTIONS "rot ", 2, 1, 2, 2, 1, PLANT_NOTHING},
    {"eviction", "", 3, 1, 0, 2, 1, PLANT_NOTHING},
    {"eviction of longer sessions", " remove-journal remove-manifest fork create end ", 4, 1, 0, 1,
     1, PLANT_NOTHING},
    {"eviction, failures and damage", "", 2, 1, 1, 2, 1, PLANT_NOTHING},
};

/* Each with a search that comes to it. */
static const struct search planted[] = {
    {"blocks are not flushed before the section", "", 2, 1, 0, 1, 1, PLANT_BLOCKS_UNFLUSHED},
    {"slots are in a file without a durable name", "", 2, 1, 0, 1, 1, PLANT_SLOTS_UNNAMED},
    {"a moment flushes its own blocks alone", "", 2, 1, 0, 2, 1, PLANT_OWN_WRITES_ONLY},
    {"a slot is free before its section is durable", "", 2, 1, 0, 2, 1, PLANT_SLOT_FREE_EARLY},
    {"a tail is overwritten in place", "", 2, 1, 0, 2, 1, PLANT_TAIL_IN_PLACE},
    {"the journal is not flushed", "", 2, 1, 0, 1, 1, PLANT_JOURNAL_UNFLUSHED},
    {"the manifest is not flushed", "", 2, 1, 0, 1, 1, PLANT_SECTION_UNFLUSHED},
    {"the manifest is renamed before its flush", "", 2, 2, 0, 1, 1, PLANT_RENAME_EARLY},
    {"the directory is not flushed", "", 2, 1, 0, 1, 1, PLANT_DIRECTORY_UNFLUSHED},
    {"records go to a journal without a durable name", "", 2, 1, 0, 1, 1, PLANT_JOURNAL_LATE},
    {"an older journal is removed before the section", "", 2, 1, 0, 1, 1, PLANT_JOURNAL_EARLY},
    {"the older manifest is removed before the new name", "", 2, 2, 0, 1, 1, PLANT_MANIFEST_EARLY},
    {"the checksum is that of another block", "", 3, 1, 0, 1, 1, PLANT_OTHER_SUM},
    {"records are not chained", "", 2, 1, 0, 1, 1, PLANT_UNCHAINED_RECORDS},
    {"sections are not chained", "", 2, 1, 0, 2, 1, PLANT_UNCHAINED_SECTIONS},
    {"a dirty block is evicted", "", 2, 1, 0, 1, 1, PLANT_DIRTY_EVICTED},
    {"a block's new place is no change of its session", "", 2, 1, 1, 2, 1, PLANT_PLACE_UNCHANGED},
    {"a block is evicted before its slot is flushed", "", 2, 1, 1, 1, 1, PLANT_UNFLUSHED_EVICTED},
    {"a slot is reused under a read", "", 3, 1, 0, 1, 1, PLANT_SLOT_UNDER_READ},
    {"a session is frozen after the switch", EVICTIONS, 2, 1, 0, 1, 1, PLANT_FREEZE_LATE},
    {"a fork is replayed on a truncated parent", EVICTIONS "power ", 3, 1, 0, 1, 2,
     PLANT_FORK_TRUNCATED},
    {"a journal goes before its tails are written", "", 2, 1, 0, 1, 1, PLANT_TAIL_LEFT_OUT},
    {"a failed moment's changes are forgotten", EVICTIONS, 2, 1, 1, 2, 2, PLANT_CHANGES_FORGOTTEN},
    {"sections follow one whose flush failed", EVICTIONS, 2, 1, 1, 2, 1,
     PLANT_APPEND_AFTER_FAILURE},
    {"records follow those whose flush failed", "", 2, 1, 1, 1, 1, PLANT_FAILURE_FORGOTTEN},
    {"a start serves what it has not flushed", "", 2, 2, 0, 1, 1, PLANT_START_UNFLUSHED},
    {"a start leaves what lies after the end", EVICTIONS, 3, 2, 0, 0, 1, PLANT_START_UNCUT},
    {"a start appends to an older fence's manifest", EVICTIONS, 2, 2, 0, 2, 1,
     PLANT_START_IN_OLD_FENCE},
    {"a write is lost and no checksum compared", " rot ", 2, 1, 1, 1, 1, PLANT_SUM_UNREAD},
    {"bits rot and no checksum is compared", " flush-slots-losing ", 2, 1, 1, 1, 1,
     PLANT_SUM_UNREAD},
};

static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

static bool search_all(const struct search searches[], size_t count)
{
    bool sound = true;
    for (size_t i = 0; i < count; i++) {
        double begun = cpu_s();
        uint64_t starts;
        struct outcome found = model_explore(&starts, &searches[i]);
        printf("%s: %lu states, %lu disks read, %.1f s: %s\n", searches[i].name,
               (unsigned long)found.states, (unsigned long)starts, cpu_s() - begun,
               found.wrong != NULL ? found.wrong
               : found.full        ? "not all of them"
                                   : "all are right");
        model_print(&found);
        sound &= found.wrong == NULL && !found.full;
    }
    return sound;
}

static bool find_planted(void)
{
    unsigned noticed = 0, count = sizeof planted / sizeof *planted;
    for (unsigned i = 0; i < count; i++) {
        uint64_t starts;
        struct outcome found = model_explore(&starts, &planted[i]);
        printf("planted: %s: %s\n", planted[i].name,
               found.wrong != NULL ? found.wrong : "NOT NOTICED");
        model_print(&found);
        noticed += found.wrong != NULL;
    }
    printf("store_model: %u of %u planted mistakes noticed\n", noticed, count);
    return noticed == count;
}

int main(int argc, char **argv)
{
    bool is_quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    if (argc > 1 && !is_quick) {
        fprintf(stderr, "usage: store_model [--quick]\n");
        return 2;
    }
    bool sound = is_quick ? search_all(quick, sizeof quick / sizeof *quick)
                          : search_all(whole, sizeof whole / sizeof *whole);
    return find_planted() && sound ? 0 : 1;
}
