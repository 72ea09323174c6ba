/* weights_directory.c: names, lock and notes of packed weights.
 *
 * The directory itself is locked (flock), so there is no file of a lock to leave behind.  A file of
 * weights is in use while a process holds a shared lock on it. */
#include "layers/weights_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "basics/status.h"

#define KEY_DIGITS 32 /* of the key, in a name */
#define SUFFIX ".weights"
#define NOTE_SUFFIX ".note"
#define POLL_NS 20000000
#define POLLS_A_SECOND (1000000000 / POLL_NS)
#define NOTE_MAX 2048
#define LINE_MAX_BYTES 96

/* Errors: ATTN_UNSUPPORTED. */
static enum attn_status check_writers(const struct stat *info, const char *path,
                                      struct attn_error *error)
{
    if ((info->st_mode & S_IWOTH) != 0)
        return attn_fail(error, ATTN_UNSUPPORTED, "weights_cache",
                         "weights_cache: every user may write to %.160s, and so choose results: "
                         "take that right away (chmod o-w)",
                         path);
    if (info->st_uid != 0 && info->st_uid != geteuid())
        return attn_fail(error, ATTN_UNSUPPORTED, "weights_cache",
                         "weights_cache: %.160s belongs to user %ju, who could choose results: "
                         "chown it to user %ju, as which attnd runs, or to root",
                         path, (uintmax_t)info->st_uid, (uintmax_t)geteuid());
    return ATTN_OK;
}

enum attn_status attn_weights_directory_open(int *out, const char *path, bool make,
                                             struct attn_error *error)
{
    struct stat info;
    char text[64];
    if (make)
        (void)mkdir(path, 0700);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fstat(directory, &info) != 0) {
        int code = errno;
        if (directory >= 0)
            close(directory);
        return attn_fail(error, ATTN_IO, "weights_cache", "weights_cache: %.160s: %s", path,
                         strerror_r(code, text, sizeof text));
    }
    enum attn_status status = check_writers(&info, path, error);
    if (status != ATTN_OK)
        close(directory);
    else
        *out = directory;
    return status;
}

enum attn_status attn_weights_lock(int directory, struct attn_error *error)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    char text[64];
    for (int i = 0; i < ATTN_WEIGHTS_WAIT_S * POLLS_A_SECOND; i++) {
        if (flock(directory, LOCK_EX | LOCK_NB) == 0)
            return ATTN_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return attn_fail(error, ATTN_IO, "weights_cache", "the directory cannot be locked: %s",
                             strerror_r(errno, text, sizeof text));
        (void)nanosleep(&pause, NULL);
    }
    return attn_fail(error, ATTN_IO, "weights_cache",
                     "another process has been writing to the directory for %d s",
                     ATTN_WEIGHTS_WAIT_S);
}

void attn_weights_print_name(char out[ATTN_WEIGHTS_NAME_MAX], const char *label,
                             const char key[ATTN_CHECKSUM_DIGITS])
{
    snprintf(out, ATTN_WEIGHTS_NAME_MAX, "%.*s.%.*s" SUFFIX, ATTN_WEIGHTS_LABEL_MAX, label,
             KEY_DIGITS, key);
}

/* ---- Files that nobody uses ---- */

/* The rest of a name after LABEL.KEY.weights; NULL where the name does not begin so. */
static const char *rest_of(const char *name, const char *label)
{
    const size_t length = strlen(label), whole = length + 1 + KEY_DIGITS + strlen(SUFFIX);
    if (strlen(name) < whole || strncmp(name, label, length) != 0 || name[length] != '.' ||
        strspn(name + length + 1, "0123456789abcdef") != KEY_DIGITS ||
        strncmp(name + length + 1 + KEY_DIGITS, SUFFIX, strlen(SUFFIX)) != 0)
        return NULL;
    return name + whole;
}

static void remove_unused(int directory, const char *name)
{
    char note[ATTN_WEIGHTS_NAME_MAX + sizeof NOTE_SUFFIX];
    int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
        snprintf(note, sizeof note, "%s" NOTE_SUFFIX, name);
        (void)unlinkat(directory, name, 0);
        (void)unlinkat(directory, note, 0);
    }
    close(file);
}

void attn_weights_tidy(int directory, const char *label, const char *keep)
{
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    if (list == NULL) {
        if (copy >= 0)
            close(copy);
        return;
    }
    for (const struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        const char *rest = rest_of(entry->d_name, label);
        if (rest == NULL || strcmp(rest, NOTE_SUFFIX) == 0)
            continue;
        if (rest[0] != '\0')
            (void)unlinkat(directory, entry->d_name, 0);
        else if (strcmp(entry->d_name, keep) != 0)
            remove_unused(directory, entry->d_name);
    }
    closedir(list);
}

/* ---- Notes ---- */

/* Reads the note; "" where there is none, or one that no process of ours has written. */
static void read_note(char out[NOTE_MAX], int directory, const char *name)
{
    char note[ATTN_WEIGHTS_NAME_MAX + sizeof NOTE_SUFFIX];
    struct stat info;
    ssize_t got = 0;
    snprintf(note, sizeof note, "%s" NOTE_SUFFIX, name);
    int file = openat(directory, note, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
        (info.st_mode & S_IWOTH) == 0)
        got = read(file, out, NOTE_MAX - 1);
    out[got > 0 ? got : 0] = '\0';
    if (file >= 0)
        close(file);
}

static void print_line(char out[LINE_MAX_BYTES], const char *fact,
                       const char digest[ATTN_CHECKSUM_DIGITS])
{
    snprintf(out, LINE_MAX_BYTES, "%.16s %.*s\n", fact, ATTN_CHECKSUM_DIGITS, digest);
}

bool attn_weights_noted(int directory, const char *name, const char *fact,
                        const char digest[ATTN_CHECKSUM_DIGITS])
{
    char text[NOTE_MAX], line[LINE_MAX_BYTES];
    read_note(text, directory, name);
    print_line(line, fact, digest);
    const char *found = strstr(text, line);
    return found != NULL && (found == text || found[-1] == '\n');
}

/* The last lines of a note are kept, as many as leave room for one more. */
void attn_weights_note(int directory, const char *name, const char *fact,
                       const char digest[ATTN_CHECKSUM_DIGITS])
{
    char text[NOTE_MAX + LINE_MAX_BYTES], note[ATTN_WEIGHTS_NAME_MAX + sizeof NOTE_SUFFIX];
    char fresh[sizeof note + 16];
    if (attn_weights_noted(directory, name, fact, digest))
        return;
    read_note(text, directory, name);
    size_t used = strlen(text);
    print_line(text + used, fact, digest);
    const char *first = text, *next;
    for (used = strlen(text); used > NOTE_MAX - 1; used -= (size_t)(next - first), first = next)
        if ((next = strchr(first, '\n')) == NULL || *++next == '\0')
            return;
    snprintf(note, sizeof note, "%s" NOTE_SUFFIX, name);
    snprintf(fresh, sizeof fresh, "%s.%ld", note, (long)getpid());
    int file = openat(directory, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    struct stat info;
    bool written = write(file, first, used) == (ssize_t)used && fstat(directory, &info) == 0 &&
                   fchmod(file, 0600 | (info.st_mode & 0044)) == 0;
    close(file);
    if (!written || renameat(directory, fresh, directory, note) != 0)
        (void)unlinkat(directory, fresh, 0);
}
