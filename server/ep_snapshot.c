/* ep_snapshot.c: POST and GET of /snapshot: all sessions to disk, now.
 *
 * Writing takes its time, so POST replies at once; a snapshot that was begun after it is whole when
 * GET shows a larger `base`. */
#include "app.h"
#include "document.h"
#include "endpoints.h"

static json_t *status_json(struct srv_store *store)
{
    struct srv_store_status status;
    srv_store_describe(&status, store);
    return json_pack("{s:I, s:I, s:I, s:b}", "generation", (json_int_t)status.generation, "base",
                     (json_int_t)status.base, "journal_bytes", (json_int_t)status.journal_bytes,
                     "running", status.running);
}

static void reply(struct srv_request *request, unsigned status)
{
    struct srv_error error = {0};
    if (request->app->store != NULL) {
        srv_document_reply(request, status, status_json(request->app->store));
        return;
    }
    srv_fail(&error, SRV_E_UNSUPPORTED, "durability", "durability is none: nothing is kept");
    srv_reply_error(request, &error);
}

void srv_post_snapshot(struct srv_request *request)
{
    srv_store_request(request->app->store);
    reply(request, 202);
}

void srv_get_snapshot(struct srv_request *request) { reply(request, 200); }
