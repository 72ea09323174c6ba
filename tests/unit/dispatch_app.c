/* dispatch_app.c: a scheduler's dispatch over the parts of store_app.h. */
#include "dispatch_app.h"

#include <check.h>

#include "api/endpoints.h"

void dispatch_app_open(struct dispatch_app *d,
                       bool (*work)(void *context, struct srv_request *request))
{
    struct srv_app *app = &d->app;
    app->routes = &srv_routes;
    app->in_flight.limit = app->config.limits.max_in_flight_bytes;
    d->request = &d->exchange.request;
    app->scheduler_context = (struct srv_scheduler_context){.engine = app->engine,
                                                            .models = &app->models,
                                                            .sessions = app->sessions,
                                                            .store = app->store,
                                                            .metrics = app->metrics,
                                                            .limits = &app->config.limits,
                                                            .routes = app->routes,
                                                            .stopping = &app->stopping};
    ck_assert(srv_dispatch_init(&d->dispatch, &app->scheduler_context, 8));
    ck_assert(srv_codec_workers_open(&d->dispatch.codec_workers, 1, work, NULL));
}

void dispatch_app_close(struct dispatch_app *d)
{
    srv_codec_workers_finish(d->dispatch.codec_workers);
    if (d->request->job != NULL)
        srv_job_release(d->request->job);
    srv_buffer_fini(&d->request->reply.body);
    srv_arena_fini(&d->request->arena);
    srv_dispatch_fini(&d->dispatch);
    store_app_end(&d->app);
    store_app_close(&d->app);
}

void dispatch_app_begin(struct dispatch_app *d, enum srv_method method, const char *path)
{
    char allowed[64];
    struct srv_app *app = &d->app;
    *d->request = (struct srv_request){.app = app,
                                       .limits = &app->config.limits,
                                       .stopping = &app->stopping,
                                       .in_flight = &app->in_flight,
                                       .connection = &d->exchange};
    d->request->route = srv_route_find(d->request->path_arg, allowed, &srv_routes, method, path);
    srv_arena_init(&d->request->arena, (size_t)1 << 20, NULL, NULL);
    srv_buffer_init(&d->request->reply.body, (size_t)1 << 20);
}

void dispatch_app_send(struct dispatch_app *d)
{
    struct srv_error error = {0};
    ck_assert_msg(d->request->route->parse(d->request, &error) == SRV_OK, "%s", error.message);
    srv_dispatch_parse_and_queue(&d->dispatch, &(struct srv_request *){d->request}, 1, 0);
}
