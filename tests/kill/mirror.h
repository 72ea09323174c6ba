/* mirror.h: the state that a session of the daemon must have, computed here with the same
 * library. */
#ifndef TESTS_KILL_MIRROR_H
#define TESTS_KILL_MIRROR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "attn_state.h"
#include "daemon.h"
#include "text.h"

#define MIRROR_LAYERS 2

/* The model `tiny`.  The window of its second layer forgets: sessions of the suites become longer
 * than it and a block. */
#define MIRROR_MODEL                                                                  \
    "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_"  \
    "hidden_layers\":2,\"rope_theta\":10000,\"is_causal\":true,\"seed\":7,\"sliding_" \
    "window\":8,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}"

/* Of latent attention; and one whose second layer reads the keys and values of the first, which its
 * window forgets. */
#define MIRROR_LATENT_MODEL                                                                     \
    "{\"hidden_size\":16,\"num_attention_heads\":4,\"kv_lora_rank\":10,\"q_lora_rank\":12,"     \
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"value_head_dim\":5,\"num_hidden_layers\":" \
    "2,\"rope_theta\":10000,\"is_causal\":true,\"seed\":9}"
#define MIRROR_READING_MODEL                                                                     \
    "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_"      \
    "layers\":2,\"num_kv_shared_layers\":1,\"rope_theta\":10000,\"is_causal\":true,\"seed\":11," \
    "\"sliding_window\":8}"
#define MIRROR_CONFIG                                                                      \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"instance\":\"test\",\"memory_limit\":\"64GiB\"," \
    "\"models\":["                                                                         \
    "{\"name\":\"tiny\",\"random\":" MIRROR_MODEL                                          \
    "},{\"name\":\"latent\",\"random\":" MIRROR_LATENT_MODEL                               \
    "},{\"name\":\"reading\",\"random\":" MIRROR_READING_MODEL                             \
    "},{\"name\":\"crossed\",\"random\":{\"hidden_size\":16,\"num_attention_heads\":4,"    \
    "\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"is_cross\":true,\"seed\":5}}]}"

/* What a session is of: a model of the daemon's, or one layer without weights, of the heads of
 * `tiny`. */
enum mirror_kind {
    MIRROR_TINY,
    MIRROR_LATENT,
    MIRROR_READING,
    MIRROR_MODELS,
    MIRROR_WEIGHTLESS = MIRROR_MODELS,
    MIRROR_KINDS
};

/* The last request where no answer to it came: it may have taken effect, or not. */
enum pending {
    NOT_PENDING,
    PENDING_STEP,
    PENDING_START,
    PENDING_FORK,
    PENDING_TRUNCATE,
    PENDING_DELETE
};

struct mirror {
    char id[32];
    json_int_t epoch, revision; /* as the last answer has them */
    enum mirror_kind kind;      /* set before it starts */
    bool live;
    struct attn_cache *cache; /* NULL where the mirror is not live */
    enum pending pending;
    size_t layer, length; /* layer of the pending step; length of the pending truncation or fork */
    unsigned seed;        /* of the pending step's row */
    struct mirror *from;  /* parent of the pending fork */
};

/* `config` is that of `tiny`, as the daemon has it. */
void mirror_open(const char *config);
void mirror_close(void);

/* Takes the session's epoch and revision from an answer, or from one item of it.  mirror_is_noted
 * says whether an answer has those that were taken. */
void mirror_note(struct mirror *mirror, const json_t *answer);
bool mirror_is_noted(const struct mirror *mirror, const json_t *answer);

/* Writes "epoch" and "revision" as members of a body, after a comma: "" before they are known. */
void mirror_write_noted(char out[80], const struct mirror *mirror);

void mirror_start(struct mirror *mirror);
void mirror_end(struct mirror *mirror);
void mirror_fork(struct mirror *mirror, const struct mirror *from, size_t length);
size_t mirror_length(const struct mirror *mirror, size_t layer);
size_t mirror_longest(const struct mirror *mirror);

/* The name of the model; NULL for one without weights. */
const char *mirror_model(const struct mirror *mirror);

/* How many layers a session of the kind has; and whether its next step may be one of the layer: a
 * layer that reads another comes after that. */
size_t mirror_layers(const struct mirror *mirror);
bool mirror_takes(const struct mirror *mirror, size_t layer);

/* Begins a body with the model, where there is one, and the layer: {"model":"tiny","layer":0, */
void mirror_text_open(struct text *body, const struct mirror *mirror, size_t layer);

/* Adds "session_id" and the row that the seed names, as hidden_states or as query, key and value,
 * and `extra`. */
void mirror_text_step(struct text *body, const struct mirror *mirror, unsigned seed,
                      const char *extra);

/* Computes a step of the row that the seed names, and its output. */
void mirror_step(float out[TINY], struct mirror *mirror, size_t layer, unsigned seed, bool commit);

/* Whether the output of an answer, or of one item of it, has exactly these bits. */
bool mirror_output_equals(const json_t *answer, const float out[TINY]);

/* Makes a session of `tokens` tokens in every layer, written into the cache without steps. */
void mirror_fill(struct mirror *mirror, size_t tokens);

/* mirror_state returns the session as a state that a daemon imports, the caller's to free.
 * mirror_holds says whether `data` are the tensors of that state. */
char *mirror_state(size_t *size, const struct mirror *mirror);
bool mirror_holds(const struct mirror *mirror, const char *data, size_t bytes);

#endif
