// Reads {"folder", "given": [{"module", "kind", "resource"}]} and writes a list of lines: what the module's own validator says of each resource.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { folder, given } = JSON.parse(readFileSync(0, "utf8"));
const lines = [];
for (const { module, kind, resource } of given) {
  const model = (await import(pathToFileURL(`${folder}/node_modules/${module}.js`).href))[kind];
  try {
    new model(resource).validate();
  } catch (error) {
    lines.push(`${kind} ${resource.metadata.name}: ${error.message}`);
  }
}
process.stdout.write(JSON.stringify(lines));
