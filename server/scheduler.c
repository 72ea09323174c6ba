/* scheduler.c: rounds of reading, computing and replying.
 *
 * Event threads put requests into the inbox; one thread, the scheduler's, does the rest and is the
 * only one that calls the engine and touches caches.  A round:
 *
 *   take     the whole inbox becomes jobs
 *   read     bodies are parsed on all threads
 *   steps    items whose session is free this round, few-row items of one layer as one batch, then
 *            one long item (a prefill)
 *   attend   one attention over given rows
 *   reply    bodies of ended jobs are written on all threads, then handed back together
 *
 * What a round leaves over (a second item of one session, further prefills and attends) stands
 * first in the next, so decodes wait for at most one long computation. */
#include "scheduler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "job.h"
#include "steps.h"

struct srv_scheduler {
    struct srv_app *app;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;                  /* guarded by lock, as are the inbox and its ends */
    struct srv_request **inbox; /* [inbox_capacity] */
    size_t inbox_count, inbox_capacity;
    atomic_size_t depth; /* requests waiting or running */
    /* The scheduler thread's own. */
    struct srv_request **taken; /* [inbox_capacity] this round's */
    struct srv_request **ended; /* [inbox_capacity] */
    size_t num_taken, num_ended;
    uint64_t round; /* of take_batch; sessions remember which touched them last */
    struct srv_item *first_item, **last_item; /* items waiting, oldest first */
    struct srv_job *first_attend, **last_attend;
};

/* ---- Ended jobs ---- */

static void end_request(struct srv_scheduler *s, struct srv_request *request)
{
    request->t_computed = srv_now_ns();
    s->ended[s->num_ended++] = request;
}

static void end_job(struct srv_scheduler *s, struct srv_job *job)
{
    /* A single item's error is the request's. */
    if (job->num_items == 1 && job->call.sequences == NULL)
        job->error = job->items[0].error;
    end_request(s, job->request);
}

static void write_reply(void *argument, size_t i)
{
    struct srv_scheduler *s = argument;
    struct srv_request *request = s->ended[i];
    struct srv_job *job = request->job;
    if (request->reply.status != 0)
        return; /* reading it failed, and said so */
    if (job->error.code == SRV_OK) {
        job->encode(job, &request->reply.body);
        if (!request->reply.body.failed) {
            srv_reply_status(request, 200);
            return;
        }
        srv_fail(&job->error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply");
    }
    srv_reply_error(request, &job->error);
}

static void reply_ended(struct srv_scheduler *s)
{
    if (s->num_ended == 0)
        return;
    if (s->num_ended == 1)
        write_reply(s, 0);
    else
        attn_engine_run(s->app->engine, write_reply, s, s->num_ended);
    for (size_t i = 0; i < s->num_ended; i++)
        if (s->ended[i]->job != NULL)
            srv_job_end(s->ended[i]->job);
    atomic_fetch_sub(&s->depth, s->num_ended);
    srv_http_resume(s->app->http, s->ended, s->num_ended);
    s->num_ended = 0;
}

/* ---- Reading ---- */

static void read_body(void *argument, size_t i)
{
    const struct srv_scheduler *s = argument;
    struct srv_request *request = s->taken[i];
    struct srv_error error = {.code = SRV_OK};
    if (request->route->parse(request, &error) != SRV_OK) {
        request->job = NULL;
        srv_reply_error(request, &error);
    }
}

static void queue_item(struct srv_scheduler *s, struct srv_item *item)
{
    if (item->error.code != SRV_OK || !srv_item_bind(item, s->app)) {
        item->job->pending--;
        return;
    }
    item->next = NULL;
    *s->last_item = item;
    s->last_item = &item->next;
}

static void queue_job(struct srv_scheduler *s, struct srv_job *job)
{
    for (size_t i = 0; i < job->num_items; i++)
        queue_item(s, &job->items[i]);
    if (job->compute != NULL) {
        job->next = NULL;
        *s->last_attend = job;
        s->last_attend = &job->next;
    } else if (job->pending == 0) {
        end_job(s, job);
    }
}

static void read_taken(struct srv_scheduler *s)
{
    if (s->num_taken == 1)
        read_body(s, 0);
    else
        attn_engine_run(s->app->engine, read_body, s, s->num_taken);
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < s->num_taken; i++) {
        s->taken[i]->t_compute = now;
        if (s->taken[i]->job != NULL)
            queue_job(s, s->taken[i]->job);
        else
            end_request(s, s->taken[i]);
    }
    s->num_taken = 0;
}

/* ---- Steps ---- */

static bool same_layer(const struct srv_item *a, const struct srv_item *b)
{
    return a->model == b->model && a->job->call.layer == b->job->call.layer;
}

static bool is_long(const struct srv_item *item) { return item->sizes.queries > SRV_FEW_ROWS; }

/* Whether an item may join the batch: of the lead's layer, as short as it, and of a session that no
 * earlier item of this round has touched or waits for. */
