/* session_list.c: GET /sessions, a page of the list.
 *
 * A page ends after `limit` sessions, or where it has SRV_SHORT_BYTES: with ?details=1 a session of
 * many layers has kilobytes.  An I/O worker writes a page that has details, or for which many
 * sessions are looked at. */
#include <string.h>

#include "api/endpoints.h"
#include "api/session_reply.h"
#include "app.h"
#include "wire/route.h"

#define PAGE_DEFAULT 100
#define FEW_SESSIONS 8
#define NEXT_MAX 256    /* bytes after the last session */
#define LIMIT_DIGITS 20 /* so few that a query that was shortened is never a valid one */

#define DETAILS "details=1"

struct page_query {
    char after[SRV_ID_MAX + 1]; /* "": not given */
    char owner[SRV_ID_MAX + 1]; /* of the session `after`, where has_owner */
    bool has_owner;
    bool details;
    size_t limit; /* 0: not given */
};

static enum srv_error_code read_limit(size_t *out, const char *value, size_t length,
                                      struct srv_error *error)
{
    size_t limit = 0;
    for (size_t i = 0; i < length && limit <= SRV_MAX_PAGE_SESSIONS; i++) {
        bool digit = value[i] >= '0' && value[i] <= '9';
        limit = digit ? limit * 10 + (size_t)(value[i] - '0') : SRV_MAX_PAGE_SESSIONS + 1;
    }
    if (length > LIMIT_DIGITS || limit < 1 || limit > SRV_MAX_PAGE_SESSIONS)
        return srv_fail(error, SRV_E_INVALID_VALUE, "limit", "limit must be from 1 to %d",
                        SRV_MAX_PAGE_SESSIONS);
    *out = limit;
    return SRV_OK;
}

/* Copies an id of `length` characters; false where it is none. */
static bool read_id(char out[SRV_ID_MAX + 1], const char *value, size_t length)
{
    size_t kept = length <= SRV_ID_MAX ? length : 0;
    memcpy(out, value, kept);
    out[kept] = '\0';
    return srv_id_valid(out);
}

/* Reads ID, or ID:OWNER as `next` has it. */
static enum srv_error_code read_after(struct page_query *query, const char *value, size_t length,
                                      struct srv_error *error)
{
    const char *colon = memchr(value, ':', length);
    size_t id_length = colon != NULL ? (size_t)(colon - value) : length;
    query->has_owner = colon != NULL;
    if (!read_id(query->after, value, id_length) ||
        (colon != NULL && !read_id(query->owner, colon + 1, length - id_length - 1)))
        return srv_fail(error, SRV_E_INVALID_VALUE, "after", "after must be a session id");
    return SRV_OK;
}

static enum srv_error_code read_pair(struct page_query *query, const char *pair, size_t length,
                                     struct srv_error *error)
{
    bool is_after = length >= 6 && memcmp(pair, "after=", 6) == 0;
    bool is_limit = length >= 6 && memcmp(pair, "limit=", 6) == 0;
    bool is_details = length == sizeof DETAILS - 1 && memcmp(pair, DETAILS, length) == 0;
    if ((is_after && query->after[0] != '\0') || (is_limit && query->limit > 0))
        return srv_fail(error, SRV_E_DUPLICATE_FIELD, is_after ? "after" : "limit",
                        "%.5s is given twice", pair);
    if (is_after)
        return read_after(query, pair + 6, length - 6, error);
    if (is_limit)
        return read_limit(&query->limit, pair + 6, length - 6, error);
    query->details = query->details || is_details;
    if (is_details)
        return SRV_OK;
    return srv_fail(error, SRV_E_UNKNOWN_FIELD, "query",
                    "the query knows after=ID, limit=N and " DETAILS " only");
}

static enum srv_error_code read_query(struct page_query *query, const char *text,
                                      struct srv_error *error)
{
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, "&");
        enum srv_error_code code = read_pair(query, text, length, error);
        if (code != SRV_OK)
            return code;
        text += length + (text[length] == '&');
    }
    query->limit = query->limit > 0 ? query->limit : PAGE_DEFAULT;
    return SRV_OK;
}

/* The id, and whose it is: other owners may have sessions of the same id. */
static void write_next(struct srv_buffer *out, const struct srv_session *last)
{
    bool owned = last->owner[0] != '\0';
    srv_buffer_printf(out, "\"%s%s%s\"", last->id, owned ? ":" : "", last->owner);
}

/* Writes sessions of `page`: one at least, then as many as the limit and the bytes allow.  Where
 * `count` is larger, there is a next page. */
static void write_page(struct srv_request *request, struct srv_session *const page[], size_t count,
                       const struct page_query *query)
{
    struct srv_buffer *out = &request->reply.body;
    size_t shown = 0;
    srv_buffer_text(out, "{\"sessions\":[");
    while (shown < count && shown < query->limit) {
        size_t before = out->length;
        srv_buffer_text(out, shown > 0 ? "," : "");
        srv_session_print_listed(out, page[shown], request, query->details);
        if (shown > 0 && out->length > SRV_SHORT_BYTES - NEXT_MAX) {
            out->length = before;
            break;
        }
        shown++;
    }
    srv_buffer_text(out, "],\"next\":");
    if (count > shown)
        write_next(out, page[shown - 1]);
    else
        srv_buffer_text(out, "null");
    srv_buffer_text(out, "}");
}

bool srv_sessions_are_long(const struct srv_request *request)
{
    return srv_sessions_count(request->app->sessions) > FEW_SESSIONS ||
           (request->query != NULL && strstr(request->query, DETAILS) != NULL);
}

void srv_get_sessions(struct srv_request *request)
{
    struct page_query query = {.limit = 0};
    struct srv_error error = {0};
    if (read_query(&query, request->query, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    struct srv_session **page =
        srv_arena_alloc(&request->arena, query.limit + 1, sizeof(struct srv_session *));
    if (page == NULL) {
        srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the list");
        srv_reply_error(request, &error);
        return;
    }
    size_t count = srv_sessions_page(page, query.limit + 1, request->app->sessions, query.after,
                                     query.has_owner ? query.owner : NULL);
    write_page(request, page, count, &query);
    srv_reply_status(request, 200);
    for (size_t i = 0; i < count; i++)
        srv_session_put(page[i]);
}
