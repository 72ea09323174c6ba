/* test_trace.c: which values of traceparent are taken, by the rules of W3C Trace Context, and what
 * is answered. */
#include <check.h>
#include <string.h>

#include "suites.h"
#include "wire/trace.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define ZEROS "00000000000000000000000000000000"

static const struct {
    const char *value;
    bool sampled;
} taken[] = {
    {"00-" TRACE "-" SPAN "-01", true},
    {"00-" TRACE "-" SPAN "-00", false},
    {"00-" TRACE "-" SPAN "-fe", false}, /* flags that version 00 does not define */
    {"00-" TRACE "-" SPAN "-ff", true},
    {"00-00000000000000000000000000000001-0000000000000001-01", true},
    {"01-" TRACE "-" SPAN "-01", true}, /* a later version, of which the parts of 00 are read */
    {"cc-" TRACE "-" SPAN "-01-what-the-future-adds", true},
    {"fe-" TRACE "-" SPAN "-00-", false},
};

TEST_EACH(trace_takes_values_that_are_well_formed, COUNT(taken))
{
    struct srv_trace trace = {.span_id = "kept"};
    const char *value = taken[_i].value;
    ck_assert(srv_trace_read(&trace, value, strlen(value)));
    ck_assert_int_eq(strncmp(trace.trace_id, value + 3, 32), 0);
    ck_assert_int_eq(strncmp(trace.parent_id, value + 36, 16), 0);
    ck_assert_uint_eq(strlen(trace.trace_id), 32);
    ck_assert_uint_eq(strlen(trace.parent_id), 16);
    ck_assert_int_eq(trace.sampled, taken[_i].sampled);
    ck_assert_str_eq(trace.span_id, "kept");
}

static const char *const ignored[] = {
    "",
    "00",
    "00-" TRACE "-" SPAN "-0",
    "00-" TRACE "-" SPAN "-",
    "00-" TRACE "-" SPAN,
    "00-" TRACE "-" SPAN "-01-",     /* version 00 has no further parts */
    "00-" TRACE "-" SPAN "-01-more", /* likewise */
    "00-" TRACE "-" SPAN "-011",
    "01-" TRACE "-" SPAN "-01more", /* further parts stand after a hyphen */
    "01-" TRACE "-" SPAN "-01.",
    "ff-" TRACE "-" SPAN "-01", /* no version */
    "ff-" TRACE "-" SPAN "-01-more",
    "FE-" TRACE "-" SPAN "-01",
    "0g-" TRACE "-" SPAN "-01",
    "0 -" TRACE "-" SPAN "-01",
    "00-" ZEROS "-" SPAN "-01",
    "00-" TRACE "-0000000000000000-01",
    "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", /* digits are in lower case */
    "00-" TRACE "-00F067AA0BA902B7-01",
    "00-" TRACE "-" SPAN "-0F",
    "00-" TRACE "-" SPAN "-0x",
    "00-4bf92f3577b34da6a3ce929d0e0e473g-" SPAN "-01",
    "00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "-011",
    "00-" TRACE "0-0f067aa0ba902b7-01",
    "00_" TRACE "-" SPAN "-01",
    "00-" TRACE "_" SPAN "-01",
    "00-" TRACE "-" SPAN "_01",
    " 00-" TRACE "-" SPAN "-01",
    "00-" TRACE "-" SPAN "-01 ",
    "00-" TRACE "-" SPAN "-01,00-" TRACE "-" SPAN "-01",
    "\"00-" TRACE "-" SPAN "-01\"",
};

TEST_EACH(trace_ignores_all_other_values, COUNT(ignored))
{
    struct srv_trace trace = {.trace_id = "kept", .parent_id = "kept", .sampled = true};
    ck_assert_msg(!srv_trace_read(&trace, ignored[_i], strlen(ignored[_i])), "%s", ignored[_i]);
    ck_assert_str_eq(trace.trace_id, "kept");
    ck_assert_str_eq(trace.parent_id, "kept");
    ck_assert(trace.sampled);
}

/* Every character of a value is looked at: each byte that is no digit, in each place of a digit,
 * makes the value one that is ignored, and so does each other byte in place of a hyphen. */
TEST(trace_looks_at_every_character)
{
    static const char good[] = "00-" TRACE "-" SPAN "-01";
    for (size_t at = 0; at < SRV_TRACEPARENT; at++)
        for (int byte = 0; byte < 256; byte++) {
            char value[sizeof good];
            struct srv_trace trace;
            memcpy(value, good, sizeof good);
            value[at] = (char)byte;
            bool digit = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
            bool wanted = good[at] == '-' ? byte == '-' : digit;
            if (at < 2) /* a later version has the parts of 00, but ff is none */
                wanted = digit;
            ck_assert_msg(srv_trace_read(&trace, value, SRV_TRACEPARENT) == wanted,
                          "byte %d at %zu", byte, at);
        }
}

/* A value is not followed by a NUL where it stands in a head. */
TEST(trace_reads_no_further_than_the_length)
{
    static const char longer[] = "00-" TRACE "-" SPAN "-01-more";
    struct srv_trace trace;
    ck_assert(srv_trace_read(&trace, longer, SRV_TRACEPARENT));
    ck_assert(!srv_trace_read(&trace, longer, SRV_TRACEPARENT + 1));
    for (size_t length = 0; length < SRV_TRACEPARENT; length++)
        ck_assert(!srv_trace_read(&trace, longer, length));
}

TEST(trace_is_answered_with_a_span_of_its_own)
{
    struct srv_trace trace = {0};
    char out[SRV_TRACEPARENT + 1];
    ck_assert(srv_trace_read(&trace, "cc-" TRACE "-" SPAN "-ff-more", 60));
    srv_trace_set_span(&trace, 0x0123456789abcdef);
    srv_trace_write(out, &trace);
    ck_assert_str_eq(out, "00-" TRACE "-0123456789abcdef-01");
    trace.sampled = false;
    srv_trace_set_span(&trace, 0); /* zeros alone are no id */
    srv_trace_write(out, &trace);
    ck_assert_str_eq(out, "00-" TRACE "-0000000000000001-00");
}

SUITE(trace)
