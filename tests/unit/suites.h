/* suites.h: the list of unit suites.  A new suite is one line here and one file, test_NAME.c, with
 * SUITE(NAME) at its end; `make style` names a suite that was forgotten. */
#ifndef TESTS_UNIT_SUITES_H
#define TESTS_UNIT_SUITES_H

#include <check.h>

#include "cases.h"

/* Several run at a time: the longest stand first. */
#define SUITES(X)     \
    X(store)          \
    X(golden)         \
    X(ablation)       \
    X(indexer)        \
    X(heads_over)     \
    X(store_gap)      \
    X(store_history)  \
    X(store_disk)     \
    X(store_unread)   \
    X(own)            \
    X(property)       \
    X(forget)         \
    X(thread)         \
    X(safetensors)    \
    X(gguf)           \
    X(quantized)      \
    X(weights_cache)  \
    X(load)           \
    X(load_files)     \
    X(model)          \
    X(blockpool)      \
    X(kvcache)        \
    X(cache_stored)   \
    X(kvtypes)        \
    X(pairs)          \
    X(state)          \
    X(attention)      \
    X(patches)        \
    X(pooling)        \
    X(broadcast)      \
    X(json)           \
    X(tensor_json)    \
    X(tensor_binary)  \
    X(tensor_narrow)  \
    X(number)         \
    X(nearest)        \
    X(call)           \
    X(http)           \
    X(openapi)        \
    X(ui)             \
    X(http_scan)      \
    X(trace)          \
    X(http_origin)    \
    X(coding)         \
    X(config)         \
    X(config_notes)   \
    X(keys)           \
    X(accounts)       \
    X(shares)         \
    X(inputs)         \
    X(session)        \
    X(revision)       \
    X(digest)         \
    X(fair_queue)     \
    X(io_workers)     \
    X(dispatch)       \
    X(log)            \
    X(metrics)        \
    X(steps)          \
    X(cpu)            \
    X(self_check)     \
    X(record)         \
    X(slots)          \
    X(manifest)       \
    X(blocks)         \
    X(identity)       \
    X(restore)        \
    X(store_snapshot) \
    X(store_room)     \
    X(unread)         \
    X(store_check)    \
    X(stores)         \
    X(versions)       \
    X(rope)           \
    X(position_bias)  \
    X(stats)          \
    X(head_stats)     \
    X(largest)        \
    X(dtype)          \
    X(yield)          \
    X(portions)       \
    X(copies)         \
    X(cross)          \
    X(weightless)     \
    X(footprint)      \
    X(sandbox)        \
    X(promises)       \
    X(bench)

#define DECLARE_SUITE(name) Suite *suite_##name(void);
SUITES(DECLARE_SUITE)
#undef DECLARE_SUITE

#endif
