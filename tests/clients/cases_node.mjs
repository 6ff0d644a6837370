// Drives the real JavaScript SDKs: one JSON command a line in, one JSON line of facts out.
//
// The same contract as cases_python.py: `{client, mode, base, model, tools}` (or `{turn}`, turns_node.mjs) in, `{text, pieces, spread_ms,
// tools, finish, usage, error}` out, nothing judged here. Every client is made as an application would make it, with its default retries and
// Node's own fetch. run.py copies this file beside the installed node_modules, which lie outside the tracked tree.

import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { APICallError, generateText, jsonSchema, RetryError, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { take } from "./turns_node.mjs";

const KEY = "suite-key";
const MESSAGES = [{ role: "user", content: "Cross it." }];
const MAX_TOKENS = 256;
const PARAMETERS = {
  get_weather: { city: { type: "string" }, days: { type: "integer" } },
  get_time: { zone: { type: "string" } },
};
const schema = (name) => ({
  type: "object",
  properties: PARAMETERS[name],
  required: Object.keys(PARAMETERS[name]),
  additionalProperties: false,
});
const NAMES = Object.keys(PARAMETERS);
const OPENAI_TOOLS = NAMES.map((name) => ({
  type: "function",
  function: { name, description: name, strict: true, parameters: schema(name) },
}));
const ANTHROPIC_TOOLS = NAMES.map((name) => ({ name, description: name, input_schema: schema(name) }));
// Without `execute` the AI SDK hands the calls to the application and makes no further step.
const AI_TOOLS = Object.fromEntries(
  NAMES.map((name) => [name, tool({ description: name, inputSchema: jsonSchema(schema(name)) })]),
);

class Seen {
  text = "";
  pieces = 0;
  tools = [];
  finish = null;
  usage = null;
  first = null;
  last = null;

  piece(text) {
    if (text) {
      this.text += text;
      this.pieces += 1;
      this.last = performance.now();
      this.first ??= this.last;
    }
  }

  tokens(input, output) {
    if (input != null && output != null) this.usage = { input, output };
  }

  call(name, args) {
    this.tools.push([name, typeof args === "string" ? JSON.parse(args) : args]);
  }
}

// ---- openai -------------------------------------------------------------------------------------------------------

const openaiArgs = (command) => ({
  model: command.model,
  messages: MESSAGES,
  ...(command.tools ? { tools: OPENAI_TOOLS } : {}),
});

function openaiWhole(seen, answer, withText = true) {
  const [choice] = answer.choices;
  if (withText) seen.piece(choice.message.content);
  for (const call of choice.message.tool_calls ?? []) seen.call(call.function.name, call.function.arguments);
  seen.finish = choice.finish_reason;
  seen.tokens(answer.usage?.prompt_tokens, answer.usage?.completion_tokens);
}

const openaiClient = (command) => new OpenAI({ apiKey: KEY, baseURL: `${command.base}/v1` });

async function openaiNode(seen, command) {
  const client = openaiClient(command);
  if (command.mode === "whole") return openaiWhole(seen, await client.chat.completions.create(openaiArgs(command)));
  const stream = await client.chat.completions.create({
    ...openaiArgs(command),
    stream: true,
    stream_options: { include_usage: true },
  });
  const calls = new Map();
  for await (const chunk of stream) {
    if (chunk.usage) seen.tokens(chunk.usage.prompt_tokens, chunk.usage.completion_tokens);
    for (const choice of chunk.choices) {
      seen.piece(choice.delta.content);
      for (const part of choice.delta.tool_calls ?? []) {
        const call = calls.get(part.index) ?? { name: "", args: "" };
        call.name += part.function?.name ?? "";
        call.args += part.function?.arguments ?? "";
        calls.set(part.index, call);
      }
      seen.finish = choice.finish_reason ?? seen.finish;
    }
  }
  for (const call of calls.values()) seen.call(call.name, call.args);
}

async function openaiNodeStream(seen, command) {
  const stream = openaiClient(command).chat.completions.stream({
    ...openaiArgs(command),
    stream_options: { include_usage: true },
  });
  for await (const chunk of stream) for (const choice of chunk.choices) seen.piece(choice.delta.content);
  const final = await stream.finalChatCompletion();
  if ((final.choices[0].message.content ?? "") !== seen.text) {
    throw new Error("the helper's final text is not the text that it yielded");
  }
  openaiWhole(seen, final, false);
}

const RESPONSES_TOOLS = OPENAI_TOOLS.map(({ function: declared }) => ({ type: "function", ...declared }));

const responsesArgs = (command) => ({
  model: command.model,
  input: "Cross it.",
  ...(command.tools ? { tools: RESPONSES_TOOLS } : {}),
});

function responsesWhole(seen, answer) {
  for (const item of answer.output) {
    if (item.type === "message") seen.piece(item.content.map((part) => part.text).join(""));
    if (item.type === "function_call") seen.call(item.name, item.arguments);
  }
  seen.finish = answer.status;
  seen.tokens(answer.usage?.input_tokens, answer.usage?.output_tokens);
}

async function openaiNodeResponses(seen, command) {
  const client = openaiClient(command);
  if (command.mode === "whole") return responsesWhole(seen, await client.responses.create(responsesArgs(command)));
  await responsesEvents(seen, await client.responses.create({ ...responsesArgs(command), stream: true }));
}

// As an application does that uses the raw stream.
async function responsesEvents(seen, events) {
  const calls = new Map();
  for await (const event of events) {
    if (event.type === "response.output_text.delta") seen.piece(event.delta);
    if (event.type === "response.output_item.added" && event.item.type === "function_call") {
      calls.set(event.output_index, { name: event.item.name, args: "" });
    }
    if (event.type === "response.function_call_arguments.delta") calls.get(event.output_index).args += event.delta;
    if (event.type === "response.completed") {
      seen.finish = event.response.status;
      seen.tokens(event.response.usage?.input_tokens, event.response.usage?.output_tokens);
    }
  }
  for (const call of calls.values()) seen.call(call.name, call.args);
}

async function openaiNodeResponsesStream(seen, command) {
  const stream = openaiClient(command).responses.stream(responsesArgs(command));
  await responsesEvents(seen, stream);
  const final = await stream.finalResponse();
  if ((final.output_text ?? "") !== seen.text) {
    throw new Error("the helper's final text is not the text that it yielded");
  }
  const told = final.output.filter((item) => item.type === "function_call");
  if (JSON.stringify(told.map((item) => [item.name, JSON.parse(item.arguments)])) !== JSON.stringify(seen.tools)) {
    throw new Error("the helper's final calls are not the calls that it yielded");
  }
}

// ---- anthropic ----------------------------------------------------------------------------------------------------

const anthropicArgs = (command) => ({
  model: command.model,
  messages: MESSAGES,
  max_tokens: MAX_TOKENS,
  ...(command.tools ? { tools: ANTHROPIC_TOOLS } : {}),
});

function anthropicWhole(seen, answer, withText = true) {
  for (const block of answer.content) {
    if (block.type === "text" && withText) seen.piece(block.text);
    if (block.type === "tool_use") seen.call(block.name, block.input);
  }
  seen.finish = answer.stop_reason;
  seen.tokens(answer.usage.input_tokens, answer.usage.output_tokens);
}

const anthropicClient = (command) => new Anthropic({ apiKey: KEY, baseURL: command.base });

async function anthropicNode(seen, command) {
  const client = anthropicClient(command);
  if (command.mode === "whole") return anthropicWhole(seen, await client.messages.create(anthropicArgs(command)));
  const blocks = new Map();
  let inputTokens = null;
  for await (const event of await client.messages.create({ ...anthropicArgs(command), stream: true })) {
    if (event.type === "message_start") inputTokens = event.message.usage.input_tokens;
    if (event.type === "content_block_start" && event.content_block.type === "tool_use") {
      blocks.set(event.index, { name: event.content_block.name, args: "" });
    }
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") seen.piece(event.delta.text);
    if (event.type === "content_block_delta" && event.delta.type === "input_json_delta") {
      blocks.get(event.index).args += event.delta.partial_json;
    }
    if (event.type === "message_delta") {
      seen.finish = event.delta.stop_reason;
      seen.tokens(inputTokens, event.usage.output_tokens);
    }
  }
  for (const block of blocks.values()) seen.call(block.name, block.args);
}

async function anthropicNodeStream(seen, command) {
  const stream = anthropicClient(command).messages.stream(anthropicArgs(command));
  for await (const event of stream) {
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") seen.piece(event.delta.text);
  }
  const final = await stream.finalMessage();
  const text = final.content.filter((block) => block.type === "text").map((block) => block.text).join("");
  if (text !== seen.text) throw new Error("the helper's final text is not the text that it yielded");
  anthropicWhole(seen, final, false);
}

// ---- the AI SDK ---------------------------------------------------------------------------------------------------

async function aiSdk(seen, command, model) {
  const args = { model, messages: MESSAGES, ...(command.tools ? { tools: AI_TOOLS } : {}) };
  if (command.mode === "whole") {
    const answer = await generateText(args);
    seen.piece(answer.text);
    for (const call of answer.toolCalls) seen.call(call.toolName, call.input);
    seen.finish = answer.finishReason;
    seen.tokens(answer.usage.inputTokens, answer.usage.outputTokens);
    return;
  }
  let failed = null;
  // `onError` replaces the default handler, which only prints to stderr; the error part in the stream is what is judged.
  const result = streamText({ ...args, onError: () => {} });
  try {
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") seen.piece(part.text);
      if (part.type === "tool-call") seen.call(part.toolName, part.input);
      if (part.type === "error") failed ??= part.error;
      if (part.type === "finish") {
        seen.finish = part.finishReason;
        seen.tokens(part.totalUsage.inputTokens, part.totalUsage.outputTokens);
      }
    }
  } catch (aborted) {
    // The abort after the frame makes the iterator throw as well; the part that came first is what an application shows.
    failed ??= aborted;
  }
  if (failed !== null) throw failed;
}

