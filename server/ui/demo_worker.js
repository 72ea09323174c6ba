/**
 * demo_worker.js: the demonstration model beside the page: tokens, embeddings, norms, MLPs, output.
 *
 * The page sends {blob, tokenizer} once, then {turn, text}. The worker asks for the attention of each
 * layer with {turn, layer, rows}, which the page answers with {turn, output}, and ends with
 * {turn, labels, taken, next}; or says {turn, error}. A later text takes the place of one under way.
 */
import { MAX_TOKENS, likeliest, modelOf } from "./demo_model.js";
import { tokenizerOf } from "./demo_tokenizer.js";

const LIKELIEST = 5;

const state = {
    made: null, // promise of {model, tokenizer}
    latest: { turn: -1 }, // {turn, answer}: the text under way
};

async function make({ blob, tokenizer }) {
    return { model: await modelOf(blob), tokenizer: tokenizerOf(tokenizer) };
}

/** What attnd gives for the rows of a layer; never, where another text has come meanwhile. */
function attention(work, layer, rows) {
    return new Promise((resolve) => {
        if (state.latest !== work) return;
        work.answer = resolve;
        postMessage({ turn: work.turn, layer, rows });
    });
}

async function read(work, text) {
    const { model, tokenizer } = await state.made;
    const ids = tokenizer.encode(text).slice(0, MAX_TOKENS);
    const { rows, taken } = await model.run(ids, (input, layer) => attention(work, layer, input));
    const next = likeliest(model.logits(rows, ids.length - 1), LIKELIEST).map(
        ({ id, probability }) => ({ text: tokenizer.label(id), probability }),
    );
    postMessage({ turn: work.turn, labels: ids.map(tokenizer.label), taken, next });
}

onmessage = async ({ data }) => {
    if (data.blob) state.made = make(data);
    else if (data.output) {
        if (data.turn === state.latest.turn) state.latest.answer(data.output);
    } else {
        const work = (state.latest = { turn: data.turn, answer: null });
        read(work, data.text).catch((error) =>
            postMessage({ turn: work.turn, error: error.message }),
        );
    }
};
