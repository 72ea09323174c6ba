/* test_http.c: which route a path means, and which heads the guard refuses.
 *
 * Heads that pass the scan are split here as libmicrohttpd 0.9.75 splits them, in place, so that
 * the guard sees what libmicrohttpd would hand it. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "api/endpoints.h"
#include "http/guard.h"
#include "http/http.h"
#include "http/scan.h"
#include "suites.h"

static struct srv_error error;
static struct srv_framing framing;

static void setup(void) { memset(&error, 0, sizeof error); }

/* ---- Routes ---------------------------------------------------------------------------------- */

static const struct srv_route *find(enum srv_method method, const char *path, char allowed[64])
{
    char arg[SRV_ID_MAX + 1];
    return srv_route_find(arg, allowed, &srv_routes, method, path);
}

TEST(route_every_entry_finds_itself)
{
    char allowed[64], path[128], arg[SRV_ID_MAX + 1];
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        size_t before = strcspn(route->path, "{");
        bool has_arg = route->path[before] == '{';
        ck_assert_uint_lt(before + 8, sizeof path);
        const char *after = has_arg ? strchr(route->path, '}') + 1 : "";
        snprintf(path, sizeof path, "%.*s%s%s", (int)before, route->path, has_arg ? "a.b" : "",
                 after);
        ck_assert_ptr_eq(srv_route_find(arg, allowed, &srv_routes, route->method, path), route);
        ck_assert_str_eq(arg, has_arg ? "a.b" : "");
    }
}

TEST(route_every_entry_has_either_handler_or_parser)
{
    for (size_t i = 0; i < srv_routes.count; i++)
        ck_assert_int_ne(srv_routes.items[i].handle != NULL, srv_routes.items[i].parse != NULL);
}

TEST(route_takes_whole_segments_as_they_were_sent)
{
    static const char *const unknown[] = {
        "",           "/ui",           "/ui/",
        "/ui/a/b",    "/livezz",       "/livez/",
        "/Livez",     "//livez",       "/live",
        "/sessions/", "/sessions/a/b", "/sessions//",
        "/%6civez",   "/livez?x",      "/attend/../livez",
        "livez",      "/sessionsx",    "/models/a/b",
        "/metrics ",  "/session",
    };
    char allowed[64];
    for (size_t i = 0; i < COUNT(unknown); i++) {
        ck_assert_msg(find(SRV_GET, unknown[i], allowed) == NULL, "%s", unknown[i]);
        ck_assert_msg(allowed[0] == '\0', "%s: %s", unknown[i], allowed);
    }
}

TEST(route_argument_keeps_escapes_and_ends_at_its_ceiling)
{
    char arg[SRV_ID_MAX + 1], allowed[64], path[128] = "/sessions/";
    ck_assert_ptr_nonnull(srv_route_find(arg, allowed, &srv_routes, SRV_GET, "/sessions/a%2Fb"));
    ck_assert_str_eq(arg, "a%2Fb");
    memset(path + strlen("/sessions/"), 'x', SRV_ID_MAX);
    ck_assert_ptr_nonnull(srv_route_find(arg, allowed, &srv_routes, SRV_GET, path));
    ck_assert_uint_eq(strlen(arg), SRV_ID_MAX);
    path[strlen(path)] = 'x';
    ck_assert_ptr_null(srv_route_find(arg, allowed, &srv_routes, SRV_GET, path));
    ck_assert_str_eq(arg, "");
}

/* A route that a path without its last slash means, or none. */
static const struct {
    const char *path, *route;
} slashed[] = {
    {"/models/", "/models"},
    {"/models/tiny/", NULL},
    {"/metrics/", NULL},
    {"/readyz/", NULL},
    {"/models//", NULL},
    {"/models/tiny//", NULL},
    {"/models//tiny", NULL},
    {"/sessions/", NULL},
    {"/sessions/a/", NULL},
    {"/sessions/a/state/", NULL},
    {"/snapshot/", NULL},
    {"/", "/"},
    {"//", NULL},
};

TEST_EACH(route_one_slash_may_follow_the_list_of_models, COUNT(slashed))
{
    char arg[SRV_ID_MAX + 1], allowed[64];
    const struct srv_route *route =
        srv_route_find(arg, allowed, &srv_routes, SRV_GET, slashed[_i].path);
    if (slashed[_i].route == NULL)
        ck_assert_ptr_null(route);
    else
        ck_assert_str_eq(route->path, slashed[_i].route);
    ck_assert_str_eq(arg, "");
    ck_assert_ptr_null(srv_route_find(arg, allowed, &srv_routes, SRV_POST, "/decode/"));
}

