/* inject.h: choosing the call that fails, and the figures of what came of it. */
#ifndef TESTS_FAULT_INJECT_H
#define TESTS_FAULT_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon.h"
#include "page.h"

/* One injection: call number `at` of its kind fails, alone or with all that follow. */
struct fault {
    enum fault_kind kind;
    uint64_t at;
    bool lasting;
};

struct figures {
    size_t injections, fired, wrong, leaks, refused, unanswered, ended;
    bool quick;
};
extern struct figures figures;

bool inject_open(void); /* makes the page */

/* Starts a daemon that shares the page; the same without waiting for it. */
void inject_daemon(struct daemon *daemon, const char *config, const char *const arguments[]);
void inject_process(struct process *process, const char *const arguments[]);

void inject_arm(const struct fault *fault); /* counts from here; NULL: only counts */
void inject_disarm(void);
bool inject_fired(void);
uint64_t inject_calls(enum fault_kind kind); /* since it was armed */
int64_t inject_blocks(void);

/* The next fault of a round over `counts` calls of each kind, once and lasting; false at the end.
 * Begins with a zeroed fault.  `step`: only each so manyth; what is left out changes from kind to
 * kind. */
bool inject_next(struct fault *fault, const uint64_t counts[FAULT_KINDS], unsigned step);

/* Notes an injection that went wrong and prints where. */
void inject_wrong(const char *scene, const struct fault *fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
