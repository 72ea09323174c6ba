/* replies.c: the schemas of replies: a row for each schema, and a row for each member of an
 * object.
 *
 * Objects are closed: a member of a reply that has no row here fails `make check-openapi`. */
#include <string.h>

#include "openapi/openapi.h"
#include "wire/call_fields.h"

/* ---- Objects --------------------------------------------------------------------------------- */

static const struct object {
    const char *name, *meaning;
    bool partial; /* each of its members may be left out */
    bool outputs; /* it also has the outputs of a call */
} objects[] = {
    {.name = "Error", .meaning = "A refused request"},
    {.name = "ErrorDetail", .meaning = "Decide by code: messages are for people and may change"},
    {.name = "Attention", .meaning = "Attention over given rows", .outputs = true},
    {.name = "Step", .meaning = "A step over a session", .outputs = true},
    {.name = "Prefill", .meaning = "A step over a session, by /attend", .outputs = true},
    {.name = "FailedStep", .meaning = "A step of a list that was not made"},
    {.name = "StepList", .meaning = "Steps in the order of the request's"},
    {.name = "TopWeights", .meaning = "The largest weights of each row, the largest first"},
    {.name = "HeadStats",
     .meaning = "Means over the rows that see a key, of weights before head_mask"},
    {.name = "GroupStats",
     .meaning = "Weight of a head on a group of keys, over rows that see any"},
    {.name = "BinaryOutput", .meaning = "A tensor whose bytes follow the JSON"},
    {.name = "Session", .meaning = "A session"},
    {.name = "WeightlessShape", .meaning = "The shape of a session without weights"},
    {.name = "LayerLength", .meaning = "The tokens of a layer"},
    {.name = "ListedSession", .meaning = "A session as lists have it"},
    {.name = "SessionPage", .meaning = "Some of the sessions"},
    {.name = "BatchReply", .meaning = "Forks and deletes in the order of the request's"},
    {.name = "DeletedSession", .meaning = "A session that has ended"},
    {.name = "FailedChange", .meaning = "A fork or delete of a list that was not made"},
    {.name = "Snapshot", .meaning = "How far writing all sessions to disk is"},
    {.name = "ModelList", .meaning = "All models"},
    {.name = "Model",
     .meaning = "A model; from hidden_size on the specification of its first resident layer"},
    {.name = "DifferingLayer",
     .meaning = "What differs from the first resident layer",
     .partial = true},
    {.name = "Kernels", .meaning = "The kernels that compute"},
    {.name = "Rope", .meaning = "Rotary positions"},
    {.name = "PositionBias", .meaning = "A bias by the distance of query and key"},
    {.name = "Norm", .meaning = "A norm of queries and keys, or of values"},
    {.name = "QueryScaling", .meaning = "A factor of queries that grows with their position"},
    {.name = "Mla",
     .meaning = "Latent attention: a cache keeps the latent and a shared rotated part"},
    {.name = "Biases", .meaning = "Which projections have a bias"},
    {.name = "Health", .meaning = "The daemon answers"},
    {.name = "Ready", .meaning = "Requests are served"},
    {.name = "Stopping", .meaning = "The daemon stops soon, and serves until then"},
    {.name = "V2Error", .meaning = "A refused request of the Open Inference Protocol"},
    {.name = "V2Server", .meaning = "The server"},
    {.name = "V2Model", .meaning = "Inputs and outputs of a model"},
    {.name = "V2Tensor", .meaning = "An input or output; -1 is a variable dimension"},
    {.name = "V2ModelReady", .meaning = "A model that is served"},
    {.name = "V2Config", .meaning = "A model's configuration"},
    {.name = "V2ConfigTensor", .meaning = "An input or output; -1 is a variable dimension"},
    {.name = "V2Statistics", .meaning = "Statistics of models since the start"},
    {.name = "V2ModelStatistics", .meaning = "Statistics of a model"},
    {.name = "V2Durations", .meaning = "Parts of requests"},
    {.name = "V2Duration", .meaning = "How many, and how long together"},
    {.name = "V2IndexEntry", .meaning = "A model of the repository"},
    {.name = "V2InferRequest", .meaning = "A call of /attend as inputs and parameters"},
    {.name = "V2Input", .meaning = "A field of the call that is a tensor"},
    {.name = "V2RequestedOutput", .meaning = "An output to reply"},
    {.name = "V2InferReply", .meaning = "Outputs of a call"},
    {.name = "V2Output", .meaning = "An output: numbers, or bytes that follow the JSON"},
};

