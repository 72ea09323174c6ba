/* test_attend.c: /attend through a layer: the effect of its fields, by comparing answers that must
 * be equal and answers that must differ. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

static struct answer post_rows(const char *model, const float *rows, size_t batch, size_t tokens,
                               size_t width, const char *extra)
{
    struct text body = {0};
    const size_t shape[] = {batch, tokens, width};
    size_t skip = batch > 0 ? 0 : 1;
    text_add(&body, "{\"model\":\"%s\",\"hidden_states\":", model);
    text_floats(&body, rows, 9, 3 - skip, shape + skip);
    text_add(&body, "%s}", extra);
    struct answer answer = client_post(&client, "/attend", body.data);
    expect_answer(&answer, 200, NULL, extra);
    text_free(&body);
    return answer;
}

CASE(layers, serve_small, serve_end, 0)

TEST(a_batch_gets_what_its_sequences_get_alone)
{
    float rows[3 * 7 * TINY];
    make_numbers(rows, 3 * 7 * TINY, 5);
    struct answer batch = post_rows("tiny", rows, 3, 7, TINY, "");
    float *together = tensor_of(batch.json, "output", SHAPE(3, 7, TINY));
    for (size_t b = 0; b < 3; b++) {
        struct answer alone = post_rows("tiny", rows + b * 7 * TINY, 0, 7, TINY, "");
        float *got = tensor_of(alone.json, "output", SHAPE(7, TINY));
        expect_close("alone", got, together + b * 7 * TINY, 7 * TINY, 1e-6);
        free(got);
        answer_free(&alone);
    }
    ck_assert_str_eq(json_string_value(json_object_get(batch.json, "model")), "tiny");
    ck_assert_int_eq(answer_integer(&batch, "layer"), 0);
    free(together);
    answer_free(&batch);
}

TEST(layers_differ_and_outputs_come_as_asked)
{
    float rows[6 * TINY];
    make_numbers(rows, 6 * TINY, 5);
    struct answer zero = post_rows("tiny", rows, 0, 6, TINY, ",\"layer\":0,\"outputs\":[\"lse\"]");
    struct answer one =
        post_rows("tiny", rows, 0, 6, TINY, ",\"layer\":1,\"outputs\":[\"key\",\"value\",\"lse\"]");
    ck_assert_ptr_null(json_object_get(zero.json, "output"));
    ck_assert_ptr_null(json_object_get(zero.json, "key"));
    ck_assert_ptr_null(json_object_get(one.json, "output"));
    ck_assert_int_eq(answer_integer(&one, "layer"), 1);
    char *a = exact_text(zero.json, "lse"), *b = exact_text(one.json, "lse");
    ck_assert_str_ne(a, b);
    free(a);
    free(b);
    free(tensor_of(zero.json, "lse", SHAPE(4, 6)));
    free(tensor_of(one.json, "key", SHAPE(2, 6, 4)));
    free(tensor_of(one.json, "value", SHAPE(2, 6, 4)));
    answer_free(&zero);
    answer_free(&one);
}

/* Fails unless two calls over the same rows give the same output or, where `same` is false,
 * different ones. */
static void compare_calls(const char *model, size_t tokens, size_t width, const char *extra,
                          const char *other, bool same)
{
    float rows[8 * TINY];
    ck_assert(tokens <= 8 && width <= TINY);
    make_numbers(rows, tokens * width, 5);
    struct answer a = post_rows(model, rows, 0, tokens, width, extra);
    struct answer b = post_rows(model, rows, 0, tokens, width, other);
    float *x = tensor_of(a.json, "output", SHAPE(tokens, width));
    float *y = tensor_of(b.json, "output", SHAPE(tokens, width));
    if (same)
        expect_close(other, y, x, tokens * width, 1e-5);
    else
        ck_assert_msg(memcmp(x, y, tokens * width * sizeof *x) != 0, "%s changes nothing", other);
    free(x);
    free(y);
    answer_free(&a);
    answer_free(&b);
}

