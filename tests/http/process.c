/* process.c: fork, exec, wait. */
#include "process.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUN_SECONDS 60
#define POLL_MS 2
#define MAX_VARIABLES 512

extern char **environ;

void pause_ms(unsigned ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

static size_t take_words(const char *out[], const char *const words[])
{
    size_t count = 0;
    for (; words != NULL && words[count] != NULL; count++) {
        ck_assert_uint_lt(count, PROCESS_MAX_WORDS);
        out[count] = words[count];
    }
    return count;
}

/* Runs in the child: only calls that are safe between fork and exec.  SIGHUP gets its default
 * action, since the suite may ignore hangups (under nohup), and the child would inherit that. */
static void exec_child(const char *program, const char *const argv[], const char *const envp[],
                       const struct process *process)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGHUP, SIG_DFL);
    if (dup2(process->out, STDOUT_FILENO) >= 0 && dup2(process->err, STDERR_FILENO) >= 0)
        execve(program, (char *const *)argv, (char *const *)envp);
    _exit(127);
}

void process_start(struct process *process, const char *const arguments[],
                   const char *const variables[])
{
    const char *program = getenv("ATTND");
    process_start_program(process, program != NULL ? program : "build/attnd", arguments, variables);
}

void process_start_program(struct process *process, const char *program,
                           const char *const arguments[], const char *const variables[])
{
    const char *argv[PROCESS_MAX_WORDS + 2], *envp[MAX_VARIABLES + PROCESS_MAX_WORDS + 5];
    const char *gemm = getenv("GEMM");
    char gemm_variable[32];
    argv[0] = program;
    argv[1 + take_words(argv + 1, arguments)] = NULL;
    size_t count = take_words(envp, variables);
    envp[count++] = "ATTN_LAME_DUCK_S=0";
    if (getenv("SANDBOX") != NULL) {
        envp[count++] = "ATTN_SANDBOX=on";
        envp[count++] = PROCESS_NO_LEAKS;
    }
    if (gemm != NULL) {
        snprintf(gemm_variable, sizeof gemm_variable, "ATTN_GEMM=%s", gemm);
        envp[count++] = gemm_variable;
    }
    for (char **variable = environ; *variable != NULL && count < MAX_VARIABLES; variable++) {
        if (strncmp(*variable, "ATTN_", 5) != 0)
            envp[count++] = *variable;
    }
    envp[count] = NULL;
    process->out = memfd_create("stdout", MFD_CLOEXEC);
    process->err = memfd_create("stderr", MFD_CLOEXEC);
    ck_assert_msg(process->out >= 0 && process->err >= 0, "no memory for output");
    process->pid = fork();
    ck_assert_msg(process->pid >= 0, "cannot fork");
    if (process->pid == 0)
        exec_child(program, argv, envp, process);
}

char *process_text(int fd)
{
    struct stat file;
    ck_assert_int_eq(fstat(fd, &file), 0);
    size_t size = (size_t)file.st_size, have = 0;
    char *text = malloc(size + 1);
    ck_assert_ptr_nonnull(text);
    while (have < size) {
        ssize_t got = pread(fd, text + have, size - have, (off_t)have);
        ck_assert_int_gt(got, 0);
        have += (size_t)got;
    }
    text[size] = '\0';
    return text;
}

bool process_wait(int *status, struct process *process, unsigned seconds)
{
    for (unsigned waited = 0; waited <= seconds * 1000; waited += POLL_MS) {
        if (waitpid(process->pid, status, WNOHANG) == process->pid) {
            process->pid = 0;
            return true;
        }
        pause_ms(POLL_MS);
    }
    return false;
}

/* Prints standard error if it has a sanitizer's report, and returns whether it has.  Only the
 * report explains the failure of a process that is killed here, and so has no status, or of a
 * wrong answer. */
static bool print_report(const struct process *process)
{
    char *text = process->err >= 0 ? process_text(process->err) : NULL;
    const char *report = text != NULL ? strstr(text, "Sanitizer: ") : NULL;
    if (text != NULL && report == NULL)
        report = strstr(text, ": runtime error: ");
    bool found = report != NULL;
    if (found)
        fprintf(stderr, "%s\n", text);
    free(text);
    return found;
}

void process_end(struct process *process)
{
    int status;
    if (process->pid > 0) {
        kill(process->pid, SIGKILL);
        waitpid(process->pid, &status, 0);
    }
    bool reported = print_report(process);
    if (process->out >= 0)
        close(process->out);
    if (process->err >= 0)
        close(process->err);
    *process = (struct process){0, -1, -1};
    ck_assert_msg(!reported, "a sanitizer's report is above");
}

int process_run(char **out, char **err, const char *const arguments[],
                const char *const variables[])
{
    struct process process;
    int status, result = -1;
    process_start(&process, arguments, variables);
    if (process_wait(&status, &process, RUN_SECONDS) && WIFEXITED(status))
        result = WEXITSTATUS(status);
    *out = process_text(process.out);
    *err = process_text(process.err);
    process_end(&process);
    return result;
}

void process_preload(char out[512], const char *library)
{
    char path[400];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    ck_assert_int_gt(length, 0);
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    snprintf(out, 512, "LD_PRELOAD=%s/%s", path, library);
}
