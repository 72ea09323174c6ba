/* coding.c: bodies in gzip or deflate, which the first byte chooses.  The output is bounded to 32
 * KiB, so that an input costs little, although most sound inputs would give more. */
#include "wire/coding.h"

#include "fuzz.h"

#define MOST ((size_t)1 << 15)

static bool grant(void *context, size_t bytes)
{
    size_t *left = context;
    if (bytes > *left)
        return false;
    *left -= bytes;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct fuzz_input in = {data + 1, size - 1};
    enum srv_coding coding = data[0] % 2 == 1 ? SRV_GZIP : SRV_DEFLATE;
    size_t left = MOST + 1, length, coded_size;
    struct srv_error error = {0};
    const struct srv_decompress_limits limits = {.most = MOST, .grant = grant, .context = &left};
    char *out = NULL, *coded = fuzz_copy(&coded_size, &in, in.left);
    enum srv_error_code code =
        srv_decompress(&out, &length, coding, coded, coded_size, &limits, &error);
    FUZZ_EXPECT(code == error.code && (code == SRV_OK) == (out != NULL));
    FUZZ_EXPECT(code == SRV_OK || code == SRV_E_MALFORMED_ENCODING || code == SRV_E_BODY_TOO_LARGE);
    if (code == SRV_OK)
        FUZZ_EXPECT(length <= MOST && out[length] == '\0');
    free(coded);
    free(out);
    return 0;
}
