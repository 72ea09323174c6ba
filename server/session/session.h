/* session.h: sessions by id, and what each remembers between requests.
 *
 * A session is a cache with a name.  One mutex guards the table and is never held while computing.
 * The engine thread (schedule/) holds a session that it uses by a reference: DELETE takes the
 * session out of the table at once, and its memory is freed with the last reference.
 *
 * With API keys a session is its owner's, the key that made it: the key itself, by its name, the
 * keys of its group, and for a shared session all keys find it; to others there is none of that
 * id.  Two owners may have a session of the same id.
 *
 * Calls are for any thread.  The fields of a session belong to those whom their comments name. */
#ifndef SRV_SESSION_H
#define SRV_SESSION_H

#include "config/keys.h"

struct srv_model; /* models.h */
struct srv_item;  /* schedule/job.h */

/* Which truncations a session has had.
 *
 * The network may hold a request up, its sender send another copy, and the first copy arrive after
 * later requests were answered.  So each truncation gives the session another revision.  A request
 * that names the revision its sender knows is refused once another truncation has come first, and a
 * truncation that is sent again is known by the revision before it.
 *
 * Revisions are random, not counted: none is used twice, also where a crash has lost the truncation
 * that made it. */
#define SRV_REVISION_MAX ((UINT64_C(1) << 52) - 1) /* as an epoch: exact in a double */

struct srv_revision {
    uint64_t number; /* 1 to SRV_REVISION_MAX; 0: not given */
    uint64_t before; /* the one before the last truncation; 0: the session has had none */
    uint64_t length; /* of that truncation */
};

/* The last step that was published in one layer: a retry of it is answered again, not applied. */
struct srv_last_step {
    size_t position, rows; /* rows 0: none yet */
    uint64_t digest[2];    /* of the rows that were appended and their position_ids */
};

struct srv_session {
    char id[SRV_ID_MAX + 1];
    unsigned store; /* that keeps it: 0 the daemon's own, else an adopted one (store/store.h) */
    uint64_t epoch; /* differs for every session ever created, also between runs */
    const struct srv_model *model;
    /* Freed with the last reference.  Its tokens are the engine thread's; any thread may read its
     * lengths. */
    struct attn_cache *cache;
    struct srv_last_step *last_steps; /* [info.num_layers] the engine thread's */
    /* Of its struct srv_revision: any thread may read it; the engine thread's are the next two. */
    atomic_uint_fast64_t revision;
    uint64_t revision_before, truncated_to;
    uint64_t ttl_ns;
    atomic_uint_fast64_t used_ns; /* last use, monotonic */
    atomic_uint waiting;          /* requests that have steps queued for it */
    struct srv_item *last_item;   /* the engine thread's: the last step that is queued for it */
    bool pending_creation;        /* the engine thread's: its first step is still to be made */
    atomic_uint references;       /* with the table's */
    char idempotency_key[SRV_ID_MAX + 1]; /* of the request that created it; "": none */
    uint64_t key_digest[2];               /* of the path and body of that request */
    char owner[SRV_ID_MAX + 1];  /* name of the API key that created it; "": made without keys */
    char group[SRV_ID_MAX + 1];  /* of that key at the time; "": none */
    bool shared;                 /* all keys may use it */
    struct srv_account *account; /* of the owner; NULL: nothing is counted */
    size_t charged_bytes;        /* to the account; the engine thread's */

    /* The store's (store/store.h), under its locks. */
    enum { SRV_UNRECORDED, SRV_RECORDED, SRV_DELETED } record_state;
    uint64_t next_record; /* its number among the session's records */

    /* The store's, used by the engine thread. */
    uint64_t listed;    /* number of the moment that told what it is (store/manifest.h); 0: none */
    uint64_t listed_ns; /* its last use, as told */
    bool changed;       /* since that moment */

