/* bad_bytes.c: binary bodies that must be refused: framing, descriptions, sizes, datatypes and
 * values.
 *
 * Where the bytes are NULL they are zeros, which every datatype has.  The model `plain` takes rows
 * of 8 (2 heads), `tiny` of 16. */
#include "bad_cases.h"

#define T(shape, type, size) \
    "{\"shape\":[" shape "],\"datatype\":\"" type "\",\"binary_data_size\":" size "}"
#define HIDDEN(tensor) "/attend", "{\"model\":\"plain\",\"hidden_states\":" tensor "}"
#define ROW T("1,8", "FP32", "32")
#define ATTEND(rest) "/attend", "{\"model\":\"plain\",\"hidden_states\":" ROW rest "}"
#define STEP(rest)                                                                                \
    "/decode",                                                                                    \
        "{\"model\":\"tiny\",\"session_id\":\"witness\",\"hidden_states\":" T("16", "FP32", "64") \
            rest "}"
#define LENGTH(value) "Inference-Header-Content-Length: " value
#define ZEROS28 "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define ZEROS14 "\0\0\0\0\0\0\0\0\0\0\0\0\0\0"

const struct bad_binary bad_binaries[] = {
    /* Where the JSON ends. */
    {"no header", ATTEND(""), NULL, 32, 400, "bad_request", "", NULL},
    {"an empty header", ATTEND(""), NULL, 32, 400, "bad_request",
     "Inference-Header-Content-Length;", NULL},
    {"a negative header", ATTEND(""), NULL, 32, 400, "bad_request", LENGTH("-1"), NULL},
    {"a header with a sign", ATTEND(""), NULL, 32, 400, "bad_request", LENGTH("+88"), NULL},
    {"a header with a fraction", ATTEND(""), NULL, 32, 400, "bad_request", LENGTH("88.0"), NULL},
    {"a hexadecimal header", ATTEND(""), NULL, 32, 400, "bad_request", LENGTH("0x58"), NULL},
    {"a header of two numbers", ATTEND(""), NULL, 32, 400, "bad_request", LENGTH("88, 88"), NULL},
    {"a header of words", ATTEND(""), NULL, 32, 400, "bad_request", LENGTH("all"), NULL},
    {"a header of 2^64", ATTEND(""), NULL, 32, 400, "bad_request", LENGTH("18446744073709551616"),
     NULL},
    {"a header of 2^64 - 1", ATTEND(""), NULL, 32, 400, "bad_request",
     LENGTH("18446744073709551615"), NULL},
    {"a header twice", ATTEND(""), NULL, 32, 400, "bad_request", NULL, LENGTH("1")},
    {"a header beyond the body", ATTEND(""), NULL, 32, 400, "bad_request", LENGTH("1000"), NULL},
    {"a header of 0", ATTEND(""), NULL, 32, 400, "malformed_json", LENGTH("0"), NULL},
    {"a header within the JSON", ATTEND(""), NULL, 32, 400, "malformed_json", LENGTH("20"), NULL},
    {"a header behind the JSON", "/attend", "{\"model\":\"plain\"}", NULL, 32, 400,
     "malformed_json", LENGTH("20"), NULL},
    {"two content types", ATTEND(""), NULL, 32, 415, "unsupported_media_type", NULL,
     "Content-Type: text/plain"},
    {"an Accept that excludes", ATTEND(""), NULL, 32, 406, "not_acceptable", NULL,
     "Accept: text/html"},

    /* How many bytes. */
    {"no bytes", ATTEND(""), NULL, 0, 400, "bad_request", NULL, NULL},
    {"a byte too few", ATTEND(""), NULL, 31, 400, "bad_request", NULL, NULL},
    {"a byte too many", ATTEND(""), NULL, 33, 400, "bad_request", NULL, NULL},
    {"bytes of no tensor", "/attend", "{\"model\":\"plain\",\"hidden_states\":[[1,2,3,4,5,6,7,8]]}",
     NULL, 4, 400, "bad_request", NULL, NULL},
    {"too few for the second", ATTEND(",\"head_mask\":" T("2", "FP32", "8")), NULL, 36, 400,
     "bad_request", NULL, NULL},
    {"a step with bytes behind it", STEP(""), NULL, 65, 400, "bad_request", NULL, NULL},
    {"a step with too few", STEP(""), NULL, 60, 400, "bad_request", NULL, NULL},
    {"an item with too few", "/decode",
     "{\"model\":\"tiny\",\"sequences\":[{\"session_id\":\"witness\",\"hidden_states\":" T(
         "16", "FP32", "64") "},{\"session_id\":\"twin\",\"hidden_states\":" T("16", "FP32",
                                                                               "64") "}]}",
     NULL, 127, 400, "bad_request", NULL, NULL},
    {"a size below the shape's", HIDDEN(T("1,8", "FP32", "16")), NULL, 16, 422, "shape_mismatch",
     NULL, NULL},
    {"a size above the shape's", HIDDEN(T("1,8", "FP32", "64")), NULL, 64, 422, "shape_mismatch",
     NULL, NULL},
    {"a size of another datatype", HIDDEN(T("1,8", "FP16", "32")), NULL, 32, 422, "shape_mismatch",
     NULL, NULL},
    {"a shape beyond memory", HIDDEN(T("4294967296,4294967296", "FP32", "0")), NULL, 0, 422,
     "shape_mismatch", NULL, NULL},
    {"a size beyond memory", HIDDEN(T("4611686018427387904", "FP32", "0")), NULL, 0, 422,
     "shape_mismatch", NULL, NULL},
    {"a size of 2^64", HIDDEN(T("1,8", "FP32", "18446744073709551616")), NULL, 32, 422,
     "number_out_of_range", NULL, NULL},
    {"a negative size", HIDDEN(T("1,8", "FP32", "-32")), NULL, 32, 400, "invalid_value", NULL,
     NULL},
    {"half a byte", HIDDEN(T("1,8", "FP32", "31.5")), NULL, 32, 400, "invalid_type", NULL, NULL},
    {"a size in words", HIDDEN(T("1,8", "FP32", "\"32\"")), NULL, 32, 400, "invalid_type", NULL,
     NULL},
    {"no rows", HIDDEN(T("0,8", "FP32", "0")), NULL, 0, 422, "shape_mismatch", NULL, NULL},
    {"rows of another width", HIDDEN(T("1,9", "FP32", "36")), NULL, 36, 422, "shape_mismatch", NULL,
     NULL},

    /* Descriptions and datatypes. */
    {"no datatype", HIDDEN("{\"shape\":[1,8],\"binary_data_size\":32}"), NULL, 32, 400,
     "missing_field", NULL, NULL},
    {"no shape", HIDDEN("{\"datatype\":\"FP32\",\"binary_data_size\":32}"), NULL, 32, 400,
     "missing_field", NULL, NULL},
    {"no size", HIDDEN("{\"shape\":[1,8],\"datatype\":\"FP32\"}"), NULL, 32, 400, "missing_field",
     NULL, NULL},
    {"data and a size",
     HIDDEN("{\"shape\":[1],\"data\":[1],\"datatype\":\"FP32\",\"binary_data_size\":4}"), NULL, 4,
     400, "invalid_value", NULL, NULL},
    {"a size twice",
     HIDDEN("{\"binary_data_size\":32,\"shape\":[1,8],\"datatype\":\"FP32\","
            "\"binary_data_size\":32}"),
     NULL, 32, 400, "duplicate_field", NULL, NULL},
    {"parameters as the Open Inference Protocol has them",
     HIDDEN("{\"shape\":[1,8],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":32}}"),
     NULL, 32, 400, "unknown_field", NULL, NULL},
    {"doubles", HIDDEN(T("1,8", "FP64", "64")), NULL, 64, 400, "invalid_value", NULL, NULL},
    {"integers as numbers", HIDDEN(T("1,8", "INT32", "32")), NULL, 32, 400, "invalid_value", NULL,
     NULL},
    {"a datatype that there is not", HIDDEN(T("1,8", "FLOAT", "32")), NULL, 32, 400,
     "invalid_value", NULL, NULL},
    {"a mask of floats", ATTEND(",\"padding_mask\":" T("1", "FP32", "4")), NULL, 36, 400,
     "invalid_value", NULL, NULL},
    {"a mask of 64-bit integers", ATTEND(",\"padding_mask\":" T("1", "INT64", "8")), NULL, 40, 400,
     "invalid_value", NULL, NULL},
    {"positions as floats", ATTEND(",\"position_ids\":" T("1", "FP32", "4")), NULL, 36, 400,
     "invalid_value", NULL, NULL},
    {"a scalar of bytes", HIDDEN(T("", "FP32", "4")), NULL, 4, 422, "shape_mismatch", NULL, NULL},
    {"scale as a tensor", ATTEND(",\"scale\":" T("", "FP32", "4")), NULL, 36, 400, "invalid_type",
     NULL, NULL},

    /* Values. */
    {"NaN", HIDDEN(ROW), ZEROS28 "\0\0\xc0\x7f", 32, 422, "non_finite_input", NULL, NULL},
    {"a signalling NaN", HIDDEN(ROW), ZEROS28 "\x01\0\x80\x7f", 32, 422, "non_finite_input", NULL,
     NULL},
    {"infinity", HIDDEN(ROW), ZEROS28 "\0\0\x80\x7f", 32, 422, "non_finite_input", NULL, NULL},
    {"minus infinity", HIDDEN(ROW), ZEROS28 "\0\0\x80\xff", 32, 422, "non_finite_input", NULL,
     NULL},
    {"half NaN", HIDDEN(T("1,8", "FP16", "16")), ZEROS14 "\x01\x7e", 16, 422, "non_finite_input",
     NULL, NULL},
    {"half infinity", HIDDEN(T("1,8", "FP16", "16")), ZEROS14 "\0\x7c", 16, 422, "non_finite_input",
     NULL, NULL},
    {"bfloat infinity", HIDDEN(T("1,8", "BF16", "16")), ZEROS14 "\x80\xff", 16, 422,
     "non_finite_input", NULL, NULL},
    {"a bias of NaN", "/attend",
     "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[1]]],\"attention_bias\":" T("1,1", "FP32",
                                                                                  "4") "}",
     "\0\0\xc0\xff", 4, 422, "non_finite_input", NULL, NULL},
    {"a bias of infinity", "/attend",
     "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[1]]],\"attention_bias\":" T("1,1", "FP32",
                                                                                  "4") "}",
     "\0\0\x80\x7f", 4, 422, "non_finite_input", NULL, NULL},
    {"a mask of 2", ATTEND(",\"padding_mask\":" T("1", "BOOL", "1")), ZEROS28 "\0\0\0\0\x02", 33,
     400, "invalid_value", NULL, NULL},
    {"a mask of 255", ATTEND(",\"attention_mask\":" T("1,1", "BOOL", "1")), ZEROS28 "\0\0\0\0\xff",
     33, 400, "invalid_value", NULL, NULL},
    {"a head of -1", ATTEND(",\"outputs\":[\"attention_weights\"],\"heads\":" T("1", "INT32", "4")),
     ZEROS28 "\0\0\0\0\xff\xff\xff\xff", 36, 422, "number_out_of_range", NULL, NULL},
    {"a position of 2^32", ATTEND(",\"position_ids\":" T("1", "INT64", "8")),
     ZEROS28 "\0\0\0\0\0\0\0\0\x01\0\0\0", 40, 422, "number_out_of_range", NULL, NULL},
    {"NaN in a step", STEP(""), ZEROS28 ZEROS28 "\0\0\0\0\0\0\xc0\x7f", 64, 422, "non_finite_input",
     NULL, NULL},
};

const size_t bad_binary_count = sizeof bad_binaries / sizeof bad_binaries[0];
