/* option_checks.c: which texts an option may have, where not every text will do. */
#include "config/options.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

bool srv_host_valid(const char *text)
{
    unsigned char address[sizeof(struct in6_addr)];
    return strcmp(text, "localhost") == 0 || inet_pton(AF_INET, text, address) == 1 ||
           inet_pton(AF_INET6, text, address) == 1;
}

/* Whether every entry of a list is good: texts separated by commas, of 1 to SRV_LISTED_MAX
 * characters each, and as `entry_valid` says; NULL: of any form. */
static bool list_valid(const char *text, bool (*entry_valid)(const char *text, size_t length))
{
    for (;;) {
        size_t length = strcspn(text, ",");
        if (length == 0 || length > SRV_LISTED_MAX ||
            (entry_valid != NULL && !entry_valid(text, length)))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

#define LOWER_SET "abcdefghijklmnopqrstuvwxyz0123456789-_."

static bool host_name_valid(const char *text, size_t length)
{
    return strspn(text, LOWER_SET "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == length &&
           text[length - 1] != '.';
}

/* Whether the origin has the port that its scheme implies, which browsers leave out. */
static bool has_default_port(const char *text, size_t length)
{
    static const struct {
        const char *scheme, *port;
    } defaults[] = {{"http://", ":80"}, {"https://", ":443"}};
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        size_t port = strlen(defaults[i].port);
        if (strncmp(text, defaults[i].scheme, strlen(defaults[i].scheme)) == 0 &&
            memcmp(text + length - port, defaults[i].port, port) == 0)
            return true;
    }
    return false;
}

/* A scheme, "://", and a host with a port or without, in lower case: as browsers write them. */
static bool origin_valid(const char *text, size_t length)
{
    size_t scheme = strspn(text, LOWER_SET "+");
    if (scheme == 0 || strncmp(text + scheme, "://", strlen("://")) != 0)
        return false;
    const char *host = text + scheme + strlen("://"), *end = text + length;
    return host < end && host[0] != ':' && host + strspn(host, LOWER_SET "[]:") == end &&
           !has_default_port(text, length);
}

bool srv_hosts_valid(const char *text) { return list_valid(text, host_name_valid); }
bool srv_origins_valid(const char *text) { return list_valid(text, origin_valid); }

bool srv_adopted_valid(const char *text)
{
    size_t commas = 0;
    for (const char *at = text; *at != '\0'; at++)
        commas += *at == ',';
    return commas < SRV_MAX_ADOPTED && list_valid(text, NULL);
}

bool srv_config_take_name(char out[SRV_LISTED_MAX + 1], const char **names)
{
    if (*names == NULL || **names == '\0')
        return false;
    size_t length = strcspn(*names, ",");
    snprintf(out, SRV_LISTED_MAX + 1, "%.*s", (int)length, *names);
    *names += length + ((*names)[length] == ',');
    return true;
}
