/* commands.h: what attnd can do instead of serving.  Each command returns the exit status. */
#ifndef SRV_COMMANDS_H
#define SRV_COMMANDS_H

#include "config/config.h"

int srv_command_help(void);
int srv_command_version(void);

/* Reads the models' headers and prints the options, fitted to the memory limit, the models, and an
 * upper bound on the memory that serving takes. */
int srv_command_check(struct srv_config *config);

/* Sends GET /readyz to the daemon at the configured address: 0 where the answer is 200 within
 * SRV_HEALTH_SECONDS, else 1 with a line on standard error.  The process's SIGALRM is used. */
#define SRV_HEALTH_SECONDS 3
int srv_command_health(const struct srv_config *config);

/* Writes the http:// or https:// URL of the configured host and a port, an IPv6 host in
 * brackets. */
#define SRV_URL_MAX 80
void srv_print_url(char out[SRV_URL_MAX], const struct srv_config *config, unsigned port);

#endif
