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
    struct state *items; /* [count] */
    uint32_t *index;     /* [count]: of each in `reached` */
    size_t count, room;
};

struct explorer {
    const struct search *search;
    struct outcome out;
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
        fprintf(stderr, "store_model: memory is short\n");
        exit(1);
    }
    return grown;
}

/* ---- States that were reached ---------------------------------------------------------------- */

static uint64_t hash_of(const struct state *state)
{
    const unsigned char *bytes = (const unsigned char *)state;
    uint64_t hash = 0x9e3779b97f4a7c15, word;
    for (size_t at = 0; at < sizeof *state; at += sizeof word) {
        size_t size = sizeof *state - at < sizeof word ? sizeof *state - at : sizeof word;
        word = 0;
        memcpy(&word, bytes + at, size);
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

static void add(struct explorer *explorer, const struct state *state, uint32_t from,
                struct move move)
{
    struct outcome *out = &explorer->out;
    struct states *next = &explorer->next;
    if (2 * out->states >= explorer->slots)
        widen(explorer);
    if (!put(explorer->hashes, explorer->slots, hash_of(state)))
        return;
    if (out->states == explorer->room) {
        explorer->room = explorer->room == 0 ? 1 << 16 : 2 * explorer->room;
        explorer->reached = grow(explorer->reached, explorer->room, sizeof *explorer->reached);
    }
    if (next->count == next->room) {
        next->room = next->room == 0 ? 1 << 10 : next->room + next->room / 2;
        next->items = grow(next->items, next->room, sizeof *next->items);
        next->index = grow(next->index, next->room, sizeof *next->index);
    }
    explorer->reached[out->states] = (struct reached){from, move};
    next->items[next->count] = *state;
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

/* ---- Moves ----------------------------------------------------------------------------------- */

static bool is_left_out(const struct search *search, const char *name)
{
    const char *at = strstr(search->without, name);
    return at != NULL && at[-1] == ' ' && at[strlen(name)] == ' ';
}

static void move_from(struct explorer *explorer, const struct state *state, uint32_t from,
                      struct move move)
{
    struct state next = *state;
    const char *wrong = NULL;
    struct outcome *out = &explorer->out;
    if (out->wrong != NULL)
        return;
    out->starts += model_steps[move.step].take == model_read && state->phase == DOWN;
    if (!model_steps[move.step].take(&next, explorer->search, &move, &wrong))
        return;
    out->moves++;
    model_hold_dropped(&next, state);
    if (wrong != NULL) {
        out->wrong = wrong;
        trace_back(out, explorer, from, move);
        return;
    }
    add(explorer, &next, from, move);
}

static void move_all(struct explorer *explorer, const struct state *state, uint32_t from,
                     unsigned step)
{
    unsigned b_values = model_steps[step].b;
    if (b_values == 0) { /* a power failure */
        if (state->phase == DOWN || state->crashes == explorer->search->crashes)
            return;
        b_values = 1u << model_unflushed(state);
    }
    for (unsigned a = 0; a < model_steps[step].a; a++)
        for (unsigned b = 0; b < b_values; b++)
            move_from(explorer, state, from, (struct move){(uint8_t)step, (uint8_t)a, (uint16_t)b});
}

struct outcome model_explore(const struct search *search)
{
    struct explorer explorer = {.search = search};
    struct state first;
    model_init(&first);
    add(&explorer, &first, 0, (struct move){0});
    while (explorer.next.count > 0 && explorer.out.wrong == NULL && !explorer.out.full) {
        struct states now = explorer.next;
        explorer.next = explorer.now;
        explorer.next.count = 0;
        explorer.now = now;
        for (size_t i = 0; i < now.count && explorer.out.wrong == NULL; i++)
            for (unsigned step = 0; step < model_num_steps; step++)
                if (!is_left_out(search, model_steps[step].name))
                    move_all(&explorer, &now.items[i], now.index[i], step);
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

void model_print(const struct outcome *outcome)
{
    for (unsigned i = 0; i < outcome->num_trace; i++) {
        const struct move *move = &outcome->trace[i];
        const struct step *step = &model_steps[move->step];
        printf(i == 0 ? "    %s" : ", %s", step->name);
        if (step->a > 1)
            printf(" %u", (unsigned)move->a);
        if (step->b > 1)
            printf(" %u", (unsigned)move->b);
        if (step->b == 0)
            printf(" %#x", (unsigned)move->b);
    }
    if (outcome->num_trace > 0)
        printf("\n");
}
