/* session.c: the table of sessions, hashed by id, under one mutex.
 *
 * The mutex guards the buckets and their lists and nothing else: caches are allocated before it is
 * locked and freed after it is unlocked, and a session outside the table lives as long as somebody
 * holds a reference.  Clients choose ids, so the hash is a polynomial at a random point, and nobody
 * can choose ids that collide.  Sessions with an idempotency key are in a second list, hashed by
 * that key in the same way. */
#include "session/session.h"

#include "attn_state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "attn.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/id.h"
#include "session/models.h"

#define NS_PER_S UINT64_C(1000000000)

struct srv_sessions {
    pthread_mutex_t lock;
    size_t max_sessions, default_ttl_s;
    atomic_size_t count;
    atomic_uint_fast64_t next_epoch;
    uint64_t clock_offset; /* of the table's clock from the monotonic one */
    uint64_t hash_point;
    char instance[SRV_ID_MAX + 1];
    size_t num_buckets;                      /* a power of two */
    struct srv_session **by_idempotency_key; /* [num_buckets] hashed by key, after `buckets` */
    struct srv_session *buckets[];           /* [num_buckets] hashed by id */
};

/* ---- Making and ending the table ------------------------------------------------------------- */

static uint64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

bool srv_sessions_open(struct srv_sessions **out, const struct srv_limits *limits,
                       const char *instance)
{
    size_t buckets = 64;
    while (buckets < limits->max_sessions)
        buckets *= 2;
    uint64_t random[2];
    struct srv_sessions *sessions =
        calloc(1, sizeof *sessions + 2 * buckets * sizeof sessions->buckets[0]);
    if (sessions == NULL || getrandom(random, sizeof random, 0) != sizeof random) {
        free(sessions);
        return false;
    }
    pthread_mutex_init(&sessions->lock, NULL);
    srv_sessions_set_clock(sessions, wall_ns());
    sessions->max_sessions = limits->max_sessions;
    sessions->default_ttl_s = limits->session_ttl_s;
    sessions->num_buckets = buckets;
    sessions->by_idempotency_key = sessions->buckets + buckets;
    sessions->hash_point = random[0];
    /* 40 random bits that two runs will not share, then a counter: 52 bits, exact in a double. */
    sessions->next_epoch = (random[1] >> 24 << 12) + 1;
    snprintf(sessions->instance, sizeof sessions->instance, "%s", instance);
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

/* The pointer to the session of that id, or the NULL that ends the list of its bucket. */
static struct srv_session **find_link(struct srv_sessions *sessions, const char *id)
{
    struct srv_session **link = &sessions->buckets[bucket_of(sessions, id)];
    while (*link != NULL && strcmp((*link)->id, id) != 0)
        link = &(*link)->next;
    return link;
}

/* The same for an idempotency key. */
static struct srv_session **find_key_link(struct srv_sessions *sessions, const char *key)
{
    struct srv_session **link = &sessions->by_idempotency_key[bucket_of(sessions, key)];
    while (*link != NULL && strcmp((*link)->idempotency_key, key) != 0)
        link = &(*link)->next_by_idempotency_key;
    return link;
}

static void link_session(struct srv_sessions *sessions, struct srv_session *session)
{
    *find_link(sessions, session->id) = session;
    if (session->idempotency_key[0] != '\0')
        *find_key_link(sessions, session->idempotency_key) = session;
    sessions->count++;
}

static void unlink_session(struct srv_sessions *sessions, struct srv_session **link)
{
    struct srv_session *session = *link;
    *link = session->next;
    if (session->idempotency_key[0] != '\0')
        *find_key_link(sessions, session->idempotency_key) = session->next_by_idempotency_key;
    sessions->count--;
}

/* ---- One session ----------------------------------------------------------------------------- */

static void session_free(struct srv_session *session)
{
    attn_cache_free(session->cache);
    free(session->last_steps);
    free(session);
}

uint64_t srv_sessions_clock(const struct srv_sessions *sessions)
{
    return srv_now_ns() + sessions->clock_offset;
}

void srv_sessions_set_clock(struct srv_sessions *sessions, uint64_t now_ns)
{
    sessions->clock_offset = now_ns - srv_now_ns();
}

uint64_t srv_session_used(const struct srv_sessions *sessions, const struct srv_session *session)
{
    uint64_t now = srv_now_ns(), used = session->used_ns;
    return (now > used ? used : now) + sessions->clock_offset;
}

void srv_session_set_used(const struct srv_sessions *sessions, struct srv_session *session,
                          uint64_t used_ns)
{
    uint64_t now = srv_now_ns(), clock = now + sessions->clock_offset;
    uint64_t idle = clock > used_ns ? clock - used_ns : 0;
    session->used_ns = now > idle ? now - idle : 0;
}

void srv_session_put(struct srv_session *session)
{
    if (session != NULL && atomic_fetch_sub(&session->references, 1) == 1)
        session_free(session);
}

/* "<instance>.<26 digits>": 130 random bits in base 32. */
static bool make_id(char out[SRV_ID_MAX + 1], const char *instance)
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    unsigned char random[26];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return false;
    char text[sizeof random + 1];
    for (size_t i = 0; i < sizeof random; i++)
        text[i] = digits[random[i] % 32];
    text[sizeof random] = '\0';
    snprintf(out, SRV_ID_MAX + 1, "%.32s.%s", instance, text);
    return true;
}

