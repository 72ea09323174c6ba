/* queue_node.h: the member by which a struct waits in a fair queue (schedule/). */
#ifndef SRV_QUEUE_NODE_H
#define SRV_QUEUE_NODE_H

#include <stddef.h>

struct srv_item; /* schedule/job.h */
struct srv_request;

struct srv_queue_node {
    struct srv_queue_node *next;
    struct srv_request *request; /* that waits, or whose job waits */
    struct srv_item *item;       /* of that job, which waits instead; or NULL */
    unsigned caller; /* index of the API key that the request came with, below SRV_MAX_CALLERS */
    size_t cost;     /* that the caller is charged, in units of the queue's user; at least 1 */
};

#endif
