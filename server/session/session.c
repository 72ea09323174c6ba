/* session.c: one session: its making and its end, what it counts for in its owner's account, its
 * clock and revision, and truncating. */
#include <stdlib.h>
#include <sys/random.h>

#include "attn_state.h"
#include "base/clock.h"
#include "session/table.h"
#include "session/weightless.h"

/* ---- Making and freeing one ------------------------------------------------------------------ */

static void session_free(struct srv_session *session)
{
    srv_account_uncharge(session->account, SRV_QUOTA_CACHE, session->charged_bytes);
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

/* Gives the session its model, its cache and the memory of its last steps. */
static enum srv_error_code allocate_state(struct srv_session *session,
                                          const struct srv_model *model,
                                          const struct srv_session_options *options,
                                          struct srv_error *error)
{
    struct attn_error cause = {0};
    size_t max_length = options->max_length > 0 ? options->max_length : model->max_length;
    size_t layers = model->info.num_layers;
    if (!srv_model_hold(model, layers))
        return srv_fail(error, SRV_E_SESSION_LIMIT, "num_hidden_layers",
                        "the layers of all sessions without weights pass %d times max_sessions",
                        SRV_WEIGHTLESS_MEAN_LAYERS);
    session->model = model;
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
    snprintf(out, SRV_ID_MAX + 1, "%s", srv_text_of(id));
}

/* Sets what the options say; after an error the caller frees the session with what it has. */
static enum srv_error_code accept_options(struct srv_session *session,
                                          struct srv_sessions *sessions,
                                          const struct srv_session_options *options,
                                          struct srv_error *error)
{
    size_t most_s = srv_account_limit(session->account, SRV_QUOTA_TTL);
    size_t ttl_s = most_s < sessions->default_ttl_s ? most_s : sessions->default_ttl_s;
    struct srv_revision first = options->revision;
    session->ttl_ns = (options->ttl_s > 0 ? options->ttl_s : ttl_s) * SRV_S_NS;
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
    copy_id(session->id, options->id);
    if (options->id == NULL &&
        !srv_session_make_id(session->id, &sessions->identities[session->store]))
        return srv_fail(error, SRV_E_INTERNAL, NULL, "no random numbers for an id");
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
    struct srv_account *account = srv_sessions_account(sessions, options->owner);
    struct srv_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        attn_cache_free(options->cache);
        srv_account_uncharge(account, SRV_QUOTA_CACHE, options->charged_bytes);
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session");
    }
    session->account = account;
    session->cache = options->cache;
    session->charged_bytes = options->charged_bytes;
    if (accept_options(session, sessions, options, error) != SRV_OK ||
        allocate_state(session, model, options, error) != SRV_OK) {
        session_free(session);
        return error->code;
    }
    *out = session;
    return SRV_OK;
}

bool srv_session_is_own(const struct srv_session *session,
                        const struct srv_session_options *options)
{
    const char *group = srv_text_of(options->group);
    return strcmp(session->owner, srv_text_of(options->owner)) == 0 ||
           (group[0] != '\0' && strcmp(session->group, group) == 0);
}

/* ---- The owner's account ----------------------------------------------------------------- */

enum srv_error_code srv_session_charge(struct srv_session *session, size_t bytes,
                                       struct srv_error *error)
{
    if (!srv_account_charge(session->account, SRV_QUOTA_CACHE, bytes))
        return srv_account_refuse(session->account, SRV_QUOTA_CACHE, error);
    session->charged_bytes += bytes;
    return SRV_OK;
}

void srv_session_uncharge(struct srv_session *session, size_t bytes)
{
    srv_account_uncharge(session->account, SRV_QUOTA_CACHE, bytes);
    session->charged_bytes -= bytes;
}

/* ---- Revisions and truncating ---------------------------------------------------------------- */

/* Random bits are never those of the revision that is left, and 0 is none. */
bool srv_revision_draw(struct srv_revision *out, const struct srv_revision *now, uint64_t length)
{
    uint64_t number = 0, present = now != NULL ? now->number : 0;
    while (number == 0 || number == present) {
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return false;
        number &= SRV_REVISION_MAX;
    }
    *out = (struct srv_revision){.number = number, .before = present, .length = length};
    return true;
}

