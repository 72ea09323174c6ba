/* error_body.c: writes an error as a JSON object. */
#include "wire/request.h"

/* Appends `before`, which ends with a member's name, and a text; nothing where that is NULL. */
static void write_text(struct srv_buffer *out, const char *before, const char *text)
{
    if (text == NULL)
        return;
    srv_buffer_text(out, before);
    srv_buffer_json_string(out, text);
}

/* The members after code and message, and the closing brace. */
static void write_rest(struct srv_buffer *out, const struct srv_error *error,
                       const char *request_id)
{
    write_text(out, ",\"param\":", error->param[0] != '\0' ? error->param : NULL);
    srv_buffer_printf(out, ",\"retryable\":%s",
                      srv_error_retryable(error->code) ? "true" : "false");
    if (error->has_length)
        srv_buffer_printf(out, ",\"length\":%u", error->length);
    if (error->revision > 0)
        srv_buffer_printf(out, ",\"epoch\":%llu,\"revision\":%llu",
                          (unsigned long long)error->epoch, (unsigned long long)error->revision);
    if (error->lowest > 0)
        srv_buffer_printf(out, ",\"lowest_length\":%u", error->lowest);
    write_text(out, ",\"owner\":", error->instance[0] != '\0' ? error->instance : NULL);
    write_text(out, ",\"request_id\":", request_id);
    srv_buffer_text(out, "}");
}

void srv_error_write(struct srv_buffer *out, const struct srv_error *error, const char *request_id)
{
    write_text(out, "{\"code\":", srv_error_word(error->code));
    write_text(out, ",\"message\":", error->message);
    write_rest(out, error, request_id);
}

void srv_error_write_v2(struct srv_buffer *out, const struct srv_error *error,
                        const char *request_id)
{
    write_text(out, "{\"error\":", error->message);
    write_text(out, ",\"code\":", srv_error_word(error->code));
    write_rest(out, error, request_id);
}
