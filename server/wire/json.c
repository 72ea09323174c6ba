/* json.c: the pull reader.
 *
 * The reader keeps no state per level.  Whether a member or element is the first of its list shows
 * in the byte before `at`: the opening bracket just entered, or else the last byte of a value.
 * Every function that reads a value therefore leaves `at` at the byte after it, before any white
 * space.
 *
 * Every function returns at once when the error is already set, so that callers may check once, at
 * the end.  Digits are number.c's, characters beyond ASCII libunistring's. */
#include "wire/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistr.h>

#include "base/nearest.h"
#include "base/number.h"

void srv_json_init(struct srv_json *json, const char *text, size_t length, struct srv_error *error)
{
    const char *start = text == NULL ? "" : text;
    *error = (struct srv_error){.code = SRV_OK};
    *json = (struct srv_json){
        .start = start, .at = start, .end = start + length, .error = error, .cancel_at = start};
}

bool srv_json_fail(struct srv_json *json, enum srv_error_code code, const char *param,
                   const char *format, ...)
{
    char what[sizeof json->error->message];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (srv_json_sound(json))
        srv_fail(json->error, code, param, "%s %s", param, what);
    return false;
}

/* Whether the text at `at` begins as Python or JavaScript print a number that is not finite, after
 * its sign. */
