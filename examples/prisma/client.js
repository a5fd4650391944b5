// What `prisma generate` makes of a schema without models: a client for queries in SQL. It is written out here, since the
// generator downloads a program, and the tests of this repository work without that. Yours is generated.
'use strict';

const { getPrismaClient } = require('@prisma/client/runtime/client');
const { version } = require('@prisma/client/package.json');

const compiler = '@prisma/client/runtime/query_compiler_fast_bg.postgresql';

exports.PrismaClient = getPrismaClient({
  previewFeatures: [],
  clientVersion: version,
  engineVersion: version,
  activeProvider: 'postgresql',
  inlineSchema: 'datasource db {\n  provider = "postgresql"\n}\n',
  runtimeDataModel: { models: {}, enums: {}, types: {} },
  parameterizationSchema: { strings: [], graph: 'AAAA' },
  compilerWasm: {
    getRuntime: async () => require(`${compiler}.js`),
    getQueryCompilerWasmModule: async () =>
      new WebAssembly.Module(Buffer.from(require(`${compiler}.wasm-base64.js`).wasm, 'base64')),
    importName: './query_compiler_fast_bg.js',
  },
});
