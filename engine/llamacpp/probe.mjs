// Measures llama.cpp inside this process, through node-llama-cpp, and speaks
// llmprof's probe protocol: one JSON object a line, requests on stdin, events
// on stdout. It ends when stdin does.
//
// A step of b sequences is asked of b sequences of one context at once, which
// makes the library compute them in one batch; a batch strategy of our own
// counts the batches, so that a step that was split is noticed.
//
// LLMPROF_NODE_LLAMA_CPP names the folder whose node_modules hold
// node-llama-cpp. Without it the working folder is tried, and then the folder
// into which "make engines" installs it.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const library = "node-llama-cpp";
const install = "npm install --omit=optional --ignore-scripts node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1";

// What the engine is asked for where the setup leaves it open.
const defaults = {sequences: 8, tokens: 4096, batchTokens: 2048};

// Decode steps of a warm-up run: enough for caches and the compiler.
const warmupSteps = 8;

let closing = false; // stdin has ended
let busy = false; // a pass is running
let open = null; // the running engine

// say writes an event, whole before it returns, so that it is out even if the
// process ends next. A pipe that is full is waited for.
function say(event) {
    const line = Buffer.from(JSON.stringify(event) + "\n");
    for (let at = 0; at < line.length;) {
        try {
            at += fs.writeSync(1, line, at);
        } catch (err) {
            if (err.code !== "EAGAIN") throw err;
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
        }
    }
}

function log(...words) {
    process.stderr.write(words.join(" ") + "\n");
}

// Fatal ends the session with a reason that the other side knows.
class Fatal extends Error {
    constructor(reason, message, hint) {
        super(message);
        this.reason = reason;
        this.hint = hint;
    }
}

// Failed ends a task.
class Failed extends Error {
    constructor(reason, message) {
        super(message);
        this.reason = reason;
    }
}

function text(err) {
    return String(err?.message || err?.name || err);
}

function outOfMemory(err) {
    return err?.name === "InsufficientMemoryError" || /insufficient memory|out of memory|failed to (allocate|create context)|bad_alloc|not enough/i.test(text(err));
}

// ---- the library ----

function searchFolders() {
    const named = process.env.LLMPROF_NODE_LLAMA_CPP;
    if (named) return [named];
    const cache = process.env.XDG_CACHE_HOME || path.join(os.homedir(), ".cache");
    const engines = process.env.LLMPROF_ENGINES || path.join(cache, "llmprof", "engines");
    let installed = [];
    try {
        installed = fs.readdirSync(engines).filter((name) => name.startsWith(library + "-")).sort().reverse();
    } catch {
        // nothing is installed there
    }
    return [process.cwd(), ...installed.map((name) => path.join(engines, name))];
}

async function loadLibrary() {
    const folders = searchFolders();
    for (const folder of folders) {
        let file;
        try {
            file = createRequire(path.join(path.resolve(folder), "package.json")).resolve(library);
        } catch {
            continue;
        }
        try {
            return await import(pathToFileURL(file));
        } catch (err) {
            throw new Fatal("engine-missing", `${library} in ${folder} cannot be loaded: ${text(err)}`, install);
        }
    }
    throw new Fatal("engine-missing", `${library} is not installed in ${folders.join(" nor in ")}`,
        `${install}, or name the folder where that was done: LLMPROF_NODE_LLAMA_CPP=FOLDER`);
}

// ---- the model ----

function checkModel(file) {
    const want = "name a .gguf file";
    let head;
    try {
        if (fs.statSync(file).isDirectory())
            throw new Fatal("model-unsupported", `${file} is a folder`, want + "; llama.cpp's convert_hf_to_gguf.py makes one from a folder");
        const handle = fs.openSync(file, "r");
        head = Buffer.alloc(4);
        fs.readSync(handle, head, 0, 4, 0);
        fs.closeSync(handle);
    } catch (err) {
        if (err instanceof Fatal) throw err;
        if (err.code === "EACCES" || err.code === "EPERM")
            throw new Fatal("permission-denied", text(err), "check the access rights of the model");
        throw new Fatal("model-missing", err.code === "ENOENT" ? `there is no file ${file}` : text(err), want);
    }
    if (head.toString("latin1") !== "GGUF")
        throw new Fatal("model-unsupported", `${file} is no GGUF file`, want);
}

function gpuOf(device) {
    if (!device || device === "cpu") return false;
    return device === "gpu" ? "auto" : device;
}

// ---- clocks ----

function clockOf(name) {
    if (name === "cpu")
        return {
            name: "cpu", timer: "process.cpuUsage", resolution: 1e-6,
            now: () => process.cpuUsage(),
            since(start) {
                const used = process.cpuUsage(start);
                return (used.user + used.system) / 1e6;
            }
        };
    if (name && name !== "wall")
        throw new Fatal("clock", `no clock ${name}`, "use the clock wall or cpu");
    return {
        name: "wall", timer: "process.hrtime", resolution: 1e-9,
        now: () => process.hrtime.bigint(),
        since: (start) => Number(process.hrtime.bigint() - start) / 1e9
    };
}

