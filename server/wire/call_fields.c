/* call_fields.c: the tables of fields, of rules about fields and of outputs, and nothing else.
 *
 * An added field needs no other place than its row to be read, and stands in /openapi.json. */
#include "wire/call.h"

#include "basics/mem.h"

enum { ATTEND = SRV_CALL_ATTEND, DECODE = SRV_CALL_DECODE, SEQUENCE = SRV_CALL_SEQUENCE };
#define ALL (ATTEND | DECODE | SEQUENCE)
/* ---- Choices --------------------------------------------------------------------------------- */

static const char *const stage_names[] = {
    [ATTN_STAGE_RAW] = "raw", [ATTN_STAGE_SOFTCAP] = "softcap", [ATTN_STAGE_MASKED] = "masked"};
static const struct srv_choice score_stages = {"ScoreStage", stage_names, ATTN_COUNT(stage_names)};

static const char *const pool_names[] = {[ATTN_POOL_MAX] = "max", [ATTN_POOL_MEAN] = "mean"};
static const struct srv_choice pool_types = {"PoolType", pool_names, ATTN_COUNT(pool_names)};

static const struct srv_choice map_datatypes = {"MapDatatype", srv_map_datatypes,
                                                SRV_MAP_DATATYPES};

/* ---- Fields ---------------------------------------------------------------------------------- */

const struct srv_field_type srv_field_types[SRV_FIELD_KINDS] = {
    [SRV_FIELD_NAME] = {.schema = "ModelName"},
    [SRV_FIELD_ID] = {.schema = "Id"},
    [SRV_FIELD_FLAG] = {.schema = "boolean"},
    [SRV_FIELD_NON_NEGATIVE] = {"Count", 0, INT64_MAX},
    [SRV_FIELD_LAYER] = {"LayerIndex", 0, ATTN_MAX_LAYERS - 1},
    [SRV_FIELD_POSITIVE] = {"PositiveCount", 1, INT64_MAX},
    [SRV_FIELD_RADIUS] = {"Radius", 0, ATTN_MAX_TOKENS},
    [SRV_FIELD_SCALE] = {.schema = "Scale"},
    [SRV_FIELD_SOFTCAP] = {.schema = "Softcap"},
    [SRV_FIELD_OUTPUTS] = {.schema = "OutputList"},
    [SRV_FIELD_SEQUENCES] = {.schema = "StepRequestList"},
    [SRV_FIELD_GROUPS] = {.schema = "KeyGroupList"},
};

