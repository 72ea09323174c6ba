/* session.c: the table of sessions, hashed by id, under one mutex.
 *
 * An id is its owner's, the API key that made the session: sessions of several owners may have one
 * id, and lie in one list.  A caller finds the session of an id that is nearest to it: its own, one
 * of its group, one that is shared, in this order.
 *
 * The mutex guards the buckets and their lists and nothing else: caches are allocated before it is
 * locked and freed after it is unlocked, and a session outside the table lives as long as somebody
 * holds a reference.  Clients choose ids, so the hash is a polynomial at a random point, and nobody
 * can choose ids that collide.  Sessions with an idempotency key are in a second list, hashed by
 * that key in the same way. */
#include "session/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "attn.h"
#include "attn_state.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/id.h"
#include "session/models.h"
#include "session/weightless.h"

/* ---- Making and ending the table ------------------------------------------------------------- */

bool srv_sessions_open(struct srv_sessions **out, const struct srv_limits *limits,
                       const char *instance)
{
    size_t buckets = 64;
    while (buckets < limits->max_sessions)
        buckets *= 2;
    uint64_t random[2];
    struct srv_sessions *sessions =
        calloc(1, sizeof *sessions + 2 * buckets * sizeof sessions->buckets[0]);
    if (sessions == NULL || getrandom(random, sizeof random, 0) != sizeof random ||
        !srv_identity_make(&sessions->identities[0], instance)) {
        free(sessions);
        return false;
    }
    pthread_mutex_init(&sessions->lock, NULL);
    for (unsigned store = 0; store <= SRV_MAX_ADOPTED; store++)
        srv_sessions_set_clock(sessions, store, srv_wall_ns());
    sessions->num_stores = 1;
    sessions->max_sessions = limits->max_sessions;
    sessions->default_ttl_s = limits->session_ttl_s;
    sessions->num_buckets = buckets;
    sessions->by_idempotency_key = sessions->buckets + buckets;
    sessions->hash_point = random[0];
    /* 40 random bits that two runs will not share, then a counter: 52 bits, exact in a double. */
    sessions->next_epoch = (random[1] >> 24 << 12) + 1;
    *out = sessions;
    return true;
}

void srv_sessions_close(struct srv_sessions *sessions)
{
    if (sessions == NULL)
        return;
    for (size_t i = 0; i < sessions->num_buckets; i++) {
        while (sessions->buckets[i] != NULL) {
            struct srv_session *session = sessions->buckets[i];
            sessions->buckets[i] = session->next;
            srv_session_put(session);
        }
    }
    pthread_mutex_destroy(&sessions->lock);
    free(sessions);
}

/* ---- The lists of the buckets, under the lock ------------------------------------------------ */

static size_t bucket_of(const struct srv_sessions *sessions, const char *text)
{
    return srv_hash_text(sessions->hash_point, text) & (sessions->num_buckets - 1);
}

/* The pointer to that session in the list of its bucket; with NULL, the NULL that ends the list of
 * the id's bucket. */
static struct srv_session **find_link(struct srv_sessions *sessions, const char *id,
                                      const struct srv_session *session)
{
    struct srv_session **link = &sessions->buckets[bucket_of(sessions, id)];
    while (*link != NULL && *link != session)
        link = &(*link)->next;
    return link;
}

/* How near a session is to a caller.  Without keys every session can be seen. */
enum nearness { HIDDEN, SHARED, OF_GROUP, OWN };

static enum nearness nearness(const struct srv_session *session, const struct srv_key *caller)
{
    bool keyless = caller == NULL || caller->scopes == 0;
    if (strcmp(session->owner, keyless ? "" : caller->name) == 0)
        return OWN;
    if (!keyless && session->group[0] != '\0' && strcmp(session->group, caller->group) == 0)
        return OF_GROUP;
    return keyless || session->shared ? SHARED : HIDDEN;
}

/* The nearest session of that id, or NULL.  Of two that are equally near it is the one with the
 * smaller epoch, whatever happened in between. */
