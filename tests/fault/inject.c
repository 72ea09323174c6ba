/* inject.c: the harness's side of the shared page. */
#include "inject.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

struct figures figures;
static struct fault_page *page;
static char variable[64];

static const char *const names[FAULT_KINDS] = {"memory", "transport", "open",   "write",  "short",
                                               "sync",   "rename",    "accept", "thread", "other"};

bool inject_open(void)
{
    int fd = memfd_create("fault", 0); /* no MFD_CLOEXEC: the daemon inherits it */
    if (fd < 0 || ftruncate(fd, sizeof *page) != 0)
        return false;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return false;
    snprintf(variable, sizeof variable, "%s=%d", FAULT_VARIABLE, fd);
    inject_disarm();
    return true;
}

void inject_daemon(struct daemon *daemon, const char *config, const char *const arguments[])
{
    const char *const variables[] = {variable, NULL};
    atomic_store(&page->blocks, 0);
    daemon_start(daemon, config, arguments, variables);
}

void inject_process(struct process *process, const char *const arguments[])
{
    const char *const variables[] = {variable, NULL};
    atomic_store(&page->blocks, 0);
    process_start(process, arguments, variables);
}

static void arm(struct armed_fault *armed, const struct fault *fault)
{
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        atomic_store(&armed->calls[kind], 0);
    atomic_store(&armed->failed, 0);
    if (fault == NULL)
        return;
    atomic_store(&armed->at, fault->at);
    atomic_store(&armed->lasting, fault->lasting);
    atomic_store(&armed->kind, (int)fault->kind);
}

void inject_arm(const struct fault *fault)
{
    arm(&page->faults[1], fault != NULL ? fault->then : NULL);
    arm(&page->faults[0], fault);
}

void inject_disarm(void)
{
    for (int i = 0; i < 2; i++) {
        atomic_store(&page->faults[i].kind, FAULT_KINDS);
        atomic_store(&page->faults[i].at, 0);
    }
}

bool inject_fired(void) { return atomic_load(&page->faults[0].failed) > 0; }
bool inject_second_fired(void) { return atomic_load(&page->faults[1].failed) > 0; }

void inject_counts(uint64_t out[FAULT_KINDS], bool second)
{
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        out[kind] = atomic_load(&page->faults[second].calls[kind]);
}

int64_t inject_blocks(void) { return atomic_load(&page->blocks); }

bool inject_next(struct fault *fault, const uint64_t counts[FAULT_KINDS], unsigned step)
{
    fault->at += fault->at == 0 ? 1 + (unsigned)fault->kind % step : step;
    while (fault->at > counts[fault->kind]) {
        if (fault->lasting && fault->kind + 1 == FAULT_KINDS)
            return false;
        fault->kind += fault->lasting;
        fault->lasting = !fault->lasting;
        fault->at = 1 + ((unsigned)fault->kind + fault->lasting) % step;
    }
    return true;
}

void inject_wrong(const char *scene, const struct fault *fault, const char *format, ...)
{
    va_list arguments;
    figures.wrong++;
    fprintf(stderr, "fault: %s, ", scene);
    for (; fault->then != NULL; fault = fault->then)
        fprintf(stderr, "%s %llu%s, then ", names[fault->kind], (unsigned long long)fault->at,
                fault->lasting ? " and on" : "");
    fprintf(stderr, "%s %llu%s (+0x%llx): ", names[fault->kind], (unsigned long long)fault->at,
            fault->lasting ? " and on" : "",
            (unsigned long long)atomic_load(&page->faults[0].caller));
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}
