/* inject.h: chooses the call that fails, and counts the results. */
#ifndef TESTS_FAULT_INJECT_H
#define TESTS_FAULT_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon.h"
#include "page.h"

/* One injection: call number `at` of its kind fails, alone or with all later ones. */
struct fault {
    enum fault_kind kind;
    uint64_t at;
    bool lasting;
    const struct fault *then; /* a second one; NULL: none */
};

struct figures {
    size_t injections, pairs, volumes, fired, wrong, leaks, refused, unanswered, ended;
    bool quick;
};
extern struct figures figures;

bool inject_open(void); /* makes the page */

/* inject_daemon starts a daemon that shares the page and waits until it is ready; inject_process
 * does not wait. */
void inject_daemon(struct daemon *daemon, const char *config, const char *const arguments[]);
void inject_process(struct process *process, const char *const arguments[]);

void inject_arm(const struct fault *fault); /* counting starts here; NULL: calls are only counted */
void inject_disarm(void);
bool inject_fired(void);
bool inject_second_fired(void);
void inject_counts(uint64_t out[FAULT_KINDS],
                   bool second); /* since inject_arm; or since it fired */
int64_t inject_blocks(void);

/* Advances to the next fault over `counts` calls of each kind, each call failing once and
 * lastingly; false at the end.  Begins with a zeroed fault.  `step`: only every so many calls; the
 * first of them changes from kind to kind. */
bool inject_next(struct fault *fault, const uint64_t counts[FAULT_KINDS], unsigned step);

/* Counts an injection that went wrong, and prints where. */
void inject_wrong(const char *scene, const struct fault *fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
