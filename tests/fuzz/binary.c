/* binary.c: bodies in binary form.  The first byte chooses the route.  The JSON ends at the first
 * NUL, which takes the place of Inference-Header-Content-Length, so that the fuzzer has no number
 * to guess. */
#include "bodies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    enum srv_call_kind kind = fuzz_byte(&in) & 1 ? SRV_CALL_DECODE : SRV_CALL_ATTEND;
    size_t length;
    char *text = fuzz_copy(&length, &in, in.left);
    const char *end = memchr(text, '\0', length);
    size_t json = end != NULL ? (size_t)(end - text) : length;
    size_t skipped = end != NULL;
    /* The bytes follow the JSON without a gap, as in a body. */
    memmove(text + json, text + json + skipped, length - json - skipped);
    char *exact = malloc(length > skipped ? length - skipped : 1);
    FUZZ_EXPECT(exact != NULL);
    memcpy(exact, text, length - skipped);
    struct srv_body body = {
        .json = exact, .json_length = json, .bytes = {exact + json, length - skipped - json, true}};
    body_try(&body, kind);
    free(exact);
    free(text);
    return 0;
}
