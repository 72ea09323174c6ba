/* test_openapi.c: the description of the interface has every route, field and error of the tables,
 * and is whole in itself.  What the daemon does is compared with it by `make check-openapi`. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/endpoints.h"
#include "api/openapi.h"
#include "api/openapi_types.h"
#include "suites.h"
#include "wire/call_fields.h"

static struct srv_config config;
static json_t *document;

static void setup(void)
{
    config = (struct srv_config){.limits.max_sequences = 256};
    document = srv_openapi_document(&srv_routes, &config);
    ck_assert_ptr_nonnull(document);
}

static void teardown(void) { json_decref(document); }

static json_t *schema(const char *name)
{
    return json_object_get(json_object_get(json_object_get(document, "components"), "schemas"),
                           name);
}

static json_t *operation(const struct srv_route *route)
{
    static const char *const methods[SRV_METHOD_COUNT] = {"get", "post", "put", "delete"};
    json_t *paths = json_object_get(document, "paths");
    return json_object_get(json_object_get(paths, route->path), methods[route->method]);
}

/* ---- Routes ---------------------------------------------------------------------------------- */

/* Fails where the route names no schema, or one that is not there. */
static void expect_schema(const struct srv_route *route, const char *column, const char *name)
{
    ck_assert_msg(name != NULL, "%s: its row in api/routes.c lacks .doc.%s: name a schema",
                  route->path, column);
    ck_assert_msg(schema(name) != NULL,
                  "%s: there is no schema \"%s\": add its rows to objects[] and members[] in "
                  "api/openapi_replies.c, or the route's .fields",
                  route->path, name);
}

START_TEST(test_openapi_every_route_has_its_columns)
{
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        ck_assert_msg(route->doc.id != NULL && route->doc.summary != NULL,
                      "%s: its row in api/routes.c lacks .doc = {id, summary, ...}", route->path);
        if (route->body == SRV_BODY_OPTIONAL || route->body == SRV_BODY_TENSORS)
            expect_schema(route, "request", route->doc.request);
        if (route->doc.status != 204 && route->type == NULL)
            expect_schema(route, "reply", route->doc.reply);
        if (route->doc.error != NULL)
            expect_schema(route, "error", route->doc.error);
    }
}
END_TEST

/* A path that a proxy has put before attnd is before the document too. */
START_TEST(test_openapi_server_is_where_the_document_is)
{
    json_t *servers = json_object_get(document, "servers");
    ck_assert_uint_eq(json_array_size(servers), 1);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(servers, 0), "url")), ".");
}
END_TEST

START_TEST(test_openapi_every_route_is_an_operation_of_its_own)
{
    size_t operations = 0;
    const char *path, *method;
    json_t *item, *member;
    json_object_foreach(json_object_get(document, "paths"), path, item)
        json_object_foreach(item, method, member)
            operations++;
    ck_assert_uint_eq(operations, srv_routes.count);
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        ck_assert_msg(operation(route) != NULL, "%s is missing", route->path);
        for (size_t j = 0; j < i; j++)
            ck_assert_msg(strcmp(route->doc.id, srv_routes.items[j].doc.id) != 0,
                          "%s and %s have the id %s", route->path, srv_routes.items[j].path,
                          route->doc.id);
    }
}
END_TEST

START_TEST(test_openapi_every_variable_of_a_path_is_a_parameter)
{
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        json_t *parameters = json_object_get(operation(route), "parameters"), *parameter;
        size_t j, variables = 0, found = 0;
        for (const char *at = route->path; (at = strchr(at, '{')) != NULL; at++)
            variables++;
        json_array_foreach(parameters, j, parameter)
            found += json_object_get(parameter, "in") != NULL;
        ck_assert_msg(found == variables, "%s has %zu of %zu", route->path, found, variables);
    }
}
END_TEST

START_TEST(test_openapi_words_of_a_route_mean_something)
{
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        json_t *all = json_object_get(json_object_get(document, "components"), "parameters");
        json_t *words = srv_openapi_words(route->doc.parameters ? route->doc.parameters : "");
        json_t *errors = srv_openapi_words(route->doc.errors ? route->doc.errors : "");
        json_t *codes = json_object_get(schema("ErrorCode"), "enum"), *word, *code;
        size_t j, k;
        json_array_foreach(words, j, word)
            ck_assert_msg(json_object_get(all, json_string_value(word)) != NULL,
                          "%s: add \"%s\" to parameters[] in api/openapi.c", route->path,
                          json_string_value(word));
        json_array_foreach(errors, j, word) {
            bool known = false;
            json_array_foreach(codes, k, code)
                known = known || json_equal(code, word);
            ck_assert_msg(known, "%s: no error is called \"%s\"", route->path,
                          json_string_value(word));
        }
        json_decref(words);
        json_decref(errors);
    }
}
END_TEST

/* ---- Fields and errors ----------------------------------------------------------------------- */

START_TEST(test_openapi_every_field_stands_in_the_bodies_that_may_hold_it)
{
    static const struct {
        const char *name;
        enum srv_call_kind body;
    } bodies[] = {
        {"AttendRequest", SRV_CALL_ATTEND},
        {"DecodeRequest", SRV_CALL_DECODE},
        {"StepRequest", SRV_CALL_ITEM},
    };
    for (size_t i = 0; i < 3; i++) {
        json_t *properties = json_object_get(schema(bodies[i].name), "properties");
        size_t count = 0;
        for (size_t j = 0; j < SRV_FIELD_COUNT; j++) {
            const struct srv_field *field = &srv_fields[j];
            bool held = (field->bodies & bodies[i].body) != 0;
            count += held;
            ck_assert_msg((json_object_get(properties, field->name) != NULL) == held, "%s %s",
                          bodies[i].name, field->name);
            ck_assert_msg(field->meaning != NULL,
                          "%s: its row in wire/call_fields.c lacks .meaning", field->name);
        }
        ck_assert_uint_eq(json_object_size(properties), count);
    }
}
END_TEST

