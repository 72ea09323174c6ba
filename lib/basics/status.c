/* status.c: names of statuses, and the one place that writes an error record. */
#include "basics/status.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const names[] = {
    [ATTN_OK] = "ok",
    [ATTN_NO_MEMORY] = "no_memory",
    [ATTN_INVALID] = "invalid",
    [ATTN_SHAPE_MISMATCH] = "shape_mismatch",
    [ATTN_OUT_OF_RANGE] = "out_of_range",
    [ATTN_NON_FINITE] = "non_finite",
    [ATTN_OVERFLOW] = "overflow",
    [ATTN_NOT_FOUND] = "not_found",
    [ATTN_IO] = "io",
    [ATTN_MALFORMED] = "malformed",
    [ATTN_UNSUPPORTED] = "unsupported",
    [ATTN_CACHE_FULL] = "cache_full",
    [ATTN_POOL_FULL] = "pool_full",
    [ATTN_FORGOTTEN] = "forgotten",
    [ATTN_ROPE_CHANGES] = "rope_changes",
    [ATTN_CANCELLED] = "cancelled",
};

const char *attn_status_name(enum attn_status status)
{
    size_t i = (size_t)status;
    return i < ATTN_COUNT(names) ? names[i] : "unknown";
}

/* A message is one printable line, also where it quotes names out of files. */
static void make_printable(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

enum attn_status attn_fail(struct attn_error *error, enum attn_status status, const char *param,
                           const char *format, ...)
{
    if (error == NULL)
        return status;
    error->status = status;
    snprintf(error->param, sizeof error->param, "%s", param ? param : "");
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    make_printable(error->param);
    make_printable(error->message);
    return status;
}

enum attn_status attn_check_count(size_t value, size_t limit, const char *param,
                                  struct attn_error *error)
{
    if (value >= 1 && value <= limit)
        return ATTN_OK;
    return attn_fail(error, ATTN_OUT_OF_RANGE, param, "%s is %zu, allowed are 1 to %zu", param,
                     value, limit);
}

enum attn_status attn_check_magnitudes(const float *x, size_t n, float limit, const char *param,
                                       struct attn_error *error)
{
    for (size_t i = 0; x != NULL && i < n; i++)
        if (!(fabsf(x[i]) <= limit))
            return attn_fail(error, ATTN_OUT_OF_RANGE, param,
                             "%s holds %g at element %zu, at most %g is allowed", param,
                             (double)x[i], i, (double)limit);
    return ATTN_OK;
}

enum attn_status attn_fail_memory(struct attn_error *error, size_t bytes)
{
    return attn_fail(error, ATTN_NO_MEMORY, NULL, "out of memory (%zu bytes)", bytes);
}
