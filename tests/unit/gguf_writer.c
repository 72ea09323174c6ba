/* gguf_writer.c: text -> the bytes of a GGUF file. */
#include "gguf_writer.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 32
#define MOST 16384 /* bytes of keys, or of tensors */

struct bytes {
    unsigned char *at;
    size_t count;
};

static void add(struct bytes *out, const void *data, size_t count)
{
    ck_assert_uint_le(out->count + count, MOST);
    memcpy(out->at + out->count, data, count);
    out->count += count;
}

static void add_number(struct bytes *out, uint64_t number, size_t bytes)
{
    add(out, &number, bytes);
}

static void add_text(struct bytes *out, const char *text, size_t length)
{
    add_number(out, length, 8);
    add(out, text, length);
}

static void add_value(struct bytes *out, const char *text, size_t length)
{
    const float number = strtof(text, NULL);
    if (text[0] == '[') {
        add_number(out, 9, 4);
        add_number(out, 7, 4);
        add_number(out, length - 2, 8);
        for (size_t i = 1; i + 1 < length; i++)
            add_number(out, text[i] == '1', 1);
    } else if (strncmp(text, "true", length) == 0 || strncmp(text, "false", length) == 0) {
        add_number(out, 7, 4);
        add_number(out, text[0] == 't', 1);
    } else if (strspn(text, "-0123456789.") < length) {
        add_number(out, 8, 4);
        add_text(out, text, length);
    } else if (memchr(text, '.', length) != NULL) {
        add_number(out, 6, 4);
        add(out, &number, sizeof number);
    } else {
        add_number(out, 4, 4);
        add_number(out, (uint64_t)number, 4);
    }
}

/* Adds the tensor's row of the header; returns the bytes of its numbers, which come after `begin`
 * others. */
static size_t add_tensor(struct bytes *out, const char *text, size_t length, size_t begin)
{
    const char *sizes = memchr(text, ':', length), *end = text + length;
    size_t numbers = 1, count = 0;
    for (const char *c = sizes; c < end; c++)
        count += *c == ':' || *c == ',';
    add_text(out, text, (size_t)(sizes - text));
    add_number(out, count, 4);
    for (size_t i = 0; i < count; i++) {
        char *after;
        const size_t size = strtoul(sizes + 1, &after, 10);
        add_number(out, size, 8);
        numbers *= size;
        sizes = after;
    }
    add_number(out, 0, 4);
    add_number(out, begin, 8);
    return (numbers * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *gguf_write(size_t *size, const char *keys, const char *tensors)
{
    unsigned char of_keys[MOST], of_tensors[MOST];
    struct bytes header = {of_keys, 0}, rows = {of_tensors, 0};
    size_t num_keys = 0, num_tensors = 0, data = 0;
    for (size_t n; (n = strcspn(keys, " ")) > 0; keys += n + (keys[n] != '\0'), num_keys++) {
        const size_t name = strcspn(keys, "=");
        add_text(&header, keys, name);
        add_value(&header, keys + name + 1, n - name - 1);
    }
    for (size_t n; (n = strcspn(tensors, " ")) > 0; tensors += n + (tensors[n] != '\0'))
        data += add_tensor(&rows, tensors, n, data), num_tensors++;
    const uint64_t counts[] = {num_tensors, num_keys};
    const size_t begin = (24 + header.count + rows.count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *size = begin + data;
    unsigned char *file = calloc(1, *size);
    memcpy(file, "GGUF\3\0\0", 8);
    memcpy(file + 8, counts, sizeof counts);
    memcpy(file + 24, of_keys, header.count);
    memcpy(file + 24 + header.count, of_tensors, rows.count);
    for (size_t i = 0; i < data / sizeof(float); i++)
        memcpy(file + begin + i * sizeof(float), &(float){1}, sizeof(float));
    return file;
}
