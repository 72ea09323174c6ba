/* test_thread.c: what is said where the system starts no threads. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attn.h"
#include "base/thread.h"
#include "suites.h"

#define NOBODY 54321 /* root may start threads beyond any limit */

static void *run(void *argument) { return argument; }

/* Returns what `attempt` returns in a process of its own, which may have no further thread. */
static int without_threads(int (*attempt)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        bool limited = setrlimit(RLIMIT_NPROC, &none) == 0 &&
                       (getuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0);
        _exit(limited ? attempt() : 99);
    }
    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int start_one(void)
{
    char message[256] = "out of memory";
    pthread_t thread;
    if (srv_thread_start(&thread, run, NULL))
        return 1;
    srv_thread_explain(message, sizeof message);
    return strstr(message, "`ulimit -u`") != NULL && strstr(message, "pids.max") != NULL ? 0 : 2;
}

static int open_an_engine(void)
{
    const struct attn_engine_options options = {.threads = 4};
    struct attn_engine *engine;
    struct attn_error error = {0};
    char message[256] = "";
    if (attn_engine_open(&engine, &options, &error) == ATTN_OK)
        return 1;
    srv_thread_explain(message, sizeof message);
    return strstr(error.message, "4 threads cannot be started") != NULL && message[0] != '\0' ? 0
                                                                                              : 2;
}

TEST(threads_that_the_system_refuses_are_not_called_a_want_of_memory)
{
    ck_assert_int_eq(without_threads(start_one), 0);
    ck_assert_int_eq(without_threads(open_an_engine), 0);
}

TEST(each_cause_has_its_remedy_and_other_messages_stay)
{
    char message[256] = "out of memory";
    errno = ENOMEM;
    srv_thread_explain(message, sizeof message);
    ck_assert_str_eq(message, "out of memory");
    errno = EPERM;
    srv_thread_explain(message, sizeof message);
    ck_assert_ptr_nonnull(strstr(message, "seccomp"));
}

SUITE(thread)
