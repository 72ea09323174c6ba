/* models.h: the models that a configuration names, loaded and ready. */
#ifndef SRV_MODELS_H
#define SRV_MODELS_H

#include "attn.h"
#include "bounds.h"
#include "errors.h"

struct srv_model {
    char name[SRV_ID_MAX + 1];
    struct attn_model *attn;
    struct attn_model_info info;
    struct attn_cache_pool *pool; /* shared by all models */
    size_t max_length;            /* of its sessions: max_position or the limit */
};

struct srv_models {
    struct srv_model *items;
    size_t count;
};

struct srv_config;

/* Opens every configured model, reading configurations but no weights, then srv_models_load makes
 * the weights resident.  Sessions will draw on `pool`, which may be NULL where none will be made
 * (--check).  Errors are one line in `message`; `models` can be closed after them too. */
bool srv_models_open(struct srv_models *models, const struct srv_config *config,
                     struct attn_cache_pool *pool, char *message, size_t size);
bool srv_models_load(struct srv_models *models, char *message, size_t size);
void srv_models_close(struct srv_models *models);

/* The model of that name; with name NULL, the only one.  Errors: model_not_found, missing_field. */
enum srv_error_code srv_models_find(const struct srv_model **out, const struct srv_models *models,
                                    const char *name, struct srv_error *error);

#endif
