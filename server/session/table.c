/* table.c: the table of sessions, hashed by id, under one mutex.
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

#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/digest.h"
#include "session/models.h"

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

void srv_sessions_set_accounts(struct srv_sessions *sessions, struct srv_accounts *accounts)
{
    pthread_mutex_lock(&sessions->lock);
    sessions->accounts = accounts;
    for (size_t i = 0; i < sessions->num_buckets; i++) {
        for (struct srv_session *s = sessions->buckets[i]; s != NULL; s = s->next) {
            s->account = srv_accounts_get(accounts, s->owner);
            s->charged_bytes = attn_cache_bytes(s->cache);
            srv_account_charge_anyway(s->account, SRV_QUOTA_SESSIONS, 1);
            srv_account_charge_anyway(s->account, SRV_QUOTA_CACHE, s->charged_bytes);
        }
    }
    pthread_mutex_unlock(&sessions->lock);
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

/* The pointer to the session of that idempotency key, or the NULL that ends the list, as for "".
 * Of two sessions with one key, which different stores have kept, the first that was linked is
 * listed. */
static struct srv_session **find_key_link(struct srv_sessions *sessions, const char *key)
{
    struct srv_session **link = &sessions->by_idempotency_key[bucket_of(sessions, key)];
    while (*link != NULL && strcmp((*link)->idempotency_key, key) != 0)
        link = &(*link)->next_by_idempotency_key;
    return link;
}

static void unlink_session(struct srv_sessions *sessions, struct srv_session **link)
{
    struct srv_session *session = *link;
    *link = session->next;
    struct srv_session **key = find_key_link(sessions, session->idempotency_key);
    if (*key == session)
        *key = session->next_by_idempotency_key;
    srv_account_uncharge(session->account, SRV_QUOTA_SESSIONS, 1);
    sessions->count--;
    --*srv_sessions_counter(sessions, session->model->index);
}

/* ---- Adding a session ------------------------------------------------------------------------ */

/* Under the lock: whether the owner has a session of that id, or its group has one.  Sharing a
 * session does not reserve its id for other owners. */
static bool exists(const struct srv_sessions *sessions, const struct srv_session_options *options,
                   bool any_owner)
{
    if (options->id == NULL)
        return false;
    struct srv_session *s = sessions->buckets[bucket_of(sessions, options->id)];
    while (s != NULL &&
           (strcmp(s->id, options->id) != 0 || (!any_owner && !srv_session_is_own(s, options))))
        s = s->next;
    return s != NULL;
}

