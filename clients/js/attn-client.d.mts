/**
 * attn-client.d.mts: types of attn-client.mjs, for TypeScript and for editors.
 */

export type TypedArray =
    | Float32Array
    | Float64Array
    | Int8Array
    | Uint8Array
    | Uint8ClampedArray
    | Int16Array
    | Uint16Array
    | Int32Array
    | Uint32Array
    | BigInt64Array
    | BigUint64Array;

/** A tensor of a reply: row-major. */
export interface Tensor<Data extends TypedArray = Float32Array> {
    data: Data;
    shape: number[];
}

export type Numbers = ReadonlyArray<number | bigint | boolean | null>;
/** Nested arrays of numbers, null being minus infinity, or of typed arrays. */
export type Nested = TypedArray | Numbers | ReadonlyArray<Nested>;

/** What is taken for a tensor. With `datatype` "BF16" or "FP16" a Uint16Array is its bits. */
export type TensorLike =
    | Nested
    | { data: Nested; shape: readonly number[]; datatype?: string }
    | { data: Nested; dims: readonly number[]; type?: string }
    | { data: TypedArray }
    | { input: string }; // the digest of rows that PUT /inputs/{digest} has brought

export type OutputName =
    | "output"
    | "attention_weights"
    | "attention_scores"
    | "lse"
    | "key"
    | "value"
    | "query"
    | "head_output"
    | "concat"
    | "head_stats";

/** What any call takes. */
export interface CallOptions {
    /** Ends the call at once, with an AttnError of code "cancelled". */
    signal?: AbortSignal | undefined;
}

/** Fields of docs/API.md, "Fields", of a call of attention or a step; others are sent as given. */
export interface AttendFields extends CallOptions {
    model?: string;
    layer?: number;
    outputs?: Iterable<OutputName>;
    hidden_states?: TensorLike;
    encoder_hidden_states?: TensorLike;
    query?: TensorLike;
    key?: TensorLike;
    value?: TensorLike;
    past_key?: TensorLike;
    past_value?: TensorLike;
    attention_bias?: TensorLike;
    attention_mask?: TensorLike;
    padding_mask?: TensorLike;
    head_mask?: TensorLike;
    position_ids?: TensorLike;
    grid?: TensorLike;
    heads?: TensorLike;
    rows?: TensorLike;
    is_causal?: boolean;
    top_k?: number;
    commit?: boolean;
    [field: string]: unknown;
}

/** The `top_k` largest of each row. */
export interface TopK {
    index: Tensor<Uint32Array>;
    weight: Tensor;
}

/** The outputs that were asked for; `Name` are their names, as far as the compiler knows them. */
export type Outputs<Name extends OutputName = "output"> = {
    [Key in Name]: Key extends "head_stats" ? any : Tensor;
};

/** A reply of /attend; of other members and of `top_k` see docs/API.md. */
export type Reply<Name extends OutputName = "output"> = Outputs<Name> & { [member: string]: any };

/** A reply to a step. */
export type StepReply<Name extends OutputName = "output"> = Reply<Name> & {
    session_id: string;
    position: number;
    length: number;
    epoch: number;
    revision?: number;
    replayed?: boolean;
};

/** Fields whose outputs are `Name`. */
export type Named<Name extends OutputName> = AttendFields & { outputs: Iterable<Name> };

export interface LayerLength {
    layer: number;
    length: number;
}

/** A session, as GET /sessions/{id} has it; a list of sessions may have less of each. */
export interface SessionInfo {
    session_id: string;
    model: string | null;
    epoch: number;
    revision?: number;
    max_length: number;
    ttl_s: number;
    idle_s: number;
    bytes: number;
    lengths: LayerLength[];
    lowest_length?: number;
}

/** A model, as GET /models/{name} has it; docs/API.md, "Models", has more members. */
export interface ModelInfo {
    name: string;
    family: string;
    stack: string | null;
    random: boolean;
    num_layers: number;
    resident_layers: number[];
    max_position: number;
    max_length: number;
    dtype: string;
    kv_dtype: string;
    parameters: number;
    fingerprint: string;
    hidden_size: number;
    key_size: number;
    value_size: number;
    num_attention_heads: number;
    num_key_value_heads: number;
    head_dim: number;
    value_head_dim: number;
    is_causal: boolean;
    is_cross: boolean;
    [member: string]: unknown;
}

export type ErrorKind =
    | "invalid"
    | "unauthorized"
    | "not_found"
    | "conflict"
    | "session_lost"
    | "busy"
    | "unavailable"
    | "connection"
    | "cancelled"
    | "item";

/** A request that failed; attn-client.mjs says what its members are. */
export class AttnError extends Error {
    constructor(code: string, message: string, facts?: Record<string, unknown>);
    code: string;
    status: number;
    param: string | null;
    retryable: boolean;
    length: number | null;
    lowestLength: number | null;
    epoch: number | null;
    revision: number | null;
    owner: string | null;
    requestId: string | null;
    retryAfterMs: number;
    get kind(): ErrorKind;
}

