/* models.h: the list of models, and what config.c, models.c and model_dir.c share. */
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

/* Keeps a line for the log, while there is room, of what was given and is passed over. */
void srv_config_note(struct srv_config_reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads the value of the file's key `models` into config->models. */
bool srv_config_models(struct srv_config_reading *reading, const json_t *list);

/* Adds the models of `text`, which `name` has given: NAME=DIR, or several that commas or white
 * space separate.  One with the name of a model of a weaker source takes its place. */
bool srv_config_model_list(struct srv_config_reading *reading, const char *name, const char *text,
                           enum srv_config_source source);

/* Adds a model for each directory in config->model_dir that holds a config.json, in the order of
 * their names, but for those whose name another source has given.  Notes what else is there, but
 * for names that begin with a dot, and that no checkpoint is. */
bool srv_config_model_dir(struct srv_config_reading *reading);

/* Gives the models that do not say it the dtypes of the options. */
void srv_config_model_dtypes(struct srv_config *config);

/* The model of that name; NULL where there is none. */
struct srv_model_entry *srv_config_find_model(const struct srv_config *config, const char *name,
                                              size_t length);

/* An entry after the last one, which counts from then on and is empty; NULL, with the message,
 * where there are too many or memory is short. */
struct srv_model_entry *srv_config_new_model(struct srv_config_reading *reading);

void srv_config_free_model(struct srv_model_entry *entry);

#endif
