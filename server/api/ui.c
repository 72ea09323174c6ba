/* ui.c: the attention viewer: GET / and the files that the page loads, GET /ui/{file}.
 *
 * Anybody may have them, since they hold no secret; what the page asks for then needs a key.  Such
 * a reply takes no memory but for the origins that may frame the page, where there are some. */

#include "ui/ui.h"
#include "api/endpoints.h"
#include "app.h"

/* The page takes scripts, styles and data from its own origin only, no script makes text into HTML,
 * and pages of no origin but those of allow_origins may frame it. */
#define POLICY                                                                              \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; " \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "                             \
    "require-trusted-types-for 'script'; trusted-types attnd-worker; frame-ancestors "
#define FIELDS                            \
    "X-Content-Type-Options: nosniff\r\n" \
    "Referrer-Policy: no-referrer\r\n"    \
    "Content-Security-Policy: " POLICY

#define FRAMING_MAX 400 /* characters of the origins that a policy lists */

/* The header fields: constants, or in the request's arena; NULL where memory is short.  Origins
 * have none of the letters that end a directive or a policy. */
static const char *find_fields(struct srv_request *request)
{
    const char *origins = request->app->config.allow_origins;
    if (origins == NULL)
        return FIELDS "'none'\r\n";
    size_t length = strlen(origins);
    while (length > FRAMING_MAX || (origins[length] != ',' && origins[length] != '\0'))
        length--; /* to the end of an origin */
    char *out = srv_arena_alloc(&request->arena, sizeof FIELDS + length + sizeof "\r\n", 1);
    if (out == NULL)
        return NULL;
    memcpy(out, FIELDS, sizeof FIELDS - 1);
    char *list = out + sizeof FIELDS - 1;
    for (size_t i = 0; i < length; i++)
        list[i] = origins[i] == ',' ? ' ' : origins[i];
    memcpy(list + length, "\r\n", sizeof "\r\n");
    return out;
}

static void reply_file(struct srv_request *request, const struct srv_ui_file *file)
{
    struct srv_error error = {0};
    const struct srv_embedded embedded = {file->bytes, file->length, file->type,
                                          find_fields(request)};
    if (embedded.fields != NULL) {
        srv_reply_embedded(request, &embedded);
        return;
    }
    srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply's header");
    srv_reply_error(request, &error);
}

void srv_get_page(struct srv_request *request)
{
    struct srv_ui_file file;
    if (srv_ui_find(&file, SRV_UI_PAGE))
        reply_file(request, &file);
}

/* The page is not among its own files: from there its links would lead nowhere. */
void srv_get_page_file(struct srv_request *request)
{
    struct srv_ui_file file;
    struct srv_error error = {0};
    if (strcmp(request->path_arg, SRV_UI_PAGE) != 0 && srv_ui_find(&file, request->path_arg)) {
        reply_file(request, &file);
        return;
    }
    srv_fail(&error, SRV_E_ROUTE_NOT_FOUND, NULL, "the page has no such file");
    srv_reply_error(request, &error);
}
