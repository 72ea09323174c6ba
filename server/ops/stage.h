/* stage.h: what log, metrics and Server-Timing all say about a finished request. */
#ifndef SRV_STAGE_H
#define SRV_STAGE_H

#include "wire/route.h"

enum srv_stage {
    SRV_STAGE_PARSE,   /* from the job's being taken to its computing: reading the body */
    SRV_STAGE_QUEUE,   /* from the body's last byte to the job's being taken */
    SRV_STAGE_COMPUTE, /* the computation */
    SRV_STAGE_WRITE,   /* from its end to the reply's being queued */
    SRV_STAGE_TOTAL,   /* from the first header to that */
    SRV_STAGE_COUNT
};

const char *srv_stage_name(enum srv_stage stage); /* "parse" */

/* Nanoseconds that the request spent there; 0 where it did not reach the stage's end. */
uint64_t srv_stage_ns(const struct srv_request *request, enum srv_stage stage);

const char *srv_method_name(enum srv_method method); /* "GET" */

#endif