/* Under the lock: whether a session with these options may be added. */
static enum srv_error_code check_may_insert(struct srv_sessions *sessions,
                                            const struct srv_session_options *options,
                                            bool any_owner, struct srv_error *error)
{
    const struct srv_session *with_key =
        *find_key_link(sessions, srv_text_of(options->idempotency_key));
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
    return srv_text_of(options->owner)[0] == '\0';
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
    if (code == SRV_OK && !srv_account_charge(session->account, SRV_QUOTA_SESSIONS, 1))
        code = srv_account_refuse(session->account, SRV_QUOTA_SESSIONS, error);
    if (code == SRV_OK) {
        *find_link(sessions, session->id, NULL) = session;
        session->next = NULL;
        struct srv_session **key = find_key_link(sessions, session->idempotency_key);
        if (session->idempotency_key[0] != '\0' && *key == NULL)
            *key = session;
        sessions->count++;
        ++*srv_sessions_counter(sessions, session->model->index);
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
    struct srv_account *account = srv_sessions_account(sessions, options->owner);
    if (options->id != NULL && !srv_id_valid(options->id))
        return srv_fail(error, SRV_E_INVALID_VALUE, "session_id",
                        "session_id must be " SRV_ID_RULE);
    if (options->max_length > model->max_length)
        return srv_fail(error, SRV_E_INVALID_VALUE, "max_length",
                        "max_length is %zu, the model's limit is %zu", options->max_length,
                        model->max_length);
    if (options->ttl_s > SRV_MAX_TTL_S)
        return srv_fail(error, SRV_E_INVALID_VALUE, "ttl_s", "ttl_s is %zu, the limit is %d",
                        options->ttl_s, SRV_MAX_TTL_S);
    if (options->ttl_s > srv_account_limit(account, SRV_QUOTA_TTL))
        return srv_account_refuse(account, SRV_QUOTA_TTL, error);
    pthread_mutex_lock(&sessions->lock);
    enum srv_error_code code = check_may_insert(sessions, options, is_without_key(options), error);
    pthread_mutex_unlock(&sessions->lock);
    if (code != SRV_OK)
        return code;
    if (!srv_account_has(account, SRV_QUOTA_SESSIONS, 1))
        return srv_account_refuse(account, SRV_QUOTA_SESSIONS, error);
    if (srv_session_check_instance(sessions, options, error) != SRV_OK)
        return error->code;
    return srv_session_check_lost(sessions, options->id, error);
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

/* ---- Finding and removing one ---------------------------------------------------------------- */

enum srv_error_code srv_session_find_by_idempotency_key(struct srv_session **out,
                                                        struct srv_sessions *sessions,
                                                        const struct srv_session_options *options,
                                                        struct srv_error *error)
{
    *out = NULL;
    if (srv_text_of(options->idempotency_key)[0] == '\0')
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

struct srv_session *srv_session_peek_owned(struct srv_sessions *sessions, const char *owner,
                                           const char *id)
{
    struct srv_key as_owner = {.scopes = SRV_SCOPE_INFER};
    snprintf(as_owner.name, sizeof as_owner.name, "%s", owner);
    struct srv_session *session = srv_session_peek(sessions, &as_owner, id);
    if (session == NULL || strcmp(session->owner, owner) == 0)
        return session;
    srv_session_put(session);
    return NULL;
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
            const uint64_t used = session->used_ns, idle = now_ns > used ? now_ns - used : 0;
            if (idle > 0 && idle >= session->ttl_ns && session->waiting == 0 &&
                session->parked == 0) {
                unlink_session(sessions, link);
                session->next = dropped;
                dropped = session;
            } else {
                link = &session->next;
            }
        }
    }
    pthread_mutex_unlock(&sessions->lock);
    return dropped;
}

/* ---- Lists of sessions ----------------------------------------------------------------------- */

bool srv_sessions_all(struct srv_session ***out, size_t *count, struct srv_sessions *sessions)
{
    size_t found = 0;
    pthread_mutex_lock(&sessions->lock);
    struct srv_session **list = malloc((sessions->count + 1) * sizeof(struct srv_session *));
    for (size_t i = 0; list != NULL && i < sessions->num_buckets; i++)
        for (struct srv_session *s = sessions->buckets[i]; s != NULL; s = s->next) {
            s->references++;
            list[found++] = s;
        }
    pthread_mutex_unlock(&sessions->lock);
    *out = list;
    *count = found;
    return list != NULL;
}

size_t srv_sessions_count(const struct srv_sessions *sessions) { return sessions->count; }

size_t srv_sessions_count_of(struct srv_sessions *sessions, size_t index)
{
    return atomic_load(srv_sessions_counter(sessions, index));
}

/* The order of the list: by id, and those of one id by owner. */
static bool is_after(const struct srv_session *session, const char *id, const char *owner)
{
    int order = strcmp(session->id, id);
    return order > 0 || (order == 0 && owner != NULL && strcmp(session->owner, owner) > 0);
}

/* Puts a session in its place among the first `size` ones so far, out[0..count), or leaves it out;
 * returns how many there are then. */
static size_t keep_first(struct srv_session *out[], size_t count, size_t size,
                         struct srv_session *session)
{
    size_t index = 0, end = count;
    while (index < end) {
        size_t middle = (index + end) / 2;
        if (is_after(session, out[middle]->id, out[middle]->owner))
            index = middle + 1;
        else
            end = middle;
    }
    if (index == size)
        return count;
    count += count < size;
    memmove(out + index + 1, out + index, (count - index - 1) * sizeof(struct srv_session *));
    out[index] = session;
    return count;
}

size_t srv_sessions_page(struct srv_session *out[], size_t size, struct srv_sessions *sessions,
                         const char *after, const char *owner)
{
    size_t count = 0;
    pthread_mutex_lock(&sessions->lock);
    for (size_t i = 0; i < sessions->num_buckets; i++)
        for (struct srv_session *s = sessions->buckets[i]; s != NULL; s = s->next)
            if (is_after(s, after, owner))
                count = keep_first(out, count, size, s);
    for (size_t i = 0; i < count; i++)
        out[i]->references++;
    pthread_mutex_unlock(&sessions->lock);
    return count;
}

bool srv_session_is_elsewhere(struct srv_sessions *sessions, const struct srv_session *session)
{
    bool found = false;
    pthread_mutex_lock(&sessions->lock);
    const struct srv_session *s = sessions->buckets[bucket_of(sessions, session->id)];
    for (; s != NULL && !found; s = s->next)
        found = strcmp(s->id, session->id) == 0 && s->store != session->store;
    pthread_mutex_unlock(&sessions->lock);
    return found;
}
