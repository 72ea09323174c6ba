/* lines.c: fair order among callers, by the rows each has been given. */
#include "schedule/lines.h"

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

void srv_lines_init(struct srv_lines *lines)
{
    *lines = (struct srv_lines){.num_callers = 1};
    for (size_t i = 0; i < SRV_MAX_CALLERS; i++)
        for (size_t kind = 0; kind < SRV_NUM_KINDS; kind++)
            lines->callers[i].of[kind].last = &lines->callers[i].of[kind].first;
}

void srv_lines_put(struct srv_lines *lines, enum srv_kind kind, struct srv_queue_node *waiting)
{
    struct srv_line *line = &lines->callers[waiting->caller];
    if (waiting->caller >= lines->num_callers)
        lines->num_callers = (size_t)waiting->caller + 1;
    if (line->waiting == 0 && line->given < lines->level)
        line->given = lines->level;
    put_last(&line->of[kind], waiting);
    line->waiting++;
    lines->waiting[kind]++;
}

struct srv_queue_node *srv_lines_take(struct srv_lines *lines, enum srv_kind kind)
{
    struct srv_walk walk;
    srv_walk_begin(&walk, lines, kind);
    struct srv_queue_node *waiting = srv_walk_look(&walk);
    if (waiting != NULL)
        srv_walk_take(&walk);
    return waiting;
}

bool srv_lines_empty(const struct srv_lines *lines)
{
    size_t waiting = 0;
    for (size_t kind = 0; kind < SRV_NUM_KINDS; kind++)
        waiting += lines->waiting[kind];
    return waiting == 0;
}

/* ---- A walk ---- */

void srv_walk_begin(struct srv_walk *walk, struct srv_lines *lines, enum srv_kind kind)
{
    walk->lines = lines;
    walk->kind = kind;
    walk->num_callers = lines->num_callers;
    for (size_t i = 0; i < lines->num_callers; i++)
        walk->links[i] = &lines->callers[i].of[kind].first;
}

struct srv_queue_node *srv_walk_look(struct srv_walk *walk)
{
    const struct srv_lines *lines = walk->lines;
    const struct srv_line *best = NULL;
    for (size_t i = 0; i < walk->num_callers; i++) {
        const struct srv_line *line = &lines->callers[i];
        if (*walk->links[i] == NULL || (best != NULL && line->given >= best->given))
            continue;
        best = line;
        walk->caller = i;
    }
    return best != NULL ? *walk->links[walk->caller] : NULL;
}

void srv_walk_pass(struct srv_walk *walk)
{
    walk->links[walk->caller] = &(*walk->links[walk->caller])->next;
}

void srv_walk_drop(struct srv_walk *walk)
{
    struct srv_line *line = &walk->lines->callers[walk->caller];
    unlink_at(&line->of[walk->kind], walk->links[walk->caller]);
    line->waiting--;
    walk->lines->waiting[walk->kind]--;
}

void srv_walk_take(struct srv_walk *walk)
{
    struct srv_line *line = &walk->lines->callers[walk->caller];
    walk->lines->level = line->given;
    line->given += (*walk->links[walk->caller])->rows;
    srv_walk_drop(walk);
}
