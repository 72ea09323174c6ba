/* opened.c: opens what must be good, with an assertion for each. */
#include "opened.h"

#include <check.h>
#include <string.h>

struct attn_model *opened_random(const char *config, const struct attn_model_options *options)
{
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    ck_assert_msg(attn_model_open_random(&model, config, strlen(config), options, &error) ==
                          ATTN_OK &&
                      attn_model_load(model, &error) == ATTN_OK,
                  "%s: %s", config, error.message);
    return model;
}

struct attn_cache *opened_cache(struct attn_cache_pool *pool, const struct attn_model *model,
                                size_t max_length)
{
    struct attn_cache *cache = NULL;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, max_length, NULL), ATTN_OK);
    return cache;
}

void free_unused_pool(struct attn_cache_pool *pool)
{
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_cache_pool_free(pool);
}

enum attn_status one_step(struct attn_engine *engine, const struct attn_model *model, size_t layer,
                          struct attn_step *step)
{
    struct attn_step *steps[] = {step};
    enum attn_status status = attn_decode(engine, model, layer, steps, 1);
    return status != ATTN_OK ? status : step->error.status;
}
