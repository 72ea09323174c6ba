/* owner.c: the owner of a path that may not be used, and the command that helps.
 *
 * Modes are compared and nothing is opened to try it, since a sandbox may be in force.  Groups
 * beside the effective one are not looked at: this is asked only after a call was refused. */
#include "base/owner.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static bool keeps_out(const struct stat *file, enum srv_owner_use use)
{
    const mode_t enter = S_ISDIR(file->st_mode) ? S_IXOTH : 0, others = (mode_t)use | enter;
    const mode_t mode = file->st_gid == getegid() ? file->st_mode >> 3 : file->st_mode;
    return geteuid() != 0 && file->st_uid != geteuid() && (mode & others) != others;
}

/* Whether one of the directory's files does; *out is then that one. */
static bool find_in(struct stat *out, const char *path, enum srv_owner_use use)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    bool found = false;
    while (directory != NULL && !found && (entry = readdir(directory)) != NULL)
        found = fstatat(dirfd(directory), entry->d_name, out, 0) == 0 && !S_ISDIR(out->st_mode) &&
                keeps_out(out, use);
    if (directory != NULL)
        closedir(directory);
    return found;
}

static bool is_tmpfs(const char *path, const struct stat *about)
{
    char above[SRV_OWNER_TEXT];
    struct statfs system;
    struct stat parent;
    snprintf(above, sizeof above, "%s/..", path);
    return statfs(path, &system) == 0 && system.f_type == TMPFS_MAGIC &&
           stat(above, &parent) == 0 && parent.st_dev != about->st_dev;
}

void srv_owner_remedy(char out[SRV_OWNER_TEXT], const char *path, enum srv_owner_use use)
{
    struct stat about, owned;
    const unsigned user = geteuid();
    out[0] = '\0';
    if (stat(path, &about) != 0)
        return;
    const bool directory = S_ISDIR(about.st_mode);
    owned = about;
    if (!keeps_out(&about, use) && !(directory && find_in(&owned, path, use)))
        return;
    int length =
        snprintf(out, SRV_OWNER_TEXT,
                 ": user %u owns it and attnd runs as user %u: ", (unsigned)owned.st_uid, user);
    if (directory && is_tmpfs(path, &about))
        snprintf(out + length, SRV_OWNER_TEXT - (size_t)length,
                 "mount that tmpfs with uid=%u,mode=0700", user);
    else
        snprintf(out + length, SRV_OWNER_TEXT - (size_t)length, "chown %s%u %.300s",
                 directory ? "-R " : "", user, path);
}