static enum srv_error_code check_options(const struct srv_session_options *options,
                                         const struct srv_model *model, struct srv_error *error)
{
    if (options->id != NULL && !srv_id_valid(options->id))
        return srv_fail(error, SRV_E_INVALID_VALUE, "session_id",
                        "session_id must be 1 to %d letters, digits, '.', '_' or '-', the first a "
                        "letter or digit",
                        SRV_ID_MAX);
    if (options->max_length > model->max_length)
        return srv_fail(error, SRV_E_INVALID_VALUE, "max_length",
                        "max_length is %zu, the model's limit is %zu", options->max_length,
                        model->max_length);
    if (options->ttl_s > SRV_MAX_TTL_S)
        return srv_fail(error, SRV_E_INVALID_VALUE, "ttl_s", "ttl_s is %zu, the limit is %d",
                        options->ttl_s, SRV_MAX_TTL_S);
    return SRV_OK;
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
    session->cache = options->cache;
    if (session->cache == NULL &&
        attn_cache_new(&session->cache, model->pool, model->attn, max_length, &cause) != ATTN_OK)
        return srv_fail_attn(error, &cause);
    session->last_steps = calloc(layers, sizeof *session->last_steps);
    if (session->last_steps == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session");
    if (options->last_steps != NULL)
        memcpy(session->last_steps, options->last_steps, layers * sizeof *session->last_steps);
    return SRV_OK;
}

static void copy_id(char out[SRV_ID_MAX + 1], const char *id)
{
    snprintf(out, SRV_ID_MAX + 1, "%s", id != NULL ? id : "");
}

enum srv_error_code srv_session_new(struct srv_session **out, struct srv_sessions *sessions,
                                    const struct srv_model *model,
                                    const struct srv_session_options *options,
                                    struct srv_error *error)
{
    struct srv_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        attn_cache_free(options->cache);
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session");
    }
    size_t ttl_s = options->ttl_s > 0 ? options->ttl_s : sessions->default_ttl_s;
    session->model = model;
    session->ttl_ns = ttl_s * NS_PER_S;
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
    enum srv_error_code code = allocate_state(session, options, error);
    if (code == SRV_OK && options->id != NULL)
        snprintf(session->id, sizeof session->id, "%s", options->id);
    else if (code == SRV_OK && !make_id(session->id, sessions->instance))
        code = srv_fail(error, SRV_E_INTERNAL, NULL, "no random numbers for an id");
    if (code == SRV_OK)
        *out = session;
    else
        session_free(session);
    return code;
}

/* ---- The table's calls ----------------------------------------------------------------------- */

/* Under the lock: whether a session of that id that is created with that key may be added. */
static enum srv_error_code check_may_insert(struct srv_sessions *sessions, const char *id,
                                            const char *key, struct srv_error *error)
{
    if (key != NULL && key[0] != '\0' && *find_key_link(sessions, key) != NULL)
        return srv_fail(error, SRV_E_IDEMPOTENCY, "Idempotency-Key",
                        "the key was used for another session");
    if (id != NULL && *find_link(sessions, id) != NULL)
        return srv_fail(error, SRV_E_SESSION_EXISTS, "session_id", "the session exists");
    if (sessions->count >= sessions->max_sessions)
        return srv_fail(error, SRV_E_SESSION_LIMIT, NULL, "%zu sessions are live, the limit is %zu",
                        (size_t)sessions->count, sessions->max_sessions);
    return SRV_OK;
}

/* Checked before a cache is allocated, so that a refusal is cheap. */
static enum srv_error_code check_before_allocating(struct srv_sessions *sessions,
                                                   const struct srv_session_options *options,
                                                   struct srv_error *error)
{
    pthread_mutex_lock(&sessions->lock);
    enum srv_error_code code =
        check_may_insert(sessions, options->id, options->idempotency_key, error);
    pthread_mutex_unlock(&sessions->lock);
    return code;
}

