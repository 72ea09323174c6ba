/* inputs.c: the table of inputs that are kept: a list, the one that was used last at its head. */
#include "wire/inputs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"

struct owner {
    char name[SRV_ID_MAX + 1]; /* of the API key; "" without keys */
    size_t bytes, count;       /* of its inputs that the table lists; freed with the last */
};

struct input {
    TAILQ_ENTRY(input) node;
    struct owner *owner; /* while the table lists the input */
    char digest[SRV_INPUT_DIGEST + 1];
    struct srv_tensor tensor; /* its elements are `data` */
    size_t bytes;             /* of room */
    size_t holders;           /* the table, while it lists the input, and requests */
    uint64_t used_ns;
    float data[];
};

TAILQ_HEAD(input_list, input);

struct srv_inputs {
    pthread_mutex_t lock; /* guards all of it and of its inputs but their tensors */
    struct input_list list;
    struct input_list unused;   /* to be freed: after the lock, since large ones take long */
    size_t limit, bytes, count; /* bytes: with inputs that only requests hold */
};

/* An input that a request holds. */
struct srv_input_ref {
    struct input *input;
    struct srv_input_ref *next;
};

struct srv_inputs *srv_inputs_open(size_t limit)
{
    struct srv_inputs *inputs = calloc(1, sizeof *inputs);
    if (inputs == NULL)
        return NULL;
    inputs->limit = limit;
    pthread_mutex_init(&inputs->lock, NULL);
    TAILQ_INIT(&inputs->list);
    TAILQ_INIT(&inputs->unused);
    return inputs;
}

/* ---- With the lock held ---------------------------------------------------------------------- */

static void let_go(struct srv_inputs *inputs, struct input *input)
{
    if (--input->holders > 0)
        return;
    inputs->bytes -= input->bytes;
    TAILQ_INSERT_HEAD(&inputs->unused, input, node);
}

static void drop(struct srv_inputs *inputs, struct input *input)
{
    struct owner *owner = input->owner;
    TAILQ_REMOVE(&inputs->list, input, node);
    inputs->count--;
    owner->bytes -= input->bytes;
    if (--owner->count == 0)
        free(owner);
    let_go(inputs, input);
}

/* The input of that name's key, which is now the one that was used last. */
static struct input *find(struct srv_inputs *inputs, const char *name, const char *digest)
{
    struct input *input;
    TAILQ_FOREACH(input, &inputs->list, node)
        if (strcmp(input->digest, digest) == 0 && strcmp(input->owner->name, name) == 0)
            break;
    if (input == NULL)
        return NULL;
    TAILQ_REMOVE(&inputs->list, input, node);
    TAILQ_INSERT_HEAD(&inputs->list, input, node);
    input->used_ns = srv_now_ns();
    return input;
}

/* The input that goes first: of the owner that holds most the one used longest ago. */
static struct input *choose(const struct srv_inputs *inputs)
{
    struct input *input, *chosen = NULL;
    TAILQ_FOREACH_REVERSE(input, &inputs->list, input_list, node)
    if (chosen == NULL || input->owner->bytes > chosen->owner->bytes)
        chosen = input;
    return chosen;
}

/* The owner of that name; NULL where there is no memory for it. */
static struct owner *find_owner(const struct srv_inputs *inputs, const char *name)
{
    const struct input *input;
    TAILQ_FOREACH(input, &inputs->list, node)
        if (strcmp(input->owner->name, name) == 0)
            return input->owner;
    struct owner *owner = calloc(1, sizeof *owner);
    if (owner != NULL)
        snprintf(owner->name, sizeof owner->name, "%s", name);
    return owner;
}

/* Lists the input for that name's key, where room for it can be made. */
static bool insert(struct srv_inputs *inputs, struct input *input, const char *name)
{
    while (inputs->count > 0 &&
           (inputs->count >= SRV_MAX_INPUTS || inputs->bytes > inputs->limit - input->bytes))
        drop(inputs, choose(inputs));
    if (inputs->bytes > inputs->limit - input->bytes ||
        (input->owner = find_owner(inputs, name)) == NULL)
        return false;
    TAILQ_INSERT_HEAD(&inputs->list, input, node);
    inputs->bytes += input->bytes;
    inputs->count++;
    input->owner->bytes += input->bytes;
    input->owner->count++;
    return true;
}

/* ---- From outside ---------------------------------------------------------------------------- */

