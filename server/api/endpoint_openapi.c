/* endpoint_openapi.c: GET /openapi.json: the description of the interface.
 *
 * The first request makes the text, which takes milliseconds and then stays: few daemons are asked
 * for it, and a start should not wait for it. */
#include "api/endpoints.h"
#include "api/openapi.h"
#include "app.h"

/* False where memory is short; the next request then tries again. */
static bool describe(struct srv_app *app)
{
    struct srv_buffer *text = &app->openapi;
    pthread_mutex_lock(&app->openapi_lock);
    bool made = text->length > 0;
    if (!made) {
        srv_buffer_init(text, SIZE_MAX);
        made = srv_document_write(text, srv_openapi_document(app->routes, &app->config));
        if (!made)
            srv_buffer_fini(text);
    }
    pthread_mutex_unlock(&app->openapi_lock);
    return made;
}

/* Until it is made. */
bool srv_openapi_is_long(const struct srv_request *request)
{
    struct srv_app *app = request->app;
    if (pthread_mutex_trylock(&app->openapi_lock) != 0)
        return true;
    bool made = app->openapi.length > 0;
    pthread_mutex_unlock(&app->openapi_lock);
    return !made;
}

void srv_get_openapi(struct srv_request *request)
{
    struct srv_error error = {0};
    if (!describe(request->app)) {
        srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the description");
        srv_reply_error(request, &error);
        return;
    }
    const struct srv_buffer *text = &request->app->openapi;
    srv_buffer_hold(&request->reply.body, text->data, text->length);
    srv_reply_status(request, 200);
}
