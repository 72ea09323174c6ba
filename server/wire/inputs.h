/* inputs.h: tensors that are kept for calls to come.
 *
 * A caller that asks much of the same rows sends them once (PUT /inputs/{digest}); its calls then
 * name the digest where a tensor of numbers stands, {"input":"9f86d0..."}.  The table holds what
 * PUT has brought, up to `inputs_bytes`, each as long as it is used within SRV_INPUT_TTL_S.  An
 * input belongs to the API key that has sent it; no other key finds it.
 *
 * Where there is no room, the input goes that was used longest ago of the key that holds most, so
 * that nobody's inputs drive out those of a key that keeps less.  A request holds its inputs until
 * its reply is written; one that goes meanwhile is freed after that, and takes room until then. */
#ifndef SRV_INPUTS_H
#define SRV_INPUTS_H

#include "wire/request.h"
#include "wire/tensor.h"

#define SRV_INPUT_DIGEST 64     /* hexadecimal digits of a SHA-256, in lower case */
#define SRV_INPUT_OVERHEAD 4096 /* bytes of room that an input takes beside its numbers */

struct srv_inputs;

/* A table for `limit` bytes; NULL where there is no memory.  All functions: any thread. */
struct srv_inputs *srv_inputs_open(size_t limit);
void srv_inputs_close(struct srv_inputs *inputs); /* once no request is left */

/* Keeps a copy of the tensor, of floats, under its digest for the request's key; one that is there
 * already is used anew.  Errors: body_too_large (more than `limit` in all), out_of_memory. */
enum srv_error_code srv_inputs_keep(struct srv_request *request, const char *digest,
                                    const struct srv_tensor *tensor, struct srv_error *error);

/* The tensor that the request's key has kept under the digest, which the request holds until it is
 * released.  Errors, for `param`: input_not_found, unsupported (`request` is NULL),
 * out_of_memory. */
enum srv_error_code srv_inputs_find(struct srv_tensor *out, struct srv_request *request,
                                    const char *digest, const char *param, struct srv_error *error);

/* Gives up the inputs that the request holds. */
void srv_inputs_release(struct srv_request *request);

/* Drops what was not used for SRV_INPUT_TTL_S. */
void srv_inputs_expire(struct srv_inputs *inputs, uint64_t now_ns);

/* Bytes of room that inputs take, those that requests still hold too. */
size_t srv_inputs_bytes(struct srv_inputs *inputs);

#endif
