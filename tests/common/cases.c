/* cases.c: tests and groups that the linker gathers, as a suite's. */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

/* The linker's names for the section's ends, where a program has such tests. */
extern const struct cases_row *__start_listed_cases[] __attribute__((weak));
extern const struct cases_row *__stop_listed_cases[] __attribute__((weak));

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

static int by_place(const void *a, const void *b)
{
    const struct cases_row *one = *(const struct cases_row *const *)a;
    const struct cases_row *other = *(const struct cases_row *const *)b;
    int files = strcmp(one->file, other->file);
    return files != 0 ? files : (one->line > other->line) - (one->line < other->line);
}

void cases_add(Suite *suite, const char *group, const char *file)
{
    TCase *cases = NULL;
    qsort(__start_listed_cases, (size_t)(__stop_listed_cases - __start_listed_cases),
          sizeof *__start_listed_cases, by_place);
    for (const struct cases_row **at = __start_listed_cases; at < __stop_listed_cases; at++) {
        const struct cases_row *row = *at;
        if (strcmp(row->file, file) != 0)
            continue;
        if (row->test == NULL) {
            cases = suite_cases(suite, row->group, row->set_up, row->tear_down, row->timeout_s);
            tcase_set_tags(cases, row->group);
            continue;
        }
        if (cases == NULL)
            cases = suite_cases(suite, group, NULL, NULL, 0);
        tcase_add_loop_test(cases, row->test, row->begin, row->end);
    }
}
