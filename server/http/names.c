/* names.c: the names by which a request is found again: its id, its trace, its span.
 *
 * A caller may send an id and the trace that the request belongs to.  Where either is not as it
 * should be, the field is ignored: what only names a request is no reason to refuse it. */

#include "basics/hash.h"
#include "http/exchange.h"

/* splitmix64 over a counter: ids of one run never repeat, those of two hardly. */
static uint64_t next_id(struct srv_http *http)
{
    uint64_t count = atomic_fetch_add(&http->ids, 1) + 1;
    return attn_hash_mix(http->id_seed + count * ATTN_HASH_GOLDEN);
}

void srv_exchange_name(struct srv_exchange *x)
{
    srv_trace_hex(x->request.request_id, next_id(x->loop->http));
}

void srv_exchange_read_names(struct srv_exchange *x, const struct srv_head *head)
{
    struct srv_request *request = &x->request;
    char id[SRV_ID_MAX + 1];
    bool repeated;
    if (srv_header_field_id(id, srv_head_find(head, "X-Request-Id")))
        memcpy(request->request_id, id, sizeof id);
    const struct srv_header_field *parent = srv_head_single(&repeated, head, "traceparent");
    if (parent != NULL && !repeated &&
        srv_trace_read(&request->trace, parent->value, parent->value_length))
        srv_trace_set_span(&request->trace, next_id(x->loop->http));
}
