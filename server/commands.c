/* commands.c: --help, --version, --check and --health-check. */
#include "commands.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attn.h"
#include "buffer.h"
#include "http.h"
#include "models.h"
#include "sandbox.h"

#define TEXT_MAX ((size_t)1 << 20) /* of what a command prints */

/* Prints what was built and ends it. */
static int print(struct srv_buffer *text)
{
    bool printed = !text->failed && fwrite(text->data, 1, text->length, stdout) == text->length &&
                   fflush(stdout) == 0;
    srv_buffer_fini(text);
    return printed ? 0 : 1;
}

int srv_command_help(void)
{
    struct srv_buffer text;
    srv_buffer_init(&text, TEXT_MAX);
    srv_config_help(&text);
    return print(&text);
}

int srv_command_version(void)
{
    struct attn_engine *engine;
    struct attn_engine_options options = {.threads = 1};
    struct attn_error error = {0};
    if (attn_engine_open(&engine, &options, &error) != ATTN_OK) {
        fprintf(stderr, "attnd: %s\n", error.message);
        return 1;
    }
    struct attn_engine_info info;
    struct srv_buffer text;
    attn_engine_describe(&info, engine);
    srv_buffer_init(&text, TEXT_MAX);
    srv_buffer_printf(
        &text, "attnd %s\nlibattn %s, %s kernels\nOpenBLAS core %s\nlibmicrohttpd %s\n",
        ATTN_VERSION, ATTN_VERSION, info.level_name, info.blas_core, srv_http_library());
    attn_engine_close(engine);
    return print(&text);
}

/* ---- --check --------------------------------------------------------------------------------- */

static void print_bytes(struct srv_buffer *out, const char *what, size_t bytes)
{
    srv_buffer_printf(out, "  %-19s %15zu  %10.1f MiB\n", what, bytes, (double)bytes / 1048576);
}

static void print_model(struct srv_buffer *out, const struct srv_model *model)
{
    const struct attn_model_info *info = &model->info;
    const struct attn_layer_spec *spec = srv_model_first_layer(model->attn);
    char family[SRV_FAMILY_MAX];
    srv_model_print_family(family, info);
    srv_buffer_printf(out, "  %s: %s, %zu of %zu layers, weights %zu bytes, cache %zu bytes/token",
                      model->name, family, info->num_resident, info->num_layers, info->weight_bytes,
                      info->cache_bytes_per_token);
    srv_buffer_printf(out, ", hidden_size %zu, heads %zu/%zu x %zu", spec->hidden_size,
                      spec->num_heads, spec->num_kv_heads, spec->head_dim);
    srv_buffer_printf(out, ", max_length %zu\n", model->max_length);
}

/* False where the option asks for what the kernel does not have. */
static bool print_sandbox(struct srv_buffer *out, const struct srv_config *config)
{
    char words[SRV_SANDBOX_WORDS];
    bool able = srv_sandbox_describe(words);
    srv_buffer_printf(out, "sandbox: this kernel has %s\n", words);
    return able || !config->sandbox;
}

static void print_memory(struct srv_buffer *out, const struct srv_config *config,
                         const struct srv_models *models)
{
    const struct srv_limits *limits = &config->limits;
    size_t weights = 0, connections = limits->max_connections * (size_t)SRV_CONNECTION_BYTES;
    for (size_t i = 0; i < models->count; i++)
        weights += models->items[i].info.weight_bytes;
    srv_buffer_text(out, "memory at most:\n");
    print_bytes(out, "weights", weights);
    print_bytes(out, "cache_bytes", limits->cache_bytes);
    print_bytes(out, "max_in_flight_bytes", limits->max_in_flight_bytes);
    print_bytes(out, "max_connections", connections);
    print_bytes(out, "together",
                weights + limits->cache_bytes + limits->max_in_flight_bytes + connections);
}

