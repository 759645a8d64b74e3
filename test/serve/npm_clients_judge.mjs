// Clients of OpenAI, Anthropic and Ollama, and the AI SDK, against a server of Weft: npm_clients_judge.mjs URL.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  convertToModelMessages, DefaultChatTransport, embedMany, generateObject, generateText, readUIMessageStream, stepCountIs, streamObject, streamText, tool,
} from "ai";
import express from "express";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const url = process.argv[2];
const messages = [{ role: "user", content: "hello" }];
const Person = z.object({ name: z.string(), age: z.number().int(), tag: z.enum(["a", "b"]).nullable() });
const add = { type: "object", properties: { a: { type: "integer" } }, required: ["a"], additionalProperties: false };

async function openai() {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const base = { model: "noise", messages, seed: 3, max_tokens: 40 };
  const plain = await client.chat.completions.create(base);
  assert.equal(await client.chat.completions.stream(base).finalContent(), plain.choices[0].message.content);
  const parsed = await client.chat.completions.parse({ ...base, max_tokens: 600, response_format: zodResponseFormat(Person, "person") });
  assert.ok(Number.isInteger(parsed.choices[0].message.parsed.age));
  const functions = ["add", "sub"].map((name) => ({ type: "function", function: { name, parameters: add } }));
  const called = await client.chat.completions.create({
    ...base, max_tokens: 300, tools: functions,
    tool_choice: { type: "allowed_tools", allowed_tools: { mode: "required", tools: [{ type: "function", function: { name: "sub" } }] } },
  });
  assert.ok(called.choices[0].message.tool_calls.every((call) => call.function.name === "sub"));
  const first = await client.responses.create({ model: "noise", input: "hello", max_output_tokens: 5 });
  assert.equal((await client.responses.inputTokens.count({ model: "noise", input: "hello" })).input_tokens, first.usage.input_tokens);
  assert.equal((await client.responses.inputItems.list(first.id)).data[0].content[0].text, "hello");
  const text = { format: zodTextFormat(Person, "person") };
  assert.ok((await client.responses.parse({ model: "noise", input: "hello", max_output_tokens: 600, text })).output_parsed.name.length >= 0);
  assert.equal((await client.embeddings.create({ model: "noise", input: ["a", "b"], dimensions: 8 })).data[1].embedding.length, 8);
}

async function anthropic() {
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const base = { model: "noise", max_tokens: 40, messages, seed: 3 };
  const plain = await client.messages.create(base);
  const streamed = await client.messages.stream(base).finalMessage();
  assert.deepEqual([streamed.content, streamed.stop_reason], [plain.content, plain.stop_reason]);
  const { input_tokens } = await client.messages.countTokens({ model: "noise", messages });
  assert.equal(input_tokens, plain.usage.input_tokens + plain.usage.cache_read_input_tokens);
  const tools = [{ name: "add", input_schema: add }];
  const stream = client.messages.stream({ ...base, max_tokens: 300, tools, tool_choice: { type: "tool", name: "add" } });
  let pieces = "";
  stream.on("inputJson", (piece) => (pieces += piece));
  const { content, stop_reason } = await stream.finalMessage();
  assert.equal(stop_reason, "tool_use");
  assert.deepEqual(JSON.parse(pieces), content[0].input);
  for await (const model of client.models.list()) assert.equal(model.id, "noise");
  const run = async ({ a }) => String(a + 1);
  const runner = client.beta.messages.toolRunner({
    ...base, max_tokens: 300, max_iterations: 2, tool_choice: { type: "any" }, tools: [{ ...tools[0], run, parse: (input) => input }],
  });
  assert.equal((await runner).role, "assistant");
  await assert.rejects(client.messages.create({ ...base, model: "claude" }), Anthropic.NotFoundError);
}

async function ollama() {
  const client = new Ollama({ host: url });
  assert.equal((await client.list()).models[0].model, "noise:latest");
  assert.deepEqual((await client.show({ model: "noise" })).capabilities, ["completion", "tools", "thinking"]);
  const options = { num_predict: 30, seed: 3 };
  const whole = await client.chat({ model: "noise", messages, options });
  let text = "";
  for await (const piece of await client.chat({ model: "noise", messages, options, stream: true })) text += piece.message.content;
  assert.equal(text, whole.message.content);
  assert.equal((await client.generate({ model: "noise", prompt: "hello", options })).response, text);
  const format = z.toJSONSchema(Person);
  Person.parse(JSON.parse((await client.chat({ model: "noise", messages, format, options: { seed: 3 } })).message.content));
  assert.deepEqual((await client.embed({ model: "noise", input: ["a", "b"] })).embeddings.map((row) => row.length), [32, 32]);
  const running = await client.chat({ model: "noise", messages, stream: true });
  await assert.rejects(async () => { for await (const _ of running) running.abort(); }, { name: "AbortError" });
  await assert.rejects(client.chat({ model: "llama3", messages }), { name: "ResponseError", status_code: 404 });
}

async function aiSdk() {
  const weft = createOpenAICompatible({ name: "weft", baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true });
  const base = { model: weft("noise"), prompt: "hello", seed: 3, maxOutputTokens: 600, maxRetries: 0 };
  const short = { ...base, maxOutputTokens: 20 };
  const whole = await generateText(short);
  const stream = streamText(short);
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, whole.text);
  assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
  const { object } = await generateObject({ ...base, schema: Person });
  const parts = streamObject({ ...base, schema: Person });
  for await (const _ of parts.partialObjectStream);
  assert.deepEqual(await parts.object, object);
  const tools = { add: tool({ inputSchema: z.object({ a: z.number().int() }), execute: async ({ a }) => a + 1 }) };
  const { steps } = await generateText({ ...base, tools, toolChoice: "required", stopWhen: stepCountIs(2) });
  assert.equal(steps.length, 2);
  assert.equal(steps[0].toolResults[0].output, steps[0].toolCalls[0].input.a + 1);
  const { embeddings } = await embedMany({ model: weft.textEmbeddingModel("noise"), values: ["a", "b"] });
  assert.equal(embeddings.length, 2);
}

// The handlers of docs/serving.md for Express and Next.js, called as the hook useChat calls them.
async function handlers() {
  const weft = createOpenAICompatible({ name: "weft", baseURL: `${url}/v1` });
  const answer = async (messages) => streamText({ model: weft("noise"), messages: await convertToModelMessages(messages), seed: 3, maxOutputTokens: 20 });
  const post = async (request) => (await answer((await request.json()).messages)).toUIMessageStreamResponse();
  const app = express().use(express.json());
  app.post("/api/chat", async ({ body }, response) => (await answer(body.messages)).pipeUIMessageStreamToResponse(response));
  const server = app.listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const texts = [];
  for (const fetch of [undefined, (place, options) => post(new Request(place, options))]) {
    const transport = new DefaultChatTransport({ api: `http://127.0.0.1:${server.address().port}/api/chat`, fetch });
    const stream = await transport.sendMessages({
      trigger: "submit-message", chatId: "1", messageId: undefined, abortSignal: undefined,
      messages: [{ id: "1", role: "user", parts: [{ type: "text", text: "hello" }] }],
    });
    let last;
    for await (const message of readUIMessageStream({ stream })) last = message;
    texts.push(last.parts.filter((part) => part.type === "text").map((part) => part.text).join(""));
  }
  server.close();
  const direct = await generateText({ model: weft("noise"), prompt: "hello", seed: 3, maxOutputTokens: 20 });
  assert.deepEqual(texts, [direct.text, direct.text]);
}

for (const check of [openai, anthropic, ollama, aiSdk, handlers]) {
  await check();
  console.log(check.name);
}
