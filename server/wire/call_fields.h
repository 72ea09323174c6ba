/* call_fields.h: the tables of the fields of /attend and /decode and of their outputs.
 *
 * The table of fields is what bodies are read by (call.c), and what /openapi.json is made from. */
#ifndef SRV_CALL_FIELDS_H
#define SRV_CALL_FIELDS_H

#include "wire/call.h"

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
};

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
    unsigned bodies;   /* enum srv_call_kind bits: bodies that may hold it */
    bool in_call;      /* its place is in struct srv_call, else in struct srv_rows */
    size_t offset;     /* of its place */
    size_t has_offset; /* of the flag beside its place that it was given; 0: no flag */
    enum srv_tensor_kind tensor;
    bool scalar;                     /* a tensor that may be a bare number */
    const struct srv_choice *choice; /* of SRV_FIELD_CHOICE */
    unsigned refines;                /* outputs of which one at least must be asked for; 0: none */
    const char *refined_names;
    const char *shapes;  /* of a tensor, as in docs/API.md: "[T,E] [B,T,E]"; NULL: any */
    const char *meaning; /* one line without its full stop */
};

#define SRV_FIELD_COUNT 44
extern const struct srv_field srv_fields[SRV_FIELD_COUNT];

/* The field of that name; NULL where there is none that a body of these kinds may hold. */
const struct srv_field *srv_field_find(const char *name, unsigned bodies);

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

#endif
