/* store_import.c: an imported session's way into the journal.
 *
 * An import may have gigabytes, and no step can be recorded while the journal is written.  So its
 * rows are recorded in pieces, as those of a pending session: what stands between the record that
 * creates it and its commit counts only with the commit, and restoring drops a session that has
 * none.  All records of an import stand in one journal: no snapshot is taken while an import is
 * being recorded, and no import begins while a snapshot is wanted.  An import that is given up is
 * followed by its deletion, so that its rows take no room when the journal is read. */
#include <errno.h>
#include <stdlib.h>

#include "session/models.h"
#include "store/store_internal.h"

#define PIECE ((size_t)256 << 10) /* bytes that are recorded at a time, about */
#define TOKENS 64                 /* of one record, at most */

/* Tokens [first, first + n) of a layer: key [n][G][D], value [n][G][Dv]. */
static void read_tokens(float *key, float *value, const struct srv_session *session, size_t layer,
                        size_t first, size_t n)
{
    const struct attn_cached_sizes s =
        attn_cached_sizes(attn_model_layer(session->model->attn, layer));
    for (size_t i = 0; i < n; i++)
        attn_cache_read_from(key + i * s.heads * s.key, value + i * s.heads * s.value,
                             session->cache, layer, first + i, 1);
}

/* Goes on to a layer that has tokens left, and there to the first that is kept; false where there
 * is none. */
static bool find_layer(struct srv_store_import *import, const struct srv_session *session)
{
    while (import->layer < session->model->info.num_layers &&
           (attn_model_layer(session->model->attn, import->layer) == NULL ||
            import->first >= attn_cache_length(session->cache, import->layer))) {
        import->layer++;
        import->first = 0;
    }
    size_t kept = attn_cache_first(session->cache, import->layer);
    import->first = import->first > kept ? import->first : kept;
    return import->layer < session->model->info.num_layers;
}

/* Adds the next tokens as one record; returns its bytes, 0 where memory is short. */
static size_t add_tokens(struct srv_store *store, struct srv_store_import *import,
                         const struct srv_session *session)
{
    const struct attn_cached_sizes s =
        attn_cached_sizes(attn_model_layer(session->model->attn, import->layer));
    size_t width = s.heads * (s.key + s.value) * sizeof(float);
    size_t left = attn_cache_length(session->cache, import->layer) - import->first;
    size_t n = PIECE / width < TOKENS ? PIECE / width : TOKENS;
    n = n < 1 ? 1 : n;
    n = n < left ? n : left;
    float *key = malloc(n * width);
    if (key == NULL)
        return 0;
    float *value = key + n * s.heads * s.key;
    const struct srv_record_rows rows = {srv_session_used(store->context.sessions, session),
                                         import->first,
                                         n,
                                         import->layer,
                                         {0, 0}};
    read_tokens(key, value, session, import->layer, import->first, n);
    srv_store_add_rows(store, session, import->next_record++, &rows, key, value);
    free(key);
    import->first += n;
    return n * width;
}

enum srv_error_code srv_store_import_piece(bool *more, struct srv_store *store,
                                           struct srv_store_import *import,
                                           const struct srv_session *session,
                                           struct srv_error *error)
{
    *more = false;
    store = srv_store_of(store, session);
    if (store == NULL || !srv_store_journals(store))
        return SRV_OK;
    *more = true;
    if (!import->begun && srv_store_wants_snapshot(store))
        return SRV_OK;
    srv_store_begin(store);
    bool starts = !import->begun;
    if (starts) {
        *import = (struct srv_store_import){.begun = true, .next_record = 1};
        store->imports++;
        srv_store_add_create(store, session, true);
    }
    for (size_t bytes = 0, added = 1; bytes < PIECE && added > 0 && *more; bytes += added) {
        *more = find_layer(import, session);
        added = *more ? add_tokens(store, import, session) : 0;
        if (*more && added == 0)
            store->journal.error = ENOMEM;
    }
    enum srv_error_code code = srv_store_flush(store, error);
    if (starts && code != SRV_OK) { /* nothing was recorded, so nothing is to be deleted */
        import->begun = false;
        store->imports--;
    }
    srv_store_end(store);
    return code;
}

/* Adds the commit that follows the session's rows; false where memory is short. */
static bool add_commit(struct srv_store *store, const struct srv_session *session, uint64_t chain)
{
    size_t layers = session->model->info.num_layers;
    struct srv_record_last *last = calloc(layers, sizeof *last);
    if (last == NULL)
        return false;
    for (size_t i = 0; i < layers; i++)
        last[i] = (struct srv_record_last){
            .position = session->last_steps[i].position,
            .rows = session->last_steps[i].rows,
            .digest = {session->last_steps[i].digest[0], session->last_steps[i].digest[1]}};
    srv_store_add(store, session, SRV_RECORD_COMMIT, chain,
                  &(struct srv_record_part){last, layers * sizeof *last}, 1);
    free(last);
    return true;
}

/* Under `records`. */
static enum srv_error_code commit(struct srv_store *store, const struct srv_store_import *import,
                                  struct srv_session *session, struct srv_error *error)
{
    if (!add_commit(store, session, import->next_record))
        store->journal.error = ENOMEM;
    if (srv_store_flush(store, error) != SRV_OK)
        return error->code;
    session->next_record = import->next_record + 1;
    return SRV_OK;
}

enum srv_error_code srv_store_import_end(struct srv_store *store, struct srv_store_import *import,
                                         struct srv_session *session, struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    store = srv_store_of(store, session);
    if (store == NULL)
        return SRV_OK;
    srv_store_begin(store);
    pthread_mutex_lock(&store->lock);
    bool live = session->record_state == SRV_UNRECORDED; /* not deleted meanwhile */
    pthread_mutex_unlock(&store->lock);
    session->next_record = 1;
    if (live && import->begun)
        code = commit(store, import, session, error);
    pthread_mutex_lock(&store->lock);
    if (session->record_state == SRV_UNRECORDED && code == SRV_OK)
        session->record_state = SRV_RECORDED;
    pthread_mutex_unlock(&store->lock);
    if (code == SRV_OK) {
        store->imports -= import->begun;
        import->begun = false;
    }
    srv_store_count_change(store, 1);
    srv_store_end(store);
    return code;
}

void srv_store_import_abandon(struct srv_store *store, struct srv_store_import *import,
                              const struct srv_session *session)
{
    struct srv_error error;
    if (!import->begun)
        return;
    store = srv_store_of(store, session);
    srv_store_begin(store);
    store->imports--;
    import->begun = false;
    srv_store_add(store, session, SRV_RECORD_DELETE, import->next_record, NULL, 0);
    bool recorded = srv_store_flush(store, &error) == SRV_OK;
    pthread_mutex_lock(&store->lock);
    if (!recorded)
        srv_store_defer_deletion(store, session->epoch);
    pthread_mutex_unlock(&store->lock);
    srv_store_end(store);
}
