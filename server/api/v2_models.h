/* v2_models.h: the models of the Open Inference Protocol: each layer is one, NAME.LAYER; NAME is
 * all layers of a model, and `attention` attention without weights. */
#ifndef SRV_V2_MODELS_H
#define SRV_V2_MODELS_H

#include "session/models.h"

#define SRV_V2_VERSION "1" /* of every model */
#define SRV_V2_WEIGHTLESS "attention"

struct srv_v2_model {
    const char *name;              /* as the path has it */
    const struct srv_model *model; /* NULL: weightless */
    bool has_layer;
    size_t layer; /* else 0 */
};

/* Finds a model by its name: one that is configured under the whole of it, else `attention`, else
 * NAME.LAYER with a resident layer.  `name` must outlive *out.  Error: model_not_found. */
enum srv_error_code srv_v2_find(struct srv_v2_model *out, const struct srv_models *models,
                                const char *name, struct srv_error *error);

#endif