START_TEST(test_openapi_every_field_of_a_document_has_a_meaning)
{
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_document_table *table = srv_routes.items[i].fields;
        for (size_t j = 0; table != NULL && j < table->count; j++)
            ck_assert_msg(table->fields[j].meaning != NULL, "%s: the field %s lacks .meaning",
                          srv_routes.items[i].path, table->fields[j].name);
    }
}
END_TEST

START_TEST(test_openapi_every_error_is_listed_and_says_which_routes_have_it)
{
    json_t *codes = json_object_get(schema("ErrorCode"), "enum");
    ck_assert_uint_eq(json_array_size(codes), SRV_ERROR_COUNT - 1);
    for (enum srv_error_code code = 1; code < SRV_ERROR_COUNT; code++) {
        ck_assert_str_eq(json_string_value(json_array_get(codes, code - 1)), srv_error_word(code));
        ck_assert_msg(srv_openapi_knows_error(code),
                      "%s: add to traits_of[] in api/openapi_errors.c which routes may reply it",
                      srv_error_word(code));
    }
}
END_TEST

/* ---- The whole ------------------------------------------------------------------------------- */

/* Whether a reference, "#/components/KIND/NAME", leads to a member. */
static bool resolves(const char *reference)
{
    char kind[64], name[64];
    if (sscanf(reference, "#/components/%63[^/]/%63s", kind, name) != 2)
        return false;
    json_t *components = json_object_get(document, "components");
    return json_object_get(json_object_get(components, kind), name) != NULL;
}

static size_t count_references(json_t *value)
{
    size_t count = 0, i;
    const char *key;
    json_t *member;
    json_array_foreach(value, i, member)
        count += count_references(member);
    json_object_foreach(value, key, member) {
        count += count_references(member);
        if (strcmp(key, "$ref") != 0)
            continue;
        ck_assert_msg(resolves(json_string_value(member)), "%s", json_string_value(member));
        count++;
    }
    return count;
}

START_TEST(test_openapi_every_reference_resolves)
{
    ck_assert_uint_gt(count_references(document), 100);
}
END_TEST

START_TEST(test_openapi_delete_has_no_body_and_a_prefill_has_one)
{
    json_t *paths = json_object_get(document, "paths");
    json_t *end = json_object_get(json_object_get(paths, "/sessions/{id}"), "delete");
    json_t *attend = json_object_get(json_object_get(paths, "/attend"), "post");
    ck_assert_ptr_nonnull(end);
    ck_assert_ptr_null(json_object_get(end, "requestBody"));
    ck_assert_ptr_nonnull(json_object_get(attend, "requestBody"));
}
END_TEST

START_TEST(test_openapi_bounds_are_those_of_the_configuration)
{
    json_t *bounds = json_object_get(json_object_get(document, "info"), "x-bounds");
    json_t *bound = json_object_get(bounds, "max_sequences");
    ck_assert_int_eq(json_integer_value(json_object_get(bound, "value")), 256);
    ck_assert_int_eq(json_integer_value(json_object_get(schema("StepRequestList"), "maxItems")),
                     256);
}
END_TEST

START_TEST(test_openapi_type_of_words)
{
    json_t *type = srv_openapi_type("[Step|integer]?");
    char *text = json_dumps(type, JSON_COMPACT);
    ck_assert_str_eq(text, "{\"anyOf\":[{\"type\":\"array\",\"items\":{\"anyOf\":["
                           "{\"$ref\":\"#/components/schemas/Step\"},{\"type\":\"integer\"}]}},"
                           "{\"type\":\"null\"}]}");
    free(text);
    json_decref(type);
    ck_assert(srv_openapi_has_word("after limit", "limit"));
    ck_assert(!srv_openapi_has_word("after limits", "limit"));
    ck_assert(!srv_openapi_has_word(NULL, "limit"));
}
END_TEST

Suite *suite_openapi(void)
{
    Suite *suite = suite_create("openapi");
    TCase *tests = tcase_create("openapi");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_openapi_every_route_has_its_columns);
    tcase_add_test(tests, test_openapi_server_is_where_the_document_is);
    tcase_add_test(tests, test_openapi_every_route_is_an_operation_of_its_own);
    tcase_add_test(tests, test_openapi_every_variable_of_a_path_is_a_parameter);
    tcase_add_test(tests, test_openapi_words_of_a_route_mean_something);
    tcase_add_test(tests, test_openapi_every_field_stands_in_the_bodies_that_may_hold_it);
    tcase_add_test(tests, test_openapi_every_field_of_a_document_has_a_meaning);
    tcase_add_test(tests, test_openapi_every_error_is_listed_and_says_which_routes_have_it);
    tcase_add_test(tests, test_openapi_every_reference_resolves);
    tcase_add_test(tests, test_openapi_delete_has_no_body_and_a_prefill_has_one);
    tcase_add_test(tests, test_openapi_bounds_are_those_of_the_configuration);
    tcase_add_test(tests, test_openapi_type_of_words);
    suite_add_tcase(suite, tests);
    return suite;
}