// random gives numbers below n, repeatable by the seed (mulberry32).
function random(seed) {
    let state = seed >>> 0;
    return (n) => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = state;
        t = Math.imul(t ^ (t >>> 15), t | 1);
        t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
        return ((t ^ (t >>> 14)) >>> 0) % n;
    };
}

// ---- start ----

async function start(request) {
    if (request.schema !== "llmprof/probe" || request.version !== 1)
        throw new Fatal("protocol", `this probe does not speak ${request.schema} version ${request.version}`);
    if (request.num_layers > 0)
        throw new Fatal("model-unsupported", `a GGUF file is measured as it is, it cannot be cut to its first ${request.num_layers} layers`, "leave the number of layers out");
    if (request.tensor_parallel_size > 1)
        throw new Fatal("model-unsupported", `tensor parallelism over ${request.tensor_parallel_size} devices is not supported`, "use one device");
    const clock = clockOf(request.clock);
    checkModel(request.model);
    const {getLlama, getModuleVersion} = await loadLibrary();

    const gpu = gpuOf(request.device);
    // More threads than cores spin against each other and are slower by orders
    // of magnitude; the library's own choice has no such bound.
    const cores = os.availableParallelism();
    const options = {build: "never", gpu, skipDownload: true, progressLogs: false, logLevel: "warn", logger: (level, message) => log(level, message.trimEnd())};
    options.maxThreads = request.threads > 0 ? request.threads : cores;
    let llama;
    try {
        llama = await getLlama(options);
    } catch (err) {
        if (gpu)
            throw new Fatal("no-device", `no build of llama.cpp for ${request.device} runs here: ${text(err)}`, "choose the device cpu, or install the package for the device");
        throw new Fatal("engine-missing", `no build of llama.cpp runs here: ${text(err)}`, install);
    }
    say({event: "mark", name: "started"});
    let model;
    try {
        model = await llama.loadModel({modelPath: path.resolve(request.model), gpuLayers: gpu ? "max" : 0});
    } catch (err) {
        throw new Fatal(outOfMemory(err) ? "oom" : "model-unsupported", `load ${request.model}: ${text(err)}`);
    }

    say({event: "mark", name: "loaded"});

    const warnings = [];
    const sequences = request.max_batch || defaults.sequences;
    let longest = (request.max_input || 0) + (request.max_output || 0) || defaults.tokens;
    longest = Math.min(longest, request.max_model_len || model.trainContextSize);
    const batches = {count: 0, items: 0};
    let context;
    try {
        context = await model.createContext({
            contextSize: longest + 1, // the last place of a context is never used
            sequences,
            batchSize: Math.max(request.max_num_batched_tokens || defaults.batchTokens, sequences),
            threads: request.threads > 0 ? request.threads : Math.max(1, Math.min(llama.cpuMathCores, cores)),
            batching: {itemPrioritizationStrategy: evenly(batches)},
            failedCreationRemedy: false
        });
    } catch (err) {
        throw new Fatal(outOfMemory(err) ? "oom" : "context", `make a context of ${sequences} sequences of ${longest} tokens: ${text(err)}`,
            "ask for fewer or shorter sequences");
    }
    const tokens = [...model.iterateAllTokens()];
    open = {
        clock, context, batches, tokens, longest,
        sequences: Array.from({length: sequences}, () => context.getSequence()),
        random: random(Number(request.seed) || 0)
    };

    const threads = context.idealThreads;
    if (threads > cores)
        warnings.push(`${threads} threads on ${cores} cores wait for each other: the times are of no use`);
    const load = os.loadavg()[0];
    if (clock.name === "wall" && load > cores / 2)
        warnings.push(`the machine was busy (load ${load.toFixed(1)} on ${cores} cores): wall times vary, CPU time varies less`);
    if (clock.name === "cpu" && threads > 1)
        warnings.push(`CPU time is that of all ${threads} threads together, with what they spend waiting for each other`);
    if ((request.max_input || 0) * sequences > context.batchSize)
        warnings.push(`prompts of more than ${context.batchSize} tokens in all are computed in pieces of that size`);
    return {
        event: "ready", schema: "llmprof/probe", version: 1,
        engine: "llama.cpp", engine_version: llama.llamaCppRelease.release,
        libraries: {[library]: await getModuleVersion(), node: process.versions.node, build: llama.buildType},
        device: gpu && llama.gpu ? (await llama.getGpuDeviceNames())[0] : os.cpus()[0]?.model, device_count: 1,
        clock: clock.name, timer: clock.timer, timer_resolution_s: clock.resolution,
        max_model_len: longest, max_total_tokens: sequences * context.contextSize, max_batch: sequences,
        num_layers: model.fileInfo?.architectureMetadata?.block_count ?? 0, threads,
        dtype: plainType(model.typeDescription),
        weights_bytes: model.size,
        memory: [
            {part: "kv-cache", tokens: sequences * context.contextSize},
            {part: "process", bytes: process.memoryUsage.rss()}
        ],
        warnings
    };
}

