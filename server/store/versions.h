/* versions.h: files of a state directory whose form this build does not know.
 *
 * A build knows files of a later one as such, since some of each stays where it is: the magic,
 * version and checksum at the beginning of a journal and of a manifest; and an identity of another
 * form gets a member `version`.  Such files are neither read nor set aside, nor are those of a
 * directory that has a file for each session. */
#ifndef SRV_STORE_VERSIONS_H
#define SRV_STORE_VERSIONS_H

#include "store/store_files.h"

#define SRV_VERSION_TEXT 128

/* Whether the file is sound, as far as can be told, and of a version that this build does not read;
 * `out` then says which the file has and which are read: "version 9, and this build ...".  False
 * also where the file cannot be read. */
bool srv_version_is_other(char out[SRV_VERSION_TEXT], struct srv_file_reader *reader,
                          const struct srv_file *file);

/* Whether no file of the directory, a descriptor, is of such a version; else `message` is one line
 * that says which file of `path` is, and what to do.  Changes nothing; what cannot be read is left
 * to whoever reads it. */
bool srv_versions_are_known(int directory, const char *path, char *message, size_t size);

#endif
