/* loading.h: how far the loading of weights is, for /readyz and a terminal. */
#ifndef SRV_LOADING_H
#define SRV_LOADING_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define SRV_LOADING_TEXT_MAX 96

/* One thread writes, any thread reads. */
struct srv_loading {
    atomic_size_t done, total;     /* bytes of weights of all models; total 0: not begun */
    atomic_uint_fast64_t begin_ns; /* of srv_now_ns */
    size_t before;                 /* bytes of the models before the one that is being loaded */
    FILE *terminal;                /* where a line is shown and shown again; NULL: nowhere */
    uint64_t shown_ns;             /* when it last was; 0: never */
};

void srv_loading_begin(struct srv_loading *loading, size_t total, FILE *terminal);

/* Says that `done` bytes of the model being loaded are resident, an attn_load_progress; that all of
 * its `bytes` are, so that another model is next; that loading is over, which clears the line. */
void srv_loading_advance(void *loading, size_t done, size_t total);
void srv_loading_next(struct srv_loading *loading, size_t bytes);
void srv_loading_end(struct srv_loading *loading);

/* Prints "412 of 1120 MiB, 640 MiB/s, 1 s left", of which the rest after the first comma needs a
 * quarter of a second; "" before the begin. */
void srv_loading_print(char out[SRV_LOADING_TEXT_MAX], struct srv_loading *loading);

#endif
