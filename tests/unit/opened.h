/* opened.h: what a test takes for granted: random models, caches, a step alone. */
#ifndef TESTS_UNIT_OPENED_H
#define TESTS_UNIT_OPENED_H

#include "attn.h"

/* A model of random weights, loaded; the caller's to close. */
struct attn_model *opened_random(const char *config, const struct attn_model_options *options);

struct attn_cache *opened_cache(struct attn_cache_pool *pool, const struct attn_model *model,
                                size_t max_length);

/* Frees a pool of which nothing may be used any more. */
void free_unused_pool(struct attn_cache_pool *pool);

/* What became of one step in a call of its own. */
enum attn_status one_step(struct attn_engine *engine, const struct attn_model *model, size_t layer,
                          struct attn_step *step);

#endif
