/* command_help.c: attnd --help and --version, and what commands print a text with. */
#include "main.h"

#include "api/endpoints.h"
#include "http/http.h"

int srv_print_text(struct srv_buffer *text)
{
    bool printed = !text->failed && fwrite(text->data, 1, text->length, stdout) == text->length &&
                   fflush(stdout) == 0;
    srv_buffer_fini(text);
    return printed ? 0 : 1;
}

int srv_command_help(void)
{
    struct srv_buffer text;
    srv_buffer_init(&text, SRV_PRINTED_MAX);
    srv_config_help(&text);
    if (srv_has_page)
        srv_buffer_text(&text, "\nThe attention viewer is a page for a browser: http://HOST:PORT/, "
                               "by default http://127.0.0.1:8080/.\n");
    return srv_print_text(&text);
}

int srv_command_version(void)
{
    struct attn_engine *engine;
    struct attn_engine_options options = {.threads = 1, .gemm = ATTN_GEMM_OPENBLAS};
    struct attn_error error = {0};
    if (attn_engine_open(&engine, &options, &error) != ATTN_OK) {
        options.gemm = ATTN_GEMM_PACKED;
        if (attn_engine_open(&engine, &options, &error) != ATTN_OK) {
            fprintf(stderr, "attnd: %s\n", error.message);
            return 1;
        }
    }
    struct attn_engine_info info;
    struct srv_buffer text;
    attn_engine_describe(&info, engine);
    srv_buffer_init(&text, SRV_PRINTED_MAX);
    srv_buffer_printf(&text,
                      "attnd %s\nlibattn %s, %s kernels\nOpenBLAS core %s\nlibmicrohttpd %s\n",
                      ATTN_VERSION, ATTN_VERSION, info.level_name,
                      info.blas_core ? info.blas_core : "none", srv_http_library_version());
    attn_engine_close(engine);
    return srv_print_text(&text);
}
