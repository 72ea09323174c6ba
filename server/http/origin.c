/* origin.c: Host against allowed_hosts, Origin against allow_origins, and CORS.
 *
 * Both options are texts, `a,b,c`, checked when the configuration was read; they are searched as
 * they stand, for they are short and most requests need neither: an address is tried first, and
 * programs send no Origin. */
#include "http/guard.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <strings.h>

#define METHODS "GET, HEAD, POST, PUT, DELETE"
#define REQUEST_FIELDS                                                            \
    "Accept, Authorization, Content-Encoding, Content-Type, Idempotency-Key, "    \
    "Inference-Header-Content-Length, Traceparent, X-Deadline-Ms, X-Request-Id, " \
    "X-Session-Id"
#define REPLY_FIELDS                                                       \
    "Allow, Inference-Header-Content-Length, Retry-After, Server-Timing, " \
    "Traceparent, X-Attn-Instance, X-Attn-Owner, X-Request-Id"
#define ASKED_FIELDS_MAX 512 /* bytes of further fields that a preflight may ask for */
#define MAX_AGE "600"        /* seconds that a browser may remember a preflight's answer */
#define SHOWN 100            /* characters of a refused value that the message repeats */

/* The entry of the list that equals the text, letters of either case; NULL for none. */
static const char *find_listed(const char *list, const char *text, size_t length)
{
    while (list != NULL && list[0] != '\0') {
        size_t entry = strcspn(list, ",");
        if (entry == length && strncasecmp(list, text, entry) == 0)
            return list;
        list += entry + (list[entry] == ',');
    }
    return NULL;
}

/* ---- Host ------------------------------------------------------------------------------------ */

