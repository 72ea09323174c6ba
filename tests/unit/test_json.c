/* test_json.c: the strict reader, its arena and buffer, and the error table. */
#include <check.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "suites.h"
#include "wire/json.h"

static struct srv_error error;

/* Skips `length` bytes that must be one JSON value and nothing more. */
static enum srv_error_code skip_bytes(const char *text, size_t length)
{
    struct srv_json json;
    char *copy = malloc(length + (length == 0)); /* of the exact size, for sanitizers */
    memcpy(copy, text, length);
    srv_json_init(&json, copy, length, &error);
    if (srv_json_skip(&json) && !srv_json_at_end(&json))
        srv_json_expected(&json, "the end");
    free(copy);
    return error.code;
}

static enum srv_error_code skip(const char *text) { return skip_bytes(text, strlen(text)); }

TEST(json_accepts_what_rfc_8259_has)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        " [ ] ",
        "\t{\r\n}\n",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-1.5e+10",
        "1E5",
        "\"\"",
        "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u00e9\\uD83D\\uDE00\"",
        "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"",
        "\"\x7f\"",
        "[1,2,[3,{\"a\":null}],\"x\"]",
        "{\"a\":1,\"b\":[true,false]}",
        "{\"\":0}",
        "[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]",
    };
    for (size_t i = 0; i < COUNT(texts); i++)
        ck_assert_msg(skip(texts[i]) == SRV_OK, "%s: %s", texts[i], error.message);
}

TEST(json_refuses_everything_else)
{
    static const char *const texts[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "{]",
        "[}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "[1]]",
        "1 1",
        "nul",
        "nulL",
        "True",
        "tru",
        "falsey",
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "01",
        "-01",
        "00",
        "+1",
        "1.",
        ".1",
        "1e",
        "1e+",
        "0x10",
        "1_000",
        "-",
        "--1",
        "\"",
        "\"abc",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\ud800\\udbff\"",
        "\"\\u0000\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\x1f\"",
        "// x\n1",
        "/* */1",
        "[1]//",
        "\xef\xbb\xbf[]",
        "\xff",
        "\xc2\xa0[]",
        "[\x0b]",
        "undefined",
        "'a'",
        "[1;2]",
        "{\"a\":1;}",
        "[\"a\" \"b\"]",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        ck_assert_msg(skip(texts[i]) == SRV_E_MALFORMED_JSON, "accepted: %s", texts[i]);
        ck_assert_ptr_nonnull(strstr(error.message, "at byte "));
        ck_assert_ptr_nonnull(strstr(error.message, "expected "));
    }
}

TEST(json_refuses_nul_bytes_anywhere)
{
    static const char text[] = "{\"key\":[1,\"word\",true]}";
    for (size_t i = 0; i < sizeof text; i++) {
        char copy[sizeof text] = {0};
        memcpy(copy, text, i);
        memcpy(copy + i + 1, text + i, sizeof text - 1 - i);
        ck_assert_int_eq(skip_bytes(copy, sizeof text), SRV_E_MALFORMED_JSON);
    }
}

TEST(json_refuses_text_that_is_not_utf8)
{
    static const char *const texts[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xc3",
        "\xc3(",
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xe2\x82",
        "\xe2(\xa1",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf0\x9f\x98",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xf8\x88\x80\x80\x80",
        "\xfe",
        "\xff",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        char text[16];
        snprintf(text, sizeof text, "\"%s\"", texts[i]);
        ck_assert_msg(skip(text) == SRV_E_MALFORMED_JSON, "case %zu", i);
    }
}

