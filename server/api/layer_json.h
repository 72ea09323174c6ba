/* layer_json.h: a layer's specification as a JSON object, for GET /models and `attnd inspect`. */
#ifndef SRV_LAYER_JSON_H
#define SRV_LAYER_JSON_H

#include <jansson.h>

#include "attn.h"

/* An object with every member in a fixed order; a feature that the layer does not have is null or
 * false.  The caller's to json_decref.  NULL where memory is short. */
json_t *srv_layer_json(const struct attn_layer_spec *spec);

#endif
