/* guard.c: refuses heads that two parsers could read in two ways, and reads single fields.
 *
 * Behind a proxy that reads a head otherwise, each ambiguity smuggles a request.  Bytes that no
 * head may hold have been refused by then (scan.c). */
#include "http/guard.h"

#include <stdlib.h>
#include <strings.h>

#define TEXT(field) (int)(field)->value_length, (field)->value

/* The same of a value that a message is to go on after. */
#define QUOTED(field) (int)((field)->value_length < 64 ? (field)->value_length : 64), (field)->value

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

/* Digits and nothing else; false also where the number does not fit. */
static bool read_decimal(uint64_t *out, const struct srv_header_field *field)
{
    *out = 0;
    for (size_t i = 0; i < field->value_length; i++) {
        unsigned digit = (unsigned)(field->value[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(*out, 10u, out) ||
            __builtin_add_overflow(*out, digit, out))
            return false;
    }
    return field->value_length > 0;
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

/* Finds a field that decides how a head is read: NULL where it is not given. */
static enum srv_error_code find_once(const struct srv_header_field **out,
                                     const struct srv_head *head, const char *name,
                                     struct srv_error *error)
{
    bool repeated;
    *out = srv_head_single(&repeated, head, name);
    return repeated ? srv_fail(error, SRV_E_BAD_REQUEST, name, "%s is given more than once", name)
                    : SRV_OK;
}

static enum srv_error_code check_host(const struct srv_head *head, struct srv_error *error)
{
    const struct srv_header_field *host;
    if (find_once(&host, head, "Host", error) != SRV_OK)
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
    enum srv_error_code code = find_once(&coding, head, "Transfer-Encoding", error);
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
                        "Transfer-Encoding '%.*s' is not `chunked`", TEXT(coding));
    out->chunked = true;
    return SRV_OK;
}

static enum srv_error_code check_length(struct srv_framing *out, const struct srv_head *head,
                                        struct srv_error *error)
{
    const struct srv_header_field *length;
    enum srv_error_code code = find_once(&length, head, "Content-Length", error);
    if (code != SRV_OK || length == NULL)
        return code;
    out->has_length = true;
    if (read_decimal(&out->length, length))
        return SRV_OK;
    return srv_fail(error, SRV_E_BAD_REQUEST, "Content-Length",
                    "Content-Length '%.*s' is not a number of bytes", TEXT(length));
}

static enum srv_error_code check_expect(struct srv_framing *out, const struct srv_head *head,
                                        struct srv_error *error)
{
    const struct srv_header_field *expect;
    enum srv_error_code code = find_once(&expect, head, "Expect", error);
    if (code != SRV_OK || expect == NULL || strcmp(head->version, "HTTP/1.1") != 0)
        return code;
    if (!value_is(expect, "100-continue"))
        return srv_fail(error, SRV_E_NOT_IMPLEMENTED, "Expect",
                        "Expect '%.*s' is not `100-continue`", TEXT(expect));
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

/* ---- Media types ----------------------------------------------------------------------------- */

/* Bytes of a value. */
struct token {
    const char *text;
    size_t length;
};

static struct token value_of(const struct srv_header_field *field)
{
    return (struct token){field->value, field->value_length};
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Takes what stands before the first `stop`, or all, off the front of *rest; returns it without
 * blanks around it. */
static struct token next_token(struct token *rest, char stop)
{
    const char *found = memchr(rest->text, stop, rest->length);
    struct token token = {rest->text, found != NULL ? (size_t)(found - rest->text) : rest->length};
    const size_t taken = token.length + (found != NULL);
    *rest = (struct token){rest->text + taken, rest->length - taken};
    for (; token.length > 0 && is_blank(token.text[0]); token.length--)
        token.text++;
    while (token.length > 0 && is_blank(token.text[token.length - 1]))
        token.length--;
    return token;
}

static bool is_word(struct token token, const char *word)
{
    return token.length == strlen(word) && strncasecmp(token.text, word, token.length) == 0;
}

#define JSON_TYPE "application/json"
#define BYTES_TYPE "application/octet-stream"
#define DEADLINE "X-Deadline-Ms"

/* Whether the field's value is the media type, parameters aside. */
static bool type_is(const struct srv_header_field *field, const char *type)
{
    struct token value = value_of(field);
    return is_word(next_token(&value, ';'), type);
}

static const struct {
    const char *name;
    enum srv_coding coding;
} codings[] = {
    {"gzip", SRV_GZIP}, {"deflate", SRV_DEFLATE}, {"x-gzip", SRV_GZIP}, /* HTTP/1.0's name */
};
#define NUM_CODINGS (sizeof codings / sizeof codings[0])

enum srv_error_code srv_guard_content_encoding(enum srv_coding *out, const struct srv_head *head,
                                               struct srv_error *error)
{
    bool repeated;
    const struct srv_header_field *coding = srv_head_single(&repeated, head, "Content-Encoding");
    *out = SRV_IDENTITY;
    if (coding == NULL || (!repeated && value_is(coding, "identity")))
        return SRV_OK;
    for (size_t i = 0; i < NUM_CODINGS && !repeated; i++) {
        if (!value_is(coding, codings[i].name))
            continue;
        *out = codings[i].coding;
        return SRV_OK;
    }
    return srv_fail(error, SRV_E_UNSUPPORTED_MEDIA, "Content-Encoding",
                    "Content-Encoding '%.*s' is not one of gzip, deflate, identity", TEXT(coding));
}

enum srv_error_code srv_guard_content_type_bytes(const struct srv_head *head,
                                                 struct srv_error *error)
{
    bool repeated;
    const struct srv_header_field *type = srv_head_single(&repeated, head, "Content-Type");
    if (type != NULL && (repeated || !type_is(type, BYTES_TYPE)))
        return srv_fail(error, SRV_E_UNSUPPORTED_MEDIA, "Content-Type",
                        "Content-Type '%.*s' is not " BYTES_TYPE, TEXT(type));
    return SRV_OK;
}

enum srv_error_code srv_guard_content_type(const struct srv_head *head, bool framed,
                                           struct srv_error *error)
{
    bool repeated;
    const struct srv_header_field *type = srv_head_single(&repeated, head, "Content-Type");
    if (type == NULL || repeated)
        return srv_fail(error, SRV_E_UNSUPPORTED_MEDIA, "Content-Type",
                        "a body needs one Content-Type: " JSON_TYPE " (curl: --json)");
    if (!type_is(type, JSON_TYPE) && !(framed && type_is(type, BYTES_TYPE)))
        return srv_fail(error, SRV_E_UNSUPPORTED_MEDIA, "Content-Type",
                        "Content-Type '%.*s' is not " JSON_TYPE "%s; curl sends JSON with --json "
                        "in place of -d, or with -H 'Content-Type: " JSON_TYPE "'",
                        QUOTED(type), framed ? " or " BYTES_TYPE : "");
    return SRV_OK;
}

enum srv_error_code srv_guard_json_length(bool *framed, uint64_t *length,
                                          const struct srv_head *head, struct srv_error *error)
{
    const struct srv_header_field *field, *type = srv_head_find(head, "Content-Type");
    if (find_once(&field, head, SRV_JSON_LENGTH, error) != SRV_OK)
        return error->code;
    *framed = field != NULL;
    if (field == NULL && type != NULL && type_is(type, BYTES_TYPE))
        return srv_fail(error, SRV_E_BAD_REQUEST, SRV_JSON_LENGTH,
                        "a body of " BYTES_TYPE " needs " SRV_JSON_LENGTH);
    if (field != NULL && !read_decimal(length, field))
        return srv_fail(error, SRV_E_BAD_REQUEST, SRV_JSON_LENGTH,
                        SRV_JSON_LENGTH " '%.*s' is not a number of bytes", TEXT(field));
    return SRV_OK;
}

enum srv_error_code srv_guard_deadline(uint64_t *ms, const struct srv_head *head,
                                       struct srv_error *error)
{
    bool repeated;
    const struct srv_header_field *field = srv_head_single(&repeated, head, DEADLINE);
    *ms = 0;
    if (field == NULL)
        return SRV_OK;
    if (!repeated && read_decimal(ms, field) && *ms > 0 && *ms <= SRV_MAX_DEADLINE_MS)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, DEADLINE,
                    DEADLINE " must be one number of milliseconds from 1 to %d",
                    SRV_MAX_DEADLINE_MS);
}

/* How specifically a range of Accept or Accept-Encoding names `type`: 3 as "kind/subtype", 2 as
 * "kind/" and a star, 1 as two stars, 0 not at all.  A coding has no kind: 3 is its name, 1 one
 * star. */
static int specificity_of(struct token range, const char *type)
{
    const char *slash = strchr(type, '/');
    size_t kind = slash != NULL ? (size_t)(slash - type) + 1 : 0;
    if (is_word(range, type))
        return 3;
    if (kind > 0 && range.length == kind + 1 && strncasecmp(range.text, type, kind) == 0 &&
        range.text[kind] == '*')
        return 2;
    return is_word(range, kind > 0 ? "*/*" : "*") ? 1 : 0;
}

/* A weight in thousandths: 250 for "0.25"; 1000 for text that is none. */
static unsigned read_weight(const char *text, size_t length)
{
    unsigned weight = 0, unit = 1000;
    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned)(text[i] - '0');
        if (text[i] == '.')
            continue;
        if (digit > 9)
            return 1000;
        weight += digit * unit;
        unit /= 10;
    }
    return weight < 1000 ? weight : 1000;
}

