// Azure's blobs as Azurite emulates them: in memory, on a free port of the loopback interface, until its input ends.
"use strict";

process.argv.push("--blobPort", "0", "--inMemoryPersistence", "--silent", "--skipApiVersionCheck");
const { BlobServerFactory } = require("azurite/dist/src/blob/BlobServerFactory");

async function main() {
  const server = await new BlobServerFactory().createServer();
  await server.start();
  console.log(JSON.stringify({ url: server.getHttpServerAddress() }));
  process.stdin.on("end", () => process.exit(0));
  process.stdin.resume();
}

main();
