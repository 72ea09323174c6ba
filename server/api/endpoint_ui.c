/* endpoint_ui.c: the attention viewer: GET / and the files that the page loads, GET /ui/{file}.
 *
 * Anybody may have them, since they hold no secret; what the page asks for then needs a key. */
#include <string.h>

#include "api/embedded.h"
#include "api/endpoints.h"
#include "ui/ui.h"

/* The page takes scripts, styles and data from its own origin only, no script makes text into HTML,
 * and no other page may frame it. */
static const char fields[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n";

static void reply_file(struct srv_request *request, const struct srv_ui_file *file)
{
    const struct srv_embedded embedded = {file->bytes, file->length, file->type, fields};
    srv_reply_embedded(request, &embedded);
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
