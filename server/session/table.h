/* table.h: the table's own structure.  Private to server/session/. */
#ifndef SRV_SESSION_TABLE_H
#define SRV_SESSION_TABLE_H

#include "session/session.h"

struct srv_sessions {
    pthread_mutex_t lock;
    size_t max_sessions, default_ttl_s;
    struct srv_accounts *accounts; /* of owners; NULL: nothing is counted by owner */
    atomic_size_t count;
    atomic_size_t count_of_model[SRV_MAX_MODELS + 1]; /* by srv_model.index; weightless last */
    atomic_uint_fast64_t next_epoch;
    uint64_t clock_offset[SRV_MAX_ADOPTED + 1]; /* of stores' clocks from the monotonic one */
    uint64_t hash_point;
    struct srv_identity identities[SRV_MAX_ADOPTED + 1]; /* [num_stores] */
    unsigned num_stores;
    bool sharded;
    size_t num_buckets;                      /* a power of two */
    struct srv_session **by_idempotency_key; /* [num_buckets] hashed by key, after `buckets` */
    struct srv_session *buckets[];           /* [num_buckets] hashed by id */
};

/* Where the sessions of the model are counted. */
static inline atomic_size_t *srv_sessions_counter(struct srv_sessions *sessions, size_t index)
{
    return &sessions->count_of_model[index < SRV_MAX_MODELS ? index : SRV_MAX_MODELS];
}

/* The account of an owner; NULL: nothing is counted. */
static inline struct srv_account *srv_sessions_account(const struct srv_sessions *sessions,
                                                       const char *owner)
{
    return sessions->accounts != NULL && owner != NULL ? srv_accounts_get(sessions->accounts, owner)
                                                       : NULL;
}

/* An option's text, "" where it is NULL. */
static inline const char *srv_text_of(const char *option) { return option != NULL ? option : ""; }

/* Makes an id that nobody can guess; false where there are no random numbers. */
bool srv_session_make_id(char out[SRV_ID_MAX + 1], const struct srv_identity *identity);

/* The store that keeps a session with these options. */
unsigned srv_session_choose_store(const struct srv_sessions *sessions,
                                  const struct srv_session_options *options);

#endif
