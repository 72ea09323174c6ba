/* rounds.c: reading, computing and replying, for whoever drives. */
#include "rounds.h"

#include <stdlib.h>

#include "app.h"
#include "steps.h"

/* Below these, waking another thread costs more than it brings. */
#define ALONE_BYTES 32768  /* of bodies or replies that are read or written by one thread */
#define SMALL_WORK 2000000 /* multiply-adds of the steps in a round that an event thread runs */

/* For each i below count, on all threads where as many `bytes` are read or written make it pay. */
static void run_tasks(struct srv_rounds *s, void (*task)(void *context, size_t i), void *context,
                      size_t count, size_t bytes)
{
    if (count > 1 && bytes > ALONE_BYTES) {
        attn_engine_run(s->app->engine, task, context, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        task(context, i);
}

/* ---- Ended jobs ---- */

static void end_request(struct srv_rounds *s, struct srv_request *request)
{
    request->t_computed = srv_now_ns();
    s->ended[s->num_ended++] = request;
}

static void end_job(struct srv_rounds *s, struct srv_job *job)
{
    /* A single item's error is the request's. */
    if (job->num_items == 1 && job->call.sequences == NULL)
        job->error = job->items[0].error;
    end_request(s, job->request);
}

static void write_task(void *requests, size_t i)
{
    srv_write_reply(((struct srv_request **)requests)[i]);
}

void srv_rounds_reply(struct srv_rounds *s)
{
    s->num_ended = srv_clerk_relieve(s->clerk, s->ended, s->num_ended);
    if (s->num_ended == 0)
        return;
    size_t bytes = 0;
    for (size_t i = 0; i < s->num_ended; i++)
        bytes += s->ended[i]->reply_bytes;
    run_tasks(s, write_task, s->ended, s->num_ended, bytes);
    for (size_t i = 0; i < s->num_ended; i++)
        if (s->ended[i]->job != NULL)
            srv_job_end(s->ended[i]->job);
    atomic_fetch_sub(&s->depth, s->num_ended);
    srv_http_resume(s->app->http, s->ended, s->num_ended);
    s->num_ended = 0;
}

void srv_rounds_write(struct srv_rounds *s, struct srv_request *request)
{
    srv_write_reply(request);
    srv_job_end(request->job);
    atomic_fetch_sub(&s->depth, 1);
    srv_http_resume(s->app->http, &request, 1);
}

/* ---- Reading ---- */

static void read_task(void *requests, size_t i)
{
    srv_read_body(((struct srv_request **)requests)[i]);
}

static void queue_item(struct srv_rounds *s, struct srv_item *item)
{
    if (item->error.code != SRV_OK || !srv_item_bind(item, s->app)) {
        item->job->pending--;
        return;
    }
    item->next = NULL;
    *s->last_item = item;
    s->last_item = &item->next;
}

static void put_job(struct srv_job_list *list, struct srv_job *job)
{
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}

static struct srv_job *take_job(struct srv_job_list *list)
{
    struct srv_job *job = list->first;
    if (job != NULL)
        list->first = job->next;
    if (list->first == NULL)
        list->last = &list->first;
    return job;
}

/* Where a job goes that has been begun. */
static void queue_begun(struct srv_rounds *s, struct srv_job *job)
{
    if (job->compute != NULL)
        put_job(&s->attends, job);
    else if (job->advance != NULL && job->error.code == SRV_OK)
        put_job(&s->pieces, job);
    else if (job->pending == 0)
        end_job(s, job);
}

/* Ends a job that nobody waits for any more. */
static bool drop_job(struct srv_rounds *s, struct srv_job *job)
{
    if (srv_request_check(job->request, srv_now_ns(), &job->error) == SRV_OK)
        return false;
    end_job(s, job);
    return true;
}

static void begin_job(struct srv_rounds *s, struct srv_job *job)
{
    if (drop_job(s, job))
        return;
    job->begin(job);
    queue_begun(s, job);
}

/* The first job that somebody waits for; those before it end. */
static struct srv_job *take_live(struct srv_rounds *s, struct srv_job_list *list)
{
    struct srv_job *job = take_job(list);
    while (job != NULL && drop_job(s, job))
        job = take_job(list);
    return job;
}

/* What changes sessions waits for the end of a running prefill: it may be of that one. */
static void queue_job(struct srv_rounds *s, struct srv_job *job)
{
    for (size_t i = 0; i < job->num_items; i++)
        queue_item(s, &job->items[i]);
    if (job->begin == NULL)
        queue_begun(s, job);
    else if (s->long_session != NULL)
        put_job(&s->changes, job);
    else
        begin_job(s, job);
}

/* Ends requests that nobody waits for any more, before they are read; the rest move up. */
static size_t drop_requests(struct srv_rounds *s, struct srv_request *requests[], size_t count)
{
    size_t kept = 0;
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < count; i++) {
        struct srv_error error;
        bool read = requests[i]->job != NULL || requests[i]->reply.status != 0;
        if (read || srv_request_check(requests[i], now, &error) == SRV_OK) {
            requests[kept++] = requests[i];
        } else {
            srv_reply_error(requests[i], &error);
            end_request(s, requests[i]);
        }
    }
    return kept;
}

void srv_rounds_read(struct srv_rounds *s, struct srv_request *requests[], size_t count,
                     size_t bytes)
{
    count = drop_requests(s, requests, count);
    count = srv_clerk_relieve(s->clerk, requests, count);
    run_tasks(s, read_task, requests, count, bytes);
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < count; i++) {
        if (requests[i]->t_compute == 0)
            requests[i]->t_compute = now;
        if (requests[i]->job != NULL)
            queue_job(s, requests[i]->job);
        else
            end_request(s, requests[i]);
    }
}

