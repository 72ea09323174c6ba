/* reply.h: replies judged by their bytes. */
#ifndef TESTS_FRAMING_REPLY_H
#define TESTS_FRAMING_REPLY_H

#include <stdbool.h>

#include "message.h"
#include "raw.h"

/* Whether the reply has the form that all replies of attnd have: one status line, fields that are
 * each there once, one head, as many bytes of body as Content-Length says, JSON where it says so.
 * Otherwise `wrong` receives why. */
bool reply_is_sound(char wrong[200], const struct raw_answer *reply, bool head_only);

/* Whether attnd has written the reply; a proxy has written any other. */
bool reply_is_attnds(const struct raw_answer *reply);

/* Whether the reply refuses a head for its form: not for its route, type or body, for which attnd
 * would have taken the head for a request's. */
bool reply_refuses_head(const struct raw_answer *reply);

/* Whether the reply says that it is the connection's last one. */
bool reply_is_last(const struct raw_answer *reply);

/* Adds the reply's bytes without what differs from one exchange to the next: date, times, request
 * id, Connection.  `order`: the fields stay in their order, with their names' case and the line's
 * version; otherwise they are sorted, since proxies write heads anew. */
void reply_mask(struct text *out, const struct raw_answer *reply, bool order);

/* Opens a connection to 127.0.0.1, over TLS or not. */
void reply_open(struct raw *raw, unsigned port, bool tls);

/* Sends the same request alone, with a length instead of chunks, over a connection of its own, and
 * returns the reply.  The request id is 'r' as often as `id` says. */
struct raw_answer reply_alone(const struct message *message, size_t id, unsigned port, bool tls);

#define REPLY_TIMEOUT_MS 30000
#define REPLY_MADE_ID 16 /* characters of an id that attnd makes */

#endif
