/* test_sandbox.c: what the option `sandbox` refuses, tried in a child that is in the sandbox. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/sandbox.h"
#include "suites.h"

static char inside[64], outside[64], file[96];

static void set_up(void)
{
    snprintf(inside, sizeof inside, "/tmp/attnd-inside-XXXXXX");
    snprintf(outside, sizeof outside, "/tmp/attnd-outside-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(inside));
    ck_assert_ptr_nonnull(mkdtemp(outside));
    snprintf(file, sizeof file, "%s/file", outside);
}

static void tear_down(void)
{
    char command[192];
    snprintf(command, sizeof command, "rm -rf %s %s", inside, outside);
    ck_assert_int_eq(system(command), 0);
}

static bool begin(void)
{
    char message[SRV_MESSAGE_MAX];
    const char *directories[] = {inside};
    return srv_sandbox_restrict_files(directories, 1, message);
}

/* Enters the sandbox with the inner directory open, as the daemon does. */
static int begin_and_close(void)
{
    char message[SRV_MESSAGE_MAX];
    int directory = begin() ? open(inside, O_RDONLY | O_DIRECTORY) : -1;
    return directory >= 0 && srv_sandbox_restrict_calls(&directory, 1, false, message) ? directory
                                                                                       : -1;
}

/* ---- Attempts of the child ------------------------------------------------------------------- */

static bool refused(long result) { return result == -1 && errno == EPERM; }

static bool opens_no_socket(void)
{
    return begin_and_close() >= 0 && refused(socket(AF_PACKET, SOCK_RAW, 0)) &&
           refused(socket(AF_INET, SOCK_STREAM, 0));
}

static bool runs_no_program(void)
{
    char *const words[] = {(char *)"/bin/true", NULL};
    return begin_and_close() >= 0 && refused(execv(words[0], words)) && refused(fork());
}

static bool opens_no_file_by_its_path(void)
{
    return begin_and_close() >= 0 && refused(open("/etc/passwd", O_RDONLY)) &&
           refused(open(inside, O_RDONLY)) && refused(open(file, O_WRONLY | O_CREAT, 0600));
}

static bool traces_nobody(void)
{
    return begin_and_close() >= 0 && refused(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL)) &&
           refused(kill(getppid(), SIGKILL));
}

static bool makes_no_code(void)
{
    return begin_and_close() >= 0 &&
           mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0) == MAP_FAILED &&
           errno == EPERM;
}

static bool keeps_files_in_its_directory(void)
{
    int directory = begin_and_close();
    int fd = directory >= 0 ? openat(directory, "a", O_RDWR | O_CREAT | O_EXCL, 0600) : -1;
    return fd >= 0 && write(fd, "x", 1) == 1 && fsync(fd) == 0 && close(fd) == 0 &&
           renameat(directory, "a", directory, "b") == 0 && unlinkat(directory, "b", 0) == 0;
}

/* With an absolute path openat ignores the directory, so the filter lets it pass; landlock
 * refuses. */
static bool writes_nothing_elsewhere(void)
{
    char words[SRV_SANDBOX_TEXT_MAX];
    (void)srv_sandbox_describe(words);
    if (strstr(words, "no landlock") != NULL)
        return true;
    int directory = begin_and_close();
    return directory >= 0 && openat(directory, file, O_WRONLY | O_CREAT, 0600) == -1 &&
           errno == EACCES;
}

static void *try_socket(void *go)
{
    char byte;
    (void)!read(*(int *)go, &byte, 1);
    return refused(socket(AF_INET, SOCK_STREAM, 0)) ? go : NULL;
}

static bool reaches_threads_that_are_there(void)
{
    int ends[2];
    pthread_t thread;
    void *right = NULL;
    if (!begin() || pipe(ends) != 0 || pthread_create(&thread, NULL, try_socket, &ends[0]) != 0 ||
        begin_and_close() < 0 || write(ends[1], "x", 1) != 1)
        return false;
    pthread_join(thread, &right);
    return right != NULL;
}

static const struct {
    const char *name;
    bool (*holds)(void);
} attempts[] = {
    {"opens no socket", opens_no_socket},
    {"runs no program", runs_no_program},
    {"opens no file by its path", opens_no_file_by_its_path},
    {"traces and kills nobody", traces_nobody},
    {"makes no code", makes_no_code},
    {"keeps files in its directory", keeps_files_in_its_directory},
    {"writes nothing elsewhere", writes_nothing_elsewhere},
    {"reaches threads that are there", reaches_threads_that_are_there},
};
#define ATTEMPTS ((int)COUNT(attempts))

CASE(sandbox, set_up, tear_down, 0)

TEST_EACH(sandbox_refuses_what_serving_does_not_need, ATTEMPTS)
{
    int status = 0;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(attempts[_i].holds() ? 0 : 1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: wait status 0x%x",
                  attempts[_i].name, (unsigned)status);
}

SUITE(sandbox)