    /* Whether the cache has the numbers of its tokens: where not, its lengths and blocks are right
     * and nothing else may use it (store/store_reader.c).  Set by the store. */
    _Atomic enum srv_presence {
        SRV_PRESENT,
        SRV_UNREAD,  /* tokens are on the disk alone */
        SRV_LOST,    /* and were found to be damaged there */
        SRV_DROPPED, /* or the session was deleted before they were read */
    } presence;
    atomic_size_t parked; /* jobs that wait until it is present; the engine thread's */
    atomic_bool refused;  /* one was to be told, since, that memory cannot hold the session */
    /* The store's, of an unread session, under its lock. */
    struct {
        struct srv_session *next; /* among those that are read first */
        bool listed;              /* it is among them */
        bool wanted;              /* requests wait for it */
        atomic_bool now;          /* it is being read; the engine thread looks */
        bool ahead;               /* it is read after a start, though nobody waits */
        bool logged;              /* its file could not be read */
    } reading;
    /* The engine thread's, for whom leaves memory (store/evict.c). */
    uint64_t read_ns; /* when it was read */
    bool fresh;       /* since then its request has not used it; both set before it is present */
    unsigned uses;    /* steps, each half of what it was at every eviction */
    enum {
        SRV_PIN_NONE,
        SRV_PIN_NEXT, /* a step over it is about to run */
        SRV_PIN_RUNS, /* runs */
    } pinned;

    struct srv_session *next, *next_by_idempotency_key; /* in the table's lists */
};

struct srv_sessions; /* the table */

/* The beginning of the ids that a table makes: the name of an instance, by which a router can tell
 * whose a session is, and the generation of its state directory, digits that no other directory of
 * that name has. */
#define SRV_GENERATION 5
struct srv_identity {
    char instance[SRV_INSTANCE_MAX + 1], generation[SRV_GENERATION + 1];
};

/* Makes the identity of a new directory; false where there are no random numbers. */
bool srv_identity_make(struct srv_identity *out, const char *instance);
bool srv_generation_valid(const char *text);

/* The table's identity is a new one of this instance, until it is set.  False where memory or
 * random numbers cannot be had. */
bool srv_sessions_open(struct srv_sessions **out, const struct srv_limits *limits,
                       const char *instance);
/* The identity of the daemon's own store, borrowed. */
const struct srv_identity *srv_sessions_identity(const struct srv_sessions *sessions);

/* Sets the identity of a store: of the own one, 0, or the next adopted one.  False where a store
 * with a smaller number has it too.  Called before requests are served. */
bool srv_sessions_set_identity(struct srv_sessions *sessions, unsigned store,
                               const struct srv_identity *identity);
void srv_sessions_close(struct srv_sessions *sessions); /* drops the table's references */

struct srv_session_options {
    const char *id;           /* NULL: one is made that nobody can guess */
    size_t max_length;        /* 0: the model's limit */
    size_t ttl_s;             /* 0: the default */
    struct attn_cache *cache; /* NULL: a new one; else the session's, freed on an error */
    const struct srv_last_step *last_steps; /* [info.num_layers]; NULL: none */
    const char *idempotency_key;            /* Idempotency-Key; "" or NULL: none */
    uint64_t key_digest[2];                 /* of the request that has the key */
    const char *owner, *group;              /* NULL or "": none */
    bool shared;
    size_t charged_bytes;         /* of `cache`, that the owner's account is charged already */
    uint64_t epoch;               /* 0: a new one; else that of a session that is restored */
    struct srv_revision revision; /* likewise of a restored session; number 0: its file has none */
    /* The store that is to keep it, and 1: its parent's, or its files'.  0: the one whose instance
     * the id begins with, else the own one. */
    unsigned store;
};

/* Counts sessions and their bytes towards the accounts of their owners from now on; those that are
 * in the table count whatever the limits.  Called once, before requests are served. */
void srv_sessions_set_accounts(struct srv_sessions *sessions, struct srv_accounts *accounts);

