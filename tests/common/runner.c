/* runner.c: a process for each suite, which prints into a file in memory. */
#include "runner.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of a suite, in memory that the processes share. */
struct outcome {
    pid_t pid;
    int output; /* what the suite prints */
    struct timespec start;
    int run, failed; /* tests */
    bool ended;      /* all tests of the suite have run */
};

static void run_suite(struct outcome *out, const struct runner_suite *suite)
{
    SRunner *runner = srunner_create(suite->create());
    srunner_run_all(runner, CK_ENV);
    out->run = srunner_ntests_run(runner);
    out->failed = srunner_ntests_failed(runner);
    out->ended = true;
    srunner_free(runner);
}

/* libcheck ends the test that runs when SIGTERM comes. */
static bool start_suite(struct outcome *out, const struct runner_suite *suite)
{
    fflush(NULL); /* or the child would print it too */
    clock_gettime(CLOCK_MONOTONIC, &out->start);
    out->output = memfd_create(suite->name, MFD_CLOEXEC);
    pid_t pid = out->output >= 0 ? fork() : -1;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (dup2(out->output, STDOUT_FILENO) >= 0 && dup2(out->output, STDERR_FILENO) >= 0)
            run_suite(out, suite);
        exit(EXIT_SUCCESS);
    }
    out->pid = pid;
    return pid > 0;
}

static double seconds(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

static void show(const struct outcome *outcome, const char *name, const struct rusage *usage)
{
    char bytes[4096];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lseek(outcome->output, 0, SEEK_SET);
    for (ssize_t got; (got = read(outcome->output, bytes, sizeof bytes)) > 0;)
        fwrite(bytes, 1, (size_t)got, stdout);
    close(outcome->output);
    printf("%s: %ld s, %.1f s of CPU time\n", name, (long)(now.tv_sec - outcome->start.tv_sec),
           seconds(&usage->ru_utime) + seconds(&usage->ru_stime));
}

/* Waits for any suite to end. */
static void await_suite(struct outcome *outcomes, const struct runner_suite *suites, size_t count)
{
    struct rusage usage;
    pid_t pid = wait4(-1, NULL, 0, &usage);
    for (size_t i = 0; i < count; i++) {
        if (pid > 0 && outcomes[i].pid == pid)
            show(&outcomes[i], suites[i].name, &usage);
    }
}

static void run_all(struct outcome *outcomes, const struct runner_suite *suites, size_t count,
                    size_t alone, size_t jobs)
{
    size_t running = 0;
    for (size_t i = 0; i < count || running > 0;) {
        if (i < count && running < (i < count - alone ? jobs : 1)) {
            running += start_suite(&outcomes[i], &suites[i]);
            i++;
        } else {
            await_suite(outcomes, suites, count);
            running--;
        }
    }
}

/* Prints the last line. */
static int judge(const char *program, const struct outcome *outcomes,
                 const struct runner_suite *suites, size_t count)
{
    int run = 0, failed = 0;
    bool right = true;
    for (size_t i = 0; i < count; i++) {
        run += outcomes[i].run;
        failed += outcomes[i].failed;
        if (outcomes[i].ended && outcomes[i].failed == 0)
            continue;
        printf("%s: FAILED: suite %s\n", program, suites[i].name);
        right = false;
    }
    printf("%s: %d passed, %d failed\n", program, run - failed, failed);
    return right && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int runner_run(const char *program, const struct runner_suite *suites, size_t count, size_t alone,
               size_t jobs)
{
    const char *wanted = getenv("CK_RUN_SUITE");
    for (size_t i = 0; wanted != NULL && i < count; i++) {
        if (strcmp(wanted, suites[i].name) == 0) {
            suites += i;
            count = 1;
        }
    }
    struct outcome *outcomes = mmap(NULL, count * sizeof *outcomes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED)
        return EXIT_FAILURE;
    if (count == 1)
        run_suite(outcomes, suites);
    else
        run_all(outcomes, suites, count, alone, jobs);
    int status = judge(program, outcomes, suites, count);
    munmap(outcomes, count * sizeof *outcomes);
    return status;
}