static struct srv_session *find(const struct srv_sessions *sessions, const struct srv_key *caller,
                                const char *id)
{
    struct srv_session *found = NULL, *s = sessions->buckets[bucket_of(sessions, id)];
    enum nearness nearest = HIDDEN;
    for (; s != NULL; s = s->next) {
        enum nearness near = strcmp(s->id, id) == 0 ? nearness(s, caller) : HIDDEN;
        if (near > nearest || (near == nearest && found != NULL && s->epoch < found->epoch)) {
            found = near > HIDDEN ? s : found;
            nearest = near;
        }
    }
    return found;
}

/* The pointer to the session of that idempotency key, or the NULL that ends the list.  Of two
 * sessions with one key, which different stores have kept, the first that was linked is listed. */
static struct srv_session **find_key_link(struct srv_sessions *sessions, const char *key)
{
    struct srv_session **link = &sessions->by_idempotency_key[bucket_of(sessions, key)];
    while (*link != NULL && strcmp((*link)->idempotency_key, key) != 0)
        link = &(*link)->next_by_idempotency_key;
    return link;
}

static void link_session(struct srv_sessions *sessions, struct srv_session *session)
{
    *find_link(sessions, session->id, NULL) = session;
    session->next = NULL;
    struct srv_session **key = find_key_link(sessions, session->idempotency_key);
    if (session->idempotency_key[0] != '\0' && *key == NULL)
        *key = session;
    sessions->count++;
    ++*srv_sessions_counter(sessions, session->model->index);
}

static void unlink_session(struct srv_sessions *sessions, struct srv_session **link)
{
    struct srv_session *session = *link;
    *link = session->next;
    struct srv_session **key = find_key_link(sessions, session->idempotency_key);
    if (session->idempotency_key[0] != '\0' && *key == session)
        *key = session->next_by_idempotency_key;
    srv_account_return(session->account, SRV_QUOTA_SESSIONS, 1);
    sessions->count--;
    --*srv_sessions_counter(sessions, session->model->index);
}

/* ---- One session ----------------------------------------------------------------------------- */

static void session_free(struct srv_session *session)
{
    srv_account_return(session->account, SRV_QUOTA_CACHE, session->charged_bytes);
    attn_cache_free(session->cache);
    if (session->model != NULL)
        srv_model_drop(session->model, session->model->info.num_layers);
    free(session->last_steps);
    free(session);
}

void srv_session_put(struct srv_session *session)
{
    if (session != NULL && atomic_fetch_sub(&session->references, 1) == 1)
        session_free(session);
}

static struct srv_account *account_of(const struct srv_sessions *sessions, const char *owner)
{
    return sessions->accounts != NULL && owner != NULL ? srv_accounts_get(sessions->accounts, owner)
                                                       : NULL;
}

