/* session_query.c: the queries of routes of sessions, and the session that a path and its query
 * mean.
 *
 * A route has the parameters that its row names (routes.c).  %XX is decoded in values alone.  A
 * query as long as what is kept of one (request.h) may have been cut, and is refused. */

#include "api/sessions.h"
#include "app.h"
#include "base/number.h"

#define NUMBER_DIGITS 18
#define LIMIT_DIGITS 20

enum parameter { AFTER, LIMIT, DETAILS, OWNER, EPOCH, REVISION, PARAMETER_COUNT };

static const char *const names[PARAMETER_COUNT] = {"after", "limit", "details",
                                                   "owner", "epoch", "revision"};

/* Decodes %XX in a value; false where one is malformed or a NUL. */
static bool decode(char out[SRV_QUERY_MAX + 1], const char *value, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        out[count] = value[i];
        if (value[i] == '%') {
            char digits[3] = "";
            memcpy(digits, value + i + 1, length - i < 3 ? 0 : 2);
            out[count] = (char)strtol(digits, NULL, 16);
            if (strspn(digits, "0123456789abcdefABCDEF") < 2 || out[count] == '\0')
                return false;
            i += 2;
        }
        count++;
    }
    out[count] = '\0';
    return true;
}

/* Copies an id of `length` characters; false where it is none. */
static bool read_id(char out[SRV_ID_MAX + 1], const char *value, size_t length)
{
    size_t kept = length <= SRV_ID_MAX ? length : 0;
    memcpy(out, value, kept);
    out[kept] = '\0';
    return srv_id_valid(out);
}

/* A whole number of 1 to `digits` digits; 0 for any other text. */
static uint64_t read_number(const char *value, size_t digits)
{
    uint64_t number;
    const size_t length = strlen(value);
    return length <= digits && srv_unsigned_read(&number, value, length) ? number : 0;
}

/* Reads ID, or ID:OWNER as `next` has it. */
static enum srv_error_code read_after(struct srv_session_query *query, const char *value,
                                      size_t length, struct srv_error *error)
{
    const char *colon = memchr(value, ':', length);
    size_t id_length = colon != NULL ? (size_t)(colon - value) : length;
    if (!read_id(query->after, value, id_length) ||
        (colon != NULL && !read_id(query->owner, colon + 1, length - id_length - 1)))
        return srv_fail(error, SRV_E_INVALID_VALUE, "after", "after must be a session id");
    return SRV_OK;
}

static enum srv_error_code read_owner(struct srv_session_query *query,
                                      const struct srv_request *request, const char *value,
                                      struct srv_error *error)
{
    query->owned = true;
    if (!srv_request_is_admin(request))
        return srv_fail(error, SRV_E_FORBIDDEN, "owner", "owner is for the scope admin");
    if (!read_id(query->owner, value, strlen(value)) && value[0] != '\0')
        return srv_fail(error, SRV_E_INVALID_VALUE, "owner",
                        "owner must be the name of an API key");
    return SRV_OK;
}

static enum srv_error_code fail_unknown(const char *known, struct srv_error *error)
{
    if (strstr(known, names[AFTER]) != NULL)
        return srv_fail(error, SRV_E_UNKNOWN_FIELD, "query",
                        "the query knows after=ID, limit=N and details=1 only");
    return srv_fail(error, SRV_E_UNKNOWN_FIELD, "query",
                    "the parameters of this query are: %s, each with = and a value", known);
}

/* Reads the value of a parameter. */
static enum srv_error_code read_value(struct srv_session_query *query, enum parameter parameter,
                                      const struct srv_request *request, const char *value,
                                      struct srv_error *error)
{
    uint64_t *number = parameter == EPOCH ? &query->epoch : &query->revision;
    switch (parameter) {
    case AFTER:
        return read_after(query, value, strlen(value), error);
    case OWNER:
        return read_owner(query, request, value, error);
    case LIMIT:
        query->limit = read_number(value, LIMIT_DIGITS);
        if (query->limit >= 1 && query->limit <= SRV_MAX_PAGE_SESSIONS)
            return SRV_OK;
        return srv_fail(error, SRV_E_INVALID_VALUE, "limit", "limit must be from 1 to %d",
                        SRV_MAX_PAGE_SESSIONS);
    case DETAILS:
        query->details = strcmp(value, "1") == 0;
        return query->details ? SRV_OK : fail_unknown(request->route->doc.parameters, error);
    default:
        *number = read_number(value, NUMBER_DIGITS);
        if (*number > 0)
            return SRV_OK;
        return srv_fail(error, SRV_E_INVALID_VALUE, names[parameter],
                        "%s must be an integer from 1", names[parameter]);
    }
}

enum srv_error_code srv_session_read_query(struct srv_session_query *out,
                                           const struct srv_request *request,
                                           struct srv_error *error)
{
    const char *known = request->route->doc.parameters;
    char value[SRV_QUERY_MAX + 1];
    unsigned given = 0; /* a bit for each parameter */
    *out = (struct srv_session_query){.limit = 0};
    for (const char *at = request->query; at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, "&"), name = strcspn(at, "=&");
        enum parameter i = 0; /* none of the names is a part of another parameter's */
        while (i < PARAMETER_COUNT &&
               (strlen(names[i]) != name || memcmp(at, names[i], name) != 0 ||
                strstr(known, names[i]) == NULL))
            i++;
        if (i == PARAMETER_COUNT || name == length)
            return fail_unknown(known, error);
        if (i != DETAILS && (given >> i & 1) != 0)
            return srv_fail(error, SRV_E_DUPLICATE_FIELD, names[i], "%s is given twice", names[i]);
        given |= 1u << i;
        if (!decode(value, at + name + 1, length - name - 1))
            return srv_fail(error, SRV_E_INVALID_VALUE, names[i],
                            "%s has a malformed escape: %% needs two hexadecimal digits, not 00",
                            names[i]);
        if (read_value(out, i, request, value, error) != SRV_OK)
            return error->code;
        at += length + (at[length] == '&');
    }
    if (request->query != NULL && strlen(request->query) == SRV_QUERY_MAX)
        return srv_fail(error, SRV_E_INVALID_VALUE, "query",
                        "the query must be shorter than %d bytes", SRV_QUERY_MAX);
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
    struct srv_session_query query = {.limit = 0};
    struct srv_sessions *sessions = request->app->sessions;
    *out = NULL;
    if (srv_session_check_header(request, request->path_arg, error) != SRV_OK ||
        (request->route->access == SRV_FOR_OWNER &&
         srv_session_read_query(&query, request, error) != SRV_OK))
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
