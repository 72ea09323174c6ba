/* negotiation.c: media types and codings of bodies and of the replies that are accepted. */
#include <strings.h>

#include "base/number.h"
#include "http/guard.h"

/* A value that a message is to go on after. */
#define QUOTED(field) (int)((field)->value_length < 64 ? (field)->value_length : 64), (field)->value

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

/* ---- Bodies ---------------------------------------------------------------------------------- */

#define JSON_TYPE "application/json"
#define BYTES_TYPE "application/octet-stream"

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
    if (coding == NULL || (!repeated && is_word(value_of(coding), "identity")))
        return SRV_OK;
    for (size_t i = 0; i < NUM_CODINGS && !repeated; i++) {
        if (!is_word(value_of(coding), codings[i].name))
            continue;
        *out = codings[i].coding;
        return SRV_OK;
    }
    return srv_fail(error, SRV_E_UNSUPPORTED_MEDIA, "Content-Encoding",
                    "Content-Encoding '%.*s' is not one of gzip, deflate, identity",
                    SRV_FIELD_TEXT(coding));
}

enum srv_error_code srv_guard_content_type_bytes(const struct srv_head *head,
                                                 struct srv_error *error)
{
    bool repeated;
    const struct srv_header_field *type = srv_head_single(&repeated, head, "Content-Type");
    if (type != NULL && (repeated || !type_is(type, BYTES_TYPE)))
        return srv_fail(error, SRV_E_UNSUPPORTED_MEDIA, "Content-Type",
                        "Content-Type '%.*s' is not " BYTES_TYPE, SRV_FIELD_TEXT(type));
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
    if (srv_guard_once(&field, head, SRV_JSON_LENGTH, error) != SRV_OK)
        return error->code;
    *framed = field != NULL;
    if (field == NULL && type != NULL && type_is(type, BYTES_TYPE))
        return srv_fail(error, SRV_E_BAD_REQUEST, SRV_JSON_LENGTH,
                        "a body of " BYTES_TYPE " needs " SRV_JSON_LENGTH);
    if (field != NULL && !srv_unsigned_read(length, field->value, field->value_length))
        return srv_fail(error, SRV_E_BAD_REQUEST, SRV_JSON_LENGTH,
                        SRV_JSON_LENGTH " '%.*s' is not a number of bytes", SRV_FIELD_TEXT(field));
    return SRV_OK;
}

/* ---- Replies --------------------------------------------------------------------------------- */

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
        const struct srv_header_field *field = &head->fields[i];
        struct token rest = value_of(field);
        if (!is_word((struct token){field->name, field->name_length}, name))
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
