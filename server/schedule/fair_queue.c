/* fair_queue.c: first-in-first-out queues of each caller, served in the order of least service. */
#include "schedule/fair_queue.h"

void srv_fair_queue_init(struct srv_fair_queue *queue)
{
    *queue = (struct srv_fair_queue){.num_callers = 1};
    for (size_t i = 0; i < SRV_MAX_CALLERS; i++)
        for (size_t kind = 0; kind < SRV_NUM_QUEUES; kind++)
            queue->callers[i].queues[kind].last = &queue->callers[i].queues[kind].first;
}

void srv_fair_queue_put(struct srv_fair_queue *queue, enum srv_queue_kind kind,
                        struct srv_queue_node *node)
{
    struct srv_caller_queues *caller = &queue->callers[node->caller];
    if (node->caller >= queue->num_callers)
        queue->num_callers = (size_t)node->caller + 1;
    if (caller->waiting == 0 && caller->service < queue->virtual_time)
        caller->service = queue->virtual_time;
    node->next = NULL;
    *caller->queues[kind].last = node;
    caller->queues[kind].last = &node->next;
    caller->waiting++;
    queue->waiting[kind]++;
}

struct srv_queue_node *srv_fair_queue_pop(struct srv_fair_queue *queue, enum srv_queue_kind kind)
{
    struct srv_queue_walk walk;
    srv_queue_walk_begin(&walk, queue, kind);
    struct srv_queue_node *node = srv_queue_walk_next(&walk);
    if (node != NULL)
        srv_queue_walk_remove_and_charge(&walk);
    return node;
}

/* ---- A walk ---------------------------------------------------------------------------------- */

void srv_queue_walk_begin(struct srv_queue_walk *walk, struct srv_fair_queue *queue,
                          enum srv_queue_kind kind)
{
    walk->queue = queue;
    walk->kind = kind;
    walk->num_callers = queue->num_callers;
    walk->stays = false;
    for (size_t i = 0; i < queue->num_callers; i++)
        walk->links[i] = &queue->callers[i].queues[kind].first;
}

struct srv_queue_node *srv_queue_walk_next(struct srv_queue_walk *walk)
{
    const struct srv_caller_queues *callers = walk->queue->callers, *best = NULL;
    if (walk->stays)
        walk->links[walk->caller] = &(*walk->links[walk->caller])->next;
    for (size_t i = 0; i < walk->num_callers; i++) {
        if (*walk->links[i] == NULL || (best != NULL && callers[i].service >= best->service))
            continue;
        best = &callers[i];
        walk->caller = i;
    }
    walk->stays = best != NULL;
    return best != NULL ? *walk->links[walk->caller] : NULL;
}

void srv_queue_walk_pass_caller(struct srv_queue_walk *walk)
{
    walk->links[walk->caller] = walk->queue->callers[walk->caller].queues[walk->kind].last;
    walk->stays = false;
}

void srv_queue_walk_remove(struct srv_queue_walk *walk)
{
    struct srv_caller_queues *caller = &walk->queue->callers[walk->caller];
    struct srv_queue *queue = &caller->queues[walk->kind];
    struct srv_queue_node **link = walk->links[walk->caller], *node = *link;
    *link = node->next;
    if (queue->last == &node->next)
        queue->last = link;
    walk->stays = false;
    caller->waiting--;
    walk->queue->waiting[walk->kind]--;
}

void srv_queue_walk_remove_and_charge(struct srv_queue_walk *walk)
{
    struct srv_caller_queues *caller = &walk->queue->callers[walk->caller];
    walk->queue->virtual_time = caller->service;
    caller->service += (*walk->links[walk->caller])->cost;
    srv_queue_walk_remove(walk);
}
