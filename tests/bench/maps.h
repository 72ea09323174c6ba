/* maps.h: the cost of what a call asks to see of its attention weights. */
#ifndef TESTS_BENCH_MAPS_H
#define TESTS_BENCH_MAPS_H

#include "attn.h"

/* Computes 12 heads over 4,096 tokens without maps, and with each kind of map, and prints times,
 * their ratio to head_stats alone, and bytes.  False where a pooled cell is not in its map. */
bool bench_maps(struct attn_engine *engine);

#endif
