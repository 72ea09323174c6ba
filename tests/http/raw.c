/* raw.c: sockets, and just enough HTTP to know where an answer ends: by Content-Length, which every
 * answer of attnd with a body has. */
#include "raw.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void raw_open(struct raw *raw, const char *host, unsigned port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool is_v4 = inet_pton(AF_INET, host, &v4.sin_addr) == 1;
    ck_assert(is_v4 || inet_pton(AF_INET6, host, &v6.sin6_addr) == 1);
    int at_once = 1;
    *raw = (struct raw){.data = calloc(1, 1)};
    raw->fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int connected = is_v4 ? connect(raw->fd, (struct sockaddr *)&v4, sizeof v4)
                          : connect(raw->fd, (struct sockaddr *)&v6, sizeof v6);
    ck_assert_msg(connected == 0, "%s port %u: %s", host, port, strerror(errno));
    ck_assert_ptr_nonnull(raw->data);
    setsockopt(raw->fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
}

bool raw_accept(struct raw *raw, int listener)
{
    int at_once = 1;
    *raw = (struct raw){.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)};
    if (raw->fd < 0)
        return false;
    raw->data = calloc(1, 1);
    ck_assert_ptr_nonnull(raw->data);
    setsockopt(raw->fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    return true;
}

bool raw_open_tls(struct raw *raw, const char *host, unsigned port, const char *priorities)
{
    gnutls_session_t tls;
    gnutls_certificate_credentials_t trust;
    int result;
    raw_open(raw, host, port);
    ck_assert_int_eq(gnutls_certificate_allocate_credentials(&trust), GNUTLS_E_SUCCESS);
    ck_assert_int_eq(gnutls_init(&tls, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL), GNUTLS_E_SUCCESS);
    raw->tls = tls;
    raw->trust = trust;
    ck_assert_int_eq(
        gnutls_priority_set_direct(tls, priorities != NULL ? priorities : "NORMAL", NULL),
        GNUTLS_E_SUCCESS);
    gnutls_credentials_set(tls, GNUTLS_CRD_CERTIFICATE, trust);
    gnutls_transport_set_int(tls, raw->fd);
    gnutls_handshake_set_timeout(tls, 60000);
    do
        result = gnutls_handshake(tls);
    while (result < 0 && !gnutls_error_is_fatal(result));
    return result == GNUTLS_E_SUCCESS;
}

void raw_close(struct raw *raw)
{
    if (raw->tls != NULL)
        gnutls_deinit(raw->tls);
    if (raw->trust != NULL)
        gnutls_certificate_free_credentials(raw->trust);
    close(raw->fd);
    free(raw->data);
    free(raw->sent.data);
}

void raw_reset(struct raw *raw)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(raw->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    raw_close(raw);
}

/* ---- Sending --------------------------------------------------------------------------------- */

bool raw_send(struct raw *raw, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t sent = raw->tls != NULL ? gnutls_record_send(raw->tls, at, count)
                                        : send(raw->fd, at, count, MSG_NOSIGNAL);
        if (raw->tls != NULL ? sent == GNUTLS_E_INTERRUPTED : sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        sent_add(&raw->sent, at, (size_t)sent);
        at += sent;
        count -= (size_t)sent;
    }
    return true;
}

bool raw_text(struct raw *raw, const char *text) { return raw_send(raw, text, strlen(text)); }

bool raw_slowly(struct raw *raw, const void *bytes, size_t count, size_t piece, unsigned pause_ms)
{
    const char *at = bytes;
    while (count > 0) {
        size_t now = count < piece ? count : piece;
        if (!raw_send(raw, at, now))
            return false;
        at += now;
        count -= now;
        if (count > 0)
            poll(NULL, 0, (int)pause_ms);
    }
    return true;
}

void raw_half_close(struct raw *raw)
{
    if (raw->tls != NULL)
        (void)gnutls_bye(raw->tls, GNUTLS_SHUT_WR);
    shutdown(raw->fd, SHUT_WR);
}

/* ---- Receiving ------------------------------------------------------------------------------- */

enum more { MORE_BYTES, MORE_END, MORE_LATE };

/* Receives as recv does; -1 with errno EAGAIN where the time is up. */
static ssize_t receive_tls(struct raw *raw, void *out, size_t most, uint64_t left_ms)
{
    ssize_t got;
    gnutls_record_set_timeout(raw->tls, (unsigned)left_ms);
    do
        got = gnutls_record_recv(raw->tls, out, most);
    while (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED);
    raw->cut = got < 0;
    errno = got == GNUTLS_E_TIMEDOUT ? EAGAIN : EIO;
    return got < 0 ? -1 : got;
}

