/* call_fields.h: the tables of the fields of /attend and /decode, of the rules about them, and of
 * outputs.
 *
 * Bodies are read by these tables (call.c), and /openapi.json is made from them. */
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

#endif
