/* log.c: builds each line in memory; log_writer.c writes it. */
#include "ops/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "ops/stage.h"

#define TIME_MAX sizeof "2026-01-31T23:59:59.999Z"
#define LINE_MAX_BYTES 1024 /* of a request, whose texts are ids and constants */
#define MESSAGE_MAX 512 /* of an event, before escaping, which makes it six times as long at most */

static const char *const level_names[] = {"off", "error", "info", "access"};

static void print_time(char out[TIME_MAX])
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t length = strftime(out, TIME_MAX, "%FT%T", gmtime_r(&now.tv_sec, &utc));
    snprintf(out + length, TIME_MAX - length, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

/* The line about lines that were dropped. */
static size_t print_dropped(char out[SRV_LOG_LINE_MAX], size_t count)
{
    char time[TIME_MAX];
    print_time(time);
    return (size_t)snprintf(out, SRV_LOG_LINE_MAX,
                            "{\"time\":\"%s\",\"level\":\"error\",\"event\":\"log_dropped\","
                            "\"message\":\"%zu lines\"}\n",
                            time, count);
}

bool srv_log_open(struct srv_log *log, enum srv_log_level level, int fd)
{
    log->level = level;
    log->writer = NULL;
    return level == SRV_LOG_OFF || srv_log_writer_open(&log->writer, fd, print_dropped);
}

void srv_log_flush(struct srv_log *log)
{
    if (log->writer != NULL)
        (void)srv_log_writer_flush(log->writer);
}

void srv_log_close(struct srv_log *log) { srv_log_writer_close(log->writer); }

void srv_log_event(struct srv_log *log, enum srv_log_level level, const char *event,
                   const char *format, ...)
{
    if (level == SRV_LOG_OFF || level > log->level || log->writer == NULL)
        return;
    char time[TIME_MAX], message[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    print_time(time);
    struct srv_buffer line;
    srv_buffer_init(&line, SRV_LOG_LINE_MAX);
    srv_buffer_printf(&line,
                      "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"message\":", time,
                      level_names[level], event);
    srv_buffer_json_string(&line, message);
    srv_buffer_text(&line, "}\n");
    if (!line.failed)
        srv_log_writer_put(log->writer, line.data, line.length);
    srv_buffer_fini(&line);
}

static void put_member(struct srv_buffer *line, const char *name, const char *value)
{
    srv_buffer_text(line, ",\"");
    srv_buffer_text(line, name);
    srv_buffer_text(line, "\":\"");
    srv_buffer_text(line, value);
    srv_buffer_text(line, "\"");
}

static void put_count(struct srv_buffer *line, const char *name, uint64_t value)
{
    srv_buffer_text(line, ",\"");
    srv_buffer_text(line, name);
    srv_buffer_text(line, "\":");
    srv_buffer_unsigned(line, value, 1);
}

/* Appends a member in milliseconds with three decimal places. */
static void put_stage(struct srv_buffer *line, const char *name, uint64_t ns)
{
    put_count(line, name, ns / 1000000);
    srv_buffer_text(line, ".");
    srv_buffer_unsigned(line, ns / 1000 % 1000, 3);
}

/* Every text of the line is a constant or an id, and needs no escape.  The line is assembled
 * without printf, which would take longer than the rest. */
void srv_log_request(struct srv_log *log, const struct srv_request *request)
{
    static const char *const stages[SRV_STAGE_TOTAL] = {
        [SRV_STAGE_PARSE] = "parse_ms",
        [SRV_STAGE_QUEUE] = "queue_ms",
        [SRV_STAGE_COMPUTE] = "compute_ms",
        [SRV_STAGE_WRITE] = "write_ms",
    };
    if (log->level < SRV_LOG_ACCESS || log->writer == NULL)
        return;
    char time[TIME_MAX], space[LINE_MAX_BYTES];
    struct srv_buffer line;
    srv_buffer_init(&line, sizeof space);
    srv_buffer_lend(&line, space, sizeof space);
    print_time(time);
    srv_buffer_text(&line, "{\"time\":\"");
    srv_buffer_text(&line, time);
    srv_buffer_text(&line, "\"");
    put_member(&line, "level", level_names[SRV_LOG_ACCESS]);
    put_member(&line, "request_id", request->request_id);
    if (request->trace.trace_id[0] != '\0') {
        put_member(&line, "trace_id", request->trace.trace_id);
        put_member(&line, "parent_id", request->trace.parent_id);
        put_member(&line, "span_id", request->trace.span_id);
    }
    put_member(&line, "method", srv_method_name(request->method));
    put_member(&line, "route", request->route != NULL ? request->route->path : "none");
    if (request->key.name[0] != '\0')
        put_member(&line, "caller", request->key.name);
    put_count(&line, "status", request->reply.status);
    if (request->reply.code != SRV_OK)
        put_member(&line, "code", srv_error_word(request->reply.code));
    put_count(&line, "bytes_in", request->body_length);
    put_count(&line, "bytes_out", request->reply.body.length);
    put_stage(&line, "ms", srv_stage_ns(request, SRV_STAGE_TOTAL));
    for (enum srv_stage stage = 0; stage < SRV_STAGE_TOTAL && request->t_computed != 0; stage++)
        put_stage(&line, stages[stage], srv_stage_ns(request, stage));
    srv_buffer_text(&line, "}\n");
    srv_log_writer_put(log->writer, line.data, line.length);
}
