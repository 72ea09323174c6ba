/* snapshot.c: POST and GET of /snapshot: all sessions to disk, now.
 *
 * POST replies before the snapshot is written, which the store's thread does.  The snapshot is
 * complete when GET shows a larger `base` than POST did. */
#include "api/endpoints.h"
#include "app.h"
#include "store/stores.h"
#include "wire/document.h"

typedef void status_function(struct srv_store_status *out, struct srv_store *store);

static json_t *status_json(const struct srv_store_status *status)
{
    return json_pack("{s:I, s:I, s:I, s:b}", "generation", (json_int_t)status->generation, "base",
                     (json_int_t)status->base, "journal_bytes", (json_int_t)status->journal_bytes,
                     "running", status->running);
}

static void reply(struct srv_request *request, unsigned code, status_function *get_status)
{
    struct srv_store_status status;
    struct srv_error error = {0};
    if (request->app->store != NULL) {
        get_status(&status, request->app->store);
        srv_document_reply(request, code, status_json(&status));
        return;
    }
    srv_fail(&error, SRV_E_UNSUPPORTED, "durability", "durability is none: nothing is kept");
    srv_reply_error(request, &error);
}

void srv_post_snapshot(struct srv_request *request)
{
    reply(request, 202, srv_stores_request_snapshot);
}

void srv_get_snapshot(struct srv_request *request) { reply(request, 200, srv_stores_describe); }
