/* bad_cases.c: good HTTP that asks for what cannot be: wrong JSON, fields, types, shapes, values,
 * ids, paths and headers.
 *
 * Rows of the model `plain` are 8 wide (2 heads of 4), those of `tiny` 16. */
#include "bad_cases.h"

#define ROW8 "[1,2,3,4,5,6,7,8]"
#define ROW16 "[1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8]"
#define PLAIN_ROWS "\"model\":\"plain\",\"hidden_states\":[" ROW8 "," ROW8 "]"
#define ATTEND(rest) "/attend", "{" PLAIN_ROWS rest "}"
#define STEP(rest) \
    "/decode", "{\"model\":\"tiny\",\"session_id\":\"witness\",\"hidden_states\":" ROW16 rest "}"
#define ITEM(members) "/decode", "{\"model\":\"tiny\",\"sequences\":" members "}"
#define WEIGHTS ",\"outputs\":[\"attention_weights\"]"
#define CORE(q, k, v) "/attend", "{\"query\":" q ",\"key\":" k ",\"value\":" v "}"
#define ID(id) "/decode", "{\"model\":\"tiny\",\"hidden_states\":" ROW16 ",\"session_id\":" id "}"
#define HIDDEN(value) "/attend", "{\"model\":\"plain\",\"hidden_states\":" value "}"

#define ID65 "a123456789b123456789c123456789d123456789e123456789f123456789g1234"

static void repeat(struct text *text, const char *piece, size_t times)
{
    for (size_t i = 0; i < times; i++)
        text_add(text, "%s", piece);
}

static void make_deep_arrays(struct text *body)
{
    text_add(body, "{\"model\":\"plain\",\"hidden_states\":");
    repeat(body, "[", 100000);
}

static void make_deep_objects(struct text *body) { repeat(body, "{\"hidden_states\":", 5000); }

static void make_rows(struct text *body, const char *begin, size_t rows)
{
    text_add(body, "%s", begin);
    for (size_t i = 0; i < rows; i++)
        text_add(body, i > 0 ? "," ROW16 : ROW16);
    text_add(body, "]}");
}

static void make_many_tokens(struct text *body)
{
    make_rows(body, "{\"model\":\"tiny\",\"hidden_states\":[", 65);
}

static void make_many_step_rows(struct text *body)
{
    make_rows(body, "{\"model\":\"tiny\",\"session_id\":\"witness\",\"hidden_states\":[", 65);
}

static void make_large_reply(struct text *body)
{
    make_rows(body, "{\"model\":\"tiny\",\"outputs\":[\"attention_weights\"],\"hidden_states\":[",
              64);
}

static void make_large_body(struct text *body)
{
    text_add(body, "{\"model\":\"plain\",\"hidden_states\":[");
    repeat(body, "0.123456789,", 30000);
    text_add(body, "1]}");
}

static void make_large_document(struct text *body)
{
    text_add(body, "{\"model\":\"tiny\"");
    repeat(body, " ", 20000);
    text_add(body, "}");
}

static void make_long_name(struct text *body)
{
    text_add(body, "{\"");
    repeat(body, "x", 100000);
    text_add(body, "\":1}");
}

/* A body with a NUL inside, which ends nothing. */
static void make_nul(struct text *body)
{
    text_add(body, "{" PLAIN_ROWS "?,\"layer\":0}");
    for (size_t i = 0; i < body->length; i++)
        if (body->data[i] == '?')
            body->data[i] = '\0';
}

