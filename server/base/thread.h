/* thread.h: starting threads, and why the system starts none. */
#ifndef SRV_THREAD_H
#define SRV_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts a thread; false, with errno set to the cause, where that fails. */
bool srv_thread_start(pthread_t *out, void *(*run)(void *), void *argument);

/* Writes what to do, where errno is a cause for which no thread starts (attn_pool_open leaves it
 * too); otherwise leaves the message as it is. */
void srv_thread_explain(char *message, size_t size);

#endif