TEST(route_known_path_with_other_method_lists_those_allowed)
{
    char allowed[64];
    ck_assert_ptr_null(find(SRV_GET, "/attend", allowed));
    ck_assert_str_eq(allowed, "POST");
    ck_assert_ptr_null(find(SRV_METHOD_COUNT, "/sessions", allowed));
    ck_assert_str_eq(allowed, "POST, GET, HEAD");
    ck_assert_ptr_null(find(SRV_PUT, "/sessions/x", allowed));
    ck_assert_str_eq(allowed, "GET, HEAD, DELETE");
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* The bytes of a head, and the head that libmicrohttpd makes of them. */
struct raw_head {
    char bytes[65536], target[65536];
    struct srv_head head;
};

/* Ends the line at `at` and returns where the next begins. */
static char *end_line(char *at, const char *end)
{
    char *feed = memchr(at, '\n', (size_t)(end - at));
    ck_assert(feed != NULL && feed > at && feed[-1] == '\r');
    feed[-1] = '\0';
    return feed + 1;
}

static void split_line(struct raw_head *raw, char *line)
{
    char *target = strchr(line, ' ');
    char *version = strrchr(line, ' ');
    ck_assert(target != NULL && version != target);
    *target++ = *version++ = '\0';
    memcpy(raw->target, target, strlen(target) + 1);
    raw->head.method = line;
    raw->head.path = target;
    raw->head.target = raw->target;
    raw->head.version = version;
}

static void split_field(struct srv_head *head, char *line)
{
    char *colon = strchr(line, ':');
    ck_assert_ptr_nonnull(colon);
    *colon = '\0';
    char *value = colon + 1 + strspn(colon + 1, " \t");
    ck_assert_uint_lt(head->count, SRV_MAX_HEADERS);
    head->fields[head->count++] =
        (struct srv_header_field){line, value, strlen(line), strlen(value)};
}

/* The verdict of scan and guard on a head of `count` bytes, which may hold NUL. */
static enum srv_error_code guard_bytes(const char *bytes, size_t count)
{
    static struct raw_head raw;
    struct srv_scan scan = {0};
    ck_assert_uint_lt(count, sizeof raw.bytes);
    memset(&raw, 0, sizeof raw);
    memcpy(raw.bytes, bytes, count);
    size_t passed = srv_scan(&scan, raw.bytes, count);
    if (scan.fault != NULL)
        return srv_fail(&error, scan.fault->code, scan.fault->param, "%s", scan.fault->message);
    ck_assert_uint_eq(passed, count);
    ck_assert_uint_eq(scan.requests, 1);
    char *line = raw.bytes, *end = raw.bytes + count, *next = end_line(line, end);
    split_line(&raw, line);
    for (line = next; line < end; line = next) {
        next = end_line(line, end);
        if (line[0] != '\0')
            split_field(&raw.head, line);
    }
    return srv_guard_head(&framing, &raw.head, &error);
}

static enum srv_error_code guard(const char *text) { return guard_bytes(text, strlen(text)); }

#define GET "GET /livez HTTP/1.1\r\nHost: a\r\n"
#define POST "POST /decode HTTP/1.1\r\nHost: a\r\n"

CASE(guard, setup, NULL, 0)

TEST(guard_reads_the_framing_of_good_heads)
{
    ck_assert_int_eq(guard(GET "\r\n"), SRV_OK);
    ck_assert(!framing.has_length && !framing.chunked && !framing.expects_continue);
    ck_assert_int_eq(guard(POST "content-length: 0012\r\n\r\n"), SRV_OK);
    ck_assert(framing.has_length && framing.length == 12);
    ck_assert_int_eq(guard(POST "Content-Length: 18446744073709551615\r\n\r\n"), SRV_OK);
    ck_assert_uint_eq(framing.length, UINT64_MAX);
    ck_assert_int_eq(guard(POST "transfer-encoding:Chunked\r\n\r\n"), SRV_OK);
    ck_assert(framing.chunked && !framing.has_length);
    ck_assert_int_eq(guard(POST "Expect: 100-Continue\r\nContent-Length:1\r\n\r\n"), SRV_OK);
    ck_assert(framing.expects_continue);
    ck_assert_int_eq(guard("GET /a?b=%20&c HTTP/1.0\r\nX:\r\nY: \t a\tb \xc3\xa9\r\n\r\n"), SRV_OK);
}

struct refusal {
    const char *text;
    enum srv_error_code code;
};

static const struct refusal refusals[] = {
    {"GET http://a HTTP/1.1\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET http:///a HTTP/1.1\r\nHost:\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET http:/a HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET h://a/ HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET ://a/ HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET httpss://a/ HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET * HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET  /a HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {" / HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET / HTTP/1.1\r\n\r\n", SRV_E_BAD_REQUEST},
    {GET "HOST: b\r\n\r\n", SRV_E_BAD_REQUEST},
    {GET "A B: c\r\n\r\n", SRV_E_BAD_REQUEST},
    {GET "A : c\r\n\r\n", SRV_E_BAD_REQUEST},
    {GET ": c\r\n\r\n", SRV_E_BAD_REQUEST},
    {GET "A: b\x01\r\n\r\n", SRV_E_BAD_REQUEST},
    {GET "A: b\rc\r\n\r\n", SRV_E_BAD_REQUEST},
    {GET "A: b\x7f\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET / HTTP/1.1\nHost: a\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET / HTTP/1.1\r\nHost: a\n\r\n", SRV_E_BAD_REQUEST},
    {"GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET / HTTP/1.1\r\nHost: a\r\n\n", SRV_E_BAD_REQUEST},
    {POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Content-Length: 5\r\ncontent-length: 5\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Content-Length:\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Content-Length: +5\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Content-Length: 5, 5\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Content-Length: 5 5\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Content-Length: 18446744073709551616\r\n\r\n", SRV_E_BODY_TOO_LARGE},
    {POST "Transfer-Encoding: gzip, chunked\r\n\r\n", SRV_E_NOT_IMPLEMENTED},
    {POST "Transfer-Encoding: chunked x\r\n\r\n", SRV_E_NOT_IMPLEMENTED},
    {POST "Transfer-Encoding: chunked , x\r\n\r\n", SRV_E_NOT_IMPLEMENTED},
    {POST "Transfer-Encoding:\r\n\r\n", SRV_E_NOT_IMPLEMENTED},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", SRV_E_BAD_REQUEST},
    {POST "Expect: 200-ok\r\n\r\n", SRV_E_NOT_IMPLEMENTED},
    {POST "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", SRV_E_BAD_REQUEST},
    {"GET / HTTP/1.1\r\nHost: a\r\nA\r\n\r\n", SRV_E_BAD_REQUEST},
};

TEST_EACH(guard_refuses_what_could_be_read_in_two_ways, (int)COUNT(refusals))
{
    const struct refusal *refusal = &refusals[_i];
    enum srv_error_code code = guard(refusal->text);
    ck_assert_msg(code == refusal->code, "%s: %s, not %s", refusal->text, srv_error_word(code),
                  srv_error_word(refusal->code));
    ck_assert_int_eq(error.code, code);
    ck_assert_uint_gt(strlen(error.message), 0);
}

TEST(guard_refuses_a_nul_in_a_value)
{
    static const char middle[] = GET "A: b\0c\r\nD: e\r\n\r\n", last[] = GET "A: b\0\r\n\r\n";
    ck_assert_int_eq(guard_bytes(middle, sizeof middle - 1), SRV_E_BAD_REQUEST);
    ck_assert_int_eq(guard_bytes(last, sizeof last - 1), SRV_E_BAD_REQUEST);
}

TEST(guard_takes_an_absolute_target_of_the_host)
{
    ck_assert_int_eq(guard("GET http://a:80/b?c HTTP/1.1\r\nHost: a:80\r\n\r\n"), SRV_OK);
    ck_assert_uint_eq(framing.origin_length, strlen("http://a:80"));
    ck_assert_int_eq(guard("GET HTTPS://A?b/c HTTP/1.1\r\nHost: a\r\n\r\n"), SRV_OK);
    ck_assert_uint_eq(framing.origin_length, strlen("https://a"));
    ck_assert_int_eq(guard("GET http://a HTTP/1.0\r\n\r\n"), SRV_OK);
    ck_assert_uint_eq(framing.origin_length, strlen("http://a"));
    ck_assert_int_eq(guard("GET /http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"), SRV_OK);
    ck_assert_uint_eq(framing.origin_length, 0);
}

TEST(guard_knows_the_characters_of_a_name)
{
    static const char also[] = "!#$%&'*+-.^_`|~";
    for (int c = 1; c < 256; c++) {
        char text[] = GET "X?Y: z\r\n\r\n";
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool good = letter || (c >= '0' && c <= '9') || strchr(also, c) != NULL;
        *strchr(text, '?') = (char)c;
        if (c != ':' && c != '\n') /* these end a name or a line */
            ck_assert_msg((guard(text) == SRV_OK) == good, "byte %d", c);
    }
}

TEST(guard_refuses_too_many_and_too_long_fields)
{
    char text[SRV_MAX_HEADER_BYTES + 64] = GET;
    for (int i = 0; i < SRV_MAX_HEADERS; i++)
        memcpy(text + strlen(text), "A: b\r\n", 7);
    memcpy(text + strlen(text), "\r\n", 3);
    ck_assert_int_eq(guard(text), SRV_E_HEADERS_TOO_LARGE);
    size_t length = strlen(GET "A: ");
    memcpy(text, GET "A: ", length);
    memset(text + length, 'b', SRV_MAX_HEADER_BYTES - length);
    memcpy(text + SRV_MAX_HEADER_BYTES - 4, "\r\n\r\n", 5);
    ck_assert_int_eq(guard(text), SRV_OK);
    memcpy(text + SRV_MAX_HEADER_BYTES - 4, "b\r\n\r\n", 6);
    ck_assert_int_eq(guard(text), SRV_E_HEADERS_TOO_LARGE);
}

/* ---- Media types and ids --------------------------------------------------------------------- */

static struct srv_head fields(size_t count, const char *const pairs[])
{
    struct srv_head head = {.count = count};
    for (size_t i = 0; i < count; i++)
        head.fields[i] = (struct srv_header_field){pairs[2 * i], pairs[2 * i + 1],
                                                   strlen(pairs[2 * i]), strlen(pairs[2 * i + 1])};
    return head;
}

static bool body_taken(const char *type)
{
    const char *pairs[] = {"content-type", type};
    struct srv_head head = fields(1, pairs);
    return srv_guard_content_type(&head, false, &error) == SRV_OK;
}

TEST(guard_takes_json_bodies_only)
{
    ck_assert(body_taken("application/json"));
    ck_assert(body_taken("Application/JSON ; charset=utf-8"));
    ck_assert(!body_taken("application/jsonx"));
    ck_assert(!body_taken("application/jso"));
    ck_assert(!body_taken("text/json"));
    ck_assert(!body_taken(""));
    struct srv_head none = {0};
    ck_assert_int_eq(srv_guard_content_type(&none, true, &error), SRV_E_UNSUPPORTED_MEDIA);
    const char *twice[] = {"Content-Type", "application/json", "Content-Type", "application/json"};
    struct srv_head both = fields(2, twice);
    ck_assert_int_eq(srv_guard_content_type(&both, true, &error), SRV_E_UNSUPPORTED_MEDIA);
}

/* The guard's verdict on a body of this type where tensors may follow the JSON; length: the JSON's,
 * as the field has it, or NULL for no field. */
static enum srv_error_code framed_body(const char *type, const char *length, uint64_t *out)
{
    const char *pairs[] = {"Content-Type", type, "inference-header-content-length", length};
    struct srv_head head = fields(length != NULL ? 2 : 1, pairs);
    bool framed;
    enum srv_error_code code = srv_guard_json_length(&framed, out, &head, &error);
    ck_assert(framed == (length != NULL));
    return code == SRV_OK ? srv_guard_content_type(&head, true, &error) : code;
}

TEST(guard_takes_the_length_of_json_before_tensors)
{
    uint64_t length = 77;
    ck_assert_int_eq(framed_body("application/json", NULL, &length), SRV_OK);
    ck_assert_uint_eq(length, 77);
    ck_assert_int_eq(framed_body("application/json", "12", &length), SRV_OK);
    ck_assert_uint_eq(length, 12);
    ck_assert_int_eq(framed_body("Application/Octet-Stream;x=1", "18446744073709551615", &length),
                     SRV_OK);
    ck_assert_uint_eq(length, UINT64_MAX);
    ck_assert_int_eq(framed_body("application/octet-stream", "007", &length), SRV_OK);
    ck_assert_uint_eq(length, 7);
    ck_assert_int_eq(framed_body("application/octet-stream", NULL, &length), SRV_E_BAD_REQUEST);
    ck_assert_int_eq(framed_body("application/octet", "7", &length), SRV_E_UNSUPPORTED_MEDIA);
    static const char *const wrong[] = {
        "", "-1", "+1", "1 2", "0x10", "1.0", "1e3", "12a", "1,1", " ", "18446744073709551616"};
    for (size_t i = 0; i < COUNT(wrong); i++)
        ck_assert_int_eq(framed_body("application/json", wrong[i], &length), SRV_E_BAD_REQUEST);
    const char *twice[] = {"Inference-Header-Content-Length", "7",
                           "Inference-Header-Content-Length", "7"};
    struct srv_head both = fields(2, twice);
    bool framed;
    ck_assert_int_eq(srv_guard_json_length(&framed, &length, &both, &error), SRV_E_BAD_REQUEST);
}

/* 'b' where Accept prefers a binary reply, 'j' for JSON, 'x' where it refuses both. */
static char form_accepted(const char *accept)
{
    const char *pairs[] = {"Accept", accept};
    struct srv_head head = fields(1, pairs);
    bool binary;
    if (srv_guard_accept_binary(&binary, &head, &error) != SRV_OK)
        return 'x';
    return binary ? 'b' : 'j';
}

TEST(guard_accept_asks_for_binary_by_name)
{
    static const struct {
        const char *accept;
        char form;
    } cases[] = {
        {"", 'j'},
        {"*/*", 'j'},
        {"application/*", 'j'},
        {"application/json", 'j'},
        {"application/octet-stream", 'b'},
        {"Application/Octet-Stream;q=0.3", 'b'},
        {"application/octet-stream, application/json", 'b'},
        {"application/octet-stream, */*", 'b'},
        {"application/octet-stream;q=0.5, application/json;q=0.5", 'b'},
        {"application/octet-stream;q=0.5, application/json;q=0.55", 'j'},
        {"application/json;q=0.9, application/octet-stream;q=0.25", 'j'},
        {"application/octet-stream;q=0, application/json", 'j'},
        {"application/octet-stream;q=0.25, text/html", 'b'},
        {"application/octet-stream;q=0", 'x'},
        {"application/json;q=0, */*", 'x'},
        {"text/html", 'x'},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        ck_assert_msg(form_accepted(cases[i].accept) == cases[i].form, "%s: %c, not %c",
                      cases[i].accept, form_accepted(cases[i].accept), cases[i].form);
}

static bool accepted(const char *accept, const char *type)
{
    const char *pairs[] = {"ACCEPT", accept};
    struct srv_head head = fields(1, pairs);
    return srv_guard_accept(&head, type, &error) == SRV_OK;
}

TEST(guard_accept_goes_by_the_closest_range)
{
    static const char json[] = "application/json";
    ck_assert(accepted("", json));
    ck_assert(accepted("*/*", json));
    ck_assert(accepted("text/html, application/*;q=0.2", json));
    ck_assert(accepted("APPLICATION/json;charset=utf-8;q=1", json));
    ck_assert(accepted("*/*;q=0, application/json", json));
    ck_assert(accepted("text/plain;version=0.0.4;q=0.5,*/*;q=0", "text/plain"));
    ck_assert(!accepted("text/html", json));
    ck_assert(!accepted("text/html,,", json));
    ck_assert(!accepted("*/*, application/json;q=0", json));
    ck_assert(!accepted("application/*; q=0.000 , */*", json));
    ck_assert(!accepted("application/jsonx, application/jso", json));
    ck_assert(!accepted(json, "text/plain"));
}

TEST(guard_accept_counts_every_field)
{
    const char *pairs[] = {"Accept", "text/html", "Accept", "application/json"};
    struct srv_head head = fields(2, pairs);
    ck_assert_int_eq(srv_guard_accept(&head, "application/json", &error), SRV_OK);
    ck_assert_int_eq(srv_guard_accept(&head, "text/plain", &error), SRV_E_NOT_ACCEPTABLE);
}

static bool is_id(const char *value)
{
    char id[SRV_ID_MAX + 1];
    struct srv_header_field field = {"X-Request-Id", value, 12, strlen(value)};
    bool taken = srv_header_field_id(id, &field);
    ck_assert_str_eq(id, taken ? value : "");
    return taken;
}

TEST(guard_ids_are_short_and_plain)
{
    static const char longest[] =
        "0123456789012345678901234567890123456789012345678901234567890123x";
    char id[SRV_ID_MAX + 1];
    ck_assert(is_id("a"));
    ck_assert(is_id("Az09_.-"));
    ck_assert(is_id(longest + 1));
    ck_assert(!is_id(longest));
    ck_assert(!is_id(""));
    ck_assert(!is_id("a b"));
    ck_assert(!is_id("a\"b"));
    ck_assert(!is_id("\xc3\xa9"));
    ck_assert(!srv_header_field_id(id, NULL));
}

SUITE(http)
