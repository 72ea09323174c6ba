/* reply.h: from a filled struct srv_reply to bytes on a connection. */
#ifndef SRV_HTTP_REPLY_H
#define SRV_HTTP_REPLY_H

#include "http/http.h"

struct MHD_Connection;
struct srv_connection;
struct srv_exchange;

/* Gives request->reply to libmicrohttpd, which closes the connection after it where `close` is set.
 * The body is not copied: the request must live until libmicrohttpd has completed it.  False where
 * memory is short: nothing is sent then. */
bool srv_reply_through_mhd(struct MHD_Connection *connection, struct srv_request *request,
                           bool close);

/* Writes the reply to the socket at once, as far as it goes without waiting, for connections that
 * libmicrohttpd still reads from.  The caller closes the connection. */
void srv_reply_past_mhd(const struct srv_connection *connection, struct srv_request *request);

/* At each sweep while the reply is sent: moves the deadline on by the time in which
 * SRV_MIN_WRITE_RATE sends what the client's system has taken since the last, up to
 * reply_timeout_ms from now.  So a client that takes nothing for so long, or less than that rate,
 * meets its deadline. */
void srv_reply_follow(struct srv_exchange *exchange, uint64_t now_ns);

#endif
