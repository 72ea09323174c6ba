/* path.c: paths against the table of routes, and session ids. */
#include "api/endpoints.h"
#include "fuzz.h"
#include "http/http.h"
#include "wire/call.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* The path must be the pattern with `arg` in the place of its braces, and nothing else but the
 * slash that may end some. */
static void expect_whole(const struct srv_route *route, const char *arg, const char *path)
{
    char whole[1024];
    const char *open = strchr(route->path, '{');
    int before = open != NULL ? (int)(open - route->path) : (int)strlen(route->path);
    snprintf(whole, sizeof whole, "%.*s%s%s", before, route->path, arg,
             open != NULL ? strchr(open, '}') + 1 : "");
    size_t length = strlen(whole);
    FUZZ_EXPECT(strncmp(whole, path, length) == 0);
    FUZZ_EXPECT(path[length] == '\0' || (route->slash && strcmp(path + length, "/") == 0));
    FUZZ_EXPECT(strchr(arg, '/') == NULL && (open != NULL) == (arg[0] != '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    char arg[SRV_ID_MAX + 1], allowed[64];
    size_t length;
    enum srv_method method = fuzz_byte(&in) % SRV_METHOD_COUNT;
    char *path = fuzz_text(&length, &in, 512);
    const struct srv_route *route = srv_route_find(arg, allowed, &srv_routes, method, path);
    FUZZ_EXPECT(strlen(allowed) < sizeof allowed);
    if (route != NULL)
        expect_whole(route, arg, path);
    bool id = strlen(path) >= 1 && strlen(path) <= SRV_ID_MAX && strchr(LETTERS, path[0]) != NULL &&
              path[0] != '\0' && strspn(path, LETTERS "_.-") == strlen(path);
    FUZZ_EXPECT(srv_id_valid(path) == id);
    free(path);
    return 0;
}