static bool is_non_finite(const char *at, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity", "nan", "inf"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if ((size_t)(end - at) >= strlen(words[i]) && memcmp(at, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

bool srv_json_expected(struct srv_json *json, const char *what)
{
    char found[16] = "the end";
    if (!srv_json_sound(json))
        return false;
    if (json->at < json->end)
        snprintf(found, sizeof found, *json->at > ' ' && *json->at < 0x7f ? "'%c'" : "byte 0x%02x",
                 (unsigned char)*json->at);
    srv_fail(json->error, SRV_E_MALFORMED_JSON, NULL,
             "malformed JSON at byte %zu: expected %s, found %s%s",
             (size_t)(json->at - json->start), what, found,
             is_non_finite(json->at, json->end)
                 ? "; JSON has no NaN and no Infinity: write null for minus infinity, in "
                   "attention_bias"
                 : "");
    return false;
}

enum srv_json_type srv_json_peek(struct srv_json *json)
{
    static const unsigned char types[256] = {
        ['{'] = SRV_JSON_OBJECT, ['['] = SRV_JSON_ARRAY,          ['"'] = SRV_JSON_STRING,
        ['t'] = SRV_JSON_TRUE,   ['f'] = SRV_JSON_FALSE,          ['n'] = SRV_JSON_NULL,
        ['-'] = SRV_JSON_NUMBER, ['0' ... '9'] = SRV_JSON_NUMBER,
    };
    if (!srv_json_sound(json))
        return SRV_JSON_BAD;
    srv_json_skip_space(json);
    enum srv_json_type type =
        json->at == json->end ? SRV_JSON_BAD : types[(unsigned char)*json->at];
    if (type == SRV_JSON_BAD)
        srv_json_expected(json, "a value");
    return type;
}

static const char *const type_names[] = {
    [SRV_JSON_OBJECT] = "an object", [SRV_JSON_ARRAY] = "an array", [SRV_JSON_STRING] = "a string",
    [SRV_JSON_NUMBER] = "a number",  [SRV_JSON_TRUE] = "true",      [SRV_JSON_FALSE] = "false",
    [SRV_JSON_NULL] = "null",        [SRV_JSON_BAD] = "nothing",
};

bool srv_json_wrong_type(struct srv_json *json, const char *wanted, const char *param)
{
    const char *found = type_names[srv_json_peek(json)];
    return srv_json_fail(json, SRV_E_INVALID_TYPE, param, "must be %s, not %s", wanted, found);
}

/* ---- Objects and arrays ---------------------------------------------------------------------- */

static bool enter(struct srv_json *json, char bracket, const char *what)
{
    if (!srv_json_sound(json))
        return false;
    if (!srv_json_accept(json, bracket))
        return srv_json_expected(json, what);
    if (++json->depth > SRV_JSON_MAX_DEPTH) {
        srv_fail(json->error, SRV_E_TOO_COMPLEX, NULL,
                 "nesting at byte %zu is deeper than %d levels",
                 (size_t)(json->at - 1 - json->start), SRV_JSON_MAX_DEPTH);
        return false;
    }
    return true;
}

/* Advances to the next item of a list; false once `closing`, the list's end, has been consumed.
 * Asks json->cancel once in SRV_CANCEL_BYTES of text. */
static bool next_item(struct srv_json *json, char opening, char closing, const char *separator)
{
    if (!srv_json_sound(json))
        return false;
    if (json->cancel.ask != NULL && json->at >= json->cancel_at) {
        size_t left = (size_t)(json->end - json->at);
        json->cancel_at = json->at + (left < SRV_CANCEL_BYTES ? left : SRV_CANCEL_BYTES);
        if (srv_cancel_ask(&json->cancel, json->error) != SRV_OK)
            return false;
    }
    bool first = json->at[-1] == opening;
    if (srv_json_accept(json, closing)) {
        json->depth--;
        return false;
    }
    if (!first && !srv_json_accept(json, ','))
        return srv_json_expected(json, separator);
    return true;
}

bool srv_json_enter_object(struct srv_json *json) { return enter(json, '{', "'{'"); }
bool srv_json_enter_array(struct srv_json *json) { return enter(json, '[', "'['"); }

void srv_json_begin_object(struct srv_json *json, const char *param)
{
    if (srv_json_peek(json) != SRV_JSON_OBJECT)
        srv_json_wrong_type(json, "an object", param);
    srv_json_enter_object(json);
}

void srv_json_begin_array(struct srv_json *json, const char *wanted, const char *param)
{
    if (srv_json_peek(json) != SRV_JSON_ARRAY)
        srv_json_wrong_type(json, wanted, param);
    srv_json_enter_array(json);
}

bool srv_json_next_element(struct srv_json *json)
{
    return next_item(json, '[', ']', "',' or ']'") && srv_json_peek(json) != SRV_JSON_BAD;
}

/* ---- Strings --------------------------------------------------------------------------------- */

/* The number that four hexadecimal digits at `at` stand for, or -1. */
static long read_hex4(const char *at, const char *end)
{
    char digits[5] = "";
    memcpy(digits, at, end - at < 4 ? 0 : 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

/* Reads a \uXXXX escape, or the pair of them that a character beyond U+FFFF has; json->at is after
 * the 'u'.  Returns the character's bytes of UTF-8, 0 (false) after an error.  NUL is refused,
 * since it would end the C string that the text becomes. */
static size_t read_unicode_escape(char out[4], struct srv_json *json)
{
    long code = read_hex4(json->at, json->end);
    if (code <= 0 || (code >= 0xDC00 && code <= 0xDFFF))
        return srv_json_expected(json, "four hex digits of a character other than NUL");
    json->at += 4;
    if (code < 0xD800 || code > 0xDBFF)
        return (size_t)u8_uctomb((uint8_t *)out, (ucs4_t)code, 4);
    long low = -1;
    if (json->end - json->at >= 6 && json->at[0] == '\\' && json->at[1] == 'u')
        low = read_hex4(json->at + 2, json->end);
    if (low < 0xDC00 || low > 0xDFFF)
        return srv_json_expected(json, "the second half of a surrogate pair");
    json->at += 6;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    return (size_t)u8_uctomb((uint8_t *)out, (ucs4_t)code, 4);
}

/* Reads an escape, likewise; json->at is after the backslash. */
static size_t read_escape(char out[4], struct srv_json *json)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    char letter = json->at == json->end ? '\0' : *json->at;
    if (letter == 'u') {
        json->at++;
        return read_unicode_escape(out, json);
    }
    const char *found = letter == '\0' ? NULL : strchr(letters, letter);
    if (found == NULL)
        return srv_json_expected(json, "an escape");
    json->at++;
    out[0] = bytes[found - letters];
    return 1;
}

/* Reads one character of a string as UTF-8; returns its bytes, 0 after an error. */
static size_t read_character(char out[4], struct srv_json *json)
{
    if (json->at < json->end && *json->at == '\\') {
        json->at++;
        return read_escape(out, json);
    }
    const bool control = json->at < json->end && (unsigned char)*json->at < 0x20;
    int bytes = u8_mblen((const uint8_t *)json->at, (size_t)(json->end - json->at));
    if (control || bytes <= 0)
        return srv_json_expected(json, control ? "no control character in a string"
                                               : "a character in UTF-8 or '\"'");
    memcpy(out, json->at, (size_t)bytes);
    json->at += bytes;
    return (size_t)bytes;
}

/* The number of bytes from `at` on that are ASCII characters without escape: nearly all of nearly
 * all strings. */
static size_t count_plain(const char *at, const char *end)
{
    const char *start = at;
    while (at < end && *at >= ' ' && *at != '"' && *at != '\\' && (unsigned char)*at < 0x80)
        at++;
    return (size_t)(at - start);
}

/* Reads the string whose opening quote is at json->at.  `out` of `size` bytes (at least 1) receives
 * as many whole characters as fit and a NUL; *length is the length of the whole text in bytes. */
static bool read_string(char *out, size_t size, size_t *length, struct srv_json *json)
{
    json->at++;
    *length = 0;
    size_t kept = 0;
    while (json->at == json->end || *json->at != '"') {
        char character[4];
        const char *from = json->at;
        size_t left = kept == *length ? size - 1 - kept : 0;
        size_t bytes = count_plain(from, json->end), fit = bytes < left ? bytes : left;
        json->at += bytes;
        if (bytes == 0) {
            from = character;
            bytes = read_character(character, json);
            fit = bytes <= left ? bytes : 0;
        }
        if (bytes == 0)
            return false;
        memcpy(out + kept, from, fit);
        kept += fit;
        *length += bytes;
    }
    json->at++;
    out[kept] = '\0';
    return true;
}

bool srv_json_next_member(struct srv_json *json, char *key, size_t size)
{
    size_t length;
    if (!next_item(json, '{', '}', "',' or '}'"))
        return false;
    srv_json_skip_space(json);
    if (json->at == json->end || *json->at != '"')
        return srv_json_expected(json, "a member's name in quotes");
    if (!read_string(key, size, &length, json))
        return false;
    return srv_json_accept(json, ':') || srv_json_expected(json, "':'");
}

bool srv_json_string(char **out, struct srv_json *json, struct srv_arena *arena, size_t max_length,
                     const char *param)
{
    if (srv_json_peek(json) != SRV_JSON_STRING)
        return srv_json_wrong_type(json, "a string", param);
    size_t left = (size_t)(json->end - json->at), length;
    size_t size = (max_length < left ? max_length : left) + 1;
    char *text = srv_arena_alloc(arena, size, 1);
    if (text == NULL) {
        srv_fail(json->error, SRV_E_OUT_OF_MEMORY, param, "no memory for %s", param);
        return false;
    }
    if (!read_string(text, size, &length, json))
        return false;
    if (length > max_length)
        return srv_json_fail(json, SRV_E_INVALID_VALUE, param,
                             "has %zu bytes, at most %zu are allowed", length, max_length);
    srv_arena_shrink(arena, text, length + 1);
    *out = text;
    return true;
}

size_t srv_json_choice(struct srv_json *json, const char *const *names, size_t count,
                       const char *name, const char *param)
{
    char choices[160];
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    srv_choices(choices, sizeof choices, name, names, count);
    srv_json_fail(json, SRV_E_INVALID_VALUE, param, "cannot be \"%.32s\": one of %s", name,
                  choices);
    return count;
}

/* ---- Other scalars --------------------------------------------------------------------------- */

bool srv_json_literal(struct srv_json *json, const char *word)
{
    size_t length = strlen(word);
    if (!srv_json_sound(json))
        return false;
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length) != 0)
        return srv_json_expected(json, word);
    json->at += length;
    return true;
}

