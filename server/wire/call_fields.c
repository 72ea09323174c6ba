/* call_fields.c: the table of fields and the table of outputs, and nothing else.
 *
 * A field is one row: its name, its kind, the bodies that may hold it, its place, and what it
 * means.  An added field needs no other place to be read, and stands in /openapi.json. */
#include "wire/call_fields.h"

enum { ATTEND = SRV_CALL_ATTEND, DECODE = SRV_CALL_DECODE, ITEM = SRV_CALL_ITEM };
#define ALL (ATTEND | DECODE | ITEM)

#define IN_CALL(member) .in_call = true, .offset = offsetof(struct srv_call, member)
#define IN_ROWS(member) .offset = offsetof(struct srv_rows, member)
#define COUNT(list) (sizeof(list) / sizeof(list)[0])
#define HAS(member) .has_offset = offsetof(struct srv_rows, has_##member)
#define REFINES(outputs, names) .refines = (outputs), .refined_names = (names)

/* ---- Choices --------------------------------------------------------------------------------- */

static const char *const stage_names[] = {
    [ATTN_STAGE_RAW] = "raw",
    [ATTN_STAGE_SOFTCAP] = "softcap",
    [ATTN_STAGE_MASKED] = "masked",
};
static const struct srv_choice score_stages = {"ScoreStage", stage_names, COUNT(stage_names)};

static const char *const pool_names[] = {[ATTN_POOL_MAX] = "max", [ATTN_POOL_MEAN] = "mean"};
static const struct srv_choice pool_types = {"PoolType", pool_names, COUNT(pool_names)};

static const struct srv_choice map_datatypes = {"MapDatatype", srv_map_datatypes,
                                                SRV_MAP_DATATYPES};

/* ---- Fields ---------------------------------------------------------------------------------- */

