/* guard.c: refuses heads that two parsers could read in two ways, and reads single fields.
 *
 * Behind a proxy that reads a head otherwise, each ambiguity smuggles a request.  Bytes that no
 * head may hold have been refused by then (scan.c). */
#include "http/guard.h"

#include <strings.h>

#include "base/number.h"

#define DEADLINE "X-Deadline-Ms"

static bool name_is(const struct srv_header_field *field, const char *name, size_t length)
{
    return length == field->name_length && strncasecmp(field->name, name, length) == 0;
}

static bool value_is(const struct srv_header_field *field, const char *value)
{
    return strlen(value) == field->value_length &&
           strncasecmp(field->value, value, field->value_length) == 0;
}

const struct srv_header_field *srv_head_find(const struct srv_head *head, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < head->count; i++)
        if (name_is(&head->fields[i], name, length))
            return &head->fields[i];
    return NULL;
}

const struct srv_header_field *srv_head_single(bool *repeated, const struct srv_head *head,
                                               const char *name)
{
    const struct srv_header_field *field = srv_head_find(head, name);
    size_t rest = field != NULL ? (size_t)(field - head->fields) + 1 : head->count;
    *repeated = false;
    for (size_t i = rest; i < head->count && !*repeated; i++)
        *repeated = name_is(&head->fields[i], name, field->name_length);
    return field;
}

bool srv_header_field_id(char out[SRV_ID_MAX + 1], const struct srv_header_field *field)
{
    out[0] = '\0';
    if (field == NULL || field->value_length == 0 || field->value_length > SRV_ID_MAX)
        return false;
    for (size_t i = 0; i < field->value_length; i++) {
        if (!srv_id_character(field->value[i]))
            return false;
    }
    memcpy(out, field->value, field->value_length);
    out[field->value_length] = '\0';
    return true;
}

enum srv_error_code srv_guard_id(char out[SRV_ID_MAX + 1], const struct srv_head *head,
                                 const char *name, struct srv_error *error)
{
    bool repeated;
    const struct srv_header_field *field = srv_head_single(&repeated, head, name);
    if ((srv_header_field_id(out, field) || field == NULL) && !repeated)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, name, "%s must be once 1 to %d of [A-Za-z0-9_.-]",
                    name, SRV_ID_MAX);
}

/* ---- The rules ------------------------------------------------------------------------------- */

enum srv_error_code srv_guard_once(const struct srv_header_field **out, const struct srv_head *head,
                                   const char *name, struct srv_error *error)
{
    bool repeated;
    *out = srv_head_single(&repeated, head, name);
    return repeated ? srv_fail(error, SRV_E_BAD_REQUEST, name, "%s is given more than once", name)
                    : SRV_OK;
}

static enum srv_error_code check_host(const struct srv_head *head, struct srv_error *error)
{
    const struct srv_header_field *host;
    if (srv_guard_once(&host, head, "Host", error) != SRV_OK)
        return error->code;
    if (host == NULL && strcmp(head->version, "HTTP/1.1") == 0)
        return srv_fail(error, SRV_E_BAD_REQUEST, "Host", "HTTP/1.1 needs Host");
    return SRV_OK;
}

/* An absolute target begins with a scheme and the authority that Host names too. */
static enum srv_error_code check_target(struct srv_framing *out, const struct srv_head *head,
                                        struct srv_error *error)
{
    const struct srv_header_field *host = srv_head_find(head, "Host");
    const char *colon = strstr(head->target, "://");
    size_t scheme = colon != NULL ? (size_t)(colon - head->target) + strlen("://") : 0;
    bool is_http = scheme > 0 && (strncasecmp(head->target, "http://", scheme) == 0 ||
                                  strncasecmp(head->target, "https://", scheme) == 0);
    if (head->target[0] == '/')
        return SRV_OK;
    if (!is_http)
        return srv_fail(error, SRV_E_BAD_REQUEST, NULL,
                        "the request target is neither a path nor "
                        "an http or https URI");
    const struct srv_header_field authority = {
        .value = head->target + scheme, .value_length = strcspn(head->target + scheme, "/?")};
    if (authority.value_length == 0 ||
        (host != NULL && (host->value_length != authority.value_length ||
                          strncasecmp(host->value, authority.value, host->value_length) != 0)))
        return srv_fail(error, SRV_E_BAD_REQUEST, "Host",
                        "Host is not the authority of the request target");
    out->origin_length = (uint16_t)(scheme + authority.value_length); /* within the head */
    return SRV_OK;
}

