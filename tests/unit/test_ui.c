/* test_ui.c: the embedded files of the attention viewer: none is missing, none comes twice, each
 * has a type, and together they are no larger than a binary should carry. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/endpoints.h"
#include "base/buffer.h"
#include "suites.h"
#include "ui/ui.h"
#include "wire/coding.h"

/* As `make check-ui-size` has them: the page, and the model that it runs. */
#define MOST_BYTES 200000
#define MOST_MODEL_BYTES 1000000

TEST(ui_files_have_names_types_and_a_size)
{
    struct srv_ui_file file, other;
    size_t bytes = 0, model_bytes = 0;
    for (size_t i = 0; srv_ui_at(&file, i); i++) {
        const bool weights = strstr(file.name, ".safetensors") != NULL;
        *(weights || strstr(file.name, ".json") != NULL ? &model_bytes : &bytes) += file.length;
        ck_assert_uint_gt(file.length, 0);
        ck_assert_int_eq(strcmp(file.type, "application/octet-stream") == 0, weights);
        ck_assert(srv_ui_find(&other, file.name));
        ck_assert_msg(other.bytes == file.bytes, "%s comes twice", file.name);
    }
    ck_assert_uint_gt(bytes, 0);
    ck_assert_uint_le(bytes, MOST_BYTES);
    ck_assert_uint_gt(model_bytes, 0);
    ck_assert_uint_le(model_bytes, MOST_MODEL_BYTES);
    ck_assert(!srv_ui_find(&other, ""));
    ck_assert(!srv_ui_find(&other, "none.js"));
}

static bool grant(void *context, size_t bytes)
{
    (void)context;
    return bytes <= 2 * SRV_EMBEDDED_MAX_BYTES;
}

/* The file as it stands in the tree; the caller frees it. */
static char *expand(size_t *length, const struct srv_ui_file *file)
{
    const struct srv_decompress_limits limits = {.most = SRV_EMBEDDED_MAX_BYTES, .grant = grant};
    struct srv_error error = {0};
    char *text = NULL;
    ck_assert_msg(srv_decompress(&text, length, SRV_GZIP, file->bytes, file->length, &limits,
                                 &error) == SRV_OK,
                  "%s: %s", file->name, error.message);
    return text;
}

/* Fails where a text between `before` and `after` of the file names a file that is not embedded;
 * returns how many it has. */
static size_t expect_named(const struct srv_ui_file *file, const char *before, char after)
{
    char name[64];
    size_t found = 0, length = strlen(before), size;
    char *text = expand(&size, file);
    const char *end = text + size;
    struct srv_ui_file other;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), before, length)) != NULL;
         found++) {
        at += length;
        const char *stop = memchr(at, after, (size_t)(end - at));
        ck_assert(stop != NULL && (size_t)(stop - at) < sizeof name);
        memcpy(name, at, (size_t)(stop - at));
        name[stop - at] = '\0';
        ck_assert_msg(srv_ui_find(&other, name), "%s names %s, which is not embedded", file->name,
                      name);
    }
    free(text);
    return found;
}

TEST(ui_every_file_that_the_page_or_a_module_names_is_there)
{
    struct srv_ui_file file;
    size_t modules = 0;
    ck_assert(srv_ui_find(&file, SRV_UI_PAGE));
    ck_assert_str_eq(file.type, "text/html; charset=utf-8");
    ck_assert_uint_ge(expect_named(&file, "\"ui/", '"'), 3);
    for (size_t i = 0; srv_ui_at(&file, i); i++)
        modules += expect_named(&file, "from \"./", '"') + expect_named(&file, "import(\"./", '"');
    ck_assert_uint_gt(modules, 0);
}

/* What follows is written elsewhere, and the limit of a reply is none of constants. */
TEST(ui_file_is_held_without_memory)
{
    struct srv_ui_file file;
    struct srv_buffer reply;
    ck_assert(srv_ui_find(&file, SRV_UI_PAGE));
    srv_buffer_init(&reply, 16);
    srv_buffer_text(&reply, "before");
    srv_buffer_wrap(&reply, file.bytes, file.length);
    ck_assert_ptr_eq(reply.data, file.bytes);
    ck_assert_uint_eq(reply.length, file.length);
    ck_assert_uint_eq(srv_buffer_allocated(&reply), 0);
    srv_buffer_text(&reply, "more");
    ck_assert(reply.failed);
    srv_buffer_fini(&reply);
    srv_buffer_init(&reply, SIZE_MAX);
    srv_buffer_wrap(&reply, file.bytes, file.length);
    srv_buffer_text(&reply, "more");
    ck_assert(!reply.failed && reply.data != file.bytes);
    ck_assert_uint_ge(srv_buffer_allocated(&reply), file.length + 4);
    ck_assert_mem_eq(reply.data, file.bytes, file.length);
    srv_buffer_fini(&reply);
}

SUITE(ui)