/* Waits for bytes and adds them to raw->data. */
static enum more receive(struct raw *raw, uint64_t deadline_ms)
{
    char bytes[65536];
    uint64_t now = now_ms();
    struct pollfd readable = {.fd = raw->fd, .events = POLLIN};
    if (now >= deadline_ms ||
        (raw->tls == NULL && poll(&readable, 1, (int)(deadline_ms - now)) <= 0))
        return MORE_LATE;
    ssize_t got = raw->tls != NULL ? receive_tls(raw, bytes, sizeof bytes, deadline_ms - now)
                                   : recv(raw->fd, bytes, sizeof bytes, 0);
    if (got < 0 && raw->tls != NULL && errno == EAGAIN)
        return MORE_LATE;
    if (got <= 0)
        return MORE_END;
    ck_assert_uint_lt(raw->length + (size_t)got, RAW_MAX_BYTES);
    raw->data = realloc(raw->data, raw->length + (size_t)got + 1);
    ck_assert_ptr_nonnull(raw->data);
    memcpy(raw->data + raw->length, bytes, (size_t)got);
    raw->length += (size_t)got;
    raw->data[raw->length] = '\0';
    return MORE_BYTES;
}

bool raw_read_to_end(struct raw *raw, unsigned timeout_ms)
{
    uint64_t deadline = now_ms() + timeout_ms;
    enum more more;
    do
        more = receive(raw, deadline);
    while (more == MORE_BYTES);
    return more == MORE_END;
}

bool raw_header(char out[256], const struct raw_answer *answer, const char *name)
{
    size_t length = strlen(name);
    out[0] = '\0';
    const char *line = answer->head != NULL ? strstr(answer->head, "\r\n") : NULL;
    for (; line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, length) != 0 || line[length] != ':')
            continue;
        const char *value = line + length + 1 + strspn(line + length + 1, " ");
        size_t size = strcspn(value, "\r");
        ck_assert_uint_lt(size, 256);
        memcpy(out, value, size);
        out[size] = '\0';
        return true;
    }
    return false;
}

/* Copies `count` bytes from `at` in raw->data. */
static char *copy(const struct raw *raw, size_t at, size_t count)
{
    char *text = malloc(count + 1);
    ck_assert_ptr_nonnull(text);
    memcpy(text, raw->data + at, count);
    text[count] = '\0';
    return text;
}

/* Splits a whole answer off raw->data; false where it is not whole yet. */
static bool take(struct raw_answer *out, struct raw *raw, bool head_only)
{
    const char *end = strstr(raw->data, "\r\n\r\n");
    char value[256];
    if (end == NULL)
        return false;
    size_t head = (size_t)(end - raw->data) + 4;
    *out = (struct raw_answer){.head = copy(raw, 0, head)};
    out->status = (unsigned)strtoul(raw->data + strcspn(raw->data, " "), NULL, 10);
    bool has_body = !head_only && (out->status == 0 || out->status >= 200) && out->status != 204;
    if (has_body && raw_header(value, out, "Content-Length"))
        out->length = strtoul(value, NULL, 10);
    if (raw->length - head < out->length) {
        raw_answer_free(out);
        return false;
    }
    out->body = copy(raw, head, out->length);
    raw->length -= head + out->length;
    memmove(raw->data, raw->data + head + out->length, raw->length + 1);
    return true;
}

struct raw_answer raw_read(struct raw *raw, bool head_only, unsigned timeout_ms)
{
    struct raw_answer answer = {0};
    uint64_t deadline = now_ms() + timeout_ms;
    for (;;) {
        if (take(&answer, raw, head_only)) {
            if (answer.status != 100) {
                sent_answered(&raw->sent, answer.status, answer.head, answer.body, answer.length);
                return answer;
            }
            raw_answer_free(&answer);
        } else if (receive(raw, deadline) != MORE_BYTES) {
            return answer;
        }
    }
}

void raw_answer_free(struct raw_answer *answer)
{
    free(answer->head);
    free(answer->body);
    *answer = (struct raw_answer){0};
}

struct raw_answer raw_exchange(const char *host, unsigned port, const char *text,
                               unsigned timeout_ms)
{
    struct raw raw;
    raw_open(&raw, host, port);
    raw_text(&raw, text);
    struct raw_answer answer = raw_read(&raw, false, timeout_ms);
    raw_close(&raw);
    return answer;
}