/* The weight ("q=") among the parameters of a range; 1000 without one. */
static unsigned weight_of(struct token parameters)
{
    while (parameters.length > 0) {
        struct token one = next_token(&parameters, ';');
        if (one.length >= 3 && strncasecmp(one.text, "q=", 2) == 0)
            return read_weight(one.text + 2, one.length - 2);
    }
    return 1000;
}

/* How acceptable a media type is by Accept, or a coding by Accept-Encoding. */
struct preference {
    bool given;      /* the request has the field */
    int specificity; /* of the most specific range that names it; 0: none does */
    unsigned weight; /* of that range; 0: not acceptable */
};

static struct preference find_preference(const struct srv_head *head, const char *name,
                                         const char *type)
{
    struct preference found = {0};
    for (size_t i = 0; i < head->count; i++) {
        struct token rest = value_of(&head->fields[i]);
        if (!name_is(&head->fields[i], name, strlen(name)))
            continue;
        found.given = found.given || rest.length > 0;
        while (rest.length > 0) {
            struct token range = next_token(&rest, ',');
            int specificity = specificity_of(next_token(&range, ';'), type);
            if (specificity > found.specificity) {
                found.specificity = specificity;
                found.weight = weight_of(range);
            }
        }
    }
    return found;
}

enum srv_error_code srv_guard_accept(const struct srv_head *head, const char *type,
                                     struct srv_error *error)
{
    struct preference preference = find_preference(head, "Accept", type);
    if (preference.given && preference.weight == 0)
        return srv_fail(error, SRV_E_NOT_ACCEPTABLE, "Accept", "Accept excludes %s", type);
    return SRV_OK;
}