#define LAYER "Model DifferingLayer"
#define STEP "Prefill Step"

#define V2_NAMED                                                                   \
    "V2Model V2Tensor V2ModelReady V2ConfigTensor V2ModelStatistics V2IndexEntry " \
    "V2RequestedOutput V2Output"

static const struct member {
    const char *objects; /* names of those that have it */
    const char *name;    /* with a question mark where it may be left out */
    const char *type, *meaning;
} members[] = {
    {"Error", "error", "ErrorDetail", "what is wrong"},
    {"ErrorDetail", "code", "ErrorCode", "what to decide by"},
    {"ErrorDetail", "message", "string", "one line for people"},
    {"ErrorDetail", "param?", "string", "the field at fault"},
    {"ErrorDetail", "retryable", "boolean", "whether the same request may succeed later"},
    {"ErrorDetail V2Error", "length?", "Count",
     "of the layer, with position_conflict, position_gap and revision_mismatch"},
    {"ErrorDetail V2Error", "epoch?", "Count", "of the session, with revision_mismatch"},
    {"ErrorDetail V2Error", "revision?", "Count", "of the session, with revision_mismatch"},
    {"ErrorDetail", "lowest_length?", "Count", "to which windows let the session be cut, beside 0"},
    {"ErrorDetail", "owner?", "string", "with wrong_instance: the instance that the id names"},
    {"ErrorDetail", "request_id?", "string", "as in the log; not of an item of a list"},

    {"Attention", "model", "string?", "null: without weights"},
    {"Prefill", "model", "string?", "the session's model; null: without weights"},
    {STEP " FailedStep", "session_id", "Id", "the session"},
    {"Attention " STEP, "layer", "LayerIndex", "the layer"},
    {STEP, "position", "Count", "where the first row went"},
    {STEP, "length", "Count", "the layer's tokens after the step"},
    {STEP, "epoch", "Count", "of the session"},
    {STEP, "revision", "Count", "of the session: another one after each truncation"},
    {STEP, "replayed?", "boolean", "a retry: nothing was appended"},
    {"FailedStep", "error", "ErrorDetail", "why"},
    {"StepList", "sequences", "[Step|FailedStep]", "as the request's"},
    {"TopWeights", "index", "IndexOutput", "columns of the weights"},
    {"TopWeights", "weight", "FloatOutput", "the weights"},
    {"BinaryOutput", "shape", "[Count]", "slowest index first"},
    {"BinaryOutput", "datatype", "ReplyDatatype", "of an element, little-endian"},
    {"BinaryOutput", "binary_data_size", "Count", "bytes"},
    {"BinaryOutput", "minimum?", "number|[number]|[[number]]", "of UINT8: what byte 0 stands for"},
    {"BinaryOutput", "maximum?", "number|[number]|[[number]]", "what byte 255 stands for"},
    {"HeadStats", "head", "Count", "its index"},
    {"HeadStats", "pattern", "HeadPattern", "what the head looks at"},
    {"HeadStats", "entropy", "number", "of the weights, in nats"},
    {"HeadStats", "mean_distance", "number", "of a query from its keys, weighed, in tokens"},
    {"HeadStats", "self", "number", "weight on the query's own position"},
    {"HeadStats", "previous", "number", "weight on the position before"},
    {"HeadStats", "first", "number", "weight on the first key that is no padding"},
    {"HeadStats", "local", "number", "weight within local_radius"},
    {"HeadStats", "largest", "number", "the largest weight"},
    {"HeadStats", "rows", "Count", "rows that see a key; if 0, all members are 0"},
    {"HeadStats", "target?", "number", "weight on the row's target; with targets"},
    {"HeadStats", "target_hits?", "number", "share of rows whose largest weight is their target's"},
    {"HeadStats", "target_rows?", "Count", "rows that see a key and have a target"},
    {"HeadStats", "groups?", "[GroupStats]", "as target_groups"},
    {"HeadStats", "ablation?", "number", "change of the output without the head; with ablate"},
    {"GroupStats", "share", "number", "weight on the group's keys"},
    {"GroupStats", "hits", "number", "share of rows whose largest weight is in the group"},

    {"Session ListedSession", "session_id", "Id", "its id"},
    {"Session ListedSession", "model", "string?", "its model; null: without weights"},
    {"Session ListedSession", "weightless?", "WeightlessShape", "of a session without weights"},
    {"Session ListedSession", "owner?", "OwnerName",
     "the API key that made it, for the scope admin"},
    {"Session ListedSession", "shared?", "boolean", "every API key finds it"},
    {"Session ListedSession", "epoch", "Count", "another number for every session ever created"},
    {"Session ListedSession", "revision", "Count", "another number after each truncation"},
    {"Session ListedSession", "max_length", "Count", "tokens"},
    {"Session ListedSession", "ttl_s", "Count", "seconds without a step after which it expires"},
    {"Session ListedSession", "idle_s", "number", "seconds since the last step"},
    {"Session ListedSession", "bytes", "Count", "of its cache"},
    {"Session ListedSession", "lowest_length?", "Count",
     "to which it can be cut, beside 0; absent: any"},
    {"Session", "lengths", "[LayerLength]", "of the resident layers"},
    {"ListedSession", "length", "Count", "tokens of its longest layer"},
    {"ListedSession", "lengths?", "[LayerLength]", "of the resident layers, with details=1"},
    {"Session", "replayed?", "boolean",
     "an earlier request of this Idempotency-Key made it, or the truncation was made before"},
    {"WeightlessShape", "num_attention_heads", "Count", "H"},
    {"WeightlessShape", "num_key_value_heads", "Count", "G"},
    {"WeightlessShape", "head_dim", "Count", "D"},
    {"WeightlessShape", "value_head_dim", "Count", "Dv"},
    {"WeightlessShape", "num_hidden_layers", "Count", "layers"},
    {"WeightlessShape", "kv_dtype", "string", "of cached keys and values"},
    {"WeightlessShape", "scale", "number", "of the scores, as float32"},
    {"WeightlessShape", "softcap", "number?", "null: none"},
    {"WeightlessShape", "sliding_window", "Count?", "null: none"},
    {"LayerLength", "layer", "LayerIndex", "the layer"},
    {"LayerLength", "length", "Count", "its tokens"},
    {"BatchReply", "fork", "[Session|FailedChange]", "as the request's"},
    {"BatchReply", "delete", "[DeletedSession|FailedChange]", "as the request's"},
    {"DeletedSession", "session_id", "Id", "its id"},
    {"FailedChange", "error", "ErrorDetail", "why"},
    {"SessionPage", "sessions", "[ListedSession]", "in the order of their ids"},
    {"SessionPage", "next", "PageToken?", "what to continue after; null at the end"},
    {"Snapshot", "generation", "Count", "the one begun or in use"},
    {"Snapshot", "base", "Count", "the last that is complete on disk; 0: none"},
    {"Snapshot", "journal_bytes", "Count", "of the journals since then"},
    {"Snapshot", "running", "boolean", "whether one is being written or waits to be"},

    {"ModelList", "models", "[Model]", "in the order of the configuration"},
    {"ModelList Model", "kernels", "Kernels", "the kernels that compute"},
    {"Kernels", "level", "string", "of the CPU"},
    {"Kernels", "gemm", "string", "which matrix products"},
    {"Kernels", "blas_core", "string?", "the kernels that OpenBLAS chose"},
    {"Kernels", "blas_overridden", "boolean", "whether OPENBLAS_CORETYPE chose"},
    {"Kernels", "threads", "Count", "that compute"},
    {"Model", "name", "string", "its name"},
    {"Model", "family", "string", "of the checkpoint; random without one"},
    {"Model", "stack", "string?", "of a family that has several"},
    {"Model", "random", "boolean", "its weights are random"},
    {"Model", "note?", "string", "about random weights"},
    {"Model", "num_layers", "Count", "of the checkpoint"},
    {"Model", "num_linear_layers?", "Count", "of these linear_attention, which is not computed"},
    {"Model", "resident_layers", "[LayerIndex]", "layers that are served"},
    {"Model", "max_position", "Count", "the configuration's max_position_embeddings; 0: none"},
    {"Model", "max_length", "Count", "tokens of the longest session"},
    {"Model", "weights_dtype", "string", "the checkpoint's"},
    {"Model", "dtype", "string", "of the resident weights"},
    {"Model", "kv_dtype", "string", "of caches"},
    {"Model", "parameters", "Count", "numbers that the resident layers have learned"},
    {"Model", "weight_bytes", "Count", "of the resident weights"},
    {"Model", "weights_mapped", "boolean",
     "these are pages of a file of weights_cache, which daemons share"},
    {"Model", "cache_bytes_per_token", "Count", "of all layers that hold the token"},
    {"Model", "cache_bytes_per_session", "Count", "of max_length tokens, windows counted"},
    {"Model", "fingerprint", "string", "of specification and weights"},
    {"Model", "differing_layers", "[DifferingLayer]", "layers unlike the first resident one"},
    {"DifferingLayer", "layer", "LayerIndex", "which"},
    {LAYER, "hidden_size", "Count", "width E"},
    {LAYER, "key_size", "Count", "width of the rows that keys come from"},
    {LAYER, "value_size", "Count", "width of the rows that values come from"},
    {LAYER, "num_attention_heads", "Count", "H"},
    {LAYER, "num_key_value_heads", "Count", "G"},
    {LAYER, "head_dim", "Count", "D"},
    {LAYER, "value_head_dim", "Count", "Dv"},
    {LAYER, "scale", "number", "of scores"},
    {LAYER, "softcap", "number?", "of scores"},
    {LAYER, "is_causal", "boolean", "a row sees keys up to its own"},
    {LAYER, "is_cross", "boolean", "keys come from another sequence"},
    {LAYER, "mask", "MaskKind", "what a row sees"},
    {LAYER, "sliding_window", "Count?", "the window's width; both ways where not causal"},
    {LAYER, "attention_chunk_size", "Count?", "tokens of a chunk"},
    {LAYER, "query_scaling", "QueryScaling?", "queries grow with their position"},
    {LAYER, "rope", "Rope?", "rotary positions"},
    {LAYER, "position_bias", "PositionBias?", "a bias by distance"},
    {LAYER, "sinks", "boolean", "a learned score per head takes its share of the softmax"},
    {LAYER, "qk_norm", "Norm?", "of queries and keys"},
    {LAYER, "v_norm", "Norm?", "of values"},
    {LAYER, "output_gate", "boolean", "rows of heads are multiplied by a gate"},
    {LAYER, "mla", "Mla?", "latent attention"},
    {LAYER, "shares_layer", "Count?", "the earlier layer whose keys and values it reads"},
    {LAYER, "biases", "Biases", "of the projections"},
    {LAYER, "bias_kv", "boolean", "a learned key and value are appended"},
    {LAYER, "add_zero_attn", "boolean", "a key and value of zeros are appended"},
    {"Rope", "type", "RopeType", "how frequencies are scaled"},
    {"Rope", "theta", "number", "the base of frequencies"},
    {"Rope", "dim", "Count", "components of a head that turn"},
    {"Rope", "interleaved", "boolean", "pairs are neighbours, not halves"},
    {"Rope", "factor?", "number", "of the scaling"},
    {"Rope", "attention_factor?", "number", "of queries and keys"},
    {"Rope", "low_freq_factor?", "number", "of llama3"},
    {"Rope", "high_freq_factor?", "number", "of llama3"},
    {"Rope", "beta_fast?", "number", "of yarn"},
    {"Rope", "beta_slow?", "number", "of yarn"},
    {"Rope", "truncate?", "boolean", "of yarn"},
    {"Rope", "original_max_position_embeddings?", "number", "before scaling"},
    {"Rope", "proportional_dim?", "Count", "components that turn, of proportional"},
    {"Rope", "short_factor?", "[number]", "of longrope"},
    {"Rope", "long_factor?", "[number]", "of longrope"},
    {"PositionBias", "type", "PositionBiasType", "which"},
    {"PositionBias", "scale?", "number", "of alibi"},
    {"PositionBias", "bfloat16?", "boolean", "of alibi"},
    {"PositionBias", "by_slot?", "boolean", "of alibi: padding counts in distances"},
    {"PositionBias", "buckets?", "Count", "of t5; of disentangled, 0 without"},
    {"PositionBias", "max_distance?", "Count", "of t5, disentangled"},
    {"PositionBias", "bidirectional?", "boolean", "of t5"},
    {"PositionBias", "content_to_position?", "boolean", "of disentangled"},
    {"PositionBias", "position_to_content?", "boolean", "of disentangled"},
    {"Norm", "type", "NormType", "RMSNorm or LayerNorm"},
    {"Norm", "eps", "number", "added to the mean square"},
    {"Norm", "extent", "NormExtent", "over what the mean is taken"},
    {"Norm", "weightless", "boolean", "nothing multiplies the result"},
    {"Norm", "bias", "boolean", "a bias is added"},
    {"Norm", "after_rope", "boolean", "after RoPE, not before"},
    {"QueryScaling", "beta", "number", "of 1 + beta ln(1 + floor((p + next) / period))"},
    {"QueryScaling", "period", "number", "in positions"},
    {"QueryScaling", "next", "boolean", "p + 1 counts"},
    {"QueryScaling", "by_slot", "boolean", "p is the row's index, not its position_ids"},
    {"Mla", "kv_lora_rank", "Count", "width of the latent"},
    {"Mla", "q_lora_rank", "Count?", "width of the latent of queries"},
    {"Mla", "qk_rope_head_dim", "Count", "components of a head that rotate, the last"},
    {"Mla", "eps", "number", "of the norms of latents"},
    {"Biases", "query", "boolean", "of the query projection"},
    {"Biases", "key", "boolean", "of the key projection"},
    {"Biases", "value", "boolean", "of the value projection"},
    {"Biases", "output", "boolean", "of the output projection"},

    {"Health", "status", "string", "ok"},
    {"Health", "phase", "Phase", "of the daemon"},
    {"Ready", "status", "Phase", "ready"},
    {"Stopping", "phase", "Phase", "lame_duck"},
    {"Stopping", "lame_duck_s", "Count", "seconds from the first request to stop to draining"},
    {"Stopping", "drain_timeout_s", "Count", "seconds that running requests have after these"},

    {"V2Error", "error", "string", "one line for people"},
    {"V2Error", "code", "ErrorCode", "what to decide by"},
    {"V2Error", "param?", "string", "the field at fault"},
    {"V2Error", "retryable", "boolean", "whether the same request may succeed later"},
    {"V2Error", "lowest_length?", "Count", "to which windows let the session be cut, beside 0"},
    {"V2Error", "owner?", "string", "with wrong_instance: the instance that the id names"},
    {"V2Error", "request_id?", "string", "as in the log"},
    {V2_NAMED " V2Server V2Config V2Input", "name", "string", "its name"},
    {"V2Server", "version", "string", "of attnd"},
    {"V2Server", "extensions", "[string]", "of the protocol"},
    {"V2Model", "versions", "[string]", "1"},
    {"V2Model V2Config", "platform", "string", "attnd"},
    {"V2Model", "inputs", "[V2Tensor]", "that the model can have"},
    {"V2Model", "outputs", "[V2Tensor]", "that the model can have"},
    {"V2Tensor V2Input V2Output", "datatype", "string", "of an element"},
    {"V2Tensor", "shape", "[integer]", "slowest index first"},
    {"V2ModelReady", "ready", "boolean", "true"},
    {"V2Config", "backend", "string", "attnd"},
    {"V2Config", "version_policy", "object", "the one version"},
    {"V2Config", "max_batch_size", "Count", "0: dims are whole shapes"},
    {"V2Config", "input", "[V2ConfigTensor]", "that the model can have"},
    {"V2Config", "output", "[V2ConfigTensor]", "that the model can have"},
    {"V2Config", "sequence_batching?", "object", "of a model that has sessions"},
    {"V2ConfigTensor", "data_type", "string", "of an element"},
    {"V2ConfigTensor", "dims", "[integer]", "slowest index first"},
    {"V2ConfigTensor", "optional?", "boolean", "an input that may be left out"},
    {"V2Statistics", "model_stats", "[V2ModelStatistics]", "of each model"},
    {"V2ModelStatistics V2IndexEntry", "version", "string", "1"},
    {"V2ModelStatistics", "last_inference", "Count", "milliseconds since 1970; 0: none"},
    {"V2ModelStatistics", "inference_count", "Count", "sequences computed"},
    {"V2ModelStatistics", "execution_count", "Count", "batches computed"},
    {"V2ModelStatistics", "inference_stats", "V2Durations", "of requests"},
    {"V2ModelStatistics", "batch_stats", "[object]", "empty"},
    {"V2Durations", "success", "V2Duration", "whole, of successes"},
    {"V2Durations", "fail", "V2Duration", "whole, of failures"},
    {"V2Durations", "queue", "V2Duration", "waiting for the scheduler"},
    {"V2Durations", "compute_input", "V2Duration", "reading the body"},
    {"V2Durations", "compute_infer", "V2Duration", "computing, and waiting for its turn"},
    {"V2Durations", "compute_output", "V2Duration", "writing the reply"},
    {"V2Duration", "count", "Count", "how many"},
    {"V2Duration", "ns", "Count", "nanoseconds together"},
    {"V2IndexEntry", "state", "string", "READY"},
    {"V2IndexEntry", "reason", "string", "empty"},
    {"V2InferRequest", "id?", "string?", "comes back in the reply"},
    {"V2InferReply", "id?", "string", "the request's"},
    {"V2InferRequest V2RequestedOutput V2Input", "parameters?", "object?", "by name"},
    {"V2InferReply V2Output", "parameters?", "object", "by name"},
    {"V2InferRequest", "inputs", "[V2Input]", "fields that are tensors"},
    {"V2InferRequest", "outputs?", "[V2RequestedOutput]?", "left out: output"},
    {"V2Input V2Output", "shape", "[Count]", "slowest index first"},
    {"V2Input", "data?", "V2Data", "numbers, where they are not bytes"},
    {"V2Output", "data?", "[number?]", "numbers, where they are not bytes"},
    {"V2InferReply", "model_name", "string", "as the path has it"},
    {"V2InferReply", "model_version", "string", "1"},
    {"V2InferReply", "outputs", "[V2Output]", "in the order of docs/API.md"},
};

