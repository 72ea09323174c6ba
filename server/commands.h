/* commands.h: what attnd does instead of serving; each returns the process's exit status. */
#ifndef SRV_COMMANDS_H
#define SRV_COMMANDS_H

#include "config/config.h"

int srv_command_help(void);
int srv_command_version(void);

/* Reads the models' headers and prints options, fitted to the memory that there is, models and what
 * serving may take of it. */
int srv_command_check(struct srv_config *config);

/* Asks GET /readyz of the daemon at the configured address: 0 where it answers 200 within
 * SRV_HEALTH_SECONDS, else 1 with a line on standard error. */
#define SRV_HEALTH_SECONDS 3
int srv_command_health(const struct srv_config *config);

/* The http:// or https:// address of the configured host and a port, an IPv6 host in brackets. */
#define SRV_URL_MAX 80
void srv_print_url(char out[SRV_URL_MAX], const struct srv_config *config, unsigned port);

#endif