export interface ClientOptions {
    apiKey?: string | undefined;
    timeoutMs?: number | undefined;
    retryMs?: number | undefined;
    deadlineMs?: number | undefined;
    fetch?: typeof fetch | undefined;
}

export interface RequestOptions extends CallOptions {
    body?: BodyInit | undefined;
    headers?: Record<string, string>;
    again?: boolean;
    retryMs?: number;
}

export interface SessionFields extends CallOptions {
    session_id?: string;
    model?: string;
    max_length?: number;
    ttl_s?: number;
    shared?: boolean;
    encoder_hidden_states?: TensorLike;
    encoder_padding_mask?: TensorLike;
    num_attention_heads?: number;
    num_key_value_heads?: number;
    head_dim?: number;
    value_head_dim?: number;
    num_hidden_layers?: number;
    [field: string]: unknown;
}

export interface ForkFields extends CallOptions {
    session_id?: string;
    length?: number;
}

export interface BatchFields extends CallOptions {
    fork?: ReadonlyArray<Session | readonly [Session, Omit<ForkFields, "signal">]>;
    end?: readonly Session[];
}

export class Client {
    constructor(url?: string | URL, options?: ClientOptions);
    url: string;
    retryMs: number;
    timeoutMs: number;
    request(
        method: string,
        path: string,
        options?: RequestOptions,
    ): Promise<{ headers: Headers; buffer: ArrayBuffer }>;
    call(path: string, fields: AttendFields, lead?: string): Promise<any>;
    post(path: string, fields: Record<string, unknown>, headers?: object): Promise<any>;
    get(path: string, id?: string, options?: CallOptions): Promise<any>;
    attend<Name extends OutputName>(
        rows: TensorLike | undefined,
        fields: Named<Name>,
    ): Promise<Reply<Name>>;
    attend(rows?: TensorLike, fields?: AttendFields & { outputs?: undefined }): Promise<Reply>;
    stepMany<Name extends OutputName = "output">(
        steps: ReadonlyArray<readonly [Session, TensorLike | AttendFields]>,
        fields?: AttendFields & { outputs?: Iterable<Name> },
    ): Promise<Array<StepReply<Name> | AttnError>>;
    batch(
        what?: BatchFields,
    ): Promise<{ forks: Array<Session | AttnError>; ends: Array<AttnError | null> }>;
    session(fields?: SessionFields): Promise<Session>;
    withSession<T>(fields: SessionFields, work: (session: Session) => Promise<T>): Promise<T>;
    start(
        encoderHiddenStates: TensorLike,
        hiddenStates: TensorLike,
        fields?: AttendFields & { session_id?: string; encoder_padding_mask?: TensorLike },
    ): Promise<Session>;
    open(sessionId: string, options?: CallOptions): Promise<Session>;
    restore(
        sessionId: string,
        state: ArrayBuffer | Uint8Array,
        options?: CallOptions,
    ): Promise<Session>;
    sessions(limit?: number): AsyncGenerator<SessionInfo, void, undefined>;
    models(options?: CallOptions): Promise<ModelInfo[]>;
    model(name: string, options?: CallOptions): Promise<ModelInfo>;
    ready(): Promise<boolean>;
    waitUntilReady(ms?: number): Promise<void>;
}

export class Session {
    constructor(
        client: Client,
        facts: Pick<SessionInfo, "session_id" | "model" | "epoch" | "lengths">,
    );
    client: Client;
    sessionId: string;
    model: string | null;
    epoch: number;
    revision: number | null;
    lengths: Record<number, number>;
    first: Reply | null;
    prefill<Name extends OutputName>(
        rows: TensorLike | undefined,
        fields: Named<Name>,
    ): Promise<StepReply<Name>>;
    prefill(rows?: TensorLike, fields?: AttendFields & { outputs?: undefined }): Promise<StepReply>;
    decode<Name extends OutputName>(
        rows: TensorLike | undefined,
        fields: Named<Name>,
    ): Promise<StepReply<Name>>;
    decode(rows?: TensorLike, fields?: AttendFields & { outputs?: undefined }): Promise<StepReply>;
    refresh(options?: CallOptions): Promise<SessionInfo>;
    fork(fields?: ForkFields): Promise<Session>;
    truncate(length: number, options?: CallOptions): Promise<void>;
    export(options?: CallOptions): Promise<ArrayBuffer>;
    end(options?: CallOptions & { retryMs?: number }): Promise<void>;
    claim(): { epoch: number; revision?: number };
    place(layer: number): {
        session_id: string;
        position: number;
        epoch: number;
        revision?: number;
    };
}

/** The numbers that halves stand for. */
export function numbersOfHalves(bits: Uint16Array): Float32Array;
