/* cases.h: tests of a suite that share what is done before and after each. */
#ifndef TESTS_COMMON_CASES_H
#define TESTS_COMMON_CASES_H

#include <check.h>

/* Adds a group of tests to the suite.  Each runs between `set_up` and `tear_down`, in its process,
 * where they are not NULL, and may take `timeout_s`; 0: as long as the program says. */
TCase *suite_cases(Suite *suite, const char *name, SFun set_up, SFun tear_down, double timeout_s);

#endif
