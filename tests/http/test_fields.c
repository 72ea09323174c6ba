/* test_fields.c: every field in every form of call: accepted where it applies, refused where it
 * does not.  The table here is that of docs/API.md. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "forms.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"
#include "text.h"

static void set_up(void)
{
    serve_small();
    forms_begin(&client);
}

/* The marks of fields that are refused.  Other marks: '+' is accepted, ' ' is not tried. */
static const struct {
    char mark;
    long status;
    const char *code;
} refusals[] = {
    {'u', 422, "unsupported"},       {'s', 422, "shape_mismatch"}, {'i', 400, "invalid_value"},
    {'?', 400, "unknown_field"},     {'m', 400, "missing_field"},  {'e', 409, "epoch_mismatch"},
    {'r', 409, "revision_mismatch"},
};

/* A field with a value, which `add` fits to a form's rows T, keys S and heads H (forms.c). */
struct field {
    const char *name;
    const char
        *marks; /* one for each form: self, batch, cross, weightless, prefill, decode, item */
    void (*add)(struct text *body, const struct form *f);
    const char *text; /* the member itself, where `add` is NULL */
};

static void add_ones(struct text *body, const char *name, size_t rows, size_t columns)
{
    text_add(body, ",\"%s\":%s", name, rows > 1 ? "[" : "");
    for (size_t t = 0; t < rows; t++) {
        text_add(body, t > 0 ? ",[" : "[");
        for (size_t s = 0; s < columns; s++)
            text_add(body, s > 0 ? ",1" : "1");
        text_add(body, "]");
    }
    text_add(body, "%s", rows > 1 ? "]" : "");
}

static void add_padding(struct text *body, const struct form *f)
{
    add_ones(body, "padding_mask", 1, f->keys);
}

/* The mask has the shape [1,1,T,S], which fits all forms; [B,T,S] and [H,T,S] could be confused. */
static void add_plane(struct text *body, const char *name, const struct form *f)
{
    struct text plane = {0};
    add_ones(&plane, name, f->rows, f->keys);
    char *colon = strchr(plane.data, ':');
    text_add(body, ",\"%s\":[[%s]]", name, colon + 1);
    text_free(&plane);
}

static void add_mask(struct text *body, const struct form *f)
{
    add_plane(body, "attention_mask", f);
}

static void add_bias(struct text *body, const struct form *f)
{
    add_plane(body, "attention_bias", f);
}

static void add_tree(struct text *body, const struct form *f)
{
    add_ones(body, "attention_mask", f->rows, f->rows);
}

static void add_head_mask(struct text *body, const struct form *f)
{
    add_ones(body, "head_mask", 1, f->heads);
}

static void add_positions(struct text *body, const struct form *f)
{
    add_ones(body, "position_ids", 1, f->rows);
}

#define STATS ",\"outputs\":[\"head_stats\"]"

static void add_targets(struct text *body, const struct form *f)
{
    text_add(body, STATS);
    add_ones(body, "targets", 1, f->rows);
}

#define WEIGHTS ",\"outputs\":[\"attention_weights\"]"
#define SCORES ",\"outputs\":[\"attention_scores\"]"

