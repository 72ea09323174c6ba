/* document.c: the small JSON bodies of the endpoints under /sessions, and those with tensors: there
 * the JSON ends before the first byte 1, if any, and bytes of tensors follow that. */
#include "wire/document.h"

#include "bodies.h"
#include "fuzz.h"

struct call {
    const char *session_id, *model;
    size_t max_length, ttl_s;
    struct srv_tensor encoder_hidden_states, encoder_padding_mask;
};

static const struct srv_document_field fields[] = {
    SRV_TEXT_FIELD(call, session_id),
    SRV_TEXT_FIELD(call, model),
    SRV_COUNT_FIELD(call, max_length, 1),
    SRV_COUNT_FIELD(call, ttl_s, 0),
    SRV_TENSOR_FIELD(call, encoder_hidden_states, SRV_FLOATS),
    SRV_TENSOR_FIELD(call, encoder_padding_mask, SRV_BOOLS, .needs = "encoder_hidden_states"),
};
static const struct srv_document_table table = {.fields = fields, .count = 6};

static void read_with_tensors(char *text, size_t length)
{
    char *end = length > 0 ? memchr(text, 1, length) : NULL;
    struct srv_arena arena;
    struct srv_error error = {0};
    struct call call = {0};
    json_t *document = NULL;
    struct srv_body body = {.json = text, .json_length = length};
    if (end != NULL) {
        body.json_length = (size_t)(end - text);
        body.bytes = (struct srv_binary_data){end + 1, length - body.json_length - 1, true};
    }
    srv_arena_init(&arena, BODY_MEMORY, NULL, NULL);
    enum srv_error_code code =
        srv_document_read_tensors(&document, &call, &table, &body, &arena, &error);
    FUZZ_EXPECT((code == SRV_OK) == json_is_object(document));
    if (code == SRV_OK)
        code = srv_document_fields(&call, &table, document, &error);
    FUZZ_EXPECT(code == error.code && (code == SRV_OK) == (error.message[0] == '\0'));
    if (code == SRV_OK) {
        body_check_tensor(&call.encoder_hidden_states);
        body_check_tensor(&call.encoder_padding_mask);
    }
    json_decref(document);
    srv_arena_fini(&arena);
}

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
    read_with_tensors(request.body, request.body_length);
    free(request.body);
    return 0;
}
