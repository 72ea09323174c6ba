/* http_bare.c: libmicrohttpd alone: a fixed reply from the external epoll mode.
 *
 * The cost of this reply is the floor under every reply of attnd.  The loop is that of http/loop.c
 * without wakes, deadlines and lingering. */
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>

#include "http_bench.h"

#define REPLY "{\"status\":\"ok\"}"
#define IDLE_MS 250

static enum MHD_Result answer(void *response, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *bytes,
                              size_t *count, void **state)
{
    static int seen;
    (void)path, (void)method, (void)version, (void)bytes;
    if (*state == NULL || *count > 0) {
        *state = &seen;
        *count = 0;
        return MHD_YES;
    }
    *state = NULL;
    return MHD_queue_response(connection, 200, response);
}

void http_bare(void)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        sizeof REPLY - 1, (void *)(uintptr_t)REPLY, MHD_RESPMEM_PERSISTENT);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, response,
                         MHD_OPTION_CONNECTION_LIMIT, 4096u, MHD_OPTION_END);
    if (daemon == NULL)
        http_die("libmicrohttpd does not start");
    int epoll = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    printf("http://127.0.0.1:%u\n",
           (unsigned)MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    for (;;) {
        MHD_UNSIGNED_LONG_LONG pending;
        struct pollfd ready = {.fd = epoll, .events = POLLIN};
        poll(&ready, 1, MHD_get_timeout(daemon, &pending) == MHD_YES ? 0 : IDLE_MS);
        MHD_run(daemon);
    }
}
