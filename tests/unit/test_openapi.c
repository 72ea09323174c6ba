/* test_openapi.c: the description of the interface has every route, field and error of the tables.
 * That it is whole in itself and what the daemon does, `make check-openapi` shows. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/endpoints.h"
#include "config/bounds.h"
#include "suites.h"
#include "wire/call.h"
#include "wire/coding.h"

static json_t *document;

static bool grant(void *context, size_t bytes)
{
    (void)context;
    return bytes <= 2 * SRV_EMBEDDED_MAX_BYTES;
}

/* The document as the daemon replies with it. */
static void setup(void)
{
    const struct srv_decompress_limits limits = {.most = SRV_EMBEDDED_MAX_BYTES, .grant = grant};
    struct srv_request request = {.accepted = SRV_GZIP};
    struct srv_error error = {0};
    json_error_t where;
    size_t length;
    char *text;
    srv_get_openapi(&request);
    ck_assert_uint_eq(request.reply.status, 200);
    ck_assert_int_eq(srv_decompress(&text, &length, SRV_GZIP, request.reply.body.data,
                                    request.reply.body.length, &limits, &error),
                     SRV_OK);
    document = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    ck_assert_msg(document != NULL, "%s", where.text);
    free(text);
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
                  "openapi/replies.c, or the route's .fields",
                  route->path, name);
}

CASE(openapi, setup, teardown, 0)

TEST(openapi_every_route_has_its_columns)
{
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        ck_assert_msg(route->doc.id != NULL && route->doc.summary != NULL,
                      "%s: its row in api/routes.c lacks .doc = {id, summary, ...}", route->path);
        if (route->body == SRV_BODY_OPTIONAL || route->body == SRV_BODY_TENSORS)
            expect_schema(route, "request", route->doc.request);
        if (route->doc.status != 204 && route->type == NULL)
            expect_schema(route, "reply", route->doc.reply);
        expect_schema(route, "error", srv_v2_is_path(route->path) ? "V2Error" : "Error");
    }
}

/* A path that a proxy has put before attnd is before the document too. */
TEST(openapi_server_is_where_the_document_is)
{
    json_t *servers = json_object_get(document, "servers");
    ck_assert_uint_eq(json_array_size(servers), 1);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(servers, 0), "url")), ".");
}

TEST(openapi_every_route_is_an_operation_of_its_own)
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

/* Fails where a word of the text, which may be NULL, is not among the names. */
static void expect_words(const char *text, json_t *names, const char *path, const char *table)
{
    char word[64];
    for (int length; text != NULL && sscanf(text, " %63s%n", word, &length) == 1; text += length)
        ck_assert_msg(json_object_get(names, word) != NULL, "%s: \"%s\" is not in %s", path, word,
                      table);
}

TEST(openapi_words_of_a_route_mean_something)
{
    json_t *all = json_object_get(json_object_get(document, "components"), "parameters");
    json_t *codes = json_object();
    for (enum srv_error_code code = 1; code < SRV_ERROR_COUNT; code++)
        json_object_set_new(codes, srv_error_word(code), json_true());
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        expect_words(route->doc.parameters, all, route->path, "parameters[] of openapi/main.c");
        expect_words(route->doc.errors, codes, route->path, "SRV_ERRORS");
    }
    json_decref(codes);
}

/* ---- Fields and errors ----------------------------------------------------------------------- */

TEST(openapi_every_field_stands_in_the_bodies_that_may_hold_it)
{
    static const struct {
        const char *name;
        enum srv_call_kind body;
    } bodies[] = {
        {"AttendRequest", SRV_CALL_ATTEND},
        {"DecodeRequest", SRV_CALL_DECODE},
        {"StepRequest", SRV_CALL_SEQUENCE},
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

TEST(openapi_every_field_of_a_document_has_a_meaning)
{
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_document_table *table = srv_routes.items[i].fields;
        for (size_t j = 0; table != NULL && j < table->count; j++)
            ck_assert_msg(table->fields[j].meaning != NULL, "%s: the field %s lacks .meaning",
                          srv_routes.items[i].path, table->fields[j].name);
    }
}

/* Which routes may reply it, the program that prints the document asks of each. */
TEST(openapi_every_error_is_listed)
{
    json_t *codes = json_object_get(schema("ErrorCode"), "enum");
    ck_assert_uint_eq(json_array_size(codes), SRV_ERROR_COUNT - 1);
    for (enum srv_error_code code = 1; code < SRV_ERROR_COUNT; code++)
        ck_assert_str_eq(json_string_value(json_array_get(codes, code - 1)), srv_error_word(code));
}

/* ---- The whole ------------------------------------------------------------------------------- */

TEST(openapi_delete_has_no_body_and_a_prefill_has_one)
{
    json_t *paths = json_object_get(document, "paths");
    json_t *end = json_object_get(json_object_get(paths, "/sessions/{id}"), "delete");
    json_t *attend = json_object_get(json_object_get(paths, "/attend"), "post");
    ck_assert_ptr_nonnull(end);
    ck_assert_ptr_null(json_object_get(end, "requestBody"));
    ck_assert_ptr_nonnull(json_object_get(attend, "requestBody"));
}

TEST(openapi_bounds_have_a_value_or_an_option)
{
    json_t *bounds = json_object_get(json_object_get(document, "info"), "x-bounds");
    size_t listed = 0;
    for (size_t i = 0; i < srv_bound_count; i++) {
        const struct srv_bound *row = &srv_bounds[i];
        json_t *bound = json_object_get(bounds, row->name);
        if (row->code == SRV_OK)
            continue;
        listed++;
        ck_assert_msg(bound != NULL, "%s is missing", row->name);
        if (row->is_option)
            ck_assert_str_eq(json_string_value(json_object_get(bound, "option")), row->name);
        else
            ck_assert_uint_eq(json_integer_value(json_object_get(bound, "value")), row->value);
        ck_assert((json_object_get(bound, "value") == NULL) == row->is_option);
    }
    ck_assert_uint_eq(json_object_size(bounds), listed);
    ck_assert_ptr_null(json_object_get(schema("StepRequestList"), "maxItems"));
}

/* One text for all daemons: some have a key file. */
TEST(openapi_a_key_is_one_way_and_none_is_another)
{
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        json_t *ways = json_object_get(operation(route), "security");
        size_t count = json_array_size(ways);
        ck_assert_msg((count >= 2) == (route->access != SRV_FOR_ALL), "%s", route->path);
        if (count > 0)
            ck_assert_uint_eq(json_object_size(json_array_get(ways, count - 1)), 0);
    }
}

SUITE(openapi)
