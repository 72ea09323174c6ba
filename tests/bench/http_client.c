/* http_client.c: a blocking client that waits for each reply, and the requests it sends. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http_bench.h"

#define REPLY_MAX ((size_t)1 << 20)

void http_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("bench_http: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(EXIT_FAILURE);
}

uint64_t http_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void http_client_open(struct http_client *out, const char *url)
{
    const char *port = strrchr(url, ':');
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)(port != NULL ? strtoul(port + 1, NULL, 10) : 0));
    int on = 1;
    out->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (out->fd < 0 || connect(out->fd, (struct sockaddr *)&address, sizeof address) != 0)
        http_die("%s: %s", url, strerror(errno));
    setsockopt(out->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    out->capacity = REPLY_MAX;
    out->buffer = malloc(out->capacity + 1);
    if (out->buffer == NULL)
        http_die("out of memory");
}

void http_client_close(struct http_client *client)
{
    close(client->fd);
    free(client->buffer);
}

static void send_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent < 0)
            http_die("cannot send: %s", strerror(errno));
        bytes += sent;
        count -= (size_t)sent;
    }
}

/* Bytes of the whole reply, once its head has arrived; 0 before that. */
static size_t reply_length(const char *buffer)
{
    const char *end = strstr(buffer, "\r\n\r\n"), *length = strstr(buffer, "Content-Length: ");
    if (end == NULL)
        return 0;
    size_t head = (size_t)(end + 4 - buffer);
    /* Inference-Header-Content-Length has the same end. */
    while (length != NULL && length > buffer && length[-1] != '\n')
        length = strstr(length + 1, "Content-Length: ");
    return head + (length != NULL ? strtoul(length + 16, NULL, 10) : 0);
}

/* The milliseconds after "compute;dur=", as nanoseconds. */
static int64_t read_compute(const char *reply)
{
    static const char name[] = "compute;dur=";
    const char *found = strstr(reply, name);
    return found != NULL ? (int64_t)(1e6 * strtod(found + sizeof name - 1, NULL)) : 0;
}

uint64_t http_exchange(struct http_client *client, const struct http_text *request, unsigned status)
{
    size_t length = 0, whole = 0;
    uint64_t start = http_now_ns();
    send_all(client->fd, request->bytes, request->length);
    while (whole == 0 || length < whole) {
        ssize_t got = recv(client->fd, client->buffer + length, client->capacity - length, 0);
        if (got <= 0)
            http_die("the connection ended before the reply did");
        length += (size_t)got;
        client->buffer[length] = '\0';
        if (whole == 0)
            whole = reply_length(client->buffer);
    }
    uint64_t ns = http_now_ns() - start;
    if (strtoul(client->buffer + 9, NULL, 10) != status)
        http_die("status is not %u: %.300s", status, client->buffer);
    client->compute_ns = read_compute(client->buffer);
    return ns;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void append(struct http_text *out, const void *bytes, size_t count)
{
    if (out->length + count > out->capacity) {
        out->capacity = 2 * (out->length + count);
        out->bytes = realloc(out->bytes, out->capacity);
        if (out->bytes == NULL)
            http_die("out of memory");
    }
    memcpy(out->bytes + out->length, bytes, count);
    out->length += count;
}

static void print(struct http_text *out, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    append(out, text, (size_t)length);
}

void http_get(struct http_text *out, const char *path)
{
    print(out, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
}

static void print_rows(struct http_text *out, const struct http_decode *call)
{
    for (size_t row = 0; row < call->rows; row++) {
        append(out, row == 0 ? "[[" : ",[", 2);
        for (size_t i = 0; i < call->width; i++)
            print(out, i == 0 ? "%.9g" : ",%.9g",
                  (double)call->hidden_states[row * call->width + i]);
        append(out, "]", 1);
    }
    append(out, "]", 1);
}

void http_post_decode(struct http_text *out, const struct http_decode *call)
{
    struct http_text json = {0};
    size_t bytes = call->rows * call->width * sizeof(float);
    print(&json, "{\"session_id\":\"%s\"%s,\"hidden_states\":", call->session, call->members);
    if (call->binary)
        print(&json, "{\"shape\":[%zu,%zu],\"datatype\":\"FP32\",\"binary_data_size\":%zu}",
              call->rows, call->width, bytes);
    else
        print_rows(&json, call);
    append(&json, "}", 1);
    print(out, "POST /decode HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n",
          json.length + (call->binary ? bytes : 0));
    if (call->binary)
        print(out,
              "Inference-Header-Content-Length: %zu\r\nAccept: application/octet-stream\r\n"
              "Content-Type: application/octet-stream\r\n\r\n",
              json.length);
    else
        print(out, "Content-Type: application/json\r\n\r\n");
    append(out, json.bytes, json.length);
    if (call->binary)
        append(out, call->hidden_states, bytes);
    http_text_free(&json);
}

void http_text_free(struct http_text *text)
{
    free(text->bytes);
    *text = (struct http_text){0};
}