TEST(json_bounds_nesting)
{
    char text[100001];
    memset(text, '[', 17);
    text[17] = '\0';
    ck_assert_int_eq(skip(text), SRV_E_TOO_COMPLEX);
    memset(text, '[', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ck_assert_int_eq(skip(text), SRV_E_TOO_COMPLEX);
    for (size_t i = 0; i < 20; i++)
        memcpy(text + 5 * i, "{\"a\":", 5);
    text[100] = '\0';
    ck_assert_int_eq(skip(text), SRV_E_TOO_COMPLEX);
    ck_assert_int_eq(skip("[[[[[[[[[[[[[[[[],[],[[]]]]]]]]]]]]]]]]]]"), SRV_E_TOO_COMPLEX);
    ck_assert_int_eq(skip("[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]"), SRV_OK);
}

TEST(json_says_what_it_expected_and_where)
{
    skip("{\"a\":[1 2]}");
    ck_assert_str_eq(error.message, "malformed JSON at byte 8: expected ',' or ']', found '2'");
    skip("[1,");
    ck_assert_str_eq(error.message, "malformed JSON at byte 3: expected a value, found the end");
    skip("[\x01");
    ck_assert_str_eq(error.message, "malformed JSON at byte 1: expected a value, found byte 0x01");
    ck_assert_str_eq(error.param, "");
}

/* ---- Typed reading --------------------------------------------------------------------------- */

TEST(json_reads_members_in_order)
{
    static const char text[] = " { \"one\" : 1 , \"t\\u0077o\":[ 2, 3 ],\"a longer name\":\"x\"} ";
    struct srv_json json;
    struct srv_arena arena;
    char key[8], *string;
    int64_t value;
    srv_arena_init(&arena, 4096, NULL, NULL);
    srv_json_init(&json, text, strlen(text), &error);
    ck_assert(srv_json_enter_object(&json));
    ck_assert(srv_json_next_member(&json, key, sizeof key));
    ck_assert_str_eq(key, "one");
    ck_assert(srv_json_integer(&value, &json, "one") && value == 1);
    ck_assert(srv_json_next_member(&json, key, sizeof key));
    ck_assert_str_eq(key, "two");
    ck_assert(srv_json_enter_array(&json));
    for (int64_t want = 2; want <= 3; want++)
        ck_assert(srv_json_next_element(&json) && srv_json_integer(&value, &json, "two") &&
                  value == want);
    ck_assert(!srv_json_next_element(&json));
    ck_assert(srv_json_next_member(&json, key, sizeof key));
    ck_assert_str_eq(key, "a longe"); /* shortened to its room */
    ck_assert(srv_json_string(&string, &json, &arena, 64, "s"));
    ck_assert_str_eq(string, "x");
    ck_assert(!srv_json_next_member(&json, key, sizeof key));
    ck_assert(srv_json_at_end(&json));
    ck_assert_int_eq(error.code, SRV_OK);
    srv_arena_fini(&arena);
}

/* A name of "ab", an escape, "cd", a character of two bytes, "e", one of four bytes, "f": the
 * reader keeps the whole characters that fit. */
TEST(json_shortens_names_between_characters)
{
    static const char text[] = "{\"ab\\ncd\xc3\xa9"
                               "e\xf0\x9f\x98\x80"
                               "f\":1}";
    static const char name[] = "ab\ncd\xc3\xa9"
                               "e\xf0\x9f\x98\x80"
                               "f";
    static const size_t kept[] = {0, 1, 2, 3, 4, 5, 5, 7, 8, 8, 8, 8, 12, 13, 13};
    for (size_t room = 0; room < COUNT(kept); room++) {
        struct srv_json json;
        char key[16];
        memset(key, 'x', sizeof key);
        srv_json_init(&json, text, strlen(text), &error);
        ck_assert(srv_json_enter_object(&json));
        ck_assert(srv_json_next_member(&json, key, room + 1));
        ck_assert_uint_eq(strlen(key), kept[room]);
        ck_assert_int_eq(memcmp(key, name, kept[room]), 0);
        ck_assert_int_eq(key[room + 1], 'x'); /* nothing is written after the room */
        ck_assert(srv_json_skip(&json) && !srv_json_next_member(&json, key, sizeof key));
        ck_assert(srv_json_at_end(&json) && error.code == SRV_OK);
    }
}

static enum srv_error_code read_integer(int64_t *out, const char *text)
{
    struct srv_json json;
    srv_json_init(&json, text, strlen(text), &error);
    srv_json_integer(out, &json, "n");
    return error.code;
}

TEST(json_integers_are_exact)
{
    int64_t value;
    ck_assert(read_integer(&value, "9223372036854775807") == SRV_OK && value == INT64_MAX);
    ck_assert(read_integer(&value, "-9223372036854775808") == SRV_OK && value == INT64_MIN);
    ck_assert(read_integer(&value, "-0") == SRV_OK && value == 0);
    ck_assert(read_integer(&value, "9007199254740993") == SRV_OK && value == 9007199254740993);
    ck_assert_int_eq(read_integer(&value, "9223372036854775808"), SRV_E_NUMBER_OUT_OF_RANGE);
    ck_assert_int_eq(read_integer(&value, "-9223372036854775809"), SRV_E_NUMBER_OUT_OF_RANGE);
    ck_assert_int_eq(read_integer(&value, "99999999999999999999999999"), SRV_E_NUMBER_OUT_OF_RANGE);
    ck_assert_int_eq(read_integer(&value, "1.0"), SRV_E_INVALID_TYPE);
    ck_assert_int_eq(read_integer(&value, "1e3"), SRV_E_INVALID_TYPE);
    ck_assert_int_eq(read_integer(&value, "\"1\""), SRV_E_INVALID_TYPE);
    ck_assert_str_eq(error.message, "n must be an integer, not a string");
    ck_assert_str_eq(error.param, "n");
    ck_assert_int_eq(read_integer(&value, "1."), SRV_E_MALFORMED_JSON);
}

static enum srv_error_code read_text(char out[64], const char *text, size_t max_length)
{
    struct srv_json json;
    struct srv_arena arena;
    char *string;
    srv_arena_init(&arena, 4096, NULL, NULL);
    srv_json_init(&json, text, strlen(text), &error);
    if (srv_json_string(&string, &json, &arena, max_length, "s"))
        snprintf(out, 64, "%s", string);
    srv_arena_fini(&arena);
    return error.code;
}

TEST(json_strings_are_unescaped_and_bounded)
{
    char text[64];
    ck_assert_int_eq(read_text(text, "\"a\\u00e9\\ud83d\\ude00\\n\"", 64), SRV_OK);
    ck_assert_str_eq(text, "a\xc3\xa9\xf0\x9f\x98\x80\n");
    ck_assert_int_eq(read_text(text, "\"abcd\"", 4), SRV_OK);
    ck_assert_int_eq(read_text(text, "\"abcde\"", 4), SRV_E_INVALID_VALUE);
    ck_assert_int_eq(read_text(text, "\"abc\xc3\xa9\"", 4), SRV_E_INVALID_VALUE);
    ck_assert_int_eq(read_text(text, "[]", 4), SRV_E_INVALID_TYPE);
}

TEST(json_doubles_and_bools_check_their_type)
{
    static const char text[] = "[0.1,1e400,true,0]";
    struct srv_json json;
    double number;
    bool flag;
    srv_json_init(&json, text, strlen(text), &error);
    srv_json_enter_array(&json);
    ck_assert(srv_json_next_element(&json) && srv_json_double(&number, &json, "d"));
    ck_assert(number == 0.1);
    ck_assert(srv_json_next_element(&json) && !srv_json_double(&number, &json, "d"));
    ck_assert_int_eq(error.code, SRV_E_NUMBER_OUT_OF_RANGE);
    srv_json_init(&json, text + 11, 6, &error);
    ck_assert(srv_json_bool(&flag, &json, "b") && flag);
    srv_json_init(&json, text + 16, 1, &error);
    ck_assert(!srv_json_bool(&flag, &json, "b"));
    ck_assert_int_eq(error.code, SRV_E_INVALID_TYPE);
}

TEST(json_keeps_its_first_error)
{
    struct srv_json json;
    char key[4];
    bool flag;
    srv_json_init(&json, "{x", 2, &error);
    ck_assert(srv_json_enter_object(&json) && !srv_json_next_member(&json, key, sizeof key));
    struct srv_error first = error;
    ck_assert(!srv_json_bool(&flag, &json, "b") && !srv_json_skip(&json));
    ck_assert(!srv_json_enter_array(&json) && !srv_json_next_element(&json));
    ck_assert_int_eq(srv_json_peek(&json), SRV_JSON_BAD);
    ck_assert_str_eq(error.message, first.message);
}

/* ---- Arena, buffer, errors ------------------------------------------------------------------- */

TEST(arena_pieces_are_aligned_distinct_and_bounded)
{
    struct srv_arena arena;
    char *pieces[100];
    srv_arena_init(&arena, 1000000, NULL, NULL);
    for (size_t i = 0; i < 100; i++) {
        pieces[i] = srv_arena_alloc(&arena, 1 + 97 * i, 1);
        ck_assert_ptr_nonnull(pieces[i]);
        ck_assert_uint_eq((uintptr_t)pieces[i] % 64, 0);
        memset(pieces[i], (int)i, 1 + 97 * i);
    }
    for (size_t i = 0; i < 100; i++)
        ck_assert(pieces[i][0] == (char)i && pieces[i][97 * i] == (char)i);
    ck_assert_ptr_null(srv_arena_alloc(&arena, 1000000, 1));
    ck_assert_ptr_null(srv_arena_alloc(&arena, SIZE_MAX / 2, 4));
    ck_assert_ptr_null(srv_arena_alloc(&arena, SIZE_MAX, 1));
    size_t room = srv_arena_left(&arena);
    ck_assert_ptr_nonnull(srv_arena_alloc(&arena, room, 1));
    ck_assert_ptr_null(srv_arena_alloc(&arena, 1, 1));
    srv_arena_fini(&arena);
    srv_arena_init(&arena, SIZE_MAX, NULL, NULL);
    ck_assert_ptr_null(srv_arena_alloc(&arena, SIZE_MAX / 64 - 1, 64));
    srv_arena_fini(&arena);
}

TEST(arena_shrink_gives_the_tail_to_the_next_piece)
{
    struct srv_arena arena;
    srv_arena_init(&arena, 1 << 20, NULL, NULL);
    char *first = srv_arena_alloc(&arena, 1 << 20, 1);
    ck_assert_ptr_nonnull(first);
    srv_arena_shrink(&arena, first, 100);
    ck_assert_uint_eq(arena.used, 128);
    ck_assert_ptr_eq(srv_arena_alloc(&arena, 1000, 1), first + 128);
    ck_assert_str_eq(srv_arena_copy(&arena, "text and more", 4), "text");
    srv_arena_fini(&arena);
}

TEST(buffer_grows_to_its_limit_and_then_fails_for_good)
{
    struct srv_buffer buffer;
    srv_buffer_init(&buffer, 1000);
    for (int i = 0; i < 99; i++)
        srv_buffer_printf(&buffer, "%09d,", i);
    ck_assert(!buffer.failed && buffer.length == 990);
    ck_assert(memcmp(buffer.data + 980, "000000098,", 10) == 0);
    srv_buffer_append(&buffer, "12345678901", 11);
    ck_assert(buffer.failed && buffer.length == 990);
    srv_buffer_text(&buffer, "x");
    ck_assert_uint_eq(buffer.length, 990);
    ck_assert_ptr_null(srv_buffer_reserve(&buffer, 1));
    srv_buffer_fini(&buffer);
    srv_buffer_init(&buffer, 0);
    ck_assert_ptr_null(srv_buffer_reserve(&buffer, 1));
    srv_buffer_fini(&buffer);
}

TEST(buffer_json_string_is_read_back_by_jansson)
{
    struct srv_buffer buffer;
    char text[160];
    for (int i = 1; i < 128; i++)
        text[i - 1] = (char)i;
    memcpy(text + 127, "\xc3\xa9\xf0\x9f\x98\x80", 7);
    srv_buffer_init(&buffer, 4096);
    srv_buffer_json_string(&buffer, text);
    json_t *value = json_loadb(buffer.data, buffer.length, JSON_DECODE_ANY, NULL);
    ck_assert_str_eq(json_string_value(value), text);
    json_decref(value);
    buffer.length = 0;
    srv_buffer_json_string(&buffer, "cut \xf0\x9f\x98");
    ck_assert_uint_eq(buffer.length, strlen("\"cut \\ufffd\\ufffd\\ufffd\""));
    srv_buffer_fini(&buffer);
}

TEST(errors_have_words_statuses_and_meanings)
{
    ck_assert_str_eq(srv_error_word(SRV_E_SESSION_FULL), "session_full");
    ck_assert_uint_eq(srv_error_status(SRV_E_SESSION_FULL), 409);
    ck_assert(srv_error_retryable(SRV_E_QUEUE_FULL) && !srv_error_retryable(SRV_E_INTERNAL));
    for (int code = 1; code < SRV_ERROR_COUNT; code++) {
        ck_assert_uint_ge(srv_error_status(code), 400);
        ck_assert_uint_gt(strlen(srv_error_meaning(code)), 0);
        for (int other = 1; other < code; other++)
            ck_assert_str_ne(srv_error_word(code), srv_error_word(other));
    }
    ck_assert_str_eq(srv_error_word((enum srv_error_code)999), "internal");
}

TEST(errors_of_the_library_are_passed_on)
{
    static const enum srv_error_code codes[] = {
        [ATTN_NO_MEMORY] = SRV_E_OUT_OF_MEMORY,
        [ATTN_INVALID] = SRV_E_INVALID_VALUE,
        [ATTN_SHAPE_MISMATCH] = SRV_E_SHAPE_MISMATCH,
        [ATTN_OUT_OF_RANGE] = SRV_E_NUMBER_OUT_OF_RANGE,
        [ATTN_NON_FINITE] = SRV_E_NON_FINITE_INPUT,
        [ATTN_OVERFLOW] = SRV_E_NUMERIC_OVERFLOW,
        [ATTN_NOT_FOUND] = SRV_E_LAYER_NOT_FOUND,
        [ATTN_IO] = SRV_E_STORAGE,
        [ATTN_MALFORMED] = SRV_E_INTERNAL,
        [ATTN_UNSUPPORTED] = SRV_E_UNSUPPORTED,
        [ATTN_CACHE_FULL] = SRV_E_SESSION_FULL,
        [ATTN_POOL_FULL] = SRV_E_POOL_FULL,
        [ATTN_FORGOTTEN] = SRV_E_FORGOTTEN,
        [ATTN_ROPE_CHANGES] = SRV_E_ROPE_CHANGES,
        [ATTN_CANCELLED] = SRV_E_DRAINING,
    };
    for (size_t i = 1; i < COUNT(codes); i++) {
        struct attn_error cause = {
            .status = (enum attn_status)i, .param = "scale", .message = "100 % wrong"};
        error.has_length = true;
        ck_assert_int_eq(srv_fail_attn(&error, &cause), codes[i]);
        ck_assert_str_eq(error.param, "scale");
        ck_assert_str_eq(error.message, "100 % wrong");
        ck_assert(!error.has_length);
    }
}

SUITE(json)
