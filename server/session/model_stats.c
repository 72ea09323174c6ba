/* model_stats.c: counts inferences. */
#include "base/clock.h"
#include "session/models.h"

static void add(atomic_uint_fast64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

struct srv_model_stats *srv_models_stats(const struct srv_models *models,
                                         const struct srv_model *model, size_t layer)
{
    return model != NULL && model->stats != NULL ? &model->stats[layer] : models->weightless_stats;
}

void srv_model_count_execution(struct srv_model_stats *stats) { add(&stats->executions, 1); }

void srv_model_count_request(struct srv_model_stats *stats, bool success, size_t sequences,
                             const uint64_t ns[SRV_INFERENCE_PARTS])
{
    enum srv_inference_part whole = success ? SRV_INFERENCE_SUCCESS : SRV_INFERENCE_FAIL;
    atomic_store_explicit(&stats->last_ms, srv_wall_ns() / SRV_MS_NS, memory_order_relaxed);
    add(&stats->parts[whole].count, 1);
    add(&stats->parts[whole].ns, ns[SRV_INFERENCE_SUCCESS]);
    if (!success)
        return;
    add(&stats->inferences, sequences);
    for (size_t part = SRV_INFERENCE_QUEUE; part < SRV_INFERENCE_PARTS; part++) {
        add(&stats->parts[part].count, 1);
        add(&stats->parts[part].ns, ns[part]);
    }
}

void srv_model_stats_add(struct srv_model_stats *to, const struct srv_model_stats *from)
{
    to->inferences += from->inferences;
    to->executions += from->executions;
    to->last_ms = from->last_ms > to->last_ms ? from->last_ms : to->last_ms;
    for (size_t part = 0; part < SRV_INFERENCE_PARTS; part++) {
        to->parts[part].count += from->parts[part].count;
        to->parts[part].ns += from->parts[part].ns;
    }
}
