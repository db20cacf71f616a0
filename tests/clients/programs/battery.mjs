// What `battery.py` is for Python: makes the calls that the test gives, and prints what comes back.
import { once } from "node:events";
import { constants, openSync } from "node:fs";
import { Socket } from "node:net";

const PATIENCE = 60_000;

function answer({ content, isError }) {
  return {
    error: Boolean(isError),
    texts: content.filter(({ type }) => type === "text").map(({ text }) => text),
    images: content.filter(({ type }) => type === "image").map(({ mimeType, data }) => [mimeType, data]),
  };
}

async function cancelled(call, pipe) {
  const controller = new AbortController();
  const ended = call({ timeout: PATIENCE, signal: controller.signal }).then(answer, () => null);
  const written = new Socket({ fd: openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK) });
  const early = await Promise.race([once(written, "data").then(() => false), ended.then((found) => [found])]);
  if (early) throw new Error(`the call ended before its code wrote there: ${JSON.stringify(early)}`);
  controller.abort();
  if (await ended) throw new Error("the call was not cancelled");
  written.destroy();
  return null;
}

// `call` is the client's own way to call a tool, as the two versions differ in it.
export async function main(version, connect, call) {
  const given = JSON.parse(process.argv[2]);
  const client = await connect(given.server);
  const tools = (await client.listTools()).tools.map(({ name }) => name);
  const answers = [];
  for (const { tool, arguments: values, pipe } of given.calls) {
    const made = (options) => call(client, { name: tool, arguments: values }, options);
    answers.push(pipe ? await cancelled(made, pipe) : answer(await made({ timeout: PATIENCE })));
  }
  await client.close();
  console.log(JSON.stringify({ version, tools, answers }));
}
