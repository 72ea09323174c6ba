/* mapped.c: the end of a daemon whose mapped weights are lost.
 *
 * The handler of SIGBUS runs in the thread that touched the page.  That thread was reading weights,
 * in a kernel or a checksum, so it holds no lock and is inside no function of the C library that
 * the log uses: the line is logged as any other, and awaited. */
#include "main.h"

#include <poll.h>
#include <unistd.h>

/* A handler takes no context. */
static struct {
    const struct srv_models *models; /* NULL: none is watched */
    const char *directory;
    struct srv_log *log;
    atomic_bool ending; /* a thread has begun to end the process */
} watched;

/* Several threads come here where they compute together; the first one ends the process. */
static void end(const struct srv_model *model)
{
    while (atomic_exchange(&watched.ending, true))
        (void)poll(NULL, 0, -1);
    srv_log_event(
        watched.log, SRV_LOG_ERROR, "weights",
        "model %s: its file of weights in %.200s can no longer be read: it was cut short, "
        "or its disk is gone; attnd ends",
        model->name, watched.directory);
    srv_log_flush(watched.log);
    _exit(1);
}

/* Any other address is none of weights: the access is repeated, and ends the process as ever. */
static void handle_sigbus(int signal_number, siginfo_t *info, void *context)
{
    const struct srv_models *models = watched.models;
    (void)context;
    for (size_t i = 0; models != NULL && i < models->count; i++)
        if (attn_model_maps(models->items[i].attn, info->si_addr))
            end(&models->items[i]);
    signal(signal_number, SIG_DFL);
}

void srv_mapped_watch(const struct srv_models *models, const char *directory, struct srv_log *log)
{
    struct sigaction action = {.sa_sigaction = handle_sigbus, .sa_flags = SA_SIGINFO};
    watched.models = models;
    watched.directory = directory;
    watched.log = log;
    sigaction(SIGBUS, &action, NULL);
}

void srv_mapped_forget(void)
{
    signal(SIGBUS, SIG_DFL);
    watched.models = NULL;
}

void srv_mapped_check(void)
{
    const struct srv_models *models = watched.models;
    for (size_t i = 0; models != NULL && i < models->count; i++)
        if (!attn_model_is_whole(models->items[i].attn))
            end(&models->items[i]);
}
