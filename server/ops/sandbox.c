/* sandbox.c: landlock early, seccomp late.
 *
 * Landlock restricts a thread and the threads it starts later, so it is set before any is started.
 * Models have not been read by then, and their files may be anywhere (links lead out of their
 * directories): so landlock restricts writing alone.  The filter of system calls (seccomp) reaches
 * all threads, and is set when nothing is left to open but files of the state directory.  The
 * filter answers EPERM and does not kill: a harmless call that a later C library makes costs no
 * session, and an intruder's call is refused all the same. */
#include "ops/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basics/mem.h"

#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14) /* version 3 */
#endif

/* ---- Support in the kernel ------------------------------------------------------------------- */

/* The version of landlock's interface; 0: the kernel has none. */
static int landlock_version(void)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version > 0 ? (int)version : 0;
}

bool srv_sandbox_describe(char out[SRV_SANDBOX_TEXT_MAX])
{
    int version = landlock_version();
    bool filters = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 && seccomp_api_get() >= 2;
    const char *seccomp = filters ? "seccomp" : "no seccomp";
    if (version > 0)
        snprintf(out, SRV_SANDBOX_TEXT_MAX, "%s, landlock (version %d)", seccomp, version);
    else
        snprintf(out, SRV_SANDBOX_TEXT_MAX, "%s, no landlock", seccomp);
    return filters;
}

static bool fail_call(char *message, const char *what, int error)
{
    return srv_refuse(message, "sandbox: %s: %s", what, strerror(error));
}

/* ---- Landlock -------------------------------------------------------------------------------- */

/* The rights that exist only within the directories of the daemon: all but reading. */
static uint64_t write_rights(int version)
{
    uint64_t all =
        LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
        LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
        LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
        LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
    return all | (version >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0) |
           (version >= 3 ? LANDLOCK_ACCESS_FS_TRUNCATE : 0);
}

static bool allow_directory(int rules, const char *path, uint64_t handled)
{
    const uint64_t files = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                           LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_TRUNCATE;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return false;
    int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return false;
    struct landlock_path_beneath_attr beneath = {.allowed_access = files & handled,
                                                 .parent_fd = directory};
    bool allowed =
        syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0;
    int error = errno;
    close(directory);
    errno = error;
    return allowed;
}

bool srv_sandbox_restrict_files(const char *const directories[], size_t count,
                                char message[SRV_MESSAGE_MAX])
{
    char words[SRV_SANDBOX_TEXT_MAX];
    int version = landlock_version();
    if (!srv_sandbox_describe(words))
        return fail_call(message, "this kernel filters no system calls", ENOSYS);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_call(message, "no new privileges", errno);
    if (version == 0)
        return true;
    struct landlock_ruleset_attr ruleset = {.handled_access_fs = write_rights(version)};
    int rules =
        (int)syscall(SYS_landlock_create_ruleset, &ruleset, sizeof ruleset.handled_access_fs, 0);
    if (rules < 0)
        return fail_call(message, "landlock", errno);
    bool locked = true;
    for (size_t i = 0; i < count && locked; i++)
        if (!allow_directory(rules, directories[i], ruleset.handled_access_fs))
            locked = fail_call(message, directories[i], errno);
    if (locked && syscall(SYS_landlock_restrict_self, rules, 0) != 0)
        locked = fail_call(message, "landlock", errno);
    close(rules);
    return locked;
}

/* ---- System calls ---------------------------------------------------------------------------- */

/* The calls that serving, saving and stopping need.  None of them starts a process or a program, or
 * opens a connection. */
static const int allowed[] = {
    /* memory */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
    /* threads and time */
    SCMP_SYS(futex), SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity), SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq), SCMP_SYS(gettid), SCMP_SYS(getpid), SCMP_SYS(getcpu), SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep), SCMP_SYS(gettimeofday), SCMP_SYS(time),
    SCMP_SYS(restart_syscall), SCMP_SYS(exit), SCMP_SYS(exit_group),
    /* signals */
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait), SCMP_SYS(sigaltstack),
    /* connections */
    SCMP_SYS(socketpair), SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg), SCMP_SYS(sendto), SCMP_SYS(sendmsg), SCMP_SYS(shutdown),
    SCMP_SYS(getsockopt), SCMP_SYS(setsockopt), SCMP_SYS(getsockname), SCMP_SYS(getpeername),
    SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    /* open files */
    SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(pread64), SCMP_SYS(write), SCMP_SYS(writev),
    SCMP_SYS(pwrite64), SCMP_SYS(lseek), SCMP_SYS(fstat), SCMP_SYS(newfstatat),
    SCMP_SYS(getdents64), SCMP_SYS(fcntl), SCMP_SYS(dup), SCMP_SYS(close), SCMP_SYS(fsync),
    SCMP_SYS(fdatasync), SCMP_SYS(ftruncate), SCMP_SYS(fallocate), SCMP_SYS(flock),
    /* random numbers, and facts about the system */
    SCMP_SYS(getrandom), SCMP_SYS(sysinfo), SCMP_SYS(uname)};

/* Calls that name a file by a directory and a name, allowed for the state directory alone. */
static const int named[] = {SCMP_SYS(openat), SCMP_SYS(unlinkat), SCMP_SYS(renameat),
                            SCMP_SYS(renameat2)};

static int add_rules(scmp_filter_ctx filter, const int directories[], size_t count, bool reads)
{
    const uint64_t change = O_ACCMODE | O_CREAT | O_TRUNC;
    const struct {
        int call;
        struct scmp_arg_cmp argument; /* with which it is allowed */
    } compared[] = {
        {SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid())},
        {SCMP_SYS(mmap), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)},
        {SCMP_SYS(mprotect), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)},
        {SCMP_SYS(openat), SCMP_A2(SCMP_CMP_MASKED_EQ, change, O_RDONLY)}}; /* where `reads` */
    int wrong = 0;
    for (size_t i = 0; i < ATTN_COUNT(allowed) && wrong == 0; i++)
        wrong = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < ATTN_COUNT(named) && wrong == 0; i++)
            wrong =
                seccomp_rule_add(filter, SCMP_ACT_ALLOW, named[i], 1,
                                 SCMP_A0(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)directories[k]));
    for (size_t i = 0; i < ATTN_COUNT(compared) - (reads ? 0 : 1) && wrong == 0; i++)
        wrong = seccomp_rule_add(filter, SCMP_ACT_ALLOW, compared[i].call, 1, compared[i].argument);
    return wrong;
}

bool srv_sandbox_restrict_calls(const int directories[], size_t count, bool reads,
                                char message[SRV_MESSAGE_MAX])
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (filter == NULL)
        return fail_call(message, "seccomp", ENOMEM);
    int wrong = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (wrong == 0)
        wrong = add_rules(filter, directories, count, reads);
    if (wrong == 0)
        wrong = seccomp_load(filter);
    seccomp_release(filter);
    return wrong == 0 || fail_call(message, "seccomp", -wrong);
}
