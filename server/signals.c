/* signals.c: the signals of the daemon, as a table of those that stop it and one of those that it
 * ignores. */
#include "main.h"

#include <unistd.h>

#include "basics/mem.h"

static const int stopping[] = {SIGTERM, SIGINT, SIGQUIT};
static const int ignored[] = {SIGPIPE, SIGXFSZ, SIGUSR2, SIGALRM,  SIGVTALRM,
                              SIGPROF, SIGIO,   SIGPWR,  SIGSTKFLT};

static sigset_t stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ATTN_COUNT(stopping); i++)
        sigaddset(&set, stopping[i]);
    return set;
}

sigset_t srv_signals_served(void)
{
    sigset_t set = stop_signals();
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SRV_DRAIN_SIGNAL);
    return set;
}

void srv_signals_block(void)
{
    sigset_t set = srv_signals_served();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void srv_signals_ignore(void)
{
    for (size_t i = 0; i < ATTN_COUNT(ignored); i++)
        signal(ignored[i], SIG_IGN);
    for (int real_time = SIGRTMIN; real_time <= SIGRTMAX; real_time++)
        signal(real_time, SIG_IGN);
}

static void leave_with_success(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

static void leave_with_failure(int signal_number)
{
    (void)signal_number;
    _exit(1);
}

/* The first process of a container ignores a signal's default action, so there is a handler. */
static void handle_stop(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigset_t set = stop_signals();
    for (size_t i = 0; i < ATTN_COUNT(stopping); i++)
        sigaction(stopping[i], &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void srv_signals_stop_at_once(int status)
{
    handle_stop(status == 0 ? leave_with_success : leave_with_failure);
}

static void handle_first(int signal_number)
{
    (void)signal_number;
    handle_stop(leave_with_failure);
}

void srv_signals_expect_another(void) { handle_stop(handle_first); }
