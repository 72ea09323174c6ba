/* served.c: a daemon and a connection for the length of a test. */
#include "served.h"

struct daemon served;
struct client client;

void serve(const char *config)
{
    daemon_start(&served, config, NULL, NULL);
    client_open(&client, &served);
}

void serve_small(void) { serve(CONFIG_SMALL("")); }

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
