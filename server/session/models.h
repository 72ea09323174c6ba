/* models.h: the models that a configuration names. */
#ifndef SRV_MODELS_H
#define SRV_MODELS_H

#include "attn.h"
#include "base/buffer.h"
#include "base/errors.h"
#include "config/bounds.h"
#include "session/loading.h"

struct srv_model_stats; /* model_stats.h */

struct srv_weightless;       /* weightless.h */
struct srv_weightless_model; /* of weightless.c */

#define SRV_MODEL_NAME_MAX 71 /* of a weightless model; a configured one has an id */

struct srv_model {
    char name[SRV_MODEL_NAME_MAX + 1];
    size_t index; /* its place in srv_models.items; SRV_WEIGHTLESS_INDEX: in none */
    struct attn_model *attn;
    struct attn_model_info info;
    struct attn_cache_pool *pool;   /* shared by all models */
    struct attn_cached_load cached; /* zeroed until loaded, and without weights_cache */
    double load_ms;                 /* that loading took */
    size_t max_length;              /* of its sessions: the reach of its positions, or the limit */
    bool is_cross;                 /* its layers attend over other sequences: sessions hold those */
    size_t batch_rows;             /* most rows of a batch of steps; 0: no bound of its own */
    struct srv_model_stats *stats; /* [info.num_layers]; NULL: weightless_stats of srv_models */
    struct srv_weightless_model *weightless; /* of a weightless session; NULL: configured */
    struct srv_buffer text; /* the reply to GET /models/{name}, once all are loaded */
};

struct srv_models {
    struct srv_model *items;
    size_t count;
    struct srv_model_stats *weightless_stats;
    struct srv_weightless *weightless; /* models of weightless sessions */
    const char *weights_cache;         /* a directory, the configuration's; NULL: none */
    struct srv_loading loading;        /* how far srv_models_load is */
    struct srv_buffer text;            /* the reply to GET /models, once all are loaded */
};

struct srv_config;

/* `open` reads the configuration of every model and no weights; `load` makes the weights resident,
 * through the files of weights_cache where that is configured, and shows how far that is on
 * standard output where that is a terminal.
 * Sessions will take blocks from `pool`, which may be NULL where there will be none (--check).
 * False with one line in `message`; `models` is to be closed then too. */
bool srv_models_open(struct srv_models *models, const struct srv_config *config, char *message,
                     size_t size);
bool srv_models_load(struct srv_models *models, struct attn_cache_pool *pool, char *message,
                     size_t size);
void srv_models_close(struct srv_models *models);

/* The first resident layer of a model, which has at least one; and its index. */
size_t srv_model_first_index(const struct attn_model *model);
const struct attn_layer_spec *srv_model_first_layer(const struct attn_model *model);

/* Writes the model's name as JSON: null for NULL and for the model of weightless sessions. */
void srv_model_write_name(struct srv_buffer *out, const struct srv_model *model);

/* Prints the family, and its stack where the family has several: "llama", "t5 encoder". */
#define SRV_FAMILY_MAX 64
void srv_model_print_family(char out[SRV_FAMILY_MAX], const struct attn_model_info *info);

/* Finds the model of that name; with name NULL, the only one.  Errors: model_not_found,
 * missing_field (name NULL and several models). */
enum srv_error_code srv_models_find(const struct srv_model **out, const struct srv_models *models,
                                    const char *name, struct srv_error *error);

#endif
