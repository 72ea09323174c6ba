/* batch.c: the work of steps, and room for them in a batch. */
#include "schedule/batch.h"

#include "attn_limits.h"

/* A batch has at most the multiply-adds of so many rows over so many tokens of its layer, or
 * LEAST_WORK where those are less. */
#define TYPICAL_ROWS 64 /* a layer's weights are hardly read more cheaply for more */
#define TYPICAL_KEYS 4096
#define LEAST_WORK ((size_t)1 << 30)
#define HEAVY 16 /* items of more than a sixteenth of that leave half of it to the others */

/* Multiply-adds in whose time a weight is ranked (top_k), or measured (head_stats). */
#define RANKED 1024
#define MEASURED 64

#define MAPS (SRV_OUT_WEIGHTS | SRV_OUT_SCORES | SRV_OUT_STATS)

static const struct attn_layer_spec *spec_of(const struct srv_item *item)
{
    return attn_model_layer(item->model->attn, (size_t)item->job->call.layer);
}

/* Cached ones and the item's own. */
static size_t keys_of(const struct srv_item *item)
{
    return attn_cache_length(item->session->cache, (size_t)item->job->call.layer) +
           item->sizes.queries;
}

/* What a window of the layer spares, the call may want back, and maps have all keys. */
static size_t visible_keys(const struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    size_t keys = keys_of(item), seen = spec_of(item)->sliding_window + item->sizes.queries;
    bool windowed = spec_of(item)->sliding_window > 0 && !rows->sliding_window.present &&
                    !rows->attention_mask.present && (rows->outputs & MAPS) == 0;
    return windowed && seen < keys ? seen : keys;
}

/* Of looking at weights one by one. */
static size_t looking_work(const struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    size_t each = (rows->top_k > 0 ? RANKED : 0) + (rows->outputs & SRV_OUT_STATS ? MEASURED : 0);
    return each * item->sizes.queries * spec_of(item)->num_heads * keys_of(item);
}

size_t srv_item_work(const struct srv_item *item)
{
    return attn_step_work(spec_of(item), item->sizes.queries, visible_keys(item)) +
           looking_work(item);
}

/* Of a batch of the item's layer. */
static size_t most_work(const struct srv_item *item)
{
    size_t typical = attn_step_work(spec_of(item), TYPICAL_ROWS, TYPICAL_KEYS);
    return typical > LEAST_WORK ? typical : LEAST_WORK;
}

bool srv_item_is_long(const struct srv_item *item)
{
    return item->sizes.queries > SRV_DECODE_ROWS_MAX || item->work > most_work(item) / 2;
}

/* Keys whose positions the library may write down (memory.c counts them). */
static size_t placed_keys(const struct srv_item *item)
{
    const struct srv_rows *rows = item->rows;
    return rows->attention_mask.present || rows->padding_mask.present ? keys_of(item) : 0;
}

static bool same_layer(const struct srv_item *a, const struct srv_item *b)
{
    return a->model == b->model && a->job->call.layer == b->job->call.layer;
}

/* Heavy items leave room for light ones behind them, which so are in the next batch however many
 * those are. */
static bool has_room(const struct srv_batch *batch, const struct srv_item *item)
{
    size_t most = most_work(item), share = item->work > most / HEAVY ? most / 2 : most;
    return batch->count < SRV_BATCH_STEPS && batch->work + item->work <= share &&
           batch->rows + item->sizes.queries <= SRV_BATCH_ROWS &&
           batch->placed + placed_keys(item) <= SRV_BATCH_KEYS;
}

void srv_batch_clear(struct srv_batch *batch)
{
    batch->count = batch->rows = batch->work = batch->placed = 0;
}

bool srv_batch_add(struct srv_batch *batch, struct srv_item *item)
{
    if (batch->count > 0 && !(same_layer(item, batch->items[0]) && has_room(batch, item)))
        return false;
    batch->items[batch->count++] = item;
    batch->rows += item->sizes.queries;
    batch->work += item->work;
    batch->placed += placed_keys(item);
    return true;
}
