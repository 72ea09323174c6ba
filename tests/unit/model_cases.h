/* model_cases.h: what the files of the model suite share: opening, altering and short texts. */
#ifndef TESTS_UNIT_MODEL_CASES_H
#define TESTS_UNIT_MODEL_CASES_H

#include <check.h>

#include "attn.h"
#include "cases.h"
#include "scratch.h"

#define GOLDEN "tests/golden/" /* tests run from the top of the tree */
#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

/* Configurations without their closing brace. */
#define LLAMA                                                                 \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4," \
    "\"num_hidden_layers\":2"
#define GPT2 "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4,\"n_layer\":2"
#define BERT                                                                 \
    "{\"model_type\":\"bert\",\"hidden_size\":64,\"num_attention_heads\":4," \
    "\"num_hidden_layers\":2"
#define TORCH "{\"model_type\":\"torch_multihead_attention\",\"embed_dim\":64,\"num_heads\":4"

#define LLAMA3_ROPE                                                      \
    "{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0," \
    "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}"

void cases_of_golden(Suite *suite);
void cases_of_config(Suite *suite);
void cases_of_defaults(Suite *suite);
void cases_of_hybrids(Suite *suite);
void cases_of_families(Suite *suite);
void cases_of_layouts(Suite *suite);
void cases_of_published(Suite *suite);
void cases_of_encoders(Suite *suite);
void cases_of_stacks(Suite *suite);
void cases_of_checkpoint(Suite *suite);
void cases_of_random(Suite *suite);

/* Opens or loads what must be good. */
struct attn_model *cases_open(const char *where, const struct attn_model_options *options);
void cases_load(struct attn_model *model);

/* The parameters of the first `count` layers of a stack, at most two. */
size_t cases_parameters(const char *path, const char *stack, size_t count);

/* Writes the path of a golden checkpoint. */
void cases_golden(char out[SCRATCH_PATH], const char *name);

/* Copies a golden checkpoint of one file to the directory `path`, with another configuration
 * unless that is NULL and with `length` bytes of `tensor` changed from its byte `offset` on. */
void cases_copy(const char *path, const char *name, const char *config, const char *tensor,
                size_t offset, const void *bytes, size_t length);

#endif
