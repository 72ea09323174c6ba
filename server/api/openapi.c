/* openapi.c: GET /openapi.json: the description of the interface.
 *
 * A program of the build, server/openapi/, prints it from the daemon's tables.  This file is
 * compiled once for each form of the route table, with and without the page. */
#include "api/endpoints.h"
#include "base/embed.h"

#ifdef SRV_NO_UI
SRV_EMBED(openapi, "build/host/openapi_no_ui.json.gz")
#else
SRV_EMBED(openapi, "build/host/openapi.json.gz")
#endif

/* Where it has to be expanded. */
bool srv_openapi_is_long(const struct srv_request *request)
{
    return request->accepted != SRV_GZIP;
}

void srv_get_openapi(struct srv_request *request)
{
    const struct srv_embedded file = {.bytes = begin_openapi,
                                      .length = (size_t)(end_openapi - begin_openapi)};
    srv_reply_embedded(request, &file);
}