static enum srv_error_code check_coding(struct srv_framing *out, const struct srv_head *head,
                                        struct srv_error *error)
{
    const struct srv_header_field *coding;
    enum srv_error_code code = srv_guard_once(&coding, head, "Transfer-Encoding", error);
    if (code != SRV_OK || coding == NULL)
        return code;
    if (strcmp(head->version, "HTTP/1.1") != 0)
        return srv_fail(error, SRV_E_BAD_REQUEST, "Transfer-Encoding",
                        "HTTP/1.0 has no Transfer-Encoding");
    if (srv_head_find(head, "Content-Length") != NULL)
        return srv_fail(error, SRV_E_BAD_REQUEST, "Transfer-Encoding",
                        "Transfer-Encoding and Content-Length exclude each other");
    if (!value_is(coding, "chunked"))
        return srv_fail(error, SRV_E_NOT_IMPLEMENTED, "Transfer-Encoding",
                        "Transfer-Encoding '%.*s' is not `chunked`", SRV_FIELD_TEXT(coding));
    out->chunked = true;
    return SRV_OK;
}

static enum srv_error_code check_length(struct srv_framing *out, const struct srv_head *head,
                                        struct srv_error *error)
{
    const struct srv_header_field *length;
    enum srv_error_code code = srv_guard_once(&length, head, "Content-Length", error);
    if (code != SRV_OK || length == NULL)
        return code;
    out->has_length = true;
    if (srv_unsigned_read(&out->length, length->value, length->value_length))
        return SRV_OK;
    return srv_fail(error, SRV_E_BAD_REQUEST, "Content-Length",
                    "Content-Length '%.*s' is not a number of bytes", SRV_FIELD_TEXT(length));
}

static enum srv_error_code check_expect(struct srv_framing *out, const struct srv_head *head,
                                        struct srv_error *error)
{
    const struct srv_header_field *expect;
    enum srv_error_code code = srv_guard_once(&expect, head, "Expect", error);
    if (code != SRV_OK || expect == NULL || strcmp(head->version, "HTTP/1.1") != 0)
        return code;
    if (!value_is(expect, "100-continue"))
        return srv_fail(error, SRV_E_NOT_IMPLEMENTED, "Expect",
                        "Expect '%.*s' is not `100-continue`", SRV_FIELD_TEXT(expect));
    out->expects_continue = true;
    return SRV_OK;
}

enum srv_error_code srv_guard_head(struct srv_framing *out, const struct srv_head *head,
                                   struct srv_error *error)
{
    *out = (struct srv_framing){0};
    if (check_host(head, error) != SRV_OK || check_target(out, head, error) != SRV_OK ||
        check_coding(out, head, error) != SRV_OK || check_length(out, head, error) != SRV_OK)
        return error->code;
    return check_expect(out, head, error);
}

enum srv_error_code srv_guard_deadline(uint64_t *ms, const struct srv_head *head,
                                       struct srv_error *error)
{
    bool repeated;
    const struct srv_header_field *field = srv_head_single(&repeated, head, DEADLINE);
    *ms = 0;
    if (field == NULL)
        return SRV_OK;
    if (!repeated && srv_unsigned_read(ms, field->value, field->value_length) && *ms > 0 &&
        *ms <= SRV_MAX_DEADLINE_MS)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, DEADLINE,
                    DEADLINE " must be one number of milliseconds from 1 to %d",
                    SRV_MAX_DEADLINE_MS);
}
