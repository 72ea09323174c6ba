/* http_main.c: build/bench_http, the parts of make bench-http that wrk does not do.
 *
 *   bare                                          serve a fixed reply, print the address
 *   sessions URL MODEL WIDTH COUNT CACHED PREFIX  start PREFIX1 ... with CACHED tokens each
 *   library MODEL SESSIONS CACHED SECONDS         decode steps per second without HTTP, and
 *                                                 the thread's CPU time of one in microseconds
 *   one BARE_URL URL CALLS                        one connection: the cost of a call beyond the
 *                                                 library's, in microseconds
 *
 * MODEL is a name of `models`; http.sh gives attnd the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "basics/random.h"
#include "http_bench.h"

static const struct {
    const char *name;
    struct http_model model;
} models[] = {{"tiny", {8, 1, 8}}, {"small", {256, 8, 32}}, {"wide", {4096, 1, 64}}};

static const struct http_model *find_model(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i].model;
    http_die("no model %s", name);
}

static size_t read_count(const char *text) { return strtoul(text, NULL, 10); }

static float *new_rows(size_t count, uint64_t tensor)
{
    float *rows = malloc(count * sizeof *rows);
    if (rows == NULL)
        http_die("out of memory");
    attn_random_uniform(rows, count, attn_random_stream(1, 3, tensor), 1.0f);
    return rows;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median_us(int64_t ns[], size_t count)
{
    qsort(ns, count, sizeof ns[0], by_value);
    return 1e-3 * (double)ns[count / 2];
}

/* ---- The commands ---------------------------------------------------------------------------- */

static void start_session(struct http_client *client, const char *model, struct http_decode *call)
{
    char members[128];
    struct http_text request = {0};
    snprintf(members, sizeof members, ",\"model\":\"%s\",\"start\":true", model);
    call->members = members;
    http_post_decode(&request, call);
    http_exchange(client, &request, 200);
    http_text_free(&request);
}

static int sessions(char *argv[])
{
    size_t width = read_count(argv[2]), count = read_count(argv[3]), cached = read_count(argv[4]);
    struct http_client client;
    float *rows = new_rows(cached * width, 0);
    http_client_open(&client, argv[0]);
    for (size_t i = 1; i <= count; i++) {
        char id[64];
        snprintf(id, sizeof id, "%s%zu", argv[5], i);
        struct http_decode call = {
            .session = id, .rows = cached, .width = width, .hidden_states = rows, .binary = 1};
        start_session(&client, argv[1], &call);
    }
    http_client_close(&client);
    free(rows);
    return 0;
}

static double thread_cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int library(char *argv[])
{
    struct http_library library;
    http_library_open(&library, find_model(argv[0]), read_count(argv[1]), read_count(argv[2]));
    uint64_t end, calls = 0, total = 0;
    for (int i = 0; i < 50; i++)
        http_library_run(&library);
    end = http_now_ns() + (uint64_t)(1e9 * strtod(argv[3], NULL));
    double cpu_us = thread_cpu_us();
    for (; http_now_ns() < end; calls++)
        total += http_library_run(&library);
    double rows = (double)(calls * library.sessions);
    printf("%.0f %.2f\n", 1e9 * rows / (double)total, (thread_cpu_us() - cpu_us) / rows);
    http_library_close(&library);
    return 0;
}

/* One kind of call of `one`, and its times. */
struct kind {
    const char *name;
    struct http_library *library; /* NULL: a request over HTTP */
    struct http_client *client;
    struct http_text request;
    int64_t *ns;      /* [calls] */
    int64_t *compute; /* [calls] the part of `ns` that attnd computed */
};

enum { BARE, LIBRARY, BINARY, JSON, KINDS };

static void prepare_decodes(struct kind *binary, struct kind *json, struct http_client *client,
                            const char *name)
{
    char id[64];
    const struct http_model *model = find_model(name);
    float *rows = new_rows(2 * model->width, 1);
    snprintf(id, sizeof id, "one-%s-%d", name, (int)getpid());
    struct http_decode call = {
        .session = id, .rows = 1, .width = model->width, .hidden_states = rows, .binary = 1};
    start_session(client, name, &call);
    call.hidden_states = rows + model->width;
    call.members = ",\"commit\":false";
    binary->client = json->client = client;
    http_post_decode(&binary->request, &call);
    call.binary = 0;
    http_post_decode(&json->request, &call);
    free(rows);
}

