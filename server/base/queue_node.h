/* queue_node.h: the member by which a struct waits in a fair queue (schedule/). */
#ifndef SRV_QUEUE_NODE_H
#define SRV_QUEUE_NODE_H

#include <stddef.h>

struct srv_queue_node {
    struct srv_queue_node *next;
    unsigned caller; /* place of the API key it came with, below SRV_MAX_CALLERS */
    size_t rows;     /* that serving it counts for; at least 1 */
};

#endif
