/* account.c: sessions of an owner: finding one, checking its options, what they count
 * for in the owner's account, and truncating, which makes that less. */
#include <stdio.h>
#include <string.h>

#include "attn_state.h"
#include "base/id.h"
#include "session/models.h"
#include "session/table.h"

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

enum srv_error_code srv_session_check_options(const struct srv_session_options *options,
                                              const struct srv_model *model,
                                              struct srv_account *account, struct srv_error *error)
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
    if (options->ttl_s > srv_account_limit(account, SRV_QUOTA_TTL))
        return srv_account_refuse(account, SRV_QUOTA_TTL, error);
    return SRV_OK;
}

enum srv_error_code srv_session_charge(struct srv_session *session, size_t bytes,
                                       struct srv_error *error)
{
    if (!srv_account_take(session->account, SRV_QUOTA_CACHE, bytes, 0))
        return srv_account_refuse(session->account, SRV_QUOTA_CACHE, error);
    session->charged_bytes += bytes;
    return SRV_OK;
}

void srv_session_uncharge(struct srv_session *session, size_t bytes)
{
    srv_account_return(session->account, SRV_QUOTA_CACHE, bytes);
    session->charged_bytes -= bytes;
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

void srv_sessions_set_accounts(struct srv_sessions *sessions, struct srv_accounts *accounts)
{
    pthread_mutex_lock(&sessions->lock);
    sessions->accounts = accounts;
    for (size_t i = 0; i < sessions->num_buckets; i++) {
        for (struct srv_session *s = sessions->buckets[i]; s != NULL; s = s->next) {
            s->account = srv_accounts_get(accounts, s->owner);
            s->charged_bytes = attn_cache_bytes(s->cache);
            srv_account_force(s->account, SRV_QUOTA_SESSIONS, 1);
            srv_account_force(s->account, SRV_QUOTA_CACHE, s->charged_bytes);
        }
    }
    pthread_mutex_unlock(&sessions->lock);
}
