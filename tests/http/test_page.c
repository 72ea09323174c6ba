/* test_page.c: the attention viewer as a browser gets it: GET / and GET /ui/{file}, byte for byte
 * as they stand in the tree, to whom and with which fields; and a daemon that was built without.
 * /openapi.json is a file of the binary as well. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "secret.h"
#include "served.h"
#include "suites.h"

#define DIRECTORY "server/ui"
#define FILE_MOST ((size_t)1 << 20)
#define POLICY                                                                              \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; " \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "                             \
    "require-trusted-types-for 'script'; trusted-types attnd-worker; frame-ancestors "

static struct answer ask(const char *method, const char *path, const char *field)
{
    const char *const headers[] = {field, NULL};
    struct request request = {.method = method, .path = path, .headers = headers};
    return client_send(&client, &request);
}

static void expect_status(const char *method, const char *path, const char *field, long status,
                          const char *code)
{
    struct answer answer = ask(method, path, field);
    expect_answer(&answer, status, code, path);
    answer_free(&answer);
}

static void expect_field(const struct answer *answer, const char *name, const char *value)
{
    char got[256];
    ck_assert_msg(answer_header(got, answer, name), "no %s in %s", name, answer->headers);
    ck_assert_str_eq(got, value);
}

/* ---- What is served -------------------------------------------------------------------------- */

/* The caller frees it. */
static char *read_file(size_t *length, const char *path)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s", path);
    char *text = malloc(FILE_MOST);
    *length = fread(text, 1, FILE_MOST, file);
    ck_assert_uint_lt(*length, FILE_MOST);
    fclose(file);
    return text;
}

/* Expands the body, a member of gzip, in place. */
static void expand(struct answer *answer)
{
    z_stream stream = {.next_in = (Bytef *)answer->text, .avail_in = (uInt)answer->length};
    char *text = malloc(FILE_MOST);
    stream.next_out = (Bytef *)text;
    stream.avail_out = (uInt)FILE_MOST;
    ck_assert_int_eq(inflateInit2(&stream, MAX_WBITS + 16), Z_OK);
    ck_assert_int_eq(inflate(&stream, Z_FINISH), Z_STREAM_END);
    ck_assert_uint_eq(stream.avail_in, 0);
    ck_assert_uint_lt(answer->length, stream.total_out);
    free(answer->text);
    answer->text = text;
    answer->length = stream.total_out;
    inflateEnd(&stream);
}

/* In the form that browsers ask for, or in the plain one.  The caller frees the answer. */
static struct answer expect_form(const char *path, const char *file, const char *type, bool coded)
{
    size_t length;
    char *bytes = read_file(&length, file), value[256];
    struct answer answer = ask("GET", path, coded ? "Accept-Encoding: gzip, deflate, br" : NULL);
    expect_answer(&answer, 200, NULL, path);
    ck_assert_int_eq(answer_header(value, &answer, "Content-Encoding"), coded);
    if (coded) {
        ck_assert_str_eq(value, "gzip");
        expand(&answer);
    }
    ck_assert_msg(answer.length == length && memcmp(answer.text, bytes, length) == 0,
                  "%s is not %s", path, file);
    expect_field(&answer, "Vary", "Accept-Encoding");
    expect_field(&answer, "Cache-Control", "no-cache");
    expect_field(&answer, "Content-Type", type);
    free(bytes);
    return answer;
}

static void expect_file(const char *path, const char *file, const char *type)
{
    for (int coded = 0; coded < 2; coded++) {
        struct answer answer = expect_form(path, file, type, coded);
        expect_field(&answer, "Content-Security-Policy", POLICY "'none'");
        expect_field(&answer, "X-Content-Type-Options", "nosniff");
        expect_field(&answer, "Referrer-Policy", "no-referrer");
        answer_free(&answer);
    }
}

