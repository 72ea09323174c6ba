/* error_body.c: writes an error as a JSON object. */
#include "wire/error_body.h"

/* The members after code and message, and the closing brace. */
static void write_rest(struct srv_buffer *out, const struct srv_error *error,
                       const char *request_id)
{
    if (error->param[0] != '\0') {
        srv_buffer_text(out, ",\"param\":");
        srv_buffer_json_string(out, error->param);
    }
    srv_buffer_printf(out, ",\"retryable\":%s",
                      srv_error_retryable(error->code) ? "true" : "false");
    if (error->has_length)
        srv_buffer_printf(out, ",\"length\":%u", error->length);
    if (error->revision > 0)
        srv_buffer_printf(out, ",\"epoch\":%llu,\"revision\":%llu",
                          (unsigned long long)error->epoch, (unsigned long long)error->revision);
    if (error->lowest > 0)
        srv_buffer_printf(out, ",\"lowest_length\":%u", error->lowest);
    if (error->owner[0] != '\0') {
        srv_buffer_text(out, ",\"owner\":");
        srv_buffer_json_string(out, error->owner);
    }
    if (request_id != NULL) {
        srv_buffer_text(out, ",\"request_id\":");
        srv_buffer_json_string(out, request_id);
    }
    srv_buffer_text(out, "}");
}

void srv_error_write(struct srv_buffer *out, const struct srv_error *error, const char *request_id)
{
    srv_buffer_text(out, "{\"code\":");
    srv_buffer_json_string(out, srv_error_word(error->code));
    srv_buffer_text(out, ",\"message\":");
    srv_buffer_json_string(out, error->message);
    write_rest(out, error, request_id);
}

void srv_error_write_v2(struct srv_buffer *out, const struct srv_error *error,
                        const char *request_id)
{
    srv_buffer_text(out, "{\"error\":");
    srv_buffer_json_string(out, error->message);
    srv_buffer_text(out, ",\"code\":");
    srv_buffer_json_string(out, srv_error_word(error->code));
    write_rest(out, error, request_id);
}