/* Unlocks the table and frees what nobody holds any more. */
static void unlock(struct srv_inputs *inputs)
{
    struct input_list unused = TAILQ_HEAD_INITIALIZER(unused);
    struct input *input;
    TAILQ_CONCAT(&unused, &inputs->unused, node);
    pthread_mutex_unlock(&inputs->lock);
    while ((input = TAILQ_FIRST(&unused)) != NULL) {
        TAILQ_REMOVE(&unused, input, node);
        free(input);
    }
}

void srv_inputs_close(struct srv_inputs *inputs)
{
    if (inputs == NULL)
        return;
    pthread_mutex_lock(&inputs->lock);
    while (!TAILQ_EMPTY(&inputs->list))
        drop(inputs, TAILQ_FIRST(&inputs->list));
    unlock(inputs);
    pthread_mutex_destroy(&inputs->lock);
    free(inputs);
}

static struct input *copy(const char *digest, const struct srv_tensor *tensor)
{
    const size_t bytes = tensor->count * sizeof(float);
    struct input *input = malloc(sizeof *input + bytes);
    if (input == NULL)
        return NULL;
    *input = (struct input){.tensor = *tensor,
                            .bytes = bytes + SRV_INPUT_OVERHEAD,
                            .holders = 1,
                            .used_ns = srv_now_ns()};
    memcpy(input->digest, digest, SRV_INPUT_DIGEST + 1);
    memcpy(input->data, tensor->f32, bytes);
    input->tensor.f32 = input->data;
    return input;
}

enum srv_error_code srv_inputs_keep(struct srv_request *request, const char *digest,
                                    const struct srv_tensor *tensor, struct srv_error *error)
{
    struct srv_inputs *inputs = request->inputs;
    const size_t most = inputs->limit;
    if (most < SRV_INPUT_OVERHEAD || tensor->count > (most - SRV_INPUT_OVERHEAD) / sizeof(float))
        return srv_fail(error, SRV_E_BODY_TOO_LARGE, NULL,
                        "the input has %zu numbers, inputs_bytes is %zu", tensor->count, most);
    struct input *input = NULL;
    if (srv_request_charge(request, tensor->count * sizeof(float))) /* until it ends */
        input = copy(digest, tensor);
    if (input == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the input");
    pthread_mutex_lock(&inputs->lock);
    const bool known = find(inputs, request->key.name, digest) != NULL;
    const bool kept = known || insert(inputs, input, request->key.name);
    unlock(inputs);
    if (known || !kept)
        free(input);
    if (!kept)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL,
                        "inputs that requests use hold all of inputs_bytes");
    return SRV_OK;
}

enum srv_error_code srv_inputs_find(struct srv_tensor *out, struct srv_request *request,
                                    const char *digest, const char *param, struct srv_error *error)
{
    if (request == NULL)
        return srv_fail(error, SRV_E_UNSUPPORTED, param, "%s cannot be an input here", param);
    struct srv_input_ref *ref = srv_arena_alloc(&request->arena, 1, sizeof *ref);
    if (ref == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, param, "no memory for %s", param);
    pthread_mutex_lock(&request->inputs->lock);
    struct input *input = find(request->inputs, request->key.name, digest);
    if (input != NULL)
        input->holders++;
    unlock(request->inputs);
    if (input == NULL)
        return srv_fail(error, SRV_E_INPUT_NOT_FOUND, param,
                        "no input of this digest is kept: PUT /inputs/{digest} brings it");
    *ref = (struct srv_input_ref){input, request->input_refs};
    request->input_refs = ref;
    *out = input->tensor;
    return SRV_OK;
}

void srv_inputs_release(struct srv_request *request)
{
    struct srv_inputs *inputs = request->inputs;
    if (request->input_refs == NULL)
        return;
    pthread_mutex_lock(&inputs->lock);
    for (struct srv_input_ref *ref = request->input_refs; ref != NULL; ref = ref->next)
        let_go(inputs, ref->input);
    unlock(inputs);
    request->input_refs = NULL;
}

void srv_inputs_expire(struct srv_inputs *inputs, uint64_t now_ns)
{
    struct input *last;
    pthread_mutex_lock(&inputs->lock);
    while ((last = TAILQ_LAST(&inputs->list, input_list)) != NULL &&
           now_ns > last->used_ns + SRV_INPUT_TTL_S * SRV_S_NS)
        drop(inputs, last);
    unlock(inputs);
}

size_t srv_inputs_bytes(struct srv_inputs *inputs)
{
    pthread_mutex_lock(&inputs->lock);
    const size_t bytes = inputs->bytes;
    unlock(inputs);
    return bytes;
}