static const struct field fields[] = {
    {"layer", "+++i++?", NULL, ",\"layer\":0"},
    {"is_causal", "+++++++", NULL, ",\"is_causal\":true"},
    {"query_offset", "++++uuu", NULL, ",\"query_offset\":2"},
    {"padding_mask", "+++++++", add_padding, NULL},
    {"attention_mask", "+++++++", add_mask, NULL},
    {"attention_mask of new rows", "++ss+++", add_tree, NULL},
    {"attention_bias", "+++++++", add_bias, NULL},
    {"head_mask", "+++++++", add_head_mask, NULL},
    {"position_ids", "++uu+++", add_positions, NULL},
    {"scale", "+++++++", NULL, ",\"scale\":0.5"},
    {"softcap", "+++++++", NULL, ",\"softcap\":2"},
    {"no softcap", "+++++++", NULL, ",\"softcap\":0"},
    {"sliding_window", "+++++++", NULL, ",\"sliding_window\":2"},
    {"open window", "+++++++", NULL, ",\"sliding_window\":[-1,-1]"},
    {"session_id", "  i    ", NULL, ",\"session_id\":\"formed\""},
    {"position", "mmmm+++", NULL, ",\"position\":5"},
    {"epoch", "mmmmeee", NULL, ",\"epoch\":1"},
    {"revision", "mmmmrrr", NULL, ",\"revision\":1"},
    {"start", "mmmm+++", NULL, ",\"start\":false"},
    {"commit", "mmmm   ", NULL, ",\"commit\":false"},
    {"outputs", "+++++++", NULL,
     ",\"outputs\":[\"output\",\"attention_weights\",\"attention_scores\",\"lse\",\"head_stats\"]"},
    {"key and value", "+++u+++", NULL, ",\"outputs\":[\"key\",\"value\"]"},
    {"query and heads", "+++u+++", NULL,
     ",\"outputs\":[\"query\",\"head_output\",\"concat\"],\"heads\":[1],\"rows\":[0]"},
    {"heads of concat", "iiiiiii", NULL, ",\"outputs\":[\"concat\"],\"heads\":[1]"},
    {"heads", "+++++++", NULL, SCORES ",\"heads\":[1]"},
    {"rows", "+++++++", NULL, WEIGHTS ",\"rows\":[2,0]"},
    {"top_k", "+++++++", NULL, WEIGHTS ",\"top_k\":2"},
    {"average_heads", "+++++++", NULL, WEIGHTS ",\"average_heads\":true"},
    {"stage", "+++++++", NULL, SCORES ",\"stage\":\"softcap\""},
    {"local_radius", "+++++++", NULL, ",\"outputs\":[\"head_stats\"],\"local_radius\":0"},
    {"targets", "+++++++", add_targets, NULL},
    {"target_groups", "+++++++", NULL, STATS ",\"target_groups\":[[0],[1,0]]"},
    {"ablate", "+++u+++", NULL, STATS ",\"ablate\":true"},
    {"ablate, false", "+++++++", NULL, STATS ",\"ablate\":false"},
    {"ablate of no head_stats", "iiiiiii", NULL, ",\"ablate\":true"},
    {"ablate, false, of no head_stats", "+++++++", NULL, ",\"ablate\":false"},
    {"heads of no map", "iiiiiii", NULL, ",\"heads\":[1]"},
    {"rows of no map", "iiiiiii", NULL, ",\"rows\":[1]"},
    {"top_k of no map", "iiiiiii", NULL, ",\"top_k\":1"},
    {"average_heads of no map", "iiiiiii", NULL, ",\"average_heads\":true"},
    {"average_heads, false, of no map", "+++++++", NULL, ",\"average_heads\":false"},
    {"stage of no scores", "iiiiiii", NULL, WEIGHTS ",\"stage\":\"raw\""},
    {"targets of no head_stats", "iiiiiii", NULL, WEIGHTS ",\"targets\":[0]"},
    {"target_groups of no head_stats", "iiiiiii", NULL, ",\"target_groups\":[[0]]"},
    {"local_radius of no head_stats", "iiiiiii", NULL, WEIGHTS ",\"local_radius\":1"},
};

static void try_field(const struct field *field, int form)
{
    struct text extra = {0};
    char mark = field->marks[form];
    if (field->add != NULL)
        field->add(&extra, &forms[form]);
    else
        text_add(&extra, "%s", field->text);
    if (mark == '+') {
        struct answer answer = form_expect(&client, form, extra.data);
        answer_free(&answer);
    }
    for (size_t i = 0; i < COUNT(refusals); i++)
        if (refusals[i].mark == mark)
            form_refuse(&client, form, extra.data, refusals[i].status, refusals[i].code);
    text_free(&extra);
}

CASE(fields, set_up, serve_end, 0)

TEST_EACH(each_field_is_accepted_where_it_applies_and_refused_elsewhere, FORM_COUNT)
{
    for (size_t i = 0; i < COUNT(fields); i++)
        try_field(&fields[i], _i);
    struct answer answer = client_get(&client, "/sessions/formed"); /* nothing was kept */
    const json_t *first = json_array_get(json_object_get(answer.json, "lengths"), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(first, "length")), 5);
    answer_free(&answer);
}

/* ---- Windows and caps that remove the layer's ------------------------------------------------ */

/* Fails unless the two calls have the same weights or, where `same` is false, different ones. */
static void compare(int form, const char *a, const char *b, bool same)
{
    struct text one = {0}, other = {0};
    text_add(&one, WEIGHTS "%s", a);
    text_add(&other, WEIGHTS "%s", b);
    struct answer x = form_expect(&client, form, one.data);
    struct answer y = form_expect(&client, form, other.data);
    const json_t *p = json_object_get(form_reply(&x, form), "attention_weights");
    const json_t *q = json_object_get(form_reply(&y, form), "attention_weights");
    ck_assert_msg(json_equal(p, q) == same, "%s: \"%s\" and \"%s\" %s", forms[form].name, a, b,
                  same ? "differ" : "do not differ");
    answer_free(&x);
    answer_free(&y);
    text_free(&one);
    text_free(&other);
}

TEST_EACH(none_and_null_count_as_left_out_where_the_layer_has_none, FORM_COUNT)
{
    compare(_i, "", ",\"softcap\":0", true);
    compare(_i, "", ",\"softcap\":null", true);
    compare(_i, "", ",\"softcap\":0.5", false);
    compare(_i, "", ",\"sliding_window\":null", true);
    compare(_i, "", ",\"sliding_window\":[-1,-1]", true);
    compare(_i, "", ",\"sliding_window\":[0,0]", false);
}

SUITE(fields)