static const char *type_of(const char *name)
{
    static const char *const types[][2] = {{".js", "text/javascript; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".svg", "image/svg+xml"},
                                           {".safetensors", "application/octet-stream"}};
    const char *suffix = strrchr(name, '.');
    for (size_t i = 0; suffix != NULL && i < COUNT(types); i++)
        if (strcmp(suffix, types[i][0]) == 0)
            return types[i][1];
    return NULL;
}

CASE(page, serve_small, serve_end, 0)

TEST(page_and_its_files_are_those_of_the_tree)
{
    char path[300], file[300];
    size_t served_files = 0;
    DIR *directory = opendir(DIRECTORY);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *type = type_of(entry->d_name);
        if (type == NULL)
            continue;
        snprintf(path, sizeof path, "/ui/%s", entry->d_name);
        snprintf(file, sizeof file, DIRECTORY "/%s", entry->d_name);
        expect_file(path, file, type);
        served_files++;
    }
    closedir(directory);
    ck_assert_uint_ge(served_files, 3);
    expect_file("/", DIRECTORY "/index.html", "text/html; charset=utf-8");
    expect_file("/ui/attn-client.mjs", "clients/js/attn-client.mjs",
                "text/javascript; charset=utf-8");
    expect_file("/ui/demo.json", "examples/demo/demo.json", "text/plain; charset=utf-8");
    expect_file("/ui/demo_tokenizer.json", "examples/demo/tokenizer.json",
                "text/plain; charset=utf-8");
}

/* As the program of the build has printed it. */
TEST(page_openapi_is_served_as_its_files_are)
{
    char field[256];
    for (int coded = 0; coded < 2; coded++) {
        struct answer answer =
            expect_form("/openapi.json", "build/host/openapi.json", "application/json", coded);
        ck_assert(!answer_header(field, &answer, "Content-Security-Policy"));
        answer_free(&answer);
    }
    expect_status("GET", "/openapi.json", "Accept: text/html", 406, "not_acceptable");
}

TEST(page_has_no_other_files)
{
    static const char *const paths[] = {"/ui",           "/ui/",         "/ui/index.html",
                                        "/ui/none",      "/ui/ui.c",     "/ui/..%2fmain.c",
                                        "/ui/dom.j",     "/ui/dom.js/",  "/ui/./dom.js",
                                        "/ui/dom.js%00", "/ui/../models"};
    for (size_t i = 0; i < COUNT(paths); i++)
        expect_status("GET", paths[i], NULL, 404, "route_not_found");
}

static void expect_head(const char *path)
{
    char of_get[256], of_head[256];
    struct answer get = client_get(&client, path), head = ask("HEAD", path, NULL);
    ck_assert_int_eq(head.status, 200);
    ck_assert_uint_eq(head.length, 0);
    ck_assert(answer_header(of_get, &get, "Content-Length"));
    ck_assert(answer_header(of_head, &head, "Content-Length"));
    ck_assert_str_eq(of_head, of_get);
    answer_free(&get);
    answer_free(&head);
}

TEST(page_answers_head_and_refuses_other_methods)
{
    expect_head("/");
    expect_head("/openapi.json");
    struct answer post = ask("POST", "/ui/dom.js", NULL);
    expect_answer(&post, 405, "method_not_allowed", "POST");
    expect_field(&post, "Allow", "GET, HEAD");
    answer_free(&post);
}

static void tag_of(char out[256], const char *path, const char *coding)
{
    struct answer answer = ask("GET", path, coding);
    ck_assert_int_eq(answer.status, 200);
    ck_assert_msg(answer_header(out, &answer, "ETag"), "%s has no ETag", path);
    ck_assert_msg(strlen(out) == 12 && strncmp(out, "W/\"", 3) == 0, "%s", out);
    answer_free(&answer);
}

static void expect_held(const char *path, const char *tags, bool held)
{
    char field[400];
    snprintf(field, sizeof field, "If-None-Match: %s", tags);
    struct answer answer = ask("GET", path, field);
    ck_assert_msg(answer.status == (held ? 304 : 200), "%s: %ld", field, answer.status);
    ck_assert_msg((answer.length == 0) == held, "%s: %zu bytes", field, answer.length);
    if (held) {
        expect_field(&answer, "Cache-Control", "no-cache");
        ck_assert(answer_header(field, &answer, "ETag"));
    }
    answer_free(&answer);
}

