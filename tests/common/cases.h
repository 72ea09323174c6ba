/* cases.h: tests that list themselves.
 *
 *     CASE(sessions, set_up, tear_down, 60)
 *
 *     TEST(session_is_deleted_once)
 *     {
 *         ...
 *     }
 *
 *     SUITE(sessions)
 *
 * A suite has every test of its file, in the order of the lines; libcheck names each test_NAME.
 * Where a group has a fixture for all of its tests together, it lists them in libcheck's words. */
#ifndef TESTS_COMMON_CASES_H
#define TESTS_COMMON_CASES_H

#include <check.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* A test, or where `test` is NULL the group that all tests behind it in the file are of. */
struct cases_row {
    const char *file;
    int line;
    const char *group; /* its tag too */
    SFun set_up, tear_down;
    double timeout_s;
    const TTest *test;
    int begin, end; /* the values of _i that the test runs with */
};

#define CASES_ROW(name, ...)                                                                      \
    static const struct cases_row name##_row = {__FILE__, __LINE__, __VA_ARGS__};                 \
    static const struct cases_row *name##_listed __attribute__((section("listed_cases"), used)) = \
        &name##_row;

/* A group of tests.  Each runs between `set_up` and `tear_down`, in its process, where they are not
 * NULL, and may take `timeout_s`; 0: as long as the program says.  CK_RUN_CASE=name runs one. */
#define CASE(name, set_up, tear_down, timeout_s) \
    CASES_ROW(name##_case, #name, set_up, tear_down, timeout_s, NULL, 0, 0)

/* A test that runs once for each `_i` from `begin` to below `end`, constants. */
#define TEST_RANGE(name, begin, end)                                                        \
    static void test_##name##_fn(int _i CK_ATTRIBUTE_UNUSED);                               \
    static const TTest test_##name = {"test_" #name, test_##name##_fn, __FILE__, __LINE__}; \
    CASES_ROW(test_##name, NULL, NULL, NULL, 0, &test_##name, begin, end)                   \
    static void test_##name##_fn(int _i CK_ATTRIBUTE_UNUSED)
#define TEST_EACH(name, count) TEST_RANGE(name, 0, (int)(count))
#define TEST(name) TEST_RANGE(name, 0, 1)

/* A test of the lines above runs in this group too, for other values of `_i` or another fixture. */
#define AGAIN(name, begin, end) \
    CASES_ROW(test_##name##_again, NULL, NULL, NULL, 0, &test_##name, begin, end)

/* Defines the function that makes the suite of this file's tests. */
#define SUITE(name)                         \
    Suite *suite_##name(void)               \
    {                                       \
        Suite *suite = suite_create(#name); \
        cases_add(suite, #name, __FILE__);  \
        return suite;                       \
    }

/* Likewise cases_of_NAME, which adds them to a suite of several files. */
#define CASES_OF(name) \
    void cases_of_##name(Suite *suite) { cases_add(suite, #name, __FILE__); }

/* Adds a file's tests; those before its first group are one that has the name `group`. */
void cases_add(Suite *suite, const char *group, const char *file);

/* Adds a group without tests, for START_TEST. */
TCase *suite_cases(Suite *suite, const char *name, SFun set_up, SFun tear_down, double timeout_s);

#endif
