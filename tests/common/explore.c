/* explore.c: breadth-first search.  Of the states of the present and the next depth all is kept, of
 * the others a hash and how they were reached. */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reached {
    uint32_t from; /* index of the state before */
    struct move move;
};

struct states {
    unsigned char *items; /* [count][bytes of a state] */
    uint32_t *index;      /* [count]: of each in `reached` */
    size_t count, room;
};

struct explorer {
    const struct explore_model *model;
    struct outcome out;
    uint32_t from;    /* index of the state that is expanded */
    uint64_t *hashes; /* [slots], 0: empty */
    size_t slots;
    struct reached *reached; /* [out.states] */
    size_t room;
    struct states now, next;
};

static void *grow(void *items, size_t count, size_t size)
{
    void *grown = realloc(items, count * size);
    if (grown == NULL) {
        fprintf(stderr, "explore: memory is short\n");
        exit(1);
    }
    return grown;
}

/* ---- States that were reached ---------------------------------------------------------------- */

static uint64_t hash_of(const unsigned char *state, size_t bytes)
{
    uint64_t hash = 0x9e3779b97f4a7c15, word;
    for (size_t at = 0; at < bytes; at += sizeof word) {
        size_t size = bytes - at < sizeof word ? bytes - at : sizeof word;
        word = 0;
        memcpy(&word, state + at, size);
        hash = (hash ^ word) * 0xff51afd7ed558ccd;
        hash ^= hash >> 32;
    }
    return hash == 0 ? 1 : hash;
}

static bool put(uint64_t *hashes, size_t slots, uint64_t hash)
{
    size_t at = hash & (slots - 1);
    while (hashes[at] != 0 && hashes[at] != hash)
        at = (at + 1) & (slots - 1);
    bool is_new = hashes[at] == 0;
    hashes[at] = hash;
    return is_new;
}

static void widen(struct explorer *explorer)
{
    size_t slots = explorer->slots == 0 ? 1 << 16 : 2 * explorer->slots;
    uint64_t *hashes = grow(NULL, slots, sizeof *hashes);
    memset(hashes, 0, slots * sizeof *hashes);
    for (size_t i = 0; i < explorer->slots; i++)
        if (explorer->hashes[i] != 0)
            put(hashes, slots, explorer->hashes[i]);
    free(explorer->hashes);
    explorer->hashes = hashes;
    explorer->slots = slots;
}

static void add(struct explorer *explorer, const void *state, uint32_t from, struct move move)
{
    struct outcome *out = &explorer->out;
    struct states *next = &explorer->next;
    const size_t bytes = explorer->model->bytes;
    if (2 * out->states >= explorer->slots)
        widen(explorer);
    if (!put(explorer->hashes, explorer->slots, hash_of(state, bytes)))
        return;
    if (out->states == explorer->room) {
        explorer->room = explorer->room == 0 ? 1 << 16 : 2 * explorer->room;
        explorer->reached = grow(explorer->reached, explorer->room, sizeof *explorer->reached);
    }
    if (next->count == next->room) {
        next->room = next->room == 0 ? 1 << 10 : next->room + next->room / 2;
        next->items = grow(next->items, next->room, bytes);
        next->index = grow(next->index, next->room, sizeof *next->index);
    }
    explorer->reached[out->states] = (struct reached){from, move};
    memcpy(next->items + next->count * bytes, state, bytes);
    next->index[next->count++] = (uint32_t)out->states++;
}

static void trace_back(struct outcome *out, const struct explorer *explorer, uint32_t from,
                       struct move last)
{
    uint32_t at = from;
    out->num_trace = 1;
    while (explorer->reached[at].from != at) {
        out->num_trace++;
        at = explorer->reached[at].from;
    }
    unsigned place = out->num_trace < TRACE ? out->num_trace : TRACE;
    out->num_trace = place;
    out->trace[--place] = last;
    for (at = from; place > 0; at = explorer->reached[at].from)
        out->trace[--place] = explorer->reached[at].move;
}

/* ---- The search ------------------------------------------------------------------------------ */

void explore_reach(struct explorer *explorer, const void *state, struct move move,
                   const char *wrong)
{
    struct outcome *out = &explorer->out;
    if (out->wrong != NULL)
        return;
    out->moves++;
    if (wrong == NULL) {
        add(explorer, state, explorer->from, move);
        return;
    }
    out->wrong = wrong;
    trace_back(out, explorer, explorer->from, move);
}

struct outcome explore(const struct explore_model *model, const void *first)
{
    struct explorer explorer = {.model = model};
    add(&explorer, first, 0, (struct move){0});
    while (explorer.next.count > 0 && explorer.out.wrong == NULL && !explorer.out.full) {
        struct states now = explorer.next;
        explorer.next = explorer.now;
        explorer.next.count = 0;
        explorer.now = now;
        for (size_t i = 0; i < now.count && explorer.out.wrong == NULL; i++) {
            explorer.from = now.index[i];
            model->expand(&explorer, now.items + i * model->bytes, model->context);
        }
        explorer.out.full = explorer.out.states > MAX_STATES;
    }
    free(explorer.hashes);
    free(explorer.reached);
    free(explorer.now.items);
    free(explorer.now.index);
    free(explorer.next.items);
    free(explorer.next.index);
    return explorer.out;
}
