/* text.h: request bodies, put together piece by piece. */
#ifndef TESTS_HTTP_TEXT_H
#define TESTS_HTTP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data; /* NUL-terminated once something was added */
    size_t length, capacity;
};

/* Rank and shape as two arguments: SHAPE(2, 3). */
#define SHAPE(...) \
    sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), (const size_t[]) { __VA_ARGS__ }

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_bytes(struct text *text, const void *bytes, size_t count);
void text_free(struct text *text);

/* Adds nested arrays of the shape.  -infinity is written as null. */
void text_floats(struct text *text, const float *data, int digits, size_t rank,
                 const size_t *shape);
void text_integers(struct text *text, const int64_t *data, size_t rank, const size_t *shape);

/* Adds flags as true and false (words) or 1 and 0. */
void text_flags(struct text *text, const uint8_t *data, bool words, size_t rank,
                const size_t *shape);

/* Adds {"shape":[..],"datatype":"FP32","data":[..]}. */
void text_flat(struct text *text, const float *data, size_t rank, const size_t *shape);

/* Makes `n` numbers between -1 and 1 that depend on the seed alone. */
void make_numbers(float *out, size_t n, unsigned seed);

#endif
