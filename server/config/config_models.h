/* config_models.h: the list of models, and what config.c and config_models.c share. */
#ifndef SRV_CONFIG_MODELS_H
#define SRV_CONFIG_MODELS_H

#include <jansson.h>

#include "config/config.h"

/* One reading of the configuration: its result, and the message of a refusal. */
struct srv_config_reading {
    struct srv_config *config;
    char *message; /* [size] */
    size_t size;
};

/* Writes the message; always false, so that a check reads `return srv_config_refuse(...)`. */
bool srv_config_refuse(struct srv_config_reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads the value of the file's key `models` into config->models. */
bool srv_config_models(struct srv_config_reading *reading, const json_t *list);

#endif
