/* restore_later.c: a session as its base describes it, without its tokens. */
#include <stdlib.h>

#include "basics/mem.h"
#include "session/weightless.h"
#include "store/restore.h"

/* A session while it is being made. */
struct described_restore {
    const struct srv_restore *restore;
    const struct srv_session_file *listed;
    const struct srv_base_session *description;
    const struct srv_model *model;
    struct attn_cache *cache;
    struct srv_last_step *last_steps; /* [info.num_layers] */
};

/* Makes the layer as long as the share goes.  Blocks that windows of the parent have forgotten are
 * the session's own. */
static enum attn_status share_layer(const struct described_restore *t,
                                    const struct srv_share *share, size_t length)
{
    struct attn_error cause;
    const struct srv_restored_session *parent = srv_restore_find(t->restore, share->parent);
    const size_t layer = share->layer;
    const size_t end = attn_min((size_t)share->blocks * ATTN_BLOCK_TOKENS, length);
    if (parent == NULL || parent->session == NULL || parent->session->model != t->model ||
        end < attn_cache_length(t->cache, layer))
        return ATTN_MALFORMED;
    const struct attn_cache *from = parent->session->cache;
    const size_t kept = attn_min(attn_cache_first(from, layer), end);
    enum attn_status status = ATTN_OK;
    parent->session->shares_blocks = true;
    if (kept > attn_cache_length(t->cache, layer))
        status = attn_cache_lengthen(t->cache, layer, kept, NULL, 0, &cause);
    if (status == ATTN_OK)
        status = attn_cache_lengthen(t->cache, layer, end, from, share->blocks, &cause);
    return status;
}

static enum attn_status make_layer(const struct described_restore *t, size_t i)
{
    struct attn_error cause;
    const struct srv_base_layer *layer = &t->description->layers[i];
    const struct srv_session_file *listed = t->listed;
    if (layer->first > layer->length || layer->rows > layer->length)
        return ATTN_MALFORMED;
    if (attn_model_layer(t->model->attn, i) == NULL)
        return layer->length == 0 ? ATTN_OK : ATTN_MALFORMED;
    enum attn_status status = attn_cache_begin_at(t->cache, i, layer->first, &cause);
    for (size_t k = 0; k < listed->num_shares && status == ATTN_OK; k++)
        if (listed->shares[k].layer == i)
            status = share_layer(t, &listed->shares[k], layer->length);
    if (status == ATTN_OK)
        status = attn_cache_lengthen(t->cache, i, layer->length, NULL, 0, &cause);
    t->last_steps[i] = (struct srv_last_step){.position = layer->length - layer->rows,
                                              .rows = layer->rows,
                                              .digest = {layer->digest[0], layer->digest[1]}};
    return status;
}

static enum attn_status make_cache(struct described_restore *t)
{
    struct attn_error cause;
    const size_t layers = t->model->info.num_layers;
    t->last_steps = calloc(layers, sizeof *t->last_steps);
    enum attn_status status = t->last_steps != NULL ? ATTN_OK : ATTN_NO_MEMORY;
    if (status == ATTN_OK)
        status = attn_cache_new(&t->cache, t->model->pool, t->model->attn,
                                (size_t)t->description->create.max_length, &cause);
    for (size_t i = 0; i < layers && status == ATTN_OK; i++)
        status = make_layer(t, i);
    return status;
}

/* The session from its cache, which becomes the session's or is freed. */
static enum srv_restore_status make_session(struct srv_restored_session *entry,
                                            struct srv_restore *restore,
                                            const struct described_restore *t)
{
    const struct srv_record_create *create = &t->description->create;
    struct srv_error error;
    const struct srv_session_options options = {
        .id = create->id,
        .ttl_s = (size_t)create->ttl_s,
        .idempotency_key = create->key,
        .key_digest = {create->key_digest[0], create->key_digest[1]},
        .owner = create->owner,
        .group = create->group,
        .shared = create->shared != 0,
        .epoch = entry->epoch,
        .revision = t->description->revision,
        .store = restore->store + 1,
        .cache = t->cache,
        .last_steps = t->last_steps,
    };
    const struct srv_extent file = {.generation = t->listed->generation, .at = entry->epoch};
    entry->newest = srv_extents_add(restore->extents, &file);
    if (srv_session_new(&entry->session, restore->sessions, t->model, &options, &error) != SRV_OK ||
        entry->newest == NULL)
        return SRV_RESTORE_FULL;
    entry->session->used_ns = create->used_ns;
    entry->session->next_record = t->description->next_record;
    entry->session->record_state = SRV_RECORDED;
    entry->session->changed = false;
    entry->session->file_generation = t->listed->generation;
    entry->session->shares_blocks = t->listed->num_shares > 0;
    return SRV_RESTORE_OK;
}

enum srv_restore_status srv_restore_described(struct srv_restore *restore,
                                              const struct srv_session_file *listed,
                                              const struct srv_base_session *description)
{
    struct described_restore t = {.restore = restore, .listed = listed, .description = description};
    struct srv_restored_session *entry = srv_restore_entry(restore, listed->epoch);
    enum srv_restore_status result = SRV_RESTORE_DAMAGED;
    if (entry == NULL)
        return SRV_RESTORE_FULL;
    if (entry->session != NULL || description->next_record == 0 ||
        !srv_restore_is_possible(&description->create) ||
        !srv_revision_possible(&description->revision))
        return result;
    result = srv_restore_model(&t.model, restore, description->create.model,
                               description->create.fingerprint);
    if (result != SRV_RESTORE_OK || t.model == NULL)
        return SRV_RESTORE_NO_MODEL;
    result = SRV_RESTORE_DAMAGED;
    if (description->num_layers == t.model->info.num_layers && make_cache(&t) == ATTN_OK)
        result = make_session(entry, restore, &t);
    else
        attn_cache_free(t.cache);
    free(t.last_steps);
    srv_model_put(t.model); /* the session holds it */
    return result;
}