int srv_command_check(const struct srv_config *config)
{
    struct srv_models models = {0};
    struct srv_buffer text;
    char message[512];
    int status = 1;
    srv_buffer_init(&text, TEXT_MAX);
    srv_buffer_text(&text, "options:\n");
    srv_config_print(&text, config);
    if (!srv_models_open(&models, config, NULL, message, sizeof message)) {
        fprintf(stderr, "attnd: %s\n", message);
        srv_buffer_fini(&text);
    } else {
        srv_buffer_printf(&text, "models: %zu%s\n", models.count,
                          models.count == 0 ? ", so only attention without weights" : "");
        for (size_t i = 0; i < models.count; i++)
            print_model(&text, &models.items[i]);
        print_memory(&text, config, &models);
        bool able = print_sandbox(&text, config);
        status = print(&text);
        if (!able) {
            fprintf(stderr, "attnd: sandbox: this kernel filters no system calls\n");
            status = 1;
        }
    }
    srv_models_close(&models);
    return status;
}

/* ---- --health-check -------------------------------------------------------------------------- */

void srv_print_url(char out[SRV_URL_MAX], const char *host, unsigned port)
{
    bool v6 = strchr(host, ':') != NULL;
    snprintf(out, SRV_URL_MAX, "http://%s%.48s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

/* Where to reach a daemon that listens on `host`; the address that means any is taken for here. */
static socklen_t address_of(struct sockaddr_storage *out, const char *host, unsigned port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        if (v4.sin_addr.s_addr == htonl(INADDR_ANY))
            v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        memcpy(out, &v4, sizeof v4);
        return sizeof v4;
    }
    inet_pton(AF_INET6, host, &v6.sin6_addr);
    if (memcmp(&v6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0)
        v6.sin6_addr = in6addr_loopback;
    memcpy(out, &v6, sizeof v6);
    return sizeof v6;
}

/* Waits for `events`; false where the deadline passes first. */
static bool wait_for(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd wanted = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now = srv_now_ns();
        int left_ms = now < deadline_ns ? (int)((deadline_ns - now) / 1000000) : 0;
        int ready = poll(&wanted, 1, left_ms);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true;
        if (left_ms == 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static bool connect_within(int fd, const struct sockaddr_storage *address, socklen_t length,
                           uint64_t deadline_ns)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, (const struct sockaddr *)address, length) == 0)
        return true;
    if (errno != EINPROGRESS || !wait_for(fd, POLLOUT, deadline_ns) ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return false;
    errno = error;
    return error == 0;
}

/* Sends the request and reads the status line, of which 12 bytes matter: "HTTP/1.1 200". */
static bool exchange(char line[13], int fd, uint64_t deadline_ns)
{
    static const char request[] =
        "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    size_t have = 0;
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)sizeof request - 1)
        return false;
    while (have < 12) {
        if (!wait_for(fd, POLLIN, deadline_ns))
            return false;
        ssize_t got = read(fd, line + have, 12 - have);
        if (got == 0)
            errno = ECONNRESET;
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    line[12] = '\0';
    return true;
}

int srv_command_health(const struct srv_config *config)
{
    struct sockaddr_storage address;
    char url[SRV_URL_MAX], line[13] = "";
    uint64_t deadline_ns = srv_now_ns() + SRV_HEALTH_SECONDS * UINT64_C(1000000000);
    socklen_t length = address_of(&address, config->host, (unsigned)config->port);
    srv_print_url(url, config->host, (unsigned)config->port);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool answered = fd >= 0 && connect_within(fd, &address, length, deadline_ns) &&
                    exchange(line, fd, deadline_ns);
    int cause = errno;
    if (fd >= 0)
        close(fd);
    if (!answered)
        fprintf(stderr, "attnd: %s: %s\n", url, strerror(cause));
    else if (strcmp(line + 9, "200") != 0)
        fprintf(stderr, "attnd: %s is not ready: status %s\n", url, line + 9);
    return answered && strcmp(line + 9, "200") == 0 ? 0 : 1;
}
