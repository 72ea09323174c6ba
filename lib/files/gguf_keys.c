/* gguf_keys.c: keys of a GGUF file -> numbers; members -> JSON. */
#include "files/gguf_keys.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/text.h"

#define MAX_SIZE 2147483647

void attn_gguf_put(struct attn_gguf_text *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int count =
        vsnprintf(w->text + w->length, ATTN_GGUF_MAX_CONFIG - w->length, format, arguments);
    va_end(arguments);
    if (count < 0 || (size_t)count >= ATTN_GGUF_MAX_CONFIG - w->length)
        ATTN_GGUF_FAIL(w, ATTN_OUT_OF_RANGE, "", "the configuration is longer than %d bytes",
                       ATTN_GGUF_MAX_CONFIG);
    else
        w->length += (size_t)count;
}

void attn_gguf_put_number(struct attn_gguf_text *w, const char *member, double number)
{
    char digits[32];
    int count = 6;
    do
        snprintf(digits, sizeof digits, "%.*g", count, number);
    while (strtof(digits, NULL) != (float)number && ++count <= 9);
    attn_gguf_put(w, ", \"%s\": %s", member, digits);
}

bool attn_gguf_has_member(const struct attn_gguf_text *w, const char *member)
{
    return attn_text_word_number(w->architecture->members, member) != 0;
}

const struct attn_gguf_value *attn_gguf_find_key(struct attn_gguf_text *w, const char *key)
{
    char name[ATTN_SAFETENSORS_MAX_NAME];
    snprintf(name, sizeof name, "%s.%s", w->architecture->name, key);
    const struct attn_gguf_value *value = attn_gguf_find_value(w->file, name);
    if (value != NULL)
        w->read[value - attn_gguf_value(w->file, 0)] = true;
    return value;
}

void attn_gguf_need_key(struct attn_gguf_text *w, const char *key)
{
    if (attn_gguf_find_key(w, key) == NULL)
        ATTN_GGUF_FAIL(w, ATTN_MALFORMED, key, "the file has no key %s.%s", w->architecture->name,
                       key);
}

double attn_gguf_read_number(struct attn_gguf_text *w, const char *key, double absent)
{
    const struct attn_gguf_value *value = attn_gguf_find_key(w, key);
    if (value == NULL)
        return absent;
    if (value->kind != ATTN_GGUF_NUMBER || value->count == 0) {
        ATTN_GGUF_FAIL(w, ATTN_MALFORMED, value->key, "%.96s is %s, wanted is a number", value->key,
                       value->kind == ATTN_GGUF_TEXT ? "a string" : "an array");
        return absent;
    }
    for (size_t i = 1; i < value->count; i++)
        if (value->numbers[i] != value->numbers[0])
            ATTN_GGUF_FAIL(w, ATTN_UNSUPPORTED, value->key, "%.96s differs between layers",
                           value->key);
    if (!isfinite(value->numbers[0]))
        ATTN_GGUF_FAIL(w, ATTN_MALFORMED, value->key, "%.96s is not finite", value->key);
    return value->numbers[0];
}

size_t attn_gguf_read_size(struct attn_gguf_text *w, const char *key, size_t absent)
{
    const struct attn_gguf_value *value = attn_gguf_find_key(w, key);
    const double number = attn_gguf_read_number(w, key, (double)absent);
    if (value == NULL || (number >= 1 && number <= MAX_SIZE && number == floor(number)))
        return (size_t)number;
    ATTN_GGUF_FAIL(w, ATTN_OUT_OF_RANGE, value->key,
                   "%.96s is %.17g, wanted is an integer from 1 to %d", value->key, number,
                   MAX_SIZE);
    return absent;
}

void attn_gguf_want_size(struct attn_gguf_text *w, const char *key, size_t wanted, const char *why)
{
    const size_t size = attn_gguf_read_size(w, key, wanted);
    if (size != wanted)
        ATTN_GGUF_FAIL(w, ATTN_UNSUPPORTED, key, "%s.%s is %zu, wanted is %zu, %s",
                       w->architecture->name, key, size, wanted, why);
}
