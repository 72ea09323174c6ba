/* bounds.c: the table of bounds: for each its value, and what happens beyond it.
 *
 * A row reads the constant or option that the code uses, so that what is printed is what is kept.
 * Values of options are the configuration's. */
#include "config/bounds.h"

#include <stdio.h>

#include "attn.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "base/buffer.h"
#include "config/config.h"
#include "config/keys.h"

#define OPTION(member) #member, offsetof(struct srv_config, member), true
#define LIMIT(member) #member, offsetof(struct srv_config, limits.member), true
#define FIXED(name, value) name, value, false
#define TELLS(code) code, NULL
#define ENDS(how) SRV_OK, how

#define NOT_STARTED "attnd does not start"
#define REFUSED_MODEL "the model is refused"
#define CLOSED "the connection is closed"

const struct srv_bound srv_bounds[] = {
    /* Requests and replies. */
    {FIXED("header_bytes", SRV_MAX_HEADER_BYTES), "bytes", TELLS(SRV_E_HEADERS_TOO_LARGE),
     "request line and header fields"},
    {FIXED("header_fields", SRV_MAX_HEADERS), "", TELLS(SRV_E_HEADERS_TOO_LARGE),
     "header fields of a request"},
    {FIXED("id_characters", SRV_ID_MAX), "", TELLS(SRV_E_INVALID_VALUE),
     "session ids, names of models, X-Request-Id, Idempotency-Key"},
    {LIMIT(max_body_bytes), "bytes", TELLS(SRV_E_BODY_TOO_LARGE), "one request body"},
    {FIXED("expansion", SRV_DECOMPRESS_RATIO_MAX), "times", TELLS(SRV_E_BODY_TOO_LARGE),
     "what a coded body of more than 1 MiB becomes, to what it was"},
    {LIMIT(max_state_bytes), "bytes", TELLS(SRV_E_BODY_TOO_LARGE),
     "one imported state; exported: 422 reply_too_large"},
    {FIXED("document_bytes", SRV_MAX_DOCUMENT_BYTES), "bytes", TELLS(SRV_E_TOO_COMPLEX),
     "a body without tensors"},
    {LIMIT(max_reply_bytes), "bytes", TELLS(SRV_E_REPLY_TOO_LARGE),
     "one reply, estimated before computing"},
    {LIMIT(max_in_flight_bytes), "bytes", TELLS(SRV_E_OUT_OF_MEMORY),
     "bodies, tensors and replies of all requests together"},
    {FIXED("dropped_bytes", SRV_DISCARD_BYTES), "bytes", ENDS(CLOSED),
     "of a refused body that is read so that the connection goes on"},
    {FIXED("write_rate", SRV_MIN_WRITE_RATE), "bytes/s", ENDS(CLOSED),
     "below which a reader of replies is given up"},
    /* What a body says. */
    {FIXED("json_depth", SRV_JSON_MAX_DEPTH), "", TELLS(SRV_E_TOO_COMPLEX),
     "nesting of a JSON body"},
    {FIXED("tensor_rank", SRV_TENSOR_RANK), "", TELLS(SRV_E_SHAPE_MISMATCH),
     "dimensions of a tensor"},
    {LIMIT(max_tokens), "tokens", TELLS(SRV_E_TOO_MANY_TOKENS),
     "rows and keys of one /attend, rows of one decode item"},
    {FIXED("batch", ATTN_MAX_BATCH), "", TELLS(SRV_E_TOO_MANY_TOKENS), "sequences of one /attend"},
    {LIMIT(max_scores), "", TELLS(SRV_E_TOO_MANY_TOKENS),
     "sequences x heads x query tokens x key tokens"},
    {LIMIT(max_sequences), "", TELLS(SRV_E_TOO_COMPLEX), "items of one /decode"},
    {FIXED("page_sessions", SRV_MAX_PAGE_SESSIONS), "", TELLS(SRV_E_INVALID_VALUE),
     "sessions of one page of GET /sessions"},
    /* Sessions. */
    {LIMIT(max_sessions), "", TELLS(SRV_E_SESSION_LIMIT), "live sessions"},
    {LIMIT(max_session_length), "tokens", TELLS(SRV_E_SESSION_FULL), "cache of one session"},
    {LIMIT(cache_bytes), "bytes", TELLS(SRV_E_POOL_FULL),
     "key/value caches of all sessions together"},
    {LIMIT(session_ttl_s), "s", ENDS("the session expires"),
     "idle time of a session that sets none"},
    {FIXED("ttl_s", SRV_MAX_TTL_S), "s", TELLS(SRV_E_INVALID_VALUE),
     "idle time that a session may set"},
    {FIXED("state_header", ATTN_MAX_STATE_HEADER), "bytes", TELLS(SRV_E_MALFORMED_STATE),
     "header of an imported state"},
    {FIXED("state_notes", ATTN_MAX_NOTES), "", TELLS(SRV_E_MALFORMED_STATE),
     "pairs of an imported state's __metadata__"},
    {OPTION(memory_limit), "bytes", ENDS(NOT_STARTED),
     "all that attnd may take, added up; 0: what the control group or the machine gives"},
    {OPTION(journal_bytes), "bytes", ENDS("a snapshot replaces it"), "the journal"},
    /* Admission and time. */
    {LIMIT(max_connections), "", ENDS("wait in the backlog"), "open connections"},
    {LIMIT(max_queue), "", TELLS(SRV_E_QUEUE_FULL), "requests waiting or running"},
    {LIMIT(max_session_waiting), "", TELLS(SRV_E_SESSION_BUSY), "requests waiting for one session"},
    {FIXED("deadline_ms", SRV_MAX_DEADLINE_MS), "ms", TELLS(SRV_E_INVALID_VALUE),
     "X-Deadline-Ms, the time that a caller may give a request"},
    {LIMIT(header_timeout_ms), "ms", TELLS(SRV_E_TIMEOUT), "arrival of a request's head"},
    {LIMIT(body_timeout_ms), "ms", TELLS(SRV_E_TIMEOUT), "arrival of a request's body"},
    {LIMIT(idle_timeout_s), "s", ENDS(CLOSED), "a connection without a request"},
    {LIMIT(drain_timeout_s), "s", TELLS(SRV_E_DRAINING), "running requests after SIGTERM"},
    /* Models and files. */
    {FIXED("threads", ATTN_MAX_THREADS), "", ENDS(NOT_STARTED), "threads that compute"},
    {FIXED("event_threads", SRV_MAX_EVENT_THREADS), "", ENDS(NOT_STARTED),
     "threads that watch connections"},
    {FIXED("api_keys", SRV_MAX_KEYS), "", ENDS(NOT_STARTED), "keys of the file `api_keys`"},
    {FIXED("config_bytes", SRV_MAX_CONFIG_BYTES), "bytes", ENDS(NOT_STARTED),
     "the configuration file"},
    {FIXED("models", SRV_MAX_MODELS), "", ENDS(NOT_STARTED), "entries of `models`"},
    {FIXED("layers", ATTN_MAX_LAYERS), "", ENDS(REFUSED_MODEL), "layers of a model"},
    {FIXED("hidden_size", ATTN_MAX_HIDDEN_SIZE), "", ENDS(REFUSED_MODEL),
     "width of a model, its keys and its values"},
    {FIXED("heads", ATTN_MAX_HEADS), "", ENDS(REFUSED_MODEL), "heads of a layer"},
    {FIXED("head_dim", ATTN_MAX_HEAD_DIM), "", ENDS(REFUSED_MODEL), "width of a head"},
    {FIXED("position_buckets", ATTN_MAX_BUCKETS), "", ENDS(REFUSED_MODEL),
     "buckets of a relative position bias"},
    {FIXED("model_config_bytes", ATTN_CHECKPOINT_MAX_CONFIG), "bytes", ENDS(REFUSED_MODEL),
     "config.json"},
    {FIXED("index_bytes", ATTN_CHECKPOINT_MAX_INDEX), "bytes", ENDS(REFUSED_MODEL),
     "model.safetensors.index.json"},
    {FIXED("shards", ATTN_CHECKPOINT_MAX_SHARDS), "", ENDS(REFUSED_MODEL),
     "files that the index names"},
    {FIXED("safetensors_header", ATTN_SAFETENSORS_MAX_HEADER), "bytes", ENDS(REFUSED_MODEL),
     "header of a safetensors file"},
    {FIXED("safetensors_tensors", ATTN_SAFETENSORS_MAX_TENSORS), "", ENDS(REFUSED_MODEL),
     "tensors of a safetensors file"},
    {FIXED("safetensors_name", ATTN_SAFETENSORS_MAX_NAME), "bytes", ENDS(REFUSED_MODEL),
     "name of a tensor"},
    {FIXED("safetensors_rank", ATTN_SAFETENSORS_MAX_RANK), "", ENDS(REFUSED_MODEL),
     "dimensions of a tensor of a file"},
};
const size_t srv_bound_count = sizeof srv_bounds / sizeof srv_bounds[0];

void srv_bounds_print(struct srv_buffer *out, const struct srv_config *config)
{
    for (size_t i = 0; i < srv_bound_count; i++) {
        const struct srv_bound *bound = &srv_bounds[i];
        const char *member = (const char *)config + bound->value;
        size_t value = bound->is_option ? *(const size_t *)(const void *)member : bound->value;
        char limit[48], beyond[64];
        snprintf(limit, sizeof limit, "%zu%s%s", value, bound->unit[0] != '\0' ? " " : "",
                 bound->unit);
        if (bound->code != SRV_OK)
            snprintf(beyond, sizeof beyond, "%u %s", srv_error_status(bound->code),
                     srv_error_word(bound->code));
        else
            snprintf(beyond, sizeof beyond, "%s", bound->beyond);
        srv_buffer_printf(out, "  %-20s  %-20s  %-26s  %s\n", bound->name, limit, beyond,
                          bound->what);
    }
}
