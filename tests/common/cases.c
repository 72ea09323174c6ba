/* cases.c: a group of tests. */
#include "cases.h"

TCase *suite_cases(Suite *suite, const char *name, SFun set_up, SFun tear_down, double timeout_s)
{
    TCase *cases = tcase_create(name);
    if (set_up != NULL || tear_down != NULL)
        tcase_add_checked_fixture(cases, set_up, tear_down);
    if (timeout_s > 0)
        tcase_set_timeout(cases, timeout_s);
    suite_add_tcase(suite, cases);
    return cases;
}
