/* attend.c: one attention layer of random weights over three rows, with libattn; README says how it is
 * built. */
#include "attn.h"
#include <stdio.h>

int main(void)
{
    const char config[] =
        "{\"hidden_size\": 4, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
        " \"num_hidden_layers\": 2, \"rope_theta\": 10000, \"seed\": 7}";
    const float rows[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    float out[3][4];
    struct attn_engine *engine = NULL;
    struct attn_model *model = NULL;
    struct attn_error error = {0};
    struct attn_attend_args args = {
        .batch = 1, .queries = 3, .hidden_states = rows[0], .outputs = {.output = out[0]}};
    if (attn_engine_open(&engine, NULL, &error) == ATTN_OK &&
        attn_model_open_random(&model, config, sizeof config - 1, NULL, &error) == ATTN_OK &&
        attn_model_load(model, &error) == ATTN_OK &&
        attn_attend(engine, model, 0, &args, &error) == ATTN_OK)
        printf("%.7f %.7f %.7f %.7f\n", out[2][0], out[2][1], out[2][2], out[2][3]);
    else
        fprintf(stderr, "%s\n", error.message);
    attn_model_close(model);
    attn_engine_close(engine);
    return error.status != ATTN_OK;
}
