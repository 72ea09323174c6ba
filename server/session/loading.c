/* loading.c: bytes that are loaded, their rate so far, and the time that the others take at it. */
#include "session/models.h"

#include "base/clock.h"

#define SHOW_NS 200000000  /* between two lines on a terminal, and before the first */
#define RATE_NS 250000000u /* from the begin, before a rate is said */

void srv_loading_begin(struct srv_loading *loading, size_t total, FILE *terminal)
{
    loading->terminal = terminal;
    atomic_store(&loading->begin_ns, srv_now_ns());
    atomic_store(&loading->total, total);
}

void srv_loading_print(char out[SRV_LOADING_TEXT_MAX], struct srv_loading *loading)
{
    const size_t done = atomic_load(&loading->done), total = atomic_load(&loading->total);
    const uint64_t spent_ns = srv_now_ns() - atomic_load(&loading->begin_ns);
    const double rate = (double)done / ((double)spent_ns / 1e9);
    out[0] = '\0';
    if (total == 0)
        return;
    const int at = snprintf(out, SRV_LOADING_TEXT_MAX, "%zu of %zu MiB", done >> 20, total >> 20);
    if (at > 0 && at < SRV_LOADING_TEXT_MAX && spent_ns >= RATE_NS && done > 0)
        snprintf(out + at, SRV_LOADING_TEXT_MAX - (size_t)at, ", %.0f MiB/s, %.0f s left",
                 rate / (1 << 20), (double)(total - done) / rate);
}

/* Shows the line on the terminal at most a few times a second. */
void srv_loading_advance(void *context, size_t done, size_t total)
{
    struct srv_loading *loading = context;
    char text[SRV_LOADING_TEXT_MAX];
    const uint64_t now_ns = srv_now_ns(), begin_ns = atomic_load(&loading->begin_ns);
    const uint64_t last_ns = loading->shown_ns > 0 ? loading->shown_ns : begin_ns;
    (void)total;
    atomic_store(&loading->done, loading->before + done);
    if (loading->terminal == NULL || now_ns - last_ns < SHOW_NS)
        return;
    loading->shown_ns = now_ns;
    srv_loading_print(text, loading);
    fprintf(loading->terminal, "\rattnd: loading weights: %s\033[K", text);
    fflush(loading->terminal);
}

void srv_loading_next(struct srv_loading *loading, size_t bytes)
{
    loading->before += bytes;
    srv_loading_advance(loading, 0, 0);
}

void srv_loading_end(struct srv_loading *loading)
{
    if (loading->shown_ns > 0) {
        fputs("\r\033[K", loading->terminal);
        fflush(loading->terminal);
    }
    loading->terminal = NULL;
}