// plainType is the number format at the end of llama.cpp's description of a
// model ("llama 8B F16"), if it is not a quantised one.
function plainType(description) {
    const last = String(description).split(" ").pop();
    return {F16: "fp16", BF16: "bf16", F32: "fp32"}[last];
}

// evenly fills a batch with equal shares of all sequences, which are of equal
// length here, and counts what is computed.
function evenly(batches) {
    return ({items, size}) => {
        batches.count++;
        batches.items += items.length;
        const share = Math.max(1, Math.floor(size / items.length));
        return items.map((item) => ({item, processAmount: Math.min(share, item.tokens.length)}));
    };
}

// ---- measuring ----

// pass computes tokens of each sequence in one step, with the logits of the
// last one, and returns its time in seconds. Nothing is sampled, so that the
// time is the model's; a release that does not know how to leave it out samples
// once.
async function pass(work) {
    const {clock} = open;
    busy = true;
    const begin = clock.now();
    const results = await Promise.allSettled(work.map(async ({sequence, tokens}) => {
        const iterator = sequence.evaluate(tokens, {temperature: 0, yieldEogToken: true, _noSampling: true});
        try {
            await iterator.next();
        } finally {
            await iterator.return();
        }
    }));
    const time = clock.since(begin);
    busy = false;
    if (closing) process.exit(0);
    const failure = results.find((r) => r.status === "rejected");
    if (failure) throw failure.reason;
    return Math.max(time, clock.resolution);
}

function draw(n) {
    return Array.from({length: n}, () => open.tokens[open.random(open.tokens.length)]);
}

// run prefills the sequences and decodes steps tokens of each.
async function run(task, steps) {
    const {batches, sequences} = open;
    for (const sequence of sequences)
        if (sequence.nextTokenIndex > 0) await sequence.clearHistory();
    const active = sequences.slice(0, task.batch_size);
    const prefill = await pass(active.map((sequence) => ({sequence, tokens: draw(task.input_len)})));
    const decode = [];
    for (let i = 0; i < steps; i++) {
        const work = active.map((sequence) => ({sequence, tokens: draw(1)}));
        batches.count = batches.items = 0;
        decode.push(await pass(work));
        if (batches.count !== 1 || batches.items !== active.length)
            throw new Failed("exception", `a decode step of ${active.length} sequences was computed as ${batches.items} sequences in ${batches.count} batches`);
    }
    return {prefill, decode};
}

async function step(task) {
    const length = task.input_len + task.output_len;
    if (task.batch_size > open.sequences.length || length > open.longest)
        throw new Failed("skipped_due_to_limits", `${task.batch_size} sequences of ${length} tokens: the engine was started for ${open.sequences.length} of ${open.longest}`);
    const steps = task.output_len - 1;
    for (let i = 0; i < task.warmup; i++) await run(task, Math.min(steps, warmupSteps));
    say({event: "mark", name: "warm"});
    const event = {event: "step", id: task.id, prefill_s: [], decode_s: []};
    for (let i = 0; i < task.runs; i++) {
        const {prefill, decode} = await run(task, steps);
        event.prefill_s.push(prefill);
        if (steps > 0) event.decode_s.push(decode);
    }
    return event;
}

// ---- protocol ----

async function answer(request) {
    switch (request.op) {
        case "open":
            try {
                say(await start(request));
            } catch (err) {
                say({event: "fatal", engine: "llama.cpp", reason: err.reason || "exception", message: text(err), hint: err.hint});
                process.exit(1);
            }
            return;
        case "close":
            process.exit(0);
    }
    try {
        if (!open) throw new Failed("exception", "the engine is not open");
        if (request.op !== "step") throw new Failed("exception", `llama.cpp measures steps, not ${request.op}`);
        say(await step(request));
    } catch (err) {
        const reason = err.reason || (outOfMemory(err) ? "oom" : "exception");
        say({event: "failed", id: request.id, reason, message: text(err)});
    }
}

let queue = Promise.resolve();
const lines = readline.createInterface({input: process.stdin});
lines.on("line", (line) => {
    if (!line.trim()) return;
    let request;
    try {
        request = JSON.parse(line);
    } catch (err) {
        say({event: "fatal", engine: "llama.cpp", reason: "protocol", message: `a request is no JSON: ${text(err)}`});
        process.exit(1);
    }
    queue = queue.then(() => answer(request));
});
// The native code must not run while the process ends: a pass that runs is
// waited for, within reason.
lines.on("close", () => {
    closing = true;
    if (!busy) process.exit(0);
    setTimeout(() => process.exit(0), 5000);
});
process.on("uncaughtException", (err) => {
    log(err?.stack || text(err));
    try {
        say({event: "fatal", engine: "llama.cpp", reason: "exception", message: text(err)});
    } finally {
        process.exit(1);
    }
});
