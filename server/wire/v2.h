/* v2.h: infer requests of the Open Inference Protocol: bodies as calls, outputs as its tensors.
 *
 * An input is the tensor of the field of its name, a parameter a field or one of the protocol's.
 * Names, values and rules of fields are those of a body of /attend, and stand with its reader only
 * (call.h). */
#ifndef SRV_V2_H
#define SRV_V2_H

#include "wire/outputs.h"

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
    bool has_binary, binary; /* whether the request says which form it has, and that */
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

/* Appends "outputs":[..]: each tensor with its name, datatype, shape, and its numbers in one flat
 * list or the number of its bytes.  Minus infinity among numbers is null. */
void srv_v2_outputs_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                          const struct srv_sizes *sizes, const struct srv_v2_outputs *forms);

/* Ends the JSON of a reply with blanks to a multiple of 64 bytes and appends the bytes of the
 * tensors that are bytes; returns the length of the JSON, 0 where no tensor is bytes. */
size_t srv_v2_outputs_write_bytes(struct srv_buffer *out, const struct attn_outputs *outputs,
                                  const struct srv_sizes *sizes,
                                  const struct srv_v2_outputs *forms);

/* Replaces the names of fields of /attend with those that an infer request has for them in the
 * message and the `param` of an error of the call that the request means; what is quoted stays.  A
 * message that becomes too long is cut. */
void srv_v2_reword_error(struct srv_error *error);

/* Fails with unknown_field: there is no `what` ("input") of that name.  Says what to send instead:
 * the nearest of `names` [count]. */
bool srv_v2_fail_unknown(struct srv_json *json, const char *what, const char *name,
                         const char *const *names, size_t count);

#endif
