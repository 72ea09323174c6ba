/* embedded.c: files of the binary as replies.
 *
 * The binary has each file compressed.  Browsers get that form, from the binary's own constants:
 * such a reply takes no memory, and none is charged.  Who does not accept gzip gets the file
 * expanded.  Clients keep the files and ask whether they are still as they were: a visit to the
 * same build is answered without bodies, and a visit after an upgrade mixes no two builds. */
#include "api/endpoints.h"

#include <stdlib.h>

#include "base/checksum.h"

#define TRAILER 8 /* CRC-32 and length of the expanded file, which end a member of gzip */

/* The header fields are part of what a tag stands for: with a 304 browsers keep the policy that
 * they have. */
static uint32_t tag_of(const struct srv_embedded *file)
{
    const char *fields = file->fields != NULL ? file->fields : "";
    const char *trailer = file->bytes + file->length - TRAILER;
    const uint64_t seed = XXH3_64bits(fields, strlen(fields));
    const uint32_t tag = (uint32_t)XXH3_64bits_withSeed(trailer, TRAILER, seed);
    return tag != 0 ? tag : 1;
}

/* Makes the file the reply's body, as it stands in the tree. */
static enum srv_error_code expand(struct srv_request *request, const struct srv_embedded *file,
                                  struct srv_error *error)
{
    const struct srv_decompress_limits limits = {
        .most = SRV_EMBEDDED_MAX_BYTES, .grant = srv_request_charge, .context = request};
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

/* Tags are compared without their W/: hexadecimal digits between two quotes are a whole tag of the
 * list that the client has sent.  The body of a 304 is there for its length, and not sent. */
void srv_reply_embedded(struct srv_request *request, const struct srv_embedded *file)
{
    struct srv_reply *reply = &request->reply;
    struct srv_error error = {0};
    const char *known = request->if_none_match;
    char tag[SRV_TAG_SIZE];
    if (request->accepted == SRV_GZIP) {
        srv_buffer_wrap(&reply->body, file->bytes, file->length);
        reply->coding = SRV_GZIP;
    } else if (expand(request, file, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    reply->tag = tag_of(file);
    reply->varies = true;
    reply->content_type = file->type;
    reply->fields = file->fields;
    srv_reply_status(request, 200);
    srv_reply_write_tag(tag, reply);
    if (known != NULL && (strcmp(known, "*") == 0 || strstr(known, tag + 2) != NULL)) {
        srv_reply_status(request, 304);
        reply->fields = NULL;
    }
}