/* Gives the session its cache and the memory of its last steps. */
static enum srv_error_code allocate_state(struct srv_session *session,
                                          const struct srv_session_options *options,
                                          struct srv_error *error)
{
    const struct srv_model *model = session->model;
    struct attn_error cause = {0};
    size_t max_length = options->max_length > 0 ? options->max_length : model->max_length;
    size_t layers = model->info.num_layers;
    if (session->cache != NULL && options->charged_bytes == 0 &&
        srv_session_charge(session, attn_cache_bytes(session->cache), error) != SRV_OK)
        return error->code;
    if (session->cache == NULL &&
        attn_cache_new(&session->cache, model->pool, model->attn, max_length, &cause) != ATTN_OK)
        return srv_fail_attn(error, &cause);
    session->last_steps = calloc(layers, sizeof *session->last_steps);
    if (session->last_steps == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session");
    if (options->last_steps != NULL)
        memcpy(session->last_steps, options->last_steps, layers * sizeof *session->last_steps);
    for (size_t i = 0; i < layers; i++)
        if (session->last_steps[i].rows > 0)
            attn_cache_note_step(session->cache, i, session->last_steps[i].position);
    return SRV_OK;
}

static void copy_id(char out[SRV_ID_MAX + 1], const char *id)
{
    snprintf(out, SRV_ID_MAX + 1, "%s", id != NULL ? id : "");
}

/* Sets all that needs neither memory nor random numbers. */
static void take_options(struct srv_session *session, struct srv_sessions *sessions,
                         const struct srv_session_options *options)
{
    size_t most_s = srv_account_limit(session->account, SRV_QUOTA_TTL);
    size_t ttl_s = most_s < sessions->default_ttl_s ? most_s : sessions->default_ttl_s;
    session->ttl_ns = (options->ttl_s > 0 ? options->ttl_s : ttl_s) * SRV_S_NS;
    session->cache = options->cache;
    session->charged_bytes = options->charged_bytes;
    session->store = srv_session_choose_store(sessions, options);
    session->references = 1;
    session->used_ns = srv_now_ns();
    session->changed = true;
    session->epoch =
        options->epoch != 0 ? options->epoch : atomic_fetch_add(&sessions->next_epoch, 1);
    copy_id(session->idempotency_key, options->idempotency_key);
    memcpy(session->key_digest, options->key_digest, sizeof session->key_digest);
    copy_id(session->owner, options->owner);
    copy_id(session->group, options->group);
    session->shared = options->shared;
}

/* Sets the rest; after an error the caller frees the session with what it has. */
static enum srv_error_code make(struct srv_session *session, const struct srv_sessions *sessions,
                                const struct srv_model *model,
                                const struct srv_session_options *options, struct srv_error *error)
{
    if (!srv_model_hold(model, model->info.num_layers))
        return srv_fail(error, SRV_E_SESSION_LIMIT, "num_hidden_layers",
                        "the layers of all sessions without weights pass %d times max_sessions",
                        SRV_WEIGHTLESS_MEAN_LAYERS);
    session->model = model;
    if (allocate_state(session, options, error) != SRV_OK)
        return error->code;
    copy_id(session->id, options->id);
    if (options->id == NULL &&
        !srv_session_make_id(session->id, &sessions->identities[session->store]))
        return srv_fail(error, SRV_E_INTERNAL, NULL, "no random numbers for an id");
    struct srv_revision first = options->revision;
    if (first.number == 0 && !srv_revision_draw(&first, NULL, 0))
        return srv_fail(error, SRV_E_INTERNAL, NULL, "no random numbers for a revision");
    srv_session_set_revision(session, &first);
    return SRV_OK;
}

enum srv_error_code srv_session_new(struct srv_session **out, struct srv_sessions *sessions,
                                    const struct srv_model *model,
                                    const struct srv_session_options *options,
                                    struct srv_error *error)
{
    struct srv_account *account = account_of(sessions, options->owner);
    struct srv_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        attn_cache_free(options->cache);
        srv_account_return(account, SRV_QUOTA_CACHE, options->charged_bytes);
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session");
    }
    session->account = account;
    take_options(session, sessions, options);
    enum srv_error_code code = make(session, sessions, model, options, error);
    if (code == SRV_OK)
        *out = session;
    else
        session_free(session);
    return code;
}

bool srv_session_is_own(const struct srv_session *session,
                        const struct srv_session_options *options)
{
    const char *owner = options->owner != NULL ? options->owner : "";
    const char *group = options->group != NULL ? options->group : "";
    return strcmp(session->owner, owner) == 0 ||
           (group[0] != '\0' && strcmp(session->group, group) == 0);
}

/* ---- The table's calls ----------------------------------------------------------------------- */

/* Under the lock: whether the owner has a session of that id, or its group has one.  Sharing a
 * session does not reserve its id for other owners. */
static bool exists(const struct srv_sessions *sessions, const struct srv_session_options *options,
                   bool any_owner)
{
    struct srv_session *s =
        options->id != NULL ? sessions->buckets[bucket_of(sessions, options->id)] : NULL;
    for (; s != NULL; s = s->next)
        if (strcmp(s->id, options->id) == 0 && (any_owner || srv_session_is_own(s, options)))
            return true;
    return false;
}

