/* stage.h: the stages of a finished request, as log, metrics and Server-Timing report them. */
#ifndef SRV_STAGE_H
#define SRV_STAGE_H

#include "wire/route.h"

enum srv_stage {
    SRV_STAGE_PARSE,   /* from taking the job out of the inbox to computing: reading the body */
    SRV_STAGE_QUEUE,   /* from the body's last byte to taking the job out of the inbox */
    SRV_STAGE_COMPUTE, /* computing, and waiting for its turn */
    SRV_STAGE_WRITE,   /* from the end of the computation to queueing the reply */
    SRV_STAGE_TOTAL,   /* from the first header to queueing the reply */
    SRV_STAGE_COUNT
};

const char *srv_stage_name(enum srv_stage stage); /* "parse" */

/* Nanoseconds that the request spent in the stage; 0 where it did not reach the end of it. */
uint64_t srv_stage_ns(const struct srv_request *request, enum srv_stage stage);

#endif
