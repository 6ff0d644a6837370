// One turn of an agent on the real JavaScript SDKs; the conversation of a session stays here between its turns.
//
// The same contract as turns_python.py: `{client, session, base, model, say, results, headers}` in; `{operation, calls, text, error}` out.

import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { jsonSchema, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createAnthropic } from "@ai-sdk/anthropic";

const KEY = "suite-key";
const SESSIONS = new Map();
const PARAMETERS = {
  type: "object",
  properties: { order: { type: "string" }, cents: { type: "integer" } },
  required: ["order", "cents"],
};
const TOOL = { name: "refund_order", description: "Pays money back.", parameters: PARAMETERS };
const OPERATION = "rubicon-operation-id";

const openaiClient = (turn) => new OpenAI({ apiKey: KEY, baseURL: `${turn.base}/v1` });

async function chat(turn, told, history) {
  for (const [id, text] of turn.results) history.push({ role: "tool", tool_call_id: id, content: text });
  if (turn.say) history.push({ role: "user", content: turn.say });
  const asked = { model: turn.model, messages: history, stream: true, tools: [{ type: "function", function: TOOL }] };
  const { data, response } = await openaiClient(turn)
    .chat.completions.create(asked, { headers: turn.headers })
    .withResponse();
  told.operation = response.headers.get(OPERATION);
  for await (const chunk of data) {
    for (const { delta } of chunk.choices) {
      told.text += delta.content ?? "";
      for (const part of delta.tool_calls ?? []) {
        const call = (told.calls[part.index] ??= { id: part.id, name: part.function.name, arguments: "" });
        call.arguments += part.function.arguments ?? "";
      }
    }
  }
  const calls = told.calls.map(({ id, ...called }) => ({ id, type: "function", function: called }));
  history.push({ role: "assistant", content: told.text || null, ...(calls.length ? { tool_calls: calls } : {}) });
}

async function responses(turn, told, history) {
  for (const [id, text] of turn.results) history.push({ type: "function_call_output", call_id: id, output: text });
  if (turn.say) history.push({ role: "user", content: turn.say });
  const asked = { model: turn.model, input: history, stream: true, tools: [{ type: "function", strict: null, ...TOOL }] };
  const { data, response } = await openaiClient(turn).responses.create(asked, { headers: turn.headers }).withResponse();
  told.operation = response.headers.get(OPERATION);
  for await (const event of data) {
    if (event.type === "response.output_text.delta") told.text += event.delta;
    if (event.type === "response.output_item.done" && event.item.type === "function_call") {
      told.calls.push({ id: event.item.call_id, name: event.item.name, arguments: event.item.arguments });
    }
    if (event.type === "response.completed") history.push(...event.response.output);
  }
}

async function messages(turn, told, history) {
  const content = turn.results.map(([id, text]) => ({ type: "tool_result", tool_use_id: id, content: text }));
  if (turn.say) content.push({ type: "text", text: turn.say });
  if (content.length) history.push({ role: "user", content });
  const tools = [{ name: TOOL.name, description: TOOL.description, input_schema: PARAMETERS }];
  const asked = { model: turn.model, max_tokens: 256, messages: history, tools, stream: true };
  const client = new Anthropic({ apiKey: KEY, baseURL: turn.base });
  const { data, response } = await client.messages.create(asked, { headers: turn.headers }).withResponse();
  told.operation = response.headers.get(OPERATION);
  const blocks = new Map();
  for await (const event of data) {
    if (event.type === "content_block_start" && event.content_block.type === "tool_use") {
      blocks.set(event.index, { id: event.content_block.id, name: event.content_block.name, arguments: "" });
    }
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") told.text += event.delta.text;
    if (event.type === "content_block_delta" && event.delta.type === "input_json_delta") {
      blocks.get(event.index).arguments += event.delta.partial_json;
    }
    if (event.type === "content_block_stop" && blocks.has(event.index)) told.calls.push(blocks.get(event.index));
  }
  const said = told.text ? [{ type: "text", text: told.text }] : [];
  for (const call of told.calls) {
    said.push({ type: "tool_use", id: call.id, name: call.name, input: JSON.parse(call.arguments) });
  }
  history.push({ role: "assistant", content: said });
}

// The application runs the tools itself: without `execute` the AI SDK hands a call out and makes no further step.
const AI_TOOLS = { refund_order: tool({ description: TOOL.description, inputSchema: jsonSchema(PARAMETERS) }) };

async function aiSdk(turn, told, history, model) {
  const results = turn.results.map(([id, text]) => ({
    type: "tool-result",
    toolCallId: id,
    toolName: TOOL.name,
    output: { type: "text", value: text },
  }));
  if (results.length) history.push({ role: "tool", content: results });
  if (turn.say) history.push({ role: "user", content: turn.say });
  const result = streamText({ model, messages: history, tools: AI_TOOLS, headers: turn.headers, onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") told.text += part.text;
    if (part.type === "tool-call") {
      told.calls.push({ id: part.toolCallId, name: part.toolName, arguments: JSON.stringify(part.input) });
    }
    if (part.type === "error") throw part.error;
  }
  const response = await result.response;
  told.operation = response.headers[OPERATION];
  history.push(...response.messages);
}

const aiOpenai = (turn) => createOpenAI({ apiKey: KEY, baseURL: `${turn.base}/v1` });

const TURNS = {
  "openai-node": chat,
  "openai-node.responses": responses,
  "anthropic-node": messages,
  "ai-sdk-openai": (turn, told, history) => aiSdk(turn, told, history, aiOpenai(turn).chat(turn.model)),
  "ai-sdk-openai.responses": (turn, told, history) => aiSdk(turn, told, history, aiOpenai(turn).responses(turn.model)),
  "ai-sdk-anthropic": (turn, told, history) =>
    aiSdk(turn, told, history, createAnthropic({ apiKey: KEY, baseURL: `${turn.base}/v1` })(turn.model)),
};

// Plays a turn; `failure` describes what was raised.
export async function take(turn, failure) {
  const told = { operation: null, calls: [], text: "", error: null };
  if (!SESSIONS.has(turn.session)) SESSIONS.set(turn.session, []);
  try {
    await TURNS[turn.client](turn, told, SESSIONS.get(turn.session));
  } catch (raised) {
    told.error = failure(turn.client, raised);
  }
  return told;
}