static bool joins(const struct srv_item *item, const struct srv_item *lead, size_t count,
                  uint64_t round)
{
    if (item->session->round == round)
        return false;
    return item == lead ||
           (same_layer(item, lead) && !is_long(lead) && !is_long(item) && count < SRV_BATCH_STEPS);
}

/* Takes a batch led by the first waiting item that is `want_long` or not, out of the list.  A
 * session met once counts as touched, so its items keep their order. */
static size_t take_batch(struct srv_item *batch[], struct srv_scheduler *s, bool want_long)
{
    struct srv_item *lead = NULL, **link = &s->first_item;
    uint64_t round = ++s->round;
    size_t count = 0;
    while (*link != NULL) {
        struct srv_item *item = *link;
        if (lead == NULL && is_long(item) == want_long && item->session->round != round)
            lead = item;
        bool taken = lead != NULL && joins(item, lead, count, round);
        item->session->round = round;
        if (taken) {
            batch[count++] = item;
            *link = item->next;
        } else {
            link = &item->next;
        }
    }
    s->last_item = link;
    return count;
}

static bool run_batch(struct srv_scheduler *s, bool want_long)
{
    struct srv_item *batch[SRV_BATCH_STEPS];
    size_t count = take_batch(batch, s, want_long);
    if (count == 0)
        return false;
    srv_items_run(batch, count, s->app);
    for (size_t i = 0; i < count; i++)
        if (batch[i]->job->pending == 0 && !batch[i]->job->ended) {
            batch[i]->job->ended = true;
            end_job(s, batch[i]->job);
        }
    return true;
}

static bool run_attend(struct srv_scheduler *s)
{
    struct srv_job *job = s->first_attend;
    if (job == NULL)
        return false;
    s->first_attend = job->next;
    if (s->first_attend == NULL)
        s->last_attend = &s->first_attend;
    uint64_t start = srv_now_ns();
    job->compute(job);
    if (job->error.code == SRV_OK)
        srv_metrics_attend(s->app->metrics, job->sizes.batch * job->sizes.queries,
                           srv_now_ns() - start);
    end_job(s, job);
    return true;
}

/* ---- Rounds ---- */

static bool has_work(const struct srv_scheduler *s)
{
    return s->first_item != NULL || s->first_attend != NULL;
}

/* Moves the inbox to `taken`; waits for one where nothing is left over.  False when it is time to
 * end: told to stop, and nothing is left. */
static bool take_inbox(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->inbox_count == 0 && !has_work(s) && !s->stop)
        pthread_cond_wait(&s->wake, &s->lock);
    s->num_taken = s->inbox_count;
    memcpy(s->taken, s->inbox, s->inbox_count * sizeof *s->inbox);
    s->inbox_count = 0;
    pthread_mutex_unlock(&s->lock);
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < s->num_taken; i++)
        s->taken[i]->t_taken = now;
    return s->num_taken > 0 || has_work(s);
}

static void *scheduler_main(void *argument)
{
    struct srv_scheduler *s = argument;
    while (take_inbox(s)) {
        if (s->num_taken > 0)
            read_taken(s);
        while (run_batch(s, false))
            reply_ended(s);
        run_batch(s, true);
        run_attend(s);
        reply_ended(s);
    }
    return NULL;
}

/* ---- The public side ---- */

bool srv_scheduler_submit(struct srv_scheduler *s, struct srv_request *request,
                          struct srv_error *error)
{
    bool taken = false;
    pthread_mutex_lock(&s->lock);
    if (!s->stop && atomic_load(&s->depth) < s->inbox_capacity) {
        atomic_fetch_add(&s->depth, 1);
        s->inbox[s->inbox_count++] = request;
        taken = true;
        if (s->inbox_count == 1)
            pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (!taken)
        srv_fail(error, SRV_E_QUEUE_FULL, NULL, "%zu requests are waiting", s->inbox_capacity);
    return taken;
}

size_t srv_scheduler_depth(const struct srv_scheduler *s) { return atomic_load(&s->depth); }

static void free_scheduler(struct srv_scheduler *s)
{
    free(s->inbox);
    free(s->taken);
    free(s->ended);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

bool srv_scheduler_open(struct srv_scheduler **out, struct srv_app *app)
{
    struct srv_scheduler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return false;
    s->app = app;
    s->inbox_capacity = app->config.limits.max_queue;
    s->inbox = calloc(s->inbox_capacity, sizeof *s->inbox);
    s->taken = calloc(s->inbox_capacity, sizeof *s->taken);
    s->ended = calloc(s->inbox_capacity, sizeof *s->ended);
    s->last_item = &s->first_item;
    s->last_attend = &s->first_attend;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    if (s->inbox == NULL || s->taken == NULL || s->ended == NULL ||
        pthread_create(&s->thread, NULL, scheduler_main, s) != 0) {
        free_scheduler(s);
        return false;
    }
    *out = s;
    return true;
}

void srv_scheduler_close(struct srv_scheduler *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free_scheduler(s);
}
