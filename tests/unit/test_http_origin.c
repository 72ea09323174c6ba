/* test_http_origin.c: which values of Host are the daemon's, and which of Origin. */
#include <check.h>
#include <string.h>

#include "http/guard.h"
#include "suites.h"

static const char names[] = "attnd,Attn.Example,attnd.default.svc.cluster.local";

TEST(host_may_be_an_address_localhost_or_a_listed_name)
{
    static const char *const allowed[] = {
        "127.0.0.1",          "127.0.0.1:8080",
        "10.1.2.3:",          "[::1]",
        "[::1]:8080",         "[::ffff:10.0.0.1]:80",
        "[FE80::1]",          "localhost",
        "LOCALHOST:8080",     "localhost.",
        "app.localhost:3000", "attnd",
        "ATTND:8080",         "attnd.",
        "attn.example:443",   "attnd.default.svc.cluster.local",
    };
    for (size_t i = 0; i < COUNT(allowed); i++)
        ck_assert_msg(srv_host_is_allowed(allowed[i], strlen(allowed[i]), names), "%s", allowed[i]);
}

TEST(host_of_any_other_form_is_not_ours)
{
    static const char *const refused[] = {
        "",
        ".",
        ":",
        ":8080",
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evillocalhost",
        "localhost..",
        "localhost:80:80",
        "localhost:80x",
        "localhost@evil.example",
        "evil.example,attnd",
        "attnd,Attn.Example",
        "attn",
        "attnd2",
        ",",
        "attnd ",
        "1.2.3",
        "1.2.3.4.5",
        "0x7f.1",
        "127.0.0.1x",
        "256.0.0.1",
        "::1",
        "[::1",
        "[::1]x",
        "[::1]:x",
        "[]",
        "[127.0.0.1]",
        "[evil.example]",
        "[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]",
    };
    for (size_t i = 0; i < COUNT(refused); i++)
        ck_assert_msg(!srv_host_is_allowed(refused[i], strlen(refused[i]), names), "%s",
                      refused[i]);
    ck_assert(!srv_host_is_allowed("attnd", 5, NULL));
    ck_assert(srv_host_is_allowed("localhost!", 9, NULL)); /* the length counts, not a NUL */
}

static struct srv_header_field field(const char *name, const char *value)
{
    return (struct srv_header_field){name, value, strlen(name), strlen(value)};
}

TEST(an_origin_is_own_where_host_has_its_authority)
{
    static const struct {
        const char *origin, *host;
        bool own, own_with_tls;
    } cases[] = {
        {"http://localhost:8080", "localhost:8080", true, false},
        {"https://attn.example", "attn.example", true, true},
        {"HTTPS://Attn.Example", "attn.example", true, true},
        {"http://localhost:8080", "localhost", false, false},
        {"http://localhost", "localhost:8080", false, false},
        {"http://localhost:8081", "localhost:8080", false, false},
        {"http://evil.example", "localhost", false, false},
        {"null", "null", false, false},
        {"localhost", "localhost", false, false},
        {"ftp://localhost", "localhost", false, false},
        {"http://", "localhost", false, false},
        {"http://localhost.", "localhost", false, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct srv_header_field origin = field("Origin", cases[i].origin);
        struct srv_header_field host = field("Host", cases[i].host);
        ck_assert_msg(srv_origin_is_own(&origin, &host, false) == cases[i].own, "%s",
                      cases[i].origin);
        ck_assert_msg(srv_origin_is_own(&origin, &host, true) == cases[i].own_with_tls, "%s",
                      cases[i].origin);
        ck_assert(!srv_origin_is_own(&origin, NULL, false));
    }
}

SUITE(http_origin)