bool srv_revision_possible(const struct srv_revision *revision)
{
    return revision->number != 0 && revision->number <= SRV_REVISION_MAX &&
           revision->before <= SRV_REVISION_MAX;
}

bool srv_revision_repeats(const struct srv_revision *now, uint64_t number, uint64_t length)
{
    return number != 0 && number == now->before && length == now->length;
}

struct srv_revision srv_session_revision(const struct srv_session *session)
{
    return (struct srv_revision){session->revision, session->revision_before,
                                 session->truncated_to};
}

void srv_session_set_revision(struct srv_session *session, const struct srv_revision *revision)
{
    session->revision = revision->number;
    session->revision_before = revision->before;
    session->truncated_to = revision->length;
}

size_t srv_session_longest(const struct srv_session *session)
{
    size_t longest = 0;
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        size_t length = attn_cache_length(session->cache, i);
        longest = length > longest ? length : longest;
    }
    return longest;
}

enum srv_error_code srv_session_fail_revision(const struct srv_session *session, uint64_t named,
                                              size_t length, struct srv_error *error)
{
    const uint64_t present = session->revision;
    if (named != 0)
        srv_fail(error, SRV_E_REVISION_MISMATCH, "revision",
                 "revision is %llu, the session's is %llu", (unsigned long long)named,
                 (unsigned long long)present);
    else
        srv_fail(error, SRV_E_REVISION_MISMATCH, "start",
                 "the session was truncated since it started: its revision is %llu",
                 (unsigned long long)present);
    error->has_length = true; /* after srv_fail, which clears the record */
    error->length = (uint32_t)length;
    error->epoch = session->epoch;
    error->revision = present;
    return error->code;
}

bool srv_session_truncate(struct srv_session *session, const struct srv_revision *after)
{
    size_t before = attn_cache_bytes(session->cache), length = (size_t)after->length;
    if (!attn_cache_truncate(session->cache, length))
        return false;
    srv_session_set_revision(session, after); /* after the lengths: session_reply.c */
    srv_session_uncharge(session, before - attn_cache_bytes(session->cache));
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        struct srv_last_step *last = &session->last_steps[i];
        if (last->position + last->rows > length)
            *last = (struct srv_last_step){0};
    }
    return true;
}

/* ---- Clocks of stores, by which sessions expire, also over a restart ------------------------- */

uint64_t srv_sessions_clock(const struct srv_sessions *sessions, unsigned store)
{
    return srv_now_ns() + sessions->clock_offset[store];
}

void srv_sessions_set_clock(struct srv_sessions *sessions, unsigned store, uint64_t now_ns)
{
    sessions->clock_offset[store] = now_ns - srv_now_ns();
}

uint64_t srv_session_used(const struct srv_sessions *sessions, const struct srv_session *session)
{
    uint64_t now = srv_now_ns(), used = session->used_ns;
    return (now > used ? used : now) + sessions->clock_offset[session->store];
}

void srv_session_set_used(const struct srv_sessions *sessions, struct srv_session *session,
                          uint64_t used_ns)
{
    uint64_t now = srv_now_ns(), clock = now + sessions->clock_offset[session->store];
    uint64_t idle = clock > used_ns ? clock - used_ns : 0;
    session->used_ns = now > idle ? now - idle : 0;
}

enum srv_error_code srv_session_check_present(const struct srv_session *session,
                                              struct srv_error *error)
{
    switch ((enum srv_presence)session->presence) {
    case SRV_UNREAD:
        return srv_fail(error, SRV_E_LOADING, NULL, "the session's tokens are being read");
    case SRV_LOST:
        return srv_fail(error, SRV_E_SESSION_LOST, "session_id",
                        "the session's files are damaged: it is lost");
    case SRV_DROPPED:
        return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id", "the session was deleted");
    case SRV_PRESENT:
        break;
    }
    return SRV_OK;
}
