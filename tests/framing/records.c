/* records.c: lists of requests, sorted by id and held against each other. */
#include "records.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 20 /* desynchronisations that are printed */

void records_add(struct records *records, const struct record *record)
{
    pthread_mutex_lock(&records->lock);
    if (records->count == records->capacity) {
        records->capacity = 2 * records->capacity + 64;
        records->items = realloc(records->items, records->capacity * sizeof *records->items);
        ck_assert_ptr_nonnull(records->items);
    }
    records->items[records->count++] = *record;
    pthread_mutex_unlock(&records->lock);
}

void records_free(struct records *records)
{
    free(records->items);
    records->items = NULL;
    records->count = records->capacity = 0;
}

/* ---- Logs ------------------------------------------------------------------------------------ */

static void take_word(char out[MESSAGE_ID_MAX + 1], const char *at, const char *stops)
{
    message_id(out, at, strcspn(at, stops));
    if (strcmp(out, "-") == 0)
        out[0] = '\0';
}

void records_read_log(struct records *out, const char *log)
{
    static const char begin[] = "\"level\":\"access\",\"request_id\":\"", status[] = "\"status\":";
    for (const char *at = strstr(log, begin); at != NULL; at = strstr(at, begin)) {
        struct record record = {0};
        at += strlen(begin);
        take_word(record.id, at, "\"");
        const char *number = strstr(at, status);
        ck_assert_msg(number != NULL, "a line of the log without status: %.200s", at);
        record.status = (unsigned)strtoul(number + strlen(status), NULL, 10);
        if (strspn(record.id, "r") < strlen(record.id))
            records_add(out, &record);
    }
}

void records_read_proxy(struct records *out, const char *log)
{
    static const char begin[] = "passed ";
    for (const char *line = log; *line != '\0';
         line += strcspn(line, "\n"), line += *line == '\n') {
        struct record record = {0};
        if (strncmp(line, begin, strlen(begin)) != 0)
            continue;
        const char *at = line + strlen(begin);
        record.status = (unsigned)strtoul(at, NULL, 10);
        at += strcspn(at, " ") + 1;
        take_word(record.id, at, " \n");
        at += strcspn(at, " \n");
        if (*at == ' ')
            take_word(record.seen, at + 1, "\n");
        records_add(out, &record);
    }
}

/* ---- Looking up ------------------------------------------------------------------------------ */

/* A list in the order of ids.  A record that was found once has `line` set, and is not found
 * again. */
struct sorted {
    struct record **items;
    size_t count;
};

static int by_id(const void *a, const void *b)
{
    return strcmp((*(const struct record *const *)a)->id, (*(const struct record *const *)b)->id);
}

static struct sorted sort(struct records *records)
{
    struct sorted sorted = {calloc(records->count + 1, sizeof *sorted.items), records->count};
    ck_assert_ptr_nonnull(sorted.items);
    for (size_t i = 0; i < records->count; i++)
        sorted.items[i] = &records->items[i];
    qsort(sorted.items, sorted.count, sizeof *sorted.items, by_id);
    return sorted;
}

/* Finds a record of that id and status (0: any). */
static struct record *take(const struct sorted *sorted, const char *id, unsigned status)
{
    size_t low = 0, high = sorted->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(sorted->items[middle]->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < sorted->count && strcmp(sorted->items[low]->id, id) == 0; low++) {
        struct record *found = sorted->items[low];
        if (found->line > 0 || (status != 0 && found->status != status))
            continue;
        found->line = 1;
        return found;
    }
    return NULL;
}

static size_t complain(size_t wrong, const char *what, const struct record *record)
{
    if (wrong < SHOWN)
        printf("%s: id '%s', seen '%s', status %u, connection %u\n", what, record->id, record->seen,
               record->status, record->connection);
    return 1;
}

