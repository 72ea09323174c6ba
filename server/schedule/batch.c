/* batch.c: the estimated work of steps and of /attend, and room for steps in a batch. */
#include "schedule/steps.h"

/* A batch has at most the work of TYPICAL_ROWS rows over TYPICAL_KEYS tokens of its layer, or
 * LEAST_MAX_WORK where that is more.  More rows would hardly read the weights more cheaply. */
#define TYPICAL_ROWS 64
#define TYPICAL_KEYS 4096
#define LEAST_MAX_WORK ((size_t)1 << 30)

/* An item of more than 1 / HEAVY_DIVISOR of that is heavy. */
#define HEAVY_DIVISOR 16

/* Work beside the products, as the multiply-adds that take as long. */
#define RANK_WORK 1024  /* ranking one weight (top_k) */
#define MEASURE_WORK 64 /* measuring one weight (head_stats) */
#define POOL_WORK 16    /* pooling one weight (pool) */
#define GROUP_WORK 16   /* adding one weight to one group (target_groups) */
#define SOFTMAX_WORK 32 /* the exponential and the sums of one weight: most of small heads' time */

/* `ablate` counts as two projections of at least four rows: one for all heads together, and one for
 * the output where that is not asked for.  A few rows take as long as four, since weights come from
 * memory. */
#define ABLATE_WORK 2
#define ABLATED_ROWS 4

#define MAPS (SRV_OUT_WEIGHTS | SRV_OUT_SCORES | SRV_OUT_STATS)

static const struct attn_layer_spec *spec_of(const struct srv_item *item)
{
    return attn_model_layer(item->model->attn, item->layer);
}

size_t srv_item_keys(const struct srv_item *item)
{
    return attn_cache_length(item->session->cache, item->layer) +
           (item->model->is_cross ? 0 : item->sizes.queries);
}

/* Keys that the item attends to.  The layer's window or chunk spares the others, unless the call
 * sets a window or mask of its own or asks for maps, which show all keys. */
static size_t visible_keys(const struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    const struct attn_layer_spec *spec = spec_of(item);
    size_t near = spec->sliding_window > 0 ? spec->sliding_window : spec->attention_chunk_size;
    size_t keys = srv_item_keys(item), seen = near + item->sizes.queries;
    bool windowed = near > 0 && !rows->sliding_window.present && !rows->attention_mask.present &&
                    (rows->outputs & MAPS) == 0;
    return windowed && seen < keys ? seen : keys;
}

/* The work of looking at one weight. */
static size_t weight_work(const struct srv_rows *rows)
{
    return (rows->top_k > 0 ? RANK_WORK : 0) + (rows->pool.present ? POOL_WORK : 0) +
           (rows->outputs & SRV_OUT_STATS ? MEASURE_WORK : 0) +
           rows->target_groups.count * GROUP_WORK;
}

static size_t ablation_work(const struct srv_rows *rows, const struct srv_sizes *s)
{
    size_t tokens = s->batch * s->queries, width = s->num_heads * s->value_head_dim;
    tokens = tokens > ABLATED_ROWS ? tokens : ABLATED_ROWS;
    return rows->ablate ? ABLATE_WORK * tokens * s->hidden_size * width : 0;
}

/* Keys and values that a step of a latent layer wants are made of all cached latents. */
static size_t expand_work(const struct srv_item *item)
{
    const struct attn_layer_spec *spec = spec_of(item);
    bool wanted = (item->rows->outputs & (SRV_OUT_KEY | SRV_OUT_VALUE)) != 0;
    return wanted ? srv_item_keys(item) * spec->mla.kv_lora_rank * spec->num_heads *
                        (spec->head_dim + spec->value_head_dim)
                  : 0;
}

size_t srv_item_work(const struct srv_item *item)
{
    size_t weights = item->sizes.queries * spec_of(item)->num_heads * srv_item_keys(item);
    return attn_step_work(spec_of(item), item->sizes.queries, visible_keys(item)) +
           weight_work(item->rows) * weights + ablation_work(item->rows, &item->sizes) +
           expand_work(item);
}

size_t srv_attend_work(const struct srv_job *job)
{
    const struct srv_sizes *s = &job->sizes; /* at most max_body_bytes * max_tokens * D */
    size_t heads = s->num_heads * (s->head_dim + s->value_head_dim);
    size_t kv_heads = s->num_kv_heads * (s->head_dim + s->value_head_dim);
    size_t projections = s->hidden_size * (s->queries * heads + s->keys * kv_heads);
    size_t weights = s->queries * s->keys * s->num_heads;
    return s->batch * (projections + s->queries * s->keys * heads +
                       weights * (SOFTMAX_WORK + weight_work(&job->call.rows))) +
           ablation_work(&job->call.rows, s);
}

/* The most work of a batch of the item's layer. */
static size_t max_work(const struct srv_item *item)
{
    size_t typical = attn_step_work(spec_of(item), TYPICAL_ROWS, TYPICAL_KEYS);
    return typical > LEAST_MAX_WORK ? typical : LEAST_MAX_WORK;
}

/* The most rows of a batch of the item's model. */
static size_t max_rows(const struct srv_item *item)
{
    return item->model->batch_rows > 0 ? item->model->batch_rows : SRV_BATCH_ROWS;
}

bool srv_item_is_long(const struct srv_item *item)
{
    return item->sizes.queries > SRV_DECODE_ROWS_MAX || item->sizes.queries > max_rows(item) ||
           item->work > max_work(item) / 2;
}

/* Keys whose positions the library may store for a mask; memory.c counts that memory. */
static size_t masked_keys(const struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    return rows->attention_mask.present || rows->padding_mask.present ? srv_item_keys(item) : 0;
}

/* Whether an item may join those of a batch.  Steps of a batch are on record all or none, and so
 * belong to one store.  Heavy items may fill half of a batch only, so that light items queued after
 * them are in the next batch however many heavy ones wait. */
static bool fits(const struct srv_batch *batch, const struct srv_item *item)
{
    const struct srv_item *first = batch->items[0];
    if (item->model != first->model || item->layer != first->layer ||
        item->session->store != first->session->store)
        return false;
    size_t most = max_work(item), most_here = item->work > most / HEAVY_DIVISOR ? most / 2 : most;
    return batch->count < SRV_BATCH_STEPS && batch->work + item->work <= most_here &&
           batch->rows + item->sizes.queries <= max_rows(item) &&
           batch->masked_keys + masked_keys(item) <= SRV_BATCH_KEYS;
}

bool srv_batch_add(struct srv_batch *batch, struct srv_item *item)
{
    if (batch->count > 0 && !fits(batch, item))
        return false;
    batch->items[batch->count++] = item;
    batch->rows += item->sizes.queries;
    batch->work += item->work;
    batch->masked_keys += masked_keys(item);
    return true;
}
