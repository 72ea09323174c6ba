/* search.c: takes each step of the model, with all values of its arguments. */
#include "search.h"

#include <stdio.h>
#include <string.h>

struct run {
    const struct search *search;
    uint64_t starts;
};

static bool is_left_out(const struct search *search, const char *name)
{
    const char *at = strstr(search->without, name);
    return at != NULL && at[-1] == ' ' && at[strlen(name)] == ' ';
}

static void move_from(struct explorer *explorer, const struct state *state, struct run *run,
                      struct move move)
{
    struct state next = *state;
    const char *wrong = NULL;
    run->starts += model_steps[move.step].take == model_read && state->phase == DOWN;
    if (!model_steps[move.step].take(&next, run->search, &move, &wrong))
        return;
    model_hold_dropped(&next, state);
    explore_reach(explorer, &next, move, wrong);
}

static void move_all(struct explorer *explorer, const struct state *state, struct run *run,
                     unsigned step)
{
    unsigned b_values = model_steps[step].b;
    if (b_values == 0) { /* a power failure */
        if (state->phase == DOWN || state->crashes == run->search->crashes)
            return;
        b_values = 1u << model_unflushed(state);
    }
    for (unsigned a = 0; a < model_steps[step].a; a++)
        for (unsigned b = 0; b < b_values; b++)
            move_from(explorer, state, run, (struct move){(uint8_t)step, (uint8_t)a, (uint16_t)b});
}

static void expand(struct explorer *explorer, const void *state, void *context)
{
    struct run *run = context;
    for (unsigned step = 0; step < model_num_steps; step++)
        if (!is_left_out(run->search, model_steps[step].name))
            move_all(explorer, state, run, step);
}

struct outcome model_explore(uint64_t *starts, const struct search *search)
{
    struct run run = {.search = search};
    struct explore_model model = {sizeof(struct state), expand, &run};
    struct state first;
    model_init(&first);
    struct outcome found = explore(&model, &first);
    *starts = run.starts;
    return found;
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