TEST(page_is_not_sent_again_to_who_has_kept_it)
{
    static const char *const paths[] = {"/", "/ui/dom.js", "/openapi.json"};
    char tags[3][256], coded[256], list[600];
    for (size_t i = 0; i < 3; i++) {
        tag_of(tags[i], paths[i], NULL);
        tag_of(coded, paths[i], "Accept-Encoding: gzip");
        ck_assert_str_eq(coded, tags[i]);
        expect_held(paths[i], tags[i], true);
        expect_held(paths[i], tags[i] + 2, true); /* as caches that drop W/ have it */
        expect_held(paths[i], "*", true);
        snprintf(list, sizeof list, "\"a\", %s, W/\"b\"", tags[i]);
        expect_held(paths[i], list, true);
        expect_held(paths[i], "W/\"00000000\"", false);
        snprintf(list, sizeof list, "\"%0300d\", %s", 0, tags[i]);
        expect_held(paths[i], list, false);
    }
    expect_held("/ui/dom.js", tags[0], false);
    struct answer models = ask("GET", "/models", "If-None-Match: *");
    expect_answer(&models, 200, NULL, "/models");
    expect_field(&models, "Cache-Control", "no-store");
    ck_assert(!answer_header(list, &models, "ETag"));
    answer_free(&models);
    struct answer none = ask("GET", "/ui/none", "If-None-Match: *");
    expect_answer(&none, 404, "route_not_found", "/ui/none");
    expect_field(&none, "Cache-Control", "no-store");
    answer_free(&none);
}

/* As a browser asks: for a page, a style, a script, an image. */
TEST(page_goes_by_the_types_that_a_client_accepts)
{
    expect_status("GET", "/", "Accept: text/html,application/xml;q=0.9,*/*;q=0.8", 200, NULL);
    expect_status("GET", "/", "Accept: application/json", 406, "not_acceptable");
    expect_status("GET", "/ui/dom.js", "Accept: text/javascript", 200, NULL);
    expect_status("GET", "/ui/dom.js", "Accept: image/avif,image/svg+xml", 200, NULL);
}

/* ---- To whom --------------------------------------------------------------------------------- */

TEST(page_holds_to_the_rules_of_host_and_origin)
{
    char own[128];
    snprintf(own, sizeof own, "Origin: %s", served.url);
    static const char *const paths[] = {"/", "/ui/dom.js"};
    for (size_t i = 0; i < 2; i++) {
        expect_status("GET", paths[i], own, 200, NULL);
        expect_status("GET", paths[i], "Host: evil.example", 421, "host_not_allowed");
        expect_status("GET", paths[i], "Origin: http://evil.example", 403, "origin_not_allowed");
    }
}