enum srv_error_code srv_guard_accept_binary(bool *binary, const struct srv_head *head,
                                            struct srv_error *error)
{
    struct preference json = find_preference(head, "Accept", JSON_TYPE);
    struct preference bytes = find_preference(head, "Accept", BYTES_TYPE);
    *binary = bytes.specificity == 3 && bytes.weight > 0 && bytes.weight >= json.weight;
    return *binary ? SRV_OK : srv_guard_accept(head, JSON_TYPE, error);
}

/* The coding of most weight, gzip of equals; identity where its weight is higher than that. */
enum srv_coding srv_guard_accept_encoding(const struct srv_head *head)
{
    const char *const field = "Accept-Encoding";
    struct preference identity = find_preference(head, field, "identity");
    unsigned most = identity.specificity == 3 && identity.weight > 0 ? identity.weight : 1;
    enum srv_coding chosen = SRV_IDENTITY;
    for (size_t i = 0; i < 2; i++) { /* without x-gzip, which a star would mean too */
        struct preference coding = find_preference(head, field, codings[i].name);
        bool better = chosen == SRV_IDENTITY ? coding.weight >= most : coding.weight > most;
        if (coding.specificity == 0 || !better)
            continue;
        most = coding.weight;
        chosen = codings[i].coding;
    }
    return chosen;
}
