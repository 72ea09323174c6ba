/* binary.h: calls and answers in binary form, made from their JSON and turned back into it.
 *
 * So a test says what it asks once, as JSON, and any form of call can be sent either way. */
#ifndef TESTS_HTTP_BINARY_H
#define TESTS_HTTP_BINARY_H

#include "client.h"
#include "text.h"

#define JSON_LENGTH "Inference-Header-Content-Length"

/* How numbers are put: floats so, integers INT64 beside FP32 and INT32 beside the others, masks
 * BOOL.  For FP16 and BF16 each number must be one. */
enum binary_type { AS_FP32, AS_FP16, AS_BF16 };

/* `json` with each tensor as bytes and `padding` blanks between JSON and bytes; returns the length
 * of the JSON with the blanks. */
size_t binary_body(struct text *out, const char *json, enum binary_type type, size_t padding);

/* POSTs `length` bytes the first `json_length` of which are JSON.  `header`: one more, or NULL. */
struct answer binary_send(struct client *client, const char *path, const struct text *body,
                          size_t json_length, const char *header);

/* binary_body, sent. */
struct answer binary_post(struct client *client, const char *path, const char *json,
                          enum binary_type type, size_t padding, const char *header);

/* Fails unless the answer is a good one in binary form; puts the JSON that says the same into
 * answer->json. */
void binary_decode(struct answer *answer, const char *what);

/* Fails unless both hold the same members and numbers, bit for bit as float32. */
void expect_same_answers(const struct answer *got, const struct answer *want, const char *what);

#endif
