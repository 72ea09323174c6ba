/* client.c: a small interface to libcurl. */
#include "client.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "record.h"

#define TIMEOUT_MS 120000L

struct sink {
    char *data;
    size_t length;
};

static size_t collect(char *bytes, size_t size, size_t count, void *context)
{
    struct sink *sink = context;
    size_t added = size * count;
    char *grown = realloc(sink->data, sink->length + added + 1);
    if (grown == NULL)
        return 0;
    memcpy(grown + sink->length, bytes, added);
    sink->data = grown;
    sink->length += added;
    sink->data[sink->length] = '\0';
    return added;
}

/* Collects a line of the head.  A status line starts a new list: "100 Continue" has one, too. */
static size_t collect_header(char *bytes, size_t size, size_t count, void *context)
{
    struct sink *sink = context;
    if (size * count > 5 && memcmp(bytes, "HTTP/", 5) == 0)
        sink->length = 0;
    return collect(bytes, size, count, context);
}

void client_open(struct client *client, const struct daemon *daemon)
{
    client->curl = curl_easy_init();
    client->daemon = daemon;
    client->code = CURLE_OK;
    ck_assert_ptr_nonnull(client->curl);
    snprintf(client->url, sizeof client->url, "%s", daemon->url);
}

void client_close(struct client *client)
{
    curl_easy_cleanup(client->curl);
    client->curl = NULL;
}

static struct curl_slist *list_headers(const struct client *client, const struct request *request)
{
    struct curl_slist *list = NULL;
    if (client->daemon->authorization != NULL)
        list = curl_slist_append(list, client->daemon->authorization);
    bool typed = request->body == NULL;
    for (size_t i = 0; request->headers != NULL && request->headers[i] != NULL; i++) {
        typed = typed || strncasecmp(request->headers[i], "Content-Type:", 13) == 0;
        list = curl_slist_append(list, request->headers[i]);
    }
    return typed ? list : curl_slist_append(list, "Content-Type: application/json");
}

static void set_body(CURL *curl, const struct request *request)
{
    size_t length = request->length > 0 ? request->length : strlen(request->body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
}

static void record(const struct client *client, const struct request *request,
                   const struct curl_slist *headers, const struct answer *answer)
{
    char head[4096] = "";
    size_t length = 0;
    if (!record_wanted() || client->code != CURLE_OK)
        return;
    for (const struct curl_slist *line = headers; line != NULL; line = line->next)
        if (length < sizeof head)
            length += (size_t)snprintf(head + length, sizeof head - length, "%s\r\n", line->data);
    size_t body =
        request->body != NULL && request->length == 0 ? strlen(request->body) : request->length;
    record_exchange(&(struct recorded){.method = request->method,
                                       .path = request->path,
                                       .head = head,
                                       .body = request->body,
                                       .length = request->body != NULL ? body : 0,
                                       .status = answer->status,
                                       .reply_head = answer->headers,
                                       .reply = answer->text,
                                       .reply_length = answer->length});
}

bool client_try(struct answer *out, struct client *client, const struct request *request)
{
    char url[512];
    struct sink headers = {0}, body = {0};
    CURL *curl = client->curl;
    struct curl_slist *list = list_headers(client, request);
    curl_easy_reset(curl); /* keeps the connection */
    snprintf(url, sizeof url, "%s%s", client->url, request->path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    if (client->daemon->trusted != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, client->daemon->trusted);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, collect_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &headers);
    if (request->body != NULL)
        set_body(curl, request);
    curl_easy_setopt(curl, CURLOPT_NOBODY, strcmp(request->method, "HEAD") == 0 ? 1L : 0L);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    client->code = curl_easy_perform(curl);
    *out = (struct answer){.headers = headers.data, .text = body.data, .length = body.length};
    if (out->text == NULL)
        out->text = calloc(1, 1);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &out->status);
    out->json = json_loadb(out->text, out->length, JSON_REJECT_DUPLICATES, NULL);
    record(client, request, list, out);
    curl_slist_free_all(list);
    return client->code == CURLE_OK;
}

struct answer client_send(struct client *client, const struct request *request)
{
    struct answer answer;
    bool answered = client_try(&answer, client, request);
    if (!answered)
        daemon_show_log(client->daemon);
    ck_assert_msg(answered, "%s %s: %s", request->method, request->path,
                  curl_easy_strerror(client->code));
    return answer;
}

struct answer client_get(struct client *client, const char *path)
{
    return client_send(client, &(struct request){.method = "GET", .path = path});
}

struct answer client_post(struct client *client, const char *path, const char *body)
{
    return client_send(client, &(struct request){.method = "POST", .path = path, .body = body});
}

struct answer client_delete(struct client *client, const char *path)
{
    return client_send(client, &(struct request){.method = "DELETE", .path = path});
}

void answer_free(struct answer *answer)
{
    free(answer->headers);
    free(answer->text);
    json_decref(answer->json);
    *answer = (struct answer){0};
}

bool answer_header(char out[256], const struct answer *answer, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = answer->headers; line != NULL && *line != '\0';) {
        const char *end = strstr(line, "\r\n");
        if (end == NULL)
            break;
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            line += length + 1 + strspn(line + length + 1, " ");
            snprintf(out, 256, "%.*s", (int)(end - line), line);
            return true;
        }
        line = end + 2;
    }
    return false;
}

const char *answer_code(const struct answer *answer)
{
    const json_t *error = json_object_get(answer->json, "error");
    if (json_is_string(error)) /* the form of /v2, which has the code beside the text */
        error = answer->json;
    const char *code = json_string_value(json_object_get(error, "code"));
    return code != NULL ? code : "";
}

void expect_answer(const struct answer *answer, long status, const char *code, const char *what)
{
    const char *got = answer_code(answer);
    ck_assert_msg(answer->status == status && strcmp(got, code != NULL ? code : "") == 0,
                  "%s: expected %ld %s, got %ld %s: %.600s", what, status,
                  code != NULL ? code : "without error", answer->status, got, answer->text);
}

void expect_posted(struct client *client, const char *path, const char *body, long status,
                   const char *code)
{
    char what[400];
    struct answer answer = client_post(client, path, body);
    snprintf(what, sizeof what, "POST %s %s", path, body != NULL ? body : "");
    expect_answer(&answer, status, code, what);
    answer_free(&answer);
}

void expect_deleted(struct client *client, const char *path, long status, const char *code)
{
    struct answer answer = client_delete(client, path);
    expect_answer(&answer, status, code, path);
    answer_free(&answer);
}

json_int_t answer_integer(const struct answer *answer, const char *name)
{
    const json_t *value = json_object_get(answer->json, name);
    ck_assert_msg(json_is_integer(value), "no integer \"%s\" in %.600s", name, answer->text);
    return json_integer_value(value);
}
