/* endpoint_openapi.c: GET /openapi.json: the description of the interface.
 *
 * The reply is made once, before the port opens, since building it takes milliseconds of an event
 * thread's time, and always the same text comes of it. */
#include "api/endpoints.h"
#include "api/openapi.h"
#include "app.h"

bool srv_openapi_describe(struct srv_app *app)
{
    srv_buffer_init(&app->openapi, SIZE_MAX);
    return srv_document_write(&app->openapi, srv_openapi_document(app->routes, &app->config));
}

void srv_get_openapi(struct srv_request *request)
{
    const struct srv_buffer *text = &request->app->openapi;
    srv_buffer_append(&request->reply.body, text->data, text->length);
    srv_reply_status(request, 200);
}
