/* queue_node.h: the member by which a struct waits in a fair queue (schedule/). */
#ifndef SRV_QUEUE_NODE_H
#define SRV_QUEUE_NODE_H

#include <stddef.h>

/* The struct that a node is a member of; job.h and codec_workers.c turn one into the other. */
enum srv_node_kind { SRV_NODE_ITEM, SRV_NODE_JOB, SRV_NODE_REQUEST };

struct srv_queue_node {
    struct srv_queue_node *next;
    enum srv_node_kind kind;
    unsigned caller; /* place of the API key that the request came with, below SRV_MAX_CALLERS */
    size_t cost;     /* that the caller is charged, in units of the queue's user; at least 1 */
};

#endif
