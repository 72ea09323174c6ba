/* test_keys.c: the file of API keys, finding a key, and which key suffices for which route. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/endpoints.h"
#include "config/keys.h"
#include "http/guard.h"
#include "scratch.h"
#include "suites.h"

/* Keys of 32 characters, and the SHA-256 of the first, computed by another program. */
#define KEY_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define KEY_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define KEY_C "0123456789-._~+/ABCDEFGHIJKLMN=="
#define DIGEST_A "3ba3f5f43b92602683c19aee62a20342b084dd5971ddd33808d81a328879a547"

static char directory[SCRATCH_PATH], path[SCRATCH_PATH + 16], message[SRV_MESSAGE_MAX];
static struct srv_keys keys;

static void setup(void)
{
    scratch_make(directory);
    snprintf(path, sizeof path, "%s/keys.json", directory);
}

static void teardown(void) { scratch_remove(directory); }

static bool read_text(const char *text, size_t length, mode_t mode)
{
    scratch_write(directory, "keys.json", text, length);
    ck_assert_int_eq(chmod(path, mode), 0);
    message[0] = '\0';
    return srv_keys_read(&keys, path, message);
}

static void expect_read(const char *text)
{
    ck_assert_msg(read_text(text, strlen(text), 0600), "%s: %s", text, message);
    ck_assert_str_eq(message, "");
}

/* The file must be refused with one line that begins with the path and contains `part`, and without
 * keys. */
static void expect_refused(const char *text, const char *part)
{
    ck_assert_msg(!read_text(text, strlen(text), 0600), "accepted: %s", text);
    ck_assert_msg(strstr(message, part) != NULL, "\"%s\" is not in: %s", part, message);
    ck_assert_int_eq(strncmp(message, path, strlen(path)), 0);
    ck_assert_ptr_null(strchr(message, '\n'));
    ck_assert_uint_eq(keys.count, 0);
}

static const struct srv_key *find_bytes(const char *key, size_t length)
{
    unsigned char digest[SRV_KEY_DIGEST];
    srv_key_digest(digest, key, length);
    return srv_keys_find(&keys, digest);
}

static const struct srv_key *find(const char *key) { return find_bytes(key, strlen(key)); }

/* ---- The file -------------------------------------------------------------------------------- */

CASE(keys, setup, teardown, 0)

TEST(keys_are_read_with_names_and_scopes)
{
    expect_read("{\"keys\":[{\"name\":\"router\",\"key\":\"" KEY_B "\",\"scopes\":[\"infer\"]},"
                "{\"scopes\":[\"admin\",\"infer\"],\"name\":\"ops.1\",\"sha256\":\"" DIGEST_A
                "\"},{\"name\":\"watch\",\"key\":\"" KEY_C "\",\"scopes\":[\"admin\"]}]}");
    ck_assert_uint_eq(keys.count, 3);
    ck_assert_ptr_eq(find(KEY_B), &keys.items[0]);
    ck_assert_ptr_eq(find(KEY_A), &keys.items[1]);
    ck_assert_ptr_eq(find(KEY_C), &keys.items[2]);
    ck_assert_str_eq(keys.items[1].name, "ops.1");
    ck_assert_uint_eq(keys.items[0].scopes, SRV_SCOPE_INFER);
    ck_assert_uint_eq(keys.items[1].scopes, SRV_SCOPE_INFER | SRV_SCOPE_ADMIN);
    ck_assert_uint_eq(keys.items[2].scopes, SRV_SCOPE_ADMIN);
    ck_assert_str_eq(srv_scopes_text(keys.items[1].scopes), "infer admin");
}

TEST(keys_are_not_kept)
{
    expect_read("{\"keys\":[{\"name\":\"a\",\"key\":\"" KEY_C "\",\"scopes\":[\"infer\"]}]}");
    ck_assert_ptr_null(memmem(&keys, sizeof keys, KEY_C, 8));
}

/* Secret managers mount keys as named pipes. */
TEST(keys_come_through_a_pipe_or_nobody_waits_for_its_writer)
{
    static const char text[] =
        "{\"keys\":[{\"name\":\"a\",\"key\":\"" KEY_A "\",\"scopes\":[\"infer\"]}]}";
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert(!srv_keys_read(&keys, path, message));
    ck_assert_ptr_nonnull(strstr(message, "a pipe that nobody writes to"));
    pid_t writer = fork();
    ck_assert_int_ge(writer, 0);
    if (writer == 0) {
        int fd = open(path, O_WRONLY); /* returns once there is a reader */
        _exit(fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text));
    }
    ck_assert_msg(srv_keys_read(&keys, path, message), "%s", message);
    ck_assert_ptr_nonnull(find(KEY_A));
    ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
}

