/* http_reply.h: from a filled struct srv_reply to bytes on a connection. */
#ifndef SRV_HTTP_REPLY_H
#define SRV_HTTP_REPLY_H

#include "http/http.h"

struct MHD_Connection;
struct srv_connection;

/* Gives request->reply to libmicrohttpd, which closes the connection after it where `close` is set.
 * The body is not copied: the request must live until libmicrohttpd has completed it.  False where
 * memory is short: nothing is sent then. */
bool srv_reply_through_mhd(struct MHD_Connection *connection, struct srv_request *request,
                           bool close);

/* Writes the reply to the socket at once, as far as it goes without waiting, for connections that
 * libmicrohttpd still reads from.  The caller closes the connection. */
void srv_reply_past_mhd(const struct srv_connection *connection, struct srv_request *request);

#endif