enum srv_error_code srv_session_insert(struct srv_sessions *sessions, struct srv_session *session,
                                       struct srv_error *error)
{
    pthread_mutex_lock(&sessions->lock);
    enum srv_error_code code =
        check_may_insert(sessions, session->id, session->idempotency_key, error);
    if (code == SRV_OK) {
        link_session(sessions, session);
        session->references++;
    }
    pthread_mutex_unlock(&sessions->lock);
    return code;
}

enum srv_error_code srv_session_create(struct srv_session **out, struct srv_sessions *sessions,
                                       const struct srv_model *model,
                                       const struct srv_session_options *options,
                                       struct srv_error *error)
{
    struct srv_session *session = NULL;
    enum srv_error_code code = check_options(options, model, error);
    if (code == SRV_OK)
        code = check_before_allocating(sessions, options, error);
    if (code != SRV_OK) {
        attn_cache_free(options->cache);
        return code;
    }
    code = srv_session_new(&session, sessions, model, options, error);
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

struct srv_session *srv_session_peek(struct srv_sessions *sessions, const char *id)
{
    pthread_mutex_lock(&sessions->lock);
    struct srv_session *session = *find_link(sessions, id);
    if (session != NULL)
        session->references++;
    pthread_mutex_unlock(&sessions->lock);
    return session;
}

struct srv_session *srv_session_get(struct srv_sessions *sessions, const char *id)
{
    pthread_mutex_lock(&sessions->lock);
    struct srv_session *session = *find_link(sessions, id);
    if (session != NULL) {
        session->references++;
        session->used_ns = srv_now_ns(); /* under the lock: it must not expire in between */
    }
    pthread_mutex_unlock(&sessions->lock);
    return session;
}

void srv_session_truncate(struct srv_session *session, size_t length)
{
    attn_cache_truncate(session->cache, length);
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        struct srv_last_step *last = &session->last_steps[i];
        if (last->position + last->rows > length)
            *last = (struct srv_last_step){0};
    }
}

bool srv_session_remove(struct srv_sessions *sessions, const struct srv_session *session)
{
    pthread_mutex_lock(&sessions->lock);
    struct srv_session **link = find_link(sessions, session->id), *found = *link;
    bool same = found == session;
    if (same)
        unlink_session(sessions, link);
    pthread_mutex_unlock(&sessions->lock);
    if (same)
        srv_session_put(found);
    return same;
}

static bool expired(const struct srv_session *session, uint64_t now_ns)
{
    uint64_t used = session->used_ns;
    return now_ns > used && now_ns - used >= session->ttl_ns && session->waiting == 0;
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

/* ---- Pages ----------------------------------------------------------------------------------- */

/* Restores the heap below `i`, in which each id is at least the ids of its two children. */
static void sift_down(struct srv_session *heap[], size_t size, size_t i)
{
    for (size_t child = 2 * i + 1; child < size; child = 2 * i + 1) {
        if (child + 1 < size && strcmp(heap[child + 1]->id, heap[child]->id) > 0)
            child++;
        if (strcmp(heap[i]->id, heap[child]->id) >= 0)
            return;
        struct srv_session *swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
        i = child;
    }
}

/* Keeps the `size` smallest ids seen so far in out[0..*held): in any order until `out` is full,
 * then as a heap whose root is the largest. */
static void keep_smallest(struct srv_session *out[], size_t size, size_t *held,
                          struct srv_session *session)
{
    if (*held < size) {
        out[(*held)++] = session;
        for (size_t i = *held == size ? size / 2 : 0; i-- > 0;)
            sift_down(out, size, i);
    } else if (strcmp(session->id, out[0]->id) < 0) {
        out[0] = session;
        sift_down(out, size, 0);
    }
}

static int by_id(const void *a, const void *b)
{
    return strcmp((*(struct srv_session *const *)a)->id, (*(struct srv_session *const *)b)->id);
}

size_t srv_sessions_page(struct srv_session *out[], size_t size, struct srv_sessions *sessions,
                         const char *after)
{
    size_t held = 0;
    pthread_mutex_lock(&sessions->lock);
    for (size_t i = 0; i < sessions->num_buckets && size > 0; i++) {
        for (struct srv_session *s = sessions->buckets[i]; s != NULL; s = s->next) {
            if (strcmp(s->id, after) > 0)
                keep_smallest(out, size, &held, s);
        }
    }
    for (size_t i = 0; i < held; i++)
        out[i]->references++;
    pthread_mutex_unlock(&sessions->lock);
    qsort(out, held, sizeof out[0], by_id);
    return held;
}
