/* text.c: a growing text and tensors in it. */
#include "text.h"

#include <check.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(struct text *text, size_t bytes)
{
    if (text->capacity - text->length > bytes)
        return;
    text->capacity = 2 * text->capacity + bytes + 256;
    text->data = realloc(text->data, text->capacity);
    ck_assert_ptr_nonnull(text->data);
}

void text_add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    reserve(text, (size_t)length);
    va_start(args, format);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

void text_bytes(struct text *text, const void *bytes, size_t count)
{
    reserve(text, count);
    if (count > 0)
        memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

/* How to write element i of `data`. */
struct elements {
    const void *data;
    void (*write)(struct text *text, const struct elements *elements, size_t i);
    int digits;
    bool words;
};

static void write_float(struct text *text, const struct elements *elements, size_t i)
{
    float x = ((const float *)elements->data)[i];
    if (isinf(x) && x < 0)
        text_add(text, "null");
    else
        text_add(text, "%.*g", elements->digits, (double)x);
}

static void write_integer(struct text *text, const struct elements *elements, size_t i)
{
    text_add(text, "%lld", (long long)((const int64_t *)elements->data)[i]);
}

static void write_flag(struct text *text, const struct elements *elements, size_t i)
{
    bool flag = ((const uint8_t *)elements->data)[i];
    if (elements->words)
        text_add(text, flag ? "true" : "false");
    else
        text_add(text, flag ? "1" : "0");
}

/* Writes the array of the first dimension; returns the index after its last element. */
static size_t write_array(struct text *text, const struct elements *elements, size_t i, size_t rank,
                          const size_t *shape)
{
    text_add(text, "[");
    for (size_t n = 0; n < shape[0]; n++) {
        if (n > 0)
            text_add(text, ",");
        if (rank > 1)
            i = write_array(text, elements, i, rank - 1, shape + 1);
        else
            elements->write(text, elements, i++);
    }
    text_add(text, "]");
    return i;
}

void text_floats(struct text *text, const float *data, int digits, size_t rank, const size_t *shape)
{
    struct elements elements = {.data = data, .write = write_float, .digits = digits};
    write_array(text, &elements, 0, rank, shape);
}

void text_integers(struct text *text, const int64_t *data, size_t rank, const size_t *shape)
{
    struct elements elements = {.data = data, .write = write_integer};
    write_array(text, &elements, 0, rank, shape);
}

void text_flags(struct text *text, const uint8_t *data, bool words, size_t rank,
                const size_t *shape)
{
    struct elements elements = {.data = data, .write = write_flag, .words = words};
    write_array(text, &elements, 0, rank, shape);
}

void text_flat(struct text *text, const float *data, size_t rank, const size_t *shape)
{
    size_t count = 1;
    text_add(text, "{\"shape\":[");
    for (size_t i = 0; i < rank; i++) {
        text_add(text, i > 0 ? ",%zu" : "%zu", shape[i]);
        count *= shape[i];
    }
    text_add(text, "],\"datatype\":\"FP32\",\"data\":");
    text_floats(text, data, 9, 1, &count);
    text_add(text, "}");
}

void make_numbers(float *out, size_t n, unsigned seed)
{
    uint64_t state = (uint64_t)seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out[i] = (float)((double)(state >> 40) / (double)(1 << 23) - 1);
    }
}
