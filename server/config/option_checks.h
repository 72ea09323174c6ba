/* option_checks.h: which texts an option may have, where not every text will do. */
#ifndef SRV_OPTION_CHECKS_H
#define SRV_OPTION_CHECKS_H

#include <stdbool.h>

bool srv_host_valid(const char *text); /* localhost, or a numeric address */

/* Lists separated by commas, of SRV_LISTED_MAX characters an entry at most. */
bool srv_hosts_valid(const char *text);   /* names without ports */
bool srv_adopted_valid(const char *text); /* names of directories, SRV_MAX_ADOPTED at most */
bool srv_origins_valid(const char *text); /* as a browser writes them in Origin */

#endif