/* ---- Steps ---- */

static bool same_layer(const struct srv_item *a, const struct srv_item *b)
{
    return a->model == b->model && a->job->call.layer == b->job->call.layer;
}

static bool is_long(const struct srv_item *item) { return item->sizes.queries > SRV_FEW_ROWS; }

/* The batch that is being put together. */
struct batch {
    struct srv_item *items[SRV_BATCH_STEPS];
    size_t count, rows;
};

/* Whether an item may join: of the lead's layer, as short as it, and of a session that no earlier
 * item of this round has touched or waits for. */
static bool joins(const struct srv_item *item, const struct srv_item *lead,
                  const struct batch *batch, uint64_t round)
{
    if (item->session->round == round)
        return false;
    return item == lead ||
           (same_layer(item, lead) && !is_long(lead) && !is_long(item) &&
            batch->count < SRV_BATCH_STEPS && batch->rows + item->sizes.queries <= SRV_BATCH_ROWS);
}

/* Ends the job of an item that has ended, if it was the last. */
static void end_job_of(struct srv_rounds *s, const struct srv_item *item)
{
    struct srv_job *job = item->job;
    if (job->pending > 0 || job->ended)
        return;
    job->ended = true;
    end_job(s, job);
}

/* Ends an item that nobody waits for any more. */
static bool drop_item(struct srv_rounds *s, struct srv_item *item, uint64_t now)
{
    if (srv_request_check(item->job->request, now, &item->error) == SRV_OK)
        return false;
    srv_item_end(item);
    end_job_of(s, item);
    return true;
}

/* Takes a batch led by the first waiting item that is `want_long` or not, out of the list.  A
 * session met once counts as touched, so its items keep their order. */
static void take_batch(struct batch *batch, struct srv_rounds *s, bool want_long)
{
    struct srv_item *lead = NULL, **link = &s->first_item;
    uint64_t round = ++s->round, now = srv_now_ns();
    batch->count = batch->rows = 0;
    if (s->long_session != NULL)
        s->long_session->round = round;
    while (*link != NULL) {
        struct srv_item *item = *link, *next = item->next;
        if (drop_item(s, item, now)) {
            *link = next;
            continue;
        }
        if (lead == NULL && is_long(item) == want_long && item->session->round != round)
            lead = item;
        bool taken = lead != NULL && joins(item, lead, batch, round);
        item->session->round = round;
        if (taken) {
            batch->items[batch->count++] = item;
            batch->rows += item->sizes.queries;
            *link = next;
        } else {
            link = &item->next;
        }
    }
    s->last_item = link;
}

/* Before an attend, or a prefill, which has a session. */
static void begin_long(struct srv_rounds *s, const struct srv_request *request,
                       struct srv_session *session)
{
    srv_rounds_reply(s);
    s->long_request = request;
    s->long_session = session;
    s->stopped.code = SRV_OK;
    s->more = srv_rounds_have_short(s);
}

bool srv_rounds_go_on(struct srv_rounds *s)
{
    return s->long_request == NULL ||
           srv_request_check(s->long_request, srv_now_ns(), &s->stopped) == SRV_OK;
}

/* `error` is the computation's: where it was stopped it says why, as far as the library knows. */
static void end_long(struct srv_rounds *s, struct srv_error *error)
{
    if (error->code == SRV_E_DRAINING && s->stopped.code != SRV_OK)
        *error = s->stopped;
    s->long_request = NULL;
    s->long_session = NULL;
    for (struct srv_job *job; (job = take_job(&s->changes)) != NULL;)
        begin_job(s, job);
}

