/* binary.h: calls and answers in binary form, made from their JSON and turned back into it.
 *
 * A test writes its call once, as JSON, and any call can be sent in either form. */
#ifndef TESTS_HTTP_BINARY_H
#define TESTS_HTTP_BINARY_H

#include "client.h"
#include "text.h"

#define JSON_LENGTH "Inference-Header-Content-Length"

/* The datatype of numbers.  Floats have this one; integers are INT64 with FP32 and INT32 with the
 * others; masks are BOOL.  Each number must be exact in FP16 and BF16. */
enum binary_type { AS_FP32, AS_FP16, AS_BF16 };

/* The kind of a field that is a tensor: 'f' floats, 'b' flags, 'i' integers; else a NUL. */
char binary_kind(const char *name);

/* Adds the bytes of a number or of nested arrays of them. */
void binary_elements(struct text *bytes, const json_t *value, char kind, enum binary_type type);

/* Adds `json` with each tensor as bytes, and `padding` blanks between JSON and bytes; returns the
 * length of the JSON with the blanks. */
size_t binary_body(struct text *out, const char *json, enum binary_type type, size_t padding);

/* POSTs a body, the first `json_length` bytes of which are JSON.  `header`: one more field, or
 * NULL. */
struct answer binary_send(struct client *client, const char *path, const struct text *body,
                          size_t json_length, const char *header);

/* Sends what binary_body makes. */
struct answer binary_post(struct client *client, const char *path, const char *json,
                          enum binary_type type, size_t padding, const char *header);

/* Fails unless the answer is a success in binary form, whose bytes begin at a multiple of 64;
 * answer->json becomes the JSON that says the same.  A UINT8 tensor becomes an object of its bytes
 * with their minimum and maximum. */
void binary_decode(struct answer *answer, const char *what);

/* Fails unless both answers hold the same members and numbers, bit for bit as float32. */
void expect_same_answers(const struct answer *got, const struct answer *want, const char *what);

#endif
