/* hey_api.ts: calls of attnd by the functions that @hey-api/openapi-ts has made.
 *
 * A line below @ts-expect-error must not compile: where a type were `unknown`, it would. */
import { client } from "./hey/client.gen.js";
import {
    attend, changeSessions, createSession, decode, deleteSession, exportSession, forkSession, inferV2, listModels,
    truncateSession } from "./hey/sdk.gen.js";

declare const process: { argv: string[] };

client.setConfig({ baseUrl: process.argv[2] });
const query = [[[1, 0]]];

/* The JSON of a success. */
function done<T>(result: { data?: T; error?: unknown }): Exclude<NonNullable<T>, Blob> {
    if (result.data == null)
        throw new Error(JSON.stringify(result.error));
    return result.data as Exclude<NonNullable<T>, Blob>;
}

const attention = done(await attend({
    body: { query, key: query, value: query, outputs: ["output", "attention_weights"] } }));
const output: number = [attention.output].flat(4)[0] as number;
// @ts-expect-error: no such member
attention.ouput;
// @ts-expect-error: rows are numbers
await attend({ body: { hidden_states: [["1"]] } });

const refused = await attend({ body: { hidden_states: [[1]] } });
if (refused.error?.error.code !== "shape_mismatch")
    throw new Error("a code of another error");
// @ts-expect-error: no such code
refused.error?.error.code === "shape_missmatch";

const session = done(await createSession({ body: { session_id: "hey-api" } }));
const path = { id: session.session_id };
const steps = done(await decode({
    body: { sequences: [{ session_id: path.id, hidden_states: [1, 0, 0, 0] }] } }));
if (!("sequences" in steps) || "error" in steps.sequences[0] || steps.sequences[0].length !== 1)
    throw new Error("no step of a list");
const fork = done(await forkSession({ path, body: { length: 1 } }));
const cut = done(await truncateSession({
    path: { id: fork.session_id }, body: { length: 0, epoch: fork.epoch } }));
const length: number = cut.lengths[0].length;
// @ts-expect-error: a number
const text: string = cut.lengths[0].length;
const batch = done(await changeSessions({
    body: { fork: [{ from: path.id }, { from: "none" }], delete: [{ session_id: fork.session_id }] } }));
if ("error" in batch.fork[0] || !("error" in batch.fork[1]) || !("session_id" in batch.delete[0]))
    throw new Error("another result of a batch");
const child = batch.fork[0].session_id;
await deleteSession({ path });

const inferred = done(await inferV2({
    path: { name: "tiny" },
    body: { inputs: [{ name: "hidden_states", datatype: "FP32", shape: [1, 1, 4], data: [[[1, 0, 0, 0]]] },
                     { name: "padding_mask", datatype: "BOOL", shape: [1, 1], data: [true] }],
            parameters: { layer: 0 } } }));
const first: number | null | undefined = inferred.outputs[0].data?.[0];
// @ts-expect-error: numbers
inferred.outputs[0].data?.[0].length;
const models = done(await listModels());
const state = await exportSession({ path: { id: child }, parseAs: "blob" });
const bytes: number | undefined = state.data?.size;
console.log("hey-api", output, length, text, first, models.models[0].name, bytes);
