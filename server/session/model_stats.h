/* model_stats.h: what a layer of a model has computed, as the statistics of the Open Inference
 * Protocol have it.  Counters only rise; any thread adds to them and reads them. */
#ifndef SRV_MODEL_STATS_H
#define SRV_MODEL_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

struct srv_model;
struct srv_models;

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
