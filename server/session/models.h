/* models.h: the models that a configuration names. */
#ifndef SRV_MODELS_H
#define SRV_MODELS_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/buffer.h"
#include "config/bounds.h"

struct srv_weightless;       /* weightless.h */
struct srv_weightless_model; /* of weightless.c */

/* How far the loading of weights is, for /readyz and a terminal.  One thread writes, any thread
 * reads. */
struct srv_loading {
    atomic_size_t done, total;     /* bytes of weights of all models; total 0: not begun */
    atomic_uint_fast64_t begin_ns; /* of srv_now_ns */
    size_t before;                 /* bytes of the models before the one that is being loaded */
    FILE *terminal;                /* where a line is shown and shown again; NULL: nowhere */
    uint64_t shown_ns;             /* when it last was; 0: never */
};

/* ---- What a layer of a model has computed, as the statistics of the Open Inference Protocol have
 * it.  Counters only rise; any thread adds to them and reads them. */

/* The parts of a request that are counted and timed. */
enum srv_inference_part {
    SRV_INFERENCE_SUCCESS, /* from the first header to the written reply, of a success */
    SRV_INFERENCE_FAIL,    /* likewise, of a failure */
    SRV_INFERENCE_QUEUE,   /* of successes alone from here on: waiting for the scheduler */
    SRV_INFERENCE_INPUT,   /* reading the body */
    SRV_INFERENCE_INFER,   /* computing, and waiting for its turn */
    SRV_INFERENCE_OUTPUT,  /* writing the reply */
    SRV_INFERENCE_PARTS
};

struct srv_model_stats {
    atomic_uint_fast64_t inferences; /* sequences of successful requests */
    atomic_uint_fast64_t executions; /* batches computed */
    atomic_uint_fast64_t last_ms;    /* since 1970: end of the last request; 0: none */
    struct {
        atomic_uint_fast64_t count, ns;
    } parts[SRV_INFERENCE_PARTS];
};

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

/* ---- loading.c: how far loading is ----------------------------------------------------------- */

void srv_loading_begin(struct srv_loading *loading, size_t total, FILE *terminal);

/* Says that `done` bytes of the model being loaded are resident, an attn_load_progress; that all of
 * its `bytes` are, so that another model is next; that loading is over, which clears the line. */
void srv_loading_advance(void *loading, size_t done, size_t total);
void srv_loading_next(struct srv_loading *loading, size_t bytes);
void srv_loading_end(struct srv_loading *loading);

#define SRV_LOADING_TEXT_MAX 96

/* Prints "412 of 1120 MiB, 640 MiB/s, 1 s left", of which the rest after the first comma needs a
 * quarter of a second; "" before the begin. */
void srv_loading_print(char out[SRV_LOADING_TEXT_MAX], struct srv_loading *loading);

/* ---- model_stats.c: counting ----------------------------------------------------------------- */

/* The counters of a model's layer; of weightless attention where `model` is NULL. */
struct srv_model_stats *srv_models_stats(const struct srv_models *models,
                                         const struct srv_model *model, size_t layer);

/* Counts a batch that was computed, and a request of `sequences` that has ended: `ns` are the times
 * of its parts, of which SUCCESS is the whole, whichever way it ended. */
void srv_model_count_execution(struct srv_model_stats *stats);
void srv_model_count_request(struct srv_model_stats *stats, bool success, size_t sequences,
                             const uint64_t ns[SRV_INFERENCE_PARTS]);

/* Adds `from` to the counters of `to`, which no other thread sees. */
void srv_model_stats_add(struct srv_model_stats *to, const struct srv_model_stats *from);

#endif
