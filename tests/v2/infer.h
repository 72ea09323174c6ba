/* infer.h: calls of /attend as infer requests of the Open Inference Protocol, byte for byte as its
 * clients send them, and their replies as those of /attend.
 *
 * A test writes its call once, as the JSON of /attend, and compares the answers of both. */
#ifndef TESTS_V2_INFER_H
#define TESTS_V2_INFER_H

#include <jansson.h>
#include <stdbool.h>

#include "binary.h"
#include "raw.h"
#include "text.h"

/* The clients whose heads are imitated. */
enum v2_client {
    V2_SYNC,    /* tritonclient.http: names of fields in lower case, no media type */
    V2_ASYNCIO, /* tritonclient.http.aio: octet-stream on any body, accepts codings */
    V2_CURL,    /* curl -d: a form's media type, a query */
    V2_CLIENTS
};

enum v2_outputs {
    V2_DEFAULT, /* as `outputs` left out: binary_data_output */
    V2_BINARY,  /* each with binary_data true */
    V2_JSON,    /* each with binary_data false */
    V2_MIXED,   /* the first as bytes, those that say nothing as JSON */
    V2_OUTPUTS
};

enum v2_coding { V2_PLAIN, V2_GZIP, V2_DEFLATE, V2_CODINGS };

struct v2_form {
    enum v2_client client;
    enum v2_outputs outputs;
    enum v2_coding coding; /* of the request's body */
    bool binary;           /* inputs are bytes */
    bool backwards;        /* inputs have "data" before "name" */
    bool version;          /* the path names version 1 */
    const char *id;        /* NULL: none */
    const char *extra;     /* further parameters, each followed by a comma; NULL: none */
};

/* The head of a request with a body of `length` bytes; SIZE_MAX: neither body nor length. */
void v2_head(struct text *out, enum v2_client client, const char *method, const char *path,
             size_t length, const char *fields);

/* Adds the request that makes the call `native`, a body of /attend. */
void v2_request(struct text *out, const char *native, const struct v2_form *form);

/* Checks an infer reply, and returns it as the body of /attend would be: outputs by their names.
 * The caller's to json_decref. */
json_t *v2_reply(const struct raw_answer *answer, const struct v2_form *form, const char *what);

/* The text of an error in the protocol's form; fails unless the answer is one, with this status and
 * code. */
void v2_expect_error(const struct raw_answer *answer, unsigned status, const char *code,
                     const char *what);

#endif
