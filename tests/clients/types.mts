/**
 * types.mts: programs that attn-client.d.mts has to take, and mistakes that it has to refuse.
 */
import { AttnError, Client, Session, numbersOfHalves } from "./clients/js/attn-client.mjs";
import type { ModelInfo, SessionInfo, StepReply, Tensor } from "./clients/js/attn-client.mjs";

const client = new Client("http://127.0.0.1:8080", { apiKey: "k", deadlineMs: 9, fetch });
const { signal } = new AbortController();
const onnx = { data: new Float32Array(8), dims: [1, 8], type: "float32" };

const models: ModelInfo[] = await client.models({ signal });
const width: number = models[0].hidden_size;
const reply = await client.attend(onnx, {
    outputs: ["output", "lse"],
    padding_mask: [true],
    signal,
});
const output: Tensor = reply.output;
const lse: Float32Array = reply.lse.data;
await client.attend(undefined, { query: [[1]], key: [[1]], value: [[null]], is_causal: true });
await client.attend([new Float32Array(width)]);
(await client.attend({ data: [1, 2], shape: [1, 2] })).output.shape.map((size: number) => size);
// @ts-expect-error: no such output
await client.attend(onnx, { outputs: ["outptu"] });
// @ts-expect-error: a text is no tensor
await client.attend("rows");

const made: number = await client.withSession(
    { model: "m", ttl_s: 9 },
    async (session: Session) => {
        await session.prefill([[1]], { layer: 1 });
        const step: StepReply = await session.decode([1], { commit: false });
        await session.truncate(1, { signal });
        const fork: Session = await session.fork({ length: 1 });
        for (const item of await client.stepMany([
            [session, [1]],
            [fork, { hidden_states: [1] }],
        ]))
            if (!(item instanceof AttnError)) item.output.data.fill(0);
        const { forks, ends } = await client.batch({
            fork: [session, [fork, { length: 1 }]],
            end: [fork],
        });
        for (const each of forks) if (each instanceof Session) await each.end({ retryMs: 0 });
        const failed: string | undefined = ends.find((error) => error !== null)?.code;
        const told: SessionInfo = await session.refresh();
        await client.restore("a", await session.export());
        return (
            step.length + told.lengths[0].length + (session.revision ?? 0) + (failed?.length ?? 0)
        );
    },
);
for await (const entry of client.sessions()) entry.session_id.toUpperCase();
try {
    await client.open("a");
} catch (error) {
    if (error instanceof AttnError && error.kind === "conflict") console.log(error.param, made);
    // @ts-expect-error: no such kind
    if (error instanceof AttnError && error.kind === "conflcit") console.log(lse, output);
}
numbersOfHalves(new Uint16Array(2)).fill(0);
