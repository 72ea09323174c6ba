/* request.c: JSON bodies of /attend or /decode, which the first byte chooses; and the same text as
 * any JSON value, which is skipped. */
#include "bodies.h"

static void skip(const char *text, size_t length)
{
    struct srv_json json;
    struct srv_error error = {0};
    srv_json_init(&json, text, length, &error);
    bool skipped = srv_json_skip(&json);
    FUZZ_EXPECT(skipped == (error.code == SRV_OK) && json.at <= text + length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    enum srv_call_kind kind = fuzz_byte(&in) & 1 ? SRV_CALL_DECODE : SRV_CALL_ATTEND;
    struct srv_body body = {0};
    char *text = fuzz_copy(&body.json_length, &in, in.left);
    body.json = text;
    skip(text, body.json_length);
    body_try(&body, kind);
    free(text);
    return 0;
}