TEST(models_own_causality_is_the_default_and_can_be_changed)
{
    compare_calls("tiny", 6, TINY, "", ",\"is_causal\":true", true);
    compare_calls("tiny", 6, TINY, "", ",\"is_causal\":false", false);
    compare_calls("plain", 6, PLAIN, "", ",\"is_causal\":false", true);
    compare_calls("plain", 6, PLAIN, "", ",\"is_causal\":true", false);
    compare_calls("tiny", 6, TINY, "", ",\"query_offset\":0", true);
    compare_calls("tiny", 6, TINY, ",\"is_causal\":false", ",\"query_offset\":5", true);
}

TEST(null_is_as_good_as_leaving_a_field_out)
{
    compare_calls("tiny", 6, TINY, "",
                  ",\"is_causal\":null,\"padding_mask\":null,\"position_ids\":null,\"scale\":null,"
                  "\"outputs\":null,\"layer\":null,\"session_id\":null,\"average_heads\":null",
                  true);
}

TEST(positions_default_to_counting_and_only_distances_matter)
{
    compare_calls("tiny", 6, TINY, "", ",\"position_ids\":[0,1,2,3,4,5]", true);
    compare_calls("tiny", 6, TINY, "", ",\"position_ids\":[10,11,12,13,14,15]", true);
    compare_calls("tiny", 6, TINY, "", ",\"position_ids\":[0,2,4,6,8,10]", false);
    compare_calls("plain", 6, PLAIN, "", ",\"position_ids\":[0,2,4,6,8,10]", true);
    compare_calls("tiny", 6, TINY, ",\"position_ids\":[0,2,4,6,8,10]",
                  ",\"position_ids\":[[[0,2,4,6,8,10]],[[0,2,4,6,8,10]],[[0,2,4,6,8,10]]]", true);
}

TEST(layer_modifiers_act_on_the_layers_weights)
{
    compare_calls("tiny", 4, TINY, ",\"padding_mask\":[1,1,0,1]",
                  ",\"attention_mask\":[[1,1,0,1],[1,1,0,1],[1,1,0,1],[1,1,0,1]]", true);
    compare_calls("tiny", 4, TINY, ",\"padding_mask\":[1,1,0,1]",
                  ",\"attention_bias\":[[0,0,null,0],[0,0,null,0],[0,0,null,0],[0,0,null,0]]",
                  true);
    compare_calls("tiny", 4, TINY, "", ",\"scale\":0.5", true); /* 1/sqrt(4) */
    compare_calls("tiny", 4, TINY, "", ",\"scale\":0.25", false);
    compare_calls("tiny", 4, TINY, "", ",\"head_mask\":[1,1,1,1]", true);
    compare_calls("tiny", 4, TINY, "", ",\"head_mask\":[1,1,0,1]", false);
}

TEST(pruned_heads_leave_the_output_bias)
{
    float rows[4 * PLAIN];
    make_numbers(rows, 4 * PLAIN, 5);
    struct answer answer = post_rows("plain", rows, 0, 4, PLAIN, ",\"head_mask\":[0,0]");
    float *got = tensor_of(answer.json, "output", SHAPE(4, PLAIN));
    for (size_t t = 1; t < 4; t++)
        ck_assert(memcmp(got, got + t * PLAIN, PLAIN * sizeof *got) == 0);
    free(got);
    answer_free(&answer);
}

TEST(cross_attention_reads_the_rows_it_is_given)
{
    float rows[5 * PLAIN];
    struct text encoder = {0}, split = {0};
    make_numbers(rows, 5 * PLAIN, 5);
    text_add(&encoder, ",\"encoder_hidden_states\":");
    text_floats(&encoder, rows, 9, SHAPE(5, PLAIN));
    text_add(&split, ",\"key_hidden_states\":");
    text_floats(&split, rows, 9, SHAPE(5, PLAIN));
    text_add(&split, ",\"value_hidden_states\":");
    text_floats(&split, rows, 9, SHAPE(5, PLAIN));
    compare_calls("plain", 5, PLAIN, "", encoder.data, true); /* the same rows again */
    compare_calls("plain", 3, PLAIN, encoder.data, split.data, true);
    compare_calls("plain", 3, PLAIN, "", encoder.data, false);
    text_free(&encoder);
    text_free(&split);
}

SUITE(attend)