/* Whether attnd has made the id: those of generate.h have a '-'. */
static bool is_made(const struct record *record) { return strchr(record->id, '-') == NULL; }

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Each connection's replies stand in attnd's log in the order in which they came. */
static size_t compare_order(const struct records *replies, size_t connections)
{
    size_t wrong = 0, *last = calloc(connections + 1, sizeof *last);
    ck_assert_ptr_nonnull(last);
    for (size_t i = 0; i < replies->count; i++) {
        const struct record *reply = &replies->items[i];
        if (reply->line > 0 && reply->line < last[reply->connection])
            wrong += complain(wrong, "attnd had this request before one that came earlier", reply);
        last[reply->connection] = reply->line;
    }
    free(last);
    return wrong;
}

static bool take_tail(struct records *tails, const struct record *line)
{
    for (size_t i = 0; i < tails->count && (line->status == 0 || line->status >= 400); i++) {
        struct record *tail = &tails->items[i];
        if (tail->line > 0 || (!is_made(line) && strcmp(tail->id, line->id) != 0))
            continue;
        tail->line = 1;
        return true;
    }
    return false;
}

size_t records_compare_direct(struct records *log, struct records *replies, struct records *tails)
{
    struct sorted sorted = sort(log);
    size_t wrong = 0, connections = 0;
    for (size_t i = 0; i < replies->count; i++) {
        struct record *reply = &replies->items[i], *line = take(&sorted, reply->id, reply->status);
        if (line == NULL)
            wrong += complain(wrong, "a reply to what attnd has not logged", reply);
        else
            reply->line = (size_t)(line - log->items) + 1;
        connections = reply->connection > connections ? reply->connection : connections;
    }
    wrong += compare_order(replies, connections);
    for (size_t i = 0; i < log->count; i++)
        if (log->items[i].line == 0 && !take_tail(tails, &log->items[i]))
            wrong += complain(wrong, "attnd had a request that nobody sent", &log->items[i]);
    free(sorted.items);
    return wrong;
}

/* What the proxy passed on without a reply of attnd's may have reached attnd or not; a request
 * whose id is no id has one that attnd made. */
static size_t compare_unanswered(struct records *log, const struct sorted *sorted,
                                 const struct records *passed)
{
    size_t unknown = 0, wrong = 0;
    for (size_t i = 0; i < passed->count; i++) {
        const struct record *line = &passed->items[i];
        if (line->id[0] == '\0' && (line->seen[0] == '\0' || take(sorted, line->seen, 0) == NULL))
            unknown++;
    }
    for (size_t i = 0; i < log->count; i++) {
        if (log->items[i].line > 0)
            continue;
        if (unknown == 0 || !is_made(&log->items[i]))
            wrong += complain(wrong, "attnd had a request that the proxy did not pass on",
                              &log->items[i]);
        else
            unknown--;
    }
    return wrong;
}

/* A head that attnd refuses by its bytes is not read so far as its id. */
static bool is_reply_to(const struct record *line)
{
    return strcmp(line->id, line->seen) == 0 || (line->status >= 400 && is_made(line));
}

size_t records_compare_proxy(struct records *log, struct records *passed, struct records *replies)
{
    struct sorted of_log = sort(log), of_proxy = sort(passed);
    size_t wrong = 0;
    for (size_t i = 0; i < passed->count; i++) {
        const struct record *line = &passed->items[i];
        if (line->id[0] != '\0' && take(&of_log, line->id, line->status) == NULL)
            wrong += complain(wrong, "the proxy passed on what attnd has not logged", line);
        if (line->id[0] != '\0' && line->seen[0] != '\0' && !is_reply_to(line))
            wrong += complain(wrong, "a reply to another request", line);
    }
    wrong += compare_unanswered(log, &of_log, passed);
    for (size_t i = 0; i < replies->count; i++)
        if (take(&of_proxy, replies->items[i].id, replies->items[i].status) == NULL)
            wrong += complain(wrong, "a reply that the proxy has not logged", &replies->items[i]);
    free(of_log.items);
    free(of_proxy.items);
    return wrong;
}
