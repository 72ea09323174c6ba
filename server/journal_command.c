/* journal_command.c: attnd journal check|salvage DIR.
 *
 * Both hold the directory's lock, so that no daemon changes the files meanwhile.  `check` needs no
 * configuration and changes nothing. */
#include "journal_command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "store/store_check.h"

#define TEXT_MAX ((size_t)64 << 20) /* of what is printed: a line for each file */

static const char usage[] = "attnd journal check DIR\n"
                            "attnd journal salvage DIR [--config FILE] [OPTION ...]";

static int fail(const char *path, const char *what)
{
    fprintf(stderr, "attnd: journal: %s%s%s\n", path, path[0] != '\0' ? ": " : "", what);
    return 1;
}

/* Opens the directory and locks it, as far as it has a lock file.  False with the reason in
 * *why. */
static bool open_directory(int *directory, int *lock_file, const char **why, const char *path)
{
    *lock_file = -1;
    *directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*directory >= 0)
        *lock_file = openat(*directory, "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool opened = *directory >= 0 && (*lock_file >= 0 || errno == ENOENT);
    bool locked = opened && (*lock_file < 0 || flock(*lock_file, LOCK_EX | LOCK_NB) == 0);
    *why = locked                           ? ""
           : opened && errno == EWOULDBLOCK ? "a running attnd uses it: stop that first"
                                            : strerror(errno);
    return locked;
}

static void close_directory(int directory, int lock_file)
{
    if (lock_file >= 0)
        close(lock_file);
    if (directory >= 0)
        close(directory);
}

static int print_check(const char *path, const struct srv_store_check *check,
                       const struct srv_buffer *text)
{
    fwrite(text->data, 1, text->length, stdout);
    printf("%s: %zu files, %zu damaged; %zu were set aside\n", path, check->files, check->damaged,
           check->set_aside);
    if (check->damaged > 0 || check->set_aside > 0)
        printf("attnd journal salvage %s --config FILE saves what can be saved of them\n", path);
    return check->damaged > 0 || check->set_aside > 0 || text->failed || fflush(stdout) != 0;
}

static int run_check(const char *path)
{
    char message[SRV_STORE_CHECK_MESSAGE];
    const char *why;
    int directory, lock_file, status = 1;
    struct srv_store_check check;
    struct srv_buffer text;
    if (!open_directory(&directory, &lock_file, &why, path)) {
        close_directory(directory, lock_file);
        return fail(path, why);
    }
    srv_buffer_init(&text, TEXT_MAX);
    if (srv_store_check(&check, &text, directory, message))
        status = print_check(path, &check, &text);
    else
        fail(path, message);
    srv_buffer_fini(&text);
    close_directory(directory, lock_file);
    return status;
}

int srv_command_journal(int argc, char *const argv[])
{
    if (argc == 2 && strcmp(argv[0], "check") == 0)
        return run_check(argv[1]);
    fail("", usage);
    return 2;
}
