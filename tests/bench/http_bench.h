/* http_bench.h: the parts of build/bench_http: a server to compare with, a client, the library.
 *
 * Every failure ends the program with a line that names it. */
#ifndef TESTS_BENCH_HTTP_BENCH_H
#define TESTS_BENCH_HTTP_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "attn.h"

_Noreturn void http_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t http_now_ns(void);

/* ---- http_bare.c ---- */

/* Prints its address, then serves a short fixed reply through libmicrohttpd alone, with attnd's
 * event loop.  Ends with the process. */
_Noreturn void http_bare(void);

/* ---- http_client.c: one kept-alive connection ---- */

struct http_client {
    int fd;
    size_t capacity;
    char *buffer;
    int64_t compute_ns; /* of the last reply, as its Server-Timing says; 0 without */
};

struct http_text {
    char *bytes;
    size_t length, capacity;
};

void http_client_open(struct http_client *out, const char *url); /* "http://127.0.0.1:PORT" */
void http_client_close(struct http_client *client);

/* Sends a request and reads the reply; returns the nanoseconds from the first byte sent to the last
 * received.  Ends the program unless the status is `status`. */
uint64_t http_exchange(struct http_client *client, const struct http_text *request,
                       unsigned status);

/* Writes a GET of a path; and a POST /decode of one row over a session, as JSON with 9 digits or as
 * bytes. */
void http_get(struct http_text *out, const char *path);
struct http_decode {
    const char *session;
    size_t rows, width;
    const float *hidden_states; /* [rows][width] */
    const char *members;        /* more of the body: `,"commit":false` */
    int binary;                 /* the row and the reply's output as bytes */
};
void http_post_decode(struct http_text *out, const struct http_decode *call);
void http_text_free(struct http_text *text);

/* ---- http_library.c: the same decodes without HTTP ---- */

struct http_model {
    size_t width, heads, head_dim;
};

struct http_library {
    struct attn_engine *engine;
    struct attn_model *model;
    struct attn_cache_pool *pool;
    size_t sessions;
    struct attn_cache **caches; /* [sessions] */
    struct attn_step *steps;    /* [sessions] not committed, so that every call is the same */
    struct attn_step **list;    /* [sessions] to them */
    float *rows, *outputs;      /* [sessions][width] */
};

/* Makes `sessions` caches of `cached` tokens each, over the random model of that form. */
void http_library_open(struct http_library *out, const struct http_model *model, size_t sessions,
                       size_t cached);
void http_library_close(struct http_library *library);
uint64_t http_library_run(struct http_library *library); /* one attn_decode; nanoseconds */

#endif
