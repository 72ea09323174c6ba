/* tensors.h: the tensors of answers, and comparing them. */
#ifndef TESTS_HTTP_TENSORS_H
#define TESTS_HTTP_TENSORS_H

#include <jansson.h>
#include <stddef.h>

#include "client.h"
#include "text.h"

/* Returns the tensor `name` of the object, which must have exactly this shape; null is -infinity.
 * The caller frees it. */
float *tensor_of(const json_t *object, const char *name, size_t rank, const size_t *shape);

/* Fails unless |got - want| <= tolerance * max(1, |want|) for all of the `count` elements; equal
 * infinities agree, NaN never does. */
void expect_close(const char *what, const float *got, const float *want, size_t count,
                  double tolerance);

/* Returns the member as a text that tells any two bit patterns apart; "" where there is none.  The
 * caller frees it. */
char *exact_text(const json_t *object, const char *name);

/* Fails unless both objects hold the member, with the same bits. */
void expect_same(const char *what, const json_t *got, const json_t *want, const char *name);

#endif
