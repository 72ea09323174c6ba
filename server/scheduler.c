/* scheduler.c: rounds of reading, computing and replying.
 *
 * Event threads put requests into the inbox.  Whoever drives does the rest, and is the only one
 * that calls the engine and touches caches: the scheduler's thread or, for rounds that cost less
 * than waking it, the event thread that submitted.  A round:
 *
 *   take     the whole inbox becomes jobs
 *   read     bodies are parsed on all threads
 *   steps    items whose session is free this round, few-row items of one layer as one batch, then
 *            one long item (a prefill)
 *   attend   one attention over given rows
 *   piece    a piece of one export or import of a session
 *   reply    bodies of ended jobs are written on all threads, then handed back together
 *
 * What a round leaves over (a second item of one session, further prefills and attends) stands
 * first in the next, so decodes wait for at most two long computations and one piece. */
#include "scheduler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "job.h"
#include "steps.h"

#define ROUND_BATCHES 4 /* of decodes, to one prefill and one attend */

struct job_list {
    struct srv_job *first, **last;
};
/* Below these, waking another thread costs more than it brings. */
#define ALONE_BYTES 32768  /* of bodies or replies that are read or written by one thread */
#define SMALL_BYTES 65536  /* of bodies, and */
#define SMALL_WORK 2000000 /* multiply-adds of the steps in a round that an event thread runs */

struct srv_scheduler {
    struct srv_app *app;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;                  /* guarded by lock, as are the inbox and its ends */
    bool left;                  /* an event thread has left a round to the scheduler's */
    struct srv_request **inbox; /* [inbox_capacity] */
    size_t inbox_count, inbox_capacity, inbox_bytes;
    atomic_size_t depth;        /* requests waiting or running */
    pthread_mutex_t drive;      /* whoever holds it drives, and owns the rest */
    struct srv_request **taken; /* [inbox_capacity] this round's */
    struct srv_request **ended; /* [inbox_capacity] */
    size_t num_taken, num_ended, taken_bytes;
    bool stopping;  /* what still waits is refused */
    uint64_t round; /* of take_batch; sessions remember which touched them last */
    struct srv_item *first_item, **last_item; /* items waiting, oldest first */
    struct job_list attends, pieces;
};