bool srv_rounds_batch(struct srv_rounds *s, bool want_long)
{
    struct batch batch;
    take_batch(&batch, s, want_long);
    if (batch.count == 0)
        return false;
    struct srv_item *lead = batch.items[0];
    if (want_long) {
        begin_long(s, lead->job->request, lead->session);
        lead->step.yield = &s->yield;
    }
    srv_items_run(batch.items, batch.count, s->app);
    if (want_long)
        end_long(s, &lead->error);
    for (size_t i = 0; i < batch.count; i++)
        end_job_of(s, batch.items[i]);
    return true;
}

void srv_rounds_attend(struct srv_rounds *s)
{
    struct srv_job *job = take_live(s, &s->attends);
    if (job == NULL)
        return;
    uint64_t start = srv_now_ns();
    begin_long(s, job->request, NULL);
    job->yield = &s->yield;
    job->compute(job);
    end_long(s, &job->error);
    if (job->error.code == SRV_OK)
        srv_metrics_attend(s->app->metrics, job->sizes.batch * job->sizes.queries,
                           srv_now_ns() - start);
    end_job(s, job);
}

/* Those that take turns here are all long; each gets a piece of one round. */
void srv_rounds_piece(struct srv_rounds *s)
{
    struct srv_job *job = take_live(s, &s->pieces);
    if (job == NULL)
        return;
    if (job->advance(job))
        put_job(&s->pieces, job);
    else
        end_job(s, job);
}

/* ---- Stopping ---- */

void srv_rounds_fail_draining(struct srv_error *error)
{
    srv_fail(error, SRV_E_DRAINING, NULL, "attnd is stopping");
}

void srv_rounds_refuse(struct srv_rounds *s, struct srv_request *requests[], size_t count)
{
    struct srv_error error;
    srv_rounds_fail_draining(&error);
    for (size_t i = 0; i < count; i++) {
        if (requests[i]->reply.status == 0)
            srv_reply_error(requests[i], &error);
        end_request(s, requests[i]);
    }
    while (s->first_item != NULL) {
        struct srv_item *item = s->first_item;
        s->first_item = item->next;
        item->error = error;
        srv_item_end(item);
        end_job_of(s, item);
    }
    s->last_item = &s->first_item;
    struct srv_job_list *lists[] = {&s->attends, &s->pieces, &s->changes};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (struct srv_job *job; (job = take_job(lists[i])) != NULL; end_job(s, job))
            job->error = error;
}

/* ---- What waits ---- */

bool srv_rounds_waiting(const struct srv_rounds *s)
{
    return s->first_item != NULL || s->attends.first != NULL || s->pieces.first != NULL;
}

bool srv_rounds_have_short(const struct srv_rounds *s)
{
    for (const struct srv_item *item = s->first_item; item != NULL; item = item->next)
        if (!is_long(item) && item->session != s->long_session)
            return true;
    return false;
}

/* Multiply-adds of an item, about. */
static size_t work_of(const struct srv_item *item)
{
    size_t layer = (size_t)item->job->call.layer;
    const struct attn_layer_spec *spec = attn_model_layer(item->model->attn, layer);
    size_t head = spec->num_heads * (spec->head_dim + spec->value_head_dim);
    size_t kv = spec->num_kv_heads * (spec->head_dim + spec->value_head_dim);
    size_t keys = attn_cache_length(item->session->cache, layer) + item->sizes.queries;
    return item->sizes.queries * (spec->hidden_size * (head + kv) + keys * head);
}

bool srv_rounds_are_small(const struct srv_rounds *s)
{
    size_t work = 0;
    for (const struct srv_item *i = s->first_item; i != NULL && work <= SMALL_WORK; i = i->next)
        work += is_long(i) ? SMALL_WORK + 1 : work_of(i);
    return s->attends.first == NULL && s->pieces.first == NULL && work <= SMALL_WORK;
}

/* ---- Life ---- */

bool srv_rounds_init(struct srv_rounds *s, struct srv_app *app, size_t capacity)
{
    s->app = app;
    s->ended = calloc(capacity, sizeof *s->ended);
    s->last_item = &s->first_item;
    s->attends.last = &s->attends.first;
    s->pieces.last = &s->pieces.first;
    s->changes.last = &s->changes.first;
    return s->ended != NULL;
}

void srv_rounds_fini(struct srv_rounds *s)
{
    srv_clerk_free(s->clerk);
    free(s->ended);
}
