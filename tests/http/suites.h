/* suites.h: the list of HTTP suites.  A new suite is one line here and one file, test_NAME.c, with
 * SUITE(NAME) at its end; `make style` names a suite that was forgotten. */
#ifndef TESTS_HTTP_SUITES_H
#define TESTS_HTTP_SUITES_H

#include <check.h>

#include "cases.h"

/* Several run at a time: the longest stand first. */
#define SUITES_TOGETHER(X) \
    X(memory)              \
    X(golden)              \
    X(slow_disk)           \
    X(phases)              \
    X(io_workers)          \
    X(stalls)              \
    X(refusals)            \
    X(places)              \
    X(promises)            \
    X(durability)          \
    X(blocks)              \
    X(limits)              \
    X(lifecycle)           \
    X(coding)              \
    X(adopted)             \
    X(tls)                 \
    X(core)                \
    X(attend)              \
    X(select)              \
    X(pooled)              \
    X(datatypes)           \
    X(stats)               \
    X(tree)                \
    X(binary)              \
    X(v2)                  \
    X(fields)              \
    X(families)            \
    X(latent)              \
    X(own)                 \
    X(decode)              \
    X(cross)               \
    X(starts)              \
    X(weightless)          \
    X(sessions)            \
    X(batch)               \
    X(instances)           \
    X(restoring)           \
    X(evicted)             \
    X(algebra)             \
    X(revisions)           \
    X(state)               \
    X(journal)             \
    X(forks)               \
    X(concurrency)         \
    X(ops)                 \
    X(observed)            \
    X(weights)             \
    X(keys)                \
    X(origins)             \
    X(page)                \
    X(isolation)           \
    X(inputs)              \
    X(quotas)              \
    X(fairness)            \
    X(connections)         \
    X(replies)             \
    X(shares)              \
    X(forget)              \
    X(reload)              \
    X(commands)            \
    X(notify)              \
    X(lame_duck)           \
    X(bounds)

/* These judge how soon answers come, and run one after the other, after the rest. */
#define SUITES_ALONE(X) \
    X(interrupts)       \
    X(pauses)           \
    X(heavy)

#define SUITES(X) SUITES_TOGETHER(X) SUITES_ALONE(X)

#define DECLARE_SUITE(name) Suite *suite_##name(void);
SUITES(DECLARE_SUITE)
#undef DECLARE_SUITE

#endif