/* For each i below count, on all threads where as many `bytes` are read or written make it pay. */
static void run_tasks(struct srv_scheduler *s, void (*task)(void *s, size_t i), size_t count,
                      size_t bytes)
{
    if (count > 1 && bytes > ALONE_BYTES) {
        attn_engine_run(s->app->engine, task, s, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        task(s, i);
}

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
        return; /* reading it failed, and said so; or its job replied */
    if (job->error.code == SRV_OK) {
        srv_job_write(job);
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
    size_t bytes = 0;
    for (size_t i = 0; i < s->num_ended; i++)
        bytes += s->ended[i]->reply_bytes;
    run_tasks(s, write_reply, s->num_ended, bytes);
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

static void put_job(struct job_list *list, struct srv_job *job)
{
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}

static struct srv_job *take_job(struct job_list *list)
{
    struct srv_job *job = list->first;
    if (job != NULL)
        list->first = job->next;
    if (list->first == NULL)
        list->last = &list->first;
    return job;
}

static void queue_job(struct srv_scheduler *s, struct srv_job *job)
{
    for (size_t i = 0; i < job->num_items; i++)
        queue_item(s, &job->items[i]);
    if (job->begin != NULL)
        job->begin(job);
    if (job->compute != NULL)
        put_job(&s->attends, job);
    else if (job->advance != NULL && job->error.code == SRV_OK)
        put_job(&s->pieces, job);
    else if (job->pending == 0)
        end_job(s, job);
}

static void read_taken(struct srv_scheduler *s)
{
    run_tasks(s, read_body, s->num_taken, s->taken_bytes);
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

/* Takes a batch led by the first waiting item that is `want_long` or not, out of the list.  A
 * session met once counts as touched, so its items keep their order. */
static void take_batch(struct batch *batch, struct srv_scheduler *s, bool want_long)
{
    struct srv_item *lead = NULL, **link = &s->first_item;
    uint64_t round = ++s->round;
    batch->count = batch->rows = 0;
    while (*link != NULL) {
        struct srv_item *item = *link;
        if (lead == NULL && is_long(item) == want_long && item->session->round != round)
            lead = item;
        bool taken = lead != NULL && joins(item, lead, batch, round);
        item->session->round = round;
        if (taken) {
            batch->items[batch->count++] = item;
            batch->rows += item->sizes.queries;
            *link = item->next;
        } else {
            link = &item->next;
        }
    }
    s->last_item = link;
}

/* Ends the job of an item that has ended, if it was the last. */
static void end_job_of(struct srv_scheduler *s, const struct srv_item *item)
{
    struct srv_job *job = item->job;
    if (job->pending > 0 || job->ended)
        return;
    job->ended = true;
    end_job(s, job);
}

static bool run_batch(struct srv_scheduler *s, bool want_long)
{
    struct batch batch;
    take_batch(&batch, s, want_long);
    if (batch.count == 0)
        return false;
    srv_items_run(batch.items, batch.count, s->app);
    for (size_t i = 0; i < batch.count; i++)
        end_job_of(s, batch.items[i]);
    return true;
}

static void run_attend(struct srv_scheduler *s)
{
    struct srv_job *job = take_job(&s->attends);
    if (job == NULL)
        return;
    uint64_t start = srv_now_ns();
    job->compute(job);
    if (job->error.code == SRV_OK)
        srv_metrics_attend(s->app->metrics, job->sizes.batch * job->sizes.queries,
                           srv_now_ns() - start);
    end_job(s, job);
}

/* Those that take turns here are all long; each gets a piece of one round. */
static void run_piece(struct srv_scheduler *s)
{
    struct srv_job *job = take_job(&s->pieces);
    if (job == NULL)
        return;
    if (job->advance(job))
        put_job(&s->pieces, job);
    else
        end_job(s, job);
}

/* ---- Stopping ---- */

static void fail_draining(struct srv_error *error)
{
    srv_fail(error, SRV_E_DRAINING, NULL, "attnd is stopping");
}

/* Refuses all that has not been computed: the time for it has passed. */
static void refuse_all(struct srv_scheduler *s)
{
    struct srv_error error = {.code = SRV_OK};
    fail_draining(&error);
    for (size_t i = 0; i < s->num_taken; i++) {
        srv_reply_error(s->taken[i], &error);
        end_request(s, s->taken[i]);
    }
    s->num_taken = 0;
    while (s->first_item != NULL) {
        struct srv_item *item = s->first_item;
        s->first_item = item->next;
        item->error = error;
        srv_item_end(item);
        end_job_of(s, item);
    }
    s->last_item = &s->first_item;
    struct job_list *lists[] = {&s->attends, &s->pieces};
    for (size_t i = 0; i < 2; i++)
        for (struct srv_job *job; (job = take_job(lists[i])) != NULL; end_job(s, job))
            job->error = error;
}

/* ---- Rounds ---- */

static bool has_work(const struct srv_scheduler *s)
{
    return s->first_item != NULL || s->attends.first != NULL || s->pieces.first != NULL;
}

/* Moves the inbox to `taken`.  False when there is nothing to do. */
static bool take_inbox(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->num_taken = s->inbox_count;
    s->taken_bytes = s->inbox_bytes;
    memcpy(s->taken, s->inbox, s->inbox_count * sizeof *s->inbox);
    s->inbox_count = s->inbox_bytes = 0;
    s->stopping = s->stop;
    pthread_mutex_unlock(&s->lock);
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < s->num_taken; i++)
        s->taken[i]->t_taken = now;
    return s->num_taken > 0 || has_work(s);
}

/* Several batches of decodes to one long computation, so that neither starves the other; what
 * arrives meanwhile joins the next batch. */
static void run_round(struct srv_scheduler *s)
{
    read_taken(s);
    for (int i = 0; i < ROUND_BATCHES && !s->stopping && run_batch(s, false); i++) {
        reply_ended(s);
        if (take_inbox(s) && !s->stopping)
            read_taken(s);
    }
    if (s->stopping)
        return;
    reply_ended(s);
    run_batch(s, true);
    run_attend(s);
    run_piece(s);
}

/* False once it is to stop and nothing is left. */
static bool await_work(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->inbox_count == 0 && !s->left && !s->stop)
        pthread_cond_wait(&s->wake, &s->lock);
    bool found = s->inbox_count > 0 || s->left;
    s->left = false;
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void *scheduler_main(void *argument)
{
    struct srv_scheduler *s = argument;
    bool goes_on = true;
    while (goes_on) {
        goes_on = await_work(s); /* the last time round, an event thread may still have left work */
        pthread_mutex_lock(&s->drive);
        while (take_inbox(s)) {
            if (!s->stopping)
                run_round(s);
            if (s->stopping)
                refuse_all(s);
            reply_ended(s);
        }
        pthread_mutex_unlock(&s->drive);
    }
    return NULL;
}

/* ---- Rounds on an event thread ---- */

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

static bool is_small(const struct srv_scheduler *s)
{
    size_t work = 0;
    for (const struct srv_item *i = s->first_item; i != NULL && work <= SMALL_WORK; i = i->next)
        work += is_long(i) ? SMALL_WORK + 1 : work_of(i);
    return s->attends.first == NULL && s->pieces.first == NULL && work <= SMALL_WORK;
}

static bool inbox_is_small(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    bool small = !s->left && !s->stop && s->inbox_bytes <= SMALL_BYTES;
    pthread_mutex_unlock(&s->lock);
    return small;
}

/* False where something is left to do. */
static bool drive_small(struct srv_scheduler *s)
{
    if (!inbox_is_small(s))
        return false;
    if (!take_inbox(s))
        return true;
    if (s->stopping)
        refuse_all(s);
    read_taken(s);
    bool small = is_small(s);
    while (small && run_batch(s, false))
        ;
    reply_ended(s);
    return small;
}

void srv_scheduler_run(struct srv_scheduler *s)
{
    bool done = false;
    if (pthread_mutex_trylock(&s->drive) == 0) {
        done = drive_small(s);
        pthread_mutex_unlock(&s->drive);
    }
    if (done)
        return;
    pthread_mutex_lock(&s->lock);
    s->left = true;
    pthread_mutex_unlock(&s->lock);
    pthread_cond_signal(&s->wake); /* not before: who wakes would wait for the lock at once */
}

/* ---- The public side ---- */

bool srv_scheduler_submit(struct srv_scheduler *s, struct srv_request *request,
                          struct srv_error *error)
{
    pthread_mutex_lock(&s->lock);
    bool stop = s->stop;
    bool taken = !stop && atomic_load(&s->depth) < s->inbox_capacity;
    if (taken) {
        atomic_fetch_add(&s->depth, 1);
        s->inbox[s->inbox_count++] = request;
        s->inbox_bytes += request->body_length;
    }
    pthread_mutex_unlock(&s->lock);
    if (stop)
        fail_draining(error);
    else if (!taken)
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
    pthread_mutex_destroy(&s->drive);
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
    s->attends.last = &s->attends.first;
    s->pieces.last = &s->pieces.first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->drive, NULL);
    pthread_cond_init(&s->wake, NULL);
    if (s->inbox == NULL || s->taken == NULL || s->ended == NULL ||
        pthread_create(&s->thread, NULL, scheduler_main, s) != 0) {
        free_scheduler(s);
        return false;
    }
    *out = s;
    return true;
}

void srv_scheduler_stop(struct srv_scheduler *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

void srv_scheduler_free(struct srv_scheduler *s)
{
    if (s != NULL)
        free_scheduler(s);
}
