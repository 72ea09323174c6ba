/* versions.c: looks at the heads of all files before a start reads or changes any. */
#include "store/versions.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "store/identity.h"

#define HEAD ((size_t)4 << 10) /* bytes that are read of a journal or a base */

/* Whether the version is another than the one that is read; 0 is none. */
static bool name_version(char out[SRV_VERSION_TEXT], uint64_t version, unsigned read)
{
    snprintf(out, SRV_VERSION_TEXT, "version %llu, and this build of attnd reads version %u",
             (unsigned long long)version, read);
    return version != 0 && version != read;
}

static bool is_other_journal(char out[SRV_VERSION_TEXT], struct srv_file_reader *reader)
{
    return name_version(out, srv_journal_version(reader), SRV_JOURNAL_VERSION);
}

static bool is_other_base(char out[SRV_VERSION_TEXT], struct srv_file_reader *reader)
{
    return name_version(out, srv_base_version(reader), SRV_BASE_VERSION);
}

static bool is_other_session(char out[SRV_VERSION_TEXT], struct srv_file_reader *reader)
{
    char format[ATTN_STATE_FORMAT];
    const bool other = attn_import_other_format(format, reader->fd, reader->size);
    if (other)
        snprintf(out, SRV_VERSION_TEXT,
                 "format %s, and this build of attnd reads " ATTN_STATE_FORMATS, format);
    return other;
}

bool srv_version_is_other(char out[SRV_VERSION_TEXT], struct srv_file_reader *reader,
                          const struct srv_file *file)
{
    static bool (*const checks[])(char *, struct srv_file_reader *) = {
        [SRV_FILE_JOURNAL] = is_other_journal,
        [SRV_FILE_SESSION] = is_other_session,
        [SRV_FILE_BASE] = is_other_base,
    };
    return file->kind != SRV_FILE_UNFINISHED && checks[file->kind](out, reader);
}

static bool refuse(char *message, size_t size, const char *path, const char *name, const char *what)
{
    snprintf(message, size,
             "state_dir %s: %s is of %s: start the build that wrote it; no file was changed", path,
             name, what);
    return false;
}

/* Whether the file was written before that moment. */
static bool is_older(int directory, const char *name, const struct timespec *than)
{
    struct stat file;
    if (fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    const struct timespec *at = &file.st_mtim;
    return at->tv_sec != than->tv_sec ? at->tv_sec < than->tv_sec : at->tv_nsec < than->tv_nsec;
}

/* False, with `what`, where the file is of another version.  *based is when the newest base was
 * written that is of a known one: that of the first such base that is looked at. */
static bool is_known(char what[SRV_VERSION_TEXT], struct timespec *based, int directory,
                     const struct srv_file *file)
{
    struct srv_file_reader reader;
    struct stat base;
    if ((file->kind == SRV_FILE_SESSION && is_older(directory, file->name, based)) ||
        !srv_file_reader_open(&reader, directory, file->name))
        return true;
    reader.room = HEAD;
    const bool other = srv_version_is_other(what, &reader, file);
    if (file->kind == SRV_FILE_BASE && !other && based->tv_sec == 0 &&
        srv_base_version(&reader) != 0 && fstat(reader.fd, &base) == 0)
        *based = base.st_mtim;
    srv_file_reader_close(&reader);
    return !other;
}

bool srv_versions_are_known(int directory, const char *path, char *message, size_t size)
{
    char what[SRV_VERSION_TEXT];
    struct srv_identity identity;
    struct srv_file *files;
    struct timespec based = {0};
    size_t count;
    bool known = true;
    if (srv_identity_read(&identity, directory, what, sizeof what) == SRV_IDENTITY_LATER)
        return refuse(message, size, path, SRV_IDENTITY_FILE, what);
    if (!srv_files_list(&files, &count, directory))
        return true;
    for (size_t i = count; i-- > 0 && known;) /* bases, sessions, journals; the newest first */
        known = is_known(what, &based, directory, &files[i]) ||
                refuse(message, size, path, files[i].name, what);
    free(files);
    return known;
}