/* Whether `text` is nothing, or a colon and digits. */
static bool is_port(const char *text, size_t length)
{
    for (size_t i = 1; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return length == 0 || text[0] == ':';
}

static bool is_address(int family, const char *text, size_t length)
{
    char copy[INET6_ADDRSTRLEN], address[sizeof(struct in6_addr)];
    if (length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return inet_pton(family, copy, address) == 1;
}

/* localhost, or a name under it: no resolver outside the machine is asked for these (RFC 6761). */
static bool is_localhost(const char *name, size_t length)
{
    static const char localhost[] = "localhost";
    size_t least = sizeof localhost - 1;
    return length >= least && strncasecmp(name + length - least, localhost, least) == 0 &&
           (length == least || name[length - least - 1] == '.');
}

bool srv_host_is_allowed(const char *host, size_t length, const char *names)
{
    if (length > 0 && host[0] == '[') {
        const char *close = memchr(host, ']', length);
        size_t inner = close != NULL ? (size_t)(close - host) - 1 : 0;
        return close != NULL && is_address(AF_INET6, host + 1, inner) &&
               is_port(close + 1, length - inner - 2);
    }
    const char *colon = memchr(host, ':', length);
    size_t name = colon != NULL ? (size_t)(colon - host) : length;
    if (!is_port(host + name, length - name))
        return false;
    if (is_address(AF_INET, host, name))
        return true;
    name -= name > 1 && host[name - 1] == '.'; /* the root's dot */
    return is_localhost(host, name) || find_listed(names, host, name) != NULL;
}

/* The name that the request uses: Host, or without it the authority of an absolute target; where
 * both are there guard.c has seen that they agree.  NULL: HTTP/1.0 may name nobody. */
static const struct srv_header_field *find_host(struct srv_header_field *authority,
                                                const struct srv_head *head)
{
    const struct srv_header_field *host = srv_head_find(head, "Host");
    if (host != NULL || head->target[0] == '/')
        return host;
    authority->value = strstr(head->target, "://") + strlen("://"); /* guard.c has seen it */
    authority->value_length = strcspn(authority->value, "/?");
    return authority;
}

static enum srv_error_code check_host(const struct srv_http_context *context,
                                      const struct srv_header_field *host, struct srv_error *error)
{
    bool any = context->keys != NULL && context->allowed_hosts == NULL;
    if (any || host == NULL || host->value_length == 0 || /* browsers always name one */
        srv_host_is_allowed(host->value, host->value_length, context->allowed_hosts))
        return SRV_OK;
    int shown = host->value_length < SHOWN ? (int)host->value_length : SHOWN;
    return srv_fail(error, SRV_E_HOST, "Host",
                    "Host '%.*s' is not this daemon's: use an address or localhost, or start attnd "
                    "with that name in allowed_hosts",
                    shown, host->value);
}

/* ---- Origin ---------------------------------------------------------------------------------- */

bool srv_origin_is_own(const struct srv_header_field *origin, const struct srv_header_field *host,
                       bool tls)
{
    static const char *const schemes[] = {"https://", "http://"};
    for (size_t i = 0; i < (tls ? 1 : 2); i++) {
        size_t scheme = strlen(schemes[i]);
        if (host != NULL && origin->value_length == scheme + host->value_length &&
            strncasecmp(origin->value, schemes[i], scheme) == 0 &&
            strncasecmp(origin->value + scheme, host->value, host->value_length) == 0)
            return true;
    }
    return false;
}

enum srv_error_code srv_origin_check(struct srv_request *request,
                                     const struct srv_http_context *context,
                                     const struct srv_head *head, bool tls, struct srv_error *error)
{
    bool repeated;
    struct srv_header_field authority;
    const struct srv_header_field *host = find_host(&authority, head);
    const struct srv_header_field *origin = srv_head_single(&repeated, head, "Origin");
    if (check_host(context, host, error) != SRV_OK)
        return error->code;
    if (origin == NULL)
        return SRV_OK;
    if (!repeated)
        request->origin = find_listed(context->allow_origins, origin->value, origin->value_length);
    if (request->origin != NULL || context->keys != NULL ||
        (!repeated && srv_origin_is_own(origin, host, tls)))
        return SRV_OK;
    int shown = origin->value_length < SHOWN ? (int)origin->value_length : SHOWN;
    return srv_fail(error, SRV_E_ORIGIN, "Origin",
                    "web pages of '%.*s' may not use this daemon: start attnd with that origin in "
                    "allow_origins",
                    shown, origin->value);
}

/* The fields that a preflight asks to send, where they are names and no more: libraries for traces
 * add some of their own, which mean nothing to attnd, to each request of a page. */
static const char *asked_fields(struct srv_request *request, const struct srv_head *head)
{
    bool repeated;
    const struct srv_header_field *asked =
        srv_head_single(&repeated, head, "Access-Control-Request-Headers");
    if (asked == NULL || repeated || asked->value_length > ASKED_FIELDS_MAX)
        return NULL;
    for (size_t i = 0; i < asked->value_length; i++)
        if (!isalnum((unsigned char)asked->value[i]) && strchr("-_, ", asked->value[i]) == NULL)
            return NULL;
    return srv_arena_copy(&request->arena, asked->value, asked->value_length);
}

bool srv_origin_answer_preflight(struct srv_request *request, const struct srv_head *head,
                                 const struct srv_framing *framing)
{
    bool has_body = framing->chunked || framing->length > 0;
    request->preflight = request->origin != NULL && !has_body &&
                         strcmp(head->method, "OPTIONS") == 0 &&
                         srv_head_find(head, "Access-Control-Request-Method") != NULL;
    if (!request->preflight)
        return false;
    request->asked_fields = asked_fields(request, head);
    srv_reply_status(request, 204);
    return true;
}

/* ---- Fields of replies ----------------------------------------------------------------------- */

void srv_origin_write_fields(struct srv_buffer *out, const struct srv_request *request, bool pages)
{
    bool varies = request->reply.varies;
    if (varies || pages) {
        srv_buffer_text(out, varies ? "Vary: Accept-Encoding" : "Vary: ");
        srv_buffer_text(out, varies && pages ? ", " : "");
        srv_buffer_text(out, pages ? "Origin\r\n" : "\r\n");
    }
    if (request->origin == NULL)
        return;
    srv_buffer_text(out, "Access-Control-Allow-Origin: ");
    srv_buffer_append(out, request->origin, strcspn(request->origin, ","));
    if (!request->preflight) {
        srv_buffer_text(out, "\r\nAccess-Control-Expose-Headers: " REPLY_FIELDS "\r\n");
        return;
    }
    srv_buffer_text(out, "\r\nAccess-Control-Allow-Methods: " METHODS
                         "\r\nAccess-Control-Allow-Headers: " REQUEST_FIELDS);
    srv_buffer_text(out, request->asked_fields != NULL ? ", " : "");
    srv_buffer_text(out, request->asked_fields != NULL ? request->asked_fields : "");
    srv_buffer_text(out, "\r\nAccess-Control-Max-Age: " MAX_AGE "\r\n");
}