const struct bad_case bad_cases[] = {
    /* Not one JSON object. */
    {"nothing", "/attend", "", 400, "malformed_json", NULL, NULL},
    {"blanks", "/attend", "  \n", 400, "malformed_json", NULL, NULL},
    {"null", "/attend", "null", 400, "malformed_json", NULL, NULL},
    {"a list", "/attend", "[]", 400, "malformed_json", NULL, NULL},
    {"a string", "/decode", "\"step\"", 400, "malformed_json", NULL, NULL},
    {"a number", "/decode", "42", 400, "malformed_json", NULL, NULL},
    {"an open object", "/attend", "{", 400, "malformed_json", NULL, NULL},
    {"a cut array", "/attend", "{\"model\":\"plain\",\"hidden_states\":[[1,2", 400,
     "malformed_json", NULL, NULL},
    {"a cut string", "/attend", "{\"model\":\"pla", 400, "malformed_json", NULL, NULL},
    {"a brace too many", "/attend", "{" PLAIN_ROWS "}}", 400, "malformed_json", NULL, NULL},
    {"two objects", "/attend", "{" PLAIN_ROWS "} {}", 400, "malformed_json", NULL, NULL},
    {"a comma at the end", ATTEND(","), 400, "malformed_json", NULL, NULL},
    {"a comma in an array", HIDDEN("[[1,2,3,4,5,6,7,8,]]"), 400, "malformed_json", NULL, NULL},
    {"no comma", HIDDEN("[[1 2,3,4,5,6,7,8,9]]"), 400, "malformed_json", NULL, NULL},
    {"no colon", "/attend", "{\"model\" \"plain\"}", 400, "malformed_json", NULL, NULL},
    {"single quotes", "/attend", "{'model':'plain'}", 400, "malformed_json", NULL, NULL},
    {"a bare key", "/attend", "{model:\"plain\"}", 400, "malformed_json", NULL, NULL},
    {"a comment", ATTEND("/* none */"), 400, "malformed_json", NULL, NULL},
    {"a byte order mark", "/attend", "\xef\xbb\xbf{" PLAIN_ROWS "}", 400, "malformed_json", NULL,
     NULL},
    {"wrong UTF-8", "/attend", "{\"model\":\"\xff\xfe\"}", 400, "malformed_json", NULL, NULL},
    {"overlong UTF-8", "/attend", "{\"model\":\"\xc0\xaf\"}", 400, "malformed_json", NULL, NULL},
    {"half a surrogate pair", "/attend", "{\"model\":\"\\ud800\"}", 400, "malformed_json", NULL,
     NULL},
    {"an escaped NUL", ID("\"witness\\u0000x\""), 400, "malformed_json", NULL, NULL},
    {"a NUL", "/attend", NULL, 400, "malformed_json", NULL, make_nul},
    {"a control character", "/attend", "{\"model\":\"pl\nain\"}", 400, "malformed_json", NULL,
     NULL},
    {"an unknown escape", "/attend", "{\"model\":\"\\x41\"}", 400, "malformed_json", NULL, NULL},

    /* Numbers that are none. */
    {"a leading zero", HIDDEN("[[01,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"a plus sign", HIDDEN("[[+1,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"a leading point", HIDDEN("[[.5,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"a trailing point", HIDDEN("[[1.,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"an empty exponent", HIDDEN("[[1e,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"a lone minus", HIDDEN("[[-,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"a hexadecimal number", HIDDEN("[[0x1,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"NaN", HIDDEN("[[NaN,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"Infinity", HIDDEN("[[Infinity,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"-Infinity", HIDDEN("[[-Infinity,2,3,4,5,6,7,8]]"), 400, "malformed_json", NULL, NULL},
    {"beyond float32", HIDDEN("[[1e39,2,3,4,5,6,7,8]]"), 422, "number_out_of_range", NULL, NULL},
    {"beyond double", HIDDEN("[[-1e999,2,3,4,5,6,7,8]]"), 422, "number_out_of_range", NULL, NULL},
    {"a scale beyond double", ATTEND(",\"scale\":1e999"), 422, "number_out_of_range", NULL, NULL},
    {"a product beyond float32", HIDDEN("[[3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38]]"), 422,
     "numeric_overflow", NULL, NULL},

    /* Fields. */
    {"an unknown field", ATTEND(",\"temperature\":1"), 400, "unknown_field", NULL, NULL},
    {"an empty name", ATTEND(",\"\":1"), 400, "unknown_field", NULL, NULL},
    {"a very long name", "/attend", NULL, 400, "unknown_field", NULL, make_long_name},
    {"a field of the other route", ATTEND(",\"sequences\":[]"), 400, "unknown_field", NULL, NULL},
    {"query_offset of a step", STEP(",\"query_offset\":0"), 422, "unsupported", NULL, NULL},
    {"a field twice", ATTEND(",\"layer\":0,\"layer\":0"), 400, "duplicate_field", NULL, NULL},
    {"a field twice, once escaped", ATTEND(",\"\\u006dodel\":\"plain\""), 400, "duplicate_field",
     NULL, NULL},
    {"no rows", "/attend", "{\"model\":\"plain\"}", 400, "missing_field", NULL, NULL},
    {"null rows", HIDDEN("null"), 400, "missing_field", NULL, NULL},
    {"no model", "/attend", "{\"hidden_states\":[" ROW8 "]}", 400, "missing_field", NULL, NULL},
    {"an empty object", "/decode", "{}", 400, "missing_field", NULL, NULL},
    {"no session", "/decode", "{\"model\":\"tiny\",\"hidden_states\":" ROW16 "}", 400,
     "missing_field", NULL, NULL},
    {"no value", "/attend", "{\"query\":[[[1]]],\"key\":[[[1]]]}", 400, "missing_field", NULL,
     NULL},
    {"keys without values", ATTEND(",\"key_hidden_states\":[" ROW8 "]"), 400, "missing_field", NULL,
     NULL},
    {"a position without a session", ATTEND(",\"position\":0"), 400, "missing_field", NULL, NULL},
    {"query beside hidden_states", ATTEND(",\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[1]]]"),
     400, "invalid_value", NULL, NULL},
    {"two sources of keys",
     ATTEND(",\"encoder_hidden_states\":[" ROW8 "],\"key_hidden_states\":[" ROW8
            "],\"value_hidden_states\":[" ROW8 "]"),
     400, "invalid_value", NULL, NULL},
    {"an unknown model", "/attend", "{\"model\":\"gpt5\",\"hidden_states\":[[1]]}", 404,
     "model_not_found", NULL, NULL},
    {"an unknown layer", ATTEND(",\"layer\":1"), 404, "layer_not_found", NULL, NULL},

    /* Types and values. */
    {"model as a number", "/attend", "{\"model\":5,\"hidden_states\":[" ROW8 "]}", 400,
     "invalid_type", NULL, NULL},
    {"layer as a string", ATTEND(",\"layer\":\"0\""), 400, "invalid_type", NULL, NULL},
    {"half a layer", ATTEND(",\"layer\":0.5"), 400, "invalid_type", NULL, NULL},
    {"a layer with an exponent", ATTEND(",\"layer\":1e0"), 400, "invalid_type", NULL, NULL},
    {"a negative layer", ATTEND(",\"layer\":-1"), 400, "invalid_value", NULL, NULL},
    {"layer 2^32", ATTEND(",\"layer\":4294967296"), 400, "invalid_value", NULL, NULL},
    {"layer 2^64", ATTEND(",\"layer\":18446744073709551616"), 422, "number_out_of_range", NULL,
     NULL},
    {"is_causal as 1", ATTEND(",\"is_causal\":1"), 400, "invalid_type", NULL, NULL},
    {"is_causal as a string", ATTEND(",\"is_causal\":\"true\""), 400, "invalid_type", NULL, NULL},
    {"commit as a string", STEP(",\"commit\":\"no\""), 400, "invalid_type", NULL, NULL},
    {"scale 0", ATTEND(",\"scale\":0"), 400, "invalid_value", NULL, NULL},
    {"a negative scale", ATTEND(",\"scale\":-0.5"), 400, "invalid_value", NULL, NULL},
    {"a stage that there is not", ATTEND(",\"stage\":\"late\""), 400, "invalid_value", NULL, NULL},
    {"a stage as a number", ATTEND(",\"stage\":1"), 400, "invalid_type", NULL, NULL},
    {"a negative softcap", ATTEND(",\"softcap\":-1"), 400, "invalid_value", NULL, NULL},
    {"softcap 1e-50", ATTEND(",\"softcap\":1e-50"), 422, "number_out_of_range", NULL, NULL},
    {"softcap beyond bounds", ATTEND(",\"softcap\":1e30"), 422, "number_out_of_range", NULL, NULL},
    {"a window of no keys", ATTEND(",\"sliding_window\":0"), 422, "number_out_of_range", NULL,
     NULL},
    {"a window below -1", ATTEND(",\"sliding_window\":[-2,0]"), 422, "number_out_of_range", NULL,
     NULL},
    {"a window of one side", ATTEND(",\"sliding_window\":[1]"), 422, "shape_mismatch", NULL, NULL},
    {"a window of three sides", ATTEND(",\"sliding_window\":[1,2,3]"), 422, "shape_mismatch", NULL,
     NULL},
    {"a window with a fraction", ATTEND(",\"sliding_window\":1.5"), 400, "invalid_type", NULL,
     NULL},
    {"heads as a number", ATTEND(WEIGHTS ",\"heads\":0"), 400, "invalid_type", NULL, NULL},
    {"heads as a string", ATTEND(WEIGHTS ",\"heads\":\"0\""), 400, "invalid_type", NULL, NULL},
    {"half a head", ATTEND(WEIGHTS ",\"heads\":[0.5]"), 400, "invalid_type", NULL, NULL},
    {"no heads", ATTEND(WEIGHTS ",\"heads\":[]"), 400, "invalid_value", NULL, NULL},
    {"a negative head", ATTEND(WEIGHTS ",\"heads\":[-1]"), 422, "number_out_of_range", NULL, NULL},
    {"a third head", ATTEND(WEIGHTS ",\"heads\":[0,2]"), 422, "number_out_of_range", NULL, NULL},
    {"head 2^64", ATTEND(WEIGHTS ",\"heads\":[18446744073709551616]"), 422, "number_out_of_range",
     NULL, NULL},
    {"a head twice", ATTEND(WEIGHTS ",\"heads\":[1,1]"), 422, "number_out_of_range", NULL, NULL},
    {"heads in two dimensions", ATTEND(WEIGHTS ",\"heads\":[[0],[1]]"), 422, "shape_mismatch", NULL,
     NULL},
    {"a third row", ATTEND(WEIGHTS ",\"rows\":[2]"), 422, "number_out_of_range", NULL, NULL},
    {"a row twice", ATTEND(WEIGHTS ",\"rows\":[0,1,0]"), 422, "number_out_of_range", NULL, NULL},
    {"no wanted rows", ATTEND(WEIGHTS ",\"rows\":[]"), 400, "invalid_value", NULL, NULL},
    {"a second row of a step", STEP(WEIGHTS ",\"rows\":[1]"), 422, "number_out_of_range", NULL,
     NULL},
    {"a fifth head of a step", STEP(WEIGHTS ",\"heads\":[4]"), 422, "number_out_of_range", NULL,
     NULL},
    {"top_k 0", ATTEND(WEIGHTS ",\"top_k\":0"), 400, "invalid_value", NULL, NULL},
    {"a negative top_k", STEP(WEIGHTS ",\"top_k\":-1"), 400, "invalid_value", NULL, NULL},
    {"top_k with a fraction", ATTEND(WEIGHTS ",\"top_k\":1.5"), 400, "invalid_type", NULL, NULL},
    {"top_k as a list", ATTEND(WEIGHTS ",\"top_k\":[1]"), 400, "invalid_type", NULL, NULL},
    {"average_heads as 1", ATTEND(WEIGHTS ",\"average_heads\":1"), 400, "invalid_type", NULL, NULL},
    {"a negative local_radius", ATTEND(",\"outputs\":[\"head_stats\"],\"local_radius\":-1"), 400,
     "invalid_value", NULL, NULL},
    {"a local_radius beyond bounds",
     ATTEND(",\"outputs\":[\"head_stats\"],\"local_radius\":2000000"), 400, "invalid_value", NULL,
     NULL},
    {"a tree of three over one row", STEP(",\"attention_mask\":[[1,0,0],[1,1,0],[1,0,1]]"), 422,
     "shape_mismatch", NULL, NULL},
    {"scale as a string", ATTEND(",\"scale\":\"1\""), 400, "invalid_type", NULL, NULL},
    {"outputs as a string", ATTEND(",\"outputs\":\"output\""), 400, "invalid_type", NULL, NULL},
    {"no outputs", ATTEND(",\"outputs\":[]"), 400, "invalid_value", NULL, NULL},
    {"an unknown output", ATTEND(",\"outputs\":[\"logits\"]"), 400, "invalid_value", NULL, NULL},
    {"an output twice", ATTEND(",\"outputs\":[\"lse\",\"lse\"]"), 400, "invalid_value", NULL, NULL},
    {"an output as a number", ATTEND(",\"outputs\":[1]"), 400, "invalid_type", NULL, NULL},
    {"rows as a string", HIDDEN("\"12345678\""), 400, "invalid_type", NULL, NULL},
    {"rows as a number", HIDDEN("7"), 400, "invalid_type", NULL, NULL},
    {"rows as true", HIDDEN("true"), 400, "invalid_type", NULL, NULL},
    {"an element as a string", HIDDEN("[[\"1\",2,3,4,5,6,7,8]]"), 400, "invalid_type", NULL, NULL},
    {"an element null", HIDDEN("[[null,2,3,4,5,6,7,8]]"), 400, "invalid_type", NULL, NULL},
    {"an element true", HIDDEN("[[true,2,3,4,5,6,7,8]]"), 400, "invalid_type", NULL, NULL},
    {"padding_mask with 2", ATTEND(",\"padding_mask\":[1,2]"), 400, "invalid_value", NULL, NULL},
    {"padding_mask with a half", ATTEND(",\"padding_mask\":[1,0.5]"), 400, "invalid_type", NULL,
     NULL},
    {"padding_mask with null", ATTEND(",\"padding_mask\":[1,null]"), 400, "invalid_type", NULL,
     NULL},
    {"position_ids with a half", ATTEND(",\"position_ids\":[0,0.5]"), 400, "invalid_type", NULL,
     NULL},
    {"a negative position id", "/attend",
     "{\"model\":\"tiny\",\"hidden_states\":[" ROW16 "],\"position_ids\":[-1]}", 422,
     "number_out_of_range", NULL, NULL},
    {"position id 2^31", "/attend",
     "{\"model\":\"tiny\",\"hidden_states\":[" ROW16 "],\"position_ids\":[2147483648]}", 422,
     "number_out_of_range", NULL, NULL},
    {"position id 2^64", ATTEND(",\"position_ids\":[0,18446744073709551616]"), 422,
     "number_out_of_range", NULL, NULL},
    {"query_offset as a string", ATTEND(",\"query_offset\":\"0\""), 400, "invalid_type", NULL,
     NULL},

    /* Shapes. */
    {"ragged rows", HIDDEN("[" ROW8 ",[1,2,3]]"), 422, "shape_mismatch", NULL, NULL},
    {"a row that is a number", HIDDEN("[" ROW8 ",5]"), 422, "shape_mismatch", NULL, NULL},
    {"a number that is a row", HIDDEN("[[1,[2],3,4,5,6,7,8]]"), 422, "shape_mismatch", NULL, NULL},
    {"ragged batches", HIDDEN("[[" ROW8 "],[" ROW8 "," ROW8 "]]"), 422, "shape_mismatch", NULL,
     NULL},
    {"an empty array", HIDDEN("[]"), 422, "shape_mismatch", NULL, NULL},
    {"an empty row", HIDDEN("[[]]"), 422, "shape_mismatch", NULL, NULL},
    {"an empty batch", HIDDEN("[[],[]]"), 422, "shape_mismatch", NULL, NULL},
    {"one dimension", HIDDEN(ROW8), 422, "shape_mismatch", NULL, NULL},
    {"four dimensions", HIDDEN("[[[" ROW8 "]]]"), 422, "shape_mismatch", NULL, NULL},
    {"five dimensions", HIDDEN("[[[[" ROW8 "]]]]"), 422, "shape_mismatch", NULL, NULL},
    {"rows too narrow", HIDDEN("[[1,2,3,4,5,6,7]]"), 422, "shape_mismatch", NULL, NULL},
    {"rows too wide", HIDDEN("[[1,2,3,4,5,6,7,8,9]]"), 422, "shape_mismatch", NULL, NULL},
    {"keys of another batch", ATTEND(",\"encoder_hidden_states\":[[" ROW8 "]]"), 422,
     "shape_mismatch", NULL, NULL},
    {"values of another length",
     ATTEND(",\"key_hidden_states\":[" ROW8 "," ROW8 "],\"value_hidden_states\":[" ROW8 "]"), 422,
     "shape_mismatch", NULL, NULL},
    {"padding_mask of another length", ATTEND(",\"padding_mask\":[1,1,1]"), 422, "shape_mismatch",
     NULL, NULL},
    {"padding_mask of another batch", ATTEND(",\"padding_mask\":[[1,1],[1,1]]"), 422,
     "shape_mismatch", NULL, NULL},
    {"attention_mask of one dimension", ATTEND(",\"attention_mask\":[1,1]"), 422, "shape_mismatch",
     NULL, NULL},
    {"attention_mask of another size", ATTEND(",\"attention_mask\":[[1,1,1],[1,1,1]]"), 422,
     "shape_mismatch", NULL, NULL},
    {"attention_mask of three heads",
     ATTEND(",\"attention_mask\":[[[[1,1],[1,1]],[[1,1],[1,1]],[[1,1],[1,1]]]]"), 422,
     "shape_mismatch", NULL, NULL},
    {"attention_bias of one dimension", ATTEND(",\"attention_bias\":[0,0]"), 422, "shape_mismatch",
     NULL, NULL},
    {"attention_bias of three heads",
     ATTEND(",\"attention_bias\":[[[0,0],[0,0]],[[0,0],[0,0]],[[0,0],[0,0]]]"), 422,
     "shape_mismatch", NULL, NULL},
    {"head_mask of three heads", ATTEND(",\"head_mask\":[1,1,1]"), 422, "shape_mismatch", NULL,
     NULL},
    {"position_ids of another length", ATTEND(",\"position_ids\":[0,1,2]"), 422, "shape_mismatch",
     NULL, NULL},
    {"query_offset of another batch", ATTEND(",\"query_offset\":[0,0]"), 422, "shape_mismatch",
     NULL, NULL},
    {"a query of two dimensions", CORE("[[1]]", "[[[1]]]", "[[[1]]]"), 422, "shape_mismatch", NULL,
     NULL},
    {"three heads over two", CORE("[[[1]],[[1]],[[1]]]", "[[[1]],[[1]]]", "[[[1]],[[1]]]"), 422,
     "shape_mismatch", NULL, NULL},
    {"keys of another width", CORE("[[[1,2]]]", "[[[1]]]", "[[[1]]]"), 422, "shape_mismatch", NULL,
     NULL},
    {"more values than keys", CORE("[[[1]]]", "[[[1]]]", "[[[1],[2]]]"), 422, "shape_mismatch",
     NULL, NULL},
    {"an empty query", CORE("[[[]]]", "[[[]]]", "[[[1]]]"), 422, "shape_mismatch", NULL, NULL},
    {"positions without a layer", "/attend",
     "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[1]]],\"position_ids\":[0]}", 422,
     "unsupported", NULL, NULL},
    {"cross-attention over RoPE", "/attend",
     "{\"model\":\"tiny\",\"hidden_states\":[" ROW16 "],\"encoder_hidden_states\":[" ROW16 "]}",
     422, "unsupported", NULL, NULL},

    /* The flat form. */
    {"flat without shape", HIDDEN("{\"data\":[1,2,3,4,5,6,7,8]}"), 400, "missing_field", NULL,
     NULL},
    {"flat without data", HIDDEN("{\"shape\":[1,8]}"), 400, "missing_field", NULL, NULL},
    {"flat with too little data", HIDDEN("{\"shape\":[1,8],\"data\":[1,2,3]}"), 422,
     "shape_mismatch", NULL, NULL},
    {"flat with nested data", HIDDEN("{\"shape\":[1,8],\"data\":[[1,2,3,4,5,6,7,8]]}"), 422,
     "shape_mismatch", NULL, NULL},
    {"flat with an unknown member", HIDDEN("{\"shape\":[1,8],\"offset\":32}"), 400, "unknown_field",
     NULL, NULL},
    {"flat with data twice", HIDDEN("{\"data\":[1],\"data\":[1],\"shape\":[1,1]}"), 400,
     "duplicate_field", NULL, NULL},
    {"flat with an unknown datatype",
     HIDDEN("{\"shape\":[1,8],\"datatype\":\"FP8\",\"data\":" ROW8 "}"), 400, "invalid_value", NULL,
     NULL},
    {"flat with a negative dimension", HIDDEN("{\"shape\":[-1,-8],\"data\":" ROW8 "}"), 400,
     "invalid_value", NULL, NULL},
    {"flat with a shape that wraps",
     HIDDEN("{\"shape\":[4294967296,4294967296,8],\"data\":" ROW8 "}"), 422, "shape_mismatch", NULL,
     NULL},
    {"flat with five dimensions", HIDDEN("{\"shape\":[1,1,1,1,8],\"data\":" ROW8 "}"), 422,
     "shape_mismatch", NULL, NULL},

    /* Sizes. */
    {"arrays without end", "/attend", NULL, 413, "too_complex", NULL, make_deep_arrays},
    {"objects without end", "/attend", NULL, 400, "unknown_field", NULL, make_deep_objects},
    {"too many tokens", "/attend", NULL, 422, "too_many_tokens", NULL, make_many_tokens},
    {"too many rows of a step", "/decode", NULL, 422, "too_many_tokens", NULL, make_many_step_rows},
    {"too large a reply", "/attend", NULL, 422, "reply_too_large", NULL, make_large_reply},
    {"too large a body", "/attend", NULL, 413, "body_too_large", NULL, make_large_body},
    {"too large a document", "/sessions", NULL, 413, "too_complex", NULL, make_large_document},

    /* Sessions. */
    {"an empty id", ID("\"\""), 400, "invalid_value", NULL, NULL},
    {"an id of 65 letters", ID("\"" ID65 "\""), 400, "invalid_value", NULL, NULL},
    {"an id that climbs", ID("\"../../etc/passwd\""), 400, "invalid_value", NULL, NULL},
    {"an id with a slash", ID("\"a/b\""), 400, "invalid_value", NULL, NULL},
    {"an id with a point first", ID("\".witness\""), 400, "invalid_value", NULL, NULL},
    {"an id with a blank", ID("\"wit ness\""), 400, "invalid_value", NULL, NULL},
    {"an id beyond ASCII", ID("\"w\xc3\xaftness\""), 400, "invalid_value", NULL, NULL},
    {"an id with a percent sign", ID("\"%2e%2e\""), 400, "invalid_value", NULL, NULL},
    {"an id as a number", ID("7"), 400, "invalid_type", NULL, NULL},
    {"an unknown session", ID("\"nobody\""), 404, "session_not_found", NULL, NULL},
    {"start of a live session", STEP(",\"start\":true"), 409, "session_exists", NULL, NULL},
    {"a negative position", STEP(",\"position\":-1"), 400, "invalid_value", NULL, NULL},
    {"half a position", STEP(",\"position\":0.5"), 400, "invalid_type", NULL, NULL},
    {"position 2^63", STEP(",\"position\":9223372036854775808"), 422, "number_out_of_range", NULL,
     NULL},
    {"position 2^63-1", STEP(",\"position\":9223372036854775807"), 409, "position_gap", NULL, NULL},
    {"another epoch", STEP(",\"epoch\":1"), 409, "epoch_mismatch", NULL, NULL},
    {"a row too short", "/decode",
     "{\"model\":\"tiny\",\"session_id\":\"witness\",\"hidden_states\":[1,2]}", 422,
     "shape_mismatch", NULL, NULL},
    {"two sequences in one session", "/decode",
     "{\"model\":\"tiny\",\"session_id\":\"witness\",\"hidden_states\":[[" ROW16 "],[" ROW16 "]]}",
     422, "shape_mismatch", NULL, NULL},
    {"a row beyond float32", "/decode",
     "{\"model\":\"tiny\",\"session_id\":\"witness\",\"hidden_states\":"
     "[3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38,3e38]}",
     422, "numeric_overflow", NULL, NULL},
    {"a prefill with another model", "/attend",
     "{\"model\":\"plain\",\"session_id\":\"witness\",\"hidden_states\":[" ROW8 "]}", 409,
     "model_mismatch", NULL, NULL},

    /* Lists. */
    {"sequences as an object", ITEM("{}"), 400, "invalid_type", NULL, NULL},
    {"no sequences", ITEM("[]"), 400, "invalid_value", NULL, NULL},
    {"a sequence as a number", ITEM("[1]"), 400, "invalid_type", NULL, NULL},
    {"a sequence without session", ITEM("[{\"hidden_states\":" ROW16 "}]"), 400, "missing_field",
     NULL, NULL},
    {"a sequence with an unknown field", ITEM("[{\"session_id\":\"witness\",\"model\":\"tiny\"}]"),
     400, "unknown_field", NULL, NULL},
    {"sequences in a sequence", ITEM("[{\"sequences\":[]}]"), 400, "unknown_field", NULL, NULL},
    {"rows beside sequences",
     ITEM("[{\"session_id\":\"witness\",\"hidden_states\":" ROW16 "}],\"hidden_states\":" ROW16),
     400, "invalid_value", NULL, NULL},
    {"too many sequences",
     ITEM("[{\"session_id\":\"a\",\"hidden_states\":[1]},{\"session_id\":\"b\",\"hidden_states\":"
          "[1]},{\"session_id\":\"c\",\"hidden_states\":[1]},{\"session_id\":\"d\","
          "\"hidden_states\":[1]},{\"session_id\":\"e\",\"hidden_states\":[1]}]"),
     413, "too_complex", NULL, NULL},

    /* POST /sessions. */
    {"a session as a list", "/sessions", "[]", 400, "malformed_json", NULL, NULL},
    {"a session with an unknown field", "/sessions", "{\"model\":\"tiny\",\"size\":1}", 400,
     "unknown_field", NULL, NULL},
    {"a session with a field twice", "/sessions", "{\"model\":\"tiny\",\"model\":\"tiny\"}", 400,
     "duplicate_field", NULL, NULL},
    {"a session id as a number", "/sessions", "{\"model\":\"tiny\",\"session_id\":1}", 400,
     "invalid_type", NULL, NULL},
    {"a session of length -1", "/sessions", "{\"model\":\"tiny\",\"max_length\":-1}", 400,
     "invalid_value", NULL, NULL},
    {"a session of half a length", "/sessions", "{\"model\":\"tiny\",\"max_length\":1.5}", 400,
     "invalid_type", NULL, NULL},
    {"a session of length 2^64", "/sessions",
     "{\"model\":\"tiny\",\"max_length\":18446744073709551616}", 422, "number_out_of_range", NULL,
     NULL},
    {"a session that exists", "/sessions", "{\"model\":\"tiny\",\"session_id\":\"witness\"}", 409,
     "session_exists", NULL, NULL},

    /* Paths, methods, headers. */
    {"an unknown path", "/attention", "{}", 404, "route_not_found", NULL, NULL},
    {"a slash at the end", "/decode/", "{}", 404, "route_not_found", NULL, NULL},
    {"two slashes", "//decode", "{}", 404, "route_not_found", NULL, NULL},
    {"an encoded path", "/%64ecode", "{}", 404, "route_not_found", NULL, NULL},
    {"a path that climbs", "GET /sessions/../models", NULL, 404, "route_not_found", NULL, NULL},
    {"an unknown session's path", "DELETE /sessions/nobody", NULL, 404, "session_not_found", NULL,
     NULL},
    {"GET of a POST route", "GET /decode", NULL, 405, "method_not_allowed", NULL, NULL},
    {"PUT", "PUT /sessions", "{}", 405, "method_not_allowed", NULL, NULL},
    {"OPTIONS", "OPTIONS /attend", NULL, 405, "method_not_allowed", NULL, NULL},
    {"a body for GET", "GET /models", "{}", 400, "bad_request", NULL, NULL},
    {"another content type", ATTEND(""), 415, "unsupported_media_type", "Content-Type: text/plain",
     NULL},
    {"no content type", ATTEND(""), 415, "unsupported_media_type", "Content-Type:", NULL},
    {"two content types in one", ATTEND(""), 415, "unsupported_media_type",
     "Content-Type: application/json, text/plain", NULL},
    {"bytes for a route without tensors", "/sessions", "{\"model\":\"tiny\"}", 415,
     "unsupported_media_type", "Content-Type: application/octet-stream", NULL},
    {"bytes of unknown framing", ATTEND(""), 400, "bad_request",
     "Content-Type: application/octet-stream", NULL},
    {"a binary tensor without framing",
     HIDDEN("{\"shape\":[1,8],\"datatype\":\"FP32\",\"binary_data_size\":32}"), 400,
     "invalid_value", NULL, NULL},
    {"a binary reply of an item", ITEM("[{\"binary_output\":true}]"), 400, "unknown_field", NULL,
     NULL},
    {"a binary reply as 1", ATTEND(",\"binary_output\":1"), 400, "invalid_type", NULL, NULL},
    {"an Accept that excludes both", ATTEND(""), 406, "not_acceptable",
     "Accept: application/octet-stream;q=0", NULL},
    {"a compressed body", ATTEND(""), 415, "unsupported_media_type", "Content-Encoding: br", NULL},
    {"an Accept that excludes", ATTEND(""), 406, "not_acceptable", "Accept: text/html", NULL},
    {"an Accept that forbids", ATTEND(""), 406, "not_acceptable",
     "Accept: */*;q=1, application/json;q=0", NULL},
    {"a session header that is no id", STEP(""), 400, "invalid_value", "X-Session-Id: a/b", NULL},
    {"a session header of another id", STEP(""), 400, "invalid_value", "X-Session-Id: other", NULL},
};
const size_t bad_case_count = sizeof bad_cases / sizeof bad_cases[0];