TEST(keys_hexadecimal_digits_may_be_capitals)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"keys\":[{\"name\":\"a\",\"sha256\":\"%s\",\"scopes\":[\"infer\"]}]}", DIGEST_A);
    for (char *c = strstr(text, DIGEST_A); *c != '"'; c++)
        *c = *c >= 'a' ? (char)(*c - 'a' + 'A') : *c;
    expect_read(text);
    ck_assert_ptr_eq(find(KEY_A), &keys.items[0]);
}

#define ENTRY(members) "{\"keys\":[{" members "}]}"
#define NAMED "\"name\":\"a\","
#define GOOD NAMED "\"key\":\"" KEY_A "\",\"scopes\":[\"infer\"]"

TEST(keys_files_that_say_anything_else_are_refused_by_place)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line "},
        {"\"" KEY_A "\"", "line 1"},
        {"[]", "JSON object"},
        {"{}", "keys: must be a list of 1 to 64"},
        {"{\"keys\":null}", "keys: must be a list"},
        {"{\"keys\":{}}", "keys: must be a list"},
        {"{\"keys\":[]}", "keys: must be a list of 1 to 64"},
        {"{\"keys\":[1]}", "keys[0]: must be an object"},
        {"{\"key\":[]}", "unknown field \"key\""},
        {"{\"keys\":[],\"keys\":[]}", "given twice"},
        {"{\"keys\":[{" GOOD "}]}x", "not JSON"},
        {"{\"keys\":[{" GOOD "},{" GOOD "}]}", "keys[1].name: names an earlier key too"},
        {"{\"keys\":[{" GOOD "},{\"name\":\"b\",\"sha256\":\"" DIGEST_A
         "\",\"scopes\":[\"admin\"]}]}",
         "keys[1]: is the same key as a"},
        {ENTRY(GOOD ",\"scope\":1"), "keys[0].scope: unknown field"},
        {ENTRY(GOOD ",\"name\":\"a\""), "given twice"},
        {ENTRY("\"key\":\"" KEY_A "\",\"scopes\":[\"infer\"]"), "keys[0].name: is missing"},
        {ENTRY(NAMED "\"scopes\":[\"infer\"]"), "keys[0].key: is missing"},
        {ENTRY(NAMED "\"key\":\"" KEY_A "\""), "keys[0].scopes: is missing"},
        {ENTRY("\"name\":\"../a\""), "keys[0].name"},
        {ENTRY("\"name\":\"\""), "keys[0].name"},
        {ENTRY("\"name\":7"), "keys[0].name"},
        {ENTRY(NAMED "\"key\":7"), "keys[0].key"},
        {ENTRY(NAMED "\"key\":\"\""), "keys[0].key"},
        {ENTRY(NAMED "\"key\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""), "keys[0].key: must be 32"},
        {ENTRY(NAMED "\"key\":\"aaaaaaaaaaaaaaa aaaaaaaaaaaaaaaa\""), "keys[0].key"},
        {ENTRY(NAMED "\"key\":\"aaaaaaaaaaaaaaa,aaaaaaaaaaaaaaaa\""), "keys[0].key"},
        {ENTRY(NAMED "\"key\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\u00e9\""), "keys[0].key"},
        {ENTRY(GOOD ",\"sha256\":\"" DIGEST_A "\""), "either key or sha256"},
        {ENTRY("\"sha256\":\"" DIGEST_A "\"," GOOD), "either key or sha256"},
        {ENTRY(NAMED "\"sha256\":\"3ba3\""), "keys[0].sha256: must be the 64"},
        {ENTRY(NAMED "\"sha256\":\"" DIGEST_A "0\""), "keys[0].sha256"},
        {ENTRY(NAMED "\"sha256\":\"g" KEY_A KEY_B "\""), "keys[0].sha256"},
        {ENTRY(NAMED "\"sha256\":\"gba3f5f43b92602683c19aee62a20342b084dd5971ddd33808d81a328879a547"
                     "\""),
         "keys[0].sha256"},
        {ENTRY(NAMED "\"sha256\":null"), "keys[0].sha256"},
        {ENTRY(NAMED "\"scopes\":\"infer\""), "keys[0].scopes: must be a list"},
        {ENTRY(NAMED "\"scopes\":[]"), "keys[0].scopes: must be a list"},
        {ENTRY(NAMED "\"scopes\":[\"root\"]"), "keys[0].scopes: must be a list"},
        {ENTRY(NAMED "\"scopes\":[\"infer\",1]"), "keys[0].scopes: must be a list"},
        {ENTRY(NAMED "\"scopes\":[\"infer\",\"infer\"]"), "keys[0].scopes: names a scope twice"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_refused(cases[i].text, cases[i].part);
}

TEST(keys_messages_never_show_a_key)
{
    static const char *const texts[] = {
        "{\"keys\":[{\"name\":\"a\",\"key\":\"SECRET" KEY_A "\" \"scopes\":[]}]}",
        "{\"keys\":[{\"name\":\"a\",\"key\":\"SECRET" KEY_A "\n\"}]}",
        "{\"keys\":[{\"name\":\"a\",\"key\":\"SECRET\",\"scopes\":[\"infer\"]}]}",
        "{\"keys\":[{\"name\":\"SECRET" KEY_A KEY_A "\"}]}",
        "{\"keys\":[\"SECRET" KEY_A "\"]}",
        "SECRET" KEY_A,
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        expect_refused(texts[i], "");
        ck_assert_msg(strstr(message, "SECRET") == NULL, "%s", message);
    }
}

TEST(keys_files_that_others_may_read_or_change_are_refused)
{
    static const mode_t refused[] = {0644, 0604, 0602, 0601, 0620, 0666, 0777};
    static const mode_t taken[] = {0600, 0400, 0640, 0440, 0700};
    static const char text[] = ENTRY(GOOD);
    for (size_t i = 0; i < COUNT(refused); i++) {
        ck_assert(!read_text(text, strlen(text), refused[i]));
        ck_assert_msg(strstr(message, "others must not read it") != NULL, "%s", message);
        ck_assert_uint_eq(keys.count, 0);
    }
    for (size_t i = 0; i < COUNT(taken); i++)
        ck_assert_msg(read_text(text, strlen(text), taken[i]), "%o: %s", taken[i], message);
}

TEST(keys_files_that_are_none_or_too_long_are_refused)
{
    char *text = malloc(SRV_MAX_KEYS_BYTES + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, ' ', SRV_MAX_KEYS_BYTES + 1);
    memcpy(text, ENTRY(GOOD), strlen(ENTRY(GOOD)));
    ck_assert(read_text(text, SRV_MAX_KEYS_BYTES, 0600));
    ck_assert(!read_text(text, SRV_MAX_KEYS_BYTES + 1, 0600));
    ck_assert_ptr_nonnull(strstr(message, "more than 65536 bytes"));
    ck_assert(!srv_keys_read(&keys, directory, message));
    ck_assert(!srv_keys_read(&keys, "/nonexistent", message));
    ck_assert_str_eq(message, "/nonexistent: No such file or directory");
    free(text);
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* A file of SRV_MAX_KEYS keys. */
static void read_many(size_t count)
{
    char *text = malloc(SRV_MAX_KEYS_BYTES);
    ck_assert_ptr_nonnull(text);
    size_t length = (size_t)snprintf(text, SRV_MAX_KEYS_BYTES, "{\"keys\":[");
    for (size_t i = 0; i < count; i++)
        length +=
            (size_t)snprintf(text + length, SRV_MAX_KEYS_BYTES - length,
                             "%s{\"name\":\"k%zu\",\"key\":\"%032zu\",\"scopes\":[\"infer\"]}",
                             i > 0 ? "," : "", i, i);
    snprintf(text + length, SRV_MAX_KEYS_BYTES - length, "]}");
    if (count <= SRV_MAX_KEYS)
        expect_read(text);
    else
        expect_refused(text, "keys: must be a list of 1 to 64");
    free(text);
}

TEST(keys_each_of_64_is_found_and_a_65th_is_refused)
{
    char key[40];
    read_many(65);
    read_many(64);
    for (size_t i = 0; i < 64; i++) {
        snprintf(key, sizeof key, "%032zu", i);
        ck_assert_ptr_eq(find(key), &keys.items[i]);
    }
    snprintf(key, sizeof key, "%032d", 64);
    ck_assert_ptr_null(find(key));
}

TEST(keys_nothing_but_the_whole_key_is_found)
{
    expect_read(ENTRY(GOOD));
    ck_assert_ptr_nonnull(find(KEY_A));
    ck_assert_ptr_null(find(""));
    ck_assert_ptr_null(find(KEY_A "a"));
    ck_assert_ptr_null(find(KEY_A " "));
    ck_assert_ptr_null(find(DIGEST_A));
    ck_assert_ptr_null(find_bytes(KEY_A, 31));
    ck_assert_ptr_null(find_bytes(KEY_A "\0", 33));
    for (size_t i = 0; i < 256; i++) { /* with one bit flipped */
        char key[] = KEY_A;
        key[i / 8] = (char)(key[i / 8] ^ (1 << i % 8));
        ck_assert_ptr_null(find_bytes(key, 32));
    }
}

/* A digest that differs in one bit, the first or the last, is another key's or none's. */
TEST(keys_digests_are_compared_to_their_last_bit)
{
    for (size_t i = 0; i < 8 * SRV_KEY_DIGEST; i++) {
        expect_read(ENTRY(GOOD));
        keys.items[0].digest[i / 8] ^= (unsigned char)(1 << i % 8);
        ck_assert_ptr_null(find(KEY_A));
    }
}

TEST(keys_in_use_are_replaced_whole_or_stay)
{
    struct srv_keyring ring = SRV_KEYRING_EMPTY;
    struct srv_key key;
    unsigned place;
    expect_read("{\"keys\":[{\"name\":\"a\",\"key\":\"" KEY_A "\",\"scopes\":[\"infer\"]},"
                "{\"name\":\"b\",\"key\":\"" KEY_B "\",\"scopes\":[\"admin\"]}]}");
    ck_assert(!srv_keyring_find(&key, &place, &ring, KEY_A, strlen(KEY_A)));
    ck_assert_uint_eq(srv_keyring_read(&ring, path, message), 2);
    ck_assert(srv_keyring_find(&key, &place, &ring, KEY_B, strlen(KEY_B)));
    ck_assert_str_eq(key.name, "b");
    ck_assert_uint_eq(place, 1);
    expect_refused("{\"keys\":[]}", "must be a list of 1 to 64 keys");
    ck_assert_uint_eq(srv_keyring_read(&ring, path, message), 0);
    ck_assert_ptr_nonnull(strstr(message, "must be a list of 1 to 64 keys"));
    ck_assert(srv_keyring_find(&key, &place, &ring, KEY_A, strlen(KEY_A)));
    expect_read("{\"keys\":[{\"name\":\"c\",\"key\":\"" KEY_C "\",\"scopes\":[\"infer\"]}]}");
    ck_assert_uint_eq(srv_keyring_read(&ring, path, message), 1);
    ck_assert(!srv_keyring_find(&key, &place, &ring, KEY_A, strlen(KEY_A)));
    ck_assert(!srv_keyring_find(&key, &place, &ring, KEY_B, strlen(KEY_B)));
    ck_assert(srv_keyring_find(&key, &place, &ring, KEY_C, strlen(KEY_C)));
    ck_assert_uint_eq(place, 0);
    srv_keyring_fini(&ring);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static struct srv_request request;
static struct srv_error error;

/* The error that a request to a route gets with these Authorization fields (NULL: no more). */
static enum srv_error_code ask(const struct srv_route *route, const char *first, const char *second)
{
    static const char name[] = "authorization";
    const char *const values[] = {first, second};
    struct srv_head head = {.count = 0};
    for (size_t i = 0; i < 2 && values[i] != NULL; i++)
        head.fields[head.count++] = (struct srv_header_field){.name = name,
                                                              .name_length = strlen(name),
                                                              .value = values[i],
                                                              .value_length = strlen(values[i])};
    request = (struct srv_request){.route = route};
    error = (struct srv_error){0};
    struct srv_keyring ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .keys = keys};
    return srv_auth_check(&request, keys.count > 0 ? &ring : NULL, &head, &error);
}

static void read_three(void)
{
    expect_read("{\"keys\":[{\"name\":\"i\",\"key\":\"" KEY_A "\",\"scopes\":[\"infer\"]},"
                "{\"name\":\"m\",\"key\":\"" KEY_B "\",\"scopes\":[\"admin\"]},"
                "{\"name\":\"b\",\"key\":\"" KEY_C "\",\"scopes\":[\"admin\",\"infer\"]}]}");
}

TEST(auth_asks_for_what_the_route_table_says)
{
    read_three();
    for (size_t i = 0; i <= srv_routes.count; i++) {
        const struct srv_route *route = i < srv_routes.count ? &srv_routes.items[i] : NULL;
        enum srv_access access = route != NULL ? route->access : SRV_FOR_ANY_KEY;
        bool open = access == SRV_FOR_ALL, infer = access == SRV_FOR_INFER;
        bool admin = access == SRV_FOR_ADMIN || access == SRV_FOR_METRICS;
        ck_assert_int_eq(ask(route, NULL, NULL), open ? SRV_OK : SRV_E_UNAUTHORIZED);
        ck_assert_int_eq(ask(route, "Bearer x", NULL), open ? SRV_OK : SRV_E_UNAUTHORIZED);
        ck_assert_int_eq(ask(route, "Bearer " KEY_A, NULL), admin ? SRV_E_FORBIDDEN : SRV_OK);
        ck_assert_int_eq(ask(route, "Bearer " KEY_B, NULL), infer ? SRV_E_FORBIDDEN : SRV_OK);
        ck_assert_int_eq(ask(route, "Bearer " KEY_C, NULL), SRV_OK);
    }
}

/* The routes that are not for `infer`, which a new route is by default. */
TEST(auth_routes_for_others_than_infer_are_these)
{
    static const struct {
        const char *path;
        enum srv_access access;
    } others[] = {{"/sessions", SRV_FOR_ADMIN},
                  {"/sessions/{id}", SRV_FOR_OWNER},
                  {"/sessions/{id}", SRV_FOR_OWNER},
                  {"/snapshot", SRV_FOR_ADMIN},
                  {"/snapshot", SRV_FOR_ADMIN},
                  {"/admin/drain", SRV_FOR_ADMIN},
                  {"/openapi.json", SRV_FOR_ANY_KEY},
                  {"/healthz", SRV_FOR_ALL},
                  {"/health", SRV_FOR_ALL},
                  {"/livez", SRV_FOR_ALL},
                  {"/readyz", SRV_FOR_ALL},
                  {"/metrics", SRV_FOR_METRICS},
                  {"/", SRV_FOR_ALL},
                  {"/ui/{file}", SRV_FOR_ALL},
                  {"/v2/health/live", SRV_FOR_ALL},
                  {"/v2/health/ready", SRV_FOR_ALL}};
    size_t found = 0;
    for (size_t i = 0; i < srv_routes.count; i++) {
        if (srv_routes.items[i].access == SRV_FOR_INFER)
            continue;
        ck_assert_uint_lt(found, COUNT(others));
        ck_assert_str_eq(srv_routes.items[i].path, others[found].path);
        ck_assert_int_eq(srv_routes.items[i].access, others[found].access);
        found++;
    }
    ck_assert_uint_eq(found, COUNT(others));
}

TEST(auth_reads_one_bearer_field_of_any_case)
{
    static const char *const good[] = {"Bearer " KEY_A, "bearer " KEY_A, "BEARER " KEY_A,
                                       "Bearer   " KEY_A};
    static const char *const bad[] = {"",
                                      "Bearer",
                                      "Bearer ",
                                      "Bearer  ",
                                      KEY_A,
                                      "Bearer" KEY_A,
                                      "Bearer\t" KEY_A,
                                      "Bearer: " KEY_A,
                                      "Bearer \"" KEY_A "\"",
                                      "Bearer " KEY_A " " KEY_A,
                                      "Bearer " KEY_A ",",
                                      "Basic " KEY_A,
                                      "Bearers " KEY_A,
                                      "Token " KEY_A,
                                      "Digest username=" KEY_A};
    read_three();
    for (size_t i = 0; i < COUNT(good); i++)
        ck_assert_msg(ask(&srv_routes.items[0], good[i], NULL) == SRV_OK, "%s", good[i]);
    for (size_t i = 0; i < COUNT(bad); i++) {
        ck_assert_msg(ask(&srv_routes.items[0], bad[i], NULL) == SRV_E_UNAUTHORIZED, "%s", bad[i]);
        ck_assert_str_eq(request.key.name, "");
        ck_assert_ptr_null(strstr(error.message, KEY_A));
    }
    ck_assert_int_eq(ask(&srv_routes.items[0], "Bearer " KEY_A, "Bearer " KEY_A),
                     SRV_E_UNAUTHORIZED);
    ck_assert_int_eq(ask(&srv_routes.items[0], "Bearer " KEY_A, "Basic x"), SRV_E_UNAUTHORIZED);
}

/* The file's sha256 has no length, and a short key may be guessed. */
TEST(auth_refuses_a_key_of_fewer_than_32_characters_whose_sha256_is_in_the_file)
{
    static const char shorter[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; /* 31 */
    char digest[SRV_KEY_DIGITS + 1], file[256], field[64];
    srv_key_digest_print(digest, shorter, strlen(shorter));
    snprintf(file, sizeof file,
             "{\"keys\":[{\"name\":\"a\",\"sha256\":\"%s\",\"scopes\":[\"infer\"]}]}", digest);
    expect_read(file);
    ck_assert_ptr_nonnull(find(shorter));
    snprintf(field, sizeof field, "Bearer %s", shorter);
    ck_assert_int_eq(ask(&srv_routes.items[0], field, NULL), SRV_E_UNAUTHORIZED);
    ck_assert_ptr_nonnull(strstr(error.message, "32 characters"));
}

TEST(auth_notes_who_asks_also_where_it_refuses)
{
    read_three();
    ck_assert_int_eq(ask(&srv_routes.items[0], "Bearer " KEY_C, NULL), SRV_OK);
    ck_assert_uint_eq(request.caller, 2);
    ck_assert_str_eq(request.key.name, "b");
    ck_assert_int_eq(ask(&srv_routes.items[0], "Bearer " KEY_B, NULL), SRV_E_FORBIDDEN);
    ck_assert_uint_eq(request.caller, 1);
    ck_assert_str_eq(request.key.name, "m");
}

TEST(auth_without_keys_asks_for_nothing)
{
    keys = (struct srv_keys){.count = 0};
    for (size_t i = 0; i < srv_routes.count; i++)
        ck_assert_int_eq(ask(&srv_routes.items[i], NULL, NULL), SRV_OK);
    ck_assert_int_eq(ask(&srv_routes.items[0], "Bearer " KEY_A, NULL), SRV_OK);
    ck_assert_uint_eq(request.caller, 0);
    ck_assert_str_eq(request.key.name, "");
}

TEST(a_byte_order_mark_before_the_file_is_passed_over)
{
    static const char marked[] =
        "\xEF\xBB\xBF{\"keys\":[{\"name\":\"a\",\"key\":\"" KEY_A "\",\"scopes\":[\"infer\"]}]}";
    ck_assert_msg(read_text(marked, sizeof marked - 1, 0600), "%s", message);
    ck_assert_uint_eq(keys.count, 1);
    ck_assert(!read_text(marked, 3, 0600));
    ck_assert(!read_text("\xEF\xBB\xBF\xEF\xBB\xBF{}", 8, 0600));
}

TEST(a_directory_in_the_place_of_the_file_is_named)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert(!srv_keys_read(&keys, path, message));
    ck_assert_msg(strstr(message, "keys.json: Is a directory and not a file") != NULL, "%s",
                  message);
    ck_assert_int_eq(rmdir(path), 0);
}

/* As root, since another user cannot read as two. */
TEST(a_file_of_another_user_is_refused_with_the_owner_and_the_remedy)
{
    char expected[2 * sizeof path + 128];
    if (getuid() != 0)
        return;
    ck_assert_int_eq(chmod(directory, 0755), 0);
    scratch_write(directory, "keys.json", "{}", 2);
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_int_eq(seteuid(65532), 0);
    bool read = srv_keys_read(&keys, path, message);
    ck_assert_int_eq(seteuid(0), 0);
    snprintf(expected, sizeof expected,
             "%s: Permission denied: user 0 owns it and attnd runs as user 65532: chown 65532 %s",
             path, path);
    ck_assert(!read);
    ck_assert_str_eq(message, expected);
}

SUITE(keys)
