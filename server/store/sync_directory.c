/* sync_directory.c: names reach the disk.
 *
 * Some file systems (CIFS, sshfs, vboxsf) have no way to flush a directory and say EINVAL.
 * Nothing was lost then, and nobody could do more, so as in PostgreSQL that is no failure. */
#include <errno.h>
#include <unistd.h>

#include "store/store_files.h"

bool srv_sync_directory(int directory)
{
    errno = 0;
    return fsync(directory) == 0 || errno == EINVAL;
}
