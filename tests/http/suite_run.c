/* suite_run.c: runs one suite, and handles assertions that fail on its threads.
 *
 * Without forking, libcheck jumps back to the thread that runs the suite when an assertion fails.
 * That is impossible from another thread: there the program prints the failed assertion and ends.
 * The linker puts the wrapper in libcheck's place (--wrap, in the Makefile). */
#include "suite_run.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEXT 8192

void __real__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
    __attribute__((noreturn));
void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
    __attribute__((noreturn));

static bool runs; /* a suite runs, on thread `runner` */
static pthread_t runner;

void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    char text[TEXT] = "";
    va_list arguments;
    va_start(arguments, msg);
    if (msg != NULL)
        (void)vsnprintf(text, sizeof text, msg, arguments);
    va_end(arguments);
    if (runs && !pthread_equal(pthread_self(), runner)) {
        fprintf(stderr, "%s:%d: %s: %s\n", file, line, expr, text);
        _exit(EXIT_FAILURE);
    }
    __real__ck_assert_failed(file, line, expr, msg != NULL ? "%s" : NULL, text);
}

bool suite_run(Suite *suite)
{
    SRunner *all = srunner_create(suite);
    srunner_set_fork_status(all, CK_NOFORK);
    runner = pthread_self();
    runs = true;
    srunner_run_all(all, CK_NORMAL);
    runs = false;
    bool passed = srunner_ntests_failed(all) == 0;
    srunner_free(all);
    return passed;
}
