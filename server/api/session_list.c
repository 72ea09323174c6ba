/* session_list.c: GET /sessions, a page of the list.
 *
 * A page ends after `limit` sessions, or where it has SRV_SHORT_BYTES: with ?details=1 a session of
 * many layers has kilobytes.  An I/O worker writes a page that has details, or for which many
 * sessions are looked at. */

#include "api/endpoints.h"
#include "api/sessions.h"
#include "app.h"

#define PAGE_DEFAULT 100
#define FEW_SESSIONS 8
#define NEXT_MAX 256 /* bytes after the last session */
/* Writes sessions of `page`: one at least, then as many as the limit and the bytes allow.  Where
 * `count` is larger, there is a next page. */
static void write_page(struct srv_request *request, struct srv_session *const page[], size_t count,
                       const struct srv_session_query *query)
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
    const struct srv_session *last = count > shown ? page[shown - 1] : NULL;
    if (last != NULL) /* and whose it is: other owners may have sessions of the same id */
        srv_buffer_printf(out, "\"%s%s%s\"}", last->id, last->owner[0] != '\0' ? ":" : "",
                          last->owner);
    else
        srv_buffer_text(out, "null}");
}

bool srv_sessions_are_long(const struct srv_request *request)
{
    return srv_sessions_count(request->app->sessions) > FEW_SESSIONS ||
           (request->query != NULL && strstr(request->query, "details=1") != NULL);
}

void srv_get_sessions(struct srv_request *request)
{
    struct srv_session_query query;
    struct srv_error error = {0};
    struct srv_session **page = NULL;
    if (srv_session_read_query(&query, request, &error) == SRV_OK) {
        query.limit = query.limit > 0 ? query.limit : PAGE_DEFAULT;
        page = srv_arena_alloc(&request->arena, query.limit + 1, sizeof(struct srv_session *));
        if (page == NULL)
            srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the list");
    }
    if (page == NULL) {
        srv_reply_error(request, &error);
        return;
    }
    size_t count = srv_sessions_page(page, query.limit + 1, request->app->sessions, query.after,
                                     query.owned ? query.owner : NULL);
    write_page(request, page, count, &query);
    srv_reply_status(request, 200);
    for (size_t i = 0; i < count; i++)
        srv_session_put(page[i]);
}
