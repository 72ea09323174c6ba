/* identity.c: reads, writes and resolves the file `identity`. */
#include "store/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn_json.h"
#include "store/store_files.h"

#define BYTES_MAX 256 /* of the file, which has at most 75 and those of a person's editor */

static bool is_regular(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
}

/* Reads at most `size` bytes; -1 with errno. */
static ssize_t read_bytes(char *out, size_t size, int directory)
{
    int fd = openat(directory, SRV_IDENTITY_FILE, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    ssize_t length = fd >= 0 && is_regular(fd) ? pread(fd, out, size, 0) : -1;
    int error = fd >= 0 && length < 0 && !is_regular(fd) ? EINVAL : errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return length;
}

/* Whether the object is an identity, which *out then is. */
static bool take_identity(struct srv_identity *out, const json_t *root)
{
    const char *instance = json_string_value(json_object_get(root, "instance"));
    const char *generation = json_string_value(json_object_get(root, "generation"));
    if (json_object_size(root) != 2 || instance == NULL || generation == NULL ||
        !srv_instance_valid(instance) || !srv_generation_valid(generation))
        return false;
    snprintf(out->instance, sizeof out->instance, "%s", instance);
    snprintf(out->generation, sizeof out->generation, "%s", generation);
    return true;
}

enum srv_identity_status srv_identity_read(struct srv_identity *out, int directory, char *message,
                                           size_t size)
{
    char text[BYTES_MAX + 1];
    json_t *root = NULL;
    json_error_t why;
    ssize_t length = read_bytes(text, sizeof text, directory);
    if (length < 0 && errno == ENOENT)
        return SRV_IDENTITY_NONE;
    if (length < 0) {
        snprintf(message, size, "%s", strerror(errno));
        return SRV_IDENTITY_UNREADABLE;
    }
    if (length <= BYTES_MAX && attn_json_load(&root, text, (size_t)length, JSON_REJECT_DUPLICATES,
                                              &why) == ATTN_NO_MEMORY) {
        snprintf(message, size, "out of memory");
        return SRV_IDENTITY_UNREADABLE;
    }
    const bool sound = take_identity(out, root);
    const json_t *version = json_object_get(root, "version");
    const bool later = json_is_integer(version);
    if (later)
        snprintf(message, size, "version %lld, and this build of attnd reads files without one",
                 (long long)json_integer_value(version));
    json_decref(root);
    if (sound || later)
        return sound ? SRV_IDENTITY_SOUND : SRV_IDENTITY_LATER;
    snprintf(message, size, "it is not {\"instance\":NAME,\"generation\":5 letters and digits}");
    return SRV_IDENTITY_DAMAGED;
}

/* Writes the file, which appears whole and on the disk, or not at all.  False with errno. */
static bool write_identity(int directory, const struct srv_identity *identity)
{
    char text[BYTES_MAX];
    int length = snprintf(text, sizeof text, "{\"instance\":\"%s\",\"generation\":\"%s\"}\n",
                          identity->instance, identity->generation);
    int fd = srv_file_begin(directory, SRV_IDENTITY_FILE);
    if (fd < 0)
        return false;
    ssize_t written = write(fd, text, (size_t)length);
    if (written != length) {
        errno = written < 0 ? errno : ENOSPC;
        srv_file_abandon(directory, fd, SRV_IDENTITY_FILE);
        return false;
    }
    return srv_file_finish(directory, fd, SRV_IDENTITY_FILE, true) && srv_sync_directory(directory);
}

static bool refuse_unread(enum srv_identity_status status, const char *path, const char *why,
                          char *message, size_t size)
{
    snprintf(message, size, "state_dir %s: %s %s: %s%s", path, SRV_IDENTITY_FILE,
             status == SRV_IDENTITY_DAMAGED ? "is damaged" : "cannot be read", why,
             status == SRV_IDENTITY_DAMAGED
                 ? ": put it back (ids of the sessions begin with NAME, a point and the 5), or "
                   "remove it, and it is made anew"
                 : "");
    return false;
}

/* Checks as srv_identity_check does; *status says what was found. */
static bool check(enum srv_identity_status *status, struct srv_identity *identity, int directory,
                  const char *path, enum srv_naming naming, char *message, size_t size)
{
    struct srv_identity found;
    char why[128];
    *status = srv_identity_read(&found, directory, why, sizeof why);
    if (*status == SRV_IDENTITY_NONE && naming == SRV_NAME_HELD)
        snprintf(message, size,
                 "state_dir %s: it has no identity: start it once with --state-dir %s and "
                 "--instance NAME, by which its sessions were made",
                 path, path);
    if (*status == SRV_IDENTITY_NONE)
        return naming != SRV_NAME_HELD;
    if (*status != SRV_IDENTITY_SOUND)
        return refuse_unread(*status, path, why, message, size);
    if (naming == SRV_NAME_GIVEN && strcmp(found.instance, identity->instance) != 0) {
        snprintf(message, size,
                 "state_dir %s: its sessions are those of the instance %s, and instance is %s: "
                 "give --instance %s, or another --state-dir and --adopt %s",
                 path, found.instance, identity->instance, found.instance, path);
        return false;
    }
    *identity = found;
    return true;
}

bool srv_identity_check(struct srv_identity *identity, int directory, const char *path,
                        enum srv_naming naming, char *message, size_t size)
{
    enum srv_identity_status status;
    return check(&status, identity, directory, path, naming, message, size);
}

bool srv_identity_resolve(struct srv_identity *identity, int directory, const char *path,
                          enum srv_naming naming, char *message, size_t size)
{
    enum srv_identity_status status;
    if (!check(&status, identity, directory, path, naming, message, size))
        return false;
    if (status == SRV_IDENTITY_SOUND || naming == SRV_NAME_NONE ||
        write_identity(directory, identity))
        return true;
    snprintf(message, size, "state_dir %s: %s cannot be written: %s", path, SRV_IDENTITY_FILE,
             strerror(errno));
    return false;
}
