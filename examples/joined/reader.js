// A second worker: it calls the first one's model, wherever that runs, and says what it thinks of the text.
import { files, operations } from "weft";

const known = new Set(files.readText("text.txt").toLowerCase().match(/[a-z]+/g));

operations.register(
  {
    namespace: "reader", name: "review", scopes: ["reader:run"],
    description: "Lets the writer go on with a prompt, and counts the words that its book has.",
    input: { type: "object", required: ["prompt"], properties: { prompt: { type: "string" } } },
  },
  async ({ prompt }) => {
    const { text } = await operations.call("writer.write", { prompt, length: 60 }, { timeout: 60 });
    const words = text.toLowerCase().match(/[a-z]+/g) ?? [];
    return { text, words: words.length, known: words.filter((word) => known.has(word)).length };
  },
);
