// What `battery.py` is for Python: makes the calls that the test gives, and prints what comes back.
import { open } from "node:fs/promises";

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
  const failed = call({ timeout: PATIENCE, signal: controller.signal }).then(() => false, () => true);
  const opened = await open(pipe);
  await opened.read(Buffer.alloc(64));
  await opened.close();
  controller.abort();
  if (!(await failed)) throw new Error("the call was not cancelled");
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
