/* v2_request.h: the body of an infer request of the Open Inference Protocol, as a call.
 *
 * An input is the tensor of the field of its name, a parameter a field or one of the protocol's.
 * Names, values and rules of fields are those of a body of /attend, and stand with its reader only
 * (call.h). */
#ifndef SRV_V2_REQUEST_H
#define SRV_V2_REQUEST_H

#include "wire/call.h"

#define SRV_V2_MAX_INPUTS 16
#define SRV_V2_MAX_OUTPUTS 16
#define SRV_V2_MAX_PARAMETER_BYTES 16384 /* of all parameters that are fields of a call, together */
#define SRV_V2_ID_MAX 128                /* bytes of `id` */
#define SRV_V2_INDEX \
    "attention_weights_index" /* the second output of attention_weights, by top_k */

/* The most bytes that a reply takes beside numbers and bytes. */
#define SRV_V2_REPLY_TEXT 4096

struct srv_v2_output {
    const char *name;
    bool says, binary; /* whether the request says which form it has, and that */
};

/* Which outputs of a reply are bytes. */
struct srv_v2_outputs {
    bool binary; /* those that say nothing themselves: binary_data_output */
    bool index;  /* SRV_V2_INDEX is asked for */
    size_t count;
    struct srv_v2_output items[SRV_V2_MAX_OUTPUTS]; /* [count] */
};

bool srv_v2_has_binary(const struct srv_v2_outputs *outputs); /* whether any may be */
bool srv_v2_output_is_binary(const struct srv_v2_outputs *outputs, const char *name);

/* The model that the path names. */
struct srv_v2_target {
    const char *model; /* NULL: weightless attention */
    bool has_layer;
    size_t layer;
};

/* An infer request beside its call. */
struct srv_v2_request {
    const char *id;  /* to be echoed; NULL: none */
    bool start, end; /* sequence_start and sequence_end of a request with a sequence_id */
    bool has_sequence;
    uint64_t timeout_us; /* 0: none */
    struct srv_v2_outputs outputs;
};

/* Reads a body into *out and *call.  Texts live in the arena, tensors there or in the body.
 * Errors: those of srv_call_read, with inputs, parameters and outputs as `param` under the names of
 * their fields. */
enum srv_error_code srv_v2_read(struct srv_v2_request *out, struct srv_call *call,
                                const struct srv_v2_target *target, const struct srv_body *body,
                                struct srv_arena *arena, struct srv_error *error);

#endif
