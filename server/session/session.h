/* session.h: sessions by id, and what each remembers between requests.
 *
 * A session is a cache with a name.  The table is guarded by one mutex that is never held while
 * computing; a session in use by the scheduler is held by a reference, so DELETE takes it out of
 * the table at once and its memory goes with the last reference. */
#ifndef SRV_SESSION_H
#define SRV_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"
#include "config/bounds.h"

struct srv_model; /* models.h */
struct srv_item;  /* job.h */

/* The last step that was published in one layer: a repeat of it is answered again, not applied. */
struct srv_last_step {
    size_t position, rows; /* rows 0: none yet */
    uint64_t digest[2];    /* of the rows and their position_ids: what was appended */
};

struct srv_session {
    char id[SRV_ID_MAX + 1];
    uint64_t epoch; /* differs for every session ever created, and between runs */
    const struct srv_model *model;
    struct attn_cache *cache;   /* used by the scheduler's thread only */
    struct srv_last_step *last; /* [layers of the checkpoint] likewise */
    uint64_t ttl_ns;
    atomic_uint_fast64_t used_ns; /* last use, monotonic */
    atomic_uint waiting;          /* requests with steps queued for it */
    struct srv_item *newest;      /* the scheduler's: the last of these (job.h) */
    bool pending_creation;        /* the scheduler's: the step that is to start it was not made */
    atomic_uint references;       /* the table's one included */
    char key[SRV_ID_MAX + 1];     /* its maker's Idempotency-Key (http_auth.h), "" for none */
    uint64_t key_digest[2];       /* of the request that came with it */
    /* What the store (store.h) knows of it: under its lock, */
    enum { SRV_UNRECORDED, SRV_RECORDED, SRV_DELETED } record;
    uint64_t chain; /* records of it so far */
    /* and the scheduler's: */
    bool shares_blocks;                     /* with others, maybe: it was forked, or is a fork */
    bool changed;                           /* since the file that holds it was begun */
    uint64_t file_generation;               /* of that file; 0: none */
    struct srv_session *next, *next_by_key; /* in its buckets */
};

struct srv_sessions; /* the table */

/* `instance` begins the ids that the table makes, so that a router can tell whose they are. */
bool srv_sessions_open(struct srv_sessions **out, const struct srv_limits *limits,
                       const char *instance);
void srv_sessions_close(struct srv_sessions *sessions); /* drops the table's references */

struct srv_session_options {
    const char *id;    /* NULL: one is made, unguessable */
    size_t max_length; /* 0: the limit's default */
    size_t ttl_s;      /* 0: the default */
    /* NULL: a new one.  Else it becomes the session's, or is freed where there is an error. */
    struct attn_cache *cache;
    const struct srv_last_step *last; /* [layers of the checkpoint] or NULL: none */
    const char *key;                  /* "" or NULL: none; with it: */
    uint64_t key_digest[2];
    uint64_t epoch; /* 0: a new one; else that of a session that was there before */
};

/* The session in no table yet, with one reference, the caller's; and into the table, which takes a
 * reference of its own.  Errors: as srv_session_create, which is both. */
enum srv_error_code srv_session_new(struct srv_session **out, struct srv_sessions *sessions,
                                    const struct srv_model *model,
                                    const struct srv_session_options *options,
                                    struct srv_error *error);
enum srv_error_code srv_session_insert(struct srv_sessions *sessions, struct srv_session *session,
                                       struct srv_error *error);

/* Creates a session and returns it with a reference for the caller.  Errors: session_exists,
 * session_limit, idempotency_conflict (a session was made with that key), invalid_value,
 * out_of_memory. */
enum srv_error_code srv_session_create(struct srv_session **out, struct srv_sessions *sessions,
                                       const struct srv_model *model,
                                       const struct srv_session_options *options,
                                       struct srv_error *error);

/* The live session that was made with the key of these options, with a reference; NULL where there
 * is none or they have no key.  Error: idempotency_conflict, where another request made it. */
enum srv_error_code srv_session_find_by_key(struct srv_session **out, struct srv_sessions *sessions,
                                            const struct srv_session_options *options,
                                            struct srv_error *error);

/* A reference to the live session of that id; NULL where there is none.  Touches used_ns. */
struct srv_session *srv_session_get(struct srv_sessions *sessions, const char *id);

/* The same without touching it: looking at a session does not keep it alive. */
struct srv_session *srv_session_peek(struct srv_sessions *sessions, const char *id);
void srv_session_put(struct srv_session *session); /* takes NULL */

/* Forgets all but the first `length` tokens of every layer, and the last steps that end beyond. */
void srv_session_truncate(struct srv_session *session, size_t length);

/* Takes this very session out of the table: true where it was still there under its id. */
bool srv_session_remove(struct srv_sessions *sessions, const struct srv_session *session);

/* Takes the sessions whose ttl has passed and for which nothing waits out of the table; returns
 * them with the table's references, as a list linked by `next`. */
struct srv_session *srv_sessions_expire(struct srv_sessions *sessions, uint64_t now_ns);
size_t srv_sessions_count(const struct srv_sessions *sessions);

/* References to all sessions, in no order; *out is the caller's to free.  False where memory is
 * short. */
bool srv_sessions_all(struct srv_session ***out, size_t *count, struct srv_sessions *sessions);

/* Its last use in nanoseconds since 1970, and the inverse: idle time goes on over a restart. */
uint64_t srv_session_used(const struct srv_session *session);
void srv_session_set_used(struct srv_session *session, uint64_t used_ns);

/* References to up to `size` sessions with ids after `after` ("" = from the start), in order of
 * their ids; returns how many. */
size_t srv_sessions_page(struct srv_session *out[], size_t size, struct srv_sessions *sessions,
                         const char *after);

#endif
