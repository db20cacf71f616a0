// Version 2 of MCP's TypeScript SDK, with the newest protocol that the server has.
import { readFileSync } from "node:fs";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { main } from "./battery.mjs";

const { version } = JSON.parse(readFileSync("node_modules/@modelcontextprotocol/client/package.json"));

async function connect({ url, headers, ...stdio }) {
  const client = new Client({ name: "clients", version: "1" }, { versionNegotiation: { mode: "auto" } });
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
    : new StdioClientTransport(stdio);
  await client.connect(transport);
  return client;
}

await main(version, connect, (client, request, options) => client.callTool(request, options));