static void time_kinds(struct kind kinds[], size_t count, size_t calls)
{
    for (size_t i = 0; i < calls; i++)
        for (size_t k = 0; k < count; k++) {
            struct kind *kind = &kinds[k];
            kind->ns[i] =
                (int64_t)(kind->library != NULL ? http_library_run(kind->library)
                                                : http_exchange(kind->client, &kind->request, 200));
            kind->compute[i] = kind->client != NULL ? kind->client->compute_ns : 0;
        }
}

/* Prints the median time of each kind of call, and of what a request takes beyond the library's
 * call (and a bare reply) of the same turn: a slow moment of the machine is in both and cancels. */
static void print_times(const char *model, struct kind kinds[], size_t calls)
{
    int64_t *over = malloc(calls * sizeof *over);
    if (over == NULL)
        http_die("out of memory");
    for (size_t k = BINARY; k < KINDS; k++) {
        for (size_t i = 0; i < calls; i++)
            over[i] = kinds[k].ns[i] - kinds[k].compute[i];
        printf("%s %s-beyond-its-computing %.1f\n", model, kinds[k].name, median_us(over, calls));
        for (int bare = 0; bare < 2; bare++) {
            for (size_t i = 0; i < calls; i++)
                over[i] = kinds[k].ns[i] - kinds[LIBRARY].ns[i] - bare * kinds[BARE].ns[i];
            printf("%s %s-beyond-library%s %.1f\n", model, kinds[k].name, bare ? "-and-bare" : "",
                   median_us(over, calls));
        }
    }
    for (size_t k = 0; k < KINDS; k++)
        printf("%s %s %.1f\n", model, kinds[k].name, median_us(kinds[k].ns, calls));
    free(over);
}

/* Times all kinds of calls of a model in turn, so that other load on the machine affects all of
 * them. */
static void time_model(const char *name, struct http_client *bare, struct http_client *attnd,
                       size_t calls)
{
    struct http_library library;
    struct kind kinds[KINDS] = {[BARE] = {.name = "bare", .client = bare},
                                [LIBRARY] = {.name = "library", .library = &library},
                                [BINARY] = {.name = "binary"},
                                [JSON] = {.name = "json"}};
    http_library_open(&library, find_model(name), 1, 1);
    http_get(&kinds[BARE].request, "/");
    prepare_decodes(&kinds[BINARY], &kinds[JSON], attnd, name);
    for (size_t k = 0; k < KINDS; k++) {
        kinds[k].ns = malloc(calls * sizeof(int64_t));
        kinds[k].compute = malloc(calls * sizeof(int64_t));
        if (kinds[k].ns == NULL || kinds[k].compute == NULL)
            http_die("out of memory");
    }
    time_kinds(kinds, KINDS, calls / 8 + 1);
    time_kinds(kinds, KINDS, calls);
    print_times(name, kinds, calls);
    for (size_t k = 0; k < KINDS; k++) {
        http_text_free(&kinds[k].request);
        free(kinds[k].ns);
        free(kinds[k].compute);
    }
    http_library_close(&library);
}

static int one(char *argv[])
{
    struct http_client bare, attnd;
    size_t calls = read_count(argv[2]);
    http_client_open(&bare, argv[0]);
    http_client_open(&attnd, argv[1]);
    time_model("tiny", &bare, &attnd, 20 * calls);
    time_model("wide", &bare, &attnd, calls);
    http_client_close(&bare);
    http_client_close(&attnd);
    return 0;
}

static int bare(char *argv[])
{
    (void)argv;
    http_bare();
}

int main(int argc, char *argv[])
{
    static const struct {
        const char *name;
        int count;
        int (*run)(char *argv[]);
    } commands[] = {
        {"bare", 0, bare}, {"sessions", 6, sessions}, {"library", 4, library}, {"one", 3, one}};
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, argv[1]) == 0 && argc == commands[i].count + 2)
            return commands[i].run(argv + 2);
    fputs("usage: bench_http bare | sessions URL MODEL WIDTH COUNT CACHED PREFIX |\n"
          "       library MODEL SESSIONS CACHED SECONDS | one BARE_URL URL CALLS\n",
          stderr);
    return 2;
}
