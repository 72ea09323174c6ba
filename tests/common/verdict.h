/* verdict.h: what the last line of a check's program says: each condition that does not hold is
 * named, so that no FAILED is without its reason. */
#ifndef TESTS_COMMON_VERDICT_H
#define TESTS_COMMON_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct verdict_condition {
    bool holds;
    const char *text;
};

/* A condition, which is also its text. */
#define VERDICT(condition) \
    (struct verdict_condition) { .holds = (condition), .text = #condition }

/* Whether all hold; prints a line for each that does not. */
static inline bool verdict(const char *check, const struct verdict_condition conditions[],
                           size_t count)
{
    bool right = true;
    for (size_t i = 0; i < count; i++) {
        if (!conditions[i].holds)
            printf("%s: FAILED: it should be that %s\n", check, conditions[i].text);
        right = right && conditions[i].holds;
    }
    return right;
}

#define VERDICTS(check, conditions) \
    verdict((check), (conditions), sizeof(conditions) / sizeof(conditions)[0])

#endif