/* Charges the owner's account for blocks that the session is about to take, and returns such a
 * charge.  The engine thread's.  Error: quota_exceeded. */
enum srv_error_code srv_session_charge(struct srv_session *session, size_t bytes,
                                       struct srv_error *error);
void srv_session_uncharge(struct srv_session *session, size_t bytes);

/* `new` makes a session that is in no table, with one reference, the caller's; `prepare` checks the
 * options before that; `insert` puts it into the table, which takes a reference of its own.
 * Errors: as srv_session_create, which does all. */
enum srv_error_code srv_session_new(struct srv_session **out, struct srv_sessions *sessions,
                                    const struct srv_model *model,
                                    const struct srv_session_options *options,
                                    struct srv_error *error);
enum srv_error_code srv_session_prepare(struct srv_session **out, struct srv_sessions *sessions,
                                        const struct srv_model *model,
                                        const struct srv_session_options *options,
                                        struct srv_error *error);
enum srv_error_code srv_session_insert(struct srv_sessions *sessions, struct srv_session *session,
                                       struct srv_error *error);

/* Creates a session and returns it with a reference for the caller.  Errors: session_exists,
 * session_limit, quota_exceeded, idempotency_conflict (a session was created with that key),
 * invalid_value, wrong_instance, out_of_memory. */
enum srv_error_code srv_session_create(struct srv_session **out, struct srv_sessions *sessions,
                                       const struct srv_model *model,
                                       const struct srv_session_options *options,
                                       struct srv_error *error);

/* Whether the session is of the owner of these options, or of its group; one that another owner
 * shares is not. */
bool srv_session_is_own(const struct srv_session *session,
                        const struct srv_session_options *options);

/* Whether a session of this one's id is kept by another store. */
bool srv_session_is_elsewhere(struct srv_sessions *sessions, const struct srv_session *session);

/* Whether the id of these options is in use, so that a session with them cannot be created. */
bool srv_session_exists(struct srv_sessions *sessions, const struct srv_session_options *options);

/* Finds the live session that was created with the key of these options, and takes a reference;
 * NULL where there is none or the options have no key.  Counts as use.  Error:
 * idempotency_conflict, where another request created it. */
enum srv_error_code srv_session_find_by_idempotency_key(struct srv_session **out,
                                                        struct srv_sessions *sessions,
                                                        const struct srv_session_options *options,
                                                        struct srv_error *error);

/* A reference to the live session that this caller finds under that id; NULL where there is none.
 * A caller without a key (NULL, or one without scopes) finds the sessions of all owners.  Counts as
 * use. */
struct srv_session *srv_session_get(struct srv_sessions *sessions, const struct srv_key *caller,
                                    const char *id);

/* The same without counting as use: looking at a session does not keep it alive. */
struct srv_session *srv_session_peek(struct srv_sessions *sessions, const struct srv_key *caller,
                                     const char *id);

/* The same for the session of exactly this owner ("": made without keys). */
struct srv_session *srv_session_peek_owned(struct srv_sessions *sessions, const char *owner,
                                           const char *id);

/* Sharded mode: an id is INSTANCE.rest, and a session of another id is refused.  Called once,
 * before requests are served. */
void srv_sessions_set_sharded(struct srv_sessions *sessions, bool sharded);

/* Whether a session with these options may be made here, by its id.  Errors: wrong_instance where
 * the id is one that another instance made, whether or not a session has it there; invalid_value
 * where it begins with the instance of another store than the one that is to keep it. */
enum srv_error_code srv_session_check_instance(const struct srv_sessions *sessions,
                                               const struct srv_session_options *options,
                                               struct srv_error *error);

/* Whether a session may begin under that id, or NULL.  Error: session_lost where one had it in a
 * directory that is gone: nobody begins such a one anew by accident. */
enum srv_error_code srv_session_check_lost(const struct srv_sessions *sessions, const char *id,
                                           struct srv_error *error);

