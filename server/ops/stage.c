/* stage.c: the stages of a request, as differences of its time stamps. */
#include "ops/stage.h"

static const struct {
    const char *name;
    size_t from, to; /* uint64_t members of struct srv_request */
} stages[SRV_STAGE_COUNT] = {
    [SRV_STAGE_PARSE] = {"parse", offsetof(struct srv_request, t_popped),
                         offsetof(struct srv_request, t_compute)},
    [SRV_STAGE_QUEUE] = {"queue", offsetof(struct srv_request, t_body),
                         offsetof(struct srv_request, t_popped)},
    [SRV_STAGE_COMPUTE] = {"compute", offsetof(struct srv_request, t_compute),
                           offsetof(struct srv_request, t_computed)},
    [SRV_STAGE_WRITE] = {"write", offsetof(struct srv_request, t_computed),
                         offsetof(struct srv_request, t_replied)},
    [SRV_STAGE_TOTAL] = {"total", offsetof(struct srv_request, t_start),
                         offsetof(struct srv_request, t_replied)},
};

static uint64_t stamp(const struct srv_request *request, size_t offset)
{
    return *(const uint64_t *)((const char *)request + offset);
}

const char *srv_stage_name(enum srv_stage stage) { return stages[stage].name; }

uint64_t srv_stage_ns(const struct srv_request *request, enum srv_stage stage)
{
    uint64_t from = stamp(request, stages[stage].from), to = stamp(request, stages[stage].to);
    return from != 0 && to > from ? to - from : 0;
}
