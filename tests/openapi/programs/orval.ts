/* orval.ts: calls of attnd by the functions that orval has made.
 *
 * A line below @ts-expect-error must not compile: where a type were `unknown`, it would. */
import {
    attend, changeSessions, createSession, decode, deleteSession, exportSession, forkSession, inferV2, listModels,
    truncateSession } from "./orval/attnd.js";

const json = { headers: { "Content-Type": "application/json" } };
const query = [[[1, 0]]];

/* The JSON of a success. */
function done<R extends { status: number; data: unknown }, S extends number>(reply: R, status: S) {
    if (reply.status !== status)
        throw new Error(JSON.stringify(reply.data));
    return reply.data as Exclude<Extract<R, { status: S }>["data"], Blob>;
}

const attention = done(await attend({
    query, key: query, value: query, outputs: ["output", "attention_weights"] }, json), 200);
const output: number = [attention.output].flat(4)[0] as number;
// @ts-expect-error: no such member
attention.ouput;
// @ts-expect-error: rows are numbers
await attend({ hidden_states: [["1"]] }, json);

const refused = await attend({ hidden_states: [[1]] }, json);
if (refused.status !== 422 || refused.data.error.code !== "shape_mismatch")
    throw new Error("another error");
// @ts-expect-error: no such code
refused.data.error.code === "shape_missmatch";

const session = done(await createSession({ session_id: "orval" }, json), 201);
const steps = done(await decode({
    sequences: [{ session_id: session.session_id, hidden_states: [1, 0, 0, 0] }] }, json), 200);
if (!("sequences" in steps) || "error" in steps.sequences[0] || steps.sequences[0].length !== 1)
    throw new Error("no step of a list");
const fork = done(await forkSession(session.session_id, { length: 1 }, json), 201);
const cut = done(await truncateSession(fork.session_id, { length: 0, epoch: fork.epoch }, json), 200);
const length: number = cut.lengths[0].length;
// @ts-expect-error: a number
const text: string = cut.lengths[0].length;
const batch = done(await changeSessions({
    fork: [{ from: session.session_id }, { from: "none" }],
    delete: [{ session_id: fork.session_id }] }, json), 200);
if ("error" in batch.fork[0] || !("error" in batch.fork[1]) || !("session_id" in batch.delete[0]))
    throw new Error("another result of a batch");
const child = batch.fork[0].session_id;
await deleteSession(session.session_id);

const inferred = done(await inferV2("tiny", {
    inputs: [{ name: "hidden_states", datatype: "FP32", shape: [1, 1, 4], data: [[[1, 0, 0, 0]]] },
             { name: "padding_mask", datatype: "BOOL", shape: [1, 1], data: [true] }],
    parameters: { layer: 0 } }), 200);
const first: number | null | undefined = inferred.outputs[0].data?.[0];
// @ts-expect-error: numbers
inferred.outputs[0].data?.[0].length;
const models = done(await listModels(), 200);
/* Not called: orval's functions read every reply as JSON. */
const size = async () => {
    const state = await exportSession(child);
    return state.status === 200 ? state.data.size : 0;
};
console.log("orval", output, length, text, first, models.models[0].name, size.name);
