/* errors.c: the error table as arrays, and the one place that writes an error record. */
#include "base/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct entry {
    const char *word, *meaning;
    unsigned status;
    bool retryable;
} entries[SRV_ERROR_COUNT] = {[SRV_OK] = {"ok", "no error", 200, false},
#define ENTRY(name, word, status, retryable, meaning) [name] = {word, meaning, status, retryable},
                              SRV_ERRORS(ENTRY)
#undef ENTRY
};

/* The caller's error for each status of the library.  A checkpoint's files are read at load, so a
 * request that meets ATTN_MALFORMED has met a defect; ATTN_IO is the journal's. */
static const enum srv_error_code from_attn[] = {
    [ATTN_NO_MEMORY] = SRV_E_OUT_OF_MEMORY,
    [ATTN_INVALID] = SRV_E_INVALID_VALUE,
    [ATTN_SHAPE_MISMATCH] = SRV_E_SHAPE_MISMATCH,
    [ATTN_OUT_OF_RANGE] = SRV_E_NUMBER_OUT_OF_RANGE,
    [ATTN_NON_FINITE] = SRV_E_NON_FINITE_INPUT,
    [ATTN_OVERFLOW] = SRV_E_NUMERIC_OVERFLOW,
    [ATTN_NOT_FOUND] = SRV_E_LAYER_NOT_FOUND,
    [ATTN_IO] = SRV_E_STORAGE,
    [ATTN_MALFORMED] = SRV_E_INTERNAL,
    [ATTN_UNSUPPORTED] = SRV_E_UNSUPPORTED,
    [ATTN_CACHE_FULL] = SRV_E_SESSION_FULL,
    [ATTN_POOL_FULL] = SRV_E_POOL_FULL,
    [ATTN_FORGOTTEN] = SRV_E_FORGOTTEN,
    [ATTN_ROPE_CHANGES] = SRV_E_ROPE_CHANGES,
    [ATTN_CANCELLED] = SRV_E_DRAINING, /* schedule/ replaces it by the reason */
};

enum srv_error_code srv_fail(struct srv_error *error, enum srv_error_code code, const char *param,
                             const char *format, ...)
{
    if (error == NULL)
        return code;
    *error = (struct srv_error){.code = code};
    snprintf(error->param, sizeof error->param, "%s", param == NULL ? "" : param);
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return code;
}

bool srv_refuse(char message[SRV_MESSAGE_MAX], const char *format, ...)
{
    char text[SRV_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(message, text, strlen(text) + 1);
    return false;
}

/* Called for every member that is read, so without printf: number.h says why. */
void srv_field_path(char *out, size_t size, const char *outer, const char *name)
{
    const char *const parts[] = {outer, ".", name};
    size_t length = 0;
    for (size_t i = 0; i < 3; i++) {
        size_t rest = size - 1 - length, count = strnlen(parts[i], rest);
        memcpy(out + length, parts[i], count);
        length += count;
    }
    out[length] = '\0';
}

enum srv_error_code srv_fail_attn(struct srv_error *error, const struct attn_error *cause)
{
    size_t status = (size_t)cause->status;
    enum srv_error_code code = SRV_E_INTERNAL;
    if (status < sizeof from_attn / sizeof from_attn[0] && from_attn[status] != SRV_OK)
        code = from_attn[status];
    return srv_fail(error, code, cause->param, "%s", cause->message);
}

static const struct entry *entry(enum srv_error_code code)
{
    size_t i = (size_t)code;
    return &entries[i < SRV_ERROR_COUNT ? i : (size_t)SRV_E_INTERNAL];
}

const char *srv_error_word(enum srv_error_code code) { return entry(code)->word; }
unsigned srv_error_status(enum srv_error_code code) { return entry(code)->status; }
bool srv_error_retryable(enum srv_error_code code) { return entry(code)->retryable; }
const char *srv_error_meaning(enum srv_error_code code) { return entry(code)->meaning; }
