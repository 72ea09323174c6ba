/* watch.c: compares the daemon's state before and after a request. */
#include "watch.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "tensors.h"

#define SETTLE_MS 10000     /* for the gauges to return */
#define MAX_CPU_S 1.0       /* of the daemon for one request: thousands of times what it takes */
#define MAX_PROXY_IDLE 64.0 /* connections that a proxy may keep */

static const char *const gauge_names[4] = {"attnd_in_flight_bytes", "attnd_queue_depth",
                                           "attnd_cache_used_bytes", "attnd_connections"};
#define CONNECTIONS 3

void watch_open(struct watch *watch, const struct daemon *daemon, unsigned port)
{
    *watch = (struct watch){.daemon = daemon, .front = *daemon, .proxied = port != 0};
    if (port != 0)
        snprintf(watch->front.url, sizeof watch->front.url, "http://127.0.0.1:%u", port);
    client_open(&watch->steps, &watch->front);
    client_open(&watch->looks, daemon);
    call_create(&watch->steps, "witness", "");
    call_create(&watch->steps, "twin", "");
}

void watch_close(struct watch *watch)
{
    client_close(&watch->steps);
    client_close(&watch->looks);
}

/* Returns GET /sessions without the members that change by themselves. */
static json_t *list_sessions(struct watch *watch)
{
    struct answer answer = client_get(&watch->looks, "/sessions");
    expect_answer(&answer, 200, NULL, "GET /sessions");
    json_t *list = json_incref(json_object_get(answer.json, "sessions")), *session;
    size_t i;
    json_array_foreach(list, i, session) {
        json_object_del(session, "idle_s");
        json_object_del(session, "revision"); /* a step that a proxy adds is taken back */
    }
    answer_free(&answer);
    ck_assert_uint_ge(json_array_size(list), 2);
    return list;
}

/* The value of a gauge in the text of /metrics. */
static double gauge(const char *text, const char *name)
{
    char sample[64];
    snprintf(sample, sizeof sample, "\n%s ", name);
    const char *at = strstr(text, sample);
    ck_assert_msg(at != NULL, "no gauge %s", name);
    return strtod(at + strlen(sample), NULL);
}

static void read_gauges(double out[4], struct watch *watch)
{
    struct answer answer = client_get(&watch->looks, "/metrics");
    expect_answer(&answer, 200, NULL, "GET /metrics");
    for (size_t i = 0; i < 4; i++)
        out[i] = gauge(answer.text, gauge_names[i]);
    answer_free(&answer);
}

void watch_before(struct watch *watch)
{
    watch->twin = call_decode(&watch->steps, "twin", watch->row, "");
    expect_answer(&watch->twin, 200, NULL, "twin");
    watch->sessions = list_sessions(watch);
    read_gauges(watch->gauges, watch);
    watch->cpu_s = daemon_cpu_s(watch->daemon);
}

/* A proxy keeps connections as it likes, but not without bound. */
static bool settled(const struct watch *watch, const double now[4])
{
    for (size_t i = 0; i < 4; i++)
        if (watch->proxied && i == CONNECTIONS ? now[i] > MAX_PROXY_IDLE
                                               : now[i] != watch->gauges[i])
            return false;
    return true;
}

static bool gauges_return(char wrong[600], struct watch *watch)
{
    double now[4];
    read_gauges(now, watch);
    for (unsigned waited = 0; !settled(watch, now) && waited < SETTLE_MS; waited += 2) {
        pause_ms(2);
        read_gauges(now, watch);
    }
    if (settled(watch, now))
        return true;
    snprintf(wrong, 600,
             "in flight %g, was %g; queue %g, was %g; cache %g, was %g; connections "
             "%g, was %g",
             now[0], watch->gauges[0], now[1], watch->gauges[1], now[2], watch->gauges[2], now[3],
             watch->gauges[3]);
    return false;
}

/* Truncates the witness by the smuggled step, which must have been done once. */
static bool take_back(char wrong[600], struct watch *watch)
{
    char body[40];
    size_t length = call_length(&watch->looks, "witness", 0);
    if (length != watch->row + 1) {
        snprintf(wrong, 600, "the step was done %d times", (int)length - (int)watch->row);
        return false;
    }
    snprintf(body, sizeof body, "{\"length\":%u}", watch->row);
    expect_posted(&watch->looks, "/sessions/witness/truncate", body, 200, NULL);
    return true;
}

static bool sessions_stay(char wrong[600], struct watch *watch)
{
    json_t *now = list_sessions(watch);
    bool same = json_equal(now, watch->sessions);
    if (!same) {
        char *text = json_dumps(now, JSON_COMPACT);
        snprintf(wrong, 600, "sessions are now %.500s", text);
        free(text);
    }
    json_decref(now);
    return same;
}

/* Does the witness's step, and compares it with the twin's. */
static bool witness_is_right(char wrong[600], struct watch *watch)
{
    char extra[80];
    snprintf(extra, sizeof extra, ",\"position\":%u", watch->row);
    struct answer answer = call_decode(&watch->steps, "witness", watch->row, extra);
    bool right = answer.status == 200 && json_object_get(answer.json, "replayed") == NULL &&
                 json_equal(json_object_get(answer.json, "output"),
                            json_object_get(watch->twin.json, "output")) &&
                 json_equal(json_object_get(answer.json, "length"),
                            json_object_get(watch->twin.json, "length"));
    if (!right)
        snprintf(wrong, 600, "the witness got %.250s, its twin %.250s", answer.text,
                 watch->twin.text);
    answer_free(&answer);
    return right;
}

bool watch_after(char wrong[600], struct watch *watch, bool stepped)
{
    double cpu_s = daemon_cpu_s(watch->daemon) - watch->cpu_s;
    bool right = !stepped || take_back(wrong, watch);
    right = right && sessions_stay(wrong, watch) && gauges_return(wrong, watch);
    right = right && witness_is_right(wrong, watch);
    if (right && cpu_s > MAX_CPU_S) {
        snprintf(wrong, 600, "cost the daemon %.2f s of CPU", cpu_s);
        right = false;
    }
    answer_free(&watch->twin);
    json_decref(watch->sessions);
    watch->row++;
    return right;
}
