/* forms.c: a body for each form, made of the same numbers every time. */
#include "forms.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"

enum { CACHED = 5, ROWS = 3, D = 4, G = 2 };

const struct form forms[FORM_COUNT] = {
    [FORM_SELF] = {"self", 0, 4, 6, 6, 0, true},
    [FORM_BATCH] = {"batch", 2, 4, 6, 6, 0, true},
    [FORM_CROSS] = {"cross", 0, 2, ROWS, 5, 2, false},
    [FORM_WEIGHTLESS] = {"weightless", 0, 4, ROWS, 7, 4, false},
    [FORM_PREFILL] = {"prefill", 0, 4, ROWS, CACHED + ROWS, CACHED, true},
    [FORM_DECODE] = {"decode", 0, 4, ROWS, CACHED + ROWS, CACHED, true},
    [FORM_ITEM] = {"item", 0, 4, ROWS, CACHED + ROWS, CACHED, true},
};

void forms_begin(struct client *client)
{
    struct answer answer = call_prefill(client, "formed", 100, CACHED, ",\"start\":true");
    expect_answer(&answer, 200, NULL, "the forms' session");
    answer_free(&answer);
}

static void add_numbers(struct text *body, const char *name, unsigned seed, size_t rank,
                        const size_t *shape)
{
    static float numbers[2048];
    size_t count = 1;
    for (size_t i = 0; i < rank; i++)
        count *= shape[i];
    ck_assert_uint_le(count, 2048);
    make_numbers(numbers, count, seed);
    text_add(body, ",\"%s\":", name);
    text_floats(body, numbers, 9, rank, shape);
}

/* Adds the members that make the form; the first is the model. */
static void add_form(struct text *body, int i)
{
    const struct form *f = &forms[i];
    const char *model = i == FORM_CROSS ? "\"model\":\"plain\"" : "\"model\":\"tiny\"";
    text_add(body, i == FORM_WEIGHTLESS ? "\"model\":null" : model);
    switch (i) {
    case FORM_SELF:
        add_numbers(body, "hidden_states", 1, SHAPE(f->rows, TINY));
        break;
    case FORM_BATCH:
        add_numbers(body, "hidden_states", 2, SHAPE(f->batch, f->rows, TINY));
        break;
    case FORM_CROSS:
        add_numbers(body, "hidden_states", 3, SHAPE(f->rows, PLAIN));
        add_numbers(body, "encoder_hidden_states", 4, SHAPE(f->keys, PLAIN));
        break;
    case FORM_WEIGHTLESS:
        add_numbers(body, "query", 5, SHAPE(f->heads, f->rows, D));
        add_numbers(body, "key", 6, SHAPE(G, f->keys, D));
        add_numbers(body, "value", 7, SHAPE(G, f->keys, D));
        break;
    default:
        text_add(body, ",");
        if (i == FORM_ITEM)
            text_add(body, "\"sequences\":[{");
        text_steps(body, "formed", 200, ROWS, ",\"commit\":false");
    }
}

void form_body(struct text *body, int i, const char *extra)
{
    text_add(body, "{");
    add_form(body, i);
    text_add(body, "%s%s}", extra, i == FORM_ITEM ? "}]" : "");
}

const char *form_path(int i) { return i == FORM_DECODE || i == FORM_ITEM ? "/decode" : "/attend"; }

struct answer form_post(struct client *client, int i, const char *extra)
{
    struct text body = {0};
    form_body(&body, i, extra);
    struct answer answer = client_post(client, form_path(i), body.data);
    text_free(&body);
    return answer;
}

const json_t *form_reply(const struct answer *answer, int i)
{
    if (i != FORM_ITEM)
        return answer->json;
    return json_array_get(json_object_get(answer->json, "sequences"), 0);
}

struct answer form_expect(struct client *client, int i, const char *extra)
{
    struct answer answer = form_post(client, i, extra);
    ck_assert_msg(answer.status == 200 && json_object_get(form_reply(&answer, i), "error") == NULL,
                  "%s%s: %ld %.500s", forms[i].name, extra, answer.status, answer.text);
    return answer;
}

void form_refuse(struct client *client, int i, const char *extra, long status, const char *code)
{
    struct answer answer = form_post(client, i, extra);
    const json_t *error = json_object_get(form_reply(&answer, i), "error");
    if (i != FORM_ITEM || answer.status != 200) /* in a list an item is refused alone */
        ck_assert_msg(answer.status == status, "%s%s: %ld, expected %ld: %.500s", forms[i].name,
                      extra, answer.status, status, answer.text);
    if (error == NULL)
        error = json_object_get(answer.json, "error");
    const char *word = json_string_value(json_object_get(error, "code"));
    ck_assert_msg(word != NULL && strcmp(word, code) == 0, "%s%s: expected %s: %.500s",
                  forms[i].name, extra, code, answer.text);
    answer_free(&answer);
}
