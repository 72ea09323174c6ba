/* mirror.h: what a session of the daemon has to be, computed here with the same library. */
#ifndef TESTS_KILL_MIRROR_H
#define TESTS_KILL_MIRROR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "attn_state.h"
#include "daemon.h"

#define MIRROR_LAYERS 2

/* What was asked for last and got no answer: it may have happened, or not. */
enum doubt { NO_DOUBT, DOUBT_STEP, DOUBT_START, DOUBT_FORK, DOUBT_TRUNCATE, DOUBT_DELETE };

struct mirror {
    char id[32];
    bool live;
    struct attn_cache *cache; /* NULL where it is not live */
    enum doubt doubt;
    size_t layer, length; /* of the doubtful step; of the truncation or fork */
    unsigned seed;        /* of the step's row */
    struct mirror *from;  /* of the fork */
};

void mirror_open(void); /* the model `tiny` of CONFIG_SMALL */
void mirror_close(void);

void mirror_start(struct mirror *mirror);
void mirror_end(struct mirror *mirror);
void mirror_fork(struct mirror *mirror, const struct mirror *from, size_t length);
size_t mirror_length(const struct mirror *mirror, size_t layer);
size_t mirror_longest(const struct mirror *mirror);

/* A step of the row that the seed names; its output. */
void mirror_step(float out[TINY], struct mirror *mirror, size_t layer, unsigned seed, bool commit);

/* Whether the output in an answer, or an item of one, has these bits. */
bool mirror_gave(const json_t *answer, const float out[TINY]);

/* A session of so many tokens in every layer, which no step has made. */
void mirror_fill(struct mirror *mirror, size_t tokens);

/* It as a state that a daemon imports, free it; and whether these are the tensors of the
 * cache as an exported state has them. */
char *mirror_state(size_t *size, const struct mirror *mirror);
bool mirror_holds(const struct mirror *mirror, const char *data, size_t bytes);

#endif
