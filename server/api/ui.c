/* ui.c: the attention viewer: GET / and the files that the page loads, GET /ui/{file}.
 *
 * Anybody may have them, since they hold no secret; what the page asks for then needs a key.  The
 * binary has each file compressed.  Browsers get that form, from the binary's own constants: such a
 * reply takes no memory but for the origins that may frame the page, where there are some.  Who
 * does not accept gzip gets the file expanded.  Browsers keep the files and ask whether they are
 * still as they were: a visit to the same build is answered without bodies, and a visit after an
 * upgrade mixes no two builds. */
#include <stdlib.h>
#include <string.h>

#include "api/endpoints.h"
#include "app.h"
#include "ui/ui.h"
#include "wire/coding.h"

/* The page takes scripts, styles and data from its own origin only, no script makes text into HTML,
 * and pages of no origin but those of allow_origins may frame it. */
#define POLICY                                                                              \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; " \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "                             \
    "require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors "
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

#define TRAILER 8 /* CRC-32 and length of the expanded file, which end a member of gzip */

static uint64_t mix(uint64_t hash, const char *bytes, size_t length) /* FNV-1a */
{
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3;
    return hash;
}

/* The header fields are part of what a tag stands for: with a 304 browsers keep the policy that
 * they have. */
static uint32_t tag_of(const struct srv_ui_file *file, const char *fields)
{
    uint64_t hash = mix(0xcbf29ce484222325, fields, strlen(fields));
    hash = mix(hash, file->bytes + file->length - TRAILER, TRAILER);
    uint32_t tag = (uint32_t)(hash >> 32 ^ hash);
    return tag != 0 ? tag : 1;
}

/* Whether the client has kept what the reply has: tags are compared without their W/.  Hexadecimal
 * digits between two quotes are a whole tag of the list. */
static bool is_held(const struct srv_request *request)
{
    const char *held = request->held_tags;
    char tag[SRV_TAG_SIZE];
    if (held == NULL)
        return false;
    srv_reply_write_tag(tag, &request->reply);
    return strcmp(held, "*") == 0 || strstr(held, tag + 2) != NULL;
}

static bool charge(void *request, size_t bytes) { return srv_request_charge(request, bytes); }

/* Makes the file the reply's body, as it stands in the tree. */
static enum srv_error_code expand(struct srv_request *request, const struct srv_ui_file *file,
                                  struct srv_error *error)
{
    const struct srv_decompress_limits limits = {
        .most = SRV_UI_MAX_BYTES, .grant = charge, .context = request};
    struct srv_buffer *body = &request->reply.body;
    char *plain;
    size_t length;
    if (srv_decompress(&plain, &length, SRV_GZIP, file->bytes, file->length, &limits, error) !=
        SRV_OK)
        return error->code;
    body->limit = length > body->limit ? length + 1 : body->limit;
    srv_buffer_append(body, plain, length);
    free(plain);
    return SRV_OK;
}

/* The body of a 304 is there for its length, and not sent. */
static void reply_file(struct srv_request *request, const struct srv_ui_file *file)
{
    struct srv_reply *reply = &request->reply;
    struct srv_error error = {0};
    const char *fields = find_fields(request);
    if (fields == NULL) {
        srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply's header");
        srv_reply_error(request, &error);
        return;
    }
    if (request->accepted == SRV_GZIP) {
        srv_buffer_hold(&reply->body, file->bytes, file->length);
        reply->coding = SRV_GZIP;
    } else if (expand(request, file, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    reply->tag = tag_of(file, fields);
    reply->varies = true;
    reply->content_type = file->type;
    reply->fields = fields;
    srv_reply_status(request, 200);
    if (is_held(request)) {
        srv_reply_status(request, 304);
        reply->fields = NULL;
    }
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
