/* replies.c: an error's bytes are written again from what it must say, and compared. */
#include "replies.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define LOG_MS 5000

/* ---- The form -------------------------------------------------------------------------------- */

static const struct {
    unsigned status;
    const char *reason;
} reasons[] = {
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
};

static const char *reason_of(unsigned status)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "(a status that no error has)";
}

/* Adds a line of the reply as it came; `must`: also where it did not come. */
static void add_line(struct text *out, const struct raw_answer *answer, const char *name, bool must)
{
    char value[256];
    if (raw_header(value, answer, name) || must)
        text_add(out, "%s: %s\r\n", name, value);
}

static void add_json(struct text *out, const char *name, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    if (value != NULL)
        text_add(out, "%s\"%s\":%s", out->length > 0 ? "," : "", name, text);
    free(text);
}

static void add_body(struct text *out, const json_t *error, const char *param, const char *message)
{
    static const char *const members[] = {"code",   "message",   "param",    "retryable",
                                          "length", "epoch",     "revision", "lowest_length",
                                          "owner",  "request_id"};
    json_t *own_param = strcmp(param, "-") != 0 ? json_string(param) : NULL;
    json_t *own_message = message != NULL ? json_string(message) : NULL;
    struct text inner = {0};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const json_t *value = json_object_get(error, members[i]);
        if (message != NULL && strcmp(members[i], "message") == 0)
            value = own_message;
        if (message != NULL && strcmp(members[i], "param") == 0)
            value = own_param;
        add_json(&inner, members[i], value);
    }
    text_add(out, "{\"error\":{%s}}", inner.data);
    json_decref(own_param);
    json_decref(own_message);
    text_free(&inner);
}

/* Writes what the reply must be. */
static void write_form(struct text *out, const struct raw_answer *answer, const json_t *error,
                       const char *param, const char *message)
{
    char value[256];
    struct text body = {0};
    add_body(&body, error, param, message);
    text_add(out, "HTTP/1.1 %u %s\r\n", answer->status, reason_of(answer->status));
    add_line(out, answer, "Date", true);
    if (raw_header(value, answer, "Connection"))
        text_add(out, "Connection: close\r\n");
    text_add(out, "Cache-Control: no-store\r\nContent-Type: application/json\r\n");
    text_add(out, "X-Request-Id: %s\r\n", json_string_value(json_object_get(error, "request_id")));
    text_add(out, "X-Attn-Instance: test\r\n");
    if (strcmp(json_string_value(json_object_get(error, "code")), "wrong_instance") == 0)
        text_add(out, "X-Attn-Owner: %s\r\n", json_string_value(json_object_get(error, "owner")));
    add_line(out, answer, "Allow", answer->status == 405);
    if (answer->status == 401)
        text_add(out, "WWW-Authenticate: Bearer\r\n");
    add_line(out, answer, "Retry-After", answer->status == 429 || answer->status == 503);
    add_line(out, answer, "Server-Timing", false);
    text_add(out, "Content-Length: %zu\r\n\r\n%s", body.length, body.data);
    text_free(&body);
}

static bool is_date(const char *text)
{
    static const char form[] = "Aaa, 00 Aaa 0000 00:00:00 GMT";
    for (size_t i = 0; i < sizeof form - 1; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        bool letter = (text[i] >= 'A' && text[i] <= 'Z') || (text[i] >= 'a' && text[i] <= 'z');
        if (form[i] == '0'                     ? !digit
            : form[i] == 'A' || form[i] == 'a' ? !letter
                                               : text[i] != form[i])
            return false;
    }
    return text[sizeof form - 1] == '\0';
}

bool reply_has_form(char wrong[600], const struct raw_answer *answer, const char *param,
                    const char *message)
{
    char date[256];
    struct text wanted = {0}, got = {0};
    json_t *json = json_loads(answer->body, 0, NULL);
    write_form(&wanted, answer, json_object_get(json, "error"), param, message);
    text_add(&got, "%s%s", answer->head, answer->body);
    bool right = raw_header(date, answer, "Date") && is_date(date) && got.length == wanted.length &&
                 memcmp(got.data, wanted.data, got.length) == 0;
    if (!right)
        snprintf(wrong, 600, "not the form of an error: %.270s -- wanted: %.270s", got.data,
                 wanted.data);
    json_decref(json);
    text_free(&wanted);
    text_free(&got);
    return right;
}

/* ---- The log --------------------------------------------------------------------------------- */

void replies_note(struct replies_seen *seen, const struct raw_answer *answer, const char *code)
{
    struct reply_seen *reply = &seen->items[seen->count];
    ck_assert_uint_lt(seen->count, REPLIES_MAX);
    if (!raw_header(reply->request_id, answer, "X-Request-Id"))
        return;
    snprintf(reply->code, sizeof reply->code, "%s", code);
    reply->status = answer->status;
    seen->count++;
}

/* Finds the last line of the request with that id; NULL where it is not there, or not whole. */
static json_t *find_line(const char *log, const char *request_id)
{
    char member[300];
    const char *found = NULL;
    snprintf(member, sizeof member, "\"request_id\":\"%s\"", request_id);
    for (const char *at = strstr(log, member); at != NULL; at = strstr(at + 1, member))
        found = at;
    if (found == NULL || strchr(found, '\n') == NULL)
        return NULL;
    while (found > log && found[-1] != '\n')
        found--;
    return json_loads(found, JSON_DISABLE_EOF_CHECK, NULL);
}

static json_t *wait_for_line(const struct daemon *daemon, const char *request_id)
{
    json_t *line = NULL;
    for (unsigned waited = 0; line == NULL && waited<LOG_MS; waited += waited> 0 ? 5 : 1) {
        if (waited > 0)
            pause_ms(5);
        char *log = daemon_log(daemon);
        line = find_line(log, request_id);
        free(log);
    }
    return line;
}

static bool is_logged(char wrong[600], const struct reply_seen *reply, const struct daemon *daemon)
{
    json_t *line = wait_for_line(daemon, reply->request_id);
    const char *code = json_string_value(json_object_get(line, "code"));
    long long status = json_integer_value(json_object_get(line, "status"));
    bool right = line != NULL && status == reply->status &&
                 strcmp(code != NULL ? code : "", reply->code) == 0;
    if (!right)
        snprintf(wrong, 600, "replied %u %s, logged %lld %s", reply->status, reply->code, status,
                 line == NULL ? "(no line)" : (code != NULL ? code : ""));
    json_decref(line);
    return right;
}

bool replies_are_logged(char wrong[600], const struct replies_seen *seen,
                        const struct daemon *daemon)
{
    for (size_t i = 0; i < seen->count; i++)
        if (!is_logged(wrong, &seen->items[i], daemon))
            return false;
    return true;
}