bool srv_json_null(struct srv_json *json)
{
    return srv_json_peek(json) == SRV_JSON_NULL && srv_json_literal(json, "null");
}

bool srv_json_bool(bool *out, struct srv_json *json, const char *param)
{
    enum srv_json_type type = srv_json_peek(json);
    if (type != SRV_JSON_TRUE && type != SRV_JSON_FALSE)
        return srv_json_wrong_type(json, "true or false", param);
    *out = type == SRV_JSON_TRUE;
    return srv_json_literal(json, *out ? "true" : "false");
}

bool srv_json_integer(int64_t *out, struct srv_json *json, const char *param)
{
    const char *end;
    if (srv_json_peek(json) != SRV_JSON_NUMBER)
        return srv_json_wrong_type(json, "an integer", param);
    const char *at = json->at;
    const bool negative = *at == '-';
    int64_t value = 0;
    bool wraps = false;
    if (!srv_number_skip(at, json->end, &end)) {
        json->at = end;
        return srv_json_expected(json, "a digit");
    }
    for (at += negative; at < end && *at >= '0' && *at <= '9'; at++) {
        int64_t digit = negative ? '0' - *at : *at - '0';
        wraps |= __builtin_mul_overflow(value, 10, &value);
        wraps |= __builtin_add_overflow(value, digit, &value);
    }
    if (at < end)
        return srv_json_wrong_type(json, "an integer, without fraction and exponent", param);
    if (wraps)
        return srv_json_fail(json, SRV_E_NUMBER_OUT_OF_RANGE, param, "does not fit 64 bits");
    json->at = end;
    *out = value;
    return true;
}

