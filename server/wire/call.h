/* call.h: the bodies of /attend and /decode as structs.
 *
 * One table (call_fields.def) has for every field its JSON name, its kind, its place in struct
 * srv_rows or struct srv_call, and the bodies that may hold it.  Bodies with tensors as JSON and
 * with tensors as bytes, and those of infer requests (v2.h), are read by that one table.
 * Models and sessions are unknown here: the endpoints check shapes against them. */
#ifndef SRV_CALL_H
#define SRV_CALL_H

#include "wire/tensor.h"

enum srv_output {
    SRV_OUT_OUTPUT = 1 << 0,
    SRV_OUT_WEIGHTS = 1 << 1, /* "attention_weights" */
    SRV_OUT_LSE = 1 << 2,
    SRV_OUT_KEY = 1 << 3,
    SRV_OUT_VALUE = 1 << 4,
    SRV_OUT_SCORES = 1 << 5, /* "attention_scores" */
    SRV_OUT_STATS = 1 << 6,  /* "head_stats" */
    SRV_OUT_QUERY = 1 << 7,
    SRV_OUT_HEADS = 1 << 8, /* "head_output" */
    SRV_OUT_CONCAT = 1 << 9,
};

/* Lists of integers; no list where the field was not given. */
struct srv_index_lists {
    struct srv_tensor *lists; /* [count], each of one dimension */
    size_t count;
};

/* One set of rows with its modifiers and outputs: the body of /attend, of /decode, or one item of
 * the `sequences` of /decode. */
struct srv_rows {
    char *session_id; /* NULL: none */
    bool has_position, has_epoch, has_start, has_commit, has_is_causal, has_scale, has_softcap;
    int64_t position, epoch;
    int64_t revision;   /* 0: not given */
    bool start, commit; /* commit is true where not given */
    bool is_causal;
    double scale;
    double softcap; /* 0: none, even where the layer has one */
    struct srv_tensor hidden_states, encoder_hidden_states, encoder_padding_mask;
    struct srv_tensor key_hidden_states, value_hidden_states;
    struct srv_tensor query, key, value, past_key, past_value;
    struct srv_tensor query_offset, padding_mask, attention_mask, attention_bias;
    struct srv_tensor head_mask, position_ids;
    struct srv_tensor grid;           /* [rows, columns] of patches */
    struct srv_tensor sliding_window; /* W, or [left, right] */
    unsigned outputs;                 /* enum srv_output bits; SRV_OUT_OUTPUT where not given */
    struct srv_tensor heads;          /* selected for the outputs that srv_call_rules names */
    struct srv_tensor query_rows;     /* likewise; `rows` in the body */
    int64_t top_k;                    /* largest attention_weights of a row to show; 0: all */
    bool average_heads;               /* attention_weights are the mean over heads */
    enum attn_stage stage;            /* of attention_scores */
    struct srv_tensor pool;           /* [R, C] of attention_weights and attention_scores */
    enum attn_pool_type pool_type;
    enum srv_map_datatype map_datatype;   /* of both in a reply in binary form */
    int64_t local_radius;                 /* of head_stats; SRV_LOCAL_RADIUS where not given */
    struct srv_tensor targets;            /* of head_stats: the key that each row is asked about */
    struct srv_index_lists target_groups; /* of head_stats: groups of keys */
    bool ablate;                          /* head_stats have the change of output without a head */
};

#define SRV_LOCAL_RADIUS 4

struct srv_call {
    char *model; /* NULL: the only one */
    int64_t layer;
    bool binary_output; /* the reply's tensors are to be bytes */
    bool has_compressed_output, compressed_output;
    struct srv_rows rows;       /* of the body itself, unless `sequences` is given */
    struct srv_rows *sequences; /* [num_sequences] or NULL */
    size_t num_sequences;
};

/* Bodies: those of the two endpoints, and an item of `sequences`. */
enum srv_call_kind {
    SRV_CALL_ATTEND = 1 << 0,
    SRV_CALL_DECODE = 1 << 1,
    SRV_CALL_SEQUENCE = 1 << 2, /* not for srv_call_read */
};

/* ---- Fields ---------------------------------------------------------------------------------- */

enum srv_field_kind {
    SRV_FIELD_NAME,
    SRV_FIELD_ID,
    SRV_FIELD_FLAG,
    SRV_FIELD_NON_NEGATIVE,
    SRV_FIELD_LAYER,
    SRV_FIELD_POSITIVE,
    SRV_FIELD_RADIUS,
    SRV_FIELD_SCALE,
    SRV_FIELD_SOFTCAP,
    SRV_FIELD_TENSOR,
    SRV_FIELD_OUTPUTS,
    SRV_FIELD_GROUPS,
    SRV_FIELD_CHOICE,
    SRV_FIELD_SEQUENCES,
    SRV_FIELD_KINDS
};

/* The values of a kind. */
struct srv_field_type {
    const char *schema;  /* as openapi/openapi.h names it; NULL: the field's row says it */
    int64_t least, most; /* of an integer; otherwise `most` is 0 */
};
extern const struct srv_field_type srv_field_types[SRV_FIELD_KINDS];

/* The names that the value of a field may have, in the order of its enum, whose members have the
 * values of unsigned int. */
