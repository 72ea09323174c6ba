/* thread.h: starting threads, and why the system starts none; waiting for a time. */
#ifndef SRV_THREAD_H
#define SRV_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts a thread; false, with errno set to the cause, where that fails. */
bool srv_thread_start(pthread_t *out, void *(*run)(void *), void *argument);

/* Writes what to do, where errno is a cause for which no thread starts (attn_pool_open leaves it
 * too); otherwise leaves the message as it is. */
void srv_thread_explain(char *message, size_t size);

/* Makes a condition for which srv_cond_wait_until waits. */
void srv_cond_init(pthread_cond_t *condition);

/* Waits until the condition is signalled; false where srv_now_ns() has come to `until_ns`. */
bool srv_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns);

#endif
