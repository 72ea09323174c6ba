/* trace.h: the trace that a request belongs to, as W3C Trace Context has it (level 1).
 *
 * A caller that traces sends `traceparent: 00-TRACE-PARENT-FLAGS`: the ids of the trace and of the
 * caller's span, in lower-case hexadecimal.  The request is a span of that trace with an id of its
 * own, which reply and log name.  attnd begins no trace, and sends no request that could carry
 * `tracestate` on. */
#ifndef SRV_TRACE_H
#define SRV_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SRV_TRACE_ID 32 /* characters */
#define SRV_SPAN_ID 16
#define SRV_TRACEPARENT 55 /* of version 00, and of later ones at least */

struct srv_trace {
    char trace_id[SRV_TRACE_ID + 1]; /* "": the request belongs to no trace */
    char parent_id[SRV_SPAN_ID + 1]; /* the caller's span */
    char span_id[SRV_SPAN_ID + 1];   /* the request's own */
    bool sampled;                    /* the caller records the trace */
};

/* Reads the value of a traceparent field; span_id stays as it is.  Of a version above 00 the parts
 * that 00 has are read.  False, with *out unchanged, where the value is not well-formed, an id is
 * all zeros or the version is ff: such a value is ignored. */
bool srv_trace_read(struct srv_trace *out, const char *value, size_t length);

/* Writes a span's id that is not 0, and "00-TRACE-SPAN-FLAGS" of a request that has a trace, for
 * the reply.  Of the flags only `sampled` is kept, the one that version 00 defines. */
void srv_trace_set_span(struct srv_trace *trace, uint64_t id);
void srv_trace_write(char out[SRV_TRACEPARENT + 1], const struct srv_trace *trace);

/* Writes the 16 lower-case hexadecimal digits of an id, and a NUL. */
void srv_trace_hex(char out[SRV_SPAN_ID + 1], uint64_t id);

#endif