struct srv_choice {
    const char *type; /* as openapi/openapi.h names it */
    const char *const *names;
    size_t count;
};

struct srv_field {
    const char *name;
    enum srv_field_kind kind;
    unsigned bodies;     /* enum srv_call_kind bits: bodies that may hold it */
    bool in_call;        /* its place is in struct srv_call, else in struct srv_rows */
    size_t offset;       /* of its place */
    size_t has_offset;   /* of the flag beside its place that it was given; 0: no flag */
    const char *meaning; /* one line without its full stop */
    enum srv_tensor_kind tensor;
    bool scalar;                     /* a tensor that may be a bare number */
    const struct srv_choice *choice; /* of SRV_FIELD_CHOICE */
    const char *shapes; /* of a tensor, as in docs/API.md: "[T,E] [B,T,E]"; NULL: any */
};

#define FIELD(name, ...) SRV_F_##name,
enum srv_field_index {
#include "wire/call_fields.def"
    SRV_FIELD_COUNT
};
#undef FIELD

/* The field's bit in a set of fields. */
#define SRV_FIELD_BIT(name) (UINT64_C(1) << SRV_F_##name)

extern const struct srv_field srv_fields[SRV_FIELD_COUNT];

/* The field of that name; NULL where there is none that a body of these kinds may hold. */
const struct srv_field *srv_field_find(const char *name, unsigned bodies);

/* The first field of a set. */
const struct srv_field *srv_field_first(uint64_t fields);

/* A rule about fields.  In a body of these kinds that has all fields of `given` and none of
 * `unless`, all of `needs` must be given and none of `excludes`, and one of the outputs be asked
 * for.  For `unless` and for outputs a flag that is false counts as left out. */
struct srv_call_rule {
    unsigned bodies;        /* enum srv_call_kind bits */
    uint64_t given, unless; /* sets of fields */
    uint64_t needs, excludes;
    unsigned outputs; /* enum srv_output bits; 0: any */
    const char *why; /* after the name of an excluded field; NULL: it cannot stand beside `given` */
};

/* The rules in the order in which they are checked: errors are about the first that is broken. */
extern const struct srv_call_rule srv_call_rules[];
extern const size_t srv_call_rule_count;

/* A name that `outputs` may list. */
struct srv_output_name {
    const char *name;
    enum srv_output bit;
    const char *type;   /* of its value in a reply, as openapi/openapi.h writes types */
    const char *shapes; /* likewise */
    const char *meaning;
};

#define SRV_OUTPUT_COUNT 10
extern const struct srv_output_name srv_output_names[SRV_OUTPUT_COUNT];

#define SRV_HINT_MAX 144

/* Prints why `name` is no `what` ("field") of a body, and what to send instead: what the name of
 * another framework is called here, else the nearest of `names` [count], which the body can
 * have. */
void srv_field_hint(char out[SRV_HINT_MAX], const char *what, const char *name,
                    const char *const *names, size_t count);

/* ---- Reading --------------------------------------------------------------------------------- */

/* Reads a body into *out.  Strings live in the arena, tensors there or in the body.
 * out->binary_output has its default when the function is called.  Errors: malformed_json,
 * unknown_field, duplicate_field, missing_field, invalid_type, invalid_value, too_complex,
 * shape_mismatch (ragged arrays, or a number of bytes that does not fit the shape),
 * non_finite_input, number_out_of_range, out_of_memory, bad_request (bytes that are missing or
 * belong to no tensor), and those of body->cancel.  Each has the field as param
 * ("sequences[3].position" in a list). */
enum srv_error_code srv_call_read(struct srv_call *out, const struct srv_body *body,
                                  enum srv_call_kind kind, size_t max_sequences,
                                  struct srv_arena *arena, struct srv_error *error);

/* A call, or an item of its `sequences`, while its fields are read one by one. */
struct srv_call_reader {
    struct srv_source *source;
    struct srv_json *json; /* of the source */
    struct srv_call *call;
    struct srv_rows *rows; /* of this body or item */
    unsigned kind;         /* one of enum srv_call_kind */
    const char *prefix;    /* of an item: "sequences[3]" */
    size_t max_sequences;
    uint64_t seen, given; /* sets of fields: all that have occurred; those with a value */
};

/* Starts a call without fields. */
void srv_call_begin(struct srv_call_reader *out, struct srv_call *call, struct srv_source *source,
                    enum srv_call_kind kind, size_t max_sequences);

/* The functions below set the source's error, and do nothing that matters once it is set. */

/* The field's place, which the caller fills; the field counts as given.  NULL where the field has
 * occurred before. */
void *srv_call_accept(struct srv_call_reader *reader, const struct srv_field *field);

/* Reads the next value into the field's place; null counts as left out. */
void srv_call_read_field(struct srv_call_reader *reader, const struct srv_field *field);

/* Sets session_id, which was accepted, to what must be an id. */
void srv_call_set_id(struct srv_call_reader *reader, char *id, const char *param);

/* Adds an output to those asked for. */
void srv_call_add_output(struct srv_call_reader *reader, const char *name);

/* Checks what stands behind the body, and the rules of fields. */
void srv_call_finish(struct srv_call_reader *reader);

#endif