#define CALL(member) .in_call = true, .offset = offsetof(struct srv_call, member)
#define CALL_HAS(member) CALL(member), .has_offset = offsetof(struct srv_call, has_##member)
#define ROWS(member) .offset = offsetof(struct srv_rows, member)
#define ROWS_HAS(member) ROWS(member), .has_offset = offsetof(struct srv_rows, has_##member)
#define FIELD(name, kind, bodies, place, ...) \
    {#name, SRV_FIELD_##kind, bodies, place, .meaning = __VA_ARGS__},

const struct srv_field srv_fields[SRV_FIELD_COUNT] = {
#include "wire/call_fields.def"
};
_Static_assert(SRV_FIELD_COUNT < 64, "a set of fields has a bit for each");

const struct srv_field *srv_field_find(const char *name, unsigned bodies)
{
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (srv_fields[i].name[0] == name[0] && strcmp(srv_fields[i].name, name) == 0)
            return (srv_fields[i].bodies & bodies) != 0 ? &srv_fields[i] : NULL;
    return NULL;
}

const struct srv_field *srv_field_first(uint64_t fields)
{
    return &srv_fields[__builtin_ctzll(fields)];
}

/* ---- Rules ----------------------------------------------------------------------------------- */

#define F(name) SRV_FIELD_BIT(name)
#define OF_ROWS ((UINT64_C(1) << SRV_FIELD_COUNT) - F(session_id)) /* of struct srv_rows */
#define BESIDE_QUERY                                                                        \
    .why = "cannot stand beside query: rows for a model's layer are hidden_states, query, " \
           "key and value are used without one"
#define MAPS (SRV_OUT_WEIGHTS | SRV_OUT_SCORES)
#define ROWS_OF_HEADS (MAPS | SRV_OUT_QUERY | SRV_OUT_HEADS)

const struct srv_call_rule srv_call_rules[] = {
    /* Beside `sequences` a body has fields of the call only: fields of rows are in the items. */
    {DECODE, F(sequences), .excludes = OF_ROWS},
    {DECODE | SEQUENCE, .unless = F(sequences), .needs = F(session_id)},

    /* Rows are given as hidden_states, or as query, key and value, which are projected already:
     * attention without a layer.  A session without weights has layers too. */
    {ALL, F(query), .excludes = F(model), BESIDE_QUERY},
    {ALL, F(query), .unless = F(session_id), .excludes = F(layer), BESIDE_QUERY},
    {ALL, F(query),
     .excludes = F(hidden_states) | F(encoder_hidden_states) | F(encoder_padding_mask) |
                 F(key_hidden_states) | F(value_hidden_states),
     BESIDE_QUERY},
    {ALL, F(query), .needs = F(key) | F(value)},
    {ALL, F(key), .needs = F(query) | F(value)},
    {ALL, F(value), .needs = F(query) | F(key)},
    {ALL, F(past_key), .needs = F(query) | F(past_value)},
    {ALL, F(past_value), .needs = F(query) | F(past_key)},
    {ALL, F(session_id), .excludes = F(past_key)},
    {ALL, .unless = F(query) | F(sequences), .needs = F(hidden_states)},

    /* A session has the encoder rows that it starts with. */
    {ALL, F(session_id), .unless = F(start), .excludes = F(encoder_hidden_states),
     .why = "can stand beside session_id only where `start` is true: the session keeps them"},
    {ALL, F(encoder_padding_mask), .needs = F(encoder_hidden_states)},
    {ATTEND, F(encoder_padding_mask), .needs = F(session_id)},
    {ALL, F(session_id), .excludes = F(key_hidden_states)},
    {ALL, F(encoder_hidden_states), .excludes = F(key_hidden_states) | F(value_hidden_states)},
    {ALL, F(key_hidden_states), .needs = F(value_hidden_states)},
    {ALL, F(value_hidden_states), .needs = F(key_hidden_states)},

    /* In /decode every step has a session. */
    {ATTEND, F(position), .needs = F(session_id)},
    {ATTEND, F(epoch), .needs = F(session_id)},
    {ATTEND, F(revision), .needs = F(session_id)},
    {ATTEND, F(start), .needs = F(session_id)},
    {ATTEND, F(commit), .needs = F(session_id)},

    {ALL, F(heads), .outputs = ROWS_OF_HEADS | SRV_OUT_STATS},
    {ALL, F(rows), .outputs = ROWS_OF_HEADS},
    {ALL, F(top_k), .outputs = SRV_OUT_WEIGHTS},
    {ALL, F(average_heads), .outputs = SRV_OUT_WEIGHTS},
    {ALL, F(stage), .outputs = SRV_OUT_SCORES},
    {ALL, F(pool), .outputs = MAPS},
    {ALL, F(pool_type), .outputs = MAPS},
    {ALL, F(map_datatype), .outputs = MAPS},
    {ALL, F(local_radius), .outputs = SRV_OUT_STATS},
    {ALL, F(targets), .outputs = SRV_OUT_STATS},
    {ALL, F(target_groups), .outputs = SRV_OUT_STATS},
    {ALL, F(ablate), .outputs = SRV_OUT_STATS},

    /* The largest weights of a row are no map. */
    {ALL, F(top_k), .excludes = F(pool) | F(map_datatype)},
    {ALL, F(pool_type), .needs = F(pool)},
};
const size_t srv_call_rule_count = ATTN_COUNT(srv_call_rules);

/* ---- Outputs --------------------------------------------------------------------------------- */

const struct srv_output_name srv_output_names[SRV_OUTPUT_COUNT] = {
    {"output", SRV_OUT_OUTPUT, .type = "FloatOutput",
     .shapes = "[E] [T,E] [B,T,E] [H,Dv] [H,T,Dv] [B,H,T,Dv]",
     .meaning = "after the output projection; without weights before it"},
    {"attention_weights", SRV_OUT_WEIGHTS, .type = "FloatOutput|TopWeights",
     .shapes = "[H',T',W] [B,H',T',W] [T',W] [B,T',W]", .meaning = "after softmax and head_mask"},
    {"lse", SRV_OUT_LSE, .type = "NullableOutput", .shapes = "[H,T] [B,H,T]",
     .meaning = "natural logarithm of the sum of exponentials of the scores"},
    {"key", SRV_OUT_KEY, .type = "FloatOutput", .shapes = "[G,S,D] [B,G,S,D]",
     .meaning = "as a cache holds keys: after bias, norm and RoPE"},
    {"value", SRV_OUT_VALUE, .type = "FloatOutput", .shapes = "[G,S,Dv] [B,G,S,Dv]",
     .meaning = "as a cache holds values: after bias"},
    {"attention_scores", SRV_OUT_SCORES, .type = "NullableOutput",
     .shapes = "[H',T',S] [B,H',T',S]",
     .meaning = "before the softmax, at stage; null is minus infinity"},
    {"head_stats", SRV_OUT_STATS, .type = "[HeadStats]|[[HeadStats]]", .shapes = "[H'] [B,H']",
     .meaning = "statistics of a head's weights, over all its rows"},
    {"query", SRV_OUT_QUERY, .type = "FloatOutput", .shapes = "[H',T',D] [B,H',T',D]",
     .meaning = "queries as they are scored: after bias, norm and RoPE, before scale"},
    {"head_output", SRV_OUT_HEADS, .type = "FloatOutput", .shapes = "[H',T',Dv] [B,H',T',Dv]",
     .meaning = "weights times values of each head, after head_mask, before the output projection"},
    {"concat", SRV_OUT_CONCAT, .type = "FloatOutput", .shapes = "[H*Dv] [T,H*Dv] [B,T,H*Dv]",
     .meaning = "head_output of all heads side by side, as the output projection reads it"},
};