/* Fails since the caller finds no session of that id.  Errors: wrong_instance; session_lost where
 * it was made under this name, but in another state directory; else session_not_found. */
enum srv_error_code srv_session_fail_missing(const struct srv_sessions *sessions, const char *id,
                                             struct srv_error *error);

/* Whether the session's cache may be used.  Errors: loading while it is unread; session_lost,
 * session_not_found. */
enum srv_error_code srv_session_check_present(const struct srv_session *session,
                                              struct srv_error *error);

/* Gives a reference back; takes NULL. */
void srv_session_put(struct srv_session *session);

/* Gives the session this revision, and drops all but the first after->length tokens of every layer,
 * and the last steps that end beyond.  False, with nothing changed, where windows have forgotten
 * what the next token would see.  The engine thread's. */
bool srv_session_truncate(struct srv_session *session, const struct srv_revision *after);

/* Draws the revision of a new session (`now` NULL), or that after a truncation to `length`.  False
 * where there are no random numbers. */
bool srv_revision_draw(struct srv_revision *out, const struct srv_revision *now, uint64_t length);

/* Whether a file may say so. */
bool srv_revision_possible(const struct srv_revision *revision);

/* Whether a truncation to `length` that names `number` is the last one, sent again. */
bool srv_revision_repeats(const struct srv_revision *now, uint64_t number, uint64_t length);

/* The session's revision, and setting it.  The engine thread's. */
struct srv_revision srv_session_revision(const struct srv_session *session);
void srv_session_set_revision(struct srv_session *session, const struct srv_revision *revision);

/* The tokens of the layer that has most. */
size_t srv_session_longest(const struct srv_session *session);

/* Fails since a request named another revision, or where that is 0 is the start of a session that
 * was truncated since; with the session's revision and epoch, and this length. */
enum srv_error_code srv_session_fail_revision(const struct srv_session *session, uint64_t named,
                                              size_t length, struct srv_error *error);

/* Takes exactly this session out of the table: true where it was still there under its id. */
bool srv_session_remove(struct srv_sessions *sessions, const struct srv_session *session);

/* Takes sessions out of the table whose ttl has passed and for which nobody waits; returns them
 * with the table's references, as a list linked by `next`.  O(sessions). */
struct srv_session *srv_sessions_expire(struct srv_sessions *sessions, uint64_t now_ns);
size_t srv_sessions_count(const struct srv_sessions *sessions);
/* Of the model with that srv_model.index: SRV_WEIGHTLESS_INDEX for weightless ones. */
size_t srv_sessions_count_of(struct srv_sessions *sessions, size_t index);

/* Takes references to all sessions, in no order; *out is the caller's to free.  False where memory
 * is short. */
bool srv_sessions_all(struct srv_session ***out, size_t *count, struct srv_sessions *sessions);

/* The clock of a store, in nanoseconds: the time since 1970 when the table was made, and what has
 * passed since by the monotonic clock.  A store sets its clock before any session is used, to the
 * latest time in its files: so the clock counts time that a daemon was up with them, and the wall
 * clock may jump. */
uint64_t srv_sessions_clock(const struct srv_sessions *sessions, unsigned store);
void srv_sessions_set_clock(struct srv_sessions *sessions, unsigned store, uint64_t now_ns);

/* The last use by the clock of the session's store, and setting it: idle time goes on over a
 * restart. */
uint64_t srv_session_used(const struct srv_sessions *sessions, const struct srv_session *session);
void srv_session_set_used(const struct srv_sessions *sessions, struct srv_session *session,
                          uint64_t used_ns);

/* Takes references to up to `size` sessions, the next ones in the order of ids and of one id's
 * owners, after the session `after` ("": from the first one on) of `owner`; returns how many. */
size_t srv_sessions_page(struct srv_session *out[], size_t size, struct srv_sessions *sessions,
                         const char *after, const char *owner);

#endif