const aiSdkOpenai = (seen, command) =>
  aiSdk(seen, command, createOpenAI({ apiKey: KEY, baseURL: `${command.base}/v1` }).chat(command.model));
const aiSdkResponses = (seen, command) =>
  aiSdk(seen, command, createOpenAI({ apiKey: KEY, baseURL: `${command.base}/v1` }).responses(command.model));
const aiSdkAnthropic = (seen, command) =>
  aiSdk(seen, command, createAnthropic({ apiKey: KEY, baseURL: `${command.base}/v1` })(command.model));

// ---- the worker ---------------------------------------------------------------------------------------------------

const RUNNERS = {
  "openai-node": openaiNode,
  "openai-node.stream": openaiNodeStream,
  "openai-node.responses": openaiNodeResponses,
  "openai-node.responses.stream": openaiNodeResponsesStream,
  "ai-sdk-openai.responses": aiSdkResponses,
  "anthropic-node": anthropicNode,
  "anthropic-node.stream": anthropicNodeStream,
  "ai-sdk-openai": aiSdkOpenai,
  "ai-sdk-anthropic": aiSdkAnthropic,
};

const isObject = (value) => typeof value === "object" && value !== null;

// The error as an application can look at it. The AI SDK hands on in-band errors as error parts whose value is not
// always an Error, so for that SDK whatever came as an error part is its own.
function failure(client, error) {
  const sdk =
    error instanceof OpenAI.APIError ||
    error instanceof Anthropic.APIError ||
    (client.startsWith("ai-sdk") && (!(error instanceof TypeError) || APICallError.isInstance(error)));
  let body = isObject(error) ? (error.error ?? error.data ?? error) : error;
  if (APICallError.isInstance(error) && typeof error.responseBody === "string") {
    try {
      body = JSON.parse(error.responseBody);
    } catch {
      // no JSON: `data` is all there is
    }
  }
  const handle = isObject(body) ? (body.rubicon ?? (isObject(body.error) ? body.error.rubicon : undefined)) : undefined;
  const headers = isObject(error) ? (error.headers ?? error.responseHeaders) : undefined;
  const shouldRetry = headers?.get ? headers.get("x-should-retry") : headers?.["x-should-retry"];
  return {
    class: error?.constructor?.name ?? typeof error,
    sdk: sdk && !RetryError.isInstance(error),
    transport: APICallError.isInstance(error) && error.cause !== undefined && error.responseBody === undefined,
    status: (isObject(error) ? (error.status ?? error.statusCode) : undefined) ?? null,
    message: String(error?.message ?? error).slice(0, 500),
    rubicon: handle ?? null,
    should_retry: shouldRetry ?? null,
  };
}

async function play(command) {
  const seen = new Seen();
  let error = null;
  try {
    await RUNNERS[command.client](seen, command);
  } catch (raised) {
    error = failure(command.client, raised);
  }
  const { text, pieces, tools, finish, usage, first, last } = seen;
  return { text, pieces, spread_ms: last - first, tools, finish, usage, error };
}

const version = (name) =>
  JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url), "utf8")).version;

// Standard output is the line protocol's alone; the SDKs' warnings go to the log.
const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
console.log = console.info = console.debug = console.error;

// An error that surfaces beside the one that the application awaits is an unhandled rejection: the process would die in
// production, so it dies here too, and run.py reports the case as failed.
say({
  ready: Object.fromEntries(
    ["openai", "@anthropic-ai/sdk", "ai", "@ai-sdk/openai", "@ai-sdk/anthropic"].map((name) => [name, version(name)]),
  ),
});
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  say(command.turn ? await take(command.turn, failure) : await play(command));
}
process.exit(0);
