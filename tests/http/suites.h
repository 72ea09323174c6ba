/* suites.h: the list of HTTP suites.  A new suite is one line here and one file, test_NAME.c, which
 * defines suite_NAME(). */
#ifndef TESTS_HTTP_SUITES_H
#define TESTS_HTTP_SUITES_H

#include <check.h>

#define SUITES(X)  \
    X(golden)      \
    X(core)        \
    X(attend)      \
    X(select)      \
    X(pooled)      \
    X(datatypes)   \
    X(stats)       \
    X(tree)        \
    X(binary)      \
    X(v2)          \
    X(coding)      \
    X(fields)      \
    X(families)    \
    X(latent)      \
    X(own)         \
    X(decode)      \
    X(cross)       \
    X(starts)      \
    X(weightless)  \
    X(sessions)    \
    X(batch)       \
    X(instances)   \
    X(adopted)     \
    X(restoring)   \
    X(algebra)     \
    X(revisions)   \
    X(state)       \
    X(durability)  \
    X(journal)     \
    X(slow_disk)   \
    X(forks)       \
    X(concurrency) \
    X(ops)         \
    X(observed)    \
    X(limits)      \
    X(memory)      \
    X(weights)     \
    X(keys)        \
    X(origins)     \
    X(page)        \
    X(isolation)   \
    X(quotas)      \
    X(fairness)    \
    X(interrupts)  \
    X(connections) \
    X(places)      \
    X(refusals)    \
    X(stalls)      \
    X(replies)     \
    X(shares)      \
    X(forget)      \
    X(tls)         \
    X(reload)      \
    X(lifecycle)   \
    X(pauses)      \
    X(heavy)       \
    X(io_workers)  \
    X(commands)    \
    X(promises)    \
    X(notify)      \
    X(phases)      \
    X(lame_duck)   \
    X(bounds)

#define DECLARE_SUITE(name) Suite *suite_##name(void);
SUITES(DECLARE_SUITE)
#undef DECLARE_SUITE

#endif
