/* owner.h: what to do about a path that another user owns, as mounts into a container often are. */
#ifndef SRV_OWNER_H
#define SRV_OWNER_H

#include <stddef.h>

enum srv_owner_use { SRV_OWNER_READ = 4, SRV_OWNER_WRITE = 2 };

/* Prints ": user 0 owns it and attnd runs as user 65532: chown -R 65532 PATH" where `path`, or a
 * file in that directory, is another user's and its mode keeps this one from that use; else "". */
#define SRV_OWNER_TEXT 512
void srv_owner_remedy(char out[SRV_OWNER_TEXT], const char *path, enum srv_owner_use use);

#endif
