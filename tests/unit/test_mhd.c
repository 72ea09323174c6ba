/* test_mhd.c: libmicrohttpd 0.9.75 does not clear a connection's buffer after a reply
 * (server/http/mhd_workarounds.c, 18). */
#include <check.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/mhd_workarounds.h"
#include "suites.h"

#define BUFFER 24576 /* bytes of the connection, as in the daemon */
#define PADDING 3000 /* bytes before the field that is looked at */
#define MARK "a value that stays"
#define TURNS 8

/* The connection's own copy of the field's value. */
static const char *mark;
static unsigned served;

static enum MHD_Result answer(void *response, struct MHD_Connection *mhd, const char *path,
                              const char *method, const char *version, const char *bytes,
                              size_t *count, void **state)
{
    (void)path, (void)method, (void)version, (void)bytes, (void)count;
    if (*state == NULL) {
        *state = &served;
        return MHD_YES;
    }
    mark = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "Mark");
    return MHD_queue_response(mhd, MHD_HTTP_OK, response);
}

/* The reply has gone and the buffer is ready for the next request. */
static void count_served(void *context, struct MHD_Connection *mhd, void **state,
                         enum MHD_RequestTerminationCode how)
{
    (void)context, (void)mhd, (void)state, (void)how;
    served++;
}

static void send_request(int fd)
{
    static const char last_lines[] = "\r\nMark: " MARK "\r\n\r\n";
    char request[BUFFER / 2] = "GET / HTTP/1.1\r\nHost: x\r\nPadding: ";
    size_t at = strlen(request);
    memset(request + at, 'p', PADDING);
    memcpy(request + at + PADDING, last_lines, sizeof last_lines);
    ck_assert_int_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
}

/* Serves one request; 0 where the mark is cleared, 1 where it stays. */
static bool mark_stays(void)
{
    const struct sockaddr nobody = {.sa_family = AF_UNIX};
    int pair[2];
    struct MHD_Response *response =
        MHD_create_response_from_buffer(2, (void *)(uintptr_t) "ok", MHD_RESPMEM_PERSISTENT);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, answer, response,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)BUFFER,
                         MHD_OPTION_NOTIFY_COMPLETED, count_served, NULL, MHD_OPTION_END);
    ck_assert_ptr_nonnull(daemon);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    ck_assert_int_eq(MHD_add_connection(daemon, pair[1], &nobody, sizeof nobody), MHD_YES);
    served = 0;
    send_request(pair[0]);
    for (int i = 0; i < TURNS; i++)
        MHD_run(daemon);
    ck_assert_uint_eq(served, 1);
    bool stays = strcmp(mark, MARK) == 0;
    MHD_stop_daemon(daemon);
    MHD_destroy_response(response);
    close(pair[0]);
    return stays;
}

START_TEST(test_mhd_buffers_are_cleared_until_the_thread_asks_for_no_more_of_it)
{
    ck_assert(!mark_stays());
    bool skips = srv_mhd_skip_clearing();
    ck_assert_int_eq(mark_stays(), skips);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_int_eq(skips, strcmp(MHD_get_version(), "0.9.75") == 0);
#endif
}
END_TEST

/* Anybody else's memory is cleared as before. */
START_TEST(test_mhd_memory_of_others_is_cleared_all_the_same)
{
    static char memory[BUFFER];
    void *(*volatile clear)(void *, int, size_t) = memset;
    srv_mhd_skip_clearing();
    for (size_t count = 0; count <= sizeof memory; count = 2 * count + 1) {
        ck_assert_ptr_eq(clear(memory, 7, sizeof memory), memory);
        clear(memory, 0, count);
        for (size_t i = 0; i < sizeof memory; i++)
            ck_assert_int_eq(memory[i], i < count ? 0 : 7);
    }
}
END_TEST

Suite *suite_mhd(void)
{
    Suite *suite = suite_create("mhd");
    TCase *clearing = tcase_create("clearing");
    tcase_add_test(clearing, test_mhd_buffers_are_cleared_until_the_thread_asks_for_no_more_of_it);
    tcase_add_test(clearing, test_mhd_memory_of_others_is_cleared_all_the_same);
    suite_add_tcase(suite, clearing);
    return suite;
}
