// Version 1 of MCP's TypeScript SDK.
import { readFileSync } from "node:fs";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { main } from "./battery.mjs";

const { version } = JSON.parse(readFileSync("node_modules/@modelcontextprotocol/sdk/package.json"));

async function connect({ url, headers, ...stdio }) {
  const client = new Client({ name: "clients", version: "1" });
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
    : new StdioClientTransport(stdio);
  await client.connect(transport);
  return client;
}

await main(version, connect, (client, request, options) => client.callTool(request, undefined, options));
