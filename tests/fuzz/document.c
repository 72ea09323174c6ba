/* document.c: the small JSON bodies of the endpoints under /sessions. */
#include "wire/document.h"

#include "fuzz.h"

struct call {
    const char *session_id, *model;
    size_t max_length, ttl_s;
};

static const struct srv_document_field fields[] = {
    SRV_TEXT_FIELD(call, session_id),
    SRV_TEXT_FIELD(call, model),
    SRV_COUNT_FIELD(call, max_length, 1),
    SRV_COUNT_FIELD(call, ttl_s, 0),
};
static const struct srv_document_table table = {.fields = fields, .count = 4};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct srv_request request = {0};
    struct srv_error error = {0};
    struct call call = {0};
    json_t *document = NULL;
    request.body = fuzz_copy(&request.body_length, &in, in.left);
    enum srv_error_code code = srv_document_read(&document, &request, &error);
    FUZZ_EXPECT((code == SRV_OK) == json_is_object(document));
    if (code == SRV_OK)
        code = srv_document_fields(&call, &table, document, &error);
    FUZZ_EXPECT(code == error.code && (code == SRV_OK) == (error.message[0] == '\0'));
    FUZZ_EXPECT(code != SRV_OK || call.session_id == NULL || strlen(call.session_id) < size);
    json_decref(document);
    free(request.body);
    return 0;
}
