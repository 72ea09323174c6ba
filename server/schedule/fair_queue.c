/* fair_queue.c: fair order among callers, by the rows each has been given. */
#include "schedule/fair_queue.h"

/* ---- One queue ---- */

static void put_last(struct srv_queue *queue, struct srv_queue_node *waiting)
{
    waiting->next = NULL;
    *queue->last = waiting;
    queue->last = &waiting->next;
}

/* Takes what *link points to. */
static struct srv_queue_node *unlink_at(struct srv_queue *queue, struct srv_queue_node **link)
{
    struct srv_queue_node *waiting = *link;
    *link = waiting->next;
    if (queue->last == &waiting->next)
        queue->last = link;
    return waiting;
}

/* ---- Lines ---- */

void srv_fair_queue_init(struct srv_fair_queue *lines)
{
    *lines = (struct srv_fair_queue){.num_callers = 1};
    for (size_t i = 0; i < SRV_MAX_CALLERS; i++)
        for (size_t kind = 0; kind < SRV_NUM_QUEUES; kind++)
            lines->callers[i].of[kind].last = &lines->callers[i].of[kind].first;
}

void srv_fair_queue_put(struct srv_fair_queue *lines, enum srv_queue_kind kind,
                        struct srv_queue_node *waiting)
{
    struct srv_caller_queues *line = &lines->callers[waiting->caller];
    if (waiting->caller >= lines->num_callers)
        lines->num_callers = (size_t)waiting->caller + 1;
    if (line->waiting == 0 && line->given < lines->level)
        line->given = lines->level;
    put_last(&line->of[kind], waiting);
    line->waiting++;
    lines->waiting[kind]++;
}

struct srv_queue_node *srv_fair_queue_take(struct srv_fair_queue *lines, enum srv_queue_kind kind)
{
    struct srv_queue_walk walk;
    srv_queue_walk_begin(&walk, lines, kind);
    struct srv_queue_node *waiting = srv_queue_walk_peek(&walk);
    if (waiting != NULL)
        srv_queue_walk_take(&walk);
    return waiting;
}

bool srv_fair_queue_is_empty(const struct srv_fair_queue *lines)
{
    size_t waiting = 0;
    for (size_t kind = 0; kind < SRV_NUM_QUEUES; kind++)
        waiting += lines->waiting[kind];
    return waiting == 0;
}

/* ---- A walk ---- */

void srv_queue_walk_begin(struct srv_queue_walk *walk, struct srv_fair_queue *lines,
                          enum srv_queue_kind kind)
{
    walk->lines = lines;
    walk->kind = kind;
    walk->num_callers = lines->num_callers;
    for (size_t i = 0; i < lines->num_callers; i++)
        walk->links[i] = &lines->callers[i].of[kind].first;
}

struct srv_queue_node *srv_queue_walk_peek(struct srv_queue_walk *walk)
{
    const struct srv_fair_queue *lines = walk->lines;
    const struct srv_caller_queues *best = NULL;
    for (size_t i = 0; i < walk->num_callers; i++) {
        const struct srv_caller_queues *line = &lines->callers[i];
        if (*walk->links[i] == NULL || (best != NULL && line->given >= best->given))
            continue;
        best = line;
        walk->caller = i;
    }
    return best != NULL ? *walk->links[walk->caller] : NULL;
}

void srv_queue_walk_pass(struct srv_queue_walk *walk)
{
    walk->links[walk->caller] = &(*walk->links[walk->caller])->next;
}

void srv_queue_walk_drop(struct srv_queue_walk *walk)
{
    struct srv_caller_queues *line = &walk->lines->callers[walk->caller];
    unlink_at(&line->of[walk->kind], walk->links[walk->caller]);
    line->waiting--;
    walk->lines->waiting[walk->kind]--;
}

void srv_queue_walk_take(struct srv_queue_walk *walk)
{
    struct srv_caller_queues *line = &walk->lines->callers[walk->caller];
    walk->lines->level = line->given;
    line->given += (*walk->links[walk->caller])->rows;
    srv_queue_walk_drop(walk);
}