const struct srv_field srv_fields[SRV_FIELD_COUNT] = {
    {"model", SRV_FIELD_NAME, ATTEND | DECODE, IN_CALL(model),
     .meaning = "the model; may be left out where there is only one, or where a session names it"},
    {"layer", SRV_FIELD_LAYER, ATTEND | DECODE, IN_CALL(layer),
     .meaning = "the layer, counted in the checkpoint; default 0"},
    {"sequences", SRV_FIELD_SEQUENCES, DECODE, IN_CALL(sequences),
     .meaning = "many steps in one request, each of which succeeds or fails alone"},
    {"binary_output", SRV_FIELD_FLAG, ATTEND | DECODE, IN_CALL(binary_output),
     .meaning = "the reply's tensors are bytes; default what Accept says"},
    {"compressed_output", SRV_FIELD_FLAG, ATTEND | DECODE, IN_CALL(compressed_output),
     .has_offset = offsetof(struct srv_call, has_compressed_output),
     .meaning = "the reply has the coding that Accept-Encoding names; default reply_compression's"},
    {"session_id", SRV_FIELD_ID, ALL, IN_ROWS(session_id),
     .meaning = "the session; of /attend it makes the rows a prefill"},
    {"position", SRV_FIELD_NON_NEGATIVE, ALL, IN_ROWS(position), HAS(position),
     .meaning = "where the first row goes; default the length of the layer's cache"},
    {"epoch", SRV_FIELD_NON_NEGATIVE, ALL, IN_ROWS(epoch), HAS(epoch),
     .meaning = "the epoch that the session must have; not beside start"},
    {"revision", SRV_FIELD_POSITIVE, ALL, IN_ROWS(revision),
     .meaning = "the revision that the session must have: it was not truncated since then; not "
                "beside start"},
    {"start", SRV_FIELD_FLAG, ALL, IN_ROWS(start), HAS(start), .meaning = "creates the session"},
    {"commit", SRV_FIELD_FLAG, ALL, IN_ROWS(commit), HAS(commit),
     .meaning = "false: compute over the cache and append nothing; default true"},
    {"hidden_states", SRV_FIELD_TENSOR, ALL, IN_ROWS(hidden_states), .tensor = SRV_FLOATS,
     .shapes = "[E] [T,E] [B,T,E]", .meaning = "the rows; [E] and [1,T,E] over a session only"},
    {"encoder_hidden_states", SRV_FIELD_TENSOR, ATTEND | DECODE, IN_ROWS(encoder_hidden_states),
     .tensor = SRV_FLOATS, .shapes = "[S,Ek] [B,S,Ek]",
     .meaning = "keys and values come from these rows: cross-attention; beside start those of all "
                "steps"},
    {"encoder_padding_mask", SRV_FIELD_TENSOR, ATTEND | DECODE, IN_ROWS(encoder_padding_mask),
     .tensor = SRV_BOOLS, .shapes = "[S] [1,S]",
     .meaning = "beside start, 1: a real encoder row; 0: the session leaves the row out"},
    {"key_hidden_states", SRV_FIELD_TENSOR, ATTEND, IN_ROWS(key_hidden_states),
     .tensor = SRV_FLOATS, .shapes = "[S,Ek] [B,S,Ek]",
     .meaning = "keys come from these rows, values from value_hidden_states"},
    {"value_hidden_states", SRV_FIELD_TENSOR, ATTEND, IN_ROWS(value_hidden_states),
     .tensor = SRV_FLOATS, .shapes = "[S,Ev] [B,S,Ev]",
     .meaning = "values come from these rows, keys from key_hidden_states"},
    {"query", SRV_FIELD_TENSOR, ALL, IN_ROWS(query), .tensor = SRV_FLOATS,
     .shapes = "[H,D] [H,T,D] [B,H,T,D]",
     .meaning = "with key and value, instead of rows for a layer: no weights"},
    {"key", SRV_FIELD_TENSOR, ALL, IN_ROWS(key), .tensor = SRV_FLOATS,
     .shapes = "[G,D] [G,S,D] [B,G,S,D]",
     .meaning = "used as they are; over a session appended to its cache"},
    {"value", SRV_FIELD_TENSOR, ALL, IN_ROWS(value), .tensor = SRV_FLOATS,
     .shapes = "[G,Dv] [G,S,Dv] [B,G,S,Dv]",
     .meaning = "used as they are; over a session appended to its cache"},
    {"past_key", SRV_FIELD_TENSOR, ATTEND, IN_ROWS(past_key), .tensor = SRV_FLOATS,
     .shapes = "[G,P,D] [B,G,P,D]",
     .meaning = "keys that stand before those of key: S counts both; the output key is both"},
    {"past_value", SRV_FIELD_TENSOR, ATTEND, IN_ROWS(past_value), .tensor = SRV_FLOATS,
     .shapes = "[G,P,Dv] [B,G,P,Dv]", .meaning = "their values"},
    {"is_causal", SRV_FIELD_FLAG, ALL, IN_ROWS(is_causal), HAS(is_causal),
     .meaning = "query row t sees keys up to query_offset + t; default the layer's"},
    {"query_offset", SRV_FIELD_TENSOR, ALL, IN_ROWS(query_offset), .tensor = SRV_INTEGERS,
     .scalar = true, .shapes = "[B]", .meaning = "where the first query stands; default S-T"},
    {"padding_mask", SRV_FIELD_TENSOR, ALL, IN_ROWS(padding_mask), .tensor = SRV_BOOLS,
     .shapes = "[S] [B,S]", .meaning = "1: a real token; 0: never attended"},
    {"attention_mask", SRV_FIELD_TENSOR, ALL, IN_ROWS(attention_mask), .tensor = SRV_BOOLS,
     .shapes = "[T,S] [B,T,S] [H,T,S] [B,H,T,S]",
     .meaning = "1: may attend; all dimensions but the last may be 1; over a session also [T,T], a "
                "tree"},
    {"attention_bias", SRV_FIELD_TENSOR, ALL, IN_ROWS(attention_bias), .tensor = SRV_FLOATS_OR_NULL,
     .shapes = "[T,S] [B,T,S] [H,T,S] [B,H,T,S]",
     .meaning = "added to the scores; null is minus infinity; all dimensions but the last may be "
                "1"},
    {"head_mask", SRV_FIELD_TENSOR, ALL, IN_ROWS(head_mask), .tensor = SRV_FLOATS, .shapes = "[H]",
     .meaning = "multiplies each head's weights"},
    {"position_ids", SRV_FIELD_TENSOR, ALL, IN_ROWS(position_ids), .tensor = SRV_INTEGERS,
     .shapes = "[T] [B,T] [3,B,T]",
     .meaning = "positions for RoPE, and depths in a tree; 0 to 2147483647; three of a token must "
                "agree"},
    {"scale", SRV_FIELD_SCALE, ALL, IN_ROWS(scale), HAS(scale),
     .meaning = "of the scores, instead of the layer's"},
    {"softcap", SRV_FIELD_SOFTCAP, ALL, IN_ROWS(softcap), HAS(softcap),
     .meaning = "scores become softcap * tanh(score / softcap); 0: they stay"},
    {"sliding_window", SRV_FIELD_TENSOR, ALL, IN_ROWS(sliding_window), .tensor = SRV_INTEGERS,
     .scalar = true, .shapes = "[2]",
     .meaning = "keys that a query sees: W, or [left, right], where -1 is open"},
    {"outputs", SRV_FIELD_OUTPUTS, ALL, IN_ROWS(outputs),
     .meaning = "what to reply; default [\"output\"]"},
    {"heads", SRV_FIELD_TENSOR, ALL, IN_ROWS(heads), .tensor = SRV_INTEGERS,
     REFINES(SRV_OUT_WEIGHTS | SRV_OUT_SCORES | SRV_OUT_STATS | SRV_OUT_QUERY | SRV_OUT_HEADS,
             "attention_weights, attention_scores, head_stats, query or head_output"),
     .shapes = "[H']",
     .meaning = "the heads that maps, scores, statistics, query and head_output show; default "
                "all"},
    {"rows", SRV_FIELD_TENSOR, ALL, IN_ROWS(query_rows), .tensor = SRV_INTEGERS,
     REFINES(SRV_OUT_WEIGHTS | SRV_OUT_SCORES | SRV_OUT_QUERY | SRV_OUT_HEADS,
             "attention_weights, attention_scores, query or head_output"),
     .shapes = "[T']",
     .meaning = "the query rows that maps, scores, query and head_output show; default all"},
    {"top_k", SRV_FIELD_POSITIVE, ALL, IN_ROWS(top_k),
     REFINES(SRV_OUT_WEIGHTS, "attention_weights"),
     .meaning = "how many of a row's weights to show, the largest first"},
    {"average_heads", SRV_FIELD_FLAG, ALL, IN_ROWS(average_heads),
     REFINES(SRV_OUT_WEIGHTS, "attention_weights"),
     .meaning = "attention_weights are the mean over the heads shown"},
    {"stage", SRV_FIELD_CHOICE, ALL, IN_ROWS(stage), REFINES(SRV_OUT_SCORES, "attention_scores"),
     .choice = &score_stages, .meaning = "which scores attention_scores are; default raw"},
    {"pool", SRV_FIELD_TENSOR, ALL, IN_ROWS(pool), .tensor = SRV_INTEGERS,
     REFINES(SRV_OUT_WEIGHTS | SRV_OUT_SCORES, "attention_weights or attention_scores"),
     .shapes = "[2]", .meaning = "[R, C]: maps are reduced to R rows and C columns of blocks"},
    {"pool_type", SRV_FIELD_CHOICE, ALL, IN_ROWS(pool_type),
     REFINES(SRV_OUT_WEIGHTS | SRV_OUT_SCORES, "attention_weights or attention_scores"),
     .choice = &pool_types, .meaning = "what a block becomes; default max"},
    {"map_datatype", SRV_FIELD_CHOICE, ALL, IN_ROWS(map_datatype),
     REFINES(SRV_OUT_WEIGHTS | SRV_OUT_SCORES, "attention_weights or attention_scores"),
     .choice = &map_datatypes,
     .meaning = "datatype of maps in binary form; UINT8 for attention_weights; default FP32"},
    {"local_radius", SRV_FIELD_RADIUS, ALL, IN_ROWS(local_radius),
     REFINES(SRV_OUT_STATS, "head_stats"),
     .meaning = "how far near by is in head_stats; default 4"},
    {"targets", SRV_FIELD_TENSOR, ALL, IN_ROWS(targets), .tensor = SRV_INTEGERS,
     REFINES(SRV_OUT_STATS, "head_stats"), .shapes = "[T] [B,T]",
     .meaning = "the key position that head_stats ask each query row about; -1: none"},
    {"target_groups", SRV_FIELD_GROUPS, ALL, IN_ROWS(target_groups),
     REFINES(SRV_OUT_STATS, "head_stats"),
     .meaning = "groups of key positions whose weight head_stats show"},
    {"ablate", SRV_FIELD_FLAG, ALL, IN_ROWS(ablate), REFINES(SRV_OUT_STATS, "head_stats"),
     .meaning = "head_stats show the relative change of the output without each head"},
};
_Static_assert(SRV_FIELD_COUNT <= 64, "a body has a bit for each field");

const struct srv_field *srv_field_find(const char *name, unsigned bodies)
{
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (srv_fields[i].name[0] == name[0] && strcmp(srv_fields[i].name, name) == 0)
            return (srv_fields[i].bodies & bodies) != 0 ? &srv_fields[i] : NULL;
    return NULL;
}

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
