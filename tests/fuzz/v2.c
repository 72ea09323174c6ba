/* v2.c: infer requests of the Open Inference Protocol.  The first byte chooses the model that the
 * path names.  The JSON ends at the first NUL, as in binary.c; without one the request has no bytes
 * of tensors. */
#include "wire/v2.h"
#include "base/id.h"
#include "bodies.h"

static void check_request(const struct srv_v2_request *request, const struct srv_call *call,
                          const struct srv_v2_target *target)
{
    const struct srv_rows *rows = &call->rows;
    FUZZ_EXPECT(call->sequences == NULL && !call->binary_output);
    FUZZ_EXPECT(request->has_sequence == (rows->session_id != NULL));
    FUZZ_EXPECT(request->has_sequence || (!request->start && !request->end));
    FUZZ_EXPECT(request->start == rows->start);
    FUZZ_EXPECT(request->id == NULL || strlen(request->id) <= SRV_V2_ID_MAX);
    FUZZ_EXPECT(request->outputs.count <= SRV_V2_MAX_OUTPUTS);
    FUZZ_EXPECT((rows->outputs & SRV_OUT_STATS) == 0);
    FUZZ_EXPECT((target->model == NULL) == (call->model == NULL));
    FUZZ_EXPECT(target->model == NULL || strcmp(call->model, target->model) == 0);
    FUZZ_EXPECT(!target->has_layer || (size_t)call->layer == target->layer);
    for (size_t i = 0; i < request->outputs.count; i++)
        (void)srv_v2_output_is_binary(&request->outputs, request->outputs.items[i].name);
    body_check_rows(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct srv_v2_target targets[] = {
        {.model = "tiny"}, {.model = "tiny", .has_layer = true, .layer = 1}, {.model = NULL}};
    struct fuzz_input in = {data, size};
    const struct srv_v2_target *target = &targets[fuzz_byte(&in) % 3];
    struct srv_v2_request request;
    struct srv_call call = {0};
    struct srv_error error = {0};
    struct srv_arena arena;
    size_t length;
    char *text = fuzz_copy(&length, &in, in.left);
    const char *end = memchr(text, '\0', length);
    size_t json = end != NULL ? (size_t)(end - text) : length, skipped = end != NULL;
    char *exact = malloc(length > skipped ? length - skipped : 1);
    FUZZ_EXPECT(exact != NULL);
    memcpy(exact, text, json);
    memcpy(exact + json, text + json + skipped, length - json - skipped);
    const struct srv_body body = {
        .json = exact,
        .json_length = json,
        .bytes = {.at = exact + json, .left = length - skipped - json, .framed = end != NULL}};
    srv_arena_init(&arena, BODY_MEMORY, NULL, NULL);
    enum srv_error_code code = srv_v2_read(&request, &call, target, &body, &arena, &error);
    FUZZ_EXPECT(code == error.code && code < SRV_ERROR_COUNT);
    FUZZ_EXPECT((code == SRV_OK) == (error.message[0] == '\0'));
    if (code == SRV_OK)
        check_request(&request, &call, target);
    srv_arena_fini(&arena);
    free(exact);
    free(text);
    return 0;
}