/* Under the lock: whether a session with these options may be added. */
static enum srv_error_code check_may_insert(struct srv_sessions *sessions,
                                            const struct srv_session_options *options,
                                            bool any_owner, struct srv_error *error)
{
    const char *key = options->idempotency_key;
    const struct srv_session *with_key =
        key != NULL && key[0] != '\0' ? *find_key_link(sessions, key) : NULL;
    if (with_key != NULL && (options->store == 0 || with_key->store == options->store - 1))
        return srv_fail(error, SRV_E_IDEMPOTENCY, "Idempotency-Key",
                        "the key was used for another session");
    if (exists(sessions, options, any_owner))
        return srv_fail(error, SRV_E_SESSION_EXISTS, "session_id", "the session exists");
    if (sessions->count >= sessions->max_sessions)
        return srv_fail(error, SRV_E_SESSION_LIMIT, NULL, "%zu sessions are live, the limit is %zu",
                        (size_t)sessions->count, sessions->max_sessions);
    return SRV_OK;
}

static bool is_without_key(const struct srv_session_options *options)
{
    return options->owner == NULL || options->owner[0] == '\0';
}

bool srv_session_exists(struct srv_sessions *sessions, const struct srv_session_options *options)
{
    pthread_mutex_lock(&sessions->lock);
    bool found = exists(sessions, options, is_without_key(options));
    pthread_mutex_unlock(&sessions->lock);
    return found;
}

enum srv_error_code srv_session_insert(struct srv_sessions *sessions, struct srv_session *session,
                                       struct srv_error *error)
{
    const struct srv_session_options options = {.id = session->id,
                                                .idempotency_key = session->idempotency_key,
                                                .owner = session->owner,
                                                .group = session->group,
                                                .store = session->store + 1};
    pthread_mutex_lock(&sessions->lock);
    enum srv_error_code code = check_may_insert(sessions, &options, false, error);
    if (code == SRV_OK && !srv_account_take(session->account, SRV_QUOTA_SESSIONS, 1, 0))
        code = srv_account_refuse(session->account, SRV_QUOTA_SESSIONS, error);
    if (code == SRV_OK) {
        link_session(sessions, session);
        session->references++;
    }
    pthread_mutex_unlock(&sessions->lock);
    return code;
}

/* Checked before a cache is allocated, so that a refusal is cheap. */
static enum srv_error_code check_options(struct srv_sessions *sessions,
                                         const struct srv_model *model,
                                         const struct srv_session_options *options,
                                         struct srv_error *error)
{
    struct srv_account *account = account_of(sessions, options->owner);
    enum srv_error_code code = srv_session_check_options(options, model, account, error);
    if (code != SRV_OK)
        return code;
    pthread_mutex_lock(&sessions->lock);
    code = check_may_insert(sessions, options, is_without_key(options), error);
    pthread_mutex_unlock(&sessions->lock);
    if (code == SRV_OK && !srv_account_has(account, SRV_QUOTA_SESSIONS, 1))
        code = srv_account_refuse(account, SRV_QUOTA_SESSIONS, error);
    if (code == SRV_OK)
        code = srv_session_check_instance(sessions, options, error);
    return code == SRV_OK ? srv_session_check_lost(sessions, options->id, error) : code;
}

enum srv_error_code srv_session_prepare(struct srv_session **out, struct srv_sessions *sessions,
                                        const struct srv_model *model,
                                        const struct srv_session_options *options,
                                        struct srv_error *error)
{
    enum srv_error_code code = check_options(sessions, model, options, error);
    if (code == SRV_OK)
        return srv_session_new(out, sessions, model, options, error);
    attn_cache_free(options->cache);
    return code;
}

