/* route_match.c: which route a method and a path mean: whole segments, compared byte by byte.
 *
 * Paths are matched as they were sent, but for one slash at the end of some.  A percent sign is not
 * decoded, so an encoded path never turns into another route; ids need no encoding. */
#include <stdio.h>

#include "http/http.h"

/* SRV_METHOD_COUNT: a method of HTTP that no route has. */
static const struct {
    const char *name;
    enum srv_method method;
} methods[] = {
    {"GET", SRV_GET},
    {"HEAD", SRV_GET},
    {"POST", SRV_POST},
    {"PUT", SRV_PUT},
    {"DELETE", SRV_DELETE},
    {"OPTIONS", SRV_METHOD_COUNT},
    {"PATCH", SRV_METHOD_COUNT},
    {"TRACE", SRV_METHOD_COUNT},
    {"CONNECT", SRV_METHOD_COUNT},
};

bool srv_route_read_method(enum srv_method *out, const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(methods[i].name, name) != 0)
            continue;
        *out = methods[i].method;
        return true;
    }
    return false;
}

/* Whether `path` is that of the route, which has no {..}. */
static bool is_path(const char *path, const struct srv_route *route)
{
    size_t length = strlen(route->path);
    const char *rest = path + length;
    return strncmp(path, route->path, length) == 0 &&
           (*rest == '\0' || (route->slash && strcmp(rest, "/") == 0));
}

/* Whether `path` has the form of the route's; *arg receives what stands for {..}. */
static bool matches(char arg[SRV_ID_MAX + 1], const struct srv_route *route, const char *path)
{
    const char *pattern = route->path;
    arg[0] = '\0';
    if (path[0] != '/' || path[1] != pattern[1]) /* true of nearly all patterns */
        return false;
    const char *open = strchr(pattern, '{');
    if (open == NULL)
        return is_path(path, route);
    size_t before = (size_t)(open - pattern);
    if (strncmp(pattern, path, before) != 0)
        return false;
    size_t length = strcspn(path + before, "/");
    if (length == 0 || length > SRV_ID_MAX)
        return false;
    if (strcmp(strchr(open, '}') + 1, path + before + length) != 0)
        return false;
    memcpy(arg, path + before, length);
    arg[length] = '\0';
    return true;
}

const struct srv_route *srv_route_find(char arg[SRV_ID_MAX + 1], char allowed[64],
                                       const struct srv_routes *routes, enum srv_method method,
                                       const char *path)
{
    allowed[0] = '\0';
    for (size_t i = 0; i < routes->count; i++) {
        const struct srv_route *route = &routes->items[i];
        if (!matches(arg, route, path))
            continue;
        if (route->method == method) {
            allowed[0] = '\0';
            return route;
        }
        const char *name = route->method == SRV_GET ? "GET, HEAD" : srv_method_name(route->method);
        size_t length = strlen(allowed);
        if (strstr(allowed, name) == NULL) /* two patterns may match */
            snprintf(allowed + length, 64 - length, "%s%s", length > 0 ? ", " : "", name);
    }
    arg[0] = '\0';
    return NULL;
}
