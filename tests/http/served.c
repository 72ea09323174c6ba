/* served.c: a daemon and a connection for the length of a test. */
#include "served.h"

#include <stdio.h>

struct daemon served;
struct client client;

void serve(const char *config)
{
    daemon_start(&served, config, NULL, NULL);
    client_open(&client, &served);
}

void serve_small(void) { serve(CONFIG_SMALL("")); }

void serve_keys(const char *config, const char *keys_path)
{
    char variable[96];
    const char *const variables[] = {variable, NULL};
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", keys_path);
    daemon_start(&served, config, NULL, variables);
    client_open(&client, &served);
}

void serve_state(const char *config, const char *directory, const char *durability)
{
    const char *const arguments[] = {"--state-dir", directory, "--durability", durability, NULL};
    daemon_start(&served, config, arguments, NULL);
    client_open(&client, &served);
}

void serve_end(void)
{
    client_close(&client);
    daemon_stop(&served);
}

void serve_kill(void)
{
    client_close(&client);
    process_end(&served.process);
}
