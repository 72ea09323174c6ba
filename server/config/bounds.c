/* bounds.c: the table of bounds: for each its value, and what happens beyond it.
 *
 * A row has the constant that the code uses, or the place of the option in the configuration, so
 * the printed bound is the one that is enforced. */
#include "config/bounds.h"

#include <stdio.h>

#include "attn_limits.h"
#include "attn_state.h"
#include "base/buffer.h"
#include "config/config.h"
#include "config/keys.h"

#define OPTION(member) \
    .name = #member, .value = offsetof(struct srv_config, member), .is_option = true
#define LIMIT(member) \
    .name = #member, .value = offsetof(struct srv_config, limits.member), .is_option = true
#define FIXED(name_, value_) .name = name_, .value = value_

#define FAILS(word, subject_) .code = SRV_E_##word, .subject = subject_
#define ENDS(beyond_, subject_) .beyond = beyond_, .subject = subject_
#define NOT_STARTED "attnd does not start"
#define REFUSED_MODEL "the model is refused"
#define DROPPED "it is kept no longer"
#define CLOSED "the connection is closed"

const struct srv_bound srv_bounds[] = {
    /* Requests and replies. */
    {FIXED("header_bytes", SRV_MAX_HEADER_BYTES), .unit = "bytes",
     FAILS(HEADERS_TOO_LARGE, "request line, header fields and trailer fields")},
    {FIXED("header_fields", SRV_MAX_HEADERS),
     FAILS(HEADERS_TOO_LARGE, "header fields, trailer fields and query parameters of a request")},
    {FIXED("chunk_line", SRV_MAX_CHUNK_LINE), .unit = "bytes",
     FAILS(BAD_REQUEST, "size and extensions of a chunk")},
    {FIXED("id_characters", SRV_ID_MAX),
     FAILS(INVALID_VALUE, "session ids, names of models, X-Request-Id, Idempotency-Key")},
    {LIMIT(max_body_bytes), .unit = "bytes", FAILS(BODY_TOO_LARGE, "one request body")},
    {FIXED("expansion", SRV_DECOMPRESS_RATIO_MAX), .unit = "times",
     FAILS(BODY_TOO_LARGE, "what a coded body of more than 1 MiB becomes, to what it was")},
    {LIMIT(max_state_bytes), .unit = "bytes",
     FAILS(BODY_TOO_LARGE, "one imported state; exported: 422 reply_too_large")},
    {FIXED("document_bytes", SRV_MAX_DOCUMENT_BYTES), .unit = "bytes",
     FAILS(TOO_COMPLEX, "a body without tensors")},
    {LIMIT(max_reply_bytes), .unit = "bytes",
     FAILS(REPLY_TOO_LARGE, "one reply, estimated before computing")},
    {LIMIT(max_in_flight_bytes), .unit = "bytes",
     FAILS(OUT_OF_MEMORY, "bodies, tensors and replies of all requests together")},
    {LIMIT(max_client_in_flight_bytes), .unit = "bytes",
     FAILS(OUT_OF_MEMORY, "of these, what one API key or address may hold")},
    {LIMIT(inputs_bytes), .unit = "bytes",
     FAILS(BODY_TOO_LARGE, "one input that is kept, and all of them")},
    {FIXED("inputs", SRV_MAX_INPUTS),
     ENDS(DROPPED, "inputs that are kept, the one used longest ago first")},
    {FIXED("input_ttl", SRV_INPUT_TTL_S), .unit = "s",
     ENDS(DROPPED, "for which an input is not used")},
    {FIXED("probe_bytes", SRV_PROBE_BYTES), .unit = "bytes",
     FAILS(OUT_OF_MEMORY, "beyond them, of probes and /metrics; also of one address")},
    {FIXED("dropped_bytes", SRV_DISCARD_BYTES), .unit = "bytes",
     ENDS(CLOSED, "of a refused body that is read so that the connection goes on")},
    {FIXED("lingering_bytes", SRV_LINGER_BYTES), .unit = "bytes",
     ENDS(CLOSED, "of a refused body that are thrown away after the reply and our end")},
    {FIXED("lingering", SRV_LINGER_MS), .unit = "ms", ENDS(CLOSED, "for which that goes on")},
    {FIXED("lingering_idle", SRV_LINGER_IDLE_MS), .unit = "ms",
     ENDS(CLOSED, "for which that goes on without a byte")},
    {FIXED("write_rate", SRV_MIN_WRITE_RATE), .unit = "bytes/s",
     ENDS(CLOSED, "below which a reader of replies is given up")},
    /* Contents of a body. */
    {FIXED("json_depth", SRV_JSON_MAX_DEPTH), FAILS(TOO_COMPLEX, "nesting of a JSON body")},
    {FIXED("tensor_rank", SRV_TENSOR_RANK), FAILS(SHAPE_MISMATCH, "dimensions of a tensor")},
    {LIMIT(max_tokens), .unit = "tokens",
     FAILS(TOO_MANY_TOKENS, "rows and keys of one /attend, rows of one decode item")},
    {FIXED("batch", ATTN_MAX_BATCH), FAILS(TOO_MANY_TOKENS, "sequences of one /attend")},
    {LIMIT(max_scores), FAILS(TOO_MANY_TOKENS, "sequences x heads x query tokens x key tokens")},
    {LIMIT(max_sequences), FAILS(TOO_COMPLEX, "items of one /decode")},
    {FIXED("page_sessions", SRV_MAX_PAGE_SESSIONS),
     FAILS(INVALID_VALUE, "sessions of one page of GET /sessions")},
    /* Sessions. */
    {LIMIT(max_sessions), FAILS(SESSION_LIMIT, "live sessions")},
    {LIMIT(max_weightless_shapes),
     FAILS(SESSION_LIMIT, "different shapes of live weightless sessions")},
    {LIMIT(max_session_length), .unit = "tokens", FAILS(SESSION_FULL, "cache of one session")},
    {LIMIT(cache_bytes), .unit = "bytes",
     FAILS(POOL_FULL, "key/value caches of all sessions together")},
    {LIMIT(session_ttl_s), .unit = "s",
     ENDS("the session expires", "idle time of a session that sets none")},
    {FIXED("ttl_s", SRV_MAX_TTL_S), .unit = "s",
     FAILS(INVALID_VALUE, "idle time that a session may set")},
    {FIXED("state_header", ATTN_MAX_STATE_HEADER), .unit = "bytes",
     FAILS(MALFORMED_STATE, "header of an imported state")},
    {FIXED("state_notes", ATTN_SAFETENSORS_MAX_NOTES),
     FAILS(MALFORMED_STATE, "pairs of an imported state's __metadata__")},
    {OPTION(memory_limit), .unit = "bytes",
     ENDS(NOT_STARTED,
          "all that attnd may take, added up; 0: what the control group or the machine gives")},
    {FIXED("journal_wait_s", SRV_JOURNAL_WAIT_S), .unit = "s",
     FAILS(STALLED, "for which the disk may keep the journal waiting")},
    {OPTION(journal_bytes), .unit = "bytes", ENDS("a snapshot replaces it", "the journal")},
    /* Admission and time. */
    {LIMIT(max_connections), FAILS(CONNECTION_LIMIT, "open connections")},
    {FIXED("reserved_connections", SRV_MAX_RESERVED),
     ENDS("the oldest is closed", "connections beyond them, for probes, of one event thread")},
    {FIXED("reserved_ms", SRV_RESERVED_MS), .unit = "ms",
     ENDS(CLOSED, "for which one of these waits for its client")},
    {LIMIT(max_queue), FAILS(QUEUE_FULL, "requests waiting or running")},
    {LIMIT(max_session_waiting), FAILS(SESSION_BUSY, "requests waiting for one session")},
    {FIXED("deadline_ms", SRV_MAX_DEADLINE_MS), .unit = "ms",
     FAILS(INVALID_VALUE, "X-Deadline-Ms, the time that a caller may give a request")},
    {LIMIT(header_timeout_ms), .unit = "ms", FAILS(TIMEOUT, "arrival of a request's head")},
    {LIMIT(body_timeout_ms), .unit = "ms", FAILS(TIMEOUT, "arrival of a request's body")},
    {LIMIT(reply_timeout_ms), .unit = "ms",
     ENDS("the connection is reset", "a client that takes nothing of its reply")},
    {LIMIT(idle_timeout_s), .unit = "s", ENDS(CLOSED, "a connection without a request")},
    {LIMIT(drain_timeout_s), .unit = "s", FAILS(DRAINING, "running requests, after the lame duck")},
    /* Models and files. */
    {FIXED("threads", ATTN_MAX_THREADS), ENDS(NOT_STARTED, "threads that compute")},
    {FIXED("event_threads", SRV_MAX_EVENT_THREADS),
     ENDS(NOT_STARTED, "threads that watch connections")},
    {FIXED("handshakes", SRV_MAX_HANDSHAKES),
     ENDS("the oldest is closed, once a second old",
          "TLS handshakes under way, of one event thread")},
    {FIXED("api_keys", SRV_MAX_KEYS), ENDS(NOT_STARTED, "keys of the file `api_keys`")},
    {FIXED("key_names", SRV_MAX_ACCOUNTS),
     ENDS("the file is refused", "names of API keys that one run knows")},
    {FIXED("config_bytes", SRV_MAX_CONFIG_BYTES), .unit = "bytes",
     ENDS(NOT_STARTED, "the configuration file")},
    {FIXED("models", SRV_MAX_MODELS), ENDS(NOT_STARTED, "entries of `models`")},
    {FIXED("layers", ATTN_MAX_LAYERS), ENDS(REFUSED_MODEL, "layers of a model")},
    {FIXED("hidden_size", ATTN_MAX_HIDDEN_SIZE),
     ENDS(REFUSED_MODEL, "width of a model, its keys and its values")},
    {FIXED("heads", ATTN_MAX_HEADS), ENDS(REFUSED_MODEL, "heads of a layer")},
    {FIXED("head_dim", ATTN_MAX_HEAD_DIM), ENDS(REFUSED_MODEL, "width of a head")},
    {FIXED("position_buckets", ATTN_MAX_BUCKETS),
     ENDS(REFUSED_MODEL, "buckets of a relative position bias")},
    {FIXED("model_config_bytes", ATTN_CHECKPOINT_MAX_CONFIG), .unit = "bytes",
     ENDS(REFUSED_MODEL, "config.json")},
    {FIXED("index_bytes", ATTN_CHECKPOINT_MAX_INDEX), .unit = "bytes",
     ENDS(REFUSED_MODEL, "model.safetensors.index.json")},
    {FIXED("shards", ATTN_CHECKPOINT_MAX_SHARDS),
     ENDS(REFUSED_MODEL, "files that the index names")},
    {FIXED("safetensors_header", ATTN_SAFETENSORS_MAX_HEADER), .unit = "bytes",
     ENDS(REFUSED_MODEL, "header of a safetensors file")},
    {FIXED("safetensors_tensors", ATTN_SAFETENSORS_MAX_TENSORS),
     ENDS(REFUSED_MODEL, "tensors of a safetensors file")},
    {FIXED("safetensors_name", ATTN_SAFETENSORS_MAX_NAME), .unit = "bytes",
     ENDS(REFUSED_MODEL, "name of a tensor")},
    {FIXED("safetensors_rank", ATTN_SAFETENSORS_MAX_RANK),
     ENDS(REFUSED_MODEL, "dimensions of a tensor of a file")},
    {FIXED("npz_members", ATTN_NPZ_MAX_MEMBERS), ENDS(REFUSED_MODEL, "members of an .npz file")},
    {FIXED("npz_directory", ATTN_NPZ_MAX_DIRECTORY), .unit = "bytes",
     ENDS(REFUSED_MODEL, "central directory of an .npz file")},
};
const size_t srv_bound_count = sizeof srv_bounds / sizeof srv_bounds[0];

void srv_bounds_print(struct srv_buffer *out, const struct srv_config *config)
{
    for (size_t i = 0; i < srv_bound_count; i++) {
        const struct srv_bound *bound = &srv_bounds[i];
        const void *option = (const char *)config + bound->value;
        size_t value = bound->is_option ? *(const size_t *)option : bound->value;
        char limit[48], beyond[64];
        snprintf(limit, sizeof limit, "%zu%s%s", value, bound->unit != NULL ? " " : "",
                 bound->unit != NULL ? bound->unit : "");
        if (bound->code != SRV_OK)
            snprintf(beyond, sizeof beyond, "%u %s", srv_error_status(bound->code),
                     srv_error_word(bound->code));
        else
            snprintf(beyond, sizeof beyond, "%s", bound->beyond);
        srv_buffer_printf(out, "  %-20s  %-20s  %-26s  %s\n", bound->name, limit, beyond,
                          bound->subject);
    }
}
