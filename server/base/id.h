/* id.h: the one rule for names that clients choose: sessions, models, API keys, requests. */
#ifndef SRV_ID_H
#define SRV_ID_H

#include <stdbool.h>
#include <stddef.h>

#define SRV_ID_MAX 64 /* characters */
#define SRV_ID_RULE "1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"

/* Whether the character may stand in an id: a letter, a digit, '_', '.' or '-'. */
bool srv_id_character(char c);

/* Whether a text may be the name of an instance: 1 to SRV_INSTANCE_MAX letters, digits and hyphens,
 * the first no hyphen. */
#define SRV_INSTANCE_MAX 32
bool srv_instance_valid(const char *text);

/* Whether `id` is 1 to SRV_ID_MAX such characters, the first of them a letter or digit. */
bool srv_id_valid(const char *id);

#endif
