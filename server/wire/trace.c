/* trace.c: reads and writes traceparent; each part of version 00 has its place. */
#include "wire/trace.h"

#include <string.h>

enum {
    VERSION = 0,
    TRACE = 3,
    PARENT = TRACE + SRV_TRACE_ID + 1,
    FLAGS = PARENT + SRV_SPAN_ID + 1
};

static bool is_hex(const char *text, size_t length)
{
    return strspn(text, "0123456789abcdef") >= length;
}

static bool is_id(const char *text, size_t length)
{
    return is_hex(text, length) && strspn(text, "0") < length;
}

bool srv_trace_read(struct srv_trace *out, const char *value, size_t length)
{
    char text[SRV_TRACEPARENT + 1] = "";
    if (length < SRV_TRACEPARENT)
        return false;
    memcpy(text, value, SRV_TRACEPARENT);
    if (text[TRACE - 1] != '-' || text[PARENT - 1] != '-' || text[FLAGS - 1] != '-' ||
        !is_id(text + TRACE, SRV_TRACE_ID) || !is_id(text + PARENT, SRV_SPAN_ID) ||
        !is_hex(text + FLAGS, 2))
        return false;
    if (!is_hex(text, 2) || memcmp(text, "ff", 2) == 0)
        return false;
    /* A later version may append parts, after a hyphen. */
    if (length > SRV_TRACEPARENT && (memcmp(text, "00", 2) == 0 || value[SRV_TRACEPARENT] != '-'))
        return false;
    memcpy(out->trace_id, text + TRACE, SRV_TRACE_ID);
    memcpy(out->parent_id, text + PARENT, SRV_SPAN_ID);
    out->trace_id[SRV_TRACE_ID] = out->parent_id[SRV_SPAN_ID] = '\0';
    out->sampled = strchr("13579bdf", text[FLAGS + 1]) != NULL;
    return true;
}

void srv_trace_hex(char out[SRV_SPAN_ID + 1], uint64_t id)
{
    for (int i = 0; i < SRV_SPAN_ID; i++) /* no printf: number.h says why */
        out[i] = "0123456789abcdef"[id >> (60 - 4 * i) & 15];
    out[SRV_SPAN_ID] = '\0';
}

void srv_trace_set_span(struct srv_trace *trace, uint64_t id)
{
    srv_trace_hex(trace->span_id, id != 0 ? id : 1);
}

void srv_trace_write(char out[SRV_TRACEPARENT + 1], const struct srv_trace *trace)
{
    memcpy(out, "00-", TRACE);
    memcpy(out + TRACE, trace->trace_id, SRV_TRACE_ID);
    out[PARENT - 1] = '-';
    memcpy(out + PARENT, trace->span_id, SRV_SPAN_ID);
    memcpy(out + FLAGS - 1, trace->sampled ? "-01" : "-00", sizeof "-00");
}