/* The longest header that a reply of the page has. */
static void expect_framed_by(const char *origins, const char *origin)
{
    char policy[1024], field[300];
    snprintf(policy, sizeof policy, "Content-Security-Policy: " POLICY "%s\r\n", origins);
    snprintf(field, sizeof field, "Origin: %s", origin);
    const char *const headers[] = {
        field, "Accept-Encoding: gzip",
        "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "X-Request-Id: 0123456789012345678901234567890123456789012345678901234567890123", NULL};
    struct request request = {.method = "GET", .path = "/", .headers = headers};
    struct answer answer = client_send(&client, &request);
    expect_answer(&answer, 200, NULL, origins);
    ck_assert_msg(strstr(answer.headers, policy) != NULL, "%s", answer.headers);
    expect_field(&answer, "Access-Control-Allow-Origin", origin);
    answer_free(&answer);
}

#define LABEL "abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz"
#define LONG "https://" LABEL "." LABEL "." LABEL "." LABEL ".example" /* 231 characters */

/* ---- Where it is ----------------------------------------------------------------------------- */

TEST(page_is_named_when_the_daemon_is_ready)
{
    char line[160];
    snprintf(line, sizeof line, "attnd: attention viewer: %s/\n", served.url);
    char *out = process_text(served.process.out);
    ck_assert_msg(strstr(out, line) != NULL, "%s", out);
    free(out);
}

CASE(daemons_of_their_own, NULL, NULL, 0)

TEST(page_may_be_framed_by_listed_origins)
{
    char none[256], listed[256];
    serve(CONFIG_SMALL(""));
    tag_of(none, "/", NULL);
    serve_end();
    serve(CONFIG_SMALL("\"allow_origins\":[\"http://localhost:8888\",\"https://b.example\"],"));
    expect_framed_by("http://localhost:8888 https://b.example", "https://b.example");
    tag_of(listed, "/", NULL);
    ck_assert_msg(strcmp(none, listed) != 0, "browsers would keep the policy of before");
    serve_end();
    serve(CONFIG_SMALL("\"allow_origins\":[\"http://a.example\",\"" LONG "\",\"" LONG "2\"],"));
    expect_framed_by("http://a.example " LONG, LONG); /* what goes beyond 400 is left out whole */
    serve_end();
}

/* No bound on the bytes of replies is too low for the page. */
TEST(page_is_not_subject_to_the_bound_of_replies)
{
    serve(CONFIG_SMALL("\"max_reply_bytes\":4096,"));
    expect_file("/ui/attn-client.mjs", "clients/js/attn-client.mjs",
                "text/javascript; charset=utf-8");
    for (size_t i = 0; i < 200; i++)
        expect_status("GET", "/ui/attn-client.mjs", NULL, 200, NULL);
    expect_status("GET", "/ui/none", NULL, 404, "route_not_found");
    serve_end();
}

TEST(page_needs_no_key_and_goes_over_tls)
{
    char certificate[SECRET_PATH], key[SECRET_PATH], keys[SECRET_PATH];
    certificate_make(certificate, key);
    secret_write(keys, KEYS_THREE);
    const char *const flags[] = {"--tls-cert", certificate, "--tls-key", key,
                                 "--api-keys", keys,        NULL};
    daemon_start(&served, CONFIG_SMALL(""), flags, NULL);
    served.trusted = certificate;
    client_open(&client, &served);
    expect_file("/", DIRECTORY "/index.html", "text/html; charset=utf-8");
    expect_file("/ui/dom.js", DIRECTORY "/dom.js", "text/javascript; charset=utf-8");
    expect_status("GET", "/models", NULL, 401, "unauthorized");
    expect_status("GET", "/", "Authorization: Bearer none", 200, NULL);
    serve_end();
    unlink(certificate);
    unlink(key);
    unlink(keys);
}

/* As `make UI=0` links it: no route, no word of it. */
TEST(page_is_not_in_a_daemon_that_was_built_without)
{
    char program[512];
    const char *attnd = getenv("ATTND");
    snprintf(program, sizeof program, "%s_no_ui", attnd != NULL ? attnd : "build/attnd");
    ck_assert_msg(access(program, X_OK) == 0, "%s is not there: make %s", program, program);
    ck_assert_int_eq(setenv("ATTND", program, 1), 0);
    unsetenv("EXCHANGES"); /* these are not as the other daemon's description has them */
    serve_small();
    expect_status("GET", "/", NULL, 404, "route_not_found");
    expect_status("GET", "/ui/dom.js", NULL, 404, "route_not_found");
    struct answer answer = client_get(&client, "/openapi.json");
    expect_answer(&answer, 200, NULL, "/openapi.json");
    json_t *paths = json_object_get(answer.json, "paths");
    ck_assert_ptr_nonnull(json_object_get(paths, "/models"));
    ck_assert_ptr_null(json_object_get(paths, "/"));
    ck_assert_ptr_null(json_object_get(paths, "/ui/{file}"));
    char *out = process_text(served.process.out);
    ck_assert_ptr_null(strstr(out, "viewer"));
    free(out);
    answer_free(&answer);
    serve_end();
}

SUITE(page)
