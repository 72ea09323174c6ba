/* accuracy.h: what the dtypes of weights and caches do to the outputs of a checkpoint's layers. */
#ifndef TESTS_BENCH_ACCURACY_H
#define TESTS_BENCH_ACCURACY_H

#include "attn.h"

/* Runs each layer of the checkpoint in `directory` twice over the same random rows, with weights of
 * `dtype` over caches of `kv_dtype` and with both in float32, and prints how far its outputs are
 * apart.  Fails through bench_die. */
void bench_accuracy(const char *directory, enum attn_dtype dtype, enum attn_dtype kv_dtype,
                    struct attn_engine *engine);

#endif
