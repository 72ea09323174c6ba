/* versions.c: looks at the heads of all files before a start reads or changes any. */
#include "store/versions.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/identity.h"
#include "store/record.h"

#define HEAD ((size_t)4 << 10) /* bytes that are read of a file */

/* Whether the version is another than the one that is read; 0 is none. */
static bool name_version(char out[SRV_VERSION_TEXT], uint64_t version, unsigned read)
{
    snprintf(out, SRV_VERSION_TEXT, "version %llu, and this build of attnd reads version %u",
             (unsigned long long)version, read);
    return version != 0 && version != read;
}

bool srv_version_is_other(char out[SRV_VERSION_TEXT], struct srv_file_reader *reader,
                          const struct srv_file *file)
{
    if (file->kind == SRV_FILE_FORMER) {
        snprintf(
            out, SRV_VERSION_TEXT,
            "an older form, with a file for each session, and this build of attnd reads blocks");
        return true;
    }
    return file->kind != SRV_FILE_UNFINISHED && file->kind != SRV_FILE_BLOCKS &&
           name_version(out, srv_journal_version(reader), SRV_JOURNAL_VERSION);
}

static bool refuse(char *message, size_t size, const char *path, const char *name, const char *what)
{
    snprintf(message, size,
             "state_dir %s: %s is of %s: start the build that wrote it; no file was changed", path,
             name, what);
    return false;
}

/* False, with `what`, where the file is of another version. */
static bool is_known(char what[SRV_VERSION_TEXT], int directory, const struct srv_file *file)
{
    struct srv_file_reader reader;
    if (!srv_file_reader_open(&reader, directory, file->name))
        return true;
    reader.room = HEAD;
    const bool other = srv_version_is_other(what, &reader, file);
    srv_file_reader_close(&reader);
    return !other;
}

bool srv_versions_are_known(int directory, const char *path, char *message, size_t size)
{
    char what[SRV_VERSION_TEXT];
    struct srv_identity identity;
    struct srv_file *files;
    size_t count;
    bool known = true;
    if (srv_identity_read(&identity, directory, what, sizeof what) == SRV_IDENTITY_LATER)
        return refuse(message, size, path, SRV_IDENTITY_FILE, what);
    if (!srv_files_list(&files, &count, directory))
        return true;
    for (size_t i = 0; i < count && known; i++)
        known = is_known(what, directory, &files[i]) ||
                refuse(message, size, path, files[i].name, what);
    free(files);
    return known;
}
