/* client.h: well-formed requests, through libcurl.
 *
 * A client is one keep-alive connection and belongs to one thread.  A request that gets no answer
 * fails the test. */
#ifndef TESTS_HTTP_CLIENT_H
#define TESTS_HTTP_CLIENT_H

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>

#include "daemon.h"

struct client {
    CURL *curl;
    const struct daemon *daemon;
    char url[80];
    CURLcode code; /* of the last request */
};

struct answer {
    long status;
    char *headers; /* the lines of the last answer's head, unchanged */
    char *text;    /* the body */
    size_t length;
    json_t *json; /* the body where it is one JSON object, else NULL */
};

void client_open(struct client *client, const struct daemon *daemon);
void client_close(struct client *client);

struct request {
    const char *method, *path;
    const char *body; /* NULL: none */
    size_t length;    /* of the body; 0: up to its NUL */
    /* "Name: value", ending in NULL; or NULL.  A body is sent as application/json unless
     * "Content-Type:" stands here. */
    const char *const *headers;
};

struct answer client_send(struct client *client, const struct request *request);
struct answer client_get(struct client *client, const char *path);
struct answer client_post(struct client *client, const char *path, const char *body);
struct answer client_delete(struct client *client, const char *path);

/* client_send that does not fail the test: false where no answer came (client->code says why). */
bool client_try(struct answer *out, struct client *client, const struct request *request);

void answer_free(struct answer *answer);

/* Copies the header's value; false where there is none. */
bool answer_header(char out[256], const struct answer *answer, const char *name);

/* Returns the error's code word, "" where the answer is no error of attnd. */
const char *answer_code(const struct answer *answer);

/* Fails the test, showing the answer, unless it has that status and code word (NULL: no error);
 * `what` begins the message. */
void expect_answer(const struct answer *answer, long status, const char *code, const char *what);

/* client_post or client_delete, of which nothing but status and code word counts. */
void expect_posted(struct client *client, const char *path, const char *body, long status,
                   const char *code);
void expect_deleted(struct client *client, const char *path, long status, const char *code);

/* Returns an integer member of the answer, which must be there. */
json_int_t answer_integer(const struct answer *answer, const char *name);

#endif
