/* saved.h: restoring sessions from the bytes of a state directory's files, without a directory. */
#ifndef TESTS_FUZZ_SAVED_H
#define TESTS_FUZZ_SAVED_H

#include "bytes_source.h"
#include "config/config.h"
#include "fuzz.h"
#include "session/models.h"
#include "session/session.h"
#include "store/restore.h"
#include "wire/call.h"

#define SAVED_MODEL                                                                            \
    "{\"hidden_size\":4,\"num_attention_heads\":1,\"num_hidden_layers\":2,\"is_causal\":true," \
    "\"seed\":1}"
#define SAVED_SESSIONS 8 /* at most: fewer than a journal can make */
#define SAVED_TOKENS 4096

/* The models, pool and limits that sessions are restored with, made once. */
static struct saved {
    struct srv_models models;
    struct attn_cache_pool *pool;
    struct srv_limits limits;
    const char *fingerprint;
} saved;

static inline void saved_set_up(void)
{
    static struct srv_model_entry entry = {.name = "tiny", .random = SAVED_MODEL};
    static struct srv_config config = {.models = &entry, .num_models = 1};
    char message[256];
    if (saved.pool != NULL)
        return;
    config.limits = saved.limits = (struct srv_limits){
        .max_sessions = SAVED_SESSIONS, .max_session_length = SAVED_TOKENS, .session_ttl_s = 3600};
    FUZZ_EXPECT(attn_cache_pool_new(&saved.pool, (size_t)64 << 10) == ATTN_OK);
    FUZZ_EXPECT(srv_models_open(&saved.models, &config, message, sizeof message));
    FUZZ_EXPECT(srv_models_load(&saved.models, saved.pool, message, sizeof message));
    saved.fingerprint = saved.models.items[0].info.fingerprint;
}

/* Opens an empty table of sessions, and a restore into it. */
static inline void saved_begin(struct srv_restore *restore)
{
    struct srv_sessions *sessions;
    saved_set_up();
    FUZZ_EXPECT(srv_sessions_open(&sessions, &saved.limits, "fuzz"));
    srv_restore_init(restore, sessions, SAVED_SESSIONS, &saved.models);
}

static inline void saved_check_session(const struct srv_session *session)
{
    FUZZ_EXPECT(srv_id_valid(session->id) && session->model == &saved.models.items[0]);
    FUZZ_EXPECT(session->epoch != 0 && session->ttl_ns > 0);
    FUZZ_EXPECT(session->revision != 0 && session->revision <= SRV_REVISION_MAX &&
                session->revision_before <= SRV_REVISION_MAX);
    for (size_t i = 0; i < 2; i++) {
        size_t length = attn_cache_length(session->cache, i);
        const struct srv_last_step *last = &session->last_steps[i];
        FUZZ_EXPECT(length <= attn_cache_max_length(session->cache));
        FUZZ_EXPECT(last->rows == 0 || last->position <= SIZE_MAX - last->rows);
    }
}

/* Ends the restore, after publishing its whole sessions if asked to.  Checks the sessions in the
 * table and frees all; nothing of the pool may then be in use. */
static inline void saved_end(struct srv_restore *restore, bool list)
{
    struct srv_restore_result result;
    struct srv_session *page[SAVED_SESSIONS + 1];
    struct srv_sessions *sessions = restore->sessions;
    if (list)
        (void)srv_restore_publish(&result, restore);
    size_t count = srv_sessions_page(page, SAVED_SESSIONS + 1, sessions, "", "");
    FUZZ_EXPECT(count <= SAVED_SESSIONS);
    for (size_t i = 0; i < count; i++) {
        saved_check_session(page[i]);
        srv_session_put(page[i]);
    }
    srv_restore_fini(restore);
    srv_sessions_close(sessions);
    FUZZ_EXPECT(attn_cache_pool_used(saved.pool) == 0);
}

#endif
