/* session_named.c: the session that a request means: the one of its path and its query.
 *
 * The query may name the session's owner, and the epoch and revision that it must have, as far as
 * the route has such parameters (routes.c).  The longest good query is shorter than what is kept of
 * one (request.h), so that a query which was cut is never good. */
#include <stddef.h>
#include <string.h>

#include "api/session_reply.h"
#include "app.h"
#include "wire/route.h"

#define NUMBER_DIGITS 18

struct query {
    bool owned;
    char owner[SRV_ID_MAX + 1];
    uint64_t epoch, revision; /* 0: not given */
};

static enum srv_error_code read_owner(struct query *query, const struct srv_request *request,
                                      const char *value, size_t length, struct srv_error *error)
{
    size_t kept = length <= SRV_ID_MAX ? length : 0;
    if (!srv_request_is_admin(request))
        return srv_fail(error, SRV_E_FORBIDDEN, "owner", "owner is for the scope admin");
    memcpy(query->owner, value, kept);
    query->owner[kept] = '\0';
    query->owned = true;
    if (length > 0 && !srv_id_valid(query->owner))
        return srv_fail(error, SRV_E_INVALID_VALUE, "owner",
                        "owner must be the name of an API key");
    return SRV_OK;
}

static enum srv_error_code read_number(uint64_t *out, const char *name, const char *value,
                                       size_t length, struct srv_error *error)
{
    uint64_t number = 0;
    bool valid = length >= 1 && length <= NUMBER_DIGITS;
    for (size_t i = 0; i < length && valid; i++) {
        valid = value[i] >= '0' && value[i] <= '9';
        number = 10 * number + (uint64_t)(value[i] - '0');
    }
    if (!valid || number == 0)
        return srv_fail(error, SRV_E_INVALID_VALUE, name, "%s must be an integer from 1", name);
    *out = number;
    return SRV_OK;
}

/* Reads NAME=VALUE, of `length` characters. */
static enum srv_error_code read_pair(struct query *query, const struct srv_request *request,
                                     const char *pair, size_t length, struct srv_error *error)
{
    static const char *const names[] = {"owner", "epoch", "revision"};
    const bool given[] = {query->owned, query->epoch != 0, query->revision != 0};
    const char *known = request->route->doc.parameters;
    const size_t name_length = strcspn(pair, "=&");
    size_t i = 0; /* none of the names is a part of another parameter's */
    while (i < 3 && (strlen(names[i]) != name_length || memcmp(pair, names[i], name_length) != 0 ||
                     strstr(known, names[i]) == NULL))
        i++;
    if (i == 3 || name_length == length)
        return srv_fail(error, SRV_E_UNKNOWN_FIELD, "query",
                        "the parameters of this query are: %s, each with = and a value", known);
    if (given[i])
        return srv_fail(error, SRV_E_DUPLICATE_FIELD, names[i], "%s is given twice", names[i]);
    const char *value = pair + name_length + 1;
    const size_t value_length = length - name_length - 1;
    if (i == 0)
        return read_owner(query, request, value, value_length, error);
    return read_number(i == 1 ? &query->epoch : &query->revision, names[i], value, value_length,
                       error);
}

static enum srv_error_code read_query(struct query *query, const struct srv_request *request,
                                      struct srv_error *error)
{
    const char *at = request->route->access == SRV_FOR_OWNER ? request->query : NULL;
    while (at != NULL && *at != '\0') {
        size_t length = strcspn(at, "&");
        if (read_pair(query, request, at, length, error) != SRV_OK)
            return error->code;
        at += length + (at[length] == '&');
    }
    return SRV_OK;
}

enum srv_error_code srv_session_check_named(const struct srv_session *session, uint64_t epoch,
                                            uint64_t revision, struct srv_error *error)
{
    if (epoch != 0 && epoch != session->epoch)
        return srv_fail(error, SRV_E_EPOCH_MISMATCH, "epoch",
                        "epoch is %llu, the session's is %llu", (unsigned long long)epoch,
                        (unsigned long long)session->epoch);
    if (revision != 0 && revision != session->revision)
        return srv_session_fail_revision(session, revision, srv_session_longest(session), error);
    return SRV_OK;
}

enum srv_error_code srv_session_of_path(struct srv_session **out, const struct srv_request *request,
                                        struct srv_error *error)
{
    struct query query = {0};
    struct srv_sessions *sessions = request->app->sessions;
    *out = NULL;
    if (srv_session_check_header(request, request->path_arg, error) != SRV_OK ||
        read_query(&query, request, error) != SRV_OK)
        return error->code;
    struct srv_session *session =
        query.owned ? srv_session_peek_owned(sessions, query.owner, request->path_arg)
                    : srv_session_peek(sessions, &request->key, request->path_arg);
    if (session == NULL)
        return srv_session_fail_missing(sessions, request->path_arg, error);
    if (srv_session_check_named(session, query.epoch, query.revision, error) == SRV_OK)
        *out = session;
    else
        srv_session_put(session);
    return error->code;
}