enum srv_error_code srv_session_create(struct srv_session **out, struct srv_sessions *sessions,
                                       const struct srv_model *model,
                                       const struct srv_session_options *options,
                                       struct srv_error *error)
{
    struct srv_session *session = NULL;
    enum srv_error_code code = srv_session_prepare(&session, sessions, model, options, error);
    if (code == SRV_OK)
        code = srv_session_insert(sessions, session, error); /* another may have been faster */
    if (code == SRV_OK)
        *out = session;
    else
        srv_session_put(session);
    return code;
}

enum srv_error_code srv_session_find_by_idempotency_key(struct srv_session **out,
                                                        struct srv_sessions *sessions,
                                                        const struct srv_session_options *options,
                                                        struct srv_error *error)
{
    *out = NULL;
    if (options->idempotency_key == NULL || options->idempotency_key[0] == '\0')
        return SRV_OK;
    enum srv_error_code code = SRV_OK;
    pthread_mutex_lock(&sessions->lock);
    struct srv_session *session = *find_key_link(sessions, options->idempotency_key);
    if (session != NULL &&
        memcmp(session->key_digest, options->key_digest, sizeof session->key_digest) != 0)
        code = srv_fail(error, SRV_E_IDEMPOTENCY, "Idempotency-Key",
                        "the key was used for another request");
    else if (session != NULL) {
        session->references++;
        session->used_ns = srv_now_ns();
        *out = session;
    }
    pthread_mutex_unlock(&sessions->lock);
    return code;
}

static struct srv_session *look_up(struct srv_sessions *sessions, const struct srv_key *caller,
                                   const char *id, bool use)
{
    pthread_mutex_lock(&sessions->lock);
    struct srv_session *session = find(sessions, caller, id);
    if (session != NULL)
        session->references++;
    if (session != NULL && use)
        session->used_ns = srv_now_ns(); /* under the lock: it must not expire in between */
    pthread_mutex_unlock(&sessions->lock);
    return session;
}

struct srv_session *srv_session_peek(struct srv_sessions *sessions, const struct srv_key *caller,
                                     const char *id)
{
    return look_up(sessions, caller, id, false);
}

struct srv_session *srv_session_get(struct srv_sessions *sessions, const struct srv_key *caller,
                                    const char *id)
{
    return look_up(sessions, caller, id, true);
}

bool srv_session_remove(struct srv_sessions *sessions, const struct srv_session *session)
{
    pthread_mutex_lock(&sessions->lock);
    struct srv_session **link = find_link(sessions, session->id, session), *found = *link;
    if (found != NULL)
        unlink_session(sessions, link);
    pthread_mutex_unlock(&sessions->lock);
    srv_session_put(found);
    return found != NULL;
}

static bool expired(const struct srv_session *session, uint64_t now_ns)
{
    const uint64_t used = session->used_ns, idle = now_ns > used ? now_ns - used : 0;
    return idle > 0 && idle >= session->ttl_ns && session->waiting == 0 && session->parked == 0;
}

#define EXPIRY_BUCKETS 1024 /* that one hold of the lock looks at: a fraction of a millisecond */

/* Unlocks for long enough that a waiting thread gets the lock. */
static void let_others_in(struct srv_sessions *sessions)
{
    const struct timespec moment = {.tv_nsec = 1};
    pthread_mutex_unlock(&sessions->lock);
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&sessions->lock);
}

struct srv_session *srv_sessions_expire(struct srv_sessions *sessions, uint64_t now_ns)
{
    struct srv_session *dropped = NULL;
    pthread_mutex_lock(&sessions->lock);
    for (size_t i = 0; i < sessions->num_buckets && sessions->count > 0; i++) {
        if (i > 0 && i % EXPIRY_BUCKETS == 0)
            let_others_in(sessions);
        struct srv_session **link = &sessions->buckets[i];
        while (*link != NULL) {
            struct srv_session *session = *link;
            if (!expired(session, now_ns)) {
                link = &session->next;
                continue;
            }
            unlink_session(sessions, link);
            session->next = dropped;
            dropped = session;
        }
    }
    pthread_mutex_unlock(&sessions->lock);
    return dropped;
}
