/* openapi.h: the description of the interface that GET /openapi.json replies with. */
#ifndef SRV_OPENAPI_H
#define SRV_OPENAPI_H

#include <jansson.h>

#include "config/config.h"
#include "wire/route.h"

/* The description as OpenAPI 3.1: routes and what they take by their table, fields by theirs, and
 * errors, bounds and the configuration's limits likewise.  A new reference; NULL where memory is
 * short.  Takes milliseconds. */
json_t *srv_openapi_document(const struct srv_routes *routes, const struct srv_config *config);

#endif