static void add_member(json_t *properties, json_t *required, const struct member *member,
                       bool partial)
{
    size_t length = strcspn(member->name, "?");
    const char *name = json_string_value(json_stringn(member->name, length));
    set(properties, name, describe(schema_of(member->type), member->meaning, NULL));
    if (!partial && member->name[length] == '\0')
        append(required, json_string(name));
}

static void add_outputs(json_t *properties)
{
    for (size_t i = 0; i < SRV_OUTPUT_COUNT; i++) {
        const struct srv_output_name *output = &srv_output_names[i];
        set(properties, output->name,
            describe(schema_of(output->type), output->meaning, output->shapes));
    }
}

static json_t *object_schema(const struct object *object)
{
    json_t *properties = json_object(), *required = json_array();
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (has_word(members[i].objects, object->name))
            add_member(properties, required, &members[i], object->partial);
    if (object->outputs)
        add_outputs(properties);
    json_t *schema = closed_object(object->meaning, properties);
    set(schema, "required", required);
    return schema;
}

/* ---- Choices --------------------------------------------------------------------------------- */

/* Another name of a type. */
static const struct {
    const char *name, *type;
} choices[] = {
    {"AttendReply", "Attention|Prefill"},
    {"DecodeReply", "Step|StepList"},
    {"V2Index", "[V2IndexEntry]"},
    {"V2Element", "number|boolean?"},
    {"V2Data", "[V2Element]|[[V2Element]]|[[[V2Element]]]|[[[[V2Element]]]]"},
    {"OpenapiDocument", "object"},
};

void add_replies(json_t *schemas)
{
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++)
        set(schemas, objects[i].name, object_schema(&objects[i]));
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        set(schemas, choices[i].name, schema_of(choices[i].type));
}