bool srv_json_integer_within(int64_t *out, struct srv_json *json, int64_t least, int64_t most,
                             const char *param)
{
    if (!srv_json_integer(out, json, param))
        return false;
    return (*out >= least && *out <= most) ||
           srv_json_fail(json, SRV_E_INVALID_VALUE, param, "is %lld, must be from %lld to %lld",
                         (long long)*out, (long long)least, (long long)most);
}

bool srv_json_double(double *out, struct srv_json *json, const char *param)
{
    if (srv_json_peek(json) != SRV_JSON_NUMBER)
        return srv_json_wrong_type(json, "a number", param);
    if (!srv_number_read_double(out, json->at, json->end, &json->at))
        return srv_json_expected(json, "a digit");
    return isfinite(*out) ||
           srv_json_fail(json, SRV_E_NUMBER_OUT_OF_RANGE, param, "does not fit a double");
}

/* ---- Skipping -------------------------------------------------------------------------------- */

bool srv_json_skip(struct srv_json *json)
{
    const enum srv_json_type type = srv_json_peek(json);
    char unused[1];
    size_t length;
    switch (type) {
    case SRV_JSON_OBJECT:
        srv_json_enter_object(json);
        while (srv_json_next_member(json, unused, sizeof unused))
            srv_json_skip(json);
        return srv_json_sound(json);
    case SRV_JSON_ARRAY:
        srv_json_enter_array(json);
        while (srv_json_next_element(json))
            srv_json_skip(json);
        return srv_json_sound(json);
    case SRV_JSON_STRING:
        return read_string(unused, sizeof unused, &length, json);
    case SRV_JSON_NUMBER:
        return srv_number_skip(json->at, json->end, &json->at) ||
               srv_json_expected(json, "a digit");
    case SRV_JSON_TRUE:
    case SRV_JSON_FALSE:
    case SRV_JSON_NULL:
        return srv_json_literal(json, type_names[type]);
    case SRV_JSON_BAD:
        break;
    }
    return false;
}

bool srv_json_at_end(struct srv_json *json)
{
    srv_json_skip_space(json);
    return json->at == json->end;
}
